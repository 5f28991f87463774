"""`build`: any data in, level 0 and all levels out, in one pass and in bounded memory."""

import tracemalloc
import warnings
import weakref
from functools import partial
from itertools import pairwise, product
from pathlib import Path

import dask
import dask.array as da
import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from zarr.storage import LocalStore, MemoryStore, ZipStore

import ziggurat as zg
from clusters import cluster, in_processes
from reference import reference
from ziggurat.blocks import Block
from ziggurat.errors import (
    DTypeError,
    GeometryError,
    LevelError,
    MemoryLimitError,
    MetadataError,
    MethodError,
    ModeError,
    StoreError,
)
from ziggurat.events import Finished, Progress
from ziggurat.geometry import Stretch, edges_from_factors
from ziggurat.grid import Level
from ziggurat.stages import plan_stage
from ziggurat.steps import Step
from ziggurat.testing import CountingStore, tree_hash
from ziggurat.virtual import as_source

RNG = np.random.default_rng(5)
CYX = RNG.integers(0, 2**16, (2, 301, 547), "uint16")


def chunks_only(path):
    """Return the hashes of all chunks, without the bookkeeping."""
    return {k: v for k, v in tree_hash(path).items() if ".ziggurat" not in k}


def sources(pixels):
    """Yield the same pixels as everything that they can be built from."""
    yield "numpy", pixels
    yield "fortran", np.asfortranarray(pixels)
    yield "big-endian", pixels.astype(pixels.dtype.newbyteorder(">"))
    yield "dask", da.from_array(pixels, chunks=(1, 100, 137))
    yield "dask, chunks as they are stored", da.from_array(pixels, chunks=(1, 64, 64))
    yield "dask, column by column", da.from_array(pixels, chunks=(2, 64, 64)).map_blocks(np.asfortranarray)
    yield "dask, uneven", da.from_array(pixels, chunks=((1, 1), (7, 200, 94), (500, 47)))
    yield "zarr", zarr.array(pixels, chunks=(1, 64, 64), store=MemoryStore())


def test_any_source_and_mode_gives_the_same_bytes(tmp_path):
    """Every two of source, mode and version meet; of a version, all are alike, whatever the mode."""
    seen = {}
    for (i, (name, data)), (j, mode) in product(enumerate(sources(CYX)), enumerate(["numpy", "dask"])):
        where, version = tmp_path / name / mode, ["0.5", "0.4"][(i + j) % 2]
        pyramid = zg.build(
            data, where, axes="cyx", chunks=(1, 64, 64), scale=(1, 0.5, 0.5), name="same", mode=mode, version=version
        )
        assert np.array_equal(pyramid[0][...], CYX), name
        assert [level.shape for level in pyramid.levels] == [(2, 301, 547), (2, 150, 273), (2, 150, 136)]
        assert not zg.verify(pyramid).is_stale
        assert chunks_only(where) == seen.setdefault(version, chunks_only(where)), (name, mode)


def test_the_levels_are_those_of_the_method():
    pixels = CYX[:, :61, :83]
    pyramid = zg.build(pixels, MemoryStore(), axes="cyx", chunks=(1, 8, 8), method="median", factors=[2] * 4)
    shapes = [(2, 61, 83), (2, 30, 41), (2, 15, 20), (2, 7, 10), (2, 3, 5)]
    assert [level.shape for level in pyramid.levels] == shapes
    for fine, coarse in pairwise(pyramid.arrays):
        edges = edges_from_factors(fine.shape, coarse.shape, (1, 2, 2))
        assert np.array_equal(coarse[...], reference(fine[...], edges, "median"))


@pytest.mark.parametrize("shards", [None, (1, 128, 128)])
@pytest.mark.parametrize("method", ["mean", "cubic", "nearest"])
def test_small_write_blocks_change_nothing(tmp_path, method, shards):
    config, before = zg.get_config().dask, zg.get_config().dask.write_block_max_bytes
    options = {"axes": "cyx", "chunks": (1, 64, 64), "shards": shards, "method": method, "name": "same"}
    zg.build(CYX, tmp_path / "numpy", **options, mode="numpy")
    try:
        config.write_block_max_bytes = 1
        zg.build(CYX, tmp_path / "dask", **options, mode="dask")
    finally:
        config.write_block_max_bytes = before
    assert chunks_only(tmp_path / "numpy") == chunks_only(tmp_path / "dask")


shapes = st.lists(st.sampled_from([1, 2, 3, 5, 8, 13]), min_size=1, max_size=5).filter(lambda s: np.prod(s) < 3000)


