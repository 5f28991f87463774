"""Runs a plan in memory: each level from the one below it, whole.

Where chunks can be reduced one by one, level 0 is not held at all; else it is read at once. At most two adjacent levels
are held.
"""

import math
import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ziggurat.blocks import Block, reduce_into
from ziggurat.boxes import Box, slices
from ziggurat.cascade import Record, Work, n_units, taken_requests
from ziggurat.graph import Told
from ziggurat.grid import SHARD_READ_BYTES, Shape, cut_units, write_block
from ziggurat.handle import Handle
from ziggurat.policy import counted_retries
from ziggurat.runtime import zarr_settings

__all__ = ["run_numpy"]


@dataclass(frozen=True, slots=True)
class _Wrote:
    """What one write block of a level took."""

    n_units: int
    bytes_written: int
    write_s: float
    n_retries: int
    bytes_read: int = 0


def run_numpy(work: Work, writes: Sequence[Shape], told: Told) -> list[Record]:
    """Build the chain in memory, two adjacent levels at a time.

    Parameters
    ----------
    writes : sequence of tuple of int
        Pixels of one write block of each level, level 1 first.
    """
    records: list[Record] = []
    settings, started = work.handles[0].settings, time.time()
    work.expect()
    with zarr_settings(settings, None), counted_retries() as retries:
        pixels = None if work.steps[0].takes_chunks and work.handles[0].gives_chunks else _read_whole(work.handles[0])
    n_retries, n_read = len(retries), 0 if pixels is None else pixels.nbytes
    with ThreadPoolExecutor(os.cpu_count()) as pool, zarr_settings(settings):
        for k, size in enumerate(writes, 1):
            about: dict[str, Any] = {"stage": k - 1, "write_s": (0.0,), "n_retries": n_retries}
            record = Record(((k, 0, 0),), n_read, started, started, **about)
            shape = work.handles[k].level.shape
            level = np.empty(math.prod(shape), work.handles[k].dtype).reshape(shape)
            for wrote in _build_level(work, k, size, pixels, level, pool):
                record = _grown(record, wrote)
                told.so_far(record)
            records.append(replace(record, requests=taken_requests(work)))
            told.done(records[-1])
            pixels, started, n_retries, n_read = level, time.time(), 0, 0
    return records


def _read_whole(source: Handle) -> NDArray[Any]:
    """Read a level, in threads where zarr has none of its own to do it with."""
    level = source.level
    if not isinstance(source, Handle) or not source.gives_chunks:
        return source.read(level.box)
    pixels = np.empty(level.shape, source.dtype)
    boxes = cut_units(level.box, level, write_block(level, level.shape, SHARD_READ_BYTES))
    contexts = ((copy_context(), box) for box in boxes)
    # Together they hold a quarter of the level beside it, as planned.
    n_threads = max(1, min(os.cpu_count() or 1, level.nbytes // (4 * level.reader_bytes)))
    with ThreadPoolExecutor(n_threads) as pool:
        # Retries are counted in the context of whoever reads.
        list(pool.map(lambda each: each[0].run(source.read, each[1], pixels[slices(each[1])]), contexts))
    return pixels


def _build_level(
    work: Work, k: int, size: Shape, source: NDArray[Any] | None, level: NDArray[Any], pool: ThreadPoolExecutor
) -> Iterator[_Wrote]:
    """Build a level in memory, out of the chunks of the one below where that is not, and write it."""
    step, handle = work.steps[k - 1], work.handles[k]

    def build(box: Box) -> _Wrote:
        pixels, n_read = level[slices(box)], 0
        with counted_retries() as retries:
            if source is None:
                block = Block(step, box, pixels)
                n_read = block.read(work.handles[k - 1]) or 0
                block.settle()
            else:
                reduce_into(step, source, (0,) * source.ndim, box, pixels)
            started = time.perf_counter()
            handle.write(box, pixels)
        seconds = time.perf_counter() - started
        return _Wrote(n_units(handle.level, box), pixels.nbytes, seconds, len(retries), n_read)

    yield from pool.map(build, cut_units(handle.level.box, handle.level, size))


def _grown(record: Record, wrote: _Wrote) -> Record:
    """Return the record of a level after one more write."""
    ((k, n, n_bytes),) = record.levels
    return replace(
        record,
        levels=((k, n + wrote.n_units, n_bytes + wrote.bytes_written),),
        bytes_read=record.bytes_read + wrote.bytes_read,
        finished_s=time.time(),
        write_s=(record.write_s[0] + wrote.write_s,),
        n_retries=record.n_retries + wrote.n_retries,
    )
