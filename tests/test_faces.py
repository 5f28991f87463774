"""What notebooks show: small, safe, in the page's colours, and there even where pixels cannot be read."""

import base64
import re
import struct
import zlib
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
import zarr

import ziggurat as zg
from ziggurat.faces import pyramid_html
from ziggurat.pictures import composite, label_colours, limits, png, shrink, stretch
from ziggurat.plan_face import plan_html
from ziggurat.planes import Planes

MAX_BYTES = 200_000
EVIL = "\"><script>alert('x')</script><b>&"


class Checked(HTMLParser):
    """Collects elements, attributes and text; fails on what a face may not hold."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.open, self.images, self.text, self.paths = [], [], [], "", []
        self.feed(html)
        assert self.open == []
        assert len(html.encode()) < MAX_BYTES

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        assert tag != "script" and not any(name.startswith("on") for name in values)
        assert "background" not in values.get("style", "")
        self.tags.append(tag)
        if tag == "img":
            self.images.append(decoded(values["src"]))
        if tag == "path":
            self.paths.append(values)
        if tag not in ("img", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def decoded(uri):
    """Decode a PNG whose rows are differences, by the book."""
    head, data = uri.split(",", 1)
    assert head == "data:image/png;base64"
    return decoded_png(base64.b64decode(data, validate=True))


def decoded_png(data):
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, at = {}, 8
    while at < len(data):
        (n,), kind = struct.unpack(">I", data[at : at + 4]), data[at + 4 : at + 8]
        assert struct.unpack(">I", data[at + 8 + n : at + 12 + n])[0] == zlib.crc32(data[at + 4 : at + 8 + n])
        chunks[kind] = data[at + 8 : at + 8 + n]
        at += 12 + n
    width, height, depth, kind = struct.unpack(">IIBB", chunks[b"IHDR"][:10])
    n_channels = {2: 3, 6: 4}[kind]
    rows = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(height, -1)
    assert depth == 8 and (rows[:, 0] == 2).all()
    return np.cumsum(rows[:, 1:], axis=0, dtype=np.uint8).reshape(height, width, n_channels)


def made(pixels, **options):
    return zg.build(pixels, zarr.storage.MemoryStore(), **options)


# Pictures


def test_png_by_two_other_readers():
    picture = np.random.default_rng(0).integers(0, 256, (7, 5, 4), np.uint8)
    assert np.array_equal(decoded_png(png(picture)), picture)
    imageio = pytest.importorskip("imageio.v3")
    assert np.array_equal(imageio.imread(png(picture), extension=".png"), picture)


def test_labels_have_colours_of_their_own_and_always_the_same():
    labels = np.arange(1000, dtype="uint32").reshape(20, 50)
    colours = label_colours(labels)
    assert (colours[..., 3] == np.where(labels == 0, 0, 255)).all()
    assert len(np.unique(colours[labels > 0], axis=0)) > 900
    assert np.array_equal(label_colours(labels.astype("int64")[3:9]), colours[3:9])
    assert colours[0, 1].tolist() == label_colours(np.ones((1, 1), "uint8"))[0, 0].tolist()
    brightest = colours[labels > 0][:, :3].max(axis=1)
    assert brightest.min() > 90  # seen on black


def test_contrast_is_that_of_percentiles():
    channel = np.linspace(100, 200, 10_000).reshape(1, 100, 100)
    channel[0, 0, 0] = 1e9
    scaled = stretch(channel, limits(channel))[0]
    assert (scaled.min(), scaled.max()) == (0, 1)
    assert scaled[50, 50] == pytest.approx((channel[0, 50, 50] - 101) / 98.8, abs=0.01)


@pytest.mark.parametrize("value", [0, 7, np.nan, np.inf])
def test_contrast_of_nothing(value):
    flat = np.full((1, 4, 4), value, "float32")
    assert np.isin(stretch(flat, limits(flat)), (0, 0.5, 1)).all()


def test_few_bright_pixels_are_seen():
    sparse = np.zeros((1, 100, 100), "uint16")
    sparse[0, 3, 3] = 9
    assert stretch(sparse, limits(sparse))[0, 3, 3] == 1


def test_channels_are_composited():
    planes = np.zeros((2, 4, 4), "uint16")
    planes[0, 0, 0] = planes[1, 1, 1] = 5
    picture = composite(planes)
    assert picture[0, 0].tolist() == [255, 0, 255] and picture[1, 1].tolist() == [0, 255, 0]
    rgb = np.random.default_rng(0).integers(0, 256, (3, 4, 4), np.uint8)
    assert np.array_equal(composite(rgb), np.moveaxis(rgb, 0, -1))


def test_shrinking_takes_means_and_of_labels_pixels():
    planes = np.arange(35, dtype="uint16").reshape(1, 5, 7)
    small = shrink(planes, 3)
    assert small.shape == (1, 2, 3)
    assert small[0, 0, 0] == planes[0, :3, :3].mean() and small[0, 1, 2] == np.uint16(planes[0, 3:, 6:].mean())
    assert np.array_equal(shrink(planes, 3, is_label=True), planes[:, ::3, ::3])


# Pyramids


def test_middle_plane_and_first_time():
    pixels = np.zeros((2, 1, 5, 300, 260), "uint8")
    pixels[0, 0, 2, :150] = 200
    pixels[1, 0, 2] = pixels[0, 0, 0] = 100
    pyramid = made(pixels, axes="tczyx", n_levels=2, factors=2)
    overview, *rows = Checked(pyramid._repr_html_()).images
    assert len(rows) == 2 and max(overview.shape[:2]) <= 128 and max(rows[0].shape[:2]) <= 40
    assert overview[1, 1].tolist() == [255] * 3 and overview[-1, -1].tolist() == [0] * 3


def test_an_overview_is_made_from_the_coarsest_level_that_suffices():
    pyramid = made(np.full((512, 512), 9, "uint8"), n_levels=4)
    for k in range(4):
        pyramid[k][...] = 0
        pyramid[k][: 512 >> (k + 1)] = 10 * k + 10
    del pyramid[2].store._store_dict["2/c/0/0"]
    overview, *rows = Checked(pyramid._repr_html_()).images
    assert overview.shape == (128, 128, 3) and not overview.any() and not rows[2].any()
    assert rows[0].any() and rows[1].any() and rows[3].any()


def test_labels_are_seen_on_any_page(tmp_path):
    image = zg.build(np.zeros((64, 64), "uint8"), tmp_path / "image.zarr")
    labels = zg.build(np.tri(64, dtype="uint16") * 5, "cells", labels_of=image)
    overview = Checked(labels._repr_html_()).images[0]
    assert overview.shape[2] == 4 and set(np.unique(overview[..., 3])) == {0, 255}


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "float16", ">f4", "complex64"])
@pytest.mark.parametrize("axes", ["x", "yx", "cyx", "czyx", "tczyx"])
def test_every_dtype_and_number_of_axes(dtype, axes):
    pixels = np.ones((1, 2, 3, 20, 30)[-len(axes) :], dtype)
    version = "0.5" if len(axes) > 1 else None
    assert Checked(made(pixels, axes=axes, method="stride", version=version)._repr_html_()).images


def test_noise_in_many_levels_is_still_small():
    pixels = np.random.default_rng(0).integers(1, 2**32, (2048, 2048), "uint32")
    image = made(np.zeros((2048, 2048), "uint8"), n_levels=12, chunks=(2048, 2048))
    labels = zg.build(pixels, "cells", labels_of=image, n_levels=12)
    assert len(Checked(labels._repr_html_()).images) > 8


def test_a_broken_chunk_hides_no_other_level(tmp_path):
    pyramid = zg.build(np.ones((600, 600), "uint16"), tmp_path / "image.zarr", chunks=(100, 100))
    (tmp_path / "image.zarr" / "1" / "c" / "0" / "0").write_bytes(b"<torn>")
    face = Checked(pyramid._repr_html_())
    assert face.text.count("cannot be read") >= 1
    assert len(face.images) >= 2


def test_what_costs_too_much_is_not_read(monkeypatch):
    group = zarr.create_group({})
    arrays = [
        group.create_array(str(k), shape=(n, n), chunks=(4096, 4096), dtype="u2") for k, n in enumerate((2**17, 2**16))
    ]
    monkeypatch.setattr(Planes, "read", lambda *_: pytest.fail("read a level of many gigabytes"))
    assert Checked(zg.open_pyramid(arrays)._repr_html_()).images == []


def test_hostile_names_are_escaped():
    pyramid = made(np.zeros((8, 8), "uint8"))
    evil = replace(
        pyramid, where=EVIL * 50, name=EVIL, axes=(EVIL, "x"), levels=(replace(pyramid.levels[0], name=EVIL),)
    )
    assert EVIL in Checked(pyramid_html(evil)).text
    plan = zg.plan(pyramid)
    evil_plan = replace(plan, where=EVIL * 50, reason=EVIL, levels=(replace(plan.levels[0], name=EVIL),))
    assert EVIL in Checked(plan_html(evil_plan)).text


def test_a_remote_level_is_not_asked_for_again_and_again():
    class Slow(zarr.storage.WrapperStore):
        _supports_sync_io = False

    store = Slow(zarr.storage.MemoryStore())
    zg.build(np.ones((600, 600), "uint8"), store)
    assert len(Checked(zg.open_pyramid(store)._repr_html_()).images) == 1


def test_a_terminal_gets_text():
    pyramid = made(np.ones((64, 64), "uint8"), n_levels=2)
    plan = zg.plan(pyramid)
    assert repr(pyramid).startswith("Pyramid(") and "\n" not in repr(pyramid)
    for thing in (plan, plan.run(), zg.verify(pyramid)):
        assert repr(thing) == str(thing) and "<" not in repr(thing)


# Plans


def levels_of(*sizes, chunk=16):
    group = zarr.create_group({})
    return [group.create_array(str(k), shape=n, chunks=(chunk,) * len(n), dtype="uint8") for k, n in enumerate(sizes)]


def squares(face, colour):
    """Return how many squares are drawn in a colour, per picture that has any."""
    found = []
    for path in face.paths:
        if path.get("fill") == colour:
            found.append(sum(int(w) * int(h) for w, h in re.findall(r"h(\d+)v(\d+)", path["d"])))
    return found


READ, REBUILT, PATCHED = "#3b82f6", "#f59e0b", "#db2777"


def test_a_whole_plan_reads_level_0_and_rebuilds_the_others():
    face = Checked(zg.plan(levels_of((64, 128), (32, 64), (16, 32)))._repr_html_())
    assert (squares(face, READ), squares(face, REBUILT)) == ([4 * 8], [2 * 4, 1 * 2])
    assert "units: 8 rebuilt" in face.text and "never written" in face.text
    assert face.tags.count("svg") == 3


def test_a_regional_plan_shows_what_is_left():
    levels = levels_of((512, 512), (256, 256), (128, 128), chunk=32)
    plan = zg.plan(levels, regions=[((0, 64), (0, 64)), ((511, 512), (511, 512))])
    face = Checked(plan._repr_html_())
    drawn = [sum(squares(face, colour)) for colour in (REBUILT, PATCHED)]
    assert drawn == [sum(d.n_units - d.n_patched for d in plan.dirty), sum(d.n_patched for d in plan.dirty)]
    assert sum(drawn) == plan.n_units
    assert f"{64 - plan.dirty[0].n_units} left" in face.text


def test_a_halo_is_read_too():
    levels = levels_of((256, 256), (128, 128))
    region = [((64, 96), (64, 96))]
    read = [
        squares(Checked(zg.plan(levels, regions=region, method=m)._repr_html_()), READ)[0] for m in ("mean", "cubic")
    ]
    assert read[0] < read[1]


def test_nothing_to_do_draws_nothing():
    face = Checked(zg.plan(levels_of((64, 64), (32, 32)), regions=[])._repr_html_())
    assert squares(face, READ) == squares(face, REBUILT) == []
    assert "units: 4 left" in face.text


@pytest.mark.parametrize("regions", [None, [((k, k + 1), (7 * k, 7 * k + 1)) for k in range(0, 250_000, 50)]])
def test_huge_grids_make_small_pictures(regions):
    group = zarr.create_group({})
    sizes = [2**24 >> k for k in range(12)]
    levels = [group.create_array(str(k), shape=(n, n), chunks=(64, 64), dtype="uint8") for k, n in enumerate(sizes)]
    face = Checked(zg.plan(levels, mode="dask", regions=regions)._repr_html_())
    assert "a square is" in face.text and "4 coarser levels" in face.text


@pytest.mark.parametrize("shape", [(64,), (3, 64, 48), (2, 2, 3, 64, 48)])
def test_any_number_of_axes(shape):
    coarse = (*shape[:-2], *(n // 2 for n in shape[-2:]))
    for regions in (None, [tuple((0, 1) for _ in shape)]):
        assert Checked(zg.plan(levels_of(shape, coarse), regions=regions)._repr_html_()).tags.count("svg") == 2


def test_a_region_of_very_many_units_is_not_enumerated():
    levels = levels_of((8192, 8192), (4096, 4096), chunk=4)
    plan = zg.plan(levels, regions=[((0, 3000), (0, 8192))], mode="dask")
    assert plan.dirty[0].units is None
    assert squares(Checked(plan._repr_html_()), REBUILT) == [12 * 32]


def test_a_virtual_level_has_a_face():
    fine, coarse = levels_of((64, 64), (32, 32))
    fine[...] = 7
    pyramid = zg.open_pyramid([zg.rechunked(fine, (32, 32)), coarse])
    assert len(Checked(pyramid._repr_html_()).images) == 2
    assert squares(Checked(zg.plan(pyramid)._repr_html_()), READ) == [4]


def test_chunks_of_unequal_sizes():
    with zarr.config.set({"array.rectilinear_chunks": True}):
        group = zarr.create_group({})
        sizes = {"0": [[10, 30, 24], [64]], "1": [[20, 12], [10, 22]]}
        levels = [
            group.create_array(k, shape=[sum(s) for s in chunks], chunks=chunks, dtype="u1")
            for k, chunks in sizes.items()
        ]
        levels[0][...] = 1
        pyramid = zg.open_pyramid(levels)
        assert Checked(pyramid._repr_html_()).images
        whole, part = (Checked(zg.plan(pyramid, regions=r)._repr_html_()) for r in (None, [((63, 64), (0, 1))]))
    assert squares(whole, REBUILT) == [32 * 32] and "4 rebuilt" in whole.text
    assert "3 left" in part.text and squares(part, REBUILT) + squares(part, PATCHED) < [32 * 32]


def test_what_is_behind_is_said():
    shape, coarse = (4, 64, 64), (4, 32, 32)
    deep = Checked(zg.plan(levels_of(shape, coarse, chunk=2))._repr_html_())
    assert "behind one another" in deep.text and "2,048 units" in deep.text
    assert "behind" not in Checked(zg.plan(levels_of((64, 64), (32, 32)))._repr_html_()).text
