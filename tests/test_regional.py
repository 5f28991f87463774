"""Law 5: a regional rebuild gives the bytes of a full one, and writes what changed and nothing else."""

import dask
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from zarr.storage import MemoryStore

import ziggurat as zg
from strategies import Recipe, recipes, stored
from ziggurat import dirty, stages
from ziggurat.api import _steps
from ziggurat.boxes import slices
from ziggurat.errors import RegionError
from ziggurat.testing import CountingStore

caps = st.sampled_from([0, 64, 500, 2**23])


@pytest.fixture(autouse=True)
def fresh_config(monkeypatch):
    monkeypatch.setattr(stages, "MIN_BLOCKS", 1)
    config = zg.get_config()
    before = (config.dask.write_block_max_bytes, config.consolidation.partial_max_coverage)
    config.consolidation.partial_max_coverage = 1.0
    yield config
    config.dask.write_block_max_bytes, config.consolidation.partial_max_coverage = before
    config.dask.max_tasks = 10_000


@st.composite
def regions_in(draw, shape):
    sizes = st.sampled_from([1, 1, 2, 5, 100])
    starts = st.tuples(*(st.integers(0, n - 1) for n in shape))
    return [
        tuple((a, min(n, a + draw(sizes))) for a, n in zip(start, shape, strict=True))
        for start in draw(st.lists(starts, min_size=1, max_size=5))
    ]


def expected_units(arrays, recipe: Recipe, regions) -> set[str]:
    """Find by brute force on masks the units whose windows meet a changed pixel."""
    changed = np.zeros(arrays[0].shape, bool)
    for region in regions:
        changed[slices(region)] = True
    keys = set()
    for array, step in zip(arrays[1:], _steps(zg.open_pyramid(arrays), recipe.method, None, None), strict=True):
        above = np.zeros(array.shape, bool)
        for i in np.ndindex(array.shape):
            above[i] = changed[slices(step.window(tuple((j, j + 1) for j in i)))].any()
        changed = above
        unit = array.shards or array.chunks
        for index in {tuple(int(j) // u for j, u in zip(i, unit, strict=True)) for i in np.argwhere(changed)}:
            keys.add(f"{array.path}/{array.metadata.encode_chunk_key(index)}")
    return keys


@settings(max_examples=60, deadline=None)
@given(
    data=st.data(),
    recipe=recipes(),
    cap=caps,
    mode=st.sampled_from(["numpy", "dask"]),
    counted=st.sampled_from([0, 10**5]),
    max_tasks=st.sampled_from([3, 10_000]),
)
def test_only_what_changed(data, recipe, cap, mode, counted, max_tasks):
    config = zg.get_config()
    config.dask.write_block_max_bytes, config.dask.max_tasks = cap, max_tasks
    store = CountingStore(MemoryStore())
    arrays = recipe.make(store)
    zg.consolidate(arrays, method=recipe.method)
    regions = data.draw(regions_in(recipe.shapes[0]))
    for region in regions:
        arrays[0][slices(region)] = 1 - arrays[0][slices(region)]
    store.reset()
    dirty.COUNTED_UNITS, before = counted, dirty.COUNTED_UNITS
    try:
        with dask.config.set(scheduler="sync"):
            report = zg.consolidate(arrays, method=recipe.method, regions=regions, mode=mode)
    finally:
        dirty.COUNTED_UNITS = before
    changes = [key for tally in (store.sets, store.deletes) for key, n in tally.items() for _ in range(n)]
    assert len(changes) == len(set(changes)) == report.n_units
    assert set(changes) == expected_units(arrays, recipe, regions)
    after = stored(arrays)
    zg.consolidate(arrays, method=recipe.method, mode="numpy")
    assert stored(arrays) == after


def image(n=64, chunk=8, store=None, shards=None):
    recipe = Recipe(((n, n), (n // 2, n // 2), (n // 4, n // 4)), ((chunk, chunk),) * 3, (shards,) * 3, "u2", 3, 0, 1)
    arrays = recipe.make(store)
    zg.consolidate(arrays)
    return arrays


def test_nothing_changed_reads_and_writes_nothing():
    store = CountingStore(MemoryStore())
    arrays = image(store=store)
    store.reset()
    report = zg.consolidate(arrays, regions=[])
    assert (report.n_units, report.n_tasks, report.bytes_read) == (0, 0, 0)
    assert not store.gets and not store.sets and not store.deletes


def test_what_leaves_the_array_is_refused_before_anything_is_written():
    arrays = image()
    before = stored(arrays)
    with pytest.raises(RegionError, match="leaves the array: axis 1 has the pixels 0 to 63"):
        zg.consolidate(arrays, regions=[(0, 0), (0, 64)])
    assert stored(arrays) == before


def test_above_the_coverage_everything_is_rebuilt(fresh_config):
    fresh_config.consolidation.partial_max_coverage = 0.5
    arrays = image()
    half = zg.plan(arrays, regions=[(slice(0, 32), slice(None))])
    assert half.is_regional
    more = zg.plan(arrays, regions=[(slice(0, 32), slice(None)), (32, 0)])
    assert not more.is_regional and "more than partial_max_coverage" in more.reason
    # Overlapping and equal regions are counted once.
    assert zg.plan(arrays, regions=[(slice(0, 32), slice(None))] * 3 + [(slice(1, 9), slice(None))]).is_regional


def test_a_diagonal_stays_scattered(fresh_config):
    """32 boxes, 3 % of the image, whose bounding box is everything."""
    fresh_config.consolidation.partial_max_coverage = 0.5
    arrays = image(n=256, chunk=4)
    report = zg.consolidate(arrays, regions=[(slice(i, i + 8), slice(i, i + 8)) for i in range(0, 256, 8)])
    assert report.levels[0].n_units == 32


def test_a_pixel_in_a_large_shard_is_patched():
    arrays = image(n=512, chunk=16, shards=(128, 128))
    plan = zg.plan(arrays, regions=[(100, 100)])
    assert [d.n_patched for d in plan.dirty] == [1, 1]
    assert "2 units, 2 of them patched" in str(plan)
    # The stored shard and one source chunk, against 256 x 256 source pixels.
    assert plan.dirty[0].bytes_read == 2 * (128 * 128 + 16 * 16)


def test_hundred_regions_are_one_small_graph():
    arrays = image(n=512, chunk=16)
    regions = [(i, (37 * i) % 512) for i in range(0, 500, 5)]
    plan = zg.plan(arrays, regions=regions, mode="dask")
    assert plan.n_tasks <= 3 * 100
