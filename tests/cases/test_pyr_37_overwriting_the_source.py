"""What lazy data still reads from is never cleared."""

import os
from threading import Lock

import dask
import dask.array as da
import numpy as np
import pytest
import zarr

import ziggurat as zg
from ziggurat.errors import StoreError
from ziggurat.testing import tree_hash


@pytest.fixture
def source(tmp_path):
    group = zarr.create_group(tmp_path / "group").create_group("image")
    array = group.create_array("0", shape=(10,), chunks=(5,), dtype="int32")
    array[...] = 10
    return array


def hidden_in_a_closure(path):
    return da.from_delayed(dask.delayed(lambda: zarr.open_array(path)[...])(), (10,), "int32")


LAZY = {
    "from_zarr": lambda path: da.from_zarr(str(path)) + 1,
    "from_array": lambda path: da.from_array(zarr.open_array(path), chunks=5) + 1,
    "closure": hidden_in_a_closure,
    "zarr": zarr.open_array,
    "fused": lambda path: dask.optimize(da.from_zarr(str(path)) * 2 + 1)[0],
}
PLACES = {"same array": "group/image/0", "its group": "group/image", "the group above": "group", "symlink": "link"}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("lazy", LAZY)
def test_it_is_refused(tmp_path, source, lazy, place):
    os.symlink(tmp_path / "group", tmp_path / "link")
    data = LAZY[lazy](tmp_path / "group" / "image" / "0")
    before = tree_hash(tmp_path / "group")
    with pytest.raises(StoreError, match=r"cannot be overwritten: the data is read from .*; write to another place"):
        zg.build(data, tmp_path / PLACES[place], version=None, overwrite=True)
    assert tree_hash(tmp_path / "group") == before
    assert (source[...] == 10).all()


def test_by_a_link_to_the_source(tmp_path, source):
    os.symlink(tmp_path / "group" / "image", tmp_path / "link")
    data = da.from_zarr(str(tmp_path / "link" / "0"))
    with pytest.raises(StoreError, match="cannot be overwritten"):
        zg.build(data, tmp_path / "group", version=None, overwrite=True)
    assert (source[...] == 10).all()


def test_a_pyramid_over_itself(tmp_path):
    pyramid = zg.build(np.full((300, 300), 7, "u1"), tmp_path / "a")
    for data in (pyramid, pyramid[1], pyramid.to_datatree()["0"]["image"] + 1):
        with pytest.raises(StoreError, match="cannot be overwritten"):
            zg.build(data, tmp_path / "a", overwrite=True)
    assert (pyramid[0][...] == 7).all()


def test_a_mapped_file(tmp_path):
    zarr.create_group(tmp_path / "a")
    np.save(tmp_path / "a" / "pixels.npy", np.full((4, 4), 7))
    data = np.load(tmp_path / "a" / "pixels.npy", mmap_mode="r")
    with pytest.raises(StoreError, match="cannot be overwritten"):
        zg.build(data[1:], tmp_path / "a", overwrite=True)


def test_what_cannot_be_told_is_refused(tmp_path):
    zg.build(np.zeros((4, 4)), tmp_path / "a")
    lock = Lock()
    data = da.zeros((4, 4)).map_blocks(lambda block: block + bool(lock), dtype="f8")
    with pytest.raises(StoreError, match="what the data reads from cannot be told"):
        zg.build(data, tmp_path / "a", overwrite=True)


def test_what_lies_elsewhere_is_no_reason(tmp_path, source):
    zg.build(np.zeros((4, 4)), tmp_path / "group2")
    data = da.from_zarr(str(tmp_path / "group" / "image" / "0")) + 1
    pyramid = zg.build(data, tmp_path / "group2", version=None, overwrite=True)
    assert (pyramid[0][...] == 11).all()
