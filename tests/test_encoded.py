"""Chunks that a compiled loop reads, decodes and reduces: the same bytes, errors and counts as without it."""

import os
import shutil
import subprocess
import sys
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import dask
import numpy as np
import pytest
import zarr
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from zarr.codecs import BloscCodec, ZstdCodec
from zarr.storage import LocalStore, MemoryStore, ZipStore

import ziggurat as zg
from reference import reference
from ziggurat import encoded, kernels, stages
from ziggurat._codes import DONE, READ
from ziggurat._hot import Performance
from ziggurat.api import _steps
from ziggurat.blocks import Block
from ziggurat.codecs import ChunkCodec, checksum
from ziggurat.config import RetryConfig
from ziggurat.errors import StoreError
from ziggurat.handle import Handle
from ziggurat.testing import CountingStore

pytestmark = pytest.mark.skipif(
    any(encoded._calls(coder) is None for coder in (None, encoded.numcodecs.Blosc, encoded.numcodecs.Zstd)),
    reason="the codecs' C functions are not found here",
)


@pytest.fixture(autouse=True)
def from_the_first_byte_on(monkeypatch):
    """Let small images have what large ones have: compiled loops, several blocks, several levels per stage."""
    monkeypatch.setattr(kernels, "_NUMBA_PAYS_BYTES", -1)
    monkeypatch.setattr(stages, "MIN_BLOCKS", 1)
    monkeypatch.setattr(zg.get_config().dask, "write_block_max_bytes", 512)
    with dask.config.set(scheduler="sync"):
        yield


N, CHUNK = 64, 16
"""Of the plain images below: level 0 has 4 x 4 chunks, or 2 x 2 shards of them; level 1 has 2 x 2."""


