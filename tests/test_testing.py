import asyncio
import pickle
from functools import partial
from threading import Thread

import numpy as np
import pytest
import zarr
from zarr.abc.store import RangeByteRequest
from zarr.core.buffer import default_buffer_prototype
from zarr.storage import LocalStore, MemoryStore

from ziggurat.testing import CountingStore, FlakyStore, tree_hash

FUSED = {"codec_pipeline.path": "zarr.core.codec_pipeline.FusedCodecPipeline"}
PROTOTYPE = default_buffer_prototype()
slow_down = partial(OSError, "503 Slow Down")


def test_gets_sets_and_deletes_are_counted_per_key():
    store = CountingStore(MemoryStore())
    array = zarr.create_array(store, shape=(4,), chunks=(2,), dtype="uint8", fill_value=0)
    store.reset()
    array[:] = 1
    assert (store.gets, store.sets, store.deletes) == ({}, {"c/0": 1, "c/1": 1}, {})
    assert array[:3].tolist() == [1, 1, 1]
    array[:2] = 0
    assert (store.gets, store.sets, store.deletes) == ({"c/0": 1, "c/1": 1}, {"c/0": 1, "c/1": 1}, {"c/0": 1})


class SyncOnly(MemoryStore):
    """Has the synchronous way to chunks only."""

    async def get(self, key, prototype=None, byte_range=None):
        assert "c/" not in key
        return await super().get(key, prototype, byte_range)

    async def set(self, key, value, byte_range=None):
        assert "c/" not in key
        await super().set(key, value, byte_range)


def test_the_fused_pipeline_stays_synchronous_through_the_wrappers():
    store = CountingStore(FlakyStore(SyncOnly(), slow_down, keys=lambda key: False))
    with zarr.config.set(FUSED):
        array = zarr.create_array(store, shape=(4,), chunks=(2,), dtype="uint8")
        array[:] = [1, 2, 3, 4]
        assert array[:].tolist() == [1, 2, 3, 4]
    assert store.sets["c/0"] == store.gets["c/0"] == 1


@pytest.mark.parametrize("config", [FUSED, {}], ids=["fused", "batched"])
def test_byte_ranges_of_a_shard_are_counted(config):
    store = CountingStore(MemoryStore())
    with zarr.config.set(config):
        array = zarr.create_array(store, shape=(8,), chunks=(2,), shards=(8,), dtype="uint8")
        array[:] = np.arange(8)
        store.reset()
        assert array[2:4].tolist() == [2, 3]
    assert store.gets == {"c/0": 2}


def test_get_ranges_runs_through_the_get_of_the_outermost_wrapper():
    store = CountingStore(MemoryStore({"k": PROTOTYPE.buffer.from_bytes(b"abcdef")}))
    ranges = [RangeByteRequest(0, 1), RangeByteRequest(4, 6)]

    async def read():
        return [g async for g in store.get_ranges("k", ranges, prototype=PROTOTYPE, max_gap_bytes=1)]

    assert sorted((i, b.to_bytes()) for group in asyncio.run(read()) for i, b in group) == [(0, b"a"), (1, b"ef")]
    assert store.gets == {"k": 2}


def test_read_only_twins_count_together():
    store = CountingStore(MemoryStore())
    zarr.create_array(store, shape=(4,), chunks=(2,), dtype="uint8")
    store.reset()
    zarr.open_array(store, mode="r")[:]
    assert store.gets["c/0"] == store.gets["c/1"] == 1


def test_threads_lose_no_count():
    store = CountingStore(MemoryStore())
    threads = [Thread(target=lambda: [store.get_sync("k") for _ in range(1000)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.gets == {"k": 4000}


def test_a_pickled_copy_counts_for_itself(tmp_path):
    store = CountingStore(FlakyStore(LocalStore(tmp_path), slow_down, keys="k".__eq__))
    with pytest.raises(OSError, match="503"):
        store.get_sync("k")
    twin = pickle.loads(pickle.dumps(store))
    assert (store.gets, twin.gets) == ({"k": 1}, {})
    with pytest.raises(OSError, match="503"):
        twin.get_sync("k")


def test_each_operation_on_a_key_fails_n_times():
    store = FlakyStore(MemoryStore(), slow_down, n_errors=2, keys=lambda key: key.startswith("bad"))
    value = PROTOTYPE.buffer.from_bytes(b"1")
    for _ in range(2):
        with pytest.raises(OSError, match="503"):
            store.set_sync("bad", value)
        with pytest.raises(OSError, match="503"):
            asyncio.run(store.get("bad", PROTOTYPE))
    store.set_sync("bad", value)
    store.set_sync("good", value)
    assert asyncio.run(store.get("bad", PROTOTYPE)).to_bytes() == b"1"


def test_listing_fails_too():
    store = FlakyStore(MemoryStore({"a": PROTOTYPE.buffer.from_bytes(b"1")}), slow_down)

    async def names():
        return [key async for key in store.list()]

    with pytest.raises(OSError, match="503"):
        asyncio.run(names())
    assert asyncio.run(names()) == ["a"]


def test_tree_hash_sees_a_changed_byte_and_a_new_file(tmp_path):
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "a").write_bytes(b"1")
    before = tree_hash(tmp_path)
    assert list(before) == ["d/a"]
    (tmp_path / "d" / "a").write_bytes(b"2")
    assert tree_hash(tmp_path) != before
    (tmp_path / "d" / "a").write_bytes(b"1")
    assert tree_hash(tmp_path) == before
    (tmp_path / "b").write_bytes(b"")
    assert tree_hash(tmp_path).keys() - before.keys() == {"b"}
