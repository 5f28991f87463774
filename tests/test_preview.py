"""Previews: the same place in every level, by the metadata; what changed; and what cannot be read."""

import io
import json
import sys
from dataclasses import replace

import numpy as np
import pytest
import zarr

import ziggurat as zg
from ziggurat.cli import main
from ziggurat.dirty import dirty_units
from ziggurat.errors import LevelError, RegionError
from ziggurat.places import default_place, panels
from ziggurat.planes import Planes
from ziggurat.regions import as_boxes

RNG = np.random.default_rng(4)


@pytest.fixture
def image(tmp_path):
    pixels = RNG.integers(0, 2**16, (600, 500), "uint16")
    about = {"scale": (0.5, 0.5), "units": "micrometer", "chunks": (64, 64)}
    return zg.build(pixels, tmp_path / "image.zarr", **about, n_levels=4, factors=2)


def images(figure):
    return [axes.images[0] if axes.images else None for axes in figure.axes]


def none(pyramid):
    return as_boxes([], len(pyramid.levels[0].shape))


def shown(pyramid, place, levels=None):
    levels = range(len(pyramid)) if levels is None else levels
    return panels(pyramid, place, levels, none(pyramid), [none(pyramid)] * len(pyramid))


def test_one_panel_per_level_and_an_overview(image):
    figure = zg.preview(image)
    assert [axes.get_title() for axes in figure.axes] == [
        "the whole, from level 0",
        *(f"level {k}: {600 >> k} x {500 >> k}" for k in range(4)),
    ]
    views = {(*axes.get_xlim(), *axes.get_ylim()) for axes in figure.axes[1:]}
    assert len(views) == 1
    assert figure.axes[0].get_xlabel() == "x [micrometer]"


def test_levels_lie_where_their_metadata_say(image):
    place = ((100, 164), (201, 265))
    _, *levels = shown(image, place)
    for k, panel in enumerate(levels):
        scale, shift = image.levels[k].scale[1], image.levels[k].translation[1]
        left, right, _, _ = panel.extent
        n = panel.picture.shape[1]
        assert right - left == pytest.approx(n * scale)
        first = round((left - shift) / scale + 0.5)
        assert left == pytest.approx(shift + (first - 0.5) * scale)
        assert left <= panel.view[0] + 1e-9 and right >= panel.view[1] - 1e-9
    assert levels[0].extent == levels[0].view == pytest.approx((100.25, 132.25, 49.75, 81.75))


def test_a_shift_in_the_metadata_shows(image):
    place = ((100, 164), (200, 264))
    moved = replace(image.levels[2], translation=(0.75, 0.75 + 2.0))
    shifted = replace(image, levels=(*image.levels[:2], moved, image.levels[3]))
    before, after = (shown(p, place, [0, 2])[2] for p in (image, shifted))
    assert not np.array_equal(before.picture[:, :10], after.picture[:, :10])
    assert np.array_equal(before.picture[:, :10], after.picture[:, 1:11])
    assert before.view == after.view


def test_without_metadata_shapes_tell(image):
    bare = zg.open_pyramid(image.arrays)
    _, *levels = shown(bare, ((128, 192), (64, 128)))
    assert [panel.picture.shape[0] for panel in levels] == [64, 32, 16, 8]
    assert levels[1].extent == pytest.approx((63.5, 127.5, 127.5, 191.5))


def test_one_contrast_for_all_levels():
    pyramid = zg.build(RNG.integers(0, 100, (64, 64), "uint8"), zarr.storage.MemoryStore(), n_levels=3, method="max")
    pyramid[2][...] = 50
    _, *levels = shown(pyramid, ((0, 64), (0, 64)))
    assert np.unique(levels[2].picture).tolist() == pytest.approx([50 / 99 * 255], abs=6)
    assert levels[1].picture.mean() > levels[0].picture.mean()


def test_middle_plane_at_the_same_height():
    pixels = np.zeros((40, 64, 64), "uint8")
    pixels[20:22] = 255
    pyramid = zg.build(pixels, zarr.storage.MemoryStore(), axes="zyx", scale=(1, 1, 1), n_levels=3, factors=2)
    place = ((20, 22), (0, 64), (0, 64))
    _, *levels = shown(pyramid, place)
    assert pyramid.levels[1].shape[0] == 20
    assert all(panel.picture.any() for panel in levels[:2])
    _, *elsewhere = shown(pyramid, ((5, 6), (0, 64), (0, 64)))
    assert not any(panel.picture.any() for panel in elsewhere)


