"""Chunks that one compiled call encodes and stores: the same files as zarr's, whole ones, or none."""

import errno
import os
import resource
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import numcodecs
import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from zarr.buffer.cpu import Buffer
from zarr.codecs import BloscCodec, Crc32cCodec, GzipCodec, ZstdCodec
from zarr.storage import LocalStore, MemoryStore, ZipStore

import ziggurat as zg
from test_encoded import NAMES, objects
from ziggurat import encoded, encoding, storing
from ziggurat.config import RetryConfig
from ziggurat.handle import Handle
from ziggurat.storing import FileWriter
from ziggurat.testing import CountingStore, FlakyStore, LatencyStore

pytestmark = pytest.mark.skipif(
    any(encoding._calls(coder) is None for coder in (None, numcodecs.Blosc, numcodecs.Zstd)),
    reason="the codecs' C functions are not found here",
)


@pytest.fixture(autouse=True)
def numba_is_loaded():
    import ziggurat._jit  # noqa: F401


def array_in(store, n=64, dtype="uint16", compressors=None, version=3, **options):
    """Make an array of one chunk."""
    if not isinstance(store, zarr.abc.store.Store):
        store = LocalStore(store)
    shape = (n,) if isinstance(n, int) else n
    options = {"shape": shape, "chunks": shape, "dtype": dtype, "fill_value": 0} | options
    return zarr.create_array(store, compressors=compressors, zarr_format=version, **options)


def writer_of(array) -> FileWriter | None:
    direct = Handle(array).direct
    return direct and direct.writer.files


def noise(n, dtype="uint16", seed=0):
    """Return pixels that no codec makes smaller."""
    shape = (n,) if isinstance(n, int) else n
    data = np.random.default_rng(seed).integers(0, 256, int(np.prod(shape)) * np.dtype(dtype).itemsize, np.uint8)
    return data.view(dtype).reshape(shape)


def everything(array):
    return tuple((0, n) for n in array.shape)


def files(root):
    """Return bytes and mode of all files."""
    return {key: (data, stat.S_IMODE((Path(root) / key).stat().st_mode)) for key, data in objects(root).items()}


# --- the same bytes as zarr's

NUMBERS = ["bool", "uint8", "int16", "uint16", "int32", "float32", "int64", "float64", "complex64", "complex128"]


@st.composite
def compressors(draw, version):
    """Draw a codec that is encoded in C, or none."""
    kind = draw(st.sampled_from(["blosc", "blosc", "blosc", "zstd", "none"]))
    if kind == "none":
        return None if version == 2 else []
    if kind == "zstd":
        own = {"level": draw(st.integers(-7, 22)), "checksum": draw(st.booleans())}
        return numcodecs.Zstd(**own) if version == 2 else [ZstdCodec(**own)]
    own = {"cname": draw(st.sampled_from(numcodecs.blosc.list_compressors())), "clevel": draw(st.integers(0, 9))}
    own["blocksize"] = draw(st.sampled_from([0, 0, 0, 1, 100, 128, 1000, 4096, 10**6]))
    if version == 2:
        return numcodecs.Blosc(shuffle=draw(st.sampled_from([-1, 0, 1, 2])), **own)
    own["shuffle"] = draw(st.sampled_from([None, "noshuffle", "shuffle", "bitshuffle"]))
    own["typesize"] = draw(st.sampled_from([None, None, 1, 2, 3, 4, 8, 16, 17, 255]))
    return [BloscCodec(**own)]


@st.composite
def chunks_of(draw):
    """Draw a shape of up to four axes, many of one pixel."""
    most = draw(st.sampled_from([3, 30, 300, 20_000]))
    shape = draw(st.lists(st.sampled_from([1, 1, 2, 3, 7, 8, 16, 31, 128]), min_size=1, max_size=4))
    while np.prod(shape) > most:
        shape[int(np.argmax(shape))] //= 2
    return tuple(shape)


