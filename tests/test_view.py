"""`ziggurat view`: what its server answers and refuses, and what Chromium shows of its page."""

import http.client
import json
import shutil
import signal
import socket
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from zarr.codecs import GzipCodec, ShardingCodec, ZstdCodec
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync
from zarr.storage import LocalStore, MemoryStore, ZipStore

import ziggurat as zg
from s3 import BUCKET, s3
from ziggurat import viewing
from ziggurat.errors import StoreError, ViewError
from ziggurat.remote import open_url
from ziggurat.serving import Server, Source, parse_range
from ziggurat.testing import tree_hash

VIEWER = Path(__file__).parents[1] / "viewer"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
BYTES = bytes(range(100))

needs_page = pytest.mark.skipif(
    not (files("ziggurat") / "static" / "index.html").is_file(), reason="the page is not built: make viewer"
)


@pytest.fixture
def directory(tmp_path):
    (tmp_path / "page").mkdir()
    (tmp_path / "page" / "index.html").write_text("<p>a page")
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "data" / "0" / "c").mkdir(parents=True)
    (tmp_path / "data" / "0" / "c" / "a b").write_bytes(BYTES)
    (tmp_path / "data" / "out").symlink_to(tmp_path / "secret")
    (tmp_path / "data" / "above").symlink_to(tmp_path)
    (tmp_path / "data" / "in").symlink_to(tmp_path / "data" / "0" / "c" / "a b")
    return tmp_path


def serve(page, source):
    return viewing.View(Server(page, {"where": "here"}, source))


@pytest.fixture
def site(directory):
    with serve(directory / "page", Source(LocalStore(directory), "data")) as view:
        yield view


def ask(view, path, method="GET", **headers):
    """Return status, headers and body; nothing is normalized on the way."""
    connection = http.client.HTTPConnection(view.url.removeprefix("http://").strip("/"), timeout=30)
    try:
        connection.putrequest(method, path, skip_host="Host" in headers)
        for name, value in headers.items():
            connection.putheader(name.replace("_", "-"), value)
        connection.endheaders()
        response = connection.getresponse()
        return response.status, dict(response.headers), response.read()
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("wanted", "status", "start", "stop"),
    [
        ("bytes=0-9", 206, 0, 10),
        ("bytes=90-", 206, 90, 100),
        ("bytes=90-1000", 206, 90, 100),
        ("bytes=-7", 206, 93, 100),
        ("bytes=-1000", 206, 0, 100),
        ("bytes=100-", 416, None, None),
        ("bytes=-0", 416, None, None),
        ("bytes=9-3", 200, 0, 100),
        ("bytes=0-1,5-6", 200, 0, 100),
        ("chunks=0-1", 200, 0, 100),
        ("bytes=-", 200, 0, 100),
    ],
)
def test_ranges(site, wanted, status, start, stop):
    found, headers, body = ask(site, "/data/0/c/a%20b", Range=wanted)
    assert found == status
    if status == 416:
        assert (headers["Content-Range"], body) == ("bytes */100", b"")
        return
    assert body == BYTES[start:stop]
    assert headers["Content-Length"] == str(stop - start)
    assert headers.get("Content-Range") == (f"bytes {start}-{stop - 1}/100" if status == 206 else None)


def test_an_empty_object_has_no_ranges():
    assert parse_range("bytes=0-", 0) == (0, 0)


def test_head_tells_the_size(site):
    status, headers, body = ask(site, "/data/0/c/a%20b", "HEAD", Range="bytes=0-9")
    assert (status, headers["Content-Length"], body) == (200, "100", b"")
    assert headers["Accept-Ranges"] == "bytes"


@pytest.mark.parametrize(
    "path",
    [
        "/data/../secret",
        "/data/%2e%2e/secret",
        "/data/0/..%2f..%2fsecret",
        "/data/./0/c/a%20b",
        "/data//etc/passwd",
        "/data/%2fetc/passwd",
        "/data/..%5csecret",
        "/data/0/c/a%00",
        "/data/out",
        "/data/above/secret",
    ],
)
def test_nothing_outside_is_served(site, path):
    for method in ("GET", "HEAD"):
        status, _, body = ask(site, path, method)
        assert (status, body) == (403, b"")
    assert ask(site, path, Range="bytes=0-3")[0] == 403


