"""Pyramids on Google Cloud Storage, through gcsfs and obstore: the objects of local ones, few requests, no fill."""

import json
import logging
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import dask
import numpy as np
import pytest
import zarr
from zarr.core.sync import sync
from zarr.storage import FsspecStore

import ziggurat as zg
from gcs import BUCKET, gcs
from s3 import seeded
from twins import BACKENDS, LEVELS, Twin, pixels
from ziggurat.config import ConstantBackoff, RetryConfig
from ziggurat.errors import PyramidNotFoundError, ZigguratError
from ziggurat.remote import open_url

core = pytest.importorskip("gcsfs.core")

BOX = (slice(3, 20), slice(34, 50))
RUNS = pytest.mark.parametrize(("backend", "mode"), [("fsspec", "numpy"), ("fsspec", "dask"), ("obstore", "dask")])
KINDS = (503, 429, "cut")
TRANSIENT = RetryConfig(
    max_retries=9,
    backoff=ConstantBackoff(delay_s=0.001),
    retry_on=["503", "429", "ClientPayloadError", "ServerDisconnected", "HTTP error"],
)


@pytest.fixture(scope="module")
def server():
    with pytest.MonkeyPatch.context() as patch, gcs() as server:
        patch.setenv("NO_PROXY", "127.0.0.1")
        yield server


@pytest.fixture
def bucket(server, monkeypatch):
    """Give the server, without faults and with fresh counts, to clients that do not retry by themselves.

    What kind of bucket it is gcsfs asks through gRPC; it gets what there is to say of an ordinary one.
    """
    extended = pytest.importorskip("gcsfs.extended_gcsfs")

    async def kind(fs, name):
        return extended.BucketType.NON_HIERARCHICAL

    monkeypatch.setattr(extended.ExtendedGcsFileSystem, "_get_bucket_type", kind)
    monkeypatch.setattr(core.GCSFileSystem, "_request", core.GCSFileSystem._request.__wrapped__)
    server.reset()
    server.page_size = 1000
    yield server
    server.reset()
    zg.get_config().io_retry = RetryConfig()


def options(bucket, backend):
    if backend == "fsspec":
        return {"endpoint_url": bucket.url, "token": "anon"}
    key = {"gcs_base_url": bucket.url, "disable_oauth": True, "client_email": "", "private_key": ""}
    return {
        "service_account_key": json.dumps(key | {"private_key_id": ""}),
        "client_options": {"allow_http": True},
        "retry_config": {"max_retries": 0},
    }


class Image(Twin):
    def __init__(self, bucket, backend, name, local, shards=True):
        self.name = name
        self.bucket = bucket
        super().__init__(f"gs://{BUCKET}/{name}", options(bucket, backend), backend, local, shards)
        bucket.reset()

    def objects(self):
        return objects(self.bucket, self.name)

    def files(self):
        return files(self.local)

    def keys(self, what):
        """List the chunks that were asked for, as often as they were."""
        found = [key.removeprefix(f"{self.name}/") for (asked, key) in self.bucket.counts.elements() if asked == what]
        return sorted(key for key in found if "/c/" in key)


def objects(bucket, name):
    """Return what lies in the bucket, but for the bookkeeping, which holds what only this store says of its objects."""
    found = {key.removeprefix(f"{name}/"): o.content for key, o in bucket.objects.items() if key.startswith(f"{name}/")}
    return {key: content for key, content in found.items() if ".ziggurat" not in key}


def files(place):
    found = {path.relative_to(place).as_posix(): path for path in place.rglob("*") if path.is_file()}
    return {key: path.read_bytes() for key, path in found.items() if ".ziggurat" not in key}


@pytest.fixture
def image(bucket, request, tmp_path):
    """Make an image that no other test has."""
    return lambda backend, shards=True: Image(bucket, backend, f"{request.node.name} #%20.zarr", tmp_path / "a", shards)


