"""Reads the chunks of a selection one by one, as they arrive, never more at once than is allowed.

The cascade reads otherwise: chunk by chunk in its own thread where a store is synchronous, else pieces of many chunks
in one call each. From a store with a latency of 5 and 30 ms, a stream of single chunks took it twice the CPU time and a
fifth more wall time.
"""

from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from itertools import islice
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ziggurat.boxes import Box, corner, shape_of
from ziggurat.chunkgrid import ChunkGrid, Projection, extent
from ziggurat.errors import GeometryError
from ziggurat.runtime import zarr_settings
from ziggurat.sources import Source
from ziggurat.virtual import Overlapping, as_part

__all__ = ["read_chunks"]

type Chunk = tuple[Projection, NDArray[Any]]


def read_chunks(
    array: Any,
    selection: Any = ...,
    *,
    by: Literal["unit", "chunk"] = "unit",
    max_in_flight: int = 10,
    out: NDArray[Any] | None = None,
) -> Iterator[Chunk]:
    """Read a selection chunk by chunk, and yield each as soon as it is there, in any order.

    Parameters
    ----------
    array : array
        zarr, dask, numpy, a pyramid (its level 0), or what `concatenate`, `rechunked` and `overlapping` return.
    selection : tuple of slice, int or (start, stop)
        As numpy takes it, with steps above 0, or a box; everything by default.
    by : {"unit", "chunk"}
        Whether a sharded array is read by shards, each part of one in one request beside that for its index, or by
        the chunks inside them.
    max_in_flight : int
        Chunks that are being read, or read and not yet asked for, at most.
    out : numpy array, optional
        Where the pixels are to go, in the shape of the selection: chunks are then read straight into their places, and
        what is yielded is a view of it.

    Yields
    ------
    projection : Projection
        Where the pixels belong: ``out[projection.out_selection] = pixels``.
    pixels : numpy array
        What the selection takes of the chunk. Of an `overlapping` array it is the whole chunk with its halo, and
        ``pixels[projection.chunk_selection]`` is what the selection takes.

    Raises
    ------
    RegionError
        When the selection leaves the array.
    GeometryError
        When `out` has another shape.

    Examples
    --------
    >>> import zarr
    >>> array = zarr.create_array({}, shape=(5, 4), chunks=(2, 4), dtype="uint8")
    >>> array[:] = np.arange(20).reshape(5, 4)
    >>> sum(int(pixels.sum()) for _, pixels in read_chunks(array, slice(1, 5)))
    184
    """
    if max_in_flight < 1:
        raise ValueError(f"max_in_flight is the number of chunks to read at once, at least 1, not {max_in_flight!r}")
    source = as_part(array)
    grid = source.level.chunks if by == "chunk" else source.level.units
    if out is not None and out.shape != grid.out_shape(selection):
        raise GeometryError(
            f"out has the shape {out.shape}, the selection {grid.out_shape(selection)}: make them equal"
        )
    return _stream(_Reader(source, out), _wanted(source, grid, selection), max_in_flight)


type _Wanted = tuple[Projection, Box, tuple[slice | int, ...]]
"""A projection, the box to read for it, and what to take of that."""


def _wanted(source: Source, grid: ChunkGrid, selection: Any) -> Iterator[_Wanted]:
    if isinstance(source, Overlapping):
        return ((p, box, (slice(None),) * len(box)) for p, box in source.project(selection))
    return ((p, *extent(p.chunk_selection, corner(grid.box(p.chunk_coords)))) for p in grid.project(selection))


class _Reader:
    def __init__(self, source: Source, out: NDArray[Any] | None) -> None:
        self.source = source
        self.out = out

    def __call__(self, wanted: _Wanted) -> Chunk:
        projection, box, taken = wanted
        with zarr_settings(self.source.settings):
            if self.out is None:
                return projection, self.source.read(box)[(*taken, ...)]
            where: tuple[Any, ...] = (*projection.out_selection, ...)
            place = self.out[where]
            fits = place.shape == shape_of(box) and place.dtype == self.source.dtype
            pixels = self.source.read(box, place if fits else None)
        if isinstance(self.source, Overlapping):
            place[...] = pixels[projection.chunk_selection]
            return projection, pixels
        if not np.may_share_memory(pixels, place):
            place[...] = pixels[(*taken, ...)]
        return projection, place


def _stream(read: _Reader, wanted: Iterator[_Wanted], max_in_flight: int) -> Iterator[Chunk]:
    with ThreadPoolExecutor(max_in_flight) as pool:
        try:
            flying = {pool.submit(read, w) for w in islice(wanted, max_in_flight)}
            while flying:
                done, flying = wait(flying, return_when=FIRST_COMPLETED)
                while done:
                    # Let go of here: what is yielded belongs to the caller alone.
                    yield done.pop().result()
                    flying |= {pool.submit(read, w) for w in islice(wanted, 1)}
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
