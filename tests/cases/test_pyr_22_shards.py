"""Parallel writers lose nothing in shards: each shard is set once, whole, by one task."""

import numpy as np
import pytest
import zarr
from helpers import ceiling, make_arrays, threads
from zarr.storage import LocalStore

import ziggurat as zg
from ziggurat.testing import CountingStore

A = np.arange(1, 1025, dtype="uint32").reshape(32, 32)


def sharded_levels(path):
    store = CountingStore(LocalStore(path))
    group = zarr.create_group(store)
    make_arrays(group, A.repeat(2, 0).repeat(2, 1), [(32, 32)], chunks=(4, 4), sharded=True)
    return store, [group["0"], group["1"]]


def of_level_1(counts):
    return {key: n for key, n in counts.items() if key.startswith("1/c/")}


@pytest.mark.parametrize("cap", [1, 256, 8 << 20, None])
def test_every_shard_is_whole_and_set_once(tmp_path, cap):
    store, levels = sharded_levels(tmp_path)
    shards = {f"1/c/{y}/{x}": 1 for y in range(4) for x in range(4)}
    for _ in range(20):
        levels[1][...] = 0
        store.reset()
        with ceiling(cap), threads(8):
            zg.consolidate(levels, mode="dask")
        assert (of_level_1(store.sets), of_level_1(store.deletes), of_level_1(store.gets)) == (shards, {}, {})
        np.testing.assert_array_equal(levels[1][...], A)


@pytest.mark.parametrize("cap", [0, 1, 255, 256])
def test_a_cap_below_a_shard_gives_one_shard_per_task(tmp_path, cap):
    _, levels = sharded_levels(tmp_path)
    with ceiling(cap):
        assert zg.plan(levels, mode="dask").n_tasks == 16


@pytest.mark.parametrize("method", ["linear", "median", "mode", "min", "max", "nearest", "stride"])
def test_any_method_gives_the_same(tmp_path, method):
    store, levels = sharded_levels(tmp_path)
    store.reset()
    with ceiling(1), threads(8):
        zg.consolidate(levels, mode="dask", method=method)
    assert set(of_level_1(store.sets).values()) == {1}
    np.testing.assert_array_equal(levels[1][...], A)