# --- the same objects


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_is_built_is_as_a_local_one(bucket, request, tmp_path, backend):
    name = f"{request.node.name} #%20.zarr"
    chosen = {"storage_options": options(bucket, backend), "backend": backend}
    for data in (np.zeros((90, 80), "uint8"), pixels()):  # the second time over what is there
        for where, more in ((tmp_path / "a.zarr", {}), (f"gs://{BUCKET}/{name}", chosen)):
            zg.build(
                data, where, axes="yx", name="a", chunks=(8, 8), shards=(16, 16), factors=[2, 2], overwrite=True, **more
            )
        assert objects(bucket, name) == files(tmp_path / "a.zarr")
    assert len(objects(bucket, name)) == (12 - 2 + 4 + 1) + 4
    assert not zg.verify(f"gs://{BUCKET}/{name}", **chosen).is_stale


@RUNS
@pytest.mark.parametrize("shards", [True, False])
def test_full_and_regional_rebuilds_are_as_local_ones(image, backend, mode, shards):
    image = image(backend, shards)
    pyramids = zg.open_pyramid(image.local, LEVELS), image.open()
    for pyramid in pyramids:
        zg.consolidate(pyramid, mode=mode)
    assert image.objects() == image.files()
    assert "2/c/0/0" in image.objects()
    before = image.objects()
    for pyramid in pyramids:
        pyramid[0][BOX] = 9
    reports = [zg.consolidate(pyramid, mode=mode, regions=[BOX]) for pyramid in pyramids]
    assert reports[0].n_units == reports[1].n_units > 0
    assert image.objects() == image.files()
    assert image.objects()["2/c/0/0"] != before["2/c/0/0"]


def test_both_backends_see_one_image(image):
    image = image("fsspec")
    zg.consolidate(image.open())
    other = zg.open_pyramid(image.url, LEVELS, storage_options=options(image.bucket, "obstore"), backend="obstore")
    assert not zg.verify(other).is_stale
    other[0][BOX] = 9
    assert zg.verify(image.open()).is_stale


def test_process_workers_open_it_too(image):
    image = image("fsspec")
    zg.consolidate(zg.open_pyramid(image.local, LEVELS))
    # The class that never asks for the kind of a bucket: other processes know nothing of the answer given here.
    fs = core.GCSFileSystem(asynchronous=True, use_listings_cache=False, **image.options)
    pyramid = zg.open_pyramid(FsspecStore(fs, path=f"{BUCKET}/{image.name}"), LEVELS)
    with dask.config.set(scheduler="processes", num_workers=1):
        zg.consolidate(pyramid, mode="dask")
    assert image.objects() == image.files()


@pytest.mark.parametrize("backend", BACKENDS)
def test_units_that_hold_only_fill_are_deleted_and_no_others(image, bucket, tmp_path, backend):
    """For fsspec the names of these images are patterns: the first would match the second, and not itself."""
    image = image(backend)  # [fsspec]
    neighbour = Image(bucket, backend, image.name.replace(f"[{backend}]", backend[0]), tmp_path / "b")
    pyramids = zg.open_pyramid(image.local, LEVELS), image.open()
    for pyramid in (*pyramids, neighbour.open()):
        zg.consolidate(pyramid)
    before = neighbour.objects()
    for pyramid in pyramids:
        pyramid[0][:] = 0
        zg.consolidate(pyramid)
    assert image.objects() == image.files()
    assert not [key for key in image.objects() if "/c/" in key]
    sync(image.store.delete_dir("1"))
    assert set(image.objects()) == {"zarr.json", "0/zarr.json", "2/zarr.json"}
    assert neighbour.objects() == before


