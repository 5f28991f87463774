"""Pyramids in xarray and back: one node per level, lazy, with physical coordinates."""

import dask.array as da
import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from zarr.storage import MemoryStore

import ziggurat as zg
from ziggurat.errors import LevelError, MetadataError, StoreError

PIXELS = np.random.default_rng(3).integers(0, 255, (2, 301, 403), "uint8")
OPTIONS = {
    "axes": "cyx",
    "scale": (1, 0.1, 0.3),
    "translation": (0, 7, 0.7),
    "units": {"y": "micrometer", "x": "meter"},
}


@pytest.fixture
def pyramid():
    return zg.build(PIXELS, MemoryStore(), chunks=(1, 64, 64), shards=(1, 128, 128), name="cells", **OPTIONS)


def test_one_lazy_node_per_level(pyramid):
    tree = pyramid.to_datatree()
    assert isinstance(tree, xr.DataTree)
    assert list(tree.children) == [level.name for level in pyramid.levels]
    for level, array in zip(pyramid.levels, pyramid.arrays, strict=True):
        image = tree[level.name]["image"]
        assert isinstance(image.data, da.Array)
        assert image.data.chunksize == level.clipped_unit
        assert image.dims == ("c", "y", "x")
        assert np.array_equal(image, array[...])
        assert "c" not in image.coords
        assert image.y.attrs["units"] == "micrometer"
        assert np.array_equal(image.y, np.arange(level.shape[1]) * level.scale[1] + level.translation[1])


@pytest.mark.parametrize("version", ["0.4", "0.5"])
def test_the_round_trip_is_exact(tmp_path, pyramid, version):
    pyramid.set_array(1, (0, 0, 0))  # Not consolidated: levels are copied, not computed.
    again = zg.from_datatree(pyramid.to_datatree(), tmp_path / "a", version=version)
    assert (again.name, again.method, again.axes) == ("cells", "mean", pyramid.axes)
    assert again.image.axes == pyramid.image.axes
    for one, two in zip(pyramid.levels, again.levels, strict=True):
        assert (one.name, one.shape, one.dtype, one.scale, one.translation) == (
            (two.name, two.shape, two.dtype, two.scale, two.translation)
        )
        assert (one.chunk, one.unit) == (two.chunk, two.unit if version == "0.5" else one.unit)
    for one, two in zip(pyramid.arrays, again.arrays, strict=True):
        assert np.array_equal(one[...], two[...])


def test_a_tree_is_not_written_over_what_it_reads(tmp_path):
    pyramid = zg.build(PIXELS, tmp_path / "a", axes="cyx")
    with pytest.raises(StoreError, match="the data is read from"):
        zg.from_datatree(pyramid.to_datatree(), tmp_path / "a", overwrite=True)
    assert np.array_equal(pyramid[0][...], PIXELS)


def test_labels_stay_labels(tmp_path):
    image = zg.build(PIXELS, tmp_path / "a", **OPTIONS)
    labels = zg.build(PIXELS[0], "cells", labels_of=image)
    again = zg.from_datatree(labels.to_datatree(), tmp_path / "b")
    assert again.image.is_label
    assert again.method == "mode"


def test_trees_that_are_none():
    with pytest.raises(LevelError, match="no children"):
        zg.from_datatree(xr.DataTree(), MemoryStore())
    two = xr.Dataset({"a": ("x", [1]), "b": ("x", [1])})
    with pytest.raises(LevelError, match="'0' of the tree has 2 variables"):
        zg.from_datatree(xr.DataTree.from_dict({"0": two}), MemoryStore())


# --- build from a DataArray


def test_a_data_array_says_axes_scale_and_units():
    array = xr.DataArray(
        da.from_array(PIXELS, chunks=(1, 100, 100)),
        dims=("c", "y", "x"),
        coords={
            "c": ["DAPI", "GFP"],
            "y": ("y", 5 + 0.5 * np.arange(301), {"units": "micrometer"}),
            "x": np.arange(403),
        },
        name="cells",
    )
    pyramid = zg.build(array, MemoryStore())
    assert (pyramid.axes, pyramid.name) == (("c", "y", "x"), "cells")
    assert pyramid.levels[0].scale == (1.0, 0.5, 1.0)
    assert pyramid.levels[0].translation == (0.0, 5.0, 0.0)
    assert [axis.unit for axis in pyramid.image.axes] == [None, "micrometer", None]
    assert np.array_equal(pyramid[0][...], PIXELS)


def test_a_part_of_a_tree_is_placed_where_it_lies(pyramid):
    part = pyramid.to_datatree()["0"]["image"][:, 10:200:2, 5:6]
    built = zg.build(part, MemoryStore())
    assert built.levels[0].scale == pytest.approx((1, 0.2, 0.3))
    assert built.levels[0].translation == pytest.approx((0, 8, 0.7 + 5 * 0.3))
    assert np.array_equal(built[0][...], PIXELS[:, 10:200:2, 5:6])


@pytest.mark.parametrize("values", [[0.0, 1.0, 3.0], [2.0, 1.0, 0.0], [1.0, 1.0, 1.0], [0.0, np.nan, 2.0]])
def test_coordinates_that_are_no_grid(values):
    array = xr.DataArray(np.zeros((3, 3)), dims=("y", "x"), coords={"x": values})
    with pytest.raises(MetadataError, match="coordinates of 'x' are not evenly spaced"):
        zg.build(array, MemoryStore())


@settings(max_examples=40, deadline=None)
@given(st.floats(1e-3, 1e3), st.floats(-1e4, 1e4), st.integers(1, 50))
def test_scale_and_translation_come_back_to_the_last_bit(scale, translation, n):
    pixels = np.zeros((n, 3), "u1")
    first = zg.build(pixels, MemoryStore(), scale=(scale, scale), translation=(translation, 0))
    second = zg.build(first.to_datatree()["0"]["image"], MemoryStore())
    assert second.levels[0].scale == (scale, scale)
    assert second.levels[0].translation == (translation, 0.0)
