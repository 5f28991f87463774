"""Reads and writes boxes of one array, the way Ziggurat does: whole write units, blindly, in the calling thread."""

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray
from zarr.buffer.cpu import NDBuffer

from ziggurat.boxes import Box, shape_of, slices
from ziggurat.counted import CountedStore, Requests
from ziggurat.errors import StoreError
from ziggurat.grid import Level, is_whole, round_up
from ziggurat.inline import Inline
from ziggurat.remote import WholeObjects
from ziggurat.runtime import FUSED, codec_pipeline, is_synchronous
from ziggurat.settings import ZarrConfig
from ziggurat.store import get_object, is_in_memory, is_zip, level_of, remake

if TYPE_CHECKING:
    import zarr

__all__ = ["Handle"]

logger = logging.getLogger(__name__)


class Handle:
    """One level's array, opened the way Ziggurat reads and writes it; a pickled one opens without a request.

    Parameters
    ----------
    array : zarr.Array
        The array.
    settings : ZarrConfig, optional
        Codec pipeline (zarr's fused one by default) and limits for the coalescing of reads.
    """

    def __init__(self, array: "zarr.Array[Any]", settings: ZarrConfig | None = None) -> None:
        self.settings = settings or ZarrConfig()
        names = ("sharding_coalesce_max_gap_bytes", "sharding_coalesce_max_bytes")
        limits = {name: n for name in names if (n := getattr(self.settings, name)) is not None}
        pipeline = self.settings.codec_pipeline or FUSED
        with codec_pipeline(pipeline):
            # `write_empty_chunks` off: units that hold only fill are deleted, as every path must do alike.
            self.array = array.with_config(cast("Any", {"write_empty_chunks": False, **limits}))
            self.requests = Requests()
            # zarrs takes no wrapped stores, and its reads are not counted.
            counted = CountedStore(self.array.store, self.requests)
            self._source = self.array if pipeline.startswith("zarrs.") else remake(self.array, counted)
        # zarrs writes in place: a kill would leave torn chunks.
        with codec_pipeline(FUSED if pipeline.startswith("zarrs.") else pipeline):
            self._writer = remake(self.array, counted)
            self._padded = _padded(self._writer)
        self._inline, self._inline_writer = Inline.of(self._source), Inline.of(self._writer)
        self.level = level_of(array)
        overhangs = any(n % u for n, u in zip(self.level.shape, self.level.unit, strict=True))
        self._gets_twice = overhangs and self._padded is not None and not is_synchronous(array.store)
        self.dtype = self.level.native

    def __reduce__(self) -> tuple[Any, ...]:
        where = "the memory of this process" if is_in_memory(self.array.store) else "a zip archive"
        if is_in_memory(self.array.store) or (is_zip(self.array.store) and not self.array.read_only):
            raise StoreError(
                f"level {self.level.name!r} lies in {where}, where dask's workers cannot write it: "
                "use mode='numpy', the threaded scheduler, or a directory"
            )
        return Handle, (self.array, self.settings)

    def read(self, box: Box, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Return the pixels of `box`, in native byte order; in `out`, if it is given and has the stored dtype."""
        if self._inline is not None:
            if out is None or self.array.dtype != self.dtype:
                out = np.empty(shape_of(box), self.array.dtype)
            self._inline.read(box, out)
            return out.astype(self.dtype, copy=False)
        return self._read(box, out)

    @property
    def gives_chunks(self) -> bool:
        """Whether `chunks` works: every chunk is an object of its own that can be decoded in this thread."""
        return self._inline is not None and not self.level.is_sharded

    def chunks(self, box: Box) -> Iterator[tuple[Box, NDArray[Any]]]:
        """Yield the pixels of `box` chunk by chunk, in native byte order, as they were decoded."""
        assert self._inline is not None
        for part, pixels in self._inline.chunks(box):
            yield part, pixels.astype(self.dtype, copy=False)

    def _read(self, box: Box, out: NDArray[Any] | None) -> NDArray[Any]:
        place = NDBuffer.from_ndarray_like(out) if out is not None and self.array.dtype == self.dtype else None
        try:
            pixels = cast("NDArray[Any]", self._reader(box).get_basic_selection(slices(box), out=place))
        except BaseExceptionGroup as group:
            # Fetches of several parts of a shard fail together; what made them fail is what callers look for.
            raise _first(group) from group
        return np.asarray(pixels).astype(self.dtype, copy=False)

    def _reader(self, box: Box) -> "zarr.Array[Any]":
        if not self._gets_twice or not is_whole(box, self.level):
            return self._source
        with codec_pipeline(self.settings.codec_pipeline or FUSED):
            return remake(self.array, WholeObjects(self._source.store))

    def write(self, box: Box, pixels: NDArray[Any]) -> None:
        """Set the whole write units of `box` to `pixels` without reading what is there; fill-only units are deleted."""
        assert is_whole(box, self.level), f"{box} is not whole write units of {self.level.name}"
        # zarr does not swap the bytes of version 2 chunks that are written whole.
        pixels = pixels.astype(self.array.dtype, copy=False)
        if self._padded is not None:
            box, pixels = _pad(box, pixels, self.level, self.array.fill_value)
        if self._inline_writer is not None:
            self._inline_writer.write(box, pixels)
        else:
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


def _padded(array: "zarr.Array[Any]") -> "zarr.Array[Any] | None":
    """Return `array` with its shape rounded up to shards; None where it is not sharded.

    zarr reads a shard that overhangs the array before it writes it, although all of it is given: slower, and a torn
    one could never be replaced. The declared shape, in memory alone, is what decides; there is no public way.
    """
    if array.shards is None:
        return None
    shape = tuple(round_up(n, s) for n, s in zip(array.shape, array.shards, strict=True))
    return remake(array, shape=shape)


def _first(error: BaseException) -> BaseException:
    """Return the first error in a group of groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _pad(box: Box, pixels: NDArray[Any], level: Level, fill: Any) -> tuple[Box, NDArray[Any]]:
    whole = tuple((start, round_up(stop, u)) for (start, stop), u in zip(box, level.unit, strict=True))
    if whole == box:
        return box, pixels
    padded = np.full(shape_of(whole), 0 if fill is None else fill, pixels.dtype)
    padded[tuple(slice(n) for n in pixels.shape)] = pixels
    return whole, padded
