"""Complex pixels are averaged whole, and sampled where real ones are."""

import numpy as np
import pytest

from ziggurat.errors import DTypeError
from ziggurat.kernels import METHODS

SOURCE = np.tile(np.array([[1 + 1j, 3 - 1j], [1 + 3j, 3 + 1j]]), (2, 2))
VALUES = {"mean": 2 + 1j, "linear": 2 + 1j, "nearest": 3 + 1j, "stride": 1 + 1j}


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("method", ["mean", "nearest"])
def test_complex_pixels(way, method, dtype):
    (level,) = way.rebuilt(SOURCE.astype(dtype), (2, 2), chunks=(2, 2), method=method)
    assert level.dtype == dtype
    assert level.tolist() == [[VALUES[method]] * 2] * 2


@pytest.mark.parametrize("method", ["linear", "stride"])
def test_other_methods(few_ways, method):
    (level,) = few_ways.rebuilt(SOURCE, (2, 2), chunks=(2, 2), method=method)
    assert level.tolist() == [[VALUES[method]] * 2] * 2


@pytest.mark.parametrize("method", ["nearest", "stride"])
def test_samples_are_those_of_real_pixels(few_ways, method):
    real = np.arange(16.0).reshape(4, 4)
    (one,) = few_ways.rebuilt(real, (2, 2), chunks=(2, 2), method=method)
    (other,) = few_ways.rebuilt(real + 1j, (2, 2), chunks=(2, 2), method=method)
    assert other.tolist() == (one + 1j).tolist()


@pytest.mark.parametrize("method", [m for m in METHODS if m not in VALUES])
def test_what_has_no_meaning_is_refused(few_ways, method):
    levels = few_ways.levels(SOURCE, (2, 2), chunks=(2, 2), fill=9)
    with pytest.raises(DTypeError, match=method):
        few_ways.rebuild(levels, method=method)
    assert levels[1].nchunks_initialized == 0
