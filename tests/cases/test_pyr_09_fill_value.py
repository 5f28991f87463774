"""Units that come to hold only fill are not left as they were; a fill value other than 0 is honoured."""

import numpy as np
import pytest

CHUNKS = [(4, 4), (2, 2)]


@pytest.mark.parametrize("method", ["mean", "mode"])
def test_a_unit_that_becomes_fill_loses_its_old_pixels(way, method):
    levels = way.levels(np.full((8, 8), 100, "uint16"), (4, 4), chunks=CHUNKS, fill=7)
    way.rebuild(levels, method=method)
    assert (levels[1][...] == 100).all()
    levels[0][0:4, 0:4] = 7
    way.rebuild(levels, method=method)
    expected = np.full((4, 4), 100)
    expected[0:2, 0:2] = 7
    assert levels[1][...].tolist() == expected.tolist()


def test_a_level_that_becomes_fill_altogether_loses_its_old_pixels(way):
    levels = way.levels(np.full((8, 8), 100, "uint16"), (4, 4), chunks=CHUNKS, fill=7)
    way.rebuild(levels)
    levels[0][...] = 7
    way.rebuild(levels)
    assert (levels[1][...] == 7).all()


def test_a_source_that_was_never_written_is_its_fill_value(way):
    levels = way.levels(np.full((8, 8), 7, "uint16"), (4, 4), chunks=CHUNKS, fill=[7, 0])
    assert levels[0].nchunks_initialized == 0
    way.rebuild(levels)
    assert levels[1][...].tolist() == [[7] * 4] * 4


def test_negative_zero_is_no_missing_chunk(way):
    (level,) = way.rebuilt(np.full((8, 8), -0.0, "float32"), (4, 4), chunks=CHUNKS, method="mean", fill=0.0)
    assert level.tolist() == [[0.0] * 4] * 4


def test_negative_zero_over_another_fill(way):
    (level,) = way.rebuilt(np.full((8, 8), -0.0, "float32"), (4, 4), chunks=CHUNKS, method="mean", fill=[0.0, 3.0])
    assert level.tolist() == [[0.0] * 4] * 4
