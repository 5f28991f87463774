from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ziggurat.errors import GeometryError
from ziggurat.geometry import edges_from_factors
from ziggurat.layout import SMALLEST, default_chunk, factors_of, lay_out

YX, ZYX, CYX = (True, True), (True, True, True), (False, True, True)


def shapes(shape, is_space, chunk, **options):
    return [level.shape for level in lay_out(shape, factors_of(shape, is_space, chunk, **options), chunk, None)]


def test_each_axis_stops_on_its_own():
    assert shapes((4100, 700), YX, (512, 512)) == [(4100, 700), (2050, 350), (1025, 175), (512, 175), (256, 175)]


def test_thin_axes_and_channels_are_not_halved():
    assert shapes((3, 1000, 1000), CYX, (1, 512, 512)) == [(3, 1000, 1000), (3, 500, 500), (3, 250, 250)]
    assert shapes((20, 600, 600), ZYX, (1, 512, 512)) == [(20, 600, 600), (20, 300, 300), (20, 150, 150)]


def test_a_small_image_is_halved_until_it_fits_one_chunk():
    assert shapes((128, 128, 128), ZYX, (64, 64, 64)) == [(128,) * 3, (64,) * 3]
    assert shapes((20, 200, 200), ZYX, (1, 64, 64)) == [(20, 200, 200), (20, 100, 100), (20, 50, 50)]
    assert shapes((100, 100), YX, (100, 100)) == [(100, 100)]


def test_a_number_of_levels():
    assert shapes((100, 100), YX, (32, 32), n_levels=5) == [(n, n) for n in (100, 50, 25, 12, 6)]
    assert shapes((1, 3), YX, (8, 8), n_levels=2) == [(1, 3), (1, 1)]
    assert shapes((9000, 9000), YX, (8, 8), n_levels=1) == [(9000, 9000)]
    with pytest.raises(GeometryError, match=r"n_levels=9: an image of \(8, 8\) has at most 4"):
        factors_of((8, 8), YX, (4, 4), n_levels=9)
    with pytest.raises(GeometryError, match="at least one"):
        factors_of((8, 8), YX, (4, 4), n_levels=0)


@pytest.mark.parametrize(
    ("z", "steps"),
    [
        (1.9, [(2, 2, 2)] * 2),
        (2.0, [(1, 2, 2), (2, 2, 2), (2, 1, 1)]),
        (8.0, [(1, 2, 2)] * 2 + [(2, 1, 1)] * 2),
        (0.25, [(2, 1, 1), (2, 1, 1), (1, 2, 2), (1, 2, 2)]),
        (0.0, [(2, 2, 2)] * 2),
    ],
)
def test_the_finest_axes_first(z, steps):
    assert factors_of((1024, 1024, 1024), ZYX, (64,) * 3, scale=(z, 1.0, 1.0)) == tuple(steps)


@pytest.mark.parametrize(
    ("shape", "is_space", "itemsize", "chunk"),
    [
        ((8000, 8000), YX, 2, (512, 512)),
        ((8000, 8000), YX, 1, (1024, 1024)),
        ((2, 8000, 8000), CYX, 4, (1, 512, 512)),
        ((500, 500, 500), ZYX, 4, (64, 64, 64)),
        ((3, 8000, 8000), ZYX, 2, (3, 512, 512)),
        ((10**7,), (True,), 1, (2**20,)),
        ((5, 7), YX, 1, (5, 7)),
        ((4, 4), (False, False), 1, (1, 1)),
        ((0, 9), YX, 1, (1, 9)),
    ],
)
def test_default_chunk(shape, is_space, itemsize, chunk):
    assert default_chunk(shape, is_space, itemsize) == chunk


def test_chunks_and_shards_are_clipped():
    levels = lay_out((2, 997, 1009), [(1, 2, 2)] * 3, (1, 256, 256), (1, 512, 512))
    assert [level.shape for level in levels] == [(2, 997, 1009), (2, 498, 504), (2, 249, 252), (2, 124, 126)]
    assert [level.chunk for level in levels] == [(1, 256, 256)] * 2 + [(1, 249, 252), (1, 124, 126)]
    assert [level.shard for level in levels] == [(1, 512, 512)] * 2 + [(1, 249, 252), (1, 124, 126)]


@pytest.mark.parametrize(
    ("chunk", "shard", "said"),
    [
        ((256,), None, r"chunks \(256,\) do not fit 2 axes"),
        ((256, 0), None, r"chunks \(256, 0\) do not fit"),
        ((256, 256), (300, 300), r"shards \(300, 300\) hold no whole chunks \(256, 256\): use \(256, 256\)"),
    ],
)
def test_grids_that_are_refused(chunk, shard, said):
    with pytest.raises(GeometryError, match=said):
        lay_out((997, 1009), [], chunk, shard)


sizes = st.lists(st.integers(1, 3000), min_size=1, max_size=3)


@given(sizes, st.integers(1, 300), st.integers(1, 4), st.lists(st.floats(0.01, 100), min_size=3, max_size=3))
def test_any_shape(shape, side, n, scale):
    is_space, chunk = (True,) * len(shape), (side,) * len(shape)
    steps = factors_of(shape, is_space, chunk, scale[: len(shape)])
    levels = lay_out(shape, steps, chunk, (n * side,) * len(shape))
    for fine, coarse in pairwise(levels):
        edges_from_factors(fine.shape, coarse.shape, coarse.step)
        assert coarse.shape != fine.shape
    for level in levels:
        assert level.shape == tuple(max(1, n // f) for n, f in zip(shape, level.factors, strict=True))
        assert all(c == min(side, n) for c, n in zip(level.chunk, level.shape, strict=True))
        assert all(s % c == 0 and s - c < n for s, c, n in zip(level.shard, level.chunk, level.shape, strict=True))
    if max(shape) > SMALLEST:
        assert max(levels[-1].shape) <= SMALLEST
