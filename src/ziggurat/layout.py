"""How new levels are laid out: their number, factors, shapes, chunks and shards. Pure arithmetic."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ziggurat.errors import GeometryError
from ziggurat.grid import Shape, round_up

__all__ = ["Layout", "default_chunk", "factors_of", "lay_out"]

SMALLEST = 256
"""Pixels at which an axis is not halved any more."""

CHUNK_BYTES = 1 << 20
"""What a chunk holds, about, where nobody says how large it is."""


@dataclass(frozen=True, slots=True)
class Layout:
    """One level that is to be created.

    Attributes
    ----------
    shape, chunk : tuple of int
        Pixels of the level, and of one chunk: the inner one where there are shards.
    shard : tuple of int, optional
        Pixels of one shard, where there are any.
    step, factors : tuple of int
        Pixels of the next finer level, and of level 0, per pixel; ones for level 0, empty where nobody chose them.
    """

    shape: Shape
    chunk: Shape
    shard: Shape | None
    step: Shape = ()
    factors: Shape = ()


def lay_out(
    shape: Sequence[int], steps: Sequence[Sequence[int]], chunk: Sequence[int], shard: Sequence[int] | None
) -> tuple[Layout, ...]:
    """Lay out level 0 of `shape` and a coarser level for each of the `steps`, as `factors_of` returns them.

    Chunks and shards are clipped to each level, a shard to a multiple of its chunk.

    Raises
    ------
    GeometryError
        When chunks or shards do not fit the axes, or a shard holds no whole chunks.

    Examples
    --------
    >>> [(level.shape, level.shard) for level in lay_out((300, 40), [(2, 1)], (64, 64), (128, 64))]
    [((300, 40), (128, 40)), ((150, 40), (128, 40))]
    """
    _check_grid(shape, chunk, shard)
    for step in steps:
        if len(step) != len(shape) or min(step) < 1:
            raise GeometryError(f"factors {tuple(step)} do not fit {len(shape)} axes: give one, at least 1, for each")
    layouts: list[Layout] = []
    size, factors = tuple(shape), (1,) * len(shape)
    for step in [(1,) * len(shape), *map(tuple, steps)]:
        size = tuple(n if f == 1 else max(1, n // f) for n, f in zip(size, step, strict=True))
        factors = tuple(a * b for a, b in zip(factors, step, strict=True))
        layouts.append(Layout(size, *_clip(size, chunk, shard), step, factors))
    return tuple(layouts)


def _check_grid(shape: Sequence[int], chunk: Sequence[int], shard: Sequence[int] | None) -> None:
    for word, sizes in (("chunks", chunk), ("shards", shard)):
        if sizes is not None and (len(sizes) != len(shape) or min(sizes, default=1) < 1):
            raise GeometryError(
                f"{word} {tuple(sizes)} do not fit {len(shape)} axes: give one size, at least 1, for each"
            )
    if shard is not None and any(s % c for s, c in zip(shard, chunk, strict=True)):
        whole = tuple(max(1, s // c) * c for s, c in zip(shard, chunk, strict=True))
        raise GeometryError(f"shards {tuple(shard)} hold no whole chunks {tuple(chunk)}: use {whole}")


def _clip(shape: Shape, chunk: Sequence[int], shard: Sequence[int] | None) -> tuple[Shape, Shape | None]:
    clipped = tuple(min(c, max(1, n)) for c, n in zip(chunk, shape, strict=True))
    if shard is None:
        return clipped, None
    axes = zip(shard, shape, clipped, strict=True)
    return clipped, tuple(min(s, round_up(max(1, n), c)) for s, n, c in axes)


def default_chunk(shape: Sequence[int], is_space: Sequence[bool], itemsize: int) -> Shape:
    """Return a chunk of equal power-of-two sides along the spatial axes, nearest to 1 MiB, within the shape.

    Examples
    --------
    >>> default_chunk((3, 8000, 8000), (False, True, True), 1)
    (1, 1024, 1024)
    >>> default_chunk((40, 8000, 8000), (True, True, True), 2)
    (40, 128, 128)
    """
    side = 1
    while True:
        here, doubled = (_box(shape, is_space, n) for n in (side, 2 * side))
        held = itemsize * math.prod(here), itemsize * math.prod(doubled)
        if here == doubled or held[0] * held[1] >= CHUNK_BYTES**2:
            return here
        side *= 2


def _box(shape: Sequence[int], is_space: Sequence[bool], side: int) -> Shape:
    return tuple(max(1, min(n, side)) if s else 1 for n, s in zip(shape, is_space, strict=True))


def factors_of(
    shape: Sequence[int],
    is_space: Sequence[bool],
    chunk: Sequence[int],
    scale: Sequence[float] | None = None,
    n_levels: int | None = None,
) -> tuple[Shape, ...]:
    """Choose the factors from each level to the next coarser one.

    Spatial axes are halved, each until it has 256 pixels or fewer; an image that is no larger, until it fits one
    chunk. While voxels are anisotropic by a factor of two or more, only the axes with the finest pixels are halved.

    Parameters
    ----------
    scale : sequence of float, optional
        Physical size of a pixel per axis.
    n_levels : int, optional
        Number of levels, level 0 among them, instead; more of them than come about halve all spatial axes further.

    Raises
    ------
    GeometryError
        When no axis is left to halve for as many levels.

    Examples
    --------
    >>> factors_of((100, 1024, 1024), (True, True, True), (64, 64, 64), scale=(4.0, 1.0, 1.0))
    ((1, 2, 2), (1, 2, 2))
    """
    if n_levels is not None and n_levels < 1:
        raise GeometryError(f"n_levels={n_levels}: a pyramid has at least one level")
    sizes, pixel = list(shape), _pixel_sizes(scale, is_space)
    spatial = [i for i, s in enumerate(is_space) if s]
    is_small = all(shape[i] <= SMALLEST for i in spatial)
    limit = max((chunk[i] for i in spatial), default=1) if is_small else SMALLEST
    steps: list[Shape] = []
    while n_levels is None or len(steps) + 1 < n_levels:
        axes = [i for i in spatial if sizes[i] > limit]
        if not axes and n_levels is not None:
            axes = [i for i in spatial if sizes[i] > 1]
            if not axes:
                raise GeometryError(f"n_levels={n_levels}: an image of {tuple(shape)} has at most {len(steps) + 1}")
        if not axes:
            break
        coarsest = max(pixel[i] for i in axes)
        fine = [i for i in axes if pixel[i] * 2 <= coarsest] or axes
        for i in fine:
            sizes[i] //= 2
            pixel[i] *= 2
        steps.append(tuple(2 if i in fine else 1 for i in range(len(sizes))))
    return tuple(steps)


def _pixel_sizes(scale: Sequence[float] | None, is_space: Sequence[bool]) -> list[float]:
    """Return the sizes to compare; ones where a spatial axis has none that says anything."""
    if scale is None or any(s and not n > 0 for n, s in zip(scale, is_space, strict=True)):
        return [1.0] * len(is_space)
    return list(scale)
