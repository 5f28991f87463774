"""What it costs to read parts of a shard, with and without merging of near byte ranges.

A shard is one object that holds many chunks. On a store behind a network each request takes some milliseconds, however
few bytes it is for; zarr can merge requests for chunks that lie near one another, at the price of the bytes between
them. First 8192 pixels in 128 chunks of one shard, then the rebuild of a sharded pyramid after scattered changes:

    python examples/sharded_read_coalescing.py
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import zarr
from zarr.storage import MemoryStore

import ziggurat as zg
from ziggurat.testing import CountingStore, LatencyStore

LATENCY_S = 0.005
CHUNK, N_CHUNKS = 64, 128
SELECTIONS = {
    "every 2nd chunk": range(0, N_CHUNKS, 2),
    "every 4th chunk": range(0, N_CHUNKS, 4),
    "a contiguous quarter": range(N_CHUNKS // 4),
}
OFF, ON = 0, 2**20
"""Bytes between two chunks up to which zarr merges the requests for them; the second is zarr's own default."""


def slow_store() -> CountingStore:
    """Return a store in memory that counts its requests, and waits before each."""
    return CountingStore(LatencyStore(MemoryStore(), LATENCY_S))


def measured(store: CountingStore, work: Callable[[], Any]) -> tuple[Any, int, float]:
    """Return what `work` returns, the requests that it made, and its seconds."""
    store.reset()
    start = time.perf_counter()
    result = work()
    elapsed_s = time.perf_counter() - start
    return result, store.gets.total() + store.sets.total(), elapsed_s


def read_parts(gap_bytes: int, numbers: Sequence[int]) -> tuple[Any, int, float]:
    """Read some chunks of one shard; the request for the shard's index is not counted, it is always one."""
    store = slow_store()
    array = zarr.create_array(
        store, shape=(CHUNK * N_CHUNKS,), chunks=(CHUNK,), shards=(CHUNK * N_CHUNKS,), dtype="uint8", compressors=None
    )
    array[:] = np.random.default_rng(0).integers(1, 256, array.shape)
    wanted = np.concatenate([np.arange(CHUNK * i, CHUNK * (i + 1)) for i in numbers])
    reader = array.with_config({"sharding_coalesce_max_gap_bytes": gap_bytes})
    pixels, n_requests, elapsed_s = measured(store, lambda: reader.oindex[wanted])
    return pixels, n_requests - 1, elapsed_s


def rebuild(gap_bytes: int) -> tuple[Any, int, float, int | None]:
    """Rebuild a sharded pyramid after a change in every other chunk of a diagonal; also what the plan said it takes."""
    store = slow_store()
    group = zarr.create_group(store)
    arrays = [
        group.create_array(str(k), shape=(n, n), chunks=(32, 32), shards=(512, 512), dtype="uint8", compressors=None)
        for k, n in enumerate((2048, 1024, 512))
    ]
    arrays[0][:] = np.random.default_rng(1).integers(1, 256, arrays[0].shape)
    config = zg.get_config().zarr
    config.sharding_coalesce_max_gap_bytes = gap_bytes
    try:
        zg.consolidate(arrays)
        regions = [(slice(i, i + 8), slice(i, i + 8)) for i in range(0, 2048, 64)]
        for region in regions:
            arrays[0][region] = 200
        plan = zg.plan(arrays, regions=regions)
        _, n_requests, elapsed_s = measured(store, plan.run)
    finally:
        config.sharding_coalesce_max_gap_bytes = None
    return [array[:] for array in arrays], n_requests, elapsed_s, plan.n_requests


def main() -> None:
    """Print requests and milliseconds; what is read must be the same."""
    print(f"{'':<24}{'merging off':>24}{'on':>24}")
    for name, numbers in SELECTIONS.items():
        (apart, n_apart, apart_s), (merged, n_merged, merged_s) = (read_parts(gap, numbers) for gap in (OFF, ON))
        assert np.array_equal(apart, merged)
        _show(name, n_apart, apart_s, n_merged, merged_s)
    assert (n_apart, n_merged) == (1, 1), "contiguous chunks are one request in any case"
    (apart, n_apart, apart_s, _), (merged, n_merged, merged_s, planned) = rebuild(OFF), rebuild(ON)
    assert all(map(np.array_equal, apart, merged))
    assert n_merged == planned, "the plan says how many requests it takes"
    _show("a regional rebuild", n_apart, apart_s, n_merged, merged_s)


def _show(name: str, n_apart: int, apart_s: float, n_merged: int, merged_s: float) -> None:
    columns = (
        f"{n:>4} request{'s' if n > 1 else ' '}, {1000 * s:4.0f} ms"
        for n, s in ((n_apart, apart_s), (n_merged, merged_s))
    )
    print(f"{name:<24}" + "".join(f"{column:>24}" for column in columns))


if __name__ == "__main__":
    main()