@st.composite
def pixels_of(draw, shape, dtype):
    kind, seed = draw(st.sampled_from(["noise", "few", "one", "gradient"])), draw(st.integers(0, 9))
    if kind == "one":
        return np.full(shape, 1, dtype)
    if kind == "gradient":
        return np.arange(1, 1 + np.prod(shape)).reshape(shape).astype(dtype)
    if kind == "few":
        return np.random.default_rng(seed).integers(0, 3, shape).astype(dtype)
    return noise(shape, "uint8", seed).astype("bool") if dtype == "bool" else noise(shape, dtype, seed)


@contextmanager
def masked(mask):
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@settings(max_examples=150, deadline=None)
@given(data=st.data(), version=st.sampled_from([2, 3]), mask=st.sampled_from([0o022, 0o022, 0, 0o077, 0o227]))
def test_the_files_are_those_of_zarr(data, version, mask):
    shape, dtype, codec = data.draw(chunks_of()), data.draw(st.sampled_from(NUMBERS)), data.draw(compressors(version))
    pixels = data.draw(pixels_of(shape, dtype))
    with TemporaryDirectory() as found, TemporaryDirectory() as expected, masked(mask):
        ours, theirs = (array_in(root, shape, dtype, codec, version) for root in (found, expected))
        for _ in range(2):  # a new file, and one in the place of another
            theirs.with_config({"write_empty_chunks": True})[...] = pixels
            handle = Handle(ours)
            assert handle.direct.writer.files.put(ours.metadata.encode_chunk_key((0,) * len(shape)), pixels)
            assert handle.requests.take() == (0, 1)
            assert files(found) == files(expected)
            pixels = pixels[::-1]


@pytest.mark.parametrize("strides", ["broadcast", "reversed", "F", "part"])
def test_pixels_that_do_not_lie_in_line(strides, tmp_path):
    pixels = {
        "broadcast": np.broadcast_to(np.uint16(7), (8, 8)),
        "reversed": noise((8, 8))[::-1, ::-1],
        "F": np.asfortranarray(noise((8, 8))),
        "part": noise((16, 16))[4:12, ::2],
    }[strides]
    array = array_in(tmp_path, (8, 8))
    assert writer_of(array).put("c/0/0", pixels)
    np.testing.assert_array_equal(array[...], pixels)


def test_pixels_that_lie_askew(tmp_path):
    for codec in ([], [BloscCodec(cname="lz4")], [ZstdCodec()]):
        array = array_in(tmp_path / str(codec)[:6], 100, "float64", codec)
        pixels = noise(808, "uint8")[3:803].view("float64")
        assert writer_of(array).put("c/0", pixels)
        assert array[...].tobytes() == pixels.tobytes()


def test_many_units_of_one_write(tmp_path):
    array = zarr.create_array(LocalStore(tmp_path), shape=(21, 30), chunks=(8, 8), dtype="uint16", compressors=[])
    handle, pixels = Handle(array), noise((21, 30)) | 1
    pixels[8:16, 8:16] = 0
    handle.write(((0, 21), (0, 30)), pixels)
    assert handle.requests.take() == (0, 12)  # eleven chunks, and one that is deleted
    assert len(list((tmp_path / "c").rglob("[0-9]"))) == 3 + 11
    np.testing.assert_array_equal(array[...], pixels)


KEYS = ["a b/c/0", "100%41/c/0", "a#b?c=d&e/c/0", "[a]*/c/0", "x" * 200 + "/c/0", *(f"{name}/0.0" for name in NAMES)]
KEYS += ["surrogate \udcff/c/0", "just \udcff", "0", "0.1.2", "a.b/0.1", "/".join(["y" * 100] * 12) + "/c/0"]


@pytest.mark.parametrize("below", ["plain", "of \udcff", "a b%#?"])
def test_any_key(below, tmp_path):
    root = tmp_path / below
    array = array_in(root)
    writer = writer_of(array)
    for key in KEYS:
        assert writer.put(key, noise(64)), key
        LocalStore(tmp_path / "usual").set_sync(key, Buffer.from_bytes(noise(64).tobytes()))
    del (found := files(root))["zarr.json"]
    assert found == files(tmp_path / "usual")


