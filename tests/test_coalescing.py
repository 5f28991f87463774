"""Parts of a shard are read in few requests, as many as the plan says, and the pixels stay what they are."""

import asyncio
import runpy
import time
from pathlib import Path

import dask
import numpy as np
import pytest
import zarr
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from zarr.storage import MemoryStore

import ziggurat as zg
from strategies import Recipe
from ziggurat.gathering import n_gets
from ziggurat.grid import Level
from ziggurat.handle import Handle
from ziggurat.testing import CountingStore, LatencyStore

GAPS = {"sharding_coalesce_max_gap_bytes": 0}


@pytest.fixture(autouse=True)
def all_regional():
    config = zg.get_config().consolidation
    before = config.partial_max_coverage
    config.partial_max_coverage = 1.0
    yield
    config.partial_max_coverage = before


def one_shard(store):
    """8192 pixels in 128 inner chunks of one shard; nothing in it compresses."""
    array = zarr.create_array(store, shape=(8192,), chunks=(64,), shards=(8192,), dtype="uint8", compressors=None)
    array[:] = np.random.default_rng(0).integers(1, 255, 8192)
    return array


def chunks_of(array, numbers):
    return np.concatenate([np.arange(64 * i, 64 * i + 64) for i in numbers])


@pytest.mark.parametrize("wrap", [lambda store: store, lambda store: LatencyStore(store, 0.0)], ids=["sync", "async"])
@pytest.mark.parametrize(
    ("numbers", "apart"),
    [(range(0, 128, 2), 64), (range(0, 128, 4), 32), (range(32), 1)],
    ids=["2nd", "4th", "quarter"],
)
def test_scattered_chunks_of_a_shard_are_one_request(wrap, numbers, apart):
    store = CountingStore(wrap(MemoryStore()))
    array = one_shard(store)
    expected = array[:][chunks_of(array, numbers)]
    for limits, n_requests in (({}, 1), (GAPS, apart)):
        handle = Handle(array.with_config(limits))
        store.reset()
        found = handle.read_many([((64 * i, 64 * i + 64),) for i in numbers])
        np.testing.assert_array_equal(np.concatenate(found), expected)
        assert store.gets.total() == 1 + n_requests  # the index


@settings(max_examples=60, deadline=None)
@given(data=st.data(), is_sync=st.booleans(), ndim=st.integers(1, 3))
def test_many_boxes_at_once(data, is_sync, ndim):
    chunk = [data.draw(st.integers(1, 4)) for _ in range(ndim)]
    shard = [c * data.draw(st.integers(1, 3)) for c in chunk]
    shape = [data.draw(st.integers(1, 20)) for _ in range(ndim)]
    store = CountingStore(MemoryStore() if is_sync else LatencyStore(MemoryStore(), 0.0))
    array = zarr.create_array(store, shape=shape, chunks=chunk, shards=shard, dtype=">i4", fill_value=7)
    pixels = np.random.default_rng(0).integers(0, 99, shape)
    if data.draw(st.booleans()):
        array[...] = pixels
    pixels = array[...]
    boxes = []
    for _ in range(data.draw(st.integers(1, 5))):
        start = [data.draw(st.integers(0, n - 1)) for n in shape]
        boxes.append(tuple((a, data.draw(st.integers(a + 1, n))) for a, n in zip(start, shape, strict=True)))
    for box, found in zip(boxes, Handle(array).read_many(boxes), strict=True):
        np.testing.assert_array_equal(found, pixels[tuple(slice(a, b) for a, b in box)])
        assert found.dtype == "i4"


def pyramid(store, n=256, chunk=16, shard=128, dtype="u2", compressors=None):
    group = zarr.create_group(store)
    arrays = [
        group.create_array(
            str(k), shape=(n >> k,) * 2, chunks=(chunk,) * 2, shards=(shard,) * 2, dtype=dtype, compressors=compressors
        )
        for k in range(3)
    ]
    arrays[0][...] = np.random.default_rng(1).integers(1, 999, (n, n))
    zg.consolidate(arrays)
    return arrays


DIAGONAL = [(slice(i, i + 8), slice(i, i + 8)) for i in range(0, 256, 64)]


@pytest.mark.parametrize("is_sync", [True, False])
@pytest.mark.parametrize("mode", ["numpy", "dask"])
@pytest.mark.parametrize("method", ["mean", "gaussian"])
def test_a_regional_rebuild_makes_the_requests_that_its_plan_says(is_sync, mode, method):
    store = CountingStore(MemoryStore() if is_sync else LatencyStore(MemoryStore(), 0.0))
    arrays = pyramid(store)
    zg.consolidate(arrays, method=method)
    for region in DIAGONAL:
        arrays[0][region] += 1
    plan = zg.plan(arrays, method=method, mode=mode, regions=DIAGONAL)
    assert f"about {plan.n_requests} requests" in str(plan)
    assert all(d.n_patched for d in plan.dirty[:1])
    store.reset()
    with dask.config.set(scheduler="sync"):
        report = plan.run()
    assert store.gets.total() + store.sets.total() == plan.n_requests
    assert sum(s.n_gets + s.n_sets for s in report.stages) == plan.n_requests
    if method == "mean":
        # Two source shards with two patches each, index and chunks of both; the stored shard. The level above is built
        # from what is in memory; both are set.
        assert plan.n_requests == 2 + 2 + 1 + 1 + 1
        assert sum(n for key, n in store.gets.items() if key.startswith("0/")) == 4
    after = [a[...] for a in arrays]
    zg.consolidate(arrays, method=method, mode="numpy")
    for one, other in zip(after, arrays, strict=True):
        np.testing.assert_array_equal(one, other[...])


