"""What a preview shows: one physical place in every level, and what changed there. No drawing."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ziggurat.boxes import Box, is_empty
from ziggurat.grid import ceil_div, round_up
from ziggurat.pictures import limits, shrink
from ziggurat.planes import Planes
from ziggurat.regions import Boxes, as_box
from ziggurat.text import format_shape

if TYPE_CHECKING:
    from ziggurat.pyramid import Pyramid

__all__ = ["Panel", "Rectangle", "default_place", "panels"]

OVERVIEW = 384
"""Pixels per side of the picture of the whole image."""

USUAL_SIDE, LEAST_COARSE, MOST_SIDE = 256, 16, 2048
"""The place, if none is named: pixels of level 0, at least so many of the coarsest, at most so many of level 0."""

OVERVIEW_BYTES, PANEL_BYTES = 64 << 20, 256 << 20
"""What is made from a coarser level, and what stays empty, if more had to be decoded for it."""

MOST_RECTANGLES = 5000

type Rectangle = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True)
class Panel:
    """One picture of a preview.

    Attributes
    ----------
    title : str
        What it shows.
    picture : array of shape (y, x, 3 or 4), optional
        None where there is nothing to be seen, and `why` says why.
    extent, view : tuple of float
        Left, right, top and bottom, in physical units, of the picture and of what is to be seen of it.
    touched, stale : sequence of Rectangle
        What changed in level 0, and the write units that depend on it.
    place : Rectangle, optional
        What the other panels show, where this is the overview.
    """

    title: str
    picture: NDArray[np.uint8] | None
    extent: Rectangle
    view: Rectangle
    why: str = ""
    touched: Sequence[Rectangle] = ()
    stale: Sequence[Rectangle] = ()
    place: Rectangle | None = None


def default_place(pyramid: "Pyramid", around: Box | None = None) -> Box:
    """Return a box of level 0 that shows pixels of every level: around the middle of a box, or where most is to see."""
    planes, first, last = Planes.of(pyramid), pyramid.levels[0].shape, pyramid.levels[-1].shape
    sides = [max(USUAL_SIDE, LEAST_COARSE * math.ceil(n / max(1, m))) for n, m in zip(first, last, strict=True)]
    sides = [
        min(n, side, MOST_SIDE) if i in planes.seen else n for i, (n, side) in enumerate(zip(first, sides, strict=True))
    ]
    middles = [sum(interval) // 2 for interval in around or _busiest(planes, sides)]
    place = []
    for i, (n, side, middle) in enumerate(zip(first, sides, middles, strict=True)):
        start = max(0, min(middle - side // 2, n - side))
        place.append((start, start + side) if i in planes.seen or around is None else around[i])
    return tuple(place)


def _busiest(planes: Planes, sides: Sequence[int]) -> Box:
    """Return the box of level 0, about `sides` large, in which neighbours differ most; all of it where nothing does."""
    k = _overview_level(planes)
    first = planes.pyramid.levels[0]
    pixels = _read(planes, k, planes.box(k))
    if isinstance(pixels, str):
        return first.box
    picture = planes.picture(pixels)[..., :3].sum(axis=2, dtype=np.int64)
    detail = sum(np.abs(np.diff(picture, axis=i, append=picture.take([-1], axis=i))) for i in (0, 1))
    sums = np.pad(np.cumsum(np.cumsum(detail, axis=0), axis=1), ((1, 0), (1, 0)))
    axes = list(zip((planes.y, planes.x), picture.shape, strict=True))
    height, width = (1 if i is None else max(1, sides[i] * n // first.shape[i]) for i, n in axes)
    inside = sums[height:, width:] - sums[:-height, width:] - sums[height:, :-width] + sums[:-height, :-width]
    if not inside.any():
        return first.box
    corner = np.unravel_index(int(inside.argmax()), inside.shape)
    box = list(first.box)
    for (i, n), start, side in zip(axes, corner, (height, width), strict=True):
        if i is not None:
            box[i] = (int(start) * first.shape[i] // n, (int(start) + side) * first.shape[i] // n)
    return tuple(box)


def panels(
    pyramid: "Pyramid", place: Box, levels: Sequence[int], touched: Boxes, stale: Sequence[Boxes]
) -> list[Panel]:
    """Return the overview and one panel per level, all of them with the contrast of the finest that is shown.

    Parameters
    ----------
    place : Box
        Pixels of level 0.
    levels : sequence of int
        Which levels are shown.
    touched : array of boxes
        What changed, in pixels of level 0.
    stale : sequence of arrays of boxes
        Per level, write units that depend on it.
    """
    planes = Planes.of(pyramid)
    whole = _overview_level(planes)
    boxes = [_box_at(planes, k, place) for k in levels]
    pixels = [_read(planes, k, box) for k, box in zip(levels, boxes, strict=True)]
    bounds = next((limits(p) for p in pixels if not isinstance(p, str)), None)
    view = _outline(planes, 0, place)
    everything, box = _outline(planes, 0, pyramid.levels[0].box), planes.box(whole)
    seen = _panel(planes, whole, f"the whole, from level {whole}", box, _read(planes, whole, box), everything)
    found = [replace(seen, touched=_rectangles(planes, 0, touched), place=view)]
    for k, box, part in zip(levels, boxes, pixels, strict=True):
        level = pyramid.levels[k]
        title = f"level {k}: {format_shape(level.shape[i] for i in planes.seen)}"
        panel = _panel(planes, k, title, box, part, view, bounds)
        near = _rectangles(planes, k, _meeting(touched if k == 0 else stale[k], box))
        found.append(replace(panel, touched=near) if k == 0 else replace(panel, stale=near))
    return found


def _panel(
    planes: Planes, k: int, title: str, box: Box, pixels: NDArray[Any] | str, view: Rectangle, bounds: Any = None
) -> Panel:
    if isinstance(pixels, str):
        return Panel(title, None, view, view, pixels)
    # A pixel that stands for several reaches beyond the edge where their number does not divide the side.
    step = max(1, *(ceil_div(box[i][1] - box[i][0], MOST_SIDE) for i in planes.seen))
    covered = tuple((start, start + round_up(stop - start, step)) for start, stop in box)
    return Panel(title, planes.picture(pixels, bounds=bounds), _outline(planes, k, covered), view)


def _overview_level(planes: Planes) -> int:
    n = len(planes.pyramid)
    enough = next((k for k in reversed(range(n)) if planes.size(k) >= OVERVIEW), 0)
    return next((k for k in range(enough, n) if planes.cost_bytes(k, planes.box(k)) <= OVERVIEW_BYTES), n - 1)


def _box_at(planes: Planes, k: int, place: Box) -> Box:
    """Return the pixels of level `k` that lie at `place` of level 0, as the levels' scales and translations say."""
    shape = planes.pyramid.levels[k].shape
    found = []
    axes = zip(place, planes.physical(0), planes.physical(k), shape, planes.pyramid.levels[0].shape, strict=True)
    for i, ((start, stop), (scale, shift), (step, offset), n, n_first) in enumerate(axes):
        if i == planes.channel or (i not in planes.seen and (start, stop) == (0, n_first)):
            found.append((0, n))
            continue
        first = (shift + (start - 0.5) * scale - offset) / step + 0.5
        last = (shift + (stop - 0.5) * scale - offset) / step + 0.5
        # Sums of scales are not exact: a thousandth of a pixel more is none.
        found.append((max(0, math.floor(first + 1e-3)), min(n, math.ceil(last - 1e-3))))
    return planes.plane(k, tuple(found))


