"""Chunks of which only some blocks are encoded anew: the same files as if all of them had been."""

import numcodecs
import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from zarr.codecs import BloscCodec
from zarr.storage import LocalStore

import ziggurat as zg
from test_encoded import objects
from ziggurat import encoding
from ziggurat.handle import Handle
from ziggurat.storing import FileWriter

pytestmark = pytest.mark.skipif(
    encoding._calls(numcodecs.Blosc) is None, reason="blosc's C functions are not found here"
)


@pytest.fixture(autouse=True)
def numba_is_loaded():
    import ziggurat._jit  # noqa: F401


@pytest.fixture
def spliced(monkeypatch):
    """Count chunks that were put together of old and new blocks (True), and those that were not."""
    counts = {True: 0, False: 0}
    splice = FileWriter._splice

    def counting(self, *args):
        done = splice(self, *args)
        counts[done] += 1
        return done

    monkeypatch.setattr(FileWriter, "_splice", counting)
    return counts


def array_in(root, shape=(1000, 400), dtype="uint16", codec=None, **options):
    """Make an array of one chunk; of 800,000 bytes, in several blocks, unless told otherwise."""
    codec = codec or BloscCodec(cname="lz4", clevel=5, shuffle="shuffle")
    options = {"chunks": shape, "fill_value": 0} | options
    return zarr.create_array(LocalStore(root), shape=shape, dtype=dtype, compressors=[codec], **options)


def noise(shape=(1000, 400), dtype="uint16", seed=0, most=200):
    return np.random.default_rng(seed).integers(1, most, shape).astype(dtype)