@pytest.mark.parametrize("given", ["store", "group", "arrays"])
def test_stores_that_are_given_delete_as_those_of_urls(image, given):
    image = image("fsspec")
    fs = open_url(image.url, image.options).fs
    store = FsspecStore(fs, path=f"{BUCKET}/{image.name}")
    arrays = [zarr.open_array(store, path=path) for path in LEVELS]
    where = {"store": store, "group": zarr.open_group(store), "arrays": arrays}[given]
    pyramid = zg.open_pyramid(where, None if given == "arrays" else LEVELS)
    zg.consolidate(pyramid)
    assert "1/c/0/0" in image.objects()
    pyramid[0][:] = 0
    zg.consolidate(pyramid)
    assert not [key for key in image.objects() if "/c/" in key]


def test_deletions_are_sent_as_google_wants_them(image, monkeypatch):
    """Google itself is sent deletions in batches, of which each may fail; other places get one by one."""
    monkeypatch.setattr(core.GCSFileSystem, "on_google", True)
    monkeypatch.setattr(core, "asyncio", SimpleNamespace(**vars(core.asyncio) | {"sleep": at_once}))
    image = image("fsspec")
    zg.consolidate(image.open())
    image.open()[0][:] = 0
    faults = seeded(1, 1.0, n_errors=1, keys=lambda key: "/1/c/" in key, kinds=(503, 429))
    image.bucket.reset(lambda what, key, attempt: faults(what, key, attempt) if what == "delete" else None)
    zg.consolidate(image.open())
    deleted = image.keys("delete")
    assert {key: deleted.count(key) for key in deleted} == {f"1/c/{i}/{j}": 2 for i in (0, 1) for j in (0, 1)} | {
        "2/c/0/0": 1
    }
    assert image.bucket.counts["batch", ""] == len(deleted)
    assert not [key for key in image.objects() if "/c/" in key]
    sync(image.store.delete_dir("1"))
    assert set(image.objects()) == {"zarr.json", "0/zarr.json", "2/zarr.json"}


async def at_once(delay):
    pass


@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")  # of aiohttp, to gcsfs
def test_an_object_of_many_megabytes_is_uploaded_in_parts(image, tmp_path):
    """From 50 MiB on gcsfs puts parts; the object is there when it is whole."""
    bucket, name = image("fsspec").bucket, "large.zarr"
    chosen = {"storage_options": options(bucket, "fsspec"), "n_levels": 1, "axes": "yx", "compressors": None}
    data = np.arange(51 * 2**17, dtype="uint64").reshape(51 * 2, 2**16)
    zg.build(data, f"gs://{BUCKET}/{name}", chunks=data.shape, **chosen)
    assert bucket.counts["put", f"{name}/0/c/0/0"] == 1 + 2  # the beginning, and two parts
    assert bucket.objects[f"{name}/0/c/0/0"].content == data.tobytes()


# --- what changed


@RUNS
def test_what_others_changed_is_found_by_listing(image, backend, mode):
    image = image(backend)
    image.bucket.page_size = 5
    twin, pyramid = zg.open_pyramid(image.local, LEVELS), image.open()
    for one in (twin, pyramid):
        zg.consolidate(one, mode=mode)
    assert zg.consolidate(pyramid, mode=mode, regions="changed").n_units == 0
    size, shard = len(image.files()["0/c/0/1"]), twin[0][0:16, 16:32]
    for more in range(1, 100):  # its size shall not tell
        twin[0][0:16, 16:32] = shard + np.uint16(more)
        if len(image.files()["0/c/0/1"]) == size:
            break
    assert len(image.files()["0/c/0/1"]) == size
    twin[0][32:40, 48:50] = 0
    image.bucket.put(f"{image.name}/0/c/0/1", image.files()["0/c/0/1"])
    image.bucket.delete(f"{image.name}/0/c/2/3")
    zg.consolidate(twin)
    image.bucket.reset()
    report = zg.consolidate(image.open(), mode=mode, regions="changed")
    assert report.n_units == 3
    assert image.objects() == image.files()
    assert sum(n for (what, _), n in image.bucket.counts.items() if what == "list") >= 3
    assert not [key for (what, key) in image.bucket.counts if what == "stat" and "/c/" in key]
    assert zg.consolidate(pyramid, mode=mode, regions="changed").n_units == 0