def test_small_units_that_share_a_shard_share_its_reads():
    store = CountingStore(MemoryStore())
    group = zarr.create_group(store)
    source = group.create_array("0", shape=(512, 512), chunks=(16, 16), shards=(256, 256), dtype="u2")
    target = group.create_array("1", shape=(256, 256), chunks=(16, 16), dtype="u2")
    source[...] = np.random.default_rng(1).integers(1, 999, (512, 512))
    zg.consolidate([source, target])
    regions = [(slice(i, i + 1), slice(i, i + 1)) for i in range(0, 512, 64)]
    plan = zg.plan([source, target], regions=regions)
    store.reset()
    plan.run()
    assert sum(n for key, n in store.gets.items() if key.startswith("0/")) == 2 * 2
    assert store.sets.total() == 8 and plan.n_requests == 2 * 2 + 8 + plan.dirty[0].n_patched


@settings(max_examples=40, deadline=None)
@given(data=st.data(), cap=st.sampled_from([0, 500, 4000, 2**23]), is_sync=st.booleans())
def test_plans_never_say_too_few(data, cap, is_sync):
    sizes = data.draw(st.tuples(*[st.integers(1, 3)] * 2))
    shapes = ((47, 60), (24, 30), (12, 15))
    chunks = tuple(tuple(data.draw(st.integers(1, 4)) for _ in range(2)) for _ in shapes)
    shards = tuple(tuple(c * s for c, s in zip(chunk, sizes, strict=True)) for chunk in chunks)
    store = CountingStore(MemoryStore() if is_sync else LatencyStore(MemoryStore(), 0.0))
    arrays = Recipe(shapes, chunks, shards, "u2", 3, 0, 1).make(store)
    starts = data.draw(st.lists(st.tuples(st.integers(0, 46), st.integers(0, 59)), min_size=1, max_size=6))
    regions = [tuple((a, min(n, a + 3)) for a, n in zip(start, shapes[0], strict=True)) for start in starts]
    config = zg.get_config().dask
    before, config.write_block_max_bytes = config.write_block_max_bytes, cap
    try:
        plan = zg.plan(arrays, regions=regions)
        store.reset()
        plan.run()
    finally:
        config.write_block_max_bytes = before
    assert store.gets.total() + store.sets.total() + store.deletes.total() <= plan.n_requests
    assert zg.plan(arrays).n_requests is None


def test_latency_is_paid_once_for_what_is_merged_and_by_many_at_once():
    """No clock: the waits are counted where they are slept."""
    waits = []

    class Told(LatencyStore):
        async def _before_async(self, operation, key):
            waits.append(operation)
            await super()._before_async(operation, key)

    array = one_shard(Told(MemoryStore(), 0.0))
    waits.clear()
    array.oindex[chunks_of(array, range(0, 128, 2))]
    assert waits == ["get", "get"]
    assert asyncio.iscoroutinefunction(LatencyStore._before_async) and time.sleep is not asyncio.sleep


def test_the_example(capsys):
    example = runpy.run_path(str(Path(__file__).parents[1] / "examples" / "sharded_read_coalescing.py"))
    counts = [(64, 1), (32, 1), (1, 1)]
    for numbers, expected in zip(example["SELECTIONS"].values(), counts, strict=True):
        assert tuple(example["read_parts"](gap, numbers)[1] for gap in (example["OFF"], example["ON"])) == expected
    example["main"]()
    assert "64 requests" in capsys.readouterr().out


@settings(max_examples=100, deadline=None)
@given(data=st.data(), ndim=st.integers(1, 2))
def test_one_box_and_many_are_counted_alike(data, ndim):
    chunk = tuple(data.draw(st.integers(1, 4)) for _ in range(ndim))
    shard = tuple(c * data.draw(st.integers(1, 4)) for c in chunk)
    shape = tuple(data.draw(st.integers(1, 40)) for _ in range(ndim))
    assume(shard != chunk)
    level = Level("0", shape, np.dtype("u1"), chunk, shard)
    start = [data.draw(st.integers(0, n - 1)) for n in shape]
    box = tuple((a, data.draw(st.integers(a + 1, n))) for a, n in zip(start, shape, strict=True))
    assert n_gets(level, [[box]]) == n_gets(level, [[box, box]])