@pytest.mark.parametrize("path", ["/data/0/c", "/data/0/none", "/data", "/secret", "/../secret", "/%2e%2e/secret"])
def test_what_is_no_object_is_not_found(site, path):
    for method in ("GET", "HEAD"):
        assert ask(site, path, method)[0] == 404
    assert ask(site, path, Range="bytes=0-3")[0] == 404


def test_links_inside_are_followed(site):
    assert ask(site, "/data/in")[2] == BYTES


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", ""])
def test_other_names_of_the_host_are_refused(site, host):
    assert ask(site, "/info.json", Host=host)[0] == 403
    assert ask(site, "/data/0/c/a%20b", Host=host)[0] == 403


def test_a_tunnel_may_have_another_port(site):
    assert ask(site, "/info.json", Host="localhost:1")[2] == b'{"where": "here"}'


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_nothing_can_be_written(site, directory, method):
    before = tree_hash(directory / "data" / "0")
    status, headers, _ = ask(site, "/data/0/c/a%20b", method)
    assert (status, headers["Allow"]) == (405, "GET, HEAD")
    assert tree_hash(directory / "data" / "0") == before


def test_other_sites_are_told_nothing(site):
    for path in ("/", "/info.json", "/data/0/c/a%20b"):
        status, headers, _ = ask(site, path, Origin="https://evil.example")
        assert status == 200
        assert not [name for name in headers if name.lower().startswith("access-control-")]
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert "default-src 'self'" in headers["Content-Security-Policy"]


def test_the_page(site):
    status, headers, body = ask(site, "/?x=1")
    assert (status, headers["Content-Type"], body) == (200, "text/html; charset=utf-8", b"<p>a page")


class Failing(MemoryStore):
    async def get(self, *arguments: Any, **options: Any) -> Any:
        raise OSError("the disk is on fire")


def test_a_failed_read_is_no_missing_object(directory):
    with serve(directory / "page", Source(Failing())) as view:
        status, _, body = ask(view, "/data/0")
    assert (status, body) == (500, b"OSError: the disk is on fire")


def test_only_this_computer_is_served(site):
    assert site.url.startswith("http://127.0.0.1:")


def test_a_port_that_is_taken(directory, site):
    port = int(site.url.strip("/").rpartition(":")[2])
    with pytest.raises(ViewError, match=f"port {port} cannot be used"):
        Server(directory / "page", {}, Source(MemoryStore()), port)


def test_closing_ends_open_connections_too(directory):
    view = serve(directory / "page", Source(LocalStore(directory), "data"))
    connection = http.client.HTTPConnection(view.url.removeprefix("http://").strip("/"), timeout=30)
    connection.request("GET", "/")
    assert connection.getresponse().read() == b"<p>a page"
    view.close()
    with pytest.raises(http.client.RemoteDisconnected):
        connection.request("GET", "/")
        connection.getresponse()
    connection.close()
    with pytest.raises(ConnectionError), socket.create_connection((connection.host, connection.port), timeout=30):
        pass


@pytest.mark.parametrize("backend", ["fsspec", "obstore"])
def test_a_store_on_s3(directory, monkeypatch, backend):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    with s3() as bucket:
        options: dict[str, Any] = {"endpoint_url": bucket.url}
        if backend == "obstore":
            options |= {"region": "us-east-1", "client_options": {"allow_http": True}}
        store = open_url(f"s3://{BUCKET}/a", options, backend)
        sync(store.set("image/0/c", default_buffer_prototype().buffer.from_bytes(BYTES)))
        with serve(directory / "page", Source(store, "image")) as view:
            assert ask(view, "/data/0/c")[2] == BYTES
            assert ask(view, "/data/0/c", Range="bytes=-7")[2] == BYTES[-7:]
            assert ask(view, "/data/0/c", "HEAD")[1]["Content-Length"] == "100"
            for headers in ({}, {"Range": "bytes=-7"}):
                assert ask(view, "/data/0/none", **headers)[0] == 404


