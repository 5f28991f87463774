"""What opening asks of a store: each part of an image once, and the levels together."""

import asyncio
from collections import Counter

import numpy as np
import pytest
import zarr
from zarr.errors import ZarrUserWarning
from zarr.storage import LocalStore, MemoryStore

import ziggurat as zg
from ziggurat.testing import CountingStore

LEVELS = ("0", "1", "2")
DOCUMENTS = ["zarr.json", *(f"{level}/zarr.json" for level in LEVELS)]


class Together(CountingStore):
    """An asynchronous store that answers for a level when it was asked for all of them."""

    _supports_sync_io = False

    async def _before_async(self, operation, key):
        self._before(operation, key)
        level = key.partition("/")[0]
        while level in LEVELS and {k.partition("/")[0] for k in self.gets} < {level, *LEVELS}:
            await asyncio.sleep(0.001)


def make_image(store, **options):
    zg.build(np.ones((64, 64), np.uint16), store, axes="yx", n_levels=len(LEVELS), **options)
    return store


def make_old_image(store):
    return make_image(store, version="0.4")


@pytest.mark.parametrize("made", [lambda path: LocalStore(path / "image"), lambda path: MemoryStore()])
def test_each_part_is_asked_for_once(made, tmp_path):
    store = CountingStore(make_image(made(tmp_path)))
    pyramid = zg.open_pyramid(store)
    assert store.gets == Counter(DOCUMENTS)
    assert not store.lists
    assert [level.name for level in pyramid.levels] == list(LEVELS)


@pytest.mark.parametrize("make", [make_image, make_old_image])
def test_levels_are_asked_for_at_once(make):
    store = Together(make(MemoryStore()))
    assert asyncio.run(asyncio.wait_for(asyncio.to_thread(zg.open_pyramid, store), 60)).levels[2].shape == (16, 16)


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("make", [make_image, make_old_image])
def test_arrays_are_as_zarr_opens_them(make, read_only, tmp_path):
    make(LocalStore(tmp_path / "image"))
    store = LocalStore(tmp_path / "image", read_only=read_only)
    wanted = zarr.open_group(store, mode="r" if read_only else "r+", use_consolidated=False)
    for array in zg.open_pyramid(store).arrays:
        found = wanted[array.path]
        assert (array.metadata, array.store_path, array.read_only) == (found.metadata, found.store_path, read_only)
        assert array.async_array.config == found.async_array.config


def test_consolidated_metadata_is_not_asked(tmp_path):
    store = make_image(LocalStore(tmp_path / "image"))
    with pytest.warns(ZarrUserWarning, match="Consolidated metadata"):
        zarr.consolidate_metadata(store)
    zarr.open_group(store, mode="r+", use_consolidated=False)["2"].resize((15, 16))
    for where in (store, zarr.open_group(store, mode="r+", use_consolidated=True)):
        assert zg.open_pyramid(where).levels[2].shape == (15, 16)