def test_first_time_and_channels():
    pixels = np.zeros((3, 2, 32, 32), "uint16")
    pixels[0, 0, :16] = pixels[0, 1, 16:] = 9
    pyramid = zg.build(pixels, zarr.storage.MemoryStore(), axes="tcyx")
    picture = shown(pyramid, default_place(pyramid))[1].picture
    assert picture[0, 0].tolist() == [255, 0, 255] and picture[-1, 0].tolist() == [0, 255, 0]


def test_labels_have_the_same_colours_in_every_level(image):
    pixels = np.kron(np.arange(1, 10, dtype="uint32").reshape(3, 3), np.ones((200, 167), "uint32"))[:, :500]
    labels = zg.build(pixels, "cells", labels_of=image)
    _, *levels = shown(labels, labels.levels[0].box)
    assert Planes.of(labels).is_label
    colours = [{tuple(c) for c in panel.picture.reshape(-1, 4)} for panel in levels]
    assert len(colours[0]) == 9 and all(c == colours[0] for c in colours)


def test_default_place_shows_the_coarsest_level():
    group = zarr.create_group({})
    arrays = [
        group.create_array(str(k), shape=(n, n), chunks=(256, 256), dtype="u1") for k, n in enumerate((16384, 256))
    ]
    pyramid = zg.open_pyramid(arrays)
    assert default_place(pyramid) == ((7680, 8704), (7680, 8704))
    assert default_place(pyramid, ((0, 1), (16383, 16384))) == ((0, 1024), (15360, 16384))


def test_default_place_is_where_most_is_to_see():
    pixels = np.zeros((2000, 1500), "uint16")
    pixels[1700:1800, 300:400] = RNG.integers(0, 999, (100, 100))
    (top, bottom), (left, right) = default_place(zg.build(pixels, zarr.storage.MemoryStore()))
    assert top <= 1700 and bottom >= 1800 and left <= 300 and right >= 400
    assert (bottom - top, right - left) == (256, 256)
    flat = zg.build(np.ones_like(pixels), zarr.storage.MemoryStore())
    assert default_place(flat) == ((872, 1128), (622, 878))


def test_a_large_place_is_shrunk_and_stays_where_it_is():
    pyramid = zg.build(RNG.integers(0, 9, (40, 4100), "uint8"), zarr.storage.MemoryStore(), n_levels=2, factors=2)
    _, fine, coarse = shown(pyramid, pyramid.levels[0].box)
    assert (fine.picture.shape[1], coarse.picture.shape[1]) == (1367, 1025)
    assert fine.extent[:2] == pytest.approx((-0.5, 4100.5)) and fine.view[:2] == pytest.approx((-0.5, 4099.5))
    assert coarse.extent[:2] == pytest.approx((-0.5, 4099.5))


# Regions


def rectangles(axes):
    return sum(len(collection.get_paths()) for collection in axes.collections)


def test_touched_regions_and_their_units_are_outlined(image):
    image.set_array(7, ((100, 130), (10, 200)))
    figure = zg.preview(image, regions="touched")
    plan = zg.plan(image, regions="touched")
    whole, finest, *coarser = figure.axes
    assert (rectangles(whole), rectangles(finest)) == (2, 1)
    place = default_place(image, ((100, 130), (10, 200)))
    for k, axes in enumerate(coarser, 1):
        units = dirty_units(plan.steps[k - 1], plan.dirty[k - 1].boxes).units
        bounds = np.array(place) >> k
        near = [u for u in units if (u[:, 0] < bounds[:, 1]).all() and (u[:, 1] > bounds[:, 0]).all()]
        assert rectangles(axes) == len(near) > 0
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "the place that is shown", "touched", "write units to rebuild",
    ]  # fmt: skip
    assert image.touched  # a preview settles nothing


def test_stale_units_are_outlined_and_sought(image):
    image[2][0:3, 100:103] = 0
    figure = zg.preview(image, regions="stale")
    assert [rectangles(axes) for axes in figure.axes] == [1, 0, 0, 1, 0]
    assert "nothing" not in figure.get_suptitle()
    assert "nothing to rebuild" in zg.preview(image, regions=[]).get_suptitle()
    (outline,) = figure.axes[3].collections[0].get_paths()
    corners = outline.vertices
    scale, shift = image.levels[2].scale[0], image.levels[2].translation[0]
    assert corners.min(axis=0) == pytest.approx([shift + (64 - 0.5) * scale, shift - 0.5 * scale])
    assert zg.verify(image).is_stale


