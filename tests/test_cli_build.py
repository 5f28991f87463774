"""The command line around new images: build, and what info tells of them."""

import json

import numpy as np
import pytest
import tifffile
import zarr

import ziggurat as zg
from ziggurat.cli import main

PIXELS = np.random.default_rng(9).integers(1, 2**16, (2, 3, 300, 400), "uint16")


@pytest.fixture
def run(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        code = main([str(a) for a in arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return call


def test_build_from_npy(run, tmp_path):
    np.save(tmp_path / "x.npy", PIXELS)
    options = ["--axes", "czyx", "--scale", "1,2,0.5,0.5", "--unit", "micrometer", "--chunks", "1x1x64x64"]
    code, out, err = run("build", "x.npy", "a.zarr", *options, "--shards", "1x1x128x128", "--method", "max")
    assert (code, err) == (0, "")
    assert "1 x 1 x 128 x 128" in out
    pyramid = zg.open_pyramid(tmp_path / "a.zarr")
    assert np.array_equal(pyramid[0][...], PIXELS)
    assert (pyramid.method, pyramid.levels[0].scale) == ("max", (1, 2, 0.5, 0.5))
    assert [axis.unit for axis in pyramid.image.axes] == [None, *["micrometer"] * 3]
    assert not zg.verify(pyramid).is_stale


def test_build_from_zarr(run, tmp_path):
    zarr.create_array(tmp_path / "plain", shape=(300, 400), chunks=(50, 50), dtype="u1")[...] = 3
    assert run("build", "plain", "a.zarr", "-q", "--version", "0.4", "--n-levels", "2") == (0, "", "")
    assert run("build", "a.zarr", "b.zarr", "-q", "--chunks", "32x32")[0] == 0
    assert [p[1].chunks for p in map(zg.open_pyramid, ("a.zarr", "b.zarr"))] == [(50, 50), (32, 32)]
    code, _, err = run("build", "plain", "b.zarr")
    assert (code, "overwrite" in err) == (1, True)
    assert run("build", "plain", "b.zarr", "--overwrite", "-q")[0] == 0
    assert run("build", "plain", "cells", "--labels-of", "b.zarr", "-q")[0] == 0
    assert zg.open_pyramid("b.zarr/labels/cells").method == "mode"


def test_build_from_ome_tiff(run, tmp_path):
    metadata = {"axes": "ZCYX", "PhysicalSizeX": 0.5, "PhysicalSizeXUnit": "nm", "PhysicalSizeZ": 2.0}
    tifffile.imwrite(tmp_path / "a.ome.tif", PIXELS.swapaxes(0, 1), metadata=metadata, tile=(64, 64))
    assert run("build", "a.ome.tif", "a.zarr", "-q") == (0, "", "")
    pyramid = zg.open_pyramid(tmp_path / "a.zarr")
    assert pyramid.axes == ("c", "z", "y", "x")
    assert pyramid.levels[0].scale == (1.0, 2.0, 1.0, 0.5)
    assert [axis.unit for axis in pyramid.image.axes] == [None, "micrometer", None, "nanometer"]
    assert np.array_equal(pyramid[0][...], PIXELS)


def test_build_from_rgb_tiff(run, tmp_path):
    rgb = np.moveaxis(PIXELS[:1].repeat(3, 0)[:, 0].astype("u1"), 0, -1)
    tifffile.imwrite(tmp_path / "a.tif", rgb, photometric="rgb")
    assert run("build", "a.tif", "a.zarr", "-q")[0] == 0
    pyramid = zg.open_pyramid(tmp_path / "a.zarr")
    assert pyramid.axes == ("c", "y", "x")
    assert np.array_equal(np.moveaxis(pyramid[0][...], 0, -1), rgb)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--scale", "a,b"], "'a,b' are no numbers"),
        (["--chunks", "3y3"], "'3y3' are no sizes"),
        (["--axes", "yx"], "do not name the 4 axes"),
    ],
)
def test_what_is_refused(run, tmp_path, options, said):
    np.save(tmp_path / "x.npy", PIXELS)
    code, _, err = run("build", "x.npy", "a.zarr", *options)
    assert code == 1
    assert said in err
    assert not (tmp_path / "a.zarr").exists()


def test_info_says_how_it_is_stored_and_what_changed(run, tmp_path):
    zg.build(PIXELS, tmp_path / "a", axes="czyx", units="micrometer", chunks=(1, 1, 128, 128), shards=(1, 1, 256, 256))
    out = run("info", "a")[1]
    stored = sum(f.stat().st_size for f in (tmp_path / "a" / "1" / "c").rglob("*") if f.is_file())
    assert all(word in out for word in ("x in micrometer", "blosc-zstd", "1 x 1 x 256 x 256", "unchanged since"))
    values = json.loads(run("info", "a", "--json")[1])
    assert values["levels"][1]["stored_bytes"] == stored
    assert values["units"] == dict.fromkeys("zyx", "micrometer")
    zg.open_pyramid("a").set_array(3, (0, 0, 0, 0))
    assert "1 write unit changed since the last rebuild" in run("info", "a")[1]
    zg.open_pyramid("a").mark([(0, 0, 0, 0)])
    assert "1 marked change; 1 write unit changed" in run("info", "a")[1]
    zg.consolidate("a", regions="marked")


def test_info_of_many_images(run, tmp_path):
    group = zarr.create_group("p", attributes={"ome": {"version": "0.5", "well": {"images": [{"path": "0"}]}}})
    zg.build(PIXELS[0, 0], group.create_group("0"))
    out = run("info", "p")[1]
    assert "300 x 400" in out
    assert "1 image" in out
    assert [values["name"] for values in json.loads(run("info", "p", "--json")[1])] == ["0"]


def test_tiff_needs_its_extra(run, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "tifffile", None)
    (tmp_path / "a.tif").touch()
    assert "pip install 'ziggurat[tiff]'" in run("build", "a.tif", "a.zarr")[2]
