"""Chunk grids: which chunks a selection meets, and where. Pure arithmetic."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise, product
from math import prod
from operator import index
from typing import Any, NamedTuple

import numpy as np

from ziggurat.boxes import Box
from ziggurat.chunkaxis import ChunkAxis, Picked
from ziggurat.errors import GeometryError, RegionError

__all__ = ["ChunkGrid", "Projection", "rectilinear_sizes"]

type Shape = tuple[int, ...]


class Projection(NamedTuple):
    """What a selection takes of one chunk: ``out[p.out_selection] = chunk[p.chunk_selection]``.

    Attributes
    ----------
    chunk_coords : tuple of int
        The chunk's place in its grid; for chunks in a shard, in the shard.
    chunk_selection : tuple of slice or int
        What is taken, seen from the chunk's first pixel.
    out_selection : tuple of slice
        Where it goes in the output, which has no axis for an integer of the selection.
    whole : bool
        Whether it is all that the array has of the chunk.
    """

    chunk_coords: Shape
    chunk_selection: tuple[slice | int, ...]
    out_selection: tuple[slice, ...]
    whole: bool


@dataclass(frozen=True, slots=True, init=False)
class ChunkGrid:
    """How an array is cut into chunks; each axis has chunks of one size, or of sizes of their own.

    Parameters
    ----------
    shape : sequence of int
        Pixels per axis.
    chunks : sequence of int or of sequence of int
        Pixels of a chunk (of a shard, if the array is sharded), or of each chunk in turn, per axis.
    inner : sequence of int, optional
        Pixels of the chunks inside a shard.

    Raises
    ------
    GeometryError
        When the chunks do not fit the shape, or the inner chunks not the shards.

    Examples
    --------
    >>> grid = ChunkGrid((60, 100), ((10, 20, 30), 50))
    >>> grid.shape
    (3, 2)
    >>> for p in grid.project((slice(5, 30), 70)):
    ...     print(p.chunk_coords, p.chunk_selection, p.out_selection, p.whole)
    (0, 1) (slice(5, 10, 1), 20) (slice(0, 5, None),) False
    (1, 1) (slice(0, 20, 1), 20) (slice(5, 25, None),) False
    """

    axes: tuple[ChunkAxis, ...]
    inner: Shape | None

    def __init__(
        self, shape: Sequence[int], chunks: Sequence[int | Sequence[int]], inner: Sequence[int] | None = None
    ) -> None:
        if len(shape) != len(chunks) or (inner is not None and len(inner) != len(shape)):
            raise GeometryError(f"chunks {tuple(chunks)} do not name the {len(shape)} axes of an array {tuple(shape)}")
        axes = tuple(ChunkAxis.of(int(n), sizes) for n, sizes in zip(shape, chunks, strict=True))
        object.__setattr__(self, "axes", axes)
        object.__setattr__(self, "inner", None if inner is None else tuple(inner))
        for axis, size in zip(axes, inner or (), strict=False):
            if any(start % size for start in (axis.starts[1:2] if axis.is_regular else axis.starts)):
                raise GeometryError(f"inner chunks of {inner} pixels do not fill shards of {tuple(chunks)}")

    @classmethod
    def of(cls, array: Any) -> "ChunkGrid":
        """Return the grid of a zarr array, of a dask array, or of what `concatenate` and its like return.

        Of a sharded array it is the grid of its shards, with `inner` ones.

        Examples
        --------
        >>> import zarr
        >>> array = zarr.create_array({}, shape=(8192,), chunks=(64,), shards=(4096,), dtype="uint8")
        >>> grid = ChunkGrid.of(array)
        >>> grid.shape, grid.inner, grid.of_inner().shape
        ((2,), (64,), (128,))
        """
        if isinstance(grid := getattr(array, "grid", None), ChunkGrid):
            return grid
        if (sizes := rectilinear_sizes(array)) is None:
            chunks = array.chunks
            shards = getattr(array, "shards", None)
            return cls(array.shape, shards or chunks, chunks if shards else None)
        try:
            inner = array.chunks
        except NotImplementedError:
            inner = None
        return cls(array.shape, [_fitting(n, s) for n, s in zip(array.shape, sizes, strict=True)], inner)

    @classmethod
    def of_axes(cls, axes: Sequence[ChunkAxis], inner: Shape | None = None) -> "ChunkGrid":
        """Return the grid of these axes."""
        grid = cls.__new__(cls)
        object.__setattr__(grid, "axes", tuple(axes))
        object.__setattr__(grid, "inner", inner)
        return grid

    def of_inner(self) -> "ChunkGrid":
        """Return the grid of what is read at once: of the inner chunks, if there are any."""
        return self if self.inner is None else ChunkGrid(self.array_shape, self.inner)

    @property
    def array_shape(self) -> Shape:
        """Pixels per axis of the array."""
        return tuple(axis.n for axis in self.axes)

    @property
    def shape(self) -> Shape:
        """Chunks per axis."""
        return tuple(map(len, self.axes))

    def __len__(self) -> int:
        return prod(self.shape)

    def box(self, coords: Sequence[int]) -> Box:
        """Return the pixels of the chunk at `coords`."""
        return tuple(axis.interval(i) for axis, i in zip(self.axes, coords, strict=True))

    def boxes(self) -> Iterator[Box]:
        """Yield the pixels of each chunk, in C order."""
        return map(self.box, product(*(range(n) for n in self.shape)))

    def meeting(self, box: Box) -> tuple[range, ...]:
        """Return the chunks that `box` meets: all that lie in these ranges."""
        return tuple(axis.meeting(*ab) for axis, ab in zip(self.axes, box, strict=True))

    def snap(self, box: Box) -> Box:
        """Return the smallest box of whole chunks around `box`."""
        return tuple(axis.snap(*ab) for axis, ab in zip(self.axes, box, strict=True))

    def cut(self, box: Box, size: Sequence[int]) -> Iterator[Box]:
        """Cut a `box` of whole chunks into such boxes of at most `size` pixels per axis, but at least one chunk."""
        axes = zip(self.axes, box, size, strict=True)
        return product(*([*axis.cut(start, stop, s)] for axis, (start, stop), s in axes))

    def grouped(self, size: Sequence[int]) -> "ChunkGrid":
        """Return the grid of groups of whole chunks of at most `size` pixels per axis, but at least one chunk."""
        return ChunkGrid.of_axes([axis.grouped(s) for axis, s in zip(self.axes, size, strict=True)])

    def project(self, selection: Any = ...) -> Iterator[Projection]:
        """Yield what `selection` takes of each chunk that it meets, in C order and in constant memory.

        Parameters
        ----------
        selection : tuple of slice, int or (start, stop)
            As numpy takes it, with steps above 0, or a box; axes that are left out are whole.

        Raises
        ------
        RegionError
            When the selection leaves the array, or is none of these.
        """
        return _projections(self.axes, self._pick(selection))

    def selected(self, selection: Any = ...) -> tuple[slice | int, ...]:
        """Return `selection` with an entry per axis, each a slice with all its numbers or an integer from 0 up."""
        picked = self._pick(selection)
        return tuple(p if isinstance(p, int) else slice(p.start, p[-1] + 1 if p else p.start, p.step) for p in picked)

    def nested(self, selection: Any = ...) -> Iterator[tuple[Projection, Iterator[Projection]]]:
        """Yield each shard's projection, with those of the chunks inside it: their coordinates count in the shard."""
        for shard in self.project(selection):
            yield shard, self._inside(shard)

    def _inside(self, shard: Projection) -> Iterator[Projection]:
        box = self.box(shard.chunk_coords)
        inner = ChunkGrid([b - a for a, b in box], self.inner or [max(1, b - a) for a, b in box])
        picked = [s if isinstance(s, int) else range(s.start, s.stop, s.step) for s in shard.chunk_selection]
        origin = [s.start for s in shard.out_selection]
        for p in _projections(inner.axes, picked):
            out = (slice(s.start + o, s.stop + o) for s, o in zip(p.out_selection, origin, strict=True))
            yield Projection(p.chunk_coords, p.chunk_selection, tuple(out), p.whole)

    def out_shape(self, selection: Any = ...) -> Shape:
        """Return the shape of what `selection` takes."""
        return tuple(len(p) for p in self._pick(selection) if isinstance(p, range))

    def _pick(self, selection: Any) -> list[Picked]:
        entries = list(selection) if isinstance(selection, tuple) else [selection]
        n_missing = len(self.axes) - len(entries)
        at = next((i for i, e in enumerate(entries) if e is ...), None)
        if at is None:
            entries += [slice(None)] * n_missing
        else:
            entries[at : at + 1] = [slice(None)] * (n_missing + 1)
        if len(entries) != len(self.axes):
            raise RegionError(f"selection {selection!r} names more than the {len(self.axes)} axes of the array")
        return [_picked(e, axis.n, selection) for e, axis in zip(entries, self.axes, strict=True)]


