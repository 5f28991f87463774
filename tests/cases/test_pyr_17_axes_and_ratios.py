"""The axes that shall be coarsened are, and no others; factors need not be powers of two."""

import numpy as np
import pytest
import zarr
from helpers import built_alike, ome

import ziggurat as zg
from reference import reference
from ziggurat.errors import GeometryError
from ziggurat.geometry import Stretch, Window

T, C, Z, _, _ = np.ix_(*map(np.arange, (2, 3, 4, 6, 10)))
SOURCE = np.broadcast_to(1000 * T + 100 * C + 10 * Z, (2, 3, 4, 6, 10)).astype("uint16")
CHUNKS = (1, 1, 2, 4, 4)


@pytest.mark.parametrize("factors", [None, [(1, 1, 1, 2, 2)]], ids=str)
def test_planes_are_coarsened_one_by_one(way, factors):
    (level,) = way.rebuilt(SOURCE, (2, 3, 4, 3, 5), chunks=CHUNKS, method="mean", factors=factors)
    np.testing.assert_array_equal(level, SOURCE[..., :3, :5])


@pytest.mark.parametrize("factors", [None, [(1, 1, 2, 2, 2)]], ids=str)
def test_volumes_are_coarsened_one_by_one(way, factors):
    (level,) = way.rebuilt(SOURCE, (2, 3, 2, 3, 5), chunks=CHUNKS, method="mean", factors=factors)
    z = np.array([5, 25]).reshape(2, 1, 1)
    np.testing.assert_array_equal(level, np.broadcast_to((1000 * T + 100 * C)[:, :, :1] + z, level.shape))


def test_scales_of_t_and_c_stay(way):
    scales = [(0.1, 1, 2, 0.5, 0.5), (0.1, 1, 4, 1, 1)]
    group = way.image(SOURCE, (2, 3, 2, 3, 5), chunks=CHUNKS, attributes=ome(way.format, "tczyx", scales))
    before = group.attrs.asdict()
    way.rebuild(group)
    assert [level.scale for level in zg.open_pyramid(group).levels] == scales
    assert zarr.open_group(group.store, mode="r").attrs.asdict() == before


@pytest.mark.parametrize("factors", [[(1, 1, 1, 3, 2)], [(2, 1, 1, 2, 2)], [(1, 1, 1, 2)], [2, 2]], ids=str)
def test_factors_that_do_not_lead_there_are_refused(few_ways, factors):
    levels = few_ways.levels(SOURCE, (2, 3, 4, 3, 5), chunks=CHUNKS, fill=9)
    with pytest.raises(GeometryError):
        few_ways.rebuild(levels, factors=factors)
    assert levels[1].nchunks_initialized == 0


@pytest.mark.parametrize("with_scales", [False, True])
def test_two_three_four(way, with_scales):
    source = np.random.default_rng(17).integers(0, 256, (120, 120), "uint8")
    scales = [(k, k) for k in (1, 2, 3, 4)]
    attributes = ome(way.format, "yx", scales) if with_scales else None
    group = way.image(source, (60, 60), (40, 40), (30, 30), chunks=(32, 32), attributes=attributes)
    levels = [group[str(k)] for k in range(4)]
    target = group if with_scales else levels
    expected = [(Window(120, 60, 2),) * 2, (Stretch(60, 40),) * 2, (Stretch(40, 30),) * 2]
    assert [step.edges for step in zg.plan(target).steps] == expected
    way.rebuild(target, method="mean")
    for fine, coarse, edges in zip(levels, levels[1:], expected, strict=False):
        np.testing.assert_array_equal(coarse[...], reference(fine[...], edges, "mean"))


@pytest.mark.parametrize("method", ["mean", "linear", "mode", "gaussian", "cubic", "median"])
def test_two_three_four_in_every_way(tmp_path, method):
    source = np.random.default_rng(17).integers(0, 256, (120, 120), "uint8")
    levels = built_alike(tmp_path, source, (60, 60), (40, 40), (30, 30), chunks=(32, 32), method=method)
    assert [level.shape for level in levels] == [(60, 60), (40, 40), (30, 30)]
