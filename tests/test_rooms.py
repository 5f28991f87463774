"""Memory that is used again."""

import gc
import pickle
import weakref

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import ziggurat as zg
from ziggurat.rooms import Rooms, shared_rooms


def test_memory_is_taken_again_where_it_fits():
    rooms = Rooms()
    large, small = rooms.take(100), rooms.take(10)
    rooms.give(large)
    rooms.give(small)
    assert rooms.take(51) is large
    assert rooms.take(10) is small
    rooms.give(large)
    assert rooms.take(49).nbytes == 49  # more than half of it would lie idle
    assert rooms.take(100) is large


@given(st.lists(st.lists(st.integers(1, 1000), min_size=1, max_size=5), max_size=30))
def test_there_is_never_more_than_was_in_use_of_about_a_size(tasks):
    rooms = Rooms()
    for sizes in tasks:
        taken = [rooms.take(n) for n in sizes]
        assert all(n <= room.nbytes <= 2 * n for n, room in zip(sizes, taken, strict=True))
        for room in taken:
            rooms.give(room)
    free = sorted(room.nbytes for room in rooms._free)
    assert free == [room.nbytes for room in rooms._free]
    most = max(map(len, tasks), default=0)
    for n in free:
        assert sum(n <= other <= 2 * n for other in free) <= most


def test_a_process_has_them_as_long_as_they_are_held(tmp_path, monkeypatch):
    monkeypatch.setattr("ziggurat.rooms._all", weakref.WeakValueDictionary())  # other tests may hold theirs
    held = shared_rooms()
    assert shared_rooms() is held and pickle.loads(pickle.dumps(held)) is held
    found = weakref.ref(held)
    zg.build(np.ones((300, 300), "u1"), tmp_path / "a", mode="dask")
    del held
    gc.collect()
    assert found() is None


def test_pixels_are_not_put_where_encoded_bytes_were(tmp_path, monkeypatch):
    monkeypatch.setattr("ziggurat.rooms._all", weakref.WeakValueDictionary())
    pixels, encoded = shared_rooms(), shared_rooms("encoded")
    assert pickle.loads(pickle.dumps(encoded)) is encoded is not pixels
    data = np.random.default_rng(0).integers(0, 99, (512, 512), "u1")
    zg.build(data, tmp_path / "a", chunks=(256, 256), n_levels=2, mode="dask")
    zg.consolidate(tmp_path / "a", mode="dask")
    assert {room.nbytes for room in pixels._free} <= {256 * 256}
    assert encoded._free and min(room.nbytes for room in encoded._free) > 256 * 256


@given(st.integers(1, 10_000))
def test_memory_begins_with_a_page(n):
    assert Rooms().take(n).ctypes.data % 4096 == 0
