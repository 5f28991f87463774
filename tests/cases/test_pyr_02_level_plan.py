"""One plan for one image, however it is chunked, and from the very first coarser level on."""

from itertools import pairwise

import dask.array as da
import numpy as np
import pytest
from helpers import ome
from zarr.storage import MemoryStore

import ziggurat as zg
from ziggurat.geometry import Window
from ziggurat.ngff import level_transform

FLOOR = (100, 50, 25, 12, 6)
CEIL = (100, 50, 25, 13, 7)


@pytest.mark.parametrize("with_scales", [False, True])
@pytest.mark.parametrize("chunk", [32, 7])
@pytest.mark.parametrize("sizes", [FLOOR, CEIL], ids=["floor", "ceil"])
def test_every_level_halves_the_finer_one(few_ways, sizes, chunk, with_scales):
    scales = [level_transform((1.0, 1.0), (0.0, 0.0), (2**k, 2**k))[0] for k in range(5)]
    assert scales == [(1, 1), (2, 2), (4, 4), (8, 8), (16, 16)]
    attributes = ome(few_ways.format, "yx", scales) if with_scales else None
    shapes = [(n, n) for n in sizes[1:]]
    group = few_ways.image(np.zeros((100, 100), "uint8"), *shapes, chunks=(chunk, chunk), attributes=attributes)
    target = group if with_scales else [group[str(k)] for k in range(5)]
    found = [step.edges for step in zg.plan(target).steps]
    assert found == [(Window(n, m, 2),) * 2 for n, m in pairwise(sizes)]


@pytest.mark.parametrize("sizes", [FLOOR, CEIL], ids=["floor", "ceil"])
def test_chunks_change_no_pixel(way, sizes):
    source = np.random.default_rng(2).integers(0, 256, (100, 100), "uint8")
    shapes = [(n, n) for n in sizes[1:]]
    built = [way.rebuilt(source, *shapes, chunks=(c, c), method="mean") for c in (32, 7)]
    for one, other in zip(*built, strict=True):
        assert one.tobytes() == other.tobytes()
        assert one.any()


def test_twice_the_chunk_has_a_coarser_level_of_one_chunk(way):
    levels = way.levels(np.full((128, 128, 128), 5, "uint16"), (64, 64, 64), chunks=(64, 64, 64))
    report = way.rebuild(levels)
    assert [(level.shape, level.n_units) for level in report.levels] == [((64, 64, 64), 1)]
    assert (levels[1][...] == 5).all()


INPUTS = {
    "numpy": lambda pixels: pixels,
    "dask 32": lambda pixels: da.from_array(pixels, chunks=32),
    "dask 7": lambda pixels: da.from_array(pixels, chunks=7),
}


@pytest.mark.parametrize("mode", ["numpy", "dask"])
@pytest.mark.parametrize("kind", INPUTS)
def test_new_levels_are_those_of_the_shape(tmp_path, kind, mode):
    pixels = np.random.default_rng(2).integers(0, 256, (100, 100), "uint8")
    pyramid = zg.build(INPUTS[kind](pixels), tmp_path / "a", chunks=(32, 32), n_levels=5, mode=mode)
    assert [level.shape for level in pyramid.levels] == [(n, n) for n in FLOOR]
    assert [level.scale for level in pyramid.levels] == [(2.0**k, 2.0**k) for k in range(5)]


def test_a_new_image_of_two_chunks_has_a_coarser_level():
    pyramid = zg.build(np.zeros((128, 128, 128), "uint16"), MemoryStore(), chunks=(64, 64, 64))
    assert [level.shape for level in pyramid.levels] == [(128, 128, 128), (64, 64, 64)]
