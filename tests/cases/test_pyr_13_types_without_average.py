"""bool has a written rule; strings, objects and structured pixels are refused before anything changes."""

import warnings

import numpy as np
import pytest
import zarr

import ziggurat as zg
from ziggurat.errors import DTypeError
from ziggurat.kernels import METHODS
from ziggurat.testing import tree_hash

MASK = np.array([[1, 1, 0, 0], [1, 1, 0, 1]], bool)
OTHERS = {
    "fixed string": np.array([["a", "bb"], ["ccc", "d"]], "<U3"),
    "variable string": np.array([["a", "bb"], ["ccc", "a long one"]], np.dtypes.StringDType()),
    "structured": np.array([[(1, 2.0), (3, 4.0)]] * 2, [("a", "i4"), ("b", "f8")]),
    "bytes": np.array([[b"a", b"bb"]] * 2, "S3"),
    "time": np.array([[1, 2], [3, 4]], "datetime64[s]"),
}


@pytest.mark.parametrize(
    ("method", "row"),
    [("mean", [True, False]), ("nearest", [True, True])],  # of each block, `nearest` takes the last pixel
)
def test_bool_stays_bool(way, method, row):
    (level,) = way.rebuilt(MASK, (1, 2), chunks=(2, 2), method=method)
    assert level.dtype == bool
    assert level.tolist() == [row]


@pytest.mark.parametrize(
    ("method", "row"),
    [(m, [True, m == "max"]) for m in ("mode", "median", "max", "min", "stride")],
)
def test_bool_stays_bool_with_other_methods(few_ways, method, row):
    (level,) = few_ways.rebuilt(MASK, (1, 2), chunks=(2, 2), method=method)
    assert level.dtype == bool
    assert level.tolist() == [row]


@pytest.mark.parametrize("method", ["mean", "mode", "median"])
def test_a_tie_is_false(few_ways, method):
    (level,) = few_ways.rebuilt(np.array([[1, 0], [0, 1]], bool), (1, 1), chunks=(2, 2), method=method)
    assert level.tolist() == [[False]]


@pytest.fixture(params=OTHERS)
def levels(request, tmp_path):
    source = OTHERS[request.param]
    group = zarr.create_group(tmp_path)
    with warnings.catch_warnings():
        # Some of these have no stable specification in zarr.
        warnings.simplefilter("ignore")
        for k, shape in enumerate([(2, 2), (1, 1)]):
            group.create_array(str(k), shape=shape, chunks=(2, 2), dtype=source.dtype)
    group["0"][...] = source
    return [group["0"], group["1"]]


@pytest.mark.parametrize("method", ["auto", *METHODS])
def test_other_types_are_refused(levels, tmp_path, method):
    before = tree_hash(tmp_path)
    for mode in ("numpy", "dask", "auto"):
        with pytest.raises(DTypeError) as error:
            zg.consolidate(levels, method=method, mode=mode)
        assert str(levels[0].dtype) in str(error.value)
        assert str(levels[0].store_path) in str(error.value)
    assert tree_hash(tmp_path) == before
