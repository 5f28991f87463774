"""Reads and writes boxes through zarr's fused codec pipeline in the calling thread.

zarr hands each call to its one event loop and that to a thread of zarr's own: 0.6 to 1 ms of CPU per call, and one door
for all tasks. Where store and codecs are synchronous nothing of that is needed. There is no public way to it: this
module leans on the pipeline's `read_sync` and `write_sync`, and on `ArraySpec`.
"""

import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.buffer.cpu import NDBuffer
from zarr.core.array_spec import ArraySpec
from zarr.core.buffer import default_buffer_prototype
from zarr.core.codec_pipeline import FusedCodecPipeline

from ziggurat.boxes import Box, corner, cut, intersect, shape_of, shift, slices
from ziggurat.grid import Shape, ceil_div
from ziggurat.runtime import is_synchronous

__all__ = ["Inline"]

type _Part = tuple[Any, ArraySpec, tuple[slice, ...], tuple[slice, ...], bool]


class Inline:
    """One array and its pipeline; use `of`."""

    def __init__(self, array: "zarr.Array[Any]", pipeline: FusedCodecPipeline) -> None:
        self.array = array
        self.pipeline = pipeline
        self.unit: Shape = array.shards or array.chunks
        metadata, config = array.metadata, array.async_array.config
        if metadata.zarr_format == 2:
            config = replace(config, order=metadata.order)
        prototype = default_buffer_prototype()
        self.spec = ArraySpec(self.unit, metadata.dtype, metadata.fill_value, config, prototype)

    @classmethod
    def of(cls, array: "zarr.Array[Any]") -> "Inline | None":
        """Return the way around the event loop; None where the store or a codec needs it."""
        pipeline = array.async_array.codec_pipeline
        if not isinstance(pipeline, FusedCodecPipeline) or pipeline.sync_transform is None:
            return None
        # zarr tells of missing chunks after the pipeline has run, where an array asks for it.
        usual = array.async_array.config.read_missing_chunks
        return cls(array, pipeline) if usual and is_synchronous(array.store) else None

    def read(self, box: Box, out: NDArray[Any]) -> None:
        """Fill `out` with the pixels of `box`."""
        place = NDBuffer.from_ndarray_like(out)
        self.pipeline.read_sync(list(self._parts(box)), place, max_workers=_n_threads())

    def chunks(self, box: Box) -> Iterator[tuple[Box, NDArray[Any]]]:
        """Yield the pixels of each chunk in `box` as they were decoded, without a copy to a place beside the others."""
        transform = self.pipeline.sync_transform
        assert transform is not None
        for key, spec, inside, place, _ in self._parts(box):
            part = tuple((start + s.start, start + s.stop) for (start, _), s in zip(box, place, strict=True))
            stored = key.get_sync(prototype=spec.prototype)
            if stored is None:
                fill = 0 if self.array.fill_value is None else self.array.fill_value
                yield part, np.full(shape_of(part), fill, self.array.dtype)
            else:
                yield part, transform.decode_chunk(stored, spec).as_numpy_array()[inside]

    def write(self, box: Box, pixels: NDArray[Any]) -> None:
        """Set the whole write units of `box`; those of shards are whole as declared, beyond the array's shape."""
        parts = [(*part[:-1], True) for part in self._parts(box)]
        self.pipeline.write_sync(parts, NDBuffer.from_ndarray_like(pixels), max_workers=_n_threads())

    def _parts(self, box: Box) -> Iterator[_Part]:
        """Yield what the pipeline asks of each write unit that `box` meets; wholeness is not told."""
        origin = corner(box)
        grid = tuple((start // u, ceil_div(stop, u)) for (start, stop), u in zip(box, self.unit, strict=True))
        for cell in cut(grid, (1,) * len(grid)):
            index = corner(cell)
            first = [i * u for i, u in zip(index, self.unit, strict=True)]
            inside = intersect(box, tuple((c, c + u) for c, u in zip(first, self.unit, strict=True)))
            key = self.array.store_path / self.array.metadata.encode_chunk_key(index)
            yield key, self.spec, slices(shift(inside, first)), slices(shift(inside, origin)), False


def _n_threads() -> int:
    return int(zarr.config.get("codec_pipeline.max_workers", None) or os.cpu_count() or 1)