@settings(max_examples=30, deadline=None)
@given(shapes, st.sampled_from(["bool", "int8", "uint16", "float32", "complex64"]), st.sampled_from(["numpy", "dask"]))
def test_any_shape_and_dtype(shape, dtype, mode):
    pixels = np.random.default_rng(1).integers(0, 2, shape).astype(dtype)
    version = None if len(shape) == 1 else "0.5"
    pyramid = zg.build(pixels, MemoryStore(), version=version, chunks=[4] * len(shape), mode=mode)
    assert np.array_equal(pyramid[0][...], pixels)
    assert pyramid.levels[0].dtype == np.dtype(dtype)
    assert not zg.verify(pyramid).is_stale


def test_data_is_computed_once(tmp_path):
    computed = []

    def look(block, block_info=None):
        if block_info:
            computed.append(block_info[0]["chunk-location"])
        return block + 1

    data = da.from_array(CYX, chunks=(1, 128, 128)).map_blocks(look, dtype="uint16", meta=np.empty(0, "uint16"))
    pyramid = zg.build(data, tmp_path / "a", axes="cyx", chunks=(1, 64, 64), mode="dask")
    assert len(computed) == len(set(computed)) == 2 * 3 * 5
    assert np.array_equal(pyramid[0][...], CYX + 1)


def test_a_source_array_is_read_once_and_no_level_is_read_back(tmp_path):
    store = CountingStore(MemoryStore())
    source = zarr.create_array(store, shape=CYX.shape, chunks=(1, 64, 64), dtype="uint16")
    source[...] = CYX
    target = CountingStore(LocalStore(tmp_path / "a"))
    store.reset()
    zg.build(source, target, axes="cyx", mode="dask")
    chunk_gets = [n for key, n in store.gets.items() if "c/" in key]
    assert len(chunk_gets) == 2 * 5 * 9
    assert set(chunk_gets) == {1}
    assert not [key for key in target.gets if "/c/" in key]
    assert {n for key, n in target.sets.items() if "/c/" in key} == {1}


def test_what_is_told(tmp_path):
    events: list[Progress] = []
    pyramid = zg.build(CYX, tmp_path / "a", axes="cyx", chunks=(1, 64, 64), progress=events.append, mode="dask")
    report = events[-1].report
    assert isinstance(events[-1], Finished)
    assert [(level.name, level.shape) for level in report.levels] == [(r.name, r.shape) for r in pyramid.levels]
    assert [level.n_units for level in report.levels] == [level.n_units for level in pyramid.levels]
    assert {event.level for event in events} <= {0, 1, 2}
    assert report.method == "mean"
    assert report.bytes_read == CYX.nbytes
    assert (report.stages[0].first, report.stages[0].last) == (0, 2)


# --- metadata


@pytest.mark.parametrize("version", ["0.5", "0.4"])
def test_metadata(tmp_path, version):
    zg.build(
        np.zeros((1, 600, 300), "float32"),
        tmp_path / "my image.ome.zarr",
        axes=("t", "y", "x"),
        scale={"t": 30.0, "y": 0.5, "x": 0.5},
        translation={"x": 10.0},
        units={"t": "second", "y": "micrometer", "x": "micrometer"},
        method="median",
        nodata=float("nan"),
        version=version,
    )
    group = zarr.open_group(tmp_path / "my image.ome.zarr", mode="r")
    assert group.metadata.zarr_format == (3 if version == "0.5" else 2)
    attributes = group.attrs.asdict()
    (entry,) = (
        attributes["ome" if version == "0.5" else "multiscales"]["multiscales"]
        if version == "0.5"
        else (attributes["multiscales"])
    )
    assert entry["name"] == "my image"
    assert entry["axes"] == [
        {"name": "t", "type": "time", "unit": "second"},
        {"name": "y", "type": "space", "unit": "micrometer"},
        {"name": "x", "type": "space", "unit": "micrometer"},
    ]
    assert entry["datasets"] == [
        {
            "path": "0",
            "coordinateTransformations": [
                {"type": "scale", "scale": [30.0, 0.5, 0.5]},
                {"type": "translation", "translation": [0.0, 0.0, 10.0]},
            ],
        },
        {
            "path": "1",
            "coordinateTransformations": [
                {"type": "scale", "scale": [30.0, 1.0, 1.0]},
                {"type": "translation", "translation": [0.0, 0.25, 10.25]},
            ],
        },
        {
            "path": "2",
            "coordinateTransformations": [
                {"type": "scale", "scale": [30.0, 2.0, 1.0]},
                {"type": "translation", "translation": [0.0, 0.75, 10.25]},
            ],
        },
    ]
    assert entry["type"] == "median"
    assert entry["metadata"]["kwargs"] == {"method": "median", "nodata": "nan"}
    assert zg.open_pyramid(group).method == "median"