def build(where, pixels, **options):
    return zg.build(pixels, where, chunks=(16,) * np.ndim(pixels), **options)


def test_levels_of_several_stores_are_refused():
    levels = [zarr.create_array(MemoryStore(), shape=(n, n), chunks=(4, 4), dtype="u1") for n in (8, 4)]
    with pytest.raises(StoreError, match="several stores"):
        viewing.root_of(zg.open_pyramid(levels))


def test_one_axis_is_no_image():
    with pytest.raises(ViewError, match="one axis"):
        viewing.describe(zg.open_pyramid([zarr.create_array({}, shape=(8,), chunks=(4,), dtype="u1")]), "")


def test_shards_that_the_page_cannot_read():
    shard = ShardingCodec(chunk_shape=(4, 4), index_location="start")
    array = zarr.create_array({}, shape=(8, 8), chunks=(8, 8), dtype="u1", serializer=shard, compressors=None)
    with pytest.raises(ViewError, match="index at the start"):
        viewing.describe(zg.open_pyramid([array]), "")


def test_without_a_page(monkeypatch, tmp_path):
    monkeypatch.setattr(viewing, "files", lambda package: tmp_path)
    with pytest.raises(ViewError, match="make viewer"):
        zg.view(build(tmp_path / "a.zarr", np.ones((40, 40), "u1")))


def test_what_the_page_is_told(tmp_path):
    image = build(tmp_path / "a.zarr", np.ones((1, 400, 40), "u2"), axes="cyx", scale=(1, 2, 0.5), units="micrometer")
    build("cells", np.ones((400, 40), "u4"), labels_of=image)
    group = zarr.open_group(tmp_path / "a.zarr")
    omero = {"channels": [{"label": "DAPI", "color": "0000FF", "window": {"start": 1, "end": 9}}]}
    group.update_attributes({"ome": {**group.attrs["ome"], "omero": omero}})
    labels = group["labels"]
    labels.update_attributes({"ome": {**labels.attrs["ome"], "labels": ["cells", "gone"]}})
    told = viewing.describe(zg.open_pyramid(tmp_path / "a.zarr"), "")
    assert told["channels"] == [{"label": "DAPI", "color": "0000ff", "active": True, "window": [1, 9]}]
    assert told["problems"] == ["label 'gone' is listed and is not there"]
    assert [(v["name"], v["is_label"], v["levels"][0]["path"]) for v in told["labels"]] == [
        ("cells", True, "labels/cells/0")
    ]
    assert told["image"]["axes"][1] == {"name": "y", "unit": "micrometer"}
    assert [(v["path"], v["step"], v["start"]) for v in told["image"]["levels"]] == [
        ("0", (1.0, 2.0, 0.5), (-0.5, -1.0, -0.25)),
        ("1", (1.0, 4.0, 0.5), (-0.5, -1.0, -0.25)),
    ]


@needs_page
def test_the_command_line_ends_with_ctrl_c(tmp_path):
    build(tmp_path / "a.zarr", np.ones((40, 40), "u1"))
    command = [sys.executable, "-m", "ziggurat.cli", "view", str(tmp_path / "a.zarr"), "--no-browser", "--json"]
    # Its own session: a shell that runs tests in the background may have them ignore SIGINT.
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None and process.stderr is not None
            text = "".join(process.stdout.readline() for _ in range(3))
            view = type("Shown", (), json.loads(text))
            assert json.loads(ask(view, "/info.json")[2])["where"] == str(tmp_path / "a.zarr")
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 0
            assert process.stderr.read() == ""
        finally:
            process.kill()


# In a browser


