"""Chunks that are not stored, and what is built from nothing but them."""

import os
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import dask
import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from zarr.storage import LocalStore, MemoryStore

import ziggurat as zg
from strategies import recipes, stored
from ziggurat import blocks, stages
from ziggurat.counted import CountedStore, Requests, is_missing
from ziggurat.files import Files
from ziggurat.testing import CountingStore

quick = settings(max_examples=60, deadline=None)


def sparse(recipe, seed, store=None):
    """Make the recipe's arrays, with some of level 0's write units left as if never written."""
    arrays = recipe.make(store)
    rng = np.random.default_rng(seed)
    unit = arrays[0].shards or arrays[0].chunks
    share = rng.choice([0.0, 0.2, 0.9])
    for index in np.ndindex(*(-(-n // u) for n, u in zip(arrays[0].shape, unit, strict=True))):
        if rng.random() >= share:
            arrays[0].set_block_selection(index, arrays[0].fill_value)
    return arrays


def files(root):
    """Return the bytes of all files under `root` but for the bookkeeping."""
    found = {path.relative_to(root).as_posix(): path for path in Path(root).rglob("*") if path.is_file()}
    return {key: path.read_bytes() for key, path in found.items() if ".ziggurat" not in key}


@quick
@given(
    recipe=recipes(),
    seed=st.integers(0, 99),
    fill=st.sampled_from([0, 1, 5]),
    cap=st.sampled_from([1, 500, 2**23]),
    is_local=st.booleans(),
)
def test_one_answer_where_chunks_are_missing(recipe, seed, fill, cap, is_local):
    recipe = replace(recipe, fill=fill if np.dtype(recipe.dtype).kind != "b" else bool(fill))
    expected = sparse(recipe, seed)
    zg.consolidate(expected, method=recipe.method, mode="numpy")
    directory = TemporaryDirectory()
    arrays = sparse(recipe, seed, LocalStore(directory.name) if is_local else None)
    before, zg.get_config().dask.write_block_max_bytes = zg.get_config().dask.write_block_max_bytes, cap
    wanted, stages.MIN_BLOCKS = stages.MIN_BLOCKS, 1
    try:
        with dask.config.set(scheduler="sync"):
            zg.consolidate(arrays, method=recipe.method, mode="dask")
        found = files(directory.name) if is_local else stored(arrays)
    finally:
        directory.cleanup()
        zg.get_config().dask.write_block_max_bytes = before
        stages.MIN_BLOCKS = wanted
    assert found == stored(expected)


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


# --- on a local disk


def image(store, separator="/", zarr_format=3, **options):
    """Make two levels of 16 x 16 and 8 x 8 chunks, of the finer one of which three are stored."""
    group = zarr.create_group(store, zarr_format=zarr_format)
    keys = {"name": "default" if zarr_format == 3 else "v2", "separator": separator}
    options |= {"dtype": "uint8", "chunks": (4, 4), "chunk_key_encoding": keys}
    arrays = [group.create_array(str(k), shape=(n, n), **options) for k, n in enumerate((64, 32))]
    arrays[0][0:4, 0:4] = 3
    arrays[0][30:34, 60:64] = 5
    return arrays


def means(pixels):
    return np.rint(pixels.reshape(32, 2, 32, 2).astype("int64").sum(axis=(1, 3)) / 4)


@pytest.fixture
def small_blocks(monkeypatch):
    """Read blocks of 2 x 2 chunks, each by a task, and what is stored of them in Python."""
    monkeypatch.setattr("ziggurat.encoded.IS_OFF", True)
    monkeypatch.setattr("ziggurat._hot.IS_OFF", True)
    monkeypatch.setattr(stages, "ONE_TASK_BYTES", 0)
    monkeypatch.setattr(zg.get_config().dask, "write_block_max_bytes", 64)
    with dask.config.set(scheduler="sync"):
        yield


KINDS = [{"separator": "/"}, {"separator": "."}, {"separator": ".", "zarr_format": 2}, {"shards": (8, 8)}]


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("options", KINDS)
def test_requests_are_those_of_any_store(options, tmp_path):
    counts = []
    for store in (LocalStore(tmp_path / "one"), CountingStore(LocalStore(tmp_path / "other"))):
        arrays = image(store, **options)
        report = zg.consolidate(arrays, method="mean", mode="dask")
        np.testing.assert_array_equal(arrays[1][...], means(arrays[0][...]))
        counts.append((report.bytes_read, [(level.n_units, level.n_gets, level.n_sets) for level in report.levels]))
    assert counts[0] == counts[1]
    assert files(tmp_path / "one") == files(tmp_path / "other")


@pytest.mark.usefixtures("small_blocks")
def test_nothing_is_opened_where_nothing_is_stored(tmp_path, monkeypatch):
    opened, looks, values = [], set(), []
    call, look, value = Files.__call__, is_missing, blocks._value
    monkeypatch.setattr(Files, "__call__", lambda self, key: opened.append(key) or call(self, key))
    monkeypatch.setattr("ziggurat.files.is_missing", lambda path: looks.add(path) or look(path))
    monkeypatch.setattr(blocks, "_value", lambda *about: values.append(about) or value(*about))
    report = zg.consolidate(image(LocalStore(tmp_path)), method="mean", mode="dask")
    assert len(opened) == 3 * 2 * 2  # three blocks hold something
    assert report.n_gets == 16 * 16
    assert len(values) == 1  # for all tasks
    # Where a row of chunks has no directory, none of them is looked for.
    assert {path.split("/")[-2] for path in looks if path.count("/") == str(tmp_path).count("/") + 4} == {"0", "7", "8"}


@pytest.mark.usefixtures("small_blocks")
def test_a_look_that_fails_is_never_fill_value(tmp_path, monkeypatch):
    look = os.lstat

    def fails(path, **options):
        if "/c/" in str(path):
            raise PermissionError(13, "Permission denied", path)
        return look(path, **options)

    arrays = image(LocalStore(tmp_path))
    arrays[1][...] = 9
    with monkeypatch.context() as patched:
        patched.setattr("ziggurat.counted.os.lstat", fails)
        zg.consolidate(arrays, method="mean", mode="dask")
    np.testing.assert_array_equal(arrays[1][...], means(arrays[0][...]))
    assert sum(key.startswith("1/c") for key in files(tmp_path)) == 3


def link(path):
    path.unlink()
    path.symlink_to("nowhere")


def directory(path):
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("make", [lambda path: None, link, directory])
def test_what_is_in_the_place_of_fill_is_deleted(make, tmp_path):
    arrays = image(LocalStore(tmp_path))
    arrays[1][...] = 9
    target = tmp_path / "1" / "c" / "5" / "5"
    make(target)
    zg.consolidate(arrays, method="mean", mode="dask")
    assert not target.exists() and not target.is_symlink()
    np.testing.assert_array_equal(arrays[1][...], means(arrays[0][...]))


def test_nothing_is_deleted_from_what_is_read_only(tmp_path):
    store, requests = LocalStore(tmp_path), Requests()
    CountedStore(store, requests).delete_sync("a/b")
    assert requests.take() == (0, 1)
    with pytest.raises(ValueError, match="read-only"):
        CountedStore(store.with_read_only(True), requests).delete_sync("a/b")
