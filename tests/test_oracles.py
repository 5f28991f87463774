"""Kernels against other people's libraries, and where those part from our table."""

import numpy as np
import pytest
import tensorstore
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from ngio.common._zoom import numpy_zoom
from skimage.transform import resize, resize_local_mean

from test_kernels import reduced
from ziggurat.geometry import Stretch, Window

INTEGERS = ["u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8"]


@st.composite
def a_source(draw, dtypes, axes, size=14, scale=1.0):
    """Draw an array of noise: few values for ties, or the whole range of the dtype."""
    shape = draw(st.lists(st.integers(2, size), min_size=axes[0], max_size=axes[1]))
    rng, dtype = np.random.default_rng(draw(st.integers(0, 2**32))), np.dtype(draw(st.sampled_from(dtypes)))
    if dtype.kind == "f":
        return (rng.normal(size=shape) * scale).astype(dtype)
    if dtype.kind == "b":
        return rng.random(shape) < 0.5
    low, high = (0, 3) if draw(st.booleans()) else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    return rng.integers(low, high, shape, dtype=dtype, endpoint=True)


def downsampled(source, factors, method):
    """Downsample with tensorstore."""
    return tensorstore.downsample(tensorstore.array(source), list(factors), method).read().result()


def ceil_windows(source, factors):
    return tuple(Window(n, -(-n // f), f) for n, f in zip(source.shape, factors, strict=True))


@settings(max_examples=150, deadline=None)
@given(data=st.data(), method=st.sampled_from(["stride", "mean", "median", "mode", "min", "max"]))
def test_tensorstore(data, method):
    source = data.draw(a_source(["?", *INTEGERS], (1, 3)))
    factors = [data.draw(st.integers(1, min(4, n))) for n in source.shape]
    target = reduced(source, ceil_windows(source, factors), method)
    np.testing.assert_array_equal(target, downsampled(source, factors, method), strict=True)


@settings(max_examples=50, deadline=None)
@given(
    source=a_source(["f4", "f8"], (1, 3)), factor=st.integers(1, 2), method=st.sampled_from(["mean", "median", "max"])
)
def test_tensorstore_on_floats(source, factor, method):
    """Its mean of float32 is summed in float32; ours is the nearest float32."""
    target = reduced(source, ceil_windows(source, [factor] * source.ndim), method)
    theirs = downsampled(source, [factor] * source.ndim, method)
    tolerance = 0 if method != "mean" else 1e-6 if source.dtype == np.float32 else 1e-15
    np.testing.assert_allclose(target, theirs, rtol=0, atol=tolerance * np.abs(source).max())


@settings(max_examples=100, deadline=None)
@given(source=a_source(["u1", "i1", "u2", "i2", "u4", "i4", "f4", "f8"], (2, 3)), data=st.data())
def test_ngio_linear(source, data):
    """Byte for byte for every Stretch, and factor 2 where it divides."""
    target_shape = [data.draw(st.integers(1, n)) for n in source.shape]
    theirs = numpy_zoom(source, target_shape=tuple(target_shape), order="linear")
    edges = tuple(Stretch(n, m) for n, m in zip(source.shape, target_shape, strict=True))
    np.testing.assert_array_equal(reduced(source, edges, "linear"), theirs, strict=True)


@settings(max_examples=50, deadline=None)
@given(source=a_source(["u1", "i2", "u4", "f4", "f8"], (2, 3)), factor=st.integers(2, 6))
def test_ngio_linear_with_factors(source, factor):
    """Byte for byte where the factor divides the size."""
    factors = [factor if n % factor == 0 else 1 for n in source.shape]
    shape = tuple(n // f for n, f in zip(source.shape, factors, strict=True))
    theirs = numpy_zoom(source, target_shape=shape, order="linear")
    np.testing.assert_array_equal(reduced(source, ceil_windows(source, factors), "linear"), theirs, strict=True)


@settings(max_examples=100, deadline=None)
@given(source=a_source(["u1", "i1", "u2", "i2", "u4", "i4"], (2, 3)), data=st.data())
def test_ngio_nearest(source, data):
    """But for ties: a centre half way between two pixels, which we resolve in integers and they in float64."""
    target_shape = [data.draw(st.integers(1, n)) for n in source.shape]
    sizes = list(zip(source.shape, target_shape, strict=True))
    assume(all((2 * i + 1) * n % (2 * m) for n, m in sizes if m < n for i in range(m)))
    theirs = numpy_zoom(source, target_shape=tuple(target_shape), order="nearest")
    edges = tuple(Stretch(n, m) for n, m in sizes)
    np.testing.assert_array_equal(reduced(source, edges, "nearest"), theirs, strict=True)


@pytest.mark.parametrize("factor", [2, 3, 4, 5])
def test_ngio_nearest_with_factors(factor):
    source = np.random.default_rng(0).integers(0, 255, (6 * factor, 5 * factor), dtype="u1")
    theirs = numpy_zoom(source, target_shape=(6, 5), order="nearest")
    np.testing.assert_array_equal(reduced(source, ceil_windows(source, (factor, factor)), "nearest"), theirs)


def test_ngio_blends_the_edge_of_a_size_that_does_not_divide():
    """Its factor 2 from 5 to 3 is a stretch; our window keeps the grid and takes the last pixel alone."""
    source = np.array([[0, 10, 20, 30, 40]] * 2, dtype="u1")
    ours = reduced(source, (Window(2, 1, 2), Window(5, 3, 2)), "linear")
    assert ours.tolist() == [[5, 25, 40]]
    theirs = numpy_zoom(source, target_shape=(1, 3), order="linear")
    assert theirs.tolist() == reduced(source, (Stretch(2, 1), Stretch(5, 3)), "linear").tolist() == [[3, 20, 37]]


@settings(max_examples=60, deadline=None)
@given(source=a_source(["f8"], (1, 3), size=20), data=st.data())
def test_scikit_image_gaussian(source, data):
    target_shape = [data.draw(st.integers(1, n)) for n in source.shape]
    edges = tuple(
        Window(n, m, n // m) if n % m == 0 else Stretch(n, m) for n, m in zip(source.shape, target_shape, strict=True)
    )
    theirs = resize(source, target_shape, order=1, anti_aliasing=True, mode="edge", clip=False, preserve_range=True)
    np.testing.assert_allclose(reduced(source, edges, "gaussian"), theirs, rtol=0, atol=1e-9)


@settings(max_examples=60, deadline=None)
@given(source=a_source(["f8", "u1"], (1, 3), size=20), data=st.data())
def test_scikit_image_stretched_mean(source, data):
    target_shape = [data.draw(st.integers(1, n)) for n in source.shape]
    edges = tuple(Stretch(n, m) for n, m in zip(source.shape, target_shape, strict=True))
    theirs = resize_local_mean(source.astype("f8"), target_shape, grid_mode=True, preserve_range=True)
    difference = np.abs(reduced(source, edges, "mean") - theirs)
    assert difference.max() <= (1e-12 if source.dtype.kind == "f" else 0.5 + 1e-9)
