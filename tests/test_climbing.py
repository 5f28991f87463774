"""Trees of blocks that compiled code builds by orders: the same bytes and counts as block by block in Python."""

import shutil
from dataclasses import dataclass
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any

import dask
import numpy as np
import pytest
import zarr
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from zarr.storage import LocalStore

import ziggurat as zg
from climbs import CODECS, counts_of, in_python, objects, watched
from ziggurat import encoded, kernels, stages
from ziggurat.climbing import _Climb
from ziggurat.errors import StoreError

pytestmark = pytest.mark.skipif(
    any(encoded._calls(coder) is None for coder in (None, encoded.numcodecs.Blosc, encoded.numcodecs.Zstd)),
    reason="the codecs' C functions are not found here",
)

KINDS = [("mean", "u1"), ("mode", "u2"), ("max", "u1"), ("mean", "f4"), ("mean", "?"), ("nearest", "u1")]
"""Methods and dtypes: each is compiled once."""


@pytest.fixture(autouse=True)
def from_the_first_byte_on(monkeypatch):
    """Let small images have what large ones have: compiled loops, several tasks, several levels per stage."""
    monkeypatch.setattr(kernels, "_NUMBA_PAYS_BYTES", -1)
    monkeypatch.setattr(stages, "MIN_BLOCKS", 1)
    monkeypatch.setattr(stages, "ONE_TASK_BYTES", 0)
    monkeypatch.setattr(zg.get_config().dask, "write_block_max_bytes", 512)
    with dask.config.set(scheduler="sync"):
        yield


# --- any image


