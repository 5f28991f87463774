"""Boxes: half-open intervals of pixels, one per axis, as plain tuples of ``(start, stop)``."""

import itertools
import math
from collections.abc import Iterator, Sequence

__all__ = [
    "Box",
    "Interval",
    "around",
    "corner",
    "cut",
    "grown",
    "intersect",
    "is_empty",
    "n_pixels",
    "of_shape",
    "shape_of",
    "shift",
    "slices",
]

type Interval = tuple[int, int]
type Box = tuple[Interval, ...]


def of_shape(shape: Sequence[int]) -> Box:
    """Return the box that covers a whole array of `shape`.

    >>> of_shape((2, 3))
    ((0, 2), (0, 3))
    """
    return tuple((0, n) for n in shape)


def shape_of(box: Box) -> tuple[int, ...]:
    """Return the number of pixels of `box` along each axis."""
    return tuple(stop - start for start, stop in box)


def corner(box: Box) -> tuple[int, ...]:
    """Return the first pixel of `box`."""
    return tuple(start for start, _ in box)


def n_pixels(box: Box) -> int:
    """Return the number of pixels in `box`."""
    return math.prod(max(0, stop - start) for start, stop in box)


def is_empty(box: Box) -> bool:
    """Say whether `box` holds no pixel."""
    return any(stop <= start for start, stop in box)


def intersect(one: Box, other: Box) -> Box:
    """Return the pixels that lie in both boxes; the result may be empty.

    >>> intersect(((0, 4),), ((2, 9),))
    ((2, 4),)
    """
    return tuple((max(a, c), min(b, d)) for (a, b), (c, d) in zip(one, other, strict=True))


def around(interval: Interval, halo: int, n: int) -> Interval:
    """Return an interval with `halo` pixels on either side, as far as the axis of `n` pixels has them.

    >>> around((1, 4), 2, 8)
    (0, 6)
    """
    return max(0, interval[0] - halo), min(n, interval[1] + halo)


def grown(box: Box, halos: Sequence[int], shape: Sequence[int]) -> Box:
    """Return `box` with `halos` pixels around it, as far as an array of `shape` has them."""
    return tuple(around(ab, h, n) for ab, h, n in zip(box, halos, shape, strict=True))


def shift(box: Box, origin: Sequence[int]) -> Box:
    """Return `box` as seen from the pixel `origin`."""
    return tuple((start - o, stop - o) for (start, stop), o in zip(box, origin, strict=True))


def slices(box: Box, origin: Sequence[int] | None = None) -> tuple[slice, ...]:
    """Return `box` as slices, for zarr and numpy, seen from the pixel `origin`."""
    seen = box if origin is None else shift(box, origin)
    return tuple(slice(start, stop) for start, stop in seen)


def cut(box: Box, step: Sequence[int]) -> Iterator[Box]:
    """Cut `box` from its start into pieces of at most `step` pixels per axis, in C order.

    >>> list(cut(((4, 9),), (3,)))
    [((4, 7),), ((7, 9),)]
    """
    axes = ([(a, min(a + s, stop)) for a in range(start, stop, s)] for (start, stop), s in zip(box, step, strict=True))
    return itertools.product(*axes)