def test_a_relative_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in (Path("image"), Path()):
        array = array_in(name)
        assert writer_of(array).put("c/0", noise(64))
        assert (name / "c" / "0").read_bytes() == noise(64).tobytes()


# --- what is not done


@contextmanager
def as_usual(handle):
    """Let all chunks be stored by zarr."""
    writer, handle.direct.writer.files = handle.direct.writer.files, None
    yield
    handle.direct.writer.files = writer


def partial_files(root):
    return list(Path(root).rglob("*.partial"))


def blocked_by_a_directory(root):
    (root / "c" / "0").mkdir(parents=True)
    (root / "c" / "0" / "within").write_bytes(b"x")


def blocked_by_an_empty_directory(root):
    (root / "c" / "0").mkdir(parents=True)


def below_a_file(root):
    (root / "c").write_bytes(b"x")


def below_a_link_to_nothing(root):
    (root / "c").symlink_to("nothing")


BLOCKED = [blocked_by_a_directory, blocked_by_an_empty_directory, below_a_file, below_a_link_to_nothing]


@pytest.mark.parametrize("block", BLOCKED)
def test_where_no_file_can_be(block, tmp_path):
    array = array_in(tmp_path)
    block(tmp_path)
    before, handle, errors = files(tmp_path), Handle(array), []
    for _ in range(2):
        with pytest.raises(OSError, match=r".") as caught:
            handle.write(everything(array), noise(64))
        errors.append((caught.type, caught.value.errno))
    with as_usual(handle), pytest.raises(OSError, match=r".") as caught:
        handle.write(everything(array), noise(64))
    assert errors == [(caught.type, caught.value.errno)] * 2
    assert files(tmp_path) == before and not partial_files(tmp_path)


def test_a_folder_that_was_removed(tmp_path):
    array = array_in(tmp_path)
    handle = Handle(array)
    handle.write(everything(array), noise(64))
    shutil.rmtree(tmp_path / "c")
    assert not handle.direct.writer.files.put("c/0", noise(64))
    handle.write(everything(array), noise(64, seed=1))
    assert handle.requests.take() == (0, 2)
    np.testing.assert_array_equal(array[...], noise(64, seed=1))


def test_a_link_is_replaced(tmp_path):
    array = array_in(tmp_path)
    (tmp_path / "c").mkdir()
    (tmp_path / "other").write_bytes(b"x")
    (tmp_path / "c" / "0").symlink_to("../other")
    assert writer_of(array).put("c/0", noise(64))
    assert not (tmp_path / "c" / "0").is_symlink() and (tmp_path / "other").read_bytes() == b"x"