def plain(store, codec="blosc", shards=None, version=3, dtype="uint16", fill=0, path="", missing=(), **options):
    """Make two levels; of the finer one, which level 1 nests in, the chunks `missing` hold only fill."""
    if store is not None and not isinstance(store, zarr.abc.store.Store):
        store = LocalStore(store)
    group = zarr.create_group(store, path=path, zarr_format=version)
    options |= {"dtype": dtype, "fill_value": fill, "compressors": (V3 if version == 3 else V2)[codec]}
    options |= {"shards": shards} if shards else {}
    sizes = {"0": N, "1": N // 2}
    arrays = [group.create_array(k, shape=(n, n), chunks=(CHUNK, CHUNK), **options) for k, n in sizes.items()]
    pixels = np.random.default_rng(1).integers(2, 100, (N, N)).astype(dtype)
    for y, x in missing:
        pixels[y * CHUNK : (y + 1) * CHUNK, x * CHUNK : (x + 1) * CHUNK] = fill
    arrays[0][...] = pixels
    return arrays


def build(arrays, method="mean", mode="dask", **options):
    return zg.consolidate(arrays, method=method, mode=mode, **options)


def means(pixels):
    """Return the means of 2 x 2 integers, half to even."""
    sums = pixels.astype("int64").reshape(N // 2, 2, N // 2, 2).sum(axis=(1, 3))
    return np.rint(sums / 4).astype(pixels.dtype)


@contextmanager
def in_python():
    """Let all chunks go the usual way."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("ziggurat.direct.calls_of", lambda codec: None)
        yield


@contextmanager
def watched():
    """Count the chunks that the loop took, and those that Python decoded."""
    counts = {"taken": 0, "decoded": 0}
    go_on, decode = Performance.go_on, ChunkCodec.decode

    def counted_go_on(work, first=0):
        reached = go_on(work, first)
        kind, loop = work.orders[first:reached, :2].T
        counts["taken"] += int(np.sum((kind == READ) & (loop >= 0) & (work.found[first:reached] == DONE)))
        return reached

    def counted_decode(codec, data, room):
        counts["decoded"] += 1
        return decode(codec, data, room)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Performance, "go_on", counted_go_on)
        patched.setattr(ChunkCodec, "decode", counted_decode)
        yield counts


def objects(root):
    """Return the bytes of all files under `root` but for the bookkeeping."""
    files = {str(path.relative_to(root)): path for path in Path(root).rglob("*") if ".ziggurat" not in path.parts}
    return {key: path.read_bytes() for key, path in files.items() if path.is_file()}


# --- one answer

V3 = {
    "none": [],
    "blosc": [BloscCodec(cname="lz4", clevel=5)],
    "blosc-zstd": [BloscCodec(cname="zstd", clevel=1, shuffle="bitshuffle")],
    "zstd": [ZstdCodec(level=1)],
    "two": [BloscCodec(cname="lz4", clevel=1), ZstdCodec(level=1)],
}
V2 = {"none": None, "blosc": {"id": "blosc"}, "zstd": {"id": "zstd"}}

# Methods and dtypes of every compiled kernel; each is compiled once.
KINDS = [
    ("mean", "u1"),
    ("mean", "?"),
    ("linear", "u1"),
    ("mode", "u2"),
    ("median", "u1"),
    ("max", "u1"),
    ("mean", "f4"),
]
KINDS += [
    ("linear", "f4"),
    ("min", "f4"),
    ("mode", "f4"),
    ("mean", "i8"),
    ("nearest", "u1"),
    ("stride", "c8"),
    ("cubic", "u1"),
]


@dataclass(frozen=True)
class Image:
    """All that is needed to make the same image anywhere."""

    shapes: tuple[tuple[int, ...], ...]
    chunk: tuple[int, ...]
    shard: tuple[int, ...] | None
    options: dict[str, Any]
    share: float
    seed: int
    method: str
    nodata: int | None

    def pixels(self):
        """Return pixels, a `share` of whose chunks hold fill alone."""
        rng = np.random.default_rng(self.seed)
        pixels = rng.integers(0, rng.choice([3, 120]), self.shapes[0]).astype(self.options["dtype"])
        for index in np.ndindex(*(-(-n // c) for n, c in zip(self.shapes[0], self.chunk, strict=True))):
            if rng.random() < self.share:
                chunk = tuple(slice(i * c, (i + 1) * c) for i, c in zip(index, self.chunk, strict=True))
                pixels[chunk] = self.options["fill_value"]
        return pixels

    def make(self, store):
        options = {"compressors": (V2 if self.options["zarr_format"] == 2 else V3)[self.options["codec"]]}
        options |= {k: v for k, v in self.options.items() if k not in ("codec", "zarr_format", "index")}
        if self.shard:
            options["shards"] = {"shape": self.shard, "index_location": self.options["index"]}
        group = zarr.create_group(store, zarr_format=self.options["zarr_format"])
        arrays = [
            group.create_array(str(k), shape=shape, chunks=self.chunk, **options) for k, shape in enumerate(self.shapes)
        ]
        arrays[0][...] = self.pixels()
        return arrays

    def build(self, store, mode="dask", **options):
        arrays = self.make(store)
        return arrays, zg.consolidate(arrays, method=self.method, mode=mode, nodata=self.nodata, **options)


@st.composite
def images(draw):
    """Draw an image whose chunks mostly hold whole windows."""
    rarely = st.sampled_from([False] * 7 + [True])
    n_axes = draw(st.integers(1, 5))
    most_factor, most_windows, most_chunks = {1: (4, 8, 6), 2: (4, 4, 3), 3: (3, 2, 3)}.get(n_axes, (2, 2, 2))
    is_odd, factors, chunk, shape = draw(rarely), [], [], []
    for axis in range(n_axes):
        f = draw(st.integers(1, most_factor)) if sum(f > 1 for f in factors) < 3 else 1
        n = draw(st.sampled_from([16, 16, 1])) if f == 1 and axis == n_axes - 1 else draw(st.integers(1, most_windows))
        factors.append(f)
        chunk.append(max(1, n * f + (draw(st.integers(-1, 1)) if is_odd else 0)))
        extra = draw(st.sampled_from([0, 0, -1, 1, 1 - chunk[-1]]))
        shape.append(max(1, draw(st.integers(1, most_chunks)) * chunk[-1] + extra))
    up = st.booleans()
    second = tuple(max(1, -(-n // f) if draw(up) else n // f) for n, f in zip(shape, factors, strict=True))
    third = tuple(max(1, n // 2) for n in second)
    shard = tuple(c * draw(st.integers(1, 3)) for c in chunk) if draw(st.booleans()) else None
    method, dtype = draw(st.sampled_from(KINDS))
    version = 3 if shard else draw(st.sampled_from([2, 3]))
    options = {"dtype": np.dtype(dtype).newbyteorder().str if draw(rarely) else dtype, "zarr_format": version}
    options |= {"fill_value": draw(st.sampled_from([0, 0, 1])), "index": draw(st.sampled_from(["start", "end"]))}
    options["codec"] = draw(st.sampled_from(sorted(V2 if version == 2 else V3)))
    if version == 2:
        options["order"] = "F" if draw(rarely) else "C"
    nodata = 1 if method in ("mean", "mode", "max") and draw(rarely) else None
    share = draw(st.sampled_from([0.0, 0.0, 0.3, 0.9]))
    shapes = (tuple(shape), second, third)[: draw(st.integers(2, 3))]
    return Image(shapes, tuple(chunk), shard, options, share, draw(st.integers(0, 99)), method, nodata)


def counts_of(report):
    """Return what a report counts; of passes that overlap, one may count the requests of another."""
    levels = [(level.n_units, level.bytes_written, level.n_gets, level.n_sets) for level in report.levels]
    n_gets, n_sets = (sum(getattr(stage, name) for stage in report.stages) for name in ("n_gets", "n_sets"))
    return [stage.bytes_read for stage in report.stages], levels, n_gets, n_sets


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    image=images(),
    cap=st.sampled_from([1, 200, 2000, 2**23]),
    scheduler=st.sampled_from(["sync", "threads"]),
    most=st.sampled_from([0, 100, 2**23]),
    mode=st.sampled_from(["dask", "dask", "numpy"]),
)
def test_one_answer(image, cap, scheduler, most, mode):
    with (
        pytest.MonkeyPatch.context() as patched,
        dask.config.set(scheduler=scheduler, num_workers=3),
        TemporaryDirectory() as found,
        TemporaryDirectory() as expected,
    ):
        patched.setattr(zg.get_config().dask, "write_block_max_bytes", cap)
        patched.setattr("ziggurat.direct.SHARD_READ_BYTES", most)
        with watched() as counts:
            arrays, report = image.build(LocalStore(found), mode)
        event(f"taken: {counts['taken'] > 0}")
        with in_python():
            _, usual = image.build(LocalStore(expected), mode)
        assert objects(found) == objects(expected)
        assert counts_of(report) == counts_of(usual)
        steps = _steps(zg.open_pyramid(arrays), image.method, None, image.nodata)
        for source, target, step in zip(arrays, arrays[1:], steps, strict=False):
            right = reference(source[...], step.edges, image.method, image.nodata)
            np.testing.assert_array_equal(target[...], right)


# --- what the loop must leave to others


@pytest.mark.parametrize(("n", "m", "factor"), [(5, 3, 2), (3, 1, 4), (7, 2, 4), (35, 18, 2)])
def test_one_chunk_that_ends_inside_of_the_last_window(n, m, factor, tmp_path):
    def built(where):
        group = zarr.create_group(LocalStore(where))
        arrays = [group.create_array(str(k), shape=(s, s), chunks=(s, s), dtype="uint8") for k, s in enumerate((n, m))]
        arrays[0][...] = 1 + np.arange(n * n).reshape(n, n) % 250
        zg.consolidate(arrays, method="mean", mode="dask", factors=factor)
        return objects(where)

    found = built(tmp_path / "loop")
    with in_python():
        assert found == built(tmp_path / "python")


@pytest.mark.parametrize("options", [{"order": "F"}, {"dtype": ">u2"}, {"codec": "none", "dtype": ">u2"}])
def test_pixels_in_another_order(options, tmp_path):
    arrays = plain(tmp_path, version=2, **options)
    with watched() as counts:
        build(arrays)
    assert counts == {"taken": 0, "decoded": 16}
    np.testing.assert_array_equal(arrays[1][...], means(arrays[0][...]))


@pytest.mark.parametrize("method", ["mean", "median", "max"])
def test_pixels_that_lie_anywhere(method, tmp_path):
    """Behind an index of a shard, numbers of eight bytes lie askew; chunks that overhang are reduced where they are."""
    shapes = [(40, 40), (20, 20)]
    group = zarr.create_group(LocalStore(tmp_path))
    shards = {"shape": (32, 32), "index_location": "start"}
    options = {"chunks": (16, 16), "shards": shards, "dtype": "int64", "compressors": None}
    arrays = [group.create_array(str(k), shape=shape, **options) for k, shape in enumerate(shapes)]
    arrays[0][...] = np.random.default_rng(0).integers(-99, 99, shapes[0])
    (step,) = _steps(zg.open_pyramid(arrays), method, None, None)
    with watched() as counts:
        build(arrays, method)
    assert counts == {"taken": 9, "decoded": 0}
    np.testing.assert_array_equal(arrays[1][...], reference(arrays[0][...], step.edges, method))


def test_nodata(tmp_path):
    arrays = plain(tmp_path, dtype="uint8")
    with watched() as counts:
        build(arrays, nodata=5)
    assert counts == {"taken": 0, "decoded": 16}
    (step,) = _steps(zg.open_pyramid(arrays), "mean", None, 5)
    np.testing.assert_array_equal(arrays[1][...], reference(arrays[0][...], step.edges, "mean", 5))


# --- what the loop takes


SHARDS = (2 * CHUNK, 2 * CHUNK)


@pytest.mark.parametrize("mode", ["dask", "numpy"])
@pytest.mark.parametrize(
    "options",
    [
        *({"codec": codec} for codec in ("none", "blosc", "blosc-zstd", "zstd")),
        *({"codec": codec, "version": 2} for codec in ("none", "blosc", "zstd")),
        *({"codec": codec, "shards": SHARDS} for codec in ("none", "blosc", "zstd")),
        *({"codec": codec, "shards": (N, N)} for codec in ("none", "blosc", "zstd")),
    ],
    ids=str,
)
def test_python_decodes_no_chunk(options, mode, tmp_path):
    arrays = plain(tmp_path, **options)
    with watched() as counts:
        build(arrays, mode=mode)
    assert counts == {"taken": 16, "decoded": 0}
    np.testing.assert_array_equal(arrays[1][...], means(arrays[0][...]))


@pytest.mark.parametrize("most", [0, 600, 1500])
@pytest.mark.parametrize("missing", [(), [(0, 0), (1, 3), (3, 3)]])
def test_shards_that_are_read_by_stretches(most, missing, tmp_path, monkeypatch):
    monkeypatch.setattr("ziggurat.direct.SHARD_READ_BYTES", most)
    arrays = plain(tmp_path, shards=(N, N), missing=missing)
    with watched() as counts:
        build(arrays)
    assert counts == {"taken": 16 - len(missing), "decoded": 0}
    np.testing.assert_array_equal(arrays[1][...], means(arrays[0][...]))


@pytest.mark.parametrize("fill", [0, 7])
@pytest.mark.parametrize("shards", [None, SHARDS, (N, N)])
def test_chunks_that_are_not_stored(fill, shards, tmp_path):
    missing = [(0, 0), (0, 1), (1, 0), (1, 1), (2, 3)]  # a whole shard, and one chunk of another
    arrays = plain(tmp_path / "loop", fill=fill, shards=shards, missing=missing)
    with watched() as counts:
        report = build(arrays)
    assert counts == {"taken": 11, "decoded": 0}
    np.testing.assert_array_equal(arrays[1][...], means(arrays[0][...]))
    with in_python():
        assert counts_of(build(plain(tmp_path / "python", fill=fill, shards=shards, missing=missing))) == counts_of(
            report
        )
    assert objects(tmp_path / "loop") == objects(tmp_path / "python")


STORES = {
    "memory": lambda root: MemoryStore(),
    "counted": lambda root: CountingStore(LocalStore(root)),
    "zip": lambda root: ZipStore(root / "image.zip", mode="w"),
}


@pytest.mark.parametrize("shards", [None, (N, N)])
@pytest.mark.parametrize("name", STORES)
def test_other_stores(name, shards, tmp_path):
    """Of other stores than a plain directory, the loop takes chunks of shards; zip archives need zarr."""

    def built(root):
        root.mkdir()
        store = STORES[name](root)
        arrays = plain(store, shards=shards)
        if name == "counted":
            store.reset()
        report = build(arrays)
        gets = dict(store.gets) if name == "counted" else {}
        found = counts_of(report), gets, arrays[1][...].tobytes()
        store.close()
        return found

    with watched() as counts:
        found = built(tmp_path / "loop")
    assert counts["taken"] == (16 if shards and name != "zip" else 0)
    with in_python():
        assert found == built(tmp_path / "python")


@pytest.mark.parametrize("shards", [None, (N, N)])
def test_a_retry_policy(shards, tmp_path, monkeypatch):
    monkeypatch.setattr(zg.get_config(), "io_retry", RetryConfig(max_retries=2, retry_on=["no such thing"]))
    arrays = plain(tmp_path, shards=shards)
    with watched() as counts:
        report = build(arrays)
    assert counts["taken"] == (16 if shards else 0)
    assert report.stages[0].n_gets == (1 if shards else 16)
    np.testing.assert_array_equal(arrays[1][...], means(arrays[0][...]))


def test_several_axes_and_factors(tmp_path):
    group = zarr.create_group(LocalStore(tmp_path))
    shapes = [(2, 3, 6, 12, 8), (2, 3, 2, 3, 4)]
    arrays = [group.create_array(str(k), shape=s, chunks=(1, 1, 3, 4, 4), dtype="uint8") for k, s in enumerate(shapes)]
    arrays[0][...] = np.random.default_rng(0).integers(1, 100, shapes[0])
    with watched() as counts:
        build(arrays)
    assert counts == {"taken": 2 * 3 * 2 * 3 * 2, "decoded": 0}
    (step,) = _steps(zg.open_pyramid(arrays), "mean", None, None)
    np.testing.assert_array_equal(arrays[1][...], reference(arrays[0][...], step.edges, "mean"))


@pytest.mark.parametrize("shards", [None, SHARDS])
def test_regions(shards, tmp_path):
    found = []
    for name, patched in (("loop", nullcontext()), ("python", in_python())):
        with patched:
            arrays = plain(tmp_path / name, shards=shards)
            build(arrays)
            arrays[0][3:9, 20:50] = 1
            report = build(arrays, regions=[(slice(3, 9), slice(20, 50))])
            found.append((objects(tmp_path / name), counts_of(report)))
    assert found[0] == found[1]


def test_without_the_codecs_functions(tmp_path, monkeypatch):
    def refuse(name):
        raise OSError("no such library")

    encoded._calls.cache_clear()
    try:
        with monkeypatch.context() as patched:
            patched.setattr("ctypes.CDLL", refuse)
            arrays = plain(tmp_path)
            with watched() as counts:
                build(arrays)
    finally:
        encoded._calls.cache_clear()
    assert counts == {"taken": 0, "decoded": 16}
    np.testing.assert_array_equal(arrays[1][...], means(arrays[0][...]))


WITHOUT_NUMBA = """
import sys, zarr, ziggurat as zg
from ziggurat import kernels
kernels._NUMBA_PAYS_BYTES = -1
group = zarr.open_group(sys.argv[1])
zg.consolidate([group["0"], group["1"]], method="mean", mode="dask")
"""


def test_where_numba_is_told_not_to_compile(tmp_path):
    arrays = plain(tmp_path)
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    command = [sys.executable, "-c", WITHOUT_NUMBA, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    np.testing.assert_array_equal(arrays[1][...], means(arrays[0][...]))


NAMES = [
    "a b",
    "100%41",
    "a#b?c=d&e",
    "Größe \N{GREEK SMALL LETTER ALPHA} \N{CJK UNIFIED IDEOGRAPH-8C61}",
    "[a]*",
    "x" * 200,
]


@pytest.mark.parametrize("name", [*NAMES, "/".join(["y" * 100] * 12), "surrogate \udcff"])
def test_any_name(name, tmp_path):
    root = tmp_path / name
    try:
        root.mkdir(parents=True)
    except (OSError, UnicodeEncodeError):
        pytest.skip("the file system has no such name")
    arrays = plain(root)
    with watched() as counts:
        build(arrays)
    assert counts == {"taken": 16, "decoded": 0}
    np.testing.assert_array_equal(arrays[1][...], means(arrays[0][...]))


def test_a_relative_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with watched() as counts:
        build(plain(Path("image"), path="in it"))
    assert counts == {"taken": 16, "decoded": 0}


# --- what is not as it should be


def whole(pixels, codec):
    """Return the bytes of a chunk of `pixels`."""
    array = zarr.create_array(MemoryStore(), shape=pixels.shape, dtype=pixels.dtype, compressors=V3[codec])
    array[...] = pixels
    return array.store._store_dict["c/0/0"].to_bytes()


def word(place, value):
    return lambda data: data[:place] + value.to_bytes(4, "little") + data[place + 4 :]


def flags(place, value):
    return lambda data: data[:place] + bytes([value]) + data[place + 1 :]


OTHERS = {
    "uint8": np.ones((CHUNK, CHUNK), "uint8"),
    "uint32": np.ones((CHUNK, CHUNK), "uint32"),
    "less": np.ones((CHUNK, CHUNK - 1), "uint16"),
    "more": np.ones((CHUNK, CHUNK + 1), "uint16"),
    "much more": np.ones((64 * CHUNK, CHUNK), "uint16"),
}

DAMAGES = {
    **{f"{n} bytes": lambda data, n=n: data[:n] for n in (0, 1, 4, 15, 16, 17, 20)},
    "half": lambda data: data[: len(data) // 2],
    "one less": lambda data: data[:-1],
    "one more": lambda data: data + b"x",
    "twice": lambda data: data + data,
    "longer than any": lambda data: data + bytes(2**16),
    "garbage": lambda data: np.random.default_rng(0).bytes(len(data)),
    "garbage after the header": lambda data: data[:16] + np.random.default_rng(0).bytes(len(data) - 16),
    "zeros after the header": lambda data: data[:16] + bytes(len(data) - 16),
}

LIES = {
    **{f"{n} bytes of pixels": word(4, n) for n in (0, 1, 511, 513, 2**31 - 1, 2**31, 2**32 - 1)},
    **{f"blocks of {n}": word(8, n) for n in (0, 1, 511, 513, 2**31 - 1, 2**31, 2**32 - 1)},
    **{f"{n} bytes in all": word(12, n) for n in (0, 15, 16, 100, 2**31, 2**32 - 1)},
    "cut short, and says so": lambda data: word(12, 40)(data[:40]),
    **{f"pixels of {n} bytes": flags(3, n) for n in (0, 1, 3, 255)},
    **{f"flags {n}": flags(2, n) for n in (0, 2, 4, 0x10, 0x20, 0xE0, 0xFF)},
    "version 0": flags(0, 0),
    "version 255": flags(0, 255),
}


def attempt(root):
    """Build an image; return what was raised, or None, and what is stored then."""
    group = zarr.open_group(LocalStore(root), mode="r+")
    try:
        report = build([group["0"], group["1"]])
    except Exception as error:
        return (type(error), str(error).replace(str(root), ""), error.__notes__[0]), None, objects(root)
    return None, counts_of(report), objects(root)


@cache
def made(codec, shards=None):
    """Make a plain image; return the bytes of its files."""
    with TemporaryDirectory() as root:
        plain(root, codec, shards)
        return objects(root)


def agree(damage, root, codec, shards=None):
    """Let `damage` change two equal images; assert that both ways agree on what they hold, and return that."""
    for name in ("loop", "python"):
        for key, data in made(codec, shards).items():
            path = root / name / key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        damage(root / name)
    found = attempt(root / "loop")
    with in_python():
        assert found == attempt(root / "python")
    return found


@pytest.mark.parametrize(
    ("codec", "name"),
    [(codec, name) for codec in ("none", "blosc", "zstd") for name in (*OTHERS, *DAMAGES)]
    + [("blosc", name) for name in LIES],
)
def test_damaged_files(codec, name, tmp_path):
    def damage(root):
        chunk = root / "0" / "c" / "1" / "2"
        change = (DAMAGES | LIES).get(name)
        chunk.write_bytes(change(chunk.read_bytes()) if change else whole(OTHERS[name], codec))

    error, _, stored = agree(damage, tmp_path, codec)
    if error:
        assert error[2] == "while reading [0:32, 32:64] of level '0'"
        assert "1/c/0/1" not in stored
        assert error[0] is StoreError or codec == "zstd" or name in LIES or name.startswith(("garbage", "zeros"))
    else:
        # Bytes that hold the right number of pixels are pixels; of other lies blosc knows nothing.
        assert name.startswith(("garbage", "zeros", "blocks of", "pixels of", "flags"))


@pytest.mark.parametrize("codec", ["none", "blosc", "zstd"])
def test_a_truncated_chunk_is_a_typed_error(codec, tmp_path):
    arrays = plain(tmp_path, codec)
    build(arrays)
    before = objects(tmp_path / "1")
    chunk = tmp_path / "0" / "c" / "1" / "2"
    chunk.write_bytes(chunk.read_bytes()[:-3])
    for run in (build, partial(zg.verify, mode="dask"), partial(zg.verify, mode="dask", repair=True)):
        with pytest.raises(StoreError if codec != "zstd" else RuntimeError) as caught:
            run(arrays, method="mean")
        assert "while reading [0:32, 32:64] of level '0'" in caught.value.__notes__
        assert objects(tmp_path / "1") == before


def test_a_torn_target_is_repaired(tmp_path):
    arrays = plain(tmp_path)
    build(arrays)
    right = objects(tmp_path / "1")
    torn = tmp_path / "1" / "c" / "1" / "0"
    torn.write_bytes(torn.read_bytes()[:-3])
    assert zg.verify(arrays, method="mean", mode="dask", repair=True).levels[0].stale == ((1, 0),)
    assert objects(tmp_path / "1") == right


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    start=st.sampled_from([None, 0, 1, 100, 10**6, 2**31, 2**63 - 1, 2**63, 2**64 - 2]),
    n=st.sampled_from([None, 0, 1, 17, 10**6, 2**31, 2**63, 2**64 - 2]),
    codec=st.sampled_from(["none", "blosc", "zstd"]),
    most=st.sampled_from([0, 2**23]),
)
def test_an_index_that_lies(start, n, codec, most):
    def damage(root):
        shard = root / "0" / "c" / "0" / "1"
        data = shard.read_bytes()
        index = np.frombuffer(data[-68:-4], "<u8").reshape(4, 2).copy()
        index[1] = index[1, 0] if start is None else start, index[1, 1] if n is None else n
        packed = index.tobytes()
        shard.write_bytes(data[:-68] + packed + checksum(np.frombuffer(packed, np.uint8)))

    with TemporaryDirectory() as root, pytest.MonkeyPatch.context() as patched:
        patched.setattr("ziggurat.direct.SHARD_READ_BYTES", most)
        error, _, stored = agree(damage, Path(root), codec, SHARDS)
    assert not error or "1/c/0/1" not in stored


@pytest.mark.parametrize("n", [0, 1, 67, 68, 69, -69, -68, -4, -1])
def test_truncated_shards(n, tmp_path):
    def damage(root):
        shard = root / "0" / "c" / "0" / "1"
        shard.write_bytes(shard.read_bytes()[:n])

    error, _, stored = agree(damage, tmp_path, "blosc", SHARDS)
    assert error[0] is StoreError and "1/c/0/1" not in stored


def link(target):
    def make(chunk):
        (chunk.parent.parent / "elsewhere").write_bytes(chunk.read_bytes())
        chunk.unlink()
        chunk.symlink_to(target)

    return make


def directory(chunk):
    chunk.unlink()
    chunk.mkdir()


def parent_is_a_file(chunk):
    shutil.rmtree(chunk.parent)
    chunk.parent.write_bytes(b"")


ODD = {
    "directory": directory,
    "under a file": parent_is_a_file,
    "link": link("../elsewhere"),
    "link to nothing": link("nothing"),
    "link to itself": link("2"),
    "link to a directory": link("."),
    "device without bytes": link(os.devnull),
    "unreadable": lambda chunk: chunk.chmod(0),
}


def read(root):
    """Reduce all of level 0, without the bookkeeping, which looks at files too; return what came of it."""
    group = zarr.open_group(LocalStore(root), mode="r")
    (step,) = _steps(zg.open_pyramid([group["0"], group["1"]]), "mean", None, None)
    block = Block(step, ((0, N // 2), (0, N // 2)), np.zeros((N // 2, N // 2), "uint16"))
    try:
        n_bytes = block.read(handle := Handle(group["0"]))
    except Exception as error:
        return type(error), str(error).replace(str(root), "")
    return n_bytes, handle.requests.take(), block.pixels.tolist()


@pytest.mark.parametrize("name", ODD)
def test_what_is_no_file(name, tmp_path):
    for root in (tmp_path / "loop", tmp_path / "python"):
        plain(root)
        ODD[name](root / "0" / "c" / "1" / "2")
    found = read(tmp_path / "loop")
    with in_python():
        assert found == read(tmp_path / "python")


@pytest.mark.timeout(60)
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names")
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="open files are not seen here")
def test_no_file_stays_open(tmp_path):
    arrays = plain(tmp_path)
    chunks = tmp_path / "0" / "c"
    (chunks / "0" / "0").unlink()
    directory(chunks / "0" / "1")
    (chunks / "2" / "2").write_bytes(bytes(2**16))
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with pytest.raises(StoreError):
            build(arrays)
    assert len(os.listdir("/proc/self/fd")) == before


def test_files_that_are_longer_than_their_pixels(tmp_path):
    """Zstd frames may be of any length: here, ones that the loop has no memory for."""
    arrays = plain(tmp_path, "zstd")
    chunk = tmp_path / "0" / "c" / "1" / "2"
    skipped = b"\x50\x2a\x4d\x18" + (2**16).to_bytes(4, "little") + bytes(2**16)
    chunk.write_bytes(skipped + chunk.read_bytes())
    with watched() as counts:
        build(arrays)
    assert counts == {"taken": 15, "decoded": 1}
    np.testing.assert_array_equal(arrays[1][...], means(arrays[0][...]))


FRAME = b"\x28\xb5\x2f\xfd\x00\x00"  # of zstd, without the size of what it holds; one block follows, as it is


@pytest.mark.parametrize("n", [0, 1, 511, 512, 513, 600])
@pytest.mark.parametrize("n_frames", [1, 2])
def test_zstd_frames_that_do_not_say_their_size(n, n_frames, tmp_path):
    pixels = np.arange(n, dtype="uint8").tobytes() if n < 256 else np.resize(np.arange(256, dtype="uint8"), n).tobytes()
    parts = [pixels] if n_frames == 1 else [pixels[:100], pixels[100:]]
    data = b"".join(FRAME + (len(part) << 3 | 1).to_bytes(3, "little") + part for part in parts)

    def damage(root):
        (root / "0" / "c" / "1" / "2").write_bytes(data)

    error, _, _ = agree(damage, tmp_path, "zstd")
    assert (error is None) == (n == 512)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is protected in another way")
def test_random_bytes_touch_no_memory_but_their_own():
    """In a process of its own, which compiles once: what lies beside bytes, and beside pixels, cannot be touched."""
    script, kinds = Path(__file__).with_name("guarded.py"), ["blosc", "zstd", "none", "blocks"]
    done = subprocess.run([sys.executable, script, "1500", *kinds], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    found = {kind: (int(n), int(m)) for kind, n, m in map(str.split, done.stdout.splitlines())}
    assert list(found) == kinds
    assert all(n_taken > 100 and n_refused > 100 for n_taken, n_refused in found.values()), found


# --- parts of chunks


def large(root, pixels, codec):
    """Make one chunk of several blocks, and the level above it, of sixteen."""
    n = pixels.shape
    half = tuple(-(-m // 2) for m in n)
    chunks = [n, tuple(max(1, m // 4) for m in half)]
    pairs = enumerate(zip((n, half), chunks, strict=True))
    options = {"dtype": pixels.dtype, "compressors": codec, "fill_value": 0}
    levels = [zarr.create_array(LocalStore(root / str(k)), shape=s, chunks=c, **options) for k, (s, c) in pairs]
    levels[0][...] = pixels
    return levels


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_parts_of_a_chunk_are_decoded_without_the_rest(data, tmp_path_factory):
    shape = data.draw(st.sampled_from([(1024, 512), (1024, 520), (64, 128, 64)]))
    cname = data.draw(st.sampled_from(["lz4", "zstd", "blosclz", None]))
    shuffle = data.draw(st.sampled_from(["noshuffle", "shuffle", "bitshuffle"]))
    blocksize = data.draw(st.sampled_from([0, 2**15, 10_001]))
    codec = [BloscCodec(cname=cname, shuffle=shuffle, blocksize=blocksize)] if cname else []
    method = data.draw(st.sampled_from(["mean", "max", "mode", "linear"]))
    levels = large(tmp_path_factory.mktemp("a"), np.random.default_rng(0).integers(0, 99, shape).astype("u2"), codec)
    build(levels, method)
    region = []
    for n in shape:
        start = data.draw(st.integers(0, n - 1))
        region.append((start, min(n, start + data.draw(st.sampled_from([1, 9, 100])))))
    place = tuple(slice(*ab) for ab in region)
    levels[0][place] = levels[0][place] // 2 + 1
    build(levels, method, regions=[tuple(region)])
    found = levels[1][...]
    with in_python():
        build(levels, method)
    np.testing.assert_array_equal(found, levels[1][...])


def test_blocks_that_are_not_wanted_are_not_read(tmp_path):
    """The last ones are damaged here, which nobody finds out."""
    levels = large(
        tmp_path, np.random.default_rng(0).integers(0, 99, (1024, 512)).astype("u2"), BloscCodec(cname="lz4")
    )
    build(levels)
    right = levels[1][...]
    levels[1][...] = 0
    file = tmp_path / "0" / "c" / "0" / "0"
    data = file.read_bytes()
    file.write_bytes(data[:-100_000] + bytes(100_000))
    with watched() as counts:
        build(levels, regions=[((0, 64), (0, 64))])
    assert counts == {"taken": 1, "decoded": 0}
    np.testing.assert_array_equal(levels[1][:32, :32], right[:32, :32])
    with pytest.raises(RuntimeError, match="blosc"):
        build(levels)
