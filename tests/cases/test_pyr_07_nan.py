"""One NaN stays one NaN."""

import numpy as np
import pytest
from helpers import built_alike

SHAPES = [(n, n) for n in (32, 16, 8, 4)]
NAN = float("nan")


def one_nan(dtype):
    source = np.ones((64, 64), dtype)
    source[10, 10] = NAN
    return source


def check(levels, n_nan):
    assert [np.isnan(level).sum() for level in levels] == n_nan
    for level in levels:
        assert (level[~np.isnan(level)] == 1).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("method", "n_nan"),
    [
        ("linear", [1, 1, 1, 1]),
        ("mean", [1, 1, 1, 1]),
        ("nearest", [0, 0, 0, 0]),  # takes pixel 2i + 1
        ("cubic", [4, 9, 9, 4]),
    ],
)
def test_nan_does_not_spread(way, dtype, method, n_nan):
    check(way.rebuilt(one_nan(dtype), *SHAPES, chunks=(16, 16), method=method), n_nan)


@pytest.mark.parametrize(
    ("method", "n_nan"),
    [
        *[(m, [1, 1, 1, 1]) for m in ("median", "min", "max")],
        ("stride", [1, 0, 0, 0]),  # takes pixel 2i: 10, but not 5
        ("mode", [0, 0, 0, 0]),
    ],
)
def test_nan_does_not_spread_with_other_methods(few_ways, method, n_nan):
    check(few_ways.rebuilt(one_nan("float32"), *SHAPES, chunks=(16, 16), method=method), n_nan)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_mean_without_nan(way, dtype):
    levels = way.rebuilt(one_nan(dtype), *SHAPES, chunks=(16, 16), method="mean", nodata=NAN)
    for level in levels:
        assert (level == 1).all()


@pytest.mark.parametrize("method", ["median", "mode", "min", "max"])
def test_nan_as_nodata_is_left_out(few_ways, method):
    levels = few_ways.rebuilt(one_nan("float32"), *SHAPES, chunks=(16, 16), method=method, nodata=NAN)
    for level in levels:
        assert (level == 1).all()


@pytest.mark.parametrize("method", ["mean", "linear", "cubic", "gaussian"])
def test_nan_lies_at_the_same_places_in_every_way(tmp_path, method):
    levels = built_alike(tmp_path, one_nan("float32"), *SHAPES, chunks=(16, 16), method=method)
    assert all(0 < np.isnan(level).sum() <= 16 for level in levels)


@pytest.mark.parametrize(
    ("method", "nodata", "row"),
    [("mean", None, [NAN, 3]), ("linear", None, [NAN, 3]), ("mean", NAN, [2.3333333, 3])],
)
def test_a_window_with_one_nan(way, method, nodata, row):
    source = np.array([[1, NAN, 3, 3], [3, 3, 3, 3]], "float32")
    (level,) = way.rebuilt(source, (1, 2), chunks=(2, 2), method=method, nodata=nodata)
    np.testing.assert_array_equal(level, np.array([row], "float32"))


@pytest.mark.parametrize("nodata", [None, NAN])
@pytest.mark.parametrize("method", ["mean", "median", "mode", "min", "max"])
def test_a_window_of_nan_gives_nan_and_no_warning(few_ways, method, nodata):
    source = np.full((4, 4), NAN, "float32")
    (level,) = few_ways.rebuilt(source, (2, 2), chunks=(2, 2), method=method, nodata=nodata)
    assert np.isnan(level).all()
