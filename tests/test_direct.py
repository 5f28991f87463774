"""Chunks that are read and written without zarr's pipeline are the same bytes as with it."""

import asyncio
import tracemalloc

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from zarr.codecs import BloscCodec, BytesCodec, Crc32cCodec, GzipCodec, ShardingCodec, TransposeCodec, ZstdCodec
from zarr.storage import LocalStore, MemoryStore

from ziggurat.direct import Direct
from ziggurat.errors import StoreError
from ziggurat.handle import Handle
from ziggurat.testing import CountingStore

DTYPES = ("bool", "uint8", "<u2", ">u2", "<i4", "float32", ">f8", "complex64")
CODECS = {
    "none": [],
    "blosc": [BloscCodec(cname="lz4", clevel=5)],
    "blosc-bits": [BloscCodec(cname="zstd", clevel=1, shuffle="bitshuffle")],
    "zstd": [ZstdCodec(level=1, checksum=True)],
    "gzip": [GzipCodec(level=1)],
    "crc": [Crc32cCodec()],
    "zstd-crc": [ZstdCodec(level=1), Crc32cCodec()],
    "blosc-zstd": [BloscCodec(cname="lz4", clevel=1), ZstdCodec(level=1)],
    "zstd-blosc": [ZstdCodec(level=1), BloscCodec(cname="lz4", clevel=1)],
    "blosc-blosc": [BloscCodec(cname="lz4", clevel=1)] * 2,
}


@st.composite
def an_array(draw):
    """Draw an empty array, and an equal one in another store."""
    n = draw(st.integers(1, 3))
    chunks = [draw(st.integers(1, 4)) for _ in range(n)]
    shards = [c * draw(st.integers(1, 4)) for c in chunks] if draw(st.booleans()) else None
    shape = [draw(st.integers(1, 14)) for _ in range(n)]
    codecs = CODECS[draw(st.sampled_from([name for name in CODECS if name != "gzip"]))]  # it stores the time of day
    dtype = draw(st.sampled_from(DTYPES))
    fill = draw(st.sampled_from([0, 1, float("nan")] if np.dtype(dtype).kind in "fc" else [0, 1]))
    endian = "little" if np.dtype(dtype).itemsize == 1 else draw(st.sampled_from(["little", "big"]))
    version = 3 if shards or codecs is not CODECS["none"] else draw(st.sampled_from([2, 3]))
    options = {"shape": shape, "dtype": dtype, "fill_value": fill, "config": {"write_empty_chunks": False}}
    if version == 2:
        order = draw(st.sampled_from("CF"))
        options |= {"zarr_format": 2, "chunks": chunks, "order": order, "compressors": draw(st.sampled_from(V2))}
        options["fill_value"] = draw(st.sampled_from([fill, None]))
    elif shards:
        inner = [BytesCodec(endian=endian), *codecs]
        index = [BytesCodec(endian="little"), Crc32cCodec()][: draw(st.integers(1, 2))]
        where = draw(st.sampled_from(["start", "end"]))
        sharding = ShardingCodec(chunk_shape=chunks, codecs=inner, index_codecs=index, index_location=where)
        options |= {"chunks": shards, "serializer": sharding, "compressors": []}
    else:
        options |= {"chunks": chunks, "serializer": BytesCodec(endian=endian), "compressors": codecs}
    return [zarr.create_array(MemoryStore(), **options) for _ in range(2)]


V2 = [None, {"id": "blosc"}, {"id": "zstd"}]


def objects(array):
    """Return the stored objects but for the metadata."""
    store = array.store
    return {
        key: buffer.to_bytes() for key, buffer in store._store_dict.items() if "zarr" not in key and ".z" not in key
    }


