"""Labels that are made side by side, by threads and by processes, are all listed."""

import json
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from threading import Event, Thread

import numpy as np
import pytest
import zarr

import ziggurat as zg
from ziggurat.listing import label_names

NAMES = [f"l{i}" for i in range(8)]


def make(path, name):
    labels = np.full((64, 64), int(name[1:]) + 1, "uint16")
    zg.build(labels, name, labels_of=path, chunks=(32, 32), n_levels=3)


def make_empty(path, name):
    zg.open_pyramid(path).create_label(name, "uint16")


def watch(path, stop, seen):
    """Read the list and the files behind it until told to stop."""
    while not stop.is_set():
        for file in (path / "labels").glob("*"):
            if file.name in ("zarr.json", ".zattrs", ".zgroup"):
                try:
                    json.loads(file.read_text())
                except ValueError as e:
                    seen.append(e)
        if (path / "labels").exists():
            try:
                label_names(zarr.open_group(path, mode="r")["labels"].attrs.asdict())
            except KeyError:
                continue  # Not there yet.
            except Exception as e:
                seen.append(e)


WAYS = [("threads", "0.4", make), ("threads", "0.5", make_empty), ("threads", "0.5", make)]
WAYS += [("processes", "0.4", make_empty), ("processes", "0.5", make)]


@pytest.mark.parametrize(("workers", "version", "task"), WAYS)
def test_none_is_lost(tmp_path, version, workers, task):
    path = tmp_path / "a"
    zg.build(np.zeros((64, 64), "uint16"), path, chunks=(32, 32), version=version)
    stop, seen = Event(), []
    reader = Thread(target=watch, args=(path, stop, seen))
    reader.start()
    pool = ThreadPoolExecutor(8) if workers == "threads" else ProcessPoolExecutor(3, get_context("spawn"))
    try:
        with pool:
            list(pool.map(task, [str(path)] * 8, NAMES))
    finally:
        stop.set()
        reader.join()
    assert not seen
    labels = zarr.open_group(path / "labels", mode="r")
    assert sorted(label_names(labels.attrs.asdict())) == NAMES
    for name in NAMES if task is make else ():
        pyramid = zg.open_pyramid(path / "labels" / name)
        assert [level.shape for level in pyramid.levels] == [(64, 64), (32, 32), (16, 16)]
        assert all((array[...] == int(name[1:]) + 1).all() for array in pyramid.arrays)
