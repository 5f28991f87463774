"""Chunks come as they arrive, no more at once than is allowed, and go where they belong."""

from threading import Event, Lock

import dask.array as da
import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from zarr.storage import MemoryStore

import ziggurat as zg
from ziggurat.codecs import ChunkCodec
from ziggurat.errors import GeometryError, RegionError
from ziggurat.testing import CountingStore, FlakyStore


def image(shape=(20, 30), chunks=(4, 5), shards=None, store=None):
    array = zarr.create_array(
        MemoryStore() if store is None else store, shape=shape, chunks=chunks, shards=shards, dtype="i4", fill_value=-1
    )
    array[...] = np.arange(np.prod(shape)).reshape(shape)
    return array


@settings(max_examples=60, deadline=None)
@given(
    data=st.data(),
    kind=st.sampled_from(["zarr", "sharded", "numpy", "dask", "rechunked", "overlapping"]),
    by=st.sampled_from(["unit", "chunk"]),
    n=st.integers(1, 5),
)
def test_a_selection_put_together(data, kind, by, n):
    array = image(shards=(8, 15) if kind == "sharded" else None)
    source = {
        "numpy": lambda: array[...],
        "dask": lambda: da.from_array(array[...], chunks=((7, 13), 30)),
        "rechunked": lambda: zg.rechunked(array, ((1, 19), 11)),
        "overlapping": lambda: zg.overlapping(array, (1, 2)),
    }.get(kind, lambda: array)()
    entry = [
        data.draw(st.one_of(st.integers(0, k - 1), st.builds(slice, *[st.integers(0, k)] * 2, st.integers(1, 7))))
        for k in (20, 30)
    ]
    expected = array[...][tuple(entry)]
    for out in (None, np.empty(expected.shape, "i4"), np.empty(expected.shape, "f8")):
        found = np.full(expected.shape, -7)
        for p, pixels in zg.read_chunks(source, tuple(entry), by=by, max_in_flight=n, out=out):
            found[p.out_selection] = pixels[p.chunk_selection] if kind == "overlapping" else pixels
        np.testing.assert_array_equal(found, expected)
        if out is not None:
            np.testing.assert_array_equal(out, expected)


class Watched:
    """An array whose reads wait until they are let go."""

    shape, dtype, chunks = (12,), np.dtype("u1"), (1,)

    def __init__(self):
        self.lock, self.running, self.most, self.n_read = Lock(), 0, 0, 0
        self.order = {i: Event() for i in range(12)}

    def __getitem__(self, selection):
        with self.lock:
            self.running += 1
            self.n_read += 1
            self.most = max(self.most, self.running)
        i = selection[0].start
        assert self.order[i].wait(30)
        with self.lock:
            self.running -= 1
        return np.array([i], "u1")


def test_in_the_order_of_arrival_and_never_too_many():
    array = Watched()
    stream = zg.read_chunks(zg.rechunked(array, (1,)), max_in_flight=3)
    array.order[2].set()
    assert next(stream)[1].tolist() == [2]
    assert array.n_read <= 3
    array.order[1].set()
    assert next(stream)[1].tolist() == [1]
    for event in array.order.values():
        event.set()
    assert sorted(int(pixels[0]) for _, pixels in stream) == [0, *range(3, 12)]
    assert array.most == 3


def test_who_stops_early_reads_no_more():
    array = Watched()
    for event in array.order.values():
        event.set()
    stream = zg.read_chunks(zg.rechunked(array, (1,)), max_in_flight=2)
    next(stream)
    stream.close()
    assert array.n_read <= 2


def test_whole_chunks_lie_in_their_places():
    array, out = image(), np.zeros((20, 30), "i4")
    for p, pixels in zg.read_chunks(array, out=out):
        assert np.shares_memory(pixels, out[p.out_selection])
    np.testing.assert_array_equal(out, array[...])


@pytest.mark.parametrize("shards", [None, (8, 30)])
def test_whole_chunks_are_decoded_where_they_belong(shards, monkeypatch):
    store = MemoryStore()
    array = zarr.create_array(
        store, shape=(20, 30), chunks=(4, 30), shards=shards, dtype="i4", compressors=zarr.codecs.BloscCodec()
    )
    array[...] = np.arange(600).reshape(20, 30)
    out, rooms = np.zeros((20, 30), "i4"), []
    decode = ChunkCodec.decode
    monkeypatch.setattr(ChunkCodec, "decode", lambda self, data, room: rooms.append(room) or decode(self, data, room))
    assert len(list(zg.read_chunks(array, by="chunk", out=out))) == 5
    np.testing.assert_array_equal(out, array[...])
    assert len(rooms) == 5 and all(np.shares_memory(room, out) for room in rooms)
    # A part of a chunk, or another dtype, is decoded elsewhere.
    list(zg.read_chunks(array, slice(1, 4), by="chunk", out=out[1:4]))
    list(zg.read_chunks(array, by="chunk", out=np.zeros((20, 30))))
    assert len(rooms) == 11 and not any(np.shares_memory(room, out) for room in rooms[5:])
    np.testing.assert_array_equal(out, array[...])


def test_requests_of_sharded_arrays():
    store = CountingStore(MemoryStore())
    array = image((32, 32), (4, 4), (16, 16), store)
    for by, n in (("unit", 4), ("chunk", 2 * 64)):
        store.reset()
        assert len(list(zg.read_chunks(array, by=by))) == (4 if by == "unit" else 64)
        assert store.gets.total() == n
    store.reset()
    list(zg.read_chunks(array, (slice(0, 20), slice(4, 12))))
    assert store.gets.total() == 2 * 2  # the index of each shard, and its chunks


def test_errors_reach_the_caller():
    array = image()
    broken = zarr.open_array(FlakyStore(array.store, lambda: OSError("gone"), n_errors=9, keys=lambda k: k == "c/2/2"))
    with pytest.raises(OSError, match="gone"):
        list(zg.read_chunks(broken))
    with pytest.raises(RegionError, match="selection"):
        zg.read_chunks(array, 20)
    with pytest.raises(GeometryError, match=r"out has the shape \(2,\), the selection \(20, 30\)"):
        zg.read_chunks(array, out=np.empty(2))
    with pytest.raises(ValueError, match="max_in_flight"):
        zg.read_chunks(array, max_in_flight=0)
