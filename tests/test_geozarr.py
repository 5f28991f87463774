"""Pyramids of the ``multiscales`` zarr convention."""

import pytest
import zarr

import ziggurat as zg
from ziggurat.errors import LevelError, MetadataError
from ziggurat.geometry import Stretch, Window
from ziggurat.geozarr import read_assets

SCALE = {"scale": [2.0, 2.0]}


def layout(*entries, **more):
    return {"zarr_conventions": [{"name": "multiscales"}], "multiscales": {"layout": list(entries), **more}}


def make(path, attributes, arrays):
    group = zarr.create_group(path, attributes=attributes)
    for name, shape in arrays.items():
        dims = ("band", "y", "x")[-len(shape) :]
        group.create_array(name, shape=shape, chunks=(16,) * len(shape), dtype="u1", dimension_names=dims)[...] = 5
    return path


def test_arrays_listed_in_any_order(tmp_path):
    entries = [
        {"asset": "quarter", "derived_from": "half", "transform": SCALE},
        {"asset": "full"},
        {"asset": "half", "derived_from": "full", "transform": {"scale": [2.02, 2.0]}},
    ]
    arrays = {"full": (101, 64), "half": (50, 32), "quarter": (25, 16)}
    path = make(tmp_path / "a", layout(*entries, resampling_method="average"), arrays)
    pyramid = zg.open_pyramid(path)
    assert [level.name for level in pyramid.levels] == ["full", "half", "quarter"]
    assert [level.scale for level in pyramid.levels] == [(1.0, 1.0), (2.02, 2.0), (4.04, 4.0)]
    assert (pyramid.method, pyramid.axes) == ("mean", ("y", "x"))
    assert zg.plan(pyramid).steps[0].edges == (Stretch(101, 50), Window(64, 32, 2))
    zg.consolidate(path)
    assert (pyramid[2][...] == 5).all()


def test_groups_that_hold_one_image(tmp_path):
    entries = [{"asset": "0"}, {"asset": "1", "derived_from": "0", "transform": SCALE, "resampling_method": "med"}]
    arrays = {"0/b02": (3, 64, 64), "0/x": (64,), "1/b02": (3, 32, 32), "1/x": (32,)}
    pyramid = zg.open_pyramid(make(tmp_path / "a", layout(*entries), arrays))
    assert [level.name for level in pyramid.levels] == ["0/b02", "1/b02"]
    assert (pyramid.levels[1].scale, pyramid.method) == ((1.0, 2.0, 2.0), "median")


def test_groups_that_hold_several_images(tmp_path):
    entries = [{"asset": "0"}, {"asset": "1", "derived_from": "0", "transform": SCALE}]
    arrays = {f"{k}/{name}": (n, n) for k, n in ((0, 64), (1, 32)) for name in ("b02", "b03")}
    path = make(tmp_path / "a", layout(*entries), arrays)
    with pytest.raises(MetadataError, match=r"share 2 images, \['b02', 'b03'\].*levels=\['0/b02', '1/b02'\]"):
        zg.open_pyramid(path)
    assert zg.open_pyramid(path, levels=["0/b03", "1/b03"])[1].shape == (32, 32)


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ([], r"multiscales.layout is \[\]"),
        ([{"asset": "../0"}], r"layout\[0\].asset: '../0' is no path"),
        ([5], r"layout\[0\].asset: None"),
        (
            [{"asset": "0", "derived_from": "1"}, {"asset": "1", "derived_from": "0"}],
            "the levels .* derived from",
        ),
    ],
)
def test_layouts_that_cannot_be_read(entries, said):
    with pytest.raises(MetadataError, match=rf"a.zarr: {said}.*levels="):
        read_assets(layout(*entries), "a.zarr")


def test_a_level_that_is_missing(tmp_path):
    with pytest.raises(LevelError, match="level '1' is listed"):
        zg.open_pyramid(make(tmp_path / "a", layout({"asset": "0"}, {"asset": "1"}), {"0": (8, 8)}))


def test_ome_zarr_is_no_layout():
    assert read_assets({"multiscales": [{"version": "0.4"}]}, "a.zarr") is None
    assert read_assets({}, "a.zarr") is None
