"""A read or write that fails once fails the work, with its own error, and never becomes fill value."""

from functools import partial

import numpy as np
import pytest
import zarr
from helpers import FORMATS, Way, ome

import ziggurat as zg
from clusters import in_processes
from ziggurat.testing import CountingStore, FlakyStore

slow_down = partial(OSError, "503 Slow Down")


def is_metadata(key):
    return key.rpartition("/")[2] in ("zarr.json", ".zarray", ".zgroup", ".zattrs")


def is_chunk_of(level, key):
    return key.startswith(f"{level}/") and ".ziggurat" not in key and not is_metadata(key)


def make_flaky(way, keys, prefilled):
    """Return a store that counts attempts, of which the first two on `keys` fail, and the group that it wraps."""
    attributes = ome(way.format, "yx", [(1, 1), (2, 2)])
    group = way.image(np.full((8, 8), 50, "uint16"), (4, 4), chunks=[(4, 4), (2, 2)], attributes=attributes)
    if prefilled:
        group["1"][...] = 50
    store = CountingStore(FlakyStore(group.store, slow_down, n_errors=2, keys=keys))
    return store, group


def stored_pixels(array):
    """Return the values in the units that are stored."""
    grid = [-(-n // u) for n, u in zip(array.shape, array.shards or array.chunks, strict=True)]
    keys = {index: array.store_path / array.metadata.encode_chunk_key(index) for index in np.ndindex(*grid)}
    return {int(v) for index, key in keys.items() if key.get_sync() for v in array.get_block_selection(index).flat}


@pytest.mark.parametrize("prefilled", [False, True])
@pytest.mark.parametrize("failing", ["reads of level 0", "writes of level 1"])
def test_the_error_is_raised_after_one_attempt(way, failing, prefilled):
    level = failing[-1]
    store, group = make_flaky(way, partial(is_chunk_of, level), prefilled)
    levels = [zarr.open_array(store, path=path, mode="r+") for path in "01"]
    store.reset()
    with pytest.raises(OSError) as error:
        way.rebuild(levels)
    assert (type(error.value), str(error.value)) == (OSError, "503 Slow Down")
    attempts = (store.gets if level == "0" else store.sets).items()
    assert {n for key, n in attempts if is_chunk_of(level, key)} == {1}
    assert stored_pixels(group["1"]) <= {50}
    if prefilled:
        assert (group["1"][...] == 50).all()


@pytest.mark.parametrize("prefilled", [False, True])
def test_metadata_that_cannot_be_read_is_not_missing(way, prefilled):
    store, group = make_flaky(way, is_metadata, prefilled)
    with pytest.raises(OSError) as error:
        way.rebuild(store)
    assert (type(error.value), str(error.value)) == (OSError, "503 Slow Down")
    assert set(store.gets.values()) == {1}
    assert not store.sets
    assert group["1"].nchunks_initialized == (group["1"].nchunks if prefilled else 0)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("failing", ["reads of level 0", "writes of level 1"])
@pytest.mark.parametrize("format", FORMATS)
def test_process_workers_raise_it_too(tmp_path, format, failing):
    way = Way(format, "local", "dask-units", tmp_path)
    store, group = make_flaky(way, partial(is_chunk_of, failing[-1]), prefilled=True)
    levels = [zarr.open_array(store, path=path, mode="r+") for path in "01"]
    with in_processes(), pytest.raises(OSError, match="503 Slow Down"):
        way.rebuild(levels)
    assert (group["1"][...] == 50).all()


def test_a_later_call_that_meets_no_error_repairs_everything(way):
    store, group = make_flaky(way, partial(is_chunk_of, "0"), prefilled=False)
    levels = [zarr.open_array(store, path=path, mode="r+") for path in "01"]
    n_failed = 0
    for _ in range(20):
        try:
            zg.consolidate(levels)
            break
        except OSError:
            n_failed += 1
    assert 2 <= n_failed <= 8
    assert (group["1"][...] == 50).all()
