"""Regions: their forms, their exact union, and what they make dirty, against brute force on masks."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ziggurat as zg
from strategies import recipes
from ziggurat import regions
from ziggurat.api import _steps
from ziggurat.boxes import slices
from ziggurat.dirty import dirty_units
from ziggurat.errors import RegionError
from ziggurat.grid import Level
from ziggurat.regions import as_box, as_boxes, coverage, normalize, push_up


@pytest.mark.parametrize(
    "region",
    [
        (slice(2, 5), slice(None)),
        (slice(2, 5, 1), slice(0, 7)),
        ((2, 5), (0, 7)),
        ([2, 4], [0, 6]),
        ([4, 2, 3], range(7)),
        (np.array([2, 4]), (np.int64(0), np.uint8(7))),
        [slice(np.int32(2), np.uint64(5)), slice(None, 7)],
    ],
)
def test_every_form_is_one_box(region):
    assert normalize([region], (6, 7)).tolist() == [[[2, 5], [0, 7]]]


def test_integers_duplicates_and_empty_regions():
    assert normalize([(3, np.int16(4)), (slice(3, 4), [4]), (slice(2, 2), 0), ([], 0)], (6, 7)).tolist() == [
        [[3, 4], [4, 5]]
    ]
    assert normalize([], (6, 7)).shape == (0, 2, 2)


@pytest.mark.parametrize(
    ("region", "said"),
    [
        ((slice(0, 7), 0), "leaves the array: axis 0 has the pixels 0 to 5"),
        ((0, 7), "leaves the array: axis 1"),
        ((-1, 0), "leaves the array"),
        ((slice(-3, None), 0), "leaves the array"),
        (([0, 6], 0), "leaves the array"),
        ((slice(4, 2), 0), "leaves the array"),
        ((slice(0, 4, 2), 0), "is no slice with step 1"),
        ((True, 0), "is no slice with step 1"),
        ((1.0, 0), "is no slice with step 1"),
        (((1, 2, 3), 0), "is no slice with step 1"),
        ((0,), "does not name the 2 axes"),
        (slice(0, 1), "does not name the 2 axes"),
        (3, "does not name the 2 axes"),
    ],
)
def test_what_is_no_region_is_refused(region, said):
    with pytest.raises(RegionError, match=re.escape(said)):
        normalize([region], (6, 7))


@pytest.mark.parametrize("regions_", ["everything", slice(0, 1), 3])
def test_regions_must_be_a_list(regions_):
    with pytest.raises(RegionError, match="give a list of tuples"):
        normalize(regions_, (6, 7))


def boxes_in(shape):
    axes = [st.tuples(st.integers(0, n - 1), st.integers(1, n)).map(lambda ab: (ab[0], max(ab))) for n in shape]
    box = st.tuples(*axes).map(lambda b: tuple((a, max(a + 1, c)) for a, c in b))
    return st.lists(box, max_size=6)


def mask_of(shape, boxes):
    mask = np.zeros(shape, bool)
    for row in boxes:
        mask[slices(as_box(row))] = True
    return mask


@given(boxes=boxes_in((7, 9, 5)), cells=st.sampled_from([1, 1 << 24]))
def test_coverage_is_that_of_the_union(boxes, cells):
    shape, rows = (7, 9, 5), as_boxes(boxes, 3)
    level = Level("0", shape, np.dtype("u1"), (1, 1, 1), (1, 1, 1))
    before, regions.GRID_CELLS = regions.GRID_CELLS, cells
    try:
        found = coverage(rows, level)
    finally:
        regions.GRID_CELLS = before
    exact = mask_of(shape, rows).mean()
    assert found == pytest.approx(exact) if cells > 1 else found >= exact - 1e-9


@settings(max_examples=150, deadline=None)
@given(data=st.data(), recipe=recipes(max_levels=1))
def test_dirty_is_what_a_window_meets(data, recipe):
    """Each target pixel is dirty if and only if its window, halo included, holds a changed pixel."""
    step = _steps(zg.open_pyramid(recipe.make()), recipe.method, None, None)[0]
    changed = as_boxes(data.draw(boxes_in(recipe.shapes[0])), len(recipe.shapes[0]))
    source = mask_of(step.source.shape, changed)
    dirty = push_up(step, changed)
    expected = np.zeros(step.target.shape, bool)
    for i in np.ndindex(step.target.shape):
        expected[i] = source[slices(step.window(tuple((j, j + 1) for j in i)))].any()
    np.testing.assert_array_equal(mask_of(step.target.shape, dirty), expected)

    units = dirty_units(step, dirty)
    assert len({as_box(u) for u in units.units}) == len(units)
    for i, unit in enumerate(units.units):
        inside = mask_of(step.target.shape, [unit])
        mine = units.boxes[units.offsets[i] : units.offsets[i + 1]]
        np.testing.assert_array_equal(mask_of(step.target.shape, mine), expected & inside)
    covered = mask_of(step.target.shape, units.units)
    assert not (expected & ~covered).any()