def extent(selection: Sequence[slice | int], origin: Sequence[int]) -> tuple[Box, tuple[slice | int, ...]]:
    """Return the smallest box around a `selection` that is seen from `origin`, and what it takes of that box."""
    axes = list(zip(selection, origin, strict=True))
    box = tuple((o + s, o + s + 1) if isinstance(s, int) else (o + s.start, o + s.stop) for s, o in axes)
    return box, tuple(0 if isinstance(s, int) else slice(None, None, s.step) for s in selection)


def _projections(axes: Sequence[ChunkAxis], picked: Sequence[Picked]) -> Iterator[Projection]:
    return _continued(Projection((), (), (), True), axes, picked) if axes else iter([Projection((), (), (), True)])


def _continued(before: Projection, axes: Sequence[ChunkAxis], picked: Sequence[Picked]) -> Iterator[Projection]:
    """Yield `before` continued along `axes`, anew for each chunk: `itertools.product` would list every axis."""
    coords, inside, taken, whole = before
    for i, chunk, out, is_all in axes[0].project(picked[0]):
        found = Projection((*coords, i), (*inside, chunk), taken if out is None else (*taken, out), whole and is_all)
        if len(axes) == 1:
            yield found
        else:
            yield from _continued(found, axes[1:], picked[1:])


