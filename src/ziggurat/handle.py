"""Reads and writes boxes of one array, the way Ziggurat does: whole write units, blindly, in the calling thread."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray
from zarr.buffer.cpu import NDBuffer

from ziggurat.boxes import Box, corner, intersect, n_pixels, shape_of, slices
from ziggurat.chunkgrid import ChunkGrid, rectilinear_sizes
from ziggurat.counted import CountedStore, Requests
from ziggurat.direct import Direct
from ziggurat.encoded import Take
from ziggurat.errors import StoreError, first_of
from ziggurat.gathering import cells_by_unit
from ziggurat.grid import Shape, is_whole, round_up
from ziggurat.remote import WholeObjects
from ziggurat.runtime import FUSED, codec_pipeline, is_synchronous
from ziggurat.settings import ZarrConfig
from ziggurat.store import get_object, is_in_memory, is_zip, level_of, remake

if TYPE_CHECKING:
    import zarr
    from zarr.abc.store import Store

__all__ = ["Handle"]

logger = logging.getLogger(__name__)


class Handle:
    """One level's array, opened the way Ziggurat reads and writes it; a pickled one opens without a request.

    Parameters
    ----------
    array : zarr.Array
        The array.
    settings : ZarrConfig, optional
        Codec pipeline (none where codecs can be called straight, else zarr's fused one, by default) and limits for the
        coalescing of reads.
    """

    def __init__(self, array: "zarr.Array[Any]", settings: ZarrConfig | None = None) -> None:
        self.array = array
        self.settings = settings or ZarrConfig()
        self.requests = Requests()
        pipeline = self.settings.codec_pipeline or FUSED
        is_zarrs = pipeline.startswith("zarrs.")
        # zarrs writes in place: a kill would leave torn chunks.
        self._pipeline = FUSED if is_zarrs else pipeline
        self._writer = self._made(self._pipeline, CountedStore(array.store, self.requests))
        # zarrs takes no wrapped stores, and its reads are not counted.
        self._source = self._made(pipeline, array.store) if is_zarrs else self._writer
        # A pipeline that was asked for is used.
        self.direct = Direct.of(self._writer) if self.settings.codec_pipeline is None else None
        self.level = level_of(array)
        self._padded_shape = _padded_shape(array)
        overhangs = self._padded_shape not in (None, array.shape)
        self._gets_twice = overhangs and not is_synchronous(array.store)
        self.dtype = self.level.native

    def _made(self, pipeline: str, store: "Store") -> "zarr.Array[Any]":
        names = ("sharding_coalesce_max_gap_bytes", "sharding_coalesce_max_bytes")
        limits = {name: n for name in names if (n := getattr(self.settings, name)) is not None}
        # `write_empty_chunks` off: units that hold only fill are deleted, as every path must do alike.
        config = replace(self.array.async_array.config, write_empty_chunks=False, **limits)
        with codec_pipeline(pipeline):
            return remake(self.array, store, config=config)

    @cached_property
    def _padded(self) -> "zarr.Array[Any] | None":
        """The array with its shape rounded up to shards, which chunks that are called straight need not; else None."""
        if self._padded_shape is None:
            return None
        with codec_pipeline(self._pipeline):
            return remake(self._writer, shape=self._padded_shape)

    def __reduce__(self) -> tuple[Any, ...]:
        where = "the memory of this process" if is_in_memory(self.array.store) else "a zip archive"
        if is_in_memory(self.array.store) or (is_zip(self.array.store) and not self.array.read_only):
            raise StoreError(
                f"level {self.level.name!r} lies in {where}, where dask's workers cannot write it: "
                "use mode='numpy', the threaded scheduler, or a directory"
            )
        return Handle, (self.array, self.settings)

    def read(self, box: Box, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Return the pixels of `box`, in native byte order; `out` is memory that may be used for it."""
        if self.direct is None:
            return self._read(box, out)
        if out is None:
            out = np.empty(shape_of(box), self.dtype)
        self.direct.read(box, out)
        return out

    def read_many(self, boxes: Sequence[Box]) -> list[NDArray[Any]]:
        """Return the pixels of each of the `boxes`; what several need of one shard is one partial read."""
        if len(boxes) < 2 or not self.level.is_sharded:
            return [self.read(box) for box in boxes]
        if self.direct is None:
            return self._read_points(boxes)
        cells = cells_by_unit(self.level, boxes)
        wanted = {cell: members for found in cells.values() for cell, members in found.items()}
        pixels = [np.empty(shape_of(box), self.dtype) for box in boxes]
        for cell, chunk, found in self.direct.gather(cells):
            for i in wanted[cell]:
                part = intersect(chunk, boxes[i])
                pixels[i][slices(part, corner(boxes[i]))] = found[slices(part, corner(chunk))]
        return pixels

    def _read_points(self, boxes: Sequence[Box]) -> list[NDArray[Any]]:
        """Read boxes pixel by pixel: the one scattered selection that zarr has; it merges requests like any other."""
        points = tuple(np.concatenate([_coordinates(box, i) for box in boxes]) for i in range(len(self.level.shape)))
        try:
            found = np.asarray(self._source.get_coordinate_selection(points)).astype(self.dtype, copy=False)
        except BaseExceptionGroup as group:
            raise first_of(group) from group
        ends = np.cumsum([n_pixels(box) for box in boxes])
        parts = zip(np.split(found, ends[:-1]), boxes, strict=True)
        return [part.reshape(shape_of(box)) for part, box in parts]

    def lent(self, box: Box) -> NDArray[Any] | None:
        """Return nothing: the memory that chunks are decoded into is used again."""

    @property
    def gives_chunks(self) -> bool:
        """Whether `chunks` works: chunks can be decoded in this thread, one by one."""
        return self.direct is not None

    def chunks(self, box: Box, take: Take | None = None) -> Iterator[tuple[Box, NDArray[Any]]]:
        """Yield the pixels of `box` chunk by chunk, in native byte order, as they were decoded.

        Those that `take` takes as they are stored do not come.
        """
        assert self.direct is not None
        for part, pixels in self.direct.chunks(box, take=take):
            yield part, pixels.astype(self.dtype, copy=False)

    def _read(self, box: Box, out: NDArray[Any] | None) -> NDArray[Any]:
        place = NDBuffer.from_ndarray_like(out) if out is not None and self.array.dtype == self.dtype else None
        try:
            pixels = cast("NDArray[Any]", self._reader(box).get_basic_selection(slices(box), out=place))
        except BaseExceptionGroup as group:
            # Fetches of several parts of a shard fail together; what made them fail is what callers look for.
            raise first_of(group) from group
        return np.asarray(pixels).astype(self.dtype, copy=False)

    def _reader(self, box: Box) -> "zarr.Array[Any]":
        if not self._gets_twice or not is_whole(box, self.level):
            return self._source
        with codec_pipeline(self.settings.codec_pipeline or FUSED):
            return remake(self._source, WholeObjects(self._source.store))

    def write(self, box: Box, pixels: NDArray[Any], changed: Sequence[Box] = ()) -> None:
        """Set the whole write units of `box` to `pixels`; fill-only units are deleted.

        What is there is not read, but where `changed` boxes are given: pixels beyond them are those that are stored.
        """
        assert is_whole(box, self.level), f"{box} is not whole write units of {self.level.name}"
        if self.direct is not None:
            self.direct.write(box, pixels, changed)
            return
        # zarr does not swap the bytes of version 2 chunks that are written whole.
        pixels = pixels.astype(self.array.dtype, copy=False)
        if self._padded is not None:
            box, pixels = _pad(box, pixels, self.array.shape, self._padded.shape, self.array.fill_value)
        (self._padded or self._writer).set_basic_selection(slices(box), pixels)

    def patch(self, box: Box, pixels: NDArray[Any]) -> None:
        """Set the pixels of `box`; write units that it covers in part are read, merged and set again."""
        self._writer.set_basic_selection(slices(box), pixels.astype(self.array.dtype, copy=False))

    def holds(self, box: Box, pixels: NDArray[Any]) -> bool:
        """Say whether the stored pixels of the write unit `box` equal `pixels`; what cannot be decoded does not."""
        try:
            stored = self.read(box)
        except Exception as e:
            # Codecs and stores raise what they like. What fails though the object can be had whole is torn; a failed
            # read is raised again.
            index = self.level.index_of(box)
            get_object(self.array.store, f"{self.array.path}/{self.array.metadata.encode_chunk_key(index)}".lstrip("/"))
            logger.warning("%s: %s cannot be decoded: %s", self.level.name, box, e)
            return False
        return bool(np.array_equal(stored, pixels, equal_nan=stored.dtype.kind in "fc"))


def _coordinates(box: Box, axis: int) -> NDArray[np.int64]:
    """Return the place along `axis` of each pixel of `box`, in C order."""
    along = np.arange(*box[axis]).reshape([-1 if i == axis else 1 for i in range(len(box))])
    return np.broadcast_to(along, shape_of(box)).ravel()


def _padded_shape(array: "zarr.Array[Any]") -> Shape | None:
    """Return the shape of `array` rounded up to shards; None where it is not sharded.

    zarr reads a shard that overhangs the array before it writes it, although all of it is given: slower, and a torn
    one could never be replaced. The declared shape, in memory alone, is what decides; there is no public way.
    """
    if ChunkGrid.of(array).inner is None:
        return None
    sizes = rectilinear_sizes(array) or array.shards or ()
    # Shards with sizes of their own end where the array ends.
    return tuple(round_up(n, s) if isinstance(s, int) else n for n, s in zip(array.shape, sizes, strict=True))


def _pad(box: Box, pixels: NDArray[Any], shape: Shape, padded_shape: Shape, fill: Any) -> tuple[Box, NDArray[Any]]:
    axes = zip(box, shape, padded_shape, strict=True)
    whole = tuple((start, m if stop == n else stop) for (start, stop), n, m in axes)
    if whole == box:
        return box, pixels
    padded = np.full(shape_of(whole), 0 if fill is None else fill, pixels.dtype)
    padded[tuple(slice(n) for n in pixels.shape)] = pixels
    return whole, padded
