"""What is written, as others read it: validators, readers in Python, and one in JavaScript where node is."""

import shutil
import subprocess
import warnings
from pathlib import Path

import numpy as np
import pytest
import yaozarrs

import ziggurat as zg
from ziggurat.testing import tree_hash

PIXELS = np.random.default_rng(7).integers(0, 2**16, (2, 3, 521, 300), "uint16")
SCALE, TRANSLATION = (1.0, 2.0, 0.5, 0.25), (0.0, 1.0, 10.0, 20.0)
# Level k: shape and, along z, y and x, scale and translation; x stops at 150, z is thin.
LEVELS = [
    ((2, 3, 521, 300), (2.0, 0.5, 0.25), (1.0, 10.0, 20.0)),
    ((2, 3, 521, 150), (2.0, 0.5, 0.5), (1.0, 10.0, 20.125)),
    ((2, 3, 260, 150), (2.0, 1.0, 0.5), (1.0, 10.25, 20.125)),
    ((2, 3, 130, 150), (2.0, 2.0, 0.5), (1.0, 10.75, 20.125)),
]


@pytest.fixture(scope="module", params=["0.4", "0.5", "0.5 sharded"])
def image(request, tmp_path_factory):
    where = tmp_path_factory.mktemp("interchange") / "image.ome.zarr"
    pyramid = zg.build(
        PIXELS,
        where,
        scale=SCALE,
        translation=TRANSLATION,
        units=dict.fromkeys("zyx", "micrometer"),
        chunks=(1, 1, 128, 128),
        shards=(1, 1, 256, 256) if "sharded" in request.param else None,
        version=request.param.split()[0],
    )
    zg.build(PIXELS[0] % 7, "cells", labels_of=pyramid)
    pyramid.create_label("empty")
    return pyramid


def test_the_levels_are_where_they_should_be(image):
    assert [(v.shape, v.scale[1:], v.translation[1:]) for v in image.levels] == LEVELS


def test_validators(image):
    from ome_zarr_models import open_ome_zarr

    for path in ("", "labels/cells", "labels/empty", "labels"):
        # Nothing in a 0.4 list of labels names its version.
        if (path, image.image.version) != ("labels", "0.4"):
            yaozarrs.validate_zarr_store(f"{image.where}/{path}")
        with warnings.catch_warnings(action="ignore"):
            found = open_ome_zarr(f"{image.where}/{path}")
        assert found.ome_zarr_version == image.image.version


def test_ome_zarr(image):
    with warnings.catch_warnings(action="ignore"):
        from ome_zarr.io import parse_url
        from ome_zarr.reader import Reader

        nodes = list(Reader(parse_url(image.where))())
    assert [a.shape for a in nodes[0].data] == [shape for shape, _, _ in LEVELS]
    places = nodes[0].metadata["coordinateTransformations"]
    for k, (lazy, transforms) in enumerate(zip(nodes[0].data, places, strict=True)):
        assert np.array_equal(lazy.compute(), image[k][...])
        assert transforms[0]["scale"][1:] == list(LEVELS[k][1])
        assert transforms[1]["translation"][1:] == list(LEVELS[k][2])
    assert [node.zarr.basename() for node in nodes[2:]] == ["cells", "empty"]


def test_ngff_zarr(image):
    with warnings.catch_warnings(action="ignore"):
        import ngff_zarr

        found = ngff_zarr.from_ngff_zarr(str(image.where), validate=True)
    for k, read in enumerate(found.images):
        assert np.array_equal(np.asarray(read.data), image[k][...])
        assert tuple(read.scale[a] for a in "zyx") == LEVELS[k][1]
        assert tuple(read.translation[a] for a in "zyx") == LEVELS[k][2]
    assert found.images[0].axes_units["x"] == "micrometer"


def test_ngio(image):
    from ngio import open_ome_zarr_container

    with warnings.catch_warnings(action="ignore"):
        container = open_ome_zarr_container(image.where)
        for k in range(4):
            read = container.get_image(path=str(k))
            assert np.array_equal(read.get_as_numpy(), image[k][...])
            assert (read.pixel_size.z, read.pixel_size.y, read.pixel_size.x) == LEVELS[k][1]
        assert sorted(container.list_labels()) == ["cells", "empty"]
        label = container.get_label("cells", path="3")
        assert np.array_equal(label.get_as_numpy(), zg.open_pyramid(f"{image.where}/labels/cells")[3][...])


def test_consolidating_leaves_all_metadata_bytes(image):
    def metadata():
        return {k: v for k, v in tree_hash(image.where).items() if k.rpartition("/")[2].startswith((".z", "zarr.json"))}

    before = metadata()
    assert len(before) > 10
    for k in range(10):
        image.set_array(k, (0, 0, 5, 5))
        zg.consolidate(image, regions="touched" if k % 2 else None)
        assert metadata() == before


ZARRITA = """
import * as zarr from "zarrita";
const root = zarr.root(new (await import("@zarrita/storage")).FileSystemStore(process.argv[2]));
const group = await zarr.open(root, { kind: "group" });
const { multiscales } = group.attrs.ome ?? group.attrs;
const sums = [];
for (const { path } of multiscales[0].datasets) {
  const level = await zarr.get(await zarr.open(root.resolve(path), { kind: "array" }));
  sums.push(level.data.reduce((a, b) => a + b, 0));
}
console.log(JSON.stringify(sums));
"""


def test_zarrita(image, tmp_path):
    modules = _node_modules()
    if modules is None:
        pytest.skip("zarrita is not installed: make viewer")
    (tmp_path / "node_modules").symlink_to(modules)
    (tmp_path / "read.mjs").write_text(ZARRITA)
    command = ["node", str(tmp_path / "read.mjs"), str(image.where)]
    output = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    assert [int(n) for n in output.strip("[]\n").split(",")] == [int(a[...].sum(dtype="i8")) for a in image.arrays]


def _node_modules():
    """Return the directory in which zarrita is; None without it, or without node."""
    modules = Path(__file__).parents[1] / "viewer" / "node_modules"
    return modules if shutil.which("node") and (modules / "zarrita").is_dir() else None
