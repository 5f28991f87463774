"""Thin axes neither vanish nor break the maths."""

import numpy as np
import pytest
import zarr
from helpers import ome

import ziggurat as zg


@pytest.mark.parametrize("factors", [None, 2, [(1, 2, 2, 2)], [(1, 1, 2, 2)]], ids=str)
def test_an_axis_of_one_plane_stays(way, factors):
    source = 2 * np.arange(128, dtype="uint16").reshape(2, 1, 8, 8)
    (level,) = way.rebuilt(source, (2, 1, 4, 4), chunks=(1, 1, 4, 4), method="mean", factors=factors)
    assert level.shape == (2, 1, 4, 4)
    assert level[0, 0, 0].tolist() == [9, 13, 17, 21]
    assert level[1, 0, 3].tolist() == [233, 237, 241, 245]


def test_scales_are_left_as_they_are(way):
    attributes = ome(way.format, "tzyx", [(1, 3, 0.5, 0.5), (1, 3, 1, 1)])
    group = way.image(np.zeros((2, 1, 8, 8), "uint16"), (2, 1, 4, 4), chunks=(1, 1, 4, 4), attributes=attributes)
    before = group.attrs.asdict()
    way.rebuild(group)
    pyramid = zg.open_pyramid(group)
    assert [level.scale for level in pyramid.levels] == [(1, 3, 0.5, 0.5), (1, 3, 1, 1)]
    assert zarr.open_group(group.store, mode="r").attrs.asdict() == before


@pytest.mark.parametrize("factors", [[2, 4], [(2, 2, 2), (4, 4, 4)]], ids=str)
def test_factors_differ_between_levels(way, factors):
    source = np.broadcast_to(20 * np.arange(10, dtype="uint8")[:, None, None], (10, 148, 148))
    chunks = (4, 64, 64)
    one, two = way.rebuilt(source, (5, 74, 74), (1, 18, 18), chunks=chunks, method="mean", factors=factors)
    assert (one.shape, two.shape) == ((5, 74, 74), (1, 18, 18))
    assert [set(plane.flat) for plane in one] == [{10}, {50}, {90}, {130}, {170}]
    assert set(two.flat) == {70}  # of planes 0 to 3


@pytest.mark.parametrize(
    ("shape", "coarse", "row"),
    [
        ((1, 1), (1, 1), [0]),
        ((1, 7), (1, 3), [5, 25, 45]),
        ((1, 7), (1, 4), [5, 25, 45, 60]),
        ((7, 1), (3, 1), [5, 25, 45]),
        ((7, 1), (4, 1), [5, 25, 45, 60]),
    ],
)
@pytest.mark.parametrize("factors", [None, 2])
def test_a_line_and_a_point(few_ways, shape, coarse, row, factors):
    source = 10 * np.arange(np.prod(shape), dtype="uint16").reshape(shape)
    (level,) = few_ways.rebuilt(source, coarse, chunks=(4, 4), method="mean", factors=factors)
    assert level.shape == coarse
    assert level.ravel().tolist() == row
