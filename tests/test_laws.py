"""The laws, as properties over random pyramids."""

import dask
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ziggurat as zg
from reference import reference
from strategies import Recipe, recipes, stored
from ziggurat import stages
from ziggurat.api import _steps
from ziggurat.testing import CountingStore

caps = st.sampled_from([0, 1, 64, 500, 3000, 2**23])
quick = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(autouse=True)
def fine_stages(monkeypatch):
    """Let small images have what large ones have: several tasks, several levels per stage."""
    monkeypatch.setattr(stages, "MIN_BLOCKS", 1)
    cap = zg.get_config().dask.write_block_max_bytes
    yield
    zg.get_config().dask.write_block_max_bytes = cap
    zg.get_config().dask.max_tasks = 10_000


def rebuild(recipe: Recipe, mode: str, cap: int = 2**23, store=None, **options):
    zg.get_config().dask.write_block_max_bytes = cap
    arrays = recipe.make(store)
    zg.consolidate(arrays, method=recipe.method, mode=mode, **options)
    return arrays


@quick
@given(recipe=recipes(), cap=caps, scheduler=st.sampled_from(["sync", "threads"]))
def test_one_answer(recipe, cap, scheduler):
    expected = stored(rebuild(recipe, "numpy"))
    with dask.config.set(scheduler=scheduler, num_workers=3):
        assert stored(rebuild(recipe, "dask", cap)) == expected


@quick
@given(recipe=recipes(max_levels=2), cap=caps)
def test_chained_from_what_is_stored(recipe, cap):
    arrays = rebuild(recipe, "dask", cap)
    steps = _steps(zg.open_pyramid(arrays), recipe.method, None, None)
    for source, target, step in zip(arrays, arrays[1:], steps, strict=False):
        expected = reference(source[...], step.edges, recipe.method)
        np.testing.assert_array_equal(target[...], expected)


@quick
@given(recipe=recipes(), cap=caps, mode=st.sampled_from(["numpy", "dask"]))
def test_one_writer(recipe, cap, mode):
    store = CountingStore(zg_memory())
    arrays = recipe.make(store)
    store.reset()
    zg.get_config().dask.write_block_max_bytes = cap
    with dask.config.set(scheduler="sync"):
        report = zg.consolidate(arrays, method=recipe.method, mode=mode)
    changes = {key: store.sets.get(key, 0) + store.deletes.get(key, 0) for key in {*store.sets, *store.deletes}}
    assert set(changes.values()) <= {1}
    expected = {key for array in arrays[1:] for key in unit_keys(array)}
    assert set(changes) == expected
    assert report.n_units == len(expected)
    last = len(arrays) - 1
    assert not [key for key in store.gets if key in expected and key.startswith(f"{last}/")]


@quick
@given(recipe=recipes(), cap=caps)
def test_source_once(recipe, cap):
    if any(recipe.shards):
        recipe = Recipe(**{**recipe.__dict__, "shards": (None,) * len(recipe.shards)})
    store = CountingStore(zg_memory())
    arrays = recipe.make(store)
    store.reset()
    zg.get_config().dask.write_block_max_bytes = cap
    plan = zg.plan(arrays, method=recipe.method, mode="dask")
    with dask.config.set(scheduler="sync"):
        plan.run()
    read = [store.gets.get(key, 0) for key in unit_keys(arrays[0])]
    if plan.stages[0].decodes == 1:
        assert max(read) <= 1
    # Nothing between the stages' ends is read back.
    ends = {stage.last for stage in plan.stages}
    for k in set(range(1, len(arrays))) - ends:
        assert not [key for key in unit_keys(arrays[k]) if key in store.gets]


@quick
@given(recipe=recipes(), cap=caps, max_tasks=st.integers(3, 20))
def test_few_tasks(recipe, cap, max_tasks):
    zg.get_config().dask.max_tasks = max_tasks
    plan = zg.plan(recipe.make(), method=recipe.method, mode="dask")
    assert plan.n_tasks <= max_tasks
    assert stored(rebuild(recipe, "dask", cap)) == stored(rebuild(recipe, "numpy"))


def zg_memory():
    from zarr.storage import MemoryStore

    return MemoryStore()


def unit_keys(array):
    """Return the keys of all write units, from zarr's own words."""
    shape, unit = array.shape, array.shards or array.chunks
    grid = np.ndindex(*(-(-n // u) for n, u in zip(shape, unit, strict=True)))
    return [f"{array.path}/{array.metadata.encode_chunk_key(coords)}" for coords in grid]
