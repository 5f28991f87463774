"""Chunks that are not stored, and what is built from nothing but them."""

from dataclasses import replace

import dask
import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from zarr.storage import LocalStore, MemoryStore

import ziggurat as zg
from strategies import recipes, stored
from ziggurat import stages
from ziggurat.testing import CountingStore

quick = settings(max_examples=60, deadline=None)


def sparse(recipe, seed):
    """Make the recipe's arrays, with some of level 0's write units left as if never written."""
    arrays = recipe.make()
    rng = np.random.default_rng(seed)
    unit = arrays[0].shards or arrays[0].chunks
    share = rng.choice([0.0, 0.2, 0.9])
    for index in np.ndindex(*(-(-n // u) for n, u in zip(arrays[0].shape, unit, strict=True))):
        if rng.random() >= share:
            arrays[0].set_block_selection(index, arrays[0].fill_value)
    return arrays


@quick
@given(recipe=recipes(), seed=st.integers(0, 99), fill=st.sampled_from([0, 1, 5]), cap=st.sampled_from([1, 500, 2**23]))
def test_one_answer_where_chunks_are_missing(recipe, seed, fill, cap):
    recipe = replace(recipe, fill=fill if np.dtype(recipe.dtype).kind != "b" else bool(fill))
    expected = sparse(recipe, seed)
    zg.consolidate(expected, method=recipe.method, mode="numpy")
    arrays = sparse(recipe, seed)
    before, zg.get_config().dask.write_block_max_bytes = zg.get_config().dask.write_block_max_bytes, cap
    wanted, stages.MIN_BLOCKS = stages.MIN_BLOCKS, 1
    try:
        with dask.config.set(scheduler="sync"):
            zg.consolidate(arrays, method=recipe.method, mode="dask")
    finally:
        zg.get_config().dask.write_block_max_bytes = before
        stages.MIN_BLOCKS = wanted
    assert stored(arrays) == stored(expected)


@pytest.mark.parametrize("method", ["mean", "linear", "mode", "median", "max"])
@pytest.mark.parametrize("fill", [0.0, -0.0, 0.1, 1e30, float("nan"), float("inf")])
def test_the_fill_value_of_floats(method, fill):
    def make():
        group = zarr.create_group(MemoryStore())
        options = {"dtype": "float32", "fill_value": fill}
        arrays = [group.create_array(str(k), shape=(18, 27), chunks=(6, 9), **options) for k in (0,)]
        arrays += [group.create_array("1", shape=(6, 9), chunks=(3, 3), **options)]
        arrays[0][0:6, 9:18] = np.arange(54).reshape(6, 9)
        return arrays

    found, expected = make(), make()
    zg.consolidate(found, method=method, mode="dask")
    zg.consolidate(expected, method=method, mode="numpy")
    assert found[1][...].tobytes() == expected[1][...].tobytes()


def test_nothing_is_encoded_where_nothing_is_stored(tmp_path):
    store = CountingStore(LocalStore(tmp_path / "labels.zarr"))
    group = zarr.create_group(store)
    arrays = [
        group.create_array(str(k), shape=(n, n), chunks=(64, 64), dtype="uint32")
        for k, n in enumerate((1024, 512, 256))
    ]
    arrays[0][100:110, 100:110] = 7
    store.reset()
    with dask.config.set(scheduler="sync"):
        report = zg.consolidate(arrays, method="mode", mode="dask")
    assert sorted(key for key in store.sets if ".ziggurat" not in key) == ["1/c/0/0", "2/c/0/0"]
    assert sum(key.startswith(("1/c", "2/c")) for key in store.deletes) == 64 + 16 - 2
    assert report.bytes_read == 64 * 64 * 4
    assert (np.unique(arrays[2][...]) == [0, 7]).all()


def test_what_is_stored_gives_way_to_what_is_not():
    group = zarr.create_group(MemoryStore())
    arrays = [group.create_array(str(k), shape=(n,), chunks=(4,), dtype="uint8") for k, n in enumerate((32, 16))]
    arrays[1][...] = 9
    zg.consolidate(arrays, mode="dask")
    assert not arrays[1][...].any()
    assert arrays[1].nchunks_initialized == 0