def _picked(entry: Any, n: int, selection: Any) -> Picked:
    if isinstance(entry, slice):
        picked = range(*entry.indices(n))
        if picked.step > 0:
            return picked
    elif isinstance(entry, tuple) and len(entry) == 2:
        start, stop = map(index, entry)
        if 0 <= start <= stop <= n:
            return range(start, stop)
    elif isinstance(entry, int | np.integer) and not isinstance(entry, bool):
        i = int(entry) + (n if entry < 0 else 0)
        if 0 <= i < n:
            return i
    raise RegionError(
        f"selection {selection!r}: {entry!r} is no slice with a step above 0, integer or (start, stop) within the "
        f"{n} pixels of its axis"
    )


def rectilinear_sizes(array: Any) -> Sequence[int | Sequence[int]] | None:
    """Return the chunks, per axis, that a zarr array with a rectilinear grid declares; None of any other array."""
    metadata: Any = getattr(array, "metadata", None)
    if getattr(metadata, "zarr_format", 0) != 3:
        return None
    sizes: Sequence[int | Sequence[int]] | None = getattr(metadata.chunk_grid, "chunk_shapes", None)
    return sizes


def _fitting(n: int, sizes: int | Sequence[int]) -> int | list[int]:
    """Return the sizes clipped to `n` pixels: an array that shrank keeps the chunks that it had."""
    if isinstance(sizes, int):
        return sizes
    ends = [min(n, end) for end in accumulate(sizes)]
    return [b - a for a, b in pairwise([0, *ends]) if b > a]