def look(tmp_path, *pages):
    """Open pages in Chromium; return what each tells, with the colours of its points."""
    if CHROMIUM is None:
        pytest.skip("there is no Chromium: apt-get install chromium")
    if not (VIEWER / "node_modules" / "playwright-core").is_dir() or shutil.which("node") is None:
        pytest.skip("what drives Chromium is not installed: make viewer")
    from PIL import Image

    asked = [{**page, "picture": str(tmp_path / f"{i}.png")} for i, page in enumerate(pages)]
    done = subprocess.run(
        ["node", str(VIEWER / "test" / "pages.mjs")],
        input=json.dumps({"chromium": CHROMIUM, "pages": asked}),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    for page, what in zip(asked, seen, strict=True):
        assert (what["state"], what["problems"], what["errors"], what["elsewhere"]) == ("ready", "", [], [])
        with Image.open(page["picture"]) as picture:
            pixels = np.asarray(picture.convert("RGB")).astype(int)
        what["colors"] = [pixels[int(y), int(x)] for x, y in what["at"]]
    return seen


def close(colors, expected, tolerance=3):
    return np.abs(np.asarray(colors) - np.asarray(expected)).max() <= tolerance


@needs_page
def test_a_sharded_image_with_labels(tmp_path):
    pixels = np.zeros((2, 3, 700, 900), "u2")
    pixels[0, :, :, 300:] = 500
    pixels[1, 1, :350] = 1000
    pixels[1, 2] = 250
    image = zg.build(
        pixels,
        tmp_path / "a.zarr",
        axes="czyx",
        scale=(1, 2, 0.5, 0.5),
        chunks=(1, 1, 128, 128),
        shards=(1, 1, 512, 512),
    )
    cells = np.zeros((3, 700, 900), "u8")
    cells[:, 100:200, 100:200], cells[:, 500:600, 100:200], cells[:, 500:600, 600:700] = 2**60 + 1, 2**60 + 1, 2**60 + 2
    zg.build(cells, "cells", labels_of=image)
    # What is stored is shown, not what would be computed.
    for k in (1, 2):
        zg.open_pyramid(tmp_path / "a.zarr")[k][0] = 100 * k
    group = zarr.open_group(tmp_path / "a.zarr")
    channels = [{"color": c, "window": {"start": 0, "end": 1000}} for c in ("FF0000", "00FF00")]
    group.update_attributes({"ome": {**group.attrs["ome"], "omero": {"channels": channels}}})

    points = [(250, 50), (450, 50), (450, 650), (150, 150), (150, 550), (650, 550)]
    dark = {"scheme": "dark", "points": points}
    with zg.view(tmp_path / "a.zarr") as view:
        half, all_over, without, above, out = look(
            tmp_path,
            {"url": view.url, "points": points, "steps": [["click", "#outline"]]},
            {"url": view.url, "steps": [["fill", "#opacity", "1"]], **dark},
            {"url": view.url, "steps": [["click", "#labels input[type=checkbox]"]], **dark},
            {"url": view.url, "steps": [["fill", "#opacity", "0"], ["fill", "#axis-z", "2"]], **dark},
            {"url": view.url, "steps": [["fill", "#opacity", "0"], ["zoom", 0.4]], **dark},
        )
    plain = [(0, 255, 0), (128, 255, 0), (128, 0, 0), (0, 255, 0), (0, 0, 0), (128, 0, 0)]
    assert half["level"] == 0
    assert close(without["colors"], plain)
    assert close(all_over["colors"][:3], plain[:3])
    one, again, other = all_over["colors"][3:]
    assert close(one, again) and not close(one, other, 30) and max(one) > 150
    assert close(half["colors"][3:], (np.array(plain[3:]) + all_over["colors"][3:]) / 2)
    assert close(above["colors"][:2], [(0, 64, 0), (128, 64, 0)])
    assert out["level"] == 1 and close(out["colors"][:3], [(26, 255, 0), (26, 255, 0), (26, 0, 0)])
    assert half["background"] != all_over["background"]
    assert "shard 1x1x512x512" in half["text"].replace("\u00d7", "x")


@needs_page
def test_a_label_image_alone(tmp_path):
    image = build(tmp_path / "a.zarr", np.zeros((64, 96), "u1"))
    cells = np.zeros((64, 96), "i4")
    cells[16:, :32], cells[16:, 64:] = 5, 7
    build("cells", cells, labels_of=image)
    with zg.view(tmp_path / "a.zarr") as both, zg.view(tmp_path / "a.zarr" / "labels" / "cells") as alone:
        points = {"scheme": "dark", "points": [(16, 40), (80, 40), (48, 40)]}
        on_top, own = look(
            tmp_path,
            {"url": both.url, "steps": [["fill", "#opacity", "1"]], **points},
            {"url": alone.url, **points},
        )
    assert close(own["colors"][:2], on_top["colors"][:2])
    assert not close(*own["colors"][:2], 30)
    assert close(on_top["colors"][2], (0, 0, 0))


@needs_page
def test_an_image_of_version_04(tmp_path):
    blocks = np.random.default_rng(4).integers(0, 256, (3, 12, 16), "u1")
    zg.build(blocks.repeat(40, 1).repeat(40, 2), tmp_path / "a.zarr", axes="cyx", version="0.4", chunks=(3, 100, 150))
    places = [(y, x) for y in range(1, 12) for x in range(2, 14)]  # where no button is
    with zg.view(tmp_path / "a.zarr") as view:
        (seen,) = look(tmp_path, {"url": view.url, "points": [(40 * x + 20, 40 * y + 20) for y, x in places]})
    assert close(seen["colors"], [blocks[:, y, x] for y, x in places])
    assert "red" in seen["text"] and "0.4" in seen["text"]


def stored(where, values, dtype, layout):
    """Make a plain array, of one level, with one value in each quarter."""
    pixels = np.empty((70, 90), dtype)
    pixels[:35, :45], pixels[:35, 45:], pixels[35:, :45], pixels[35:, 45:] = values
    group = zarr.open_group(where, mode="w", zarr_format=2 if dtype[0] in "<>" else 3)
    group.create_array("0", shape=pixels.shape, dtype=dtype, **layout)[...] = pixels
    return zg.open_pyramid(group, levels=["0"])


def layouts():
    from numcodecs import LZ4, Blosc, Zlib

    chunks, sharded = {"chunks": (32, 25)}, {"chunks": (10, 10), "shards": (40, 40)}
    return {
        ">u2": {**chunks, "compressors": Blosc()},
        "<i4": {**chunks, "compressors": LZ4(), "order": "F"},
        ">f8": {**chunks, "compressors": Zlib()},
        "bool": {**chunks, "compressors": GzipCodec()},
        "int8": {**chunks, "compressors": None},
        "uint64": {**chunks, "compressors": ZstdCodec()},
        "int64": sharded,
        "float16": chunks,
        "float32": sharded,
    }


@needs_page
def test_dtypes_and_codecs(tmp_path):
    points = [(20, 20), (70, 20), (20, 55), (70, 55)]
    values = {"bool": [0, 1, 1, 1], "int8": [0, 50, 100, -56]}
    shown = {}
    for dtype, layout in layouts().items():
        where = MemoryStore() if dtype == "int8" else tmp_path / dtype.strip("<>")
        found = values.get(dtype, [0, 50, 100, 200])
        shown[dtype] = (
            zg.view(stored(where, found, dtype, layout)),
            np.interp(found, [min(found), max(found)], [0, 255]),
        )
    try:
        seen = look(tmp_path, *({"url": view.url, "points": points} for view, _ in shown.values()))
    finally:
        for view, _ in shown.values():
            view.close()
    for (dtype, (_, grey)), what in zip(shown.items(), seen, strict=True):
        assert close(what["colors"], np.repeat(grey[:, None], 3, 1)), dtype


@needs_page
def test_a_zip_archive_with_thin_pixels(tmp_path):
    store = ZipStore(tmp_path / "a.zip", mode="w")
    pixels = np.zeros((300, 600), "f4")
    pixels[:, 300:], pixels[10:20, :] = 1, np.nan
    zg.build(pixels, store, scale=(4, 1), chunks=(64, 64))
    store.close()
    points = [(100, 100), (500, 100), (500, 15), (0, 0), (599, 299)]
    with zg.view(tmp_path / "a.zip") as view:
        (seen,) = look(tmp_path, {"url": view.url, "points": points})
    assert close(seen["colors"][:3], [[0] * 3, [255] * 3, [0] * 3])
    (left, top), (right, bottom) = seen["at"][3:]
    assert (bottom - top) / (right - left) == pytest.approx(4 * 299 / 599)