@contextmanager
def room_for(n_bytes):
    """Let files have this many bytes, at most; Python ignores the signal."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.skipif(signal.getsignal(signal.SIGXFSZ) != signal.SIG_IGN, reason="too long files end the process")
@pytest.mark.parametrize("codec", [[], [BloscCodec(cname="lz4")], [ZstdCodec()]], ids=["none", "blosc", "zstd"])
def test_a_write_that_fails_half_way(codec, tmp_path):
    array = array_in(tmp_path, 50_000, compressors=codec)
    handle = Handle(array)
    for is_new in (True, False):
        before = files(tmp_path)
        assert ("c/0" not in before) == is_new
        with room_for(70_000):
            assert not handle.direct.writer.files.put("c/0", noise(50_000, seed=1))
            assert files(tmp_path) == before and not partial_files(tmp_path)
            with pytest.raises(OSError, match="too large") as caught:
                handle.write(everything(array), noise(50_000, seed=1))
        assert caught.value.errno == errno.EFBIG
        assert files(tmp_path) == before and not partial_files(tmp_path)
        assert handle.requests.take() == (0, 1)
        handle.write(everything(array), noise(50_000))
        handle.requests.take()
    np.testing.assert_array_equal(array[...], noise(50_000))


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="open files are not seen here")
def test_no_file_stays_open(tmp_path):
    array = array_in(tmp_path, 50_000)
    writer = writer_of(array)
    assert writer.put("c/0", noise(50_000))
    (tmp_path / "c" / "1").mkdir()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        assert writer.put("c/0", noise(50_000))
        assert not writer.put("c/1", noise(50_000))
        with room_for(1000):
            assert not writer.put("c/0", noise(50_000))
    assert len(os.listdir("/proc/self/fd")) == before and not partial_files(tmp_path)


# --- what goes another way

STORES = {
    "memory": lambda root: MemoryStore(),
    "zip": lambda root: ZipStore(root / "image.zip", mode="w"),
    "counted": lambda root: CountingStore(LocalStore(root)),
    "flaky": lambda root: FlakyStore(LocalStore(root), OSError, n_errors=0),
    "latency": lambda root: LatencyStore(LocalStore(root), 0.0),
}


@pytest.mark.parametrize("name", STORES)
def test_stores_that_are_no_directory(name, tmp_path):
    array = array_in(STORES[name](tmp_path))
    assert writer_of(array) is None
    handle = Handle(array)
    handle.write(everything(array), noise(64))
    np.testing.assert_array_equal(array[...], noise(64))
    assert handle.requests.take() == (0, 1)
    array.store.close()


def test_a_subclass_of_zarrs_local_store(tmp_path):
    class Other(LocalStore):
        pass

    assert writer_of(array_in(Other(tmp_path))) is None


def test_a_store_that_is_read_only_is_not_written(tmp_path):
    array_in(tmp_path)
    before = files(tmp_path)
    array = zarr.open_array(LocalStore(tmp_path, read_only=True), mode="r")
    with pytest.raises(ValueError, match="read-only"):
        Handle(array).write(everything(array), noise(64))
    assert files(tmp_path) == before


@pytest.mark.parametrize("shuffle", [1, -1])
def test_what_a_codec_does_not_store_of_itself_does_not_count(shuffle, tmp_path):
    """Each process writes what any other does: numcodecs keeps `typesize` to itself."""
    array = array_in(tmp_path, 4096, compressors=numcodecs.Blosc(typesize=8, shuffle=shuffle), version=2)
    pixels = np.arange(4096, dtype="u2")
    Handle(array).write(everything(array), pixels)
    before = files(tmp_path)
    Handle(zarr.open_array(tmp_path)).write(everything(array), pixels)
    assert files(tmp_path) == before


def test_a_retry_policy(tmp_path, monkeypatch):
    monkeypatch.setattr(zg.get_config(), "io_retry", RetryConfig(max_retries=2, retry_on=["no such thing"]))
    (tmp_path / "0").mkdir()
    array = zg.open_pyramid([array_in(tmp_path / "0")])[0]
    assert writer_of(array) is None


OTHERS = {
    "gzip": {"compressors": [GzipCodec()]},
    "crc": {"compressors": [Crc32cCodec()]},
    "two": {"compressors": [BloscCodec(), ZstdCodec()]},
    "order F": {"order": "F", "version": 2},
    "big": {"dtype": ">u2", "version": 2},
    "shards": {"chunks": (32,), "shards": (64,)},
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_encoded_otherwise(name, tmp_path):
    array = array_in(tmp_path, **OTHERS[name])
    assert writer_of(array) is None
    Handle(array).write(everything(array), noise(64))
    np.testing.assert_array_equal(array[...], noise(64))


def test_a_codec_that_was_not_built_in(tmp_path):
    array = array_in(tmp_path, compressors=[BloscCodec(cname="snappy")])
    assert not writer_of(array).put("c/0", noise(64))
    with pytest.raises(ValueError, match="snappy"):
        Handle(array).write(everything(array), noise(64))
    assert list(objects(tmp_path)) == ["zarr.json"]


def test_other_pixels(tmp_path):
    assert not writer_of(array_in(tmp_path)).put("c/0", noise(64, "uint32"))
    assert list(objects(tmp_path)) == ["zarr.json"]


@pytest.mark.parametrize("how", ["off", "not loaded", "half loaded", "without functions"])
def test_without_the_compiled_call(how, tmp_path, monkeypatch):
    if how == "off":
        monkeypatch.setattr(encoded, "IS_OFF", True)
    elif how == "not loaded":
        monkeypatch.delitem(sys.modules, "ziggurat._jit")
    elif how == "half loaded":
        monkeypatch.setitem(sys.modules, "ziggurat._jit", type(sys)("ziggurat._jit"))
    else:
        monkeypatch.setattr(encoding, "_calls", lambda coder: None)
    array = array_in(tmp_path, compressors=[BloscCodec()])
    handle = Handle(array)
    assert handle.direct.writer.files is None or not handle.direct.writer.files.put("c/0", noise(64))
    assert list(objects(tmp_path)) == ["zarr.json"]
    handle.write(everything(array), noise(64))
    assert handle.requests.take() == (0, 1)
    np.testing.assert_array_equal(array[...], noise(64))


# --- processes and threads

PUTS = """
import sys
import numpy as np, zarr
import ziggurat._jit
from ziggurat.handle import Handle
array = zarr.open_array(sys.argv[1])
writer = Handle(array).direct.writer.files
contents = [np.full(array.shape, value, array.dtype) for value in map(int, sys.argv[2:])]
assert writer.put("c/0", contents[0])
print("started", flush=True)
for i in range(10**9):
    assert writer.put(f"c/{i % 5}", contents[i // 5 % len(contents)])
"""


@pytest.mark.timeout(120)
def test_processes_that_are_killed_leave_whole_files(tmp_path):
    """Three of them put the same keys, while others read them."""
    n = 200_000
    array_in(tmp_path, n, "uint8", fill_value=9)
    whole = {bytes([value]) * n for value in range(1, 7)}
    command = [sys.executable, "-c", PUTS, str(tmp_path)]
    jobs = [
        subprocess.Popen([*command, str(i), str(i + 3)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for i in (1, 2, 3)
    ]
    try:
        for job in jobs:
            assert job.stdout.readline() == b"started\n", job.stderr.read()
        for job in jobs:
            end = time.monotonic() + 0.3
            while time.monotonic() < end:
                assert (tmp_path / "c" / "0").read_bytes() in whole
            assert job.poll() is None
            job.kill()
    finally:
        for job in jobs:
            job.kill()
            job.communicate()
    found = {path.name: path.read_bytes() for path in (tmp_path / "c").iterdir() if path.suffix != ".partial"}
    assert sorted(found) == list("01234") and set(found.values()) <= whole


def test_threads_that_put_the_same_key(tmp_path):
    array = array_in(tmp_path, 20_000, compressors=[BloscCodec(cname="lz4")])
    handle = Handle(array)
    contents = [noise(20_000, seed=seed) for seed in range(3)]
    done = []

    def put(pixels):
        done.extend(handle.direct.writer.files.put("c/0", pixels) for _ in range(100))

    threads = [threading.Thread(target=put, args=(pixels,)) for pixels in contents]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        if (tmp_path / "c" / "0").exists():
            assert array[...].tobytes() in {pixels.tobytes() for pixels in contents}
    assert done == [True] * 300 and handle.requests.take() == (0, 300)
    assert sorted(objects(tmp_path)) == ["c/0", "zarr.json"]


FENCED = """
import faulthandler
import numcodecs, numpy as np
import ziggurat._jit
from guarded import Fenced, coder
from ziggurat.codecs import ChunkCodec
from ziggurat.counted import Requests
from ziggurat.storing import FileWriter

faulthandler.enable()

class Exact:
    take, give = (lambda n: encoded.last(n)), (lambda room: None)

rng, (encoded, pixels) = np.random.default_rng(0), (Fenced(40), Fenced(40))
sizes = [*range(1, 40), *range(120, 140), *range(1000, 1040), *map(int, rng.integers(1, 150_000, 150)), 2**17, 150_000]
for i, size in enumerate(sizes):
    for name in ("blosc", "blosc", "zstd", "none"):
        codec = ChunkCodec((size,), np.dtype("u1"), "C", coder(rng, name), int(rng.choice([1, 2, 4, 8])))
        writer = FileWriter.of((ROOT, Requests()), codec, 0)
        writer._rooms = Exact
        chunk = pixels.last(size)
        chunk[:] = rng.integers(0, [256, 2][i % 7 == 6], size, np.uint8)
        assert writer.put("0", chunk)
        data = np.fromfile(f"{ROOT}/0", np.uint8)
        assert codec.decode(data, np.empty(size, np.uint8)).tobytes() == chunk.tobytes()
"""


@pytest.mark.timeout(120)
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is protected in another way")
def test_no_codec_leaves_its_memory(tmp_path):
    """In a process of its own: what lies beside the pixels, and beside the encoded bytes, cannot be touched."""
    script = f"ROOT = {str(tmp_path)!r}\n{FENCED}"
    done = subprocess.run([sys.executable, "-c", script], cwd=Path(__file__).parent, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


# --- shards


@pytest.fixture
def packed(monkeypatch):
    """Count shards whose chunks one compiled call encoded (True), and others."""
    counts = {True: 0, False: 0}
    pack = storing.UnitWriter._pack

    def counting(self, *args):
        spans = pack(self, *args)
        counts[spans is not None] += 1
        return spans

    monkeypatch.setattr(storing.UnitWriter, "_pack", counting)
    return counts


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_shards_are_those_of_zarr(data):
    dtype, codec = data.draw(st.sampled_from(NUMBERS)), data.draw(compressors(3))
    chunk = tuple(data.draw(st.lists(st.sampled_from([1, 2, 3, 8, 30]), min_size=1, max_size=3)))
    shard = tuple(c * data.draw(st.sampled_from([1, 2, 3, 4])) for c in chunk)
    shape = tuple(s + data.draw(st.sampled_from([0, 0, c, s, 1])) for s, c in zip(shard, chunk, strict=True))
    fill = data.draw(st.sampled_from([0, 1]))
    pixels = noise(shape, "uint8", data.draw(st.integers(0, 9))).astype(dtype)
    kind = data.draw(st.sampled_from(["all", "some", "few", "none"]))
    for box in np.ndindex(*(-(-n // c) for n, c in zip(shape, chunk, strict=True))):
        is_fill = {"all": False, "some": sum(box) % 2, "few": sum(box), "none": True}[kind]
        if is_fill:
            pixels[tuple(slice(i * c, (i + 1) * c) for i, c in zip(box, chunk, strict=True))] = fill
    pixels = data.draw(st.sampled_from([pixels, np.asfortranarray(pixels), np.repeat(pixels, 2, axis=0)[::2]]))
    with TemporaryDirectory() as found, TemporaryDirectory() as expected:
        options = {"chunks": chunk, "shards": shard, "fill_value": fill}
        ours, theirs = (array_in(root, shape, dtype, codec, **options) for root in (found, expected))
        theirs[...] = pixels
        Handle(ours).write(everything(ours), pixels)
        assert files(found) == files(expected)


@pytest.mark.parametrize("codec", [[], [BloscCodec()], [ZstdCodec()]], ids=["none", "blosc", "zstd"])
def test_one_call_encodes_a_shard(codec, tmp_path, packed):
    array = array_in(tmp_path, (64, 64), compressors=codec, chunks=(16, 8), shards=(32, 32))
    pixels = noise((64, 64)) | 1
    Handle(array).write(everything(array), pixels)
    assert packed == {True: 4, False: 0}
    np.testing.assert_array_equal(array[...], pixels)


def test_noise_that_grows_when_it_is_encoded(tmp_path, packed):
    array = array_in(tmp_path, (8, 8), compressors=[BloscCodec()], chunks=(1, 1), shards=(8, 8))
    pixels = noise((8, 8)) | 1
    Handle(array).write(everything(array), pixels)
    np.testing.assert_array_equal(array[...], pixels)


def test_shards_in_memory(packed):
    array = array_in(MemoryStore(), (64,), compressors=[BloscCodec()], chunks=(8,), shards=(32,))
    pixels = noise(64) | 1
    Handle(array).write(everything(array), pixels)
    assert packed == {True: 2, False: 0}
    np.testing.assert_array_equal(array[...], pixels)
