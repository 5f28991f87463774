"""Ids above 2**24 stay what they are; ties are decided by the values, not by the chunks."""

import numpy as np
import pytest

from ziggurat.kernels import METHODS


@pytest.mark.parametrize("dtype", ["int32", "uint32"])
@pytest.mark.parametrize("method", ["mode", "nearest"])
def test_a_big_id_is_kept(way, method, dtype):
    (level,) = way.rebuilt(np.full((4, 6), 100001729, dtype), (2, 3), chunks=(2, 2), method=method)
    assert level.tolist() == [[100001729] * 3] * 2


@pytest.mark.parametrize("method", METHODS)
def test_a_big_constant_stays_constant(few_ways, method):
    (level,) = few_ways.rebuilt(np.full((4, 6), 100001729, "int32"), (2, 3), chunks=(2, 2), method=method)
    assert level.tolist() == [[100001729] * 3] * 2


@pytest.mark.parametrize("chunks", [(2, 4), (2, 2), (1, 1)])
def test_the_smallest_wins_a_tie(way, chunks):
    source = np.array([[5, 5, 9, 9], [9, 9, 5, 5]], "uint32")
    (level,) = way.rebuilt(source, (1, 2), chunks=chunks, method="mode")
    assert level.tolist() == [[5, 5]]
