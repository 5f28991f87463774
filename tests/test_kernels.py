"""Kernels against the plain reference, to the byte; that cutting, layout and path do not matter; known values."""

import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reference import reference
from ziggurat import kernels
from ziggurat.boxes import cut, of_shape, slices
from ziggurat.errors import DTypeError, MethodError
from ziggurat.geometry import Stretch, Window, halo, window

INTEGERS = ["?", "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8"]
FLOATS = ["f2", "f4", "f8"]
COMPLEX = ["c8", "c16"]
SPECIAL = [np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, 5e-324, 6e4]


@st.composite
def an_edge(draw, size=14, most=5):
    n = draw(st.integers(1, size))
    if draw(st.integers(0, 2)) == 0:
        return Stretch(n, draw(st.integers(1, n)))
    f = draw(st.integers(1, min(n, most)))
    return Window(n, draw(st.sampled_from(sorted({max(1, n // f), -(-n // f)}))), f)


@st.composite
def a_task(draw, dtypes, methods, max_axes=3):
    """Edges, a source of them, a method and nodata: small ranges for ties, whole ranges and specials for overflow."""
    edges = tuple(draw(st.lists(an_edge(), min_size=1, max_size=max_axes)))
    dtype, method = np.dtype(draw(st.sampled_from(dtypes))), draw(st.sampled_from(methods))
    source = _pixels(
        np.random.default_rng(draw(st.integers(0, 2**32))), [e.n for e in edges], dtype, draw(st.integers(0, 2))
    )
    nodata = None
    if method in ("mean", "median", "mode", "min", "max") and draw(st.booleans()):
        nodata = draw(st.sampled_from([source.flat[0].item(), *([np.nan] if dtype.kind in "fc" else [1])]))
    return edges, _laid_out(source, draw(st.sampled_from("CFSB"))), method, nodata


def _pixels(rng, shape, dtype, spread):
    if dtype.kind == "c":
        real = np.dtype(f"f{dtype.itemsize // 2}")
        return (_pixels(rng, shape, real, spread) + 1j * _pixels(rng, shape, np.dtype("f4"), 0)).astype(dtype)
    if dtype.kind == "f":
        usual = rng.normal(0, 100, shape) if spread else rng.integers(-2, 3, shape)
        return np.where(rng.random(shape) < (0, 0, 0.1)[spread], rng.choice(SPECIAL, shape), usual).astype(dtype)
    if dtype.kind == "b":
        return rng.random(shape) < 0.5
    info = np.iinfo(dtype)
    ranges = [(0, 4), (info.min, info.max), (info.max - 3, info.max)][spread]
    return rng.integers(*ranges, shape, dtype=dtype, endpoint=True)


def _laid_out(source, layout):
    """Lay the same pixels out in C or F order, strided and backwards, or byte-swapped."""
    if layout == "S":
        return np.repeat(source, 2, axis=-1)[..., ::-2][..., ::-1]
    return np.asarray(source, order=layout) if layout in "CF" else source.astype(source.dtype.newbyteorder(">"))


def reduced(source, edges, method, nodata=None, step=None):
    """Compute the whole target, box by box, each from no more than its window."""
    target = np.zeros([e.m for e in edges], dtype=source.dtype)
    for box in cut(of_shape(target.shape), step or target.shape):
        needed = window(edges, box, [halo(method, e) for e in edges])
        pixels = source[slices(needed)].copy()
        kernels.reduce(pixels, [a for a, _ in needed], edges, box, target[slices(box)], method, nodata)
    return target


def same(one, other):
    __tracebackhide__ = True
    assert one.dtype == other.dtype
    assert one.tobytes() == other.tobytes(), f"\n{one}\n{other}"


@settings(max_examples=400, deadline=None)
@given(task=a_task(INTEGERS + FLOATS, list(kernels.METHODS)))
def test_equals_the_reference_to_the_byte(task):
    edges, source, method, nodata = task
    same(reduced(source, edges, method, nodata), reference(source, edges, method, nodata))


@settings(max_examples=50, deadline=None)
@given(task=a_task(COMPLEX, ["mean", "linear", "nearest", "stride"]))
def test_complex_equals_the_reference(task):
    edges, source, method, nodata = task
    same(reduced(source, edges, method, nodata), reference(source, edges, method, nodata))


@settings(max_examples=100, deadline=None)
@given(task=a_task(INTEGERS + FLOATS, list(kernels.METHODS)), step=st.lists(st.integers(1, 6), min_size=3, max_size=3))
def test_does_not_depend_on_how_the_target_is_cut(task, step):
    edges, source, method, nodata = task
    same(reduced(source, edges, method, nodata, step[: len(edges)]), reduced(source, edges, method, nodata))


@pytest.mark.parametrize("method", ["cubic", "gaussian", "mean"])
def test_does_not_depend_on_the_pieces_that_numpy_works_on(method, monkeypatch):
    source = np.random.default_rng(3).normal(size=(23, 40))
    edges = (Stretch(23, 9), Window(40, 20, 2))
    whole = reduced(source, edges, method)
    monkeypatch.setattr(kernels, "_PIECE_PIXELS", 50)
    same(reduced(source, edges, method), whole)


# Few dtypes: each is compiled once per machine, and together they pass through every loop.
HOT = {
    "mean": ["?", "u1", "i2", "u4", "i8", "u8", "f4", "f8"],
    "linear": ["u1", "i2", "u4", "f4", "f8"],
    "min": ["i2", "f4"],
    "max": ["i2", "f4"],
    "median": ["i2", "u1", "f2"],
    "mode": ["i2", "u1", "f2", "?"],
}


@pytest.mark.parametrize("method", HOT)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_compiled_loops_equal_numpy(method, data):
    edges, source, _, _ = data.draw(a_task(HOT[method], [method], max_axes=4))
    same(*both_paths(source, edges, method))


@pytest.mark.parametrize("method", HOT)
def test_compiled_loops_equal_numpy_on_long_rows(method):
    for dtype in HOT[method]:
        source = _pixels(np.random.default_rng(5), (3, 4, 5, 1203), np.dtype(dtype), 0)
        edges = (Window(3, 3, 1), Window(4, 2, 2), Window(5, 3, 2), Window(1203, 602, 2))
        for pixels, axes in ((source, edges), (source.transpose(1, 2, 3, 0), (*edges[1:], edges[0]))):
            same(*both_paths(pixels, axes, method))


@pytest.mark.parametrize("method", ["nearest", "stride"])
@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_samples_are_the_same_with_the_loops_loaded(method, data):
    """Stretched axes have no whole factor: the loops are not for them."""
    edges, source, _, _ = data.draw(a_task(["u1", "u4", "f4"], [method], max_axes=3))
    same(*both_paths(source, edges, method))


def both_paths(source, edges, method):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "_NUMBA_PAYS_BYTES", 2**62)
        plain = reduced(source, edges, method)
        patch.setattr(kernels, "_NUMBA_PAYS_BYTES", -1)
        return reduced(source, edges, method), plain


@pytest.mark.parametrize("method", kernels.METHODS)
@pytest.mark.parametrize("dtype", [">u2", "u8", "f2"])
@pytest.mark.parametrize("edges", [(Window(300, 150, 2), Window(401, 201, 2)), (Stretch(300, 299), Stretch(401, 180))])
def test_scratch_bytes_is_an_upper_bound(method, dtype, edges):
    source = np.ones([e.n for e in edges], dtype=dtype)
    target = np.empty([e.m for e in edges], dtype=dtype)
    tracemalloc.start()
    try:
        kernels.reduce(source, (0, 0), edges, of_shape(target.shape), target, method)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= kernels.scratch_bytes(method, edges, dtype, target.shape)


def test_writes_into_a_view_and_reads_a_read_only_source():
    source = np.arange(24, dtype="u2").reshape(4, 6)
    source.flags.writeable = False
    block = np.full((4, 8), 7, dtype="u2")
    kernels.reduce(source, (0, 0), (Window(4, 2, 2), Window(6, 3, 2)), ((0, 2), (0, 3)), block[1:3, 2:8:2], "mean")
    assert block[1:3, 2:8:2].tolist() == [[4, 6, 8], [16, 18, 20]]
    block[1:3, 2:8:2] = 7
    assert (block == 7).all()


@pytest.mark.parametrize(
    ("method", "dtype", "nodata", "error"),
    [
        ("average", "u1", None, MethodError),
        ("linear", "u1", 0, MethodError),
        ("mean", "u1", 256, MethodError),
        ("mean", "u1", 0.5, MethodError),
        ("mean", "i4", np.nan, MethodError),
        ("mean", "?", 2, MethodError),
        ("mean", "f2", 1e5, MethodError),
        ("mean", "f4", 1j, MethodError),
        ("mean", "f4", "0", MethodError),
        ("median", "c8", None, DTypeError),
        ("mean", "<U3", None, DTypeError),
        ("nearest", object, None, DTypeError),
        ("nearest", [("a", "u1")], None, DTypeError),
        ("nearest", "M8[s]", None, DTypeError),
        ("nearest", np.longdouble, None, DTypeError),
    ],
)
def test_refuses(method, dtype, nodata, error):
    with pytest.raises(error):
        kernels.check(method, dtype, nodata)


@pytest.mark.parametrize(
    ("dtype", "nodata"),
    [
        ("u8", 2**64 - 1),
        (">i2", -1.0),
        ("f4", np.nan),
        ("f4", -np.inf),
        ("c8", np.nan),
        ("c8", 1j),
        ("u1", np.uint8(3)),
        ("?", True),
    ],
)
def test_accepts_nodata(dtype, nodata):
    kernels.check("mean", dtype, nodata)


def test_importing_and_small_work_do_not_load_numba():
    code = (
        "import sys, numpy as np; from ziggurat import kernels; from ziggurat.geometry import Window; "
        "kernels.reduce(np.ones(8), (0,), (Window(8, 4, 2),), ((0, 4),), np.empty(4), 'mean'); "
        "assert 'numba' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_target_with_one_tap_in_a_wider_window():
    """Alone in its box, a target whose centre is a pixel's reads that pixel of the window, not the window."""
    edges = (Stretch(11, 9), Stretch(1, 1))
    source = np.arange(11, dtype="u1").reshape(11, 1)
    expected = reference(source, edges, "gaussian")
    for i in range(9):
        out = np.empty((1, 1), "u1")
        lo, hi = edges[0].span(i, i + 1)
        kernels.reduce(source[lo:hi], (lo, 0), edges, ((i, i + 1), (0, 1)), out, "gaussian")
        assert out[0, 0] == expected[i, 0]


@pytest.mark.parametrize("shape", [(1, 2, 2), (2, 2, 2)])
@pytest.mark.parametrize("dtype", ["bool", "uint8", "int16", "uint32", "int64", "uint64"])
def test_every_window_of_few_values(shape, dtype, monkeypatch):
    """All windows that four values can make: each way that runs of equal ones can lie."""
    monkeypatch.setattr(kernels, "_NUMBA_PAYS_BYTES", -1)
    n = int(np.prod(shape))
    values = 2 if dtype == "bool" else 4
    windows = np.array(list(np.ndindex(*(values,) * n)), dtype=np.int64)
    offset = np.iinfo(dtype).max - 3 if dtype in ("int64", "uint64") else 0
    pixels = (windows.astype("uint64") + np.uint64(offset)).astype(dtype)
    source = np.ascontiguousarray(
        pixels.reshape(len(windows), *shape).transpose(1, 2, 0, 3).reshape(shape[0], shape[1], -1)
    )
    edges = tuple(Window(s, s // f, f) for s, f in zip(source.shape, shape, strict=True))
    counts = np.stack([(windows == v).sum(axis=1) for v in range(values)])
    expected = {"mode": counts.argmax(axis=0), "median": np.sort(windows, axis=1)[:, (n - 1) // 2]}
    for method, values_of in expected.items():
        out = np.empty((1, 1, len(windows)), dtype)
        kernels.reduce(source, (0, 0, 0), edges, tuple((0, m) for m in out.shape), out, method)
        wanted = (values_of.astype("uint64") + np.uint64(offset)).astype(dtype)
        np.testing.assert_array_equal(out.ravel(), wanted, err_msg=method)
