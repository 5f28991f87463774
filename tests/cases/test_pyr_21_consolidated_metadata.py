"""Metadata lists exactly the levels that are there, at any time, and keeps what others wrote."""

import warnings

import numpy as np
import pytest
import zarr

import ziggurat as zg
from ziggurat import complete, image

LAB = {"note": "keep"}
SHAPES = {"0": (8, 8), "1": (4, 4), "2": (2, 2)}


def make(path, version, consolidated):
    group = zarr.create_group(path, zarr_format=version, attributes={"lab": LAB})
    zg.build(np.arange(64, dtype="u2").reshape(8, 8), group, chunks=(4, 4), n_levels=1, version=f"0.{version + 2}")
    if consolidated:
        with warnings.catch_warnings(action="ignore"):
            zarr.consolidate_metadata(group.store)


def listed(group):
    attributes = group.attrs.asdict()
    return [d["path"] for d in attributes.get("ome", attributes)["multiscales"][0]["datasets"]]


def check(path, version, consolidated, shapes):
    views = [zarr.open_group(path, mode="r", use_consolidated=False, zarr_format=version)]
    if consolidated:
        views.append(zarr.open_consolidated(path, mode="r", zarr_format=version))
    else:
        assert zarr.open_group(path, mode="r").metadata.consolidated_metadata is None
    for view in views:
        assert {name: array.shape for name, array in view.arrays()} == shapes
        assert listed(view) == sorted(shapes)
        assert view.attrs["lab"] == LAB


@pytest.fixture(params=[2, 3])
def version(request):
    return request.param


@pytest.mark.parametrize("consolidated", [False, True])
def test_new_levels_are_seen_and_dropped_ones_are_gone(tmp_path, version, consolidated):
    path = tmp_path / "a"
    make(path, version, consolidated)
    check(path, version, consolidated, {"0": (8, 8)})
    zg.add_levels(path, n_levels=3)
    check(path, version, consolidated, SHAPES)
    zg.add_levels(path, n_levels=2, overwrite=True)
    check(path, version, consolidated, {"0": (8, 8), "1": (4, 4)})
    assert not (path / "2").exists()


def test_an_error_while_arrays_are_made_leaves_what_was(tmp_path, version, monkeypatch):
    path = tmp_path / "a"
    make(path, version, True)
    create = zarr.Group.create_array

    def fail_at_2(group, name, **options):
        made = create(group, name, **options)
        if name == "2":
            raise OSError("disk full")
        return made

    monkeypatch.setattr(zarr.Group, "create_array", fail_at_2)
    with pytest.raises(OSError, match="disk full"):
        zg.add_levels(path, n_levels=4)
    check(path, version, True, {"0": (8, 8)})
    with pytest.raises(OSError, match="disk full"):
        zg.build(np.zeros((8, 8)), tmp_path / "b", n_levels=3, version=f"0.{version + 2}")
    assert not list(zarr.open_group(tmp_path / "b").keys())
    assert "multiscales" not in str(zarr.open_group(tmp_path / "b").attrs.asdict())


@pytest.mark.parametrize("when", ["before the list is written", "while pixels are written"])
def test_an_error_later_on(tmp_path, version, monkeypatch, when):
    path = tmp_path / "a"
    make(path, version, True)

    def fail(*_, **__):
        raise KeyboardInterrupt

    if when == "before the list is written":
        monkeypatch.setattr(complete, "with_datasets", fail)
    else:
        monkeypatch.setattr(complete, "consolidate", fail)
    with pytest.raises(KeyboardInterrupt):
        zg.add_levels(path, n_levels=3)
    check(path, version, True, {"0": (8, 8)} if when.startswith("before") else SHAPES)


def test_an_error_while_a_new_image_is_filled(tmp_path, version, monkeypatch):
    data = zarr.create_array(tmp_path / "data", shape=(8, 8), chunks=(8, 8), dtype="u2")
    data[...] = 1
    (tmp_path / "data" / "c" / "0" / "0").write_bytes(b"torn")
    with pytest.raises(Exception, match=r"(?i)decompress|zstd"):
        zg.build(data, tmp_path / "b", n_levels=3, version=f"0.{version + 2}")
    group = zarr.open_group(tmp_path / "b")
    assert {name: array.shape for name, array in group.arrays()} == SHAPES
    assert listed(group) == list(SHAPES)
    assert image.is_image(group)