def test_everything_changed_where_no_rebuild_has_seen_any(tmp_path):
    group = zarr.create_group(tmp_path / "plain")
    for k, n in enumerate((128, 64)):
        group.create_array(str(k), shape=(n, n), chunks=(32, 32), dtype="u1")[...] = 1
    pyramid = zg.open_pyramid(group, levels=["0", "1"])
    figure = zg.preview(pyramid, regions="changed")
    assert [rectangles(axes) for axes in figure.axes] == [2, 1, 1]


# What is wrong


def test_what_cannot_be_read_hides_no_other_level(image, tmp_path):
    for chunk in (tmp_path / "image.zarr" / "1" / "c").rglob("*"):
        if chunk.is_file():
            chunk.write_bytes(b"torn")
    figure = zg.preview(image)
    assert [shown is None for shown in images(figure)] == [False, False, True, False, False]
    assert "cannot be read" in figure.axes[2].texts[0].get_text()
    figure.savefig(io.BytesIO())


def test_what_is_too_large_is_not_read(monkeypatch):
    group = zarr.create_group({})
    arrays = [group.create_array(str(k), shape=(n, n), chunks=(n, n), dtype="u1") for k, n in enumerate((2**15, 2**4))]
    read = Planes.read
    monkeypatch.setattr(Planes, "read", lambda self, k, box: read(self, k, box) if k else pytest.fail("read level 0"))
    figure = zg.preview(zg.open_pyramid(arrays))
    assert "too large" in figure.axes[1].texts[0].get_text()
    assert images(figure)[2] is not None


def test_refusals(image):
    with pytest.raises(LevelError, match="no level 7"):
        zg.preview(image, levels=[7])
    with pytest.raises(RegionError):
        zg.preview(image, where=((0, 9999), (0, 9)))
    with pytest.raises(RegionError, match="larger place"):
        zg.preview(image, where=((5, 5), (0, 9)))
    with pytest.raises(RegionError, match="touched"):
        zg.preview(image, regions="tuched")


def test_without_matplotlib(image, monkeypatch):
    monkeypatch.setitem(sys.modules, "ziggurat.drawing", None)
    with pytest.raises(ImportError, match=r"pip install 'ziggurat\[plot\]'"):
        zg.preview(image)


# The figure


@pytest.mark.parametrize("axes", ["x", "yx", "cyx", "czyx", "tczyx"])
def test_any_number_of_axes(axes):
    pixels = RNG.integers(0, 9, (2, 4, 3, 60, 50)[-len(axes) :], "int16")
    version = "0.5" if len(axes) > 1 else None
    pyramid = zg.build(pixels, zarr.storage.MemoryStore(), axes=axes, version=version, n_levels=2, factors=2)
    figure = zg.preview(pyramid, regions=[tuple((0, 1) for _ in axes)])
    figure.savefig(io.BytesIO())
    assert None not in images(figure)


def test_names_are_no_formulas(image):
    figure = zg.preview(replace(image, name="$\\frac{$"))
    figure.savefig(io.BytesIO())


def test_light_and_dark(image):
    def page(figure):
        return figure.get_facecolor()[:3]

    assert page(zg.preview(image, dark=True)) == (0, 0, 0)
    assert page(zg.preview(image, dark=False)) == (1, 1, 1)


def test_a_notebook_shows_it_once(image, tmp_path):
    import nbformat
    from nbclient import NotebookClient

    code = f"import ziggurat as zg\nzg.preview({str(tmp_path / 'image.zarr')!r})"
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    NotebookClient(book, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    (output,) = book.cells[0].outputs
    assert output["data"]["image/png"]


# The command line


def test_command(image, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["preview", "image.zarr", "-o", "a.png", "--where", "y=10:40,x=20:50", "--dark"]) == 0
    assert capsys.readouterr().out.startswith("a.png: the whole")
    assert (tmp_path / "a.png").read_bytes()[:4] == b"\x89PNG"
    assert main(["preview", "image.zarr", "-o", "a.svg", "--regions", "stale", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["file"] == "a.svg"
    assert (tmp_path / "a.svg").read_text().startswith("<?xml")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-o", "a.txt"], [".txt", ".png"]),
        (["-o", "a.png", "--where", "10:20"], ["10:20", "y=10:12.5"]),
        (["-o", "a.png", "--where", "w=10:20"], ["w"]),
        (["-o", "a.png", "--regions", "nowhere"], ["nowhere"]),
        (["-o", "missing/a.png"], ["missing"]),
    ],
)
def test_command_refuses_in_one_line(image, tmp_path, capsys, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    assert main(["preview", "image.zarr", *arguments]) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1) and all(word in err for word in words), err
