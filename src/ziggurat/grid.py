"""Levels and their grids: write units, chunks, and boxes snapped to them. Pure arithmetic."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from ziggurat.boxes import Box, cut, n_pixels, of_shape
from ziggurat.chunkaxis import ChunkAxis
from ziggurat.chunkgrid import ChunkGrid

__all__ = [
    "SHARD_READ_BYTES",
    "Level",
    "Shape",
    "ceil_div",
    "cut_units",
    "each_cell",
    "each_unit",
    "grid_shape",
    "is_whole",
    "round_up",
    "snap",
]

SHARD_READ_BYTES = 8 << 20
"""Bytes of pixels in the chunks of a shard that are fetched at once, where they are used one by one; or one chunk."""

type Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Level:
    """One resolution of a pyramid, as the plan sees it: no pixels, no store.

    Attributes
    ----------
    name : str
        Path of the array in its group.
    shape : tuple of int
        Pixels per axis.
    dtype : numpy.dtype
        As stored.
    chunk : tuple of int
        Pixels of one chunk, the inner one where the array is sharded.
    unit : tuple of int
        Pixels of one write unit as declared: the shard if sharded, else the chunk.
    scale, translation : tuple of float, optional
        Physical size of a pixel and position of the first pixel's centre, where the metadata says them.
    cuts : tuple of (tuple of int or None), optional
        First pixels of the write units along each axis that has unequal ones, None for every other axis; `chunk` and
        `unit` are then the largest. Left out where no axis has.
    """

    name: str
    shape: Shape
    dtype: np.dtype
    chunk: Shape
    unit: Shape
    scale: tuple[float, ...] | None = None
    translation: tuple[float, ...] | None = None
    cuts: tuple[tuple[int, ...] | None, ...] | None = None

    @classmethod
    def of_grid(cls, name: str, dtype: np.dtype, grid: ChunkGrid) -> "Level":
        """Return the level whose write units are the chunks of `grid`."""
        unit = tuple(axis.size for axis in grid.axes)
        cuts = tuple(axis.starts if isinstance(axis.starts, tuple) else None for axis in grid.axes)
        return cls(name, grid.array_shape, dtype, grid.inner or unit, unit, cuts=cuts if any(cuts) else None)

    @property
    def box(self) -> Box:
        """The whole level."""
        return of_shape(self.shape)

    @property
    def native(self) -> np.dtype:
        """The dtype in this machine's byte order, as it is computed with."""
        return self.dtype.newbyteorder("=") if self.dtype.kind in "iufc" else self.dtype

    @property
    def nbytes(self) -> int:
        """Bytes of all pixels, uncompressed."""
        return self.bytes_of(self.shape)

    @property
    def units(self) -> ChunkGrid:
        """The grid of write units."""
        cuts = self.cuts or (None,) * len(self.shape)
        axes = zip(self.shape, self.unit, cuts, strict=True)
        return ChunkGrid.of_axes([ChunkAxis(n, range(0, n, u) if c is None else c) for n, u, c in axes])

    @property
    def chunks(self) -> ChunkGrid:
        """The grid of what is decoded at once; the chunks in shards have one size."""
        return ChunkGrid(self.shape, self.chunk) if self.is_sharded else self.units

    @property
    def is_regular(self) -> bool:
        """Whether all write units have one size."""
        return self.cuts is None

    @property
    def grid(self) -> Shape:
        """Write units per axis."""
        return grid_shape(self.shape, self.unit) if self.cuts is None else self.units.shape

    @property
    def n_units(self) -> int:
        """Number of write units."""
        return math.prod(self.grid)

    @property
    def is_sharded(self) -> bool:
        """Whether a write unit holds several chunks."""
        return self.unit != self.chunk

    @property
    def reader_bytes(self) -> int:
        """Bytes that whoever reads chunk by chunk holds: one as it is stored, or two parts of its shard, and decoded.

        Decoded twice: codecs other than blosc take memory of their own. Of a large shard the part before is let go when
        the next is there.
        """
        chunk, unit = self.bytes_of(self.chunk), self.bytes_of(self.unit)
        return max(chunk, min(unit, 2 * SHARD_READ_BYTES)) + 2 * chunk

    @property
    def clipped_unit(self) -> Shape:
        """Pixels of the largest write unit that the array really has."""
        return tuple(min(u, n) for u, n in zip(self.unit, self.shape, strict=True))

    def index_of(self, box: Box) -> Shape:
        """Return the grid index of the write unit in which `box` begins."""
        if self.cuts is None:
            return tuple(start // u for (start, _), u in zip(box, self.unit, strict=True))
        return tuple(chunks[0] for chunks in self.units.meeting(tuple((start, start + 1) for start, _ in box)))

    def bytes_of(self, shape: Sequence[int]) -> int:
        """Return the bytes of a box of `shape` pixels."""
        return math.prod(shape) * self.dtype.itemsize


def ceil_div(a: int, b: int) -> int:
    """Divide and round up.

    >>> ceil_div(5, 2)
    3
    """
    return -(-a // b)


def round_up(a: int, step: int) -> int:
    """Return the smallest multiple of `step` that is not below `a`."""
    return ceil_div(a, step) * step


def grid_shape(shape: Sequence[int], step: Sequence[int]) -> Shape:
    """Return how many boxes of `step` pixels cover `shape`, per axis."""
    return tuple(ceil_div(n, s) for n, s in zip(shape, step, strict=True))


def snap(box: Box, level: Level) -> Box:
    """Return the smallest box of whole write units of `level` around `box`, clipped to the array."""
    if level.cuts is not None:
        return level.units.snap(box)
    axes = zip(box, level.unit, level.shape, strict=True)
    return tuple((start // u * u, min(n, round_up(stop, u))) for (start, stop), u, n in axes)


def is_whole(box: Box, level: Level) -> bool:
    """Say whether `box` consists of whole write units of `level`."""
    return n_pixels(box) > 0 and snap(box, level) == box


def cut_units(box: Box, level: Level, size: Sequence[int]) -> Iterator[Box]:
    """Cut a `box` of whole write units into such boxes of at most `size` pixels per axis, but at least one unit."""
    return cut(box, size) if level.cuts is None else level.units.cut(box, size)


def each_unit(box: Box, level: Level) -> Iterator[Box]:
    """Cut a `box` of whole write units into single ones."""
    return cut_units(box, level, level.unit if level.cuts is None else (1,) * len(box))


def each_cell(box: Box, size: Shape, first: Shape = ()) -> Iterator[tuple[Shape, Box]]:
    """Yield index and declared box of the cells of `size`, the first of which begins at `first`, that `box` meets."""
    axes = [
        [(i, (a + i * c, a + (i + 1) * c)) for i in range((start - a) // c, ceil_div(stop - a, c))]
        for (start, stop), c, a in zip(box, size, first or (0,) * len(size), strict=True)
    ]
    for cell in product(*axes):
        yield tuple(i for i, _ in cell), tuple(ab for _, ab in cell)


def write_block(level: Level, block: Shape, ceiling: int) -> Shape:
    """Return the largest box of whole units of `block` under the ceiling, but at least one unit."""
    size = tuple(min(u, b) for u, b in zip(level.unit, block, strict=True))
    for axis in reversed(range(len(block))):
        n_units = max(1, ceiling // max(1, level.bytes_of(size)))
        size = (*size[:axis], min(block[axis], size[axis] * n_units), *size[axis + 1 :])
        if size[axis] < block[axis]:
            break
    return size