@pytest.mark.parametrize("backend", BACKENDS)
def test_marks_of_others_are_honoured_once(image, backend):
    image = image(backend)
    image.bucket.page_size = 2
    twin, pyramid = zg.open_pyramid(image.local, LEVELS), image.open()
    for one in (twin, pyramid):
        zg.consolidate(one)
        one[0][BOX] = 9
    others = [image.open() for _ in range(3)]
    for k, other in enumerate(others):
        other.mark([(slice(3 + 6 * k, min(9 + 6 * k, 20)), BOX[1])])
    report = zg.consolidate(pyramid, regions="marked")
    assert report.n_units == zg.consolidate(twin, regions=[BOX]).n_units
    assert image.objects() == image.files()
    assert not [key for key in image.bucket.objects if f"{image.name}/0/.ziggurat/marks" in key]
    assert zg.consolidate(pyramid, regions="marked").n_units == 0


@pytest.mark.parametrize("scheme", ["gs", "gcs"])
def test_arrays_that_others_made_are_listed(image, scheme):
    image = image("fsspec")
    group = zarr.open_group(open_url(f"{scheme}://{BUCKET}/{image.name}", image.options), mode="r")
    assert sorted(group.array_keys()) == LEVELS
    image.bucket.put(f"{image.name}/3/zarr.json", image.objects()["2/zarr.json"])
    assert sorted(group.array_keys()) == [*LEVELS, "3"]


# --- requests


@RUNS
def test_a_full_rebuild_gets_each_shard_once(image, backend, mode):
    image = image(backend)
    report = zg.consolidate(image.open(), mode=mode)
    assert image.keys("get") == sorted(f"0/c/{i}/{j}" for i in range(3) for j in range(4))
    assert image.keys("put") == sorted(key for key in image.objects() if key[:4] in ("1/c/", "2/c/"))
    assert not image.keys("stat")
    assert report.n_gets == len(image.keys("get"))
    # The rest: metadata of the group and its arrays in each of their possible forms, listings, marks.
    assert sum(image.bucket.counts.values()) - len(image.keys("get")) - len(image.keys("put")) <= 35


# --- faults


@RUNS
def test_with_the_policy_faults_are_outlived(image, caplog, backend, mode):
    caplog.set_level(logging.WARNING, "ziggurat.retry")
    image = image(backend)
    zg.consolidate(zg.open_pyramid(image.local, LEVELS))
    zg.get_config().io_retry = TRANSIENT
    image.bucket.reset(seeded(1, share=0.5, n_errors=3, kinds=KINDS))
    report = zg.consolidate(image.open(), mode=mode)
    assert min(image.bucket.given[fault] for fault in KINDS) > 0
    assert report.n_retries > 5
    assert len(caplog.records) > 5
    assert image.objects() == image.files()


MARKERS = {
    ("fsspec", 503): ["HttpError", "503"],
    ("fsspec", 429): ["HttpError", "429"],
    ("fsspec", "cut"): ["ClientPayloadError", "payload"],
    ("obstore", 503): ["GenericError", "503"],
    ("obstore", 429): ["GenericError", "429"],
    ("obstore", "cut"): ["GenericError", "HTTP error"],
}