@dataclass(frozen=True)
class Image:
    """All that is needed to make the same image anywhere."""

    shapes: tuple[tuple[int, ...], ...]
    chunks: tuple[tuple[int, ...], ...]
    codecs: tuple[str, ...]
    dtype: str
    fill: Any
    share: float
    seed: int

    def make(self, root):
        group = zarr.create_group(LocalStore(root))
        options = {"dtype": self.dtype, "fill_value": self.fill}
        arrays = [
            group.create_array(str(k), shape=shape, chunks=chunk, compressors=CODECS[codec], **options)
            for k, (shape, chunk, codec) in enumerate(zip(self.shapes, self.chunks, self.codecs, strict=True))
        ]
        rng = np.random.default_rng(self.seed)
        pixels = rng.integers(0, rng.choice([2, 120]), self.shapes[0]).astype(self.dtype)
        # Boxes of fill leave some chunks, and some units of coarser levels, without any other pixel.
        for _ in range(int(self.share * 8)):
            box = tuple(
                slice(a, a + 1 + n // 2) for a, n in zip(rng.integers(0, self.shapes[0]), pixels.shape, strict=True)
            )
            pixels[box] = self.fill
        arrays[0][...] = pixels
        return arrays


@st.composite
def images(draw):
    """Draw an image most of whose levels nest; sizes are odd and even, floors and ceilings."""
    n_axes, n_levels = draw(st.integers(1, 4)), draw(st.integers(2, 4))
    most = {1: 600, 2: 64, 3: 16, 4: 8}[n_axes]
    shapes, chunks = [], []
    axes = []
    for _ in range(n_axes):
        factor = draw(st.sampled_from([2, 2, 2, 1, 3]))
        chunk = factor * draw(st.sampled_from([2, 4]))
        whole = st.integers(1, max(1, most // chunk)).map(lambda n, c=chunk: n * c)
        sizes = [draw(st.one_of(st.integers(1, most), whole, st.just(max(1, most // chunk) * chunk)))]
        up = draw(st.booleans())
        for _ in range(n_levels - 1):
            sizes.append(max(1, -(-sizes[-1] // factor) if up else sizes[-1] // factor))
        axes.append((sizes, [chunk, *(draw(st.sampled_from([chunk, chunk, chunk // factor])) for _ in sizes[1:])]))
    shapes = tuple(zip(*(sizes for sizes, _ in axes), strict=True))
    chunks = tuple(zip(*(sizes for _, sizes in axes), strict=True))
    method, dtype = draw(st.sampled_from(KINDS))
    codecs = draw(st.lists(st.sampled_from(sorted(CODECS)), min_size=n_levels, max_size=n_levels))
    fill = draw(st.sampled_from({"?": [False, True], "f4": [0.0, -0.0, 1.0]}.get(dtype, [0, 1])))
    image = Image(
        shapes, chunks, tuple(codecs), dtype, fill, draw(st.sampled_from([0, 0, 0.2, 0.9])), draw(st.integers(0, 99))
    )
    return image, method


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    drawn=images(),
    cap=st.sampled_from([1, 60, 300, 2000]),
    ordered=st.sampled_from([1, 300, 2**25, 2**25]),
    most_trees=st.sampled_from([1, 64, 64]),
    n_workers=st.sampled_from([1, 3]),
    region=st.one_of(st.none(), st.tuples(st.floats(0, 1), st.floats(0, 1))),
)
def test_one_answer(drawn, cap, ordered, most_trees, n_workers, region):
    image, method = drawn

    def built(root):
        arrays = image.make(root)
        regions = None
        if region is not None:
            sides = [sorted(int(share * (n - 1)) for share in region) for n in image.shapes[0]]
            regions = [tuple(slice(start, stop + 1) for start, stop in sides)]
        return counts_of(zg.consolidate(arrays, method=method, mode="dask", regions=regions)), objects(root)

    with (
        pytest.MonkeyPatch.context() as patched,
        dask.config.set(scheduler="threads" if n_workers > 1 else "sync", num_workers=n_workers),
        TemporaryDirectory() as found,
        TemporaryDirectory() as expected,
    ):
        patched.setattr(zg.get_config().dask, "write_block_max_bytes", cap)
        patched.setattr("ziggurat.climbing.ORDERED_BYTES", ordered)
        patched.setattr("ziggurat.orders._MOST_TREES", most_trees)
        with watched() as counts:
            results = built(found)
        for name, n in counts.items():
            event(f"{name}: {n > 0}")
        with in_python():
            assert results == built(expected)


# --- in the middle of a tree

N, CHUNK = 256, 16
"""Of the images below: three levels of 16 x 16, 8 x 8 and 4 x 4 chunks; each of the last is a tree of its own.

Those that end where the array ends are of three more kinds: 12 trees follow the orders of others.
"""


def plain(root, missing=(), codec="blosc", n=N, dtype="uint16", fill=0, pixels=None, **options):
    """Make three levels; of the finest, `missing` chunks hold only fill."""
    group = zarr.create_group(LocalStore(root))
    options |= {"chunks": (CHUNK, CHUNK), "dtype": dtype, "fill_value": fill, "compressors": CODECS[codec]}
    arrays = [group.create_array(str(k), shape=(-(-n // 2**k),) * 2, **options) for k in range(3)]
    if pixels is None:
        pixels = np.random.default_rng(1).integers(2, 100, (n, n)).astype(dtype)
    for y, x in missing:
        pixels[y * CHUNK : (y + 1) * CHUNK, x * CHUNK : (x + 1) * CHUNK] = fill
    arrays[0][...] = pixels
    return arrays


def build(arrays, method="mean", **options):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(zg.get_config().dask, "write_block_max_bytes", 2048)
        return zg.consolidate(arrays, method=method, mode="dask", **options)


def check(tmp_path, make, n_instead, **options):
    """Check that what `make` makes is built as in Python, which does so much of it instead; return the counts."""
    arrays = make(tmp_path / "orders")
    with watched() as counts:
        report = build(arrays, **options)
    with in_python():
        assert counts_of(build(make(tmp_path / "python"), **options)) == counts_of(report)
    assert objects(tmp_path / "orders") == objects(tmp_path / "python")
    assert counts["instead"] == n_instead
    return counts


def test_trees_follow_the_orders_of_the_first(tmp_path):
    assert check(tmp_path, plain, 0) == {"parts": 16, "followed": 12, "kept": 4, "instead": 0}


@pytest.mark.parametrize("codec", CODECS)
def test_trees_that_are_cut(codec, tmp_path, monkeypatch):
    """The first part of each only reads: there is nothing yet that is stored."""
    monkeypatch.setattr("ziggurat.climbing.ORDERED_BYTES", 1)
    counts = check(tmp_path, partial(plain, codec=codec), 0)
    assert counts == {"parts": 256, "followed": 0, "kept": 0, "instead": 0}


def test_a_chunk_that_is_not_stored(tmp_path):
    assert check(tmp_path, partial(plain, missing=[(1, 1), (6, 7)]), 2)["followed"] == 12


@pytest.mark.parametrize("fill", [0, 7])
def test_units_of_fill(fill, tmp_path):
    missing = [(2, 2), (2, 3), (3, 2), (3, 3)]
    check(tmp_path, partial(plain, missing=missing, fill=fill), 4 + 1)


def test_units_that_reach_beyond_the_array(tmp_path):
    """Nor does a loop take the chunks in which windows are short; of the last level, units are whole."""
    assert check(tmp_path, partial(plain, n=N - 3), 31 + 15)["parts"] == 16


def test_units_that_reach_beyond_the_array_while_windows_are_whole(tmp_path):
    assert check(tmp_path, partial(plain, n=N - 2), 15)["parts"] == 16


@pytest.mark.parametrize("codec", ["blosc", "zstd", "none"])
def test_a_damaged_chunk(codec, tmp_path):
    arrays = plain(tmp_path, codec=codec)
    path = tmp_path / "0" / "c" / "1" / "1"
    path.write_bytes(path.read_bytes()[:20])
    with watched() as counts, pytest.raises((StoreError, RuntimeError)) as caught:
        build(arrays)
    assert counts["instead"] == 1
    assert "while reading [0:32, 0:32] of level '0'" in caught.value.__notes__
    assert not list(tmp_path.rglob("*.partial"))
    assert not (tmp_path / "1" / "c" / "0" / "0").exists()


def test_a_unit_that_cannot_be_stored(tmp_path):
    arrays = plain(tmp_path)
    (tmp_path / "1" / "c" / "1" / "1").mkdir(parents=True)
    with watched() as counts, pytest.raises(OSError, match="irectory"):
        build(arrays)
    assert counts["instead"] == 1
    assert not list(tmp_path.rglob("*.partial"))


def test_directories_that_vanish(tmp_path, monkeypatch):
    """What is stored after that is stored all the same."""
    arrays = plain(tmp_path)
    follow = _Climb._follow

    def vanishing(walk, *given):
        shutil.rmtree(tmp_path / "1" / "c", ignore_errors=True)
        follow(walk, *given)

    monkeypatch.setattr(_Climb, "_follow", vanishing)
    build(arrays)
    assert len(list((tmp_path / "1").rglob("c/*/*"))) == 4  # of the last tree
    assert len(list((tmp_path / "2").rglob("c/*/*"))) == 16


@pytest.mark.parametrize(("fill", "pixel"), [(0j, complex(0, -0.0)), (1 + 0j, complex(1, -0.0))])
def test_complex_pixels_that_are_fill_by_value(fill, pixel, tmp_path):
    """So zarr compares them: it stores no chunk of them, whose bits are others."""
    pixels = np.full((N, N), pixel, "c8")
    pixels[::2, ::2] = 5  # which are not sampled: chunks of the finest level are stored
    check(tmp_path, partial(plain, dtype="complex64", fill=fill, pixels=pixels), 0, method="nearest")


def test_missing_chunks_of_swapped_pixels_are_not_read(tmp_path):
    """Nor decoded, nor made: one pixel stands for all of them."""
    group = zarr.create_group(LocalStore(tmp_path))
    arrays = [group.create_array(str(k), shape=(n, n), chunks=(4, 4), dtype=">u2") for k, n in enumerate((16, 8))]
    arrays[0][:4] = 1
    with in_python():
        report = build(arrays)
    assert report.stages[0].bytes_read == 4 * 16 * 2


@pytest.mark.parametrize("scheduler", ["sync", "threads"])
def test_a_stop_between_two_trees(scheduler, tmp_path, monkeypatch):
    arrays, calls = plain(tmp_path / "orders"), []
    follow = _Climb._follow

    def stopped(walk, *given):
        calls.append(given)
        if len(calls) == 2:
            raise KeyboardInterrupt
        follow(walk, *given)

    with monkeypatch.context() as patched, dask.config.set(scheduler=scheduler, num_workers=1):
        patched.setattr(_Climb, "_follow", stopped)
        with pytest.raises(KeyboardInterrupt):
            build(arrays)
    assert len(calls) == 2
    with in_python():
        build(plain(tmp_path / "python"))
    assert build(arrays, resume=True).n_units == 15 * 5
    assert objects(tmp_path / "orders") == objects(tmp_path / "python")
