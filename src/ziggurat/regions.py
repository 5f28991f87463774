"""Regions: what changed in level 0, and what that makes dirty in the coarser levels. Pure arithmetic on pixel boxes.

Many boxes at once are one integer array of shape ``(n, ndim, 2)``: start and stop per axis.
"""

import math
from collections.abc import Iterable, Sequence
from operator import index
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ziggurat.boxes import Box
from ziggurat.errors import RegionError
from ziggurat.grid import Level, Shape
from ziggurat.steps import Step

__all__ = ["Boxes", "as_box", "as_boxes", "clip", "coverage", "meeting", "normalize", "push_up"]

type Boxes = NDArray[np.int64]

GRID_CELLS = 1 << 24
"""Cells of the compressed grid up to which the union of boxes is exact; above it is counted in write units."""


def as_boxes(boxes: Sequence[Box], ndim: int) -> Boxes:
    """Return boxes as one array of shape ``(n, ndim, 2)``."""
    return np.asarray(boxes, np.int64).reshape(-1, ndim, 2)


def as_box(row: NDArray[np.int64]) -> Box:
    """Return one row of a `Boxes` array as a box."""
    return tuple((int(a), int(b)) for a, b in row)


def clip(boxes: Boxes, box: Box | Boxes) -> Boxes:
    """Return what lies of each of the `boxes` in one, or in one of its own each; some may be empty."""
    bounds = np.asarray(box)
    return np.stack([np.maximum(boxes[..., 0], bounds[..., 0]), np.minimum(boxes[..., 1], bounds[..., 1])], axis=2)


def meeting(boxes: Boxes, box: Box) -> list[Box]:
    """Return what lies of the `boxes` in one, of those that meet it.

    >>> meeting(as_boxes([((0, 4),), ((5, 6),)], 1), ((2, 5),))
    [((2, 4),)]
    """
    inside = clip(boxes, box)
    return [as_box(row) for row in inside[(inside[:, :, 1] > inside[:, :, 0]).all(axis=1)]]


def normalize(regions: Iterable[Any], shape: Shape) -> Boxes:
    """Read regions in any of their forms; empty ones and duplicates are dropped.

    Parameters
    ----------
    regions : iterable of tuple
        One entry per axis in each: a slice with step 1, an integer, a list of integers (its bounds are taken), or a
        tuple ``(start, stop)``.
    shape : tuple of int
        Of level 0.

    Raises
    ------
    RegionError
        When a region leaves the array, or is no region.

    Examples
    --------
    >>> normalize([(3, slice(2, 4)), ((3, 4), [2, 3])], (8, 8)).tolist()
    [[[3, 4], [2, 4]]]
    """
    if isinstance(regions, str | slice) or not isinstance(regions, Iterable):
        raise RegionError(f"regions {regions!r} are none: give a list of tuples with one slice per axis")
    boxes = as_boxes([_region(r, shape) for r in regions], len(shape))
    filled = boxes[(boxes[:, :, 1] > boxes[:, :, 0]).all(axis=1)]
    return np.unique(filled, axis=0) if len(filled) > 1 else filled


def _region(region: Any, shape: Shape) -> Box:
    if not isinstance(region, tuple | list) or len(region) != len(shape):
        raise RegionError(
            f"region {region!r} does not name the {len(shape)} axes of the array: give one slice per axis"
        )
    return tuple(_interval(entry, axis, n, region) for axis, (entry, n) in enumerate(zip(region, shape, strict=True)))


def _interval(entry: Any, axis: int, n: int, region: Any) -> tuple[int, int]:
    try:
        start, stop = _bounds(entry, n)
    except (TypeError, ValueError):
        raise RegionError(
            f"region {region!r}: {entry!r} on axis {axis} is no slice with step 1, integer, list of integers or "
            "(start, stop)"
        ) from None
    if not 0 <= start <= stop <= n:
        raise RegionError(f"region {region!r} leaves the array: axis {axis} has the pixels 0 to {n - 1}, not {entry!r}")
    return start, stop


def _bounds(entry: Any, n: int) -> tuple[int, int]:
    if isinstance(entry, slice):
        if entry.step is not None and _integer(entry.step) != 1:
            raise ValueError
        start = 0 if entry.start is None else _integer(entry.start)
        return start, n if entry.stop is None else _integer(entry.stop)
    if isinstance(entry, tuple):
        start, stop = map(_integer, entry)
        return start, stop
    if isinstance(entry, list | range | np.ndarray) and np.ndim(entry):
        numbers = [_integer(e) for e in entry]
        return min(numbers, default=0), max(numbers, default=-1) + 1
    return _integer(entry), _integer(entry) + 1


def _integer(value: Any) -> int:
    if isinstance(value, bool | np.bool_):
        raise TypeError
    return index(value)


def coverage(boxes: Boxes, level: Level, at_least: float = 0.0) -> float:
    """Return the share of `level` that lies in any of the `boxes`.

    Exact, on the grid that the boxes' own borders make, while that has a bounded number of cells; above it each write
    unit that a box meets counts whole. Boxes that are no more than `at_least` together are just added up.
    """
    total = math.prod(level.shape)
    volumes = np.prod((boxes[:, :, 1] - boxes[:, :, 0]).astype(float), axis=1)
    if not len(boxes) or not total:
        return 0.0
    if volumes.sum() <= at_least * total:
        return float(volumes.sum()) / total
    cuts = [np.unique(boxes[:, axis]) for axis in range(boxes.shape[1])]
    if math.prod(len(c) for c in cuts) > GRID_CELLS:
        return min(float(volumes.sum()) / total, _unit_coverage(boxes, level))
    grid = np.zeros([len(c) - 1 for c in cuts], bool)
    bounds = np.stack([np.searchsorted(c, boxes[:, axis]) for axis, c in enumerate(cuts)], axis=1)
    for row in bounds:
        grid[tuple(slice(a, b) for a, b in row)] = True
    covered: Any = grid.astype(float)
    for c in reversed(cuts):
        covered = covered @ np.diff(c).astype(float)
    return float(covered) / total


def _unit_coverage(boxes: Boxes, level: Level) -> float:
    if math.prod(level.grid) > GRID_CELLS:
        return 1.0
    grid = np.zeros(level.grid, bool)
    met = [np.stack([a.find(boxes[:, i, 0]), a.find(boxes[:, i, 1] - 1) + 1]) for i, a in enumerate(level.units.axes)]
    for row in np.stack(met).transpose(2, 0, 1):
        grid[tuple(slice(a, b) for a, b in row)] = True
    return float(grid.mean())


def push_up(step: Step, boxes: Boxes) -> Boxes:
    """Return the target boxes that changes of the source `boxes` can reach, halo included; duplicates are dropped."""
    hit = np.empty_like(boxes)
    for axis, (edge, reach) in enumerate(zip(step.edges, step.halos, strict=True)):
        start = np.maximum(0, boxes[:, axis, 0] - reach)
        hit[:, axis, 0] = start * edge.q // edge.p
        hit[:, axis, 1] = np.minimum(edge.m, -(-(boxes[:, axis, 1] + reach) * edge.q // edge.p))
    filled = hit[(hit[:, :, 1] > hit[:, :, 0]).all(axis=1)]
    return np.unique(filled, axis=0) if len(filled) > 1 else filled