def some_pixels(array, seed):
    pixels = np.random.default_rng(seed).integers(0, 2 + seed % 5, array.shape).astype(array.dtype)
    pixels[tuple(slice(0, n // 2) for n in array.shape)] = array.fill_value or 0
    return pixels


def is_equal(a, b):
    return np.array_equal(a, b, equal_nan=a.dtype.kind in "fc")


@settings(deadline=None)
@given(an_array(), st.integers(0, 100))
def test_the_bytes_are_those_that_zarr_writes(arrays, seed):
    ours, theirs = arrays
    pixels = some_pixels(ours, seed)
    direct = Direct.of(ours)
    assert direct is not None
    direct.write(tuple((0, n) for n in ours.shape), pixels)
    theirs[...] = pixels
    assert objects(ours) == objects(theirs)


@settings(deadline=None)
@given(an_array(), st.integers(0, 100), st.data())
def test_any_box_is_read_as_zarr_reads_it(arrays, seed, data):
    _, array = arrays
    array[...] = some_pixels(array, seed)
    starts = [data.draw(st.integers(0, n - 1)) for n in array.shape]
    box = tuple((a, data.draw(st.integers(a + 1, n))) for a, n in zip(starts, array.shape, strict=True))
    pixels = np.empty([b - a for a, b in box], array.dtype)
    Direct.of(array).read(box, pixels)
    assert is_equal(pixels, array[tuple(slice(a, b) for a, b in box)])


@pytest.mark.parametrize("version", [2, 3])
def test_gzip_is_read_and_written(version):
    gzip = {"id": "gzip", "level": 1} if version == 2 else CODECS["gzip"]
    array = zarr.create_array(
        MemoryStore(), shape=(5, 7), chunks=(2, 3), dtype="uint16", compressors=gzip, zarr_format=version
    )
    pixels = np.arange(35, dtype="uint16").reshape(5, 7)
    Direct.of(array).write(((0, 5), (0, 7)), pixels)
    assert is_equal(array[...], pixels)
    assert is_equal(Handle(array).read(((1, 5), (2, 7))), pixels[1:, 2:])


def test_whole_shards_are_one_request_and_parts_two():
    store = CountingStore(MemoryStore())
    array = zarr.create_array(store, shape=(16, 16), chunks=(2, 2), shards=(8, 8), dtype="uint16")
    array[...] = 1 + np.arange(256).reshape(16, 16)
    direct = Direct.of(array)
    for box, n in [(((0, 16), (0, 16)), 4), (((0, 8), (8, 16)), 1), (((0, 8), (0, 4)), 2), (((0, 2), (0, 16)), 4)]:
        store.reset()
        direct.read(box, np.empty([b - a for a, b in box], "uint16"))
        assert store.gets.total() == n, box


def test_missing_shards_cost_one_request_and_read_as_fill():
    store = CountingStore(MemoryStore())
    array = zarr.create_array(store, shape=(16, 16), chunks=(2, 2), shards=(8, 8), dtype="uint16", fill_value=7)
    store.reset()
    ((box, pixels),) = Direct.of(array).chunks(((0, 4), (0, 4)))
    assert (box, pixels.strides, pixels.tolist()) == (((0, 4), (0, 4)), (0, 0), [[7] * 4] * 4)
    assert store.gets.total() == 1


@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize("shards", [None, (8, 8)])
def test_what_was_cut_short_is_refused(name, shards):
    array = zarr.create_array(
        MemoryStore(), shape=(8, 8), chunks=(8, 8), shards=shards, dtype="uint16", compressors=CODECS[name]
    )
    array[...] = np.random.default_rng(0).integers(0, 1000, (8, 8))
    (key,) = objects(array)
    whole = array.store._store_dict[key]
    for n in (0, 1, 7, len(whole) // 2, len(whole) - 1):
        asyncio.run(array.store.set(key, whole[:n]))
        with pytest.raises(Exception) as caught:
            Direct.of(array).read(((0, 8), (0, 8)), np.empty((8, 8), "uint16"))
        assert not isinstance(caught.value, AssertionError)


def test_chunks_of_another_size_are_refused():
    small, large = (
        zarr.create_array(MemoryStore(), shape=(n,), chunks=(n,), dtype="uint16", compressors=BloscCodec(cname="lz4"))
        for n in (4, 8)
    )
    small[...], large[...] = 1, 1
    ((key, small_found),) = ((k, v) for k, v in small.store._store_dict.items() if "zarr" not in k)
    large_found = large.store._store_dict[key]
    for array, other, message in (
        (large, small_found, "8 bytes of pixels instead of 16"),
        (small, large_found, "16 bytes"),
    ):
        asyncio.run(array.store.set(key, other))
        with pytest.raises(StoreError, match=message):
            Direct.of(array).read(((0, array.size),), np.empty(array.size, "uint16"))


def test_a_shard_is_encoded_into_memory_that_is_used_again(tmp_path):
    options = {"shape": (2048, 1024), "chunks": (128, 128), "shards": (1024, 1024), "dtype": "uint16"}
    handle = Handle(zarr.create_array(LocalStore(tmp_path), compressors=None, **options))
    pixels = np.random.default_rng(0).integers(1, 2**16, (1024, 1024), "uint16")
    handle.write(((0, 1024), (0, 1024)), pixels)
    tracemalloc.start()
    handle.write(((1024, 2048), (0, 1024)), pixels)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < pixels.nbytes / 4
    assert np.array_equal(handle.array[...], np.concatenate([pixels, pixels]))


def test_a_shard_that_is_in_memory_stays_as_it_is():
    handle = Handle(zarr.create_array(MemoryStore(), shape=(64,), chunks=(8,), shards=(32,), dtype="uint8"))
    for start in (0, 32):
        handle.write(((start, start + 32),), np.arange(start, start + 32, dtype="uint8"))
    assert handle.array[...].tolist() == list(range(64))


def test_large_shards_are_fetched_in_stretches_gaps_included(monkeypatch):
    monkeypatch.setattr("ziggurat.direct.SHARD_READ_BYTES", 1000)
    store = MemoryStore()
    array = zarr.create_array(store, shape=(6400,), chunks=(100,), shards=(6400,), dtype="uint8", compressors=None)
    array[...] = pixels = np.arange(6400).astype("uint8") | 1
    lengths, get = [], store.get_sync

    def get_sync(key, *, prototype=None, byte_range=None):
        found = get(key, prototype=prototype, byte_range=byte_range)
        lengths.append(len(found))
        return found

    monkeypatch.setattr(store, "get_sync", get_sync)
    cells = {(0,): [(i,) for i in range(0, 64, 3)]}
    for _, ((start, stop),), found in Direct.of(array).gather(cells):
        assert is_equal(found, pixels[start:stop])
    assert max(lengths[1:]) <= 1000


def test_unknown_codecs_are_left_to_zarr():
    array = zarr.create_array(
        MemoryStore(), shape=(4, 6), chunks=(2, 3), dtype="uint16", filters=[TransposeCodec(order=(1, 0))]
    )
    assert Direct.of(array) is None
    pixels = np.arange(24, dtype="uint16").reshape(4, 6)
    Handle(array).write(((0, 4), (0, 6)), pixels)
    assert is_equal(array[...], pixels)
    assert is_equal(Handle(array).read(((1, 4), (2, 6))), pixels[1:4, 2:6])