def put(array, pixels, changed=()):
    box = tuple((0, n) for n in array.shape)
    Handle(array).write(box, pixels, changed)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_the_file_is_the_one_that_would_be_written_whole(data, tmp_path_factory):
    shape = data.draw(st.sampled_from([(1000, 400), (1024, 512), (64, 64, 64), (30, 101, 203), (500_000,)]))
    dtype = data.draw(st.sampled_from(["uint8", "uint16", "float32", "int64", "complex64"]))
    cname = data.draw(st.sampled_from(["lz4", "lz4", "zstd", "lz4hc", "blosclz", "zlib"]))
    own = {"clevel": data.draw(st.integers(1, 5)), "typesize": data.draw(st.sampled_from([None, None, 1, 2, 3, 8]))}
    own["shuffle"] = data.draw(st.sampled_from(["noshuffle", "shuffle", "bitshuffle"]))
    own["blocksize"] = data.draw(st.sampled_from([0, 0, 2**15, 50_000]))
    codec = BloscCodec(cname=cname, **own)
    found, expected = (array_in(tmp_path_factory.mktemp("a"), shape, dtype, codec) for _ in range(2))
    most = data.draw(st.sampled_from([3, 200, 2**16]))
    pixels = noise(shape, dtype, most=most)
    if data.draw(st.booleans()):
        pixels[: shape[0] // 2] = 1
    put(found, pixels)
    boxes = []
    for seed in range(data.draw(st.integers(1, 3))):
        box = []
        for n in shape:
            start = data.draw(st.integers(0, n - 1))
            box.append((start, min(n, start + data.draw(st.sampled_from([1, 7, 40])))))
        place = tuple(slice(*ab) for ab in box)
        pixels[place] = noise(pixels[place].shape, dtype, seed + 1, data.draw(st.sampled_from([2, 2**16])))
        boxes.append(tuple(box))
    put(found, pixels, boxes)
    put(expected, pixels)
    assert objects(found.store.root) == objects(expected.store.root)


def test_some_blocks_are_kept(tmp_path, spliced):
    array, pixels = array_in(tmp_path / "a"), noise()
    put(array, pixels)
    before = objects(tmp_path / "a")["c/0/0"]
    pixels[10:18, 5:13] = 9
    put(array, pixels, [((10, 18), (5, 13))])
    assert spliced == {True: 1, False: 0}
    after = objects(tmp_path / "a")["c/0/0"]
    assert before != after and before[-50_000:] == after[-50_000:]
    np.testing.assert_array_equal(array[...], pixels)


def test_pixels_beyond_are_those_that_are_stored(tmp_path, spliced):
    """What shows that other blocks are not even looked at."""
    array, pixels = array_in(tmp_path), noise()
    put(array, pixels)
    given = np.zeros_like(pixels)
    given[:400] = pixels[:400]
    given[3, 3] = pixels[3, 3] = 77
    put(array, given, [((3, 4), (3, 4))])
    assert spliced == {True: 1, False: 0}
    np.testing.assert_array_equal(array[...], pixels)


@pytest.mark.parametrize(
    "other",
    [
        BloscCodec(cname="lz4", clevel=9, shuffle="shuffle"),
        BloscCodec(cname="lz4", clevel=5, shuffle="bitshuffle"),
        BloscCodec(cname="lz4", clevel=5, shuffle="shuffle", blocksize=2**16),
        BloscCodec(cname="lz4", clevel=5, shuffle="shuffle", typesize=4),
        BloscCodec(cname="lz4hc", clevel=5, shuffle="shuffle"),
        BloscCodec(cname="zstd", clevel=5, shuffle="shuffle"),
        BloscCodec(cname="lz4", clevel=0, shuffle="shuffle"),
    ],
    ids=str,
)
def test_what_was_encoded_otherwise_is_encoded_whole(other, tmp_path, spliced):
    ours, theirs, right = array_in(tmp_path / "a"), array_in(tmp_path / "b", codec=other), array_in(tmp_path / "c")
    pixels = noise()
    put(theirs, pixels)
    (tmp_path / "a" / "c" / "0").mkdir(parents=True)
    (tmp_path / "a" / "c" / "0" / "0").write_bytes(objects(tmp_path / "b")["c/0/0"])
    np.testing.assert_array_equal(ours[...], pixels)
    pixels[500:510] += 1
    put(ours, pixels, [((500, 510), (0, 400))])
    put(right, pixels)
    assert objects(tmp_path / "a")["c/0/0"] == objects(tmp_path / "c")["c/0/0"]
    assert spliced == {True: 0, False: 1}


@pytest.mark.parametrize("harm", ["missing", "cut", "longer", "header", "starts", "empty"])
def test_what_is_no_chunk_is_replaced(harm, tmp_path, spliced):
    array, pixels = array_in(tmp_path / "a"), noise()
    put(array, pixels)
    file = tmp_path / "a" / "c" / "0" / "0"
    data = file.read_bytes()
    file.write_bytes(
        {
            "missing": b"",
            "cut": data[:-1],
            "longer": data + b"0",
            "header": bytes(16) + data[16:],
            "starts": data[:16] + bytes(4) + data[20:],
            "empty": b"",
        }[harm]
    )
    if harm == "missing":
        file.unlink()
    put(array, pixels, [((3, 4), (0, 9))])
    assert file.read_bytes() == data
    assert spliced == {True: 0, False: 1}


def test_noise_that_no_codec_makes_smaller(tmp_path, spliced):
    pixels = np.random.default_rng(0).integers(0, 256, 800_000, np.uint8).view("uint16").reshape(1000, 400)
    array = array_in(tmp_path / "a")
    for start in (0, 500, 990):
        put(array, pixels)
        pixels[start : start + 9] = 1
        put(array, pixels, [((start, start + 9), (0, 400))])
        put(right := array_in(tmp_path / str(start)), pixels)
        assert objects(tmp_path / "a")["c/0/0"] == objects(right.store.root)["c/0/0"]


def test_chunks_beyond_the_edge_are_encoded_whole(tmp_path, spliced):
    """Others may have stored anything there: here, ones."""
    options = {"shape": (1000, 390), "chunks": (1000, 400)}
    array, right = array_in(tmp_path / "a", **options), array_in(tmp_path / "b", **options)
    pixels = noise((1000, 390))
    wide = np.ones((1000, 400), np.uint16)
    wide[:, :390] = pixels
    put(other := array_in(tmp_path / "c"), wide)
    (tmp_path / "a" / "c" / "0").mkdir(parents=True)
    (tmp_path / "a" / "c" / "0" / "0").write_bytes(objects(other.store.root)["c/0/0"])
    pixels[7] += 1
    put(array, pixels, [((7, 8), (0, 390))])
    put(right, pixels)
    assert objects(tmp_path / "a")["c/0/0"] == objects(tmp_path / "b")["c/0/0"]
    assert spliced == {True: 0, False: 0}


@pytest.mark.parametrize("cname", ["lz4", "zstd"])
def test_regions_of_a_pyramid(cname, tmp_path, spliced):
    """Through all levels: rebuilt by region and in full, the files are the same."""
    pixels = noise((3, 2048, 2048), most=2000)
    roots = tmp_path / "a", tmp_path / "b"
    rng = np.random.default_rng(3)
    regions = [
        ((z, z + 1), (y, y + 16), (x, x + 16)) for z, (y, x) in enumerate(rng.integers(0, 2032, (3, 2)).tolist())
    ]
    for root in roots:
        codec = BloscCodec(cname=cname, clevel=3)
        shapes = [(3, n, n) for n in (2048, 1024, 512)]
        levels = [array_in(root / str(k), s, codec=codec, chunks=(1, 1024, 1024)) for k, s in enumerate(shapes)]
        levels[0][...] = pixels
        zg.consolidate(levels, method="mean", mode="dask")
        for region in regions:
            levels[0][tuple(slice(*ab) for ab in region)] = 5
        zg.consolidate(levels, method="mean", mode="dask", regions=regions if root == roots[0] else None)
    assert objects(roots[0]) == objects(roots[1])
    assert spliced[True] > 0
