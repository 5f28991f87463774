"""Means neither overflow nor lose the sign or the low bits."""

import numpy as np
import pytest

MEANS = [
    ("uint8", [255] * 4, 255),
    ("uint32", [4294967295] * 4, 4294967295),
    ("uint32", [4294967295] * 3 + [4294967291], 4294967294),
    ("uint64", [18446744073709551615] * 4, 18446744073709551615),
    ("uint64", [2**63, 2**63 + 2, 2**63 + 4, 2**63 + 6], 9223372036854775811),
    ("int8", [-128] * 4, -128),
    ("int64", [-(2**63)] * 4, -9223372036854775808),
    ("int16", [-1, -2, -1, -2], -2),
    ("int16", [-1, -1, -1, -2], -1),
    ("uint8", [0, 1, 0, 1], 0),
    ("uint8", [254, 255, 254, 255], 254),
    ("float16", [60000] * 4, 60000),
]


@pytest.mark.parametrize(("dtype", "block", "mean"), MEANS)
def test_mean(way, dtype, block, mean):
    source = np.array(block, dtype).reshape(2, 2)
    (level,) = way.rebuilt(source, (1, 1), chunks=(2, 2), method="mean")
    assert level.dtype == dtype
    assert level.tolist() == [[mean]]


@pytest.mark.parametrize(("block", "away"), [([-1, -2, -1, -2], -2), ([0, 1, 0, 1], 1), ([254, 255, 254, 255], 255)])
def test_linear_rounds_half_away_from_zero(few_ways, block, away):
    source = np.array(block, "int16").reshape(2, 2)
    (level,) = few_ways.rebuilt(source, (1, 1), chunks=(2, 2), method="linear")
    assert level.tolist() == [[away]]
