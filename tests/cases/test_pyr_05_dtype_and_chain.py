"""Every level has the dtype of the finest, and is computed from the finer level as it is stored."""

import numpy as np
import pytest
from helpers import built_alike

from ziggurat.kernels import METHODS


@pytest.mark.parametrize(("method", "rows"), [("mean", [[0, 0], [0]]), ("linear", [[1, 0], [1]])])
def test_rounded_pixels_feed_the_next_level(way, method, rows):
    source = np.array([[0, 1, 0, 0]], "uint8")
    levels = way.rebuilt(source, (1, 2), (1, 1), chunks=(1, 2), method=method)
    assert [level.dtype for level in levels] == ["uint8", "uint8"]
    assert [level.tolist() for level in levels] == [[row] for row in rows]


def test_five_levels_of_noise_are_the_means_of_the_stored_levels(tmp_path):
    source = np.random.default_rng(1).integers(0, 256, (256, 256), "uint8")
    shapes = [(n, n) for n in (128, 64, 32, 16, 8)]
    for level in built_alike(tmp_path, source, *shapes, chunks=(64, 64), method="mean"):
        blocks = source.reshape(len(level), 2, len(level), 2).mean((1, 3))
        source = np.rint(blocks).astype("uint8")  # exact quarters, and half to even
        assert level.dtype == "uint8"
        np.testing.assert_array_equal(level, source)


@pytest.mark.parametrize("method", METHODS)
def test_five_levels_of_noise_are_the_same_in_every_way(tmp_path, method):
    source = np.random.default_rng(1).integers(0, 256, (256, 256), "uint8")
    shapes = [(n, n) for n in (128, 64, 32, 16, 8)]
    assert len(built_alike(tmp_path, source, *shapes, chunks=(64, 64), method=method)) == 5


@pytest.mark.parametrize("chunk", [8, 4, 32])
def test_cubic_clips_at_a_step(few_ways, chunk):
    step = np.zeros((32, 32), "uint8")
    step[:, 15:] = 255
    (level,) = few_ways.rebuilt(step, (16, 16), chunks=(chunk, chunk), method="cubic")
    assert level.tolist() == [[0] * 7 + [128] + [255] * 8] * 16
    # Between pixels 15 and 16 Keys' weights overshoot on both sides: -16 and 271.
    step[:, 15] = 0
    (level,) = few_ways.rebuilt(step, (16, 16), chunks=(chunk, chunk), method="cubic")
    assert level.tolist() == [[0] * 8 + [255] * 8] * 16