def _read(planes: Planes, k: int, box: Box) -> NDArray[Any] | str:
    """Return the pixels of `box`, or why there are none."""
    if is_empty(box):
        return "no pixel of it lies here"
    if planes.cost_bytes(k, box) > PANEL_BYTES:
        return "too large to be read:\nname a smaller place"
    try:
        return shrink(planes.read(k, box), MOST_SIDE, planes.is_label)
    except Exception as error:
        # Codecs and stores raise what they like; the other levels are still to be seen.
        return f"cannot be read:\n{type(error).__name__}"


def _outline(planes: Planes, k: int, box: Box) -> Rectangle:
    """Return the outer edges of `box` of level `k` in physical units."""
    edges = []
    for i in (planes.x, planes.y):
        if i is None:
            edges += [-0.5, 0.5]
        else:
            scale, shift = planes.physical(k)[i]
            edges += [shift + (bound - 0.5) * scale for bound in box[i]]
    left, right, top, bottom = edges
    return left, right, top, bottom


def _meeting(boxes: Boxes, box: Box) -> Boxes:
    bounds = np.array(box)
    return boxes[((boxes[:, :, 0] < bounds[:, 1]) & (boxes[:, :, 1] > bounds[:, 0])).all(axis=1)]


def _rectangles(planes: Planes, k: int, boxes: Boxes) -> list[Rectangle]:
    return list(dict.fromkeys(_outline(planes, k, as_box(row)) for row in boxes[:MOST_RECTANGLES]))