def test_arrays_are_stored_as_asked_for(tmp_path):
    options = {"axes": "cyx", "shards": (1, 128, 128), "chunks": (1, 64, 64), "fill_value": 7}
    codec = zarr.codecs.ZstdCodec(level=1)
    pyramid = zg.build(CYX, tmp_path / "a", **options, compressors=codec)
    for array in pyramid.arrays:
        assert (array.shards, array.chunks, array.fill_value) == ((1, 128, 128), (1, 64, 64), 7)
        assert array.compressors == (codec,)
        assert array.metadata.dimension_names == ("c", "y", "x")
    default = zg.build(CYX, tmp_path / "b", axes="cyx")[1]
    assert default.compressors[0].to_dict()["configuration"]["cname"] == "zstd"
    assert (default.shards, default.chunks) == (None, (1, 150, 273))


def test_other_axes_than_the_usual():
    pyramid = zg.build(np.zeros((4, 300, 300)), MemoryStore(), axes=("angle", "y", "x"))
    assert pyramid.axes == ("angle", "y", "x")
    assert pyramid.levels[1].shape == (4, 150, 150)
    plain = zg.build(np.zeros((300, 300)), MemoryStore(), axes=("u", "v"), version=None)
    assert [level.shape for level in plain.levels] == [(300, 300), (150, 150)]


def test_a_pyramid_is_written_anew_with_other_chunks(tmp_path):
    first = zg.build(
        CYX, tmp_path / "a", axes="cyx", scale=(1, 2, 2), units={"x": "meter"}, method="min", version="0.4"
    )
    zarr.open_group(tmp_path / "a").attrs.update({"omero": {"channels": [{"label": "DAPI"}]}, "lab": 1})
    for again in (first, zg.open_pyramid(tmp_path / "a")):
        second = zg.build(again, tmp_path / "b", chunks=(2, 32, 32), shards=(2, 64, 64), overwrite=True)
        assert second.image.axes == first.image.axes
        assert [level.scale for level in second.levels] == [level.scale for level in first.levels]
        assert (second.method, second[0].shards) == ("min", (2, 64, 64))
        assert np.array_equal(second[1][...], first[1][...])
    attributes = zarr.open_group(tmp_path / "b").attrs.asdict()
    assert attributes["ome"]["omero"] == {"channels": [{"label": "DAPI"}]}
    assert attributes["lab"] == 1


# --- where


def test_places(tmp_path):
    group = zarr.create_group(tmp_path / "g", attributes={"lab": {"note": "keep"}})
    zg.build(CYX, group, axes="cyx")
    assert zarr.open_group(tmp_path / "g").attrs["lab"] == {"note": "keep"}
    zg.build(CYX, f"file://{tmp_path}/with%20space", axes="cyx")
    assert (tmp_path / "with space" / "zarr.json").exists()
    odd = tmp_path / "100% # odd" / "deep" / "a"
    zg.build(CYX, odd, axes="cyx")
    assert zg.open_pyramid(odd).levels[0].shape == CYX.shape
    inner = zarr.open_group(tmp_path / "g").create_group("inner/image")
    assert zg.build(CYX, inner, axes="cyx")[1].path == "inner/image/1"


def test_into_a_zip_archive(tmp_path):
    store = ZipStore(tmp_path / "a.zip", mode="w")
    with warnings.catch_warnings(action="error"):
        zg.build(CYX, store, axes="cyx")
    store.close()
    assert not zg.verify(tmp_path / "a.zip").is_stale


