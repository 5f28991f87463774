"""Odd axes: no part of the image is lost, nothing is blended with padding."""

import numpy as np
import pytest
from helpers import ome

from ziggurat.kernels import METHODS

RAMP = np.tile(np.arange(0, 90, 10, dtype="uint16"), (6, 1))


@pytest.mark.parametrize(
    ("shape", "row"), [((3, 4), [5, 25, 45, 65]), ((3, 5), [5, 25, 45, 65, 80])], ids=["floor", "ceil"]
)
def test_windows_cover_or_drop_the_last_pixel(way, shape, row):
    (level,) = way.rebuilt(RAMP, shape, chunks=(4, 4), method="mean")
    assert level.tolist() == [row] * 3


@pytest.mark.parametrize(
    ("shape", "row"), [((3, 4), [6, 29, 51, 74]), ((3, 5), [4, 22, 40, 58, 76])], ids=["floor", "ceil"]
)
def test_stretched_levels_take_their_ratio_from_the_scales(way, shape, row):
    scales = [(1, 1), (2, 9 / shape[1])]
    group = way.image(RAMP, shape, chunks=(4, 4), attributes=ome(way.format, "yx", scales))
    way.rebuild(group, method="linear")
    assert group["1"][...].tolist() == [row] * 3


def test_stretched_mean(way):
    group = way.image(RAMP, (3, 4), chunks=(4, 4), attributes=ome(way.format, "yx", [(1, 1), (2, 2.25)]))
    way.rebuild(group, method="mean")
    assert group["1"][...].tolist() == [[7, 29, 51, 73]] * 3


@pytest.mark.parametrize("scales", [(2, 2), (2.25, 1.8)], ids=["window", "stretch"])
@pytest.mark.parametrize("method", METHODS)
def test_a_constant_stays_constant_to_the_last_row_and_column(few_ways, method, scales):
    """Floor along y, ceil along x."""
    attributes = ome(few_ways.format, "yx", [(1, 1), scales])
    group = few_ways.image(np.full((9, 9), 100, "uint8"), (4, 5), chunks=(4, 4), attributes=attributes)
    few_ways.rebuild(group, method=method)
    assert group["1"][...].tolist() == [[100] * 5] * 4