@pytest.mark.parametrize(("backend", "kind"), MARKERS)
@pytest.mark.parametrize(("what", "level", "mode"), [("get", "0/c/", "dask"), ("put", "1/c/", "numpy")])
def test_without_the_policy_the_error_arrives_and_nothing_is_fill(image, backend, kind, what, level, mode):
    image = image(backend)
    zg.consolidate(zg.open_pyramid(image.local, LEVELS))
    pyramid = image.open()
    faults = seeded(3, share=0.5, n_errors=9, keys=lambda key: key.startswith(level), kinds=[kind])

    def fail(asked, key, attempt):
        return faults(asked, key.removeprefix(f"{image.name}/"), attempt) if asked == what else None

    image.bucket.reset(fail)
    with pytest.raises(Exception) as error:
        zg.consolidate(pyramid, mode=mode)
    assert image.bucket.given[kind] > 0
    assert type(error.value).__module__.partition(".")[0] in ("aiohttp", "gcsfs", "obstore")
    assert image.objects().items() <= image.files().items()
    text = f"{type(error.value).__name__}: {error.value}"
    page = (Path(__file__).parents[1] / "docs/howto/s3.md").read_text(encoding="utf-8")
    for marker in MARKERS[backend, kind]:
        assert marker in text
        assert marker in page


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_cannot_be_asked_is_not_taken_for_missing(image, backend):
    image = image(backend)
    pyramid = image.open()
    pyramid.mark([BOX])
    marks = "0/.ziggurat/marks/"
    for key, kind in [("zarr.json", 503), ("0/zarr.json", "cut"), (marks, 429), (marks, "cut")]:
        image.bucket.reset(
            lambda what, asked, attempt, key=key, kind=kind: kind if asked.endswith(f"r/{key}") else None
        )
        with pytest.raises(Exception) as error:
            zg.consolidate(image.open(), regions="marked")
        assert image.bucket.given[kind] > 0
        assert not isinstance(error.value, ZigguratError)
    image.bucket.reset()
    assert zg.consolidate(pyramid, regions="marked").n_units > 0


@pytest.mark.parametrize("n_errors", [5, 6])
def test_gcsfs_makes_six_attempts_by_itself(image, monkeypatch, n_errors):
    image = image("fsspec")
    attempt = core.retry_request(retries=core.GCSFileSystem.retries)
    monkeypatch.setattr(core.GCSFileSystem, "_request", attempt(core.GCSFileSystem._request))
    monkeypatch.setattr("gcsfs.retry.asyncio", SimpleNamespace(sleep=at_once))
    image.bucket.reset(lambda what, key, attempt: 503 if "/0/c/0/0" in key and attempt <= n_errors else None)
    if n_errors == 6:
        with pytest.raises(core.HttpError, match="503"):
            zg.consolidate(image.open())
    else:
        zg.consolidate(image.open())
    assert len([key for key in image.keys("get") if key == "0/c/0/0"]) == 6


# --- what is refused


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_is_not_there_is_refused(bucket, backend):
    for url in (f"gs://{BUCKET}/nowhere", "gs://no-such-bucket/a.zarr"):
        with pytest.raises(PyramidNotFoundError, match=url):
            zg.open_pyramid(url, LEVELS, storage_options=options(bucket, backend), backend=backend)


MISSING = """
import sys
import ziggurat as zg
from ziggurat.errors import StoreError
for name in ("gcsfs", "s3fs", "obstore", "obstore.store"):
    sys.modules[name] = None
for url, backend in [("gs://a/b", "fsspec"), ("gcs://a/b", "fsspec"), ("gs://a/b", "obstore"), ("s3://a/b", "fsspec")]:
    for do in (zg.open_pyramid, lambda *a, **kw: zg.build([[1]], *a, **kw)):
        try:
            do(url, backend=backend)
        except StoreError as error:
            print(error)
"""


def test_a_missing_package_is_named_with_the_extra_that_brings_it():
    # In a process of its own: fsspec keeps the classes that it has found.
    command = [sys.executable, "-W", "error", "-c", MISSING]
    lines = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.splitlines()
    assert lines[::2] == lines[1::2]
    parts = [("gs://a/b", "gcsfs", "gcs"), ("gcs://a/b", "gcsfs", "gcs"), ("gs://a/b", "obstore", "gcs")]
    for line, (url, package, extra) in zip(lines[::2], [*parts, ("s3://a/b", "s3fs", "s3")], strict=True):
        assert line.startswith(f"{url} cannot be opened with ")
        assert package in line
        assert f"pip install 'ziggurat[{extra}]'" in line