@pytest.mark.parametrize("overwrite", [False, True])
def test_what_is_there_is_kept_unless_told(tmp_path, overwrite):
    def build(where, **options):
        return zg.build(CYX, where, axes="cyx", **options)

    build(tmp_path / "a", n_levels=5)
    zarr.create_array(tmp_path / "b", shape=(3,), dtype="u1")
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "notes.txt").write_text("mine")
    (tmp_path / "d").write_text("mine")
    before = tree_hash(tmp_path)
    for name in "ab":
        if overwrite:
            build(tmp_path / name, overwrite=True)
            assert sorted(zarr.open_group(tmp_path / name).array_keys()) == ["0", "1", "2"]
        else:
            with pytest.raises(StoreError, match=rf"something at {tmp_path / name} already.*overwrite=True"):
                build(tmp_path / name)
    for name in "cd":
        with pytest.raises(StoreError):
            build(tmp_path / name, overwrite=overwrite)
    if not overwrite:
        assert tree_hash(tmp_path) == before
    assert (tmp_path / "c" / "notes.txt").read_text() == (tmp_path / "d").read_text() == "mine"


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"axes": "yx"}, MetadataError, r"axes \('y', 'x'\) do not name the 3 axes"),
        ({"axes": "yyx"}, MetadataError, "do not name"),
        ({"axes": "xyc"}, MetadataError, "OME-Zarr 0.5 does not allow this image.*axes="),
        ({"scale": (1, 2)}, MetadataError, "scale .* has 2 numbers"),
        ({"scale": {"q": 2}}, MetadataError, r"scale is given for \['q'\]"),
        ({"scale": (1, float("nan"), 1)}, MetadataError, "not finite"),
        ({"units": {"q": "meter"}}, MetadataError, "units are given for"),
        ({"method": "average"}, MethodError, "no method 'average'"),
        ({"method": "mean", "nodata": -1}, MethodError, "nodata=-1"),
        ({"mode": "fast"}, ModeError, "'fast'"),
        ({"chunks": (64, 64)}, GeometryError, "chunks"),
        ({"chunks": (1, 64, 64), "shards": (1, 100, 64)}, GeometryError, "hold no whole chunks"),
        ({"shards": (1, 64, 64), "version": "0.4"}, GeometryError, "no shards"),
        ({"n_levels": 99}, GeometryError, "at most"),
        ({"factors": [0]}, GeometryError, "factor"),
        ({"factors": [(2, 2)]}, GeometryError, "factor"),
    ],
)
def test_what_is_refused_leaves_nothing(tmp_path, options, error, said):
    with pytest.raises(error, match=said):
        zg.build(CYX, tmp_path / "a", **{"axes": "cyx"} | options)
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (np.array(["a", "b"]), DTypeError),
        (np.zeros((2, 2), "M8[s]"), DTypeError),
        (np.float32(3), GeometryError),
        (np.zeros((2, 2, 2, 2, 2, 2)), MetadataError),
        (np.zeros(5), MetadataError),
        (zarr.create_group({}), DTypeError),
    ],
)
def test_data_that_is_no_image(tmp_path, data, error):
    with pytest.raises(error):
        zg.build(data, tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_an_error_of_the_data_reaches_the_caller(tmp_path):
    def broken(block):
        raise ZeroDivisionError("no such plane")

    data = da.ones((64, 64), chunks=32).map_blocks(broken, dtype="f8", meta=np.empty(0))
    for mode in ("numpy", "dask"):
        with pytest.raises(ZeroDivisionError, match="no such plane"):
            zg.build(data, tmp_path / mode, mode=mode)


# --- levels for an image that is there


@pytest.mark.parametrize("version", [2, 3])
def test_add_levels_inherits_what_level_0_is(tmp_path, version):
    options = {"shards": (128, 128), "dimension_names": ("y", "x")} if version == 3 else {"order": "F"}
    separator = {"name": "default" if version == 3 else "v2", "separator": "."}
    array = zarr.create_array(
        tmp_path / "a",
        name="s0",
        shape=(601, 403),
        chunks=(64, 64),
        dtype=">u2",
        fill_value=3,
        compressors=zarr.codecs.GzipCodec(level=2) if version == 3 else "auto",
        chunk_key_encoding=separator,
        zarr_format=version,
        **options,
    )
    array[...] = 9
    pyramid = zg.add_levels(zg.open_pyramid(tmp_path / "a", levels=["s0"]))
    assert [(level.name, level.shape) for level in pyramid.levels[1:]] == [("s1", (300, 201)), ("s2", (150, 201))]
    varying = ("shape", "codecs", "chunk_grid", "chunks")
    for other in pyramid.arrays[1:]:
        one, two = ({k: v for k, v in a.metadata.to_dict().items() if k not in varying} for a in (array, other))
        assert one == two
        assert (other.compressors, other.filters, other.shards is None) == (
            array.compressors,
            array.filters,
            version == 2,
        )
    assert (pyramid[2][...] == 9).all()


@pytest.mark.parametrize("version", ["0.4", "0.5"])
def test_add_levels_lists_them_and_leaves_the_rest(tmp_path, version):
    zg.build(CYX, tmp_path / "a", axes="cyx", scale=(1, 0.5, 0.5), translation=(0, 1, 2), n_levels=1, version=version)
    group = zarr.open_group(tmp_path / "a")
    attributes = group.attrs.asdict()
    entry = attributes.get("ome", attributes)["multiscales"][0]
    entry["coordinateTransformations"] = [{"type": "scale", "scale": [1, 10, 10]}]
    del entry["type"]
    group.attrs.put({**attributes, "lab": 5})
    pyramid = zg.add_levels(tmp_path / "a", method="max")
    after = zarr.open_group(tmp_path / "a").attrs.asdict()
    listed = after.get("ome", after)["multiscales"][0]
    assert after["lab"] == 5
    assert listed["datasets"][0] == entry["datasets"][0]
    assert listed["datasets"][1]["coordinateTransformations"][1]["translation"] == [0.0, 1.25, 2.25]
    assert listed["type"] == "max"
    assert pyramid.levels[1].scale == (1.0, 10.0, 10.0)
    assert not zg.verify(tmp_path / "a").is_stale


def test_add_levels_refuses_and_replaces(tmp_path):
    zg.build(CYX, tmp_path / "a", axes="cyx")
    with pytest.raises(LevelError, match=r"has coarser levels, \['1', '2'\].*overwrite=True"):
        zg.add_levels(tmp_path / "a")
    pyramid = zg.add_levels(tmp_path / "a", factors=[3], overwrite=True)
    assert [level.shape for level in pyramid.levels] == [(2, 301, 547), (2, 100, 182)]
    assert sorted(zarr.open_group(tmp_path / "a").array_keys()) == ["0", "1"]
    zarr.open_group(tmp_path / "a").create_array("x", shape=(2,), dtype="u1")
    zarr.open_group(tmp_path / "b", mode="w").create_array("0", shape=(600, 600), chunks=(64, 64), dtype="u1")
    zarr.open_group(tmp_path / "b").create_group("1")
    alone = zg.open_pyramid(tmp_path / "b", levels=["0"])
    with pytest.raises(StoreError, match=r"something at \['1'\]"):
        zg.add_levels(alone)


# --- labels


@pytest.mark.parametrize("version", ["0.4", "0.5"])
def test_labels_lie_in_their_image(tmp_path, version):
    image = zg.build(CYX, tmp_path / "a", axes="cyx", scale=(1, 0.5, 0.25), translation=(0, 3, 4), version=version)
    cells = RNG.integers(0, 9, (301, 547), "uint32")
    labels = zg.build(cells, "cells", labels_of=image)
    other = zg.build(da.from_array(cells[None]), "other", labels_of=tmp_path / "a", axes="cyx")
    assert labels.axes == ("y", "x")
    assert (labels.method, other.method) == ("mode", "mode")
    assert (labels.levels[0].scale, labels.levels[0].translation) == ((0.5, 0.25), (3.0, 4.0))
    assert [level.shape[-2:] for level in labels.levels] == [level.shape[-2:] for level in image.levels]
    group = zarr.open_group(tmp_path / "a" / "labels")
    found = group.attrs.asdict()
    assert found.get("ome", found)["labels"] == ["cells", "other"]
    reopened = zg.open_pyramid(tmp_path / "a" / "labels" / "cells")
    assert reopened.image.is_label
    assert reopened.image.version == version
    assert [p.where.rpartition("/")[2] for p in zg.open_pyramids(tmp_path / "a" / "labels")] == ["cells", "other"]


def test_labels_that_do_not_fit(tmp_path):
    image = zg.build(CYX, tmp_path / "a", axes="cyx")
    with pytest.raises(GeometryError, match="say their scale="):
        zg.build(np.zeros((10, 10), "u1"), "small", labels_of=image)
    with pytest.raises(MetadataError, match="has not"):
        zg.build(np.zeros((10, 10), "u1"), "small", labels_of=image, axes="zy")
    with pytest.raises(MetadataError, match="name of a label image"):
        zg.build(np.zeros((301, 547), "u1"), Path("x"), labels_of=image)
    assert not (tmp_path / "a" / "labels").exists()
    zg.build(np.zeros((10, 10), "u1"), "small", labels_of=image, scale=(30, 54))
    with pytest.raises(StoreError, match="overwrite=True"):
        zg.build(np.zeros((10, 10), "u1"), "small", labels_of=image, scale=(30, 54))


def test_an_empty_label_image(tmp_path):
    image = zg.build(CYX, tmp_path / "a", axes="cyx", scale=(1, 0.5, 0.25), shards=(1, 128, 128), chunks=(1, 64, 64))
    labels = image.create_label("cells", "uint16")
    assert [(a.shape, a.chunks, a.shards) for a in labels.arrays] == [
        (a.shape[1:], a.chunks[1:], a.shards[1:]) for a in image.arrays
    ]
    assert [(v.scale, v.translation) for v in labels.levels] == [(v.scale[1:], v.translation[1:]) for v in image.levels]
    labels.set_array(4, (slice(0, 100), slice(0, 100)))
    zg.consolidate(labels)
    assert labels[1][0, 0] == 4


# --- every image of a plate


@pytest.mark.parametrize("version", ["0.4", "0.5"])
def test_plates(tmp_path, version):
    plate = zarr.create_group(tmp_path / "p", zarr_format=2 if version == "0.4" else 3)
    wells = {"A/1": ["0", "1"], "B/2": ["0"]}

    def describe(group, content):
        group.attrs.update(content if version == "0.4" else {"ome": {"version": "0.5", **content}})

    describe(plate, {"plate": {"wells": [{"path": p, "rowIndex": 0, "columnIndex": 0} for p in wells]}})
    for path, images in wells.items():
        describe(plate.create_group(path), {"well": {"images": [{"path": p} for p in images]}})
        for image in images:
            zg.build(CYX[0], tmp_path / "p" / path / image, version=version)
    found = [p.where for p in zg.open_pyramids(tmp_path / "p")]
    assert found == [f"{tmp_path}/p/A/1/0", f"{tmp_path}/p/A/1/1", f"{tmp_path}/p/B/2/0"]
    assert len(list(zg.open_pyramids(tmp_path / "p" / "A" / "1"))) == 2
    assert len(list(zg.open_pyramids(tmp_path / "p" / "A" / "1" / "0"))) == 1


def test_several_multiscales(tmp_path):
    zg.build(CYX[0], tmp_path / "a", name="one")
    group = zarr.open_group(tmp_path / "a")
    ome = group.attrs.asdict()["ome"]
    second = {**ome["multiscales"][0], "name": "two", "datasets": ome["multiscales"][0]["datasets"][1:]}
    group.attrs["ome"] = {**ome, "multiscales": [ome["multiscales"][0], second]}
    assert [p.name for p in zg.open_pyramids(tmp_path / "a")] == ["one", "two"]
    assert zg.open_pyramid(tmp_path / "a", index=1).levels[0].shape == (150, 273)


# --- memory, schedulers, stores


def test_memory_follows_the_plan_and_not_the_data(tmp_path):
    events: list[Progress] = []

    def build(n, name):
        data = da.random.default_rng(0).integers(0, 99, (n, 2048, 2048), dtype="u2", chunks=(1, 512, 512))
        zg.build(data, tmp_path / name, axes="zyx", chunks=(1, 256, 256), mode="dask", progress=events.append)
        return events[-1].report.peak_bytes

    with dask.config.set(scheduler="sync"):
        build(8, "first")  # Imports and compiles.
        tracemalloc.start()
        promised = build(8, "second")
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < promised + 8 * 2**20 < 8 * 2048 * 2048 * 2


CHUNKS = {"a unit": (1, 256, 256), "less": (1, 128, 128), "more": (2, 512, 512), "all": (8, 1024, 1024), "numpy": None}


@pytest.mark.parametrize("shards", [None, (1, 512, 512)])
@pytest.mark.parametrize("chunks", CHUNKS.values(), ids=CHUNKS)
def test_chunks_are_held_one_at_a_time(tmp_path, chunks, shards):
    computed: list[weakref.ref] = []
    alive: list[int] = []
    events: list[Progress] = []

    def compute(block_info):
        alive.append(sum(ref() is not None for ref in computed))
        pixels = np.full(block_info[None]["chunk-shape"], 7, "u2")
        pixels[..., ::3] = block_info[None]["chunk-location"][-1]
        computed.append(weakref.ref(pixels))
        return pixels

    def build(name, whole):
        data, shape = whole, whole.shape
        if chunks:
            cut = da.core.normalize_chunks(tuple(map(min, chunks, shape)), shape)
            data = da.map_blocks(compute, chunks=cut, dtype="u2", meta=np.empty((0, 0, 0), "u2"))
        options = {"axes": "zyx", "chunks": (1, 256, 256), "shards": shards, "mode": "dask", "progress": events.append}
        zg.build(data, tmp_path / name, **options)
        return events[-1].report.stages[0].peak_bytes

    whole = np.arange(8 * 1024 * 1024, dtype="u2").reshape(8, 1024, 1024)
    with dask.config.set(scheduler="sync"):
        build("first", whole[:1, :512, :512])  # Imports and compiles.
        computed.clear()
        alive.clear()
        tracemalloc.start()
        promised = build("second", whole)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    if chunks:
        assert len(computed) == np.prod([-(-n // c) for n, c in zip(whole.shape, chunks, strict=True)])
        assert not any(alive)
    assert peak < promised + 2**20


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_chunk_is_the_block_as_it_is(order):
    pixels = np.asarray(RNG.integers(0, 99, (64, 64), "u2"), order=order)
    data = da.map_blocks(lambda: pixels, chunks=((64,), (64,)), dtype="u2", meta=pixels)
    source = as_source(data)
    step = Step(source.level, source.level, (Stretch(64, 64),) * 2, "stride", lends=True)
    block = Block(step, source.level.box, lambda shape: np.empty(shape, "u2"))
    assert block.read(source) == pixels.nbytes
    assert np.shares_memory(block.pixels, pixels) == (order == "C")  # the level above reads along rows
    assert np.array_equal(block.pixels, pixels)
    block.settle()
    assert np.array_equal(block.pixels, pixels) and not np.shares_memory(block.pixels, pixels)


def test_what_is_lent_is_promised_less(tmp_path):
    def peak_bytes(data, **options):
        zg.build(data, tmp_path / "a", axes="zyx", chunks=(1, 512, 512), mode="dask", overwrite=True, **options)
        return events[-1].report.stages[0].peak_bytes

    events: list[Progress] = []
    pixels = np.zeros((70, 1024, 1024), "u2")
    options = {"progress": events.append, "n_levels": 2}
    even = peak_bytes(da.from_array(pixels, chunks=(1, 512, 512)), **options)
    assert even < 0.6 * peak_bytes(da.from_array(pixels, chunks=(1, (300, 512, 212), 512)), **options)
    assert even == peak_bytes(pixels, **options)


@pytest.mark.parametrize("n", [1, 2, 64, 640])
def test_blocks_above_what_is_lent_are_no_larger_than_it_needs(n):
    fine, coarse = (Level("", (n, m, m), np.dtype("u2"), *[(1, 1024, 1024)] * 2) for m in (8192, 4096))
    steps = [
        Step(fine, fine, tuple(Stretch(m, m) for m in fine.shape), "stride", lends=True),
        Step(fine, coarse, edges_from_factors(fine.shape, coarse.shape, (1, 2, 2)), "mean"),
    ]
    stage = plan_stage(steps, 1, 8 << 20, 10_000)
    assert (stage.first, stage.last) == (1, 2)
    assert stage.blocks == ((1, 1024, 1024),) * 2
    assert all(s % b == 0 for s, b in zip(stage.step, stage.blocks[-1], strict=True))


@pytest.mark.parametrize("kind", ["numpy", "dask", "zarr"])
def test_processes_give_the_same_bytes(tmp_path, kind):
    on_disk = zarr.create_array(tmp_path / "source", shape=CYX.shape, chunks=(1, 64, 64), dtype="u2")
    on_disk[...] = CYX
    data = {"numpy": CYX, "dask": da.from_array(on_disk) + 1 - 1, "zarr": on_disk}[kind]
    zg.build(CYX, tmp_path / "here", axes="cyx", name="same", chunks=(1, 64, 64))
    with in_processes():
        zg.build(data, tmp_path / "there", axes="cyx", name="same", chunks=(1, 64, 64), mode="dask")
    assert chunks_only(tmp_path / "here") == chunks_only(tmp_path / "there")


def test_processes_cannot_write_what_lies_in_memory():
    with dask.config.set(scheduler="processes"), pytest.raises(StoreError, match="memory of this process"):
        zg.build(CYX, MemoryStore(), axes="cyx", mode="dask")


def test_to_a_url():
    url = "memory://ziggurat-build/a b"
    pyramid = zg.build(CYX, url, axes="cyx", chunks=(1, 64, 64), mode="numpy")
    assert pyramid.where == url
    assert np.array_equal(zg.open_pyramid(url)[0][...], CYX)
    with pytest.raises(StoreError, match="overwrite=True"):
        zg.build(CYX, url, axes="cyx", mode="numpy")
    lazy = zg.open_pyramid(url).to_datatree()["1"]["image"]
    with pytest.raises(StoreError, match="the data is read from memory://"):
        zg.build(lazy, url, overwrite=True)
    zg.build(CYX[:1], url, axes="cyx", mode="numpy", overwrite=True)
    assert zg.open_pyramid(url)[0].shape == (1, 301, 547)
    assert zg.build(CYX[0], "cells", labels_of=url, mode="numpy").method == "mode"


# What was recorded is taken up again


@pytest.mark.parametrize("nodata", [7, float("nan")])
@pytest.mark.parametrize("verb", ["build", "add_levels"])
def test_nodata_is_read_back(tmp_path, nodata, verb):
    pixels = np.arange(600 * 300, dtype="f4" if nodata != nodata else "i4").reshape(600, 300) % 50
    pixels[::3] = nodata
    where = tmp_path / "image.zarr"
    if verb == "build":
        pyramid = zg.build(pixels, where, method="mean", nodata=nodata)
    else:
        zg.build(pixels, where, n_levels=1, method="mean", nodata=nodata)
        pyramid = zg.add_levels(where)
    np.testing.assert_equal(pyramid.nodata, nodata)
    right = tree_hash(where)
    expected = reference(pixels[:60], edges_from_factors((60, 300), (30, 150), 2), "mean", nodata=nodata)
    np.testing.assert_array_equal(pyramid[1][:30], expected)
    assert not zg.verify(where).is_stale
    pyramid[1][...] = 1
    zg.consolidate(where)
    assert chunks_only(where) == {key: value for key, value in right.items() if key in chunks_only(where)}
    # A copy keeps it; a method that is named does not take it.
    assert not zg.verify(zg.build(pyramid, tmp_path / "copy.zarr", chunks=(100, 100))).is_stale
    assert zg.verify(where, method="mean").is_stale


def test_nodata_of_another_method_is_not_taken(tmp_path):
    pyramid = zg.build(np.ones((300, 300), "u1"), tmp_path / "image.zarr", method="mean", nodata=0)
    group = zarr.open_group(tmp_path / "image.zarr")
    ome = group.attrs["ome"]
    ome["multiscales"][0]["type"] = "linear"
    group.attrs["ome"] = ome
    assert (pyramid.nodata, zg.open_pyramid(tmp_path / "image.zarr").nodata) == (0, None)
    zg.consolidate(tmp_path / "image.zarr")


@pytest.mark.parametrize("verb", ["build", "add_levels"])
def test_workers_of_a_client_build(tmp_path, verb):
    pixels = da.random.default_rng(0).integers(0, 1000, (600, 400), dtype="u2", chunks=(150, 400))
    events = []
    with cluster(1) as client, dask.config.set(scheduler="sync"):
        if verb == "build":
            zg.build(pixels, tmp_path / "a.zarr", mode="dask", client=client, progress=events.append)
        else:
            zg.build(pixels, tmp_path / "a.zarr", n_levels=1)
            zg.add_levels(tmp_path / "a.zarr", mode="dask", client=client, progress=events.append)
    assert events[-1].report.mode == "dask"
    assert not zg.verify(tmp_path / "a.zarr").is_stale
    before = tree_hash(tmp_path)
    for build in (partial(zg.build, pixels), zg.add_levels):
        with pytest.raises(ModeError, match=r"distributed\.Client"):
            build(tmp_path / "a.zarr", mode="dask", client="tcp://127.0.0.1:1", overwrite=True)
    assert tree_hash(tmp_path) == before


def test_what_the_scheduler_cannot_do_is_refused_before_the_old_image_is_gone(tmp_path):
    before = np.arange(100, dtype="uint16").reshape(10, 10)
    zg.build(before, tmp_path / "a.zarr")
    store = MemoryStore()
    zg.build(before, store)
    pixels = np.ones((4096, 4096), "uint16")
    seen = tree_hash(tmp_path)
    with cluster(1, memory_limit="8MiB") as client:
        with pytest.raises(MemoryLimitError, match="memory_limit"):
            zg.build(pixels, tmp_path / "a.zarr", mode="dask", client=client, overwrite=True)
        with pytest.raises(MemoryLimitError, match="memory_limit"):
            zg.build(pixels, tmp_path / "new.zarr", mode="dask")
    with dask.config.set(scheduler="processes"), pytest.raises(StoreError, match="memory of this process"):
        zg.build(pixels, store, mode="dask", overwrite=True)
    assert tree_hash(tmp_path) == seen
    assert (zg.open_pyramid(store)[0][...] == before).all()
