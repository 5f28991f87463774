"""Law 8: what can be refused is refused before a byte changes, by a typed error that names array, value and remedy."""

import re

import dask
import numpy as np
import pytest
import zarr
from zarr.storage import LocalStore, MemoryStore, ZipStore

import ziggurat as zg
from ziggurat.errors import (
    DTypeError,
    GeometryError,
    LevelError,
    MetadataError,
    MethodError,
    ModeError,
    PyramidNotFoundError,
    ReadOnlyError,
    StoreError,
    ZigguratError,
)
from ziggurat.testing import tree_hash


def make(path, shapes=((16, 16), (8, 8)), dtypes=("u2", "u2")):
    group = zarr.create_group(path)
    for k, (shape, dtype) in enumerate(zip(shapes, dtypes, strict=True)):
        array = group.create_array(str(k), shape=shape, chunks=tuple(min(4, max(1, n)) for n in shape), dtype=dtype)
        array[...] = 3
    return [group[str(k)] for k in range(len(shapes))]


REFUSED = {
    "dtype of a level": ({"dtypes": ("u2", "u1")}, {}, DTypeError, "level '1' holds uint8, level '0' uint16"),
    "axes of a level": ({"shapes": ((16, 16), (8,))}, {}, LevelError, "level '1' has 1 axes, level '0' 2"),
    "finer target": ({"shapes": ((8, 8), (16, 4))}, {}, GeometryError, "list the levels finest first"),
    "method": ({}, {"method": "average"}, MethodError, "there is no method 'average'"),
    "mode": ({}, {"mode": "gpu"}, ModeError, "mode 'gpu' does not exist"),
    "nodata": ({}, {"nodata": 1.5}, MethodError, "nodata=1.5 is no value of uint16"),
    "nodata of linear": ({}, {"method": "linear", "nodata": 0}, MethodError, "takes no nodata"),
    "factor": ({}, {"factors": [3]}, GeometryError, "factor 3 does not lead from 16 pixels to 8"),
    "factors of a level": ({}, {"factors": [(2, 2, 2)]}, GeometryError, "name 3 axes, the levels have 2"),
    "number of factors": ({}, {"factors": [2, 2]}, GeometryError, "factors name 2 levels"),
    "no factor": ({}, {"factors": [0]}, GeometryError, "factor 0"),
    "dtype of a method": ({"dtypes": ("c8", "c8")}, {"method": "median"}, DTypeError, "'median' is not defined"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_before_a_byte_changes(tmp_path, case):
    made, asked, error, said = REFUSED[case]
    make(tmp_path, **made)
    names = [str(k) for k in range(2)]
    before = tree_hash(tmp_path)
    with pytest.raises(error, match=re.escape(said)) as caught:
        zg.consolidate(zg.open_pyramid(tmp_path, levels=names), **asked)
    assert isinstance(caught.value, ZigguratError)
    assert str(tmp_path) in str(caught.value) or "mode" in asked
    assert tree_hash(tmp_path) == before


def test_read_only(tmp_path):
    make(tmp_path)
    before = tree_hash(tmp_path)
    group = zarr.open_group(LocalStore(tmp_path, read_only=True), mode="r")
    pyramid = zg.open_pyramid(group, levels=["0", "1"])
    assert zg.plan(pyramid).n_units == 4
    with pytest.raises(ReadOnlyError, match="level '1'"):
        zg.consolidate(pyramid)
    assert tree_hash(tmp_path) == before


def test_missing_things(tmp_path):
    make(tmp_path)
    before = tree_hash(tmp_path)
    for where, error, said in [
        (tmp_path / "nowhere", PyramidNotFoundError, "there is nothing at"),
        (tmp_path / "0", PyramidNotFoundError, "is one zarr array"),
        (tmp_path / "0" / "c", PyramidNotFoundError, "there is no zarr group at"),
        (tmp_path, MetadataError, "no multiscales"),
    ]:
        with pytest.raises(error, match=said):
            zg.open_pyramid(where)
    with pytest.raises(LevelError, match="level '7' is listed, but there is no such array"):
        zg.open_pyramid(tmp_path, levels=["0", "7"])
    with pytest.raises(LevelError, match="listed twice"):
        zg.open_pyramid(tmp_path, levels=["0", "0"])
    with pytest.raises(LevelError, match="at least one level"):
        zg.open_pyramid([])
    with pytest.raises(LevelError, match="found ndarray"):
        zg.open_pyramid([np.zeros((4, 4))])
    with pytest.raises(LevelError, match="has no axis"):
        zg.open_pyramid([zarr.create_array(MemoryStore(), shape=(), dtype="u1")])
    assert tree_hash(tmp_path) == before
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("scheduler", ["processes", "distributed"])
def test_memory_that_workers_cannot_see(scheduler):
    arrays = make(MemoryStore())
    if scheduler == "distributed":
        from distributed import Client

        context = Client(processes=False, n_workers=1, threads_per_worker=1, dashboard_address="127.0.0.1:0")
    else:
        context = dask.config.set(scheduler=scheduler)
    with context, pytest.raises(StoreError, match="level '0' lies in the memory of this process"):
        zg.consolidate(arrays, mode="dask")
    assert (arrays[1][:] == 3).all()


def test_a_zip_archive_is_not_rebuilt(tmp_path):
    with ZipStore(tmp_path / "image.zip", mode="w") as store:
        make(store)
    pyramid = zg.open_pyramid(tmp_path / "image.zip", levels=["0", "1"])
    assert (pyramid[0][:] == 3).all()
    assert not zg.verify(pyramid).is_stale
    with pytest.raises(ReadOnlyError):
        zg.consolidate(pyramid)


@pytest.mark.parametrize("mode", ["numpy", "dask"])
@pytest.mark.parametrize("shapes", [((0, 8), (0, 4)), ((5, 8), (0, 4)), ((0,), (0,)), ((4, 4),), ((1, 1), (1, 1))])
def test_levels_with_nothing_in_them_are_no_error(shapes, mode):
    arrays = make(MemoryStore(), shapes, ("u2",) * len(shapes))
    report = zg.consolidate(arrays, mode=mode)
    assert report.n_units == sum(np.prod(s) > 0 for s in shapes[1:])
    assert not zg.verify(arrays).is_stale
    assert str(zg.plan(arrays, mode=mode)) and str(report)


@pytest.mark.parametrize("mode", ["numpy", "dask"])
def test_a_failed_task_reaches_the_caller(tmp_path, mode):
    arrays = make(tmp_path)
    (tmp_path / "0" / "c" / "1" / "1").write_bytes(b"torn")
    arrays[1][...] = 9
    with pytest.raises(Exception, match=r".") as caught:
        zg.consolidate(arrays, mode=mode)
    assert not isinstance(caught.value, AssertionError)
    assert (arrays[1][2:, 2:] == 9).all()
