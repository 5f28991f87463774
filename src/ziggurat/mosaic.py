"""Tiles side by side as one array that holds no pixels: `concatenate`."""

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ziggurat.boxes import Box, corner, intersect, shape_of, shift, slices
from ziggurat.chunkaxis import ChunkAxis
from ziggurat.chunkgrid import ChunkGrid
from ziggurat.errors import DTypeError, GeometryError
from ziggurat.grid import Shape
from ziggurat.sources import Source
from ziggurat.virtual import Virtual, as_part

__all__ = ["Mosaic", "concatenate"]


class Mosaic(Virtual):
    """Tiles side by side; use `concatenate`.

    Parameters
    ----------
    tiles : sequence of Source
        In C order.
    counts : tuple of int
        Tiles per axis.
    """

    def __init__(self, tiles: Sequence[Source], counts: Shape) -> None:
        self.counts = counts
        lines = [_line(tiles, counts, axis) for axis in range(len(counts))]
        _check_tiles(tiles, counts, lines)
        chunks = [[t.level.chunks.axes[i] for t in line] for i, line in enumerate(lines)]
        grid = ChunkGrid.of_axes([_joined(axes) for axes in chunks])
        super().__init__(f"mosaic of {' x '.join(map(str, counts))} arrays", grid, tiles)
        # Where each tile begins and ends: a grid whose chunks are the tiles.
        self.tiles = ChunkGrid(grid.array_shape, [[t.level.shape[i] for t in line] for i, line in enumerate(lines)])
        self._gives_chunks = all(
            t.gives_chunks and t.level.chunks.axes == tuple(wanted)
            for t, wanted in zip(tiles, product(*chunks), strict=True)
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return Mosaic, (self.parts, self.counts)

    @property
    def gives_chunks(self) -> bool:
        """Whether it is read chunk by chunk: all tiles are, and their chunks form one grid."""
        return self._gives_chunks

    def read(self, box: Box, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Return the pixels of `box`, in native byte order, in `out` if it is given."""
        pixels = np.empty(shape_of(box), self.dtype) if out is None else out
        for tile, part, inside in self._met(box):
            place = pixels[slices(part, corner(box))]
            found = tile.read(inside, place)
            if not np.may_share_memory(found, place):
                place[...] = found
        return pixels

    def chunks(self, box: Box) -> Iterator[tuple[Box, NDArray[Any]]]:
        """Yield the pixels of `box` chunk by chunk, in native byte order."""
        for tile, part, inside in self._met(box):
            back = [a - b for a, b in zip(corner(inside), corner(part), strict=True)]
            for chunk, pixels in tile.chunks(inside):
                yield shift(chunk, back), pixels

    def _met(self, box: Box) -> Iterator[tuple[Source, Box, Box]]:
        """Yield each tile that `box` meets, and the part of the box in it, seen from the mosaic and from the tile."""
        for index in product(*self.tiles.meeting(box)):
            where = self.tiles.box(index)
            part = intersect(box, where)
            yield self.parts[np.ravel_multi_index(index, self.counts)], part, shift(part, corner(where))


def concatenate(tiles: Any) -> Mosaic:
    """Return arrays side by side as one, without copying a pixel.

    Parameters
    ----------
    tiles : nested sequence of array
        As `numpy.block` takes them: ``[[a, b], [c, d]]`` has a and b side by side, c and d below. Tiles are zarr,
        dask or numpy arrays, pyramids (their level 0), or virtual arrays, of one dtype; those in one row are equally
        high, those in one column equally wide.

    Returns
    -------
    Mosaic

    Raises
    ------
    GeometryError
        When the tiles do not fit together.
    DTypeError
        When their dtypes differ.

    Examples
    --------
    >>> a, b = np.zeros((3, 2), "uint8"), np.ones((3, 5), "uint8")
    >>> mosaic = concatenate([[a, b]])
    >>> mosaic.shape, mosaic.grid.axes[1].starts, mosaic[0, 1:4]
    ((3, 7), (0, 2), array([0, 1, 1], dtype=uint8))
    """
    counts, flat = _unnested(tiles)
    sources = [as_part(tile) for tile in flat]
    n_axes = max(len(s.level.shape) for s in sources)
    if n_axes < len(counts):
        raise GeometryError(f"tiles with {n_axes} axes cannot be joined along {len(counts)}: nest the lists less deep")
    return Mosaic(sources, (1,) * (n_axes - len(counts)) + counts)


def _unnested(tiles: Any) -> tuple[Shape, list[Any]]:
    """Return how many tiles there are per axis, and all of them in C order."""
    if not isinstance(tiles, list | tuple):
        return (), [tiles]
    found = [_unnested(tile) for tile in tiles]
    if len({counts for counts, _ in found}) != 1:
        raise GeometryError("the lists of tiles are not equally long and deep: give rows of as many tiles each")
    return (len(tiles), *found[0][0]), [tile for _, flat in found for tile in flat]


def _line(tiles: Sequence[Source], counts: Shape, axis: int) -> Sequence[Source]:
    """Return the tiles along one edge of the mosaic."""
    step = prod(counts[axis + 1 :])
    return tiles[: step * counts[axis] : step]


def _check_tiles(tiles: Sequence[Source], counts: Shape, lines: Sequence[Sequence[Source]]) -> None:
    for index, tile in zip(product(*map(range, counts)), tiles, strict=True):
        if tile.level.native != tiles[0].level.native:
            raise DTypeError(
                f"tile {index} holds {tile.level.dtype}, the first one {tiles[0].level.dtype}: convert one of them"
            )
        wanted = tuple(line[i].level.shape[axis] for axis, (line, i) in enumerate(zip(lines, index, strict=True)))
        if tile.level.shape != wanted:
            raise GeometryError(
                f"tile {index} has the shape {tile.level.shape}, its neighbours leave it {wanted}: tiles in a row are "
                "equally high, those in a column equally wide"
            )


def _joined(axes: Sequence[ChunkAxis]) -> ChunkAxis:
    """Return the chunks of all `axes`, one after the other."""
    n, size = sum(axis.n for axis in axes), axes[0].size
    if all(axis.is_regular and axis.size == size for axis in axes) and not any(a.n % size for a in axes[:-1]):
        return ChunkAxis(n, range(0, n, size))
    starts: list[int] = []
    first = 0
    for axis in axes:
        starts += [first + start for start in axis.starts]
        first += axis.n
    return ChunkAxis.of_starts(n, starts)
