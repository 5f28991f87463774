"""Chunks and shards keep their size on prime axes, and fit small levels."""

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.errors import GeometryError

SHAPE = (2, 997, 1009)
LEVELS = [(2, 997, 1009), (2, 498, 504), (2, 249, 252), (2, 124, 126)]


@pytest.mark.parametrize("way", ["build", "add_levels"])
@pytest.mark.parametrize("shards", [None, (1, 512, 512)])
def test_every_level_is_made(tmp_path, shards, way):
    pixels = np.random.default_rng(0).integers(0, 2**16, SHAPE, "uint16")
    options = {"axes": "cyx", "chunks": (1, 256, 256), "shards": shards}
    if way == "build":
        pyramid = zg.build(pixels, tmp_path / "a", n_levels=4, **options)
    else:
        zg.build(pixels, tmp_path / "a", n_levels=1, **options)
        pyramid = zg.add_levels(tmp_path / "a", n_levels=4)
    assert [level.shape for level in pyramid.levels] == LEVELS
    assert pyramid[0].nchunks == 32
    for array in pyramid.arrays:
        assert array.chunks == tuple(min(c, n) for c, n in zip((1, 256, 256), array.shape, strict=True))
        if shards:
            assert all(s % c == 0 for s, c in zip(array.shards, array.chunks, strict=True))
    assert not zg.verify(pyramid).is_stale


def test_shards_that_hold_no_whole_chunks_are_refused_first(tmp_path):
    options = {"axes": "cyx", "chunks": (1, 256, 256), "shards": (1, 300, 300)}
    with pytest.raises(GeometryError, match=r"shards \(1, 300, 300\) .* use \(1, 256, 256\)"):
        zg.build(np.zeros(SHAPE, "uint16"), tmp_path / "a", **options)
    assert not (tmp_path / "a").exists()
