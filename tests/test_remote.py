"""Pyramids on S3, through s3fs and obstore, and on web servers: the same bytes as local ones, few requests, no fill."""

import functools
import logging
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import dask
import numpy as np
import pytest
import zarr
from zarr.storage import FsspecStore, LocalStore, ObjectStore

import ziggurat as zg
from s3 import BUCKET, s3, seeded, serving
from twins import BACKENDS, LEVELS, Twin, fill, pixels
from ziggurat.config import ConstantBackoff, RetryConfig, S3fsConfig
from ziggurat.errors import PyramidNotFoundError, ReadOnlyError, StoreError
from ziggurat.remote import open_url
from ziggurat.testing import tree_hash

TRANSIENT = RetryConfig(
    max_retries=9,  # one call of s3fs is up to three requests
    backoff=ConstantBackoff(delay_s=0.001),
    retry_on=[
        "request rate",
        "Service Unavail",
        "429",
        "Too Many Requests",
        "TooManyRequests",
        "request time and the current time",  # RequestTimeTooSkewed
        "PermissionError: Forbidden",  # the same in answer to HEAD, which has no body
        "payload",
        "Connection was closed",
        "HTTP error",
    ],
)


@pytest.fixture(scope="session")
def server():
    with pytest.MonkeyPatch.context() as patch, s3() as proxy:
        patch.setenv("NO_PROXY", "127.0.0.1")
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        yield proxy


@pytest.fixture
def bucket(server, monkeypatch):
    """Give the server, without faults and with fresh counts, to clients that do not retry by themselves."""
    s3fs = pytest.importorskip("s3fs")
    monkeypatch.setattr(s3fs.S3FileSystem, "retries", 1)
    server.reset()
    yield server
    server.reset()
    zg.get_config().io_retry = RetryConfig()
    zg.get_config().s3fs = S3fsConfig()
    zg.refresh_s3fs_config()


def options(bucket, backend):
    if backend == "fsspec":
        client = {
            "client_kwargs": {"region_name": "us-east-1"},
            "config_kwargs": {"retries": {"total_max_attempts": 1}},
        }
        return {"key": "key", "secret": "secret", "endpoint_url": bucket.url, **client}
    client = {"client_options": {"allow_http": True}, "retry_config": {"max_retries": 0}}
    return {
        "access_key_id": "key",
        "secret_access_key": "secret",
        "endpoint": bucket.url,
        "region": "us-east-1",
        **client,
    }


class Remote(Twin):
    def __init__(self, bucket, backend, name, local, shards=True):
        super().__init__(f"s3://{BUCKET}/{name}", options(bucket, backend), backend, local, shards)
        self.name = name
        bucket.reset()


@pytest.fixture
def remote(bucket, request, tmp_path):
    """Make a remote image that no other test has."""
    return lambda backend, shards=True: Remote(
        bucket, backend, f"{request.node.name} #%20.zarr", tmp_path / "a", shards
    )


# --- the same bytes


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("mode", ["numpy", "dask"])
@pytest.mark.parametrize("shards", [True, False])
def test_full_and_regional_rebuilds_are_as_local_ones(remote, tmp_path, backend, mode, shards):
    image = remote(backend, shards)
    twin = zg.open_pyramid(image.local, LEVELS)
    zg.consolidate(twin, mode=mode)
    pyramid = image.open()
    zg.consolidate(pyramid, mode=mode)
    there, here = image.download(tmp_path / "full")
    assert there == here
    assert len(there) == 12 - 2 + 4 + 1
    box = (slice(3, 20), slice(34, 50))
    reports = []
    for one in (twin, pyramid):
        one[0][box] = 9
        reports.append(zg.consolidate(one, mode=mode, regions=[box]))
    assert reports[0].n_units == reports[1].n_units
    assert image.download(tmp_path / "regional") == (tree_hash(tmp_path / "regional"),) * 2


@pytest.mark.parametrize("backend", BACKENDS)
def test_process_workers_open_it_too(remote, tmp_path, backend):
    image = remote(backend)
    zg.consolidate(zg.open_pyramid(image.local, LEVELS))
    with dask.config.set(scheduler="processes", num_workers=1):
        zg.consolidate(image.open(), mode="dask")
    there, here = image.download(tmp_path / "full")
    assert there == here


@pytest.mark.parametrize("backend", BACKENDS)
def test_units_that_hold_only_fill_are_deleted(remote, tmp_path, backend):
    image = remote(backend)  # its name holds brackets, which fsspec takes for a pattern
    pyramid = image.open()
    zg.consolidate(pyramid)
    assert image.download(tmp_path / "full")[0]
    pyramid[0][:] = 0
    zg.consolidate(pyramid)
    assert not image.download(tmp_path / "empty")[0]


@pytest.mark.parametrize("backend", BACKENDS)
def test_verbs_take_the_options(remote, backend):
    image = remote(backend)
    group = zarr.open_group(image.store, mode="r+")
    group.attrs["multiscales"] = [
        {
            "version": "0.4",
            "axes": [{"name": name, "type": "space"} for name in "yx"],
            "datasets": [
                {"path": p, "coordinateTransformations": [{"type": "scale", "scale": [2**k, 2**k]}]}
                for k, p in enumerate(LEVELS)
            ],
        }
    ]
    attributes = {"ome": {"version": "0.5", "multiscales": [dict(group.attrs["multiscales"][0])]}}
    del attributes["ome"]["multiscales"][0]["version"]
    group.attrs.put(attributes)
    chosen = {"storage_options": image.options, "backend": image.backend}
    assert zg.plan(image.url, **chosen).n_units > 0
    assert zg.consolidate(image.url, **chosen).n_units > 0
    assert not zg.verify(image.url, **chosen).is_stale


# --- requests


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("mode", ["numpy", "dask"])
def test_a_full_rebuild_gets_each_shard_once(bucket, remote, backend, mode):
    image = remote(backend)
    zg.consolidate(image.open(), mode=mode)
    gets = {key: n for (method, key), n in bucket.counts.items() if method == "GET" and "/c/" in key}
    puts = {key: n for (method, key), n in bucket.counts.items() if method == "PUT" and "/c/" in key}
    shards = {f"0/c/{i}/{j}" for i in range(3) for j in range(4)}
    assert {key[len(key) - len("0/c/0/0") :] for key in gets} == shards
    assert set(gets.values()) == set(puts.values()) == {1}
    assert not [key for method, key in bucket.counts if method == "HEAD" and "/c/" in key]
    # The rest: metadata of the group and its arrays in each of their possible forms, listings, marks.
    others = sum(n for (method, _), n in bucket.counts.items() if method == "GET") - len(gets)
    assert others <= 30


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("mode", ["numpy", "dask"])
def test_a_regional_rebuild_gets_what_the_plan_says(bucket, remote, backend, mode):
    image = remote(backend)
    pyramid = image.open()
    zg.consolidate(pyramid)
    box = (slice(3, 20), slice(34, 50))
    pyramid[0][box] = 9
    plan = zg.plan(pyramid, mode=mode, regions=[box])
    bucket.reset()
    report = plan.run()
    gets = [key[len(image.name) + 1 :] for (method, key) in bucket.counts.elements() if method == "GET"]
    gets = sorted(key for key in gets if "/c/" in key)
    # Below the unit (0, 1) of level 1, which changes, lie four shards of level 0; levels 1 and 2 are as they were.
    assert [key for key in gets if key.startswith("0/")] == [f"0/c/{i}/{j}" for i in range(2) for j in (2, 3)]
    assert {key for key in gets if key.startswith("1/")} <= {"1/c/0/0", "1/c/0/1", "1/c/1/0", "1/c/1/1"}
    assert report.bytes_read <= plan.bytes_read
    assert report.n_gets == len(gets)
    puts = [key for (method, key) in bucket.counts.elements() if method in ("PUT", "DELETE") and "/c/" in key]
    assert report.n_sets == report.n_units == len(puts)
    assert len(gets) + len(puts) <= plan.n_requests


# --- faults


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("mode", ["numpy", "dask"])
@pytest.mark.parametrize("seed", [1, 2])
def test_with_the_policy_faults_are_outlived(bucket, remote, tmp_path, caplog, backend, mode, seed):
    caplog.set_level(logging.WARNING, "ziggurat.retry")
    image = remote(backend)
    zg.consolidate(zg.open_pyramid(image.local, LEVELS))
    zg.get_config().io_retry = TRANSIENT
    # Four times, so that each of these keys fails in each of the ways.
    bucket.reset(seeded(seed, share=0.5, n_errors=4, keys=lambda key: "?" not in key))
    zg.consolidate(image.open(), mode=mode)
    assert min(bucket.given[fault] for fault in (503, 429, "skewed", "cut")) > 0
    bucket.reset()
    there, here = image.download(tmp_path / "full")
    assert there == here
    assert len(caplog.records) > 5


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("mode", ["numpy", "dask"])
@pytest.mark.parametrize("kind", [503, 429, "skewed", "cut"])
@pytest.mark.parametrize("method", ["GET", "PUT"])
def test_without_the_policy_the_error_arrives_and_nothing_is_fill(
    bucket, remote, tmp_path, backend, mode, kind, method
):
    image = remote(backend)
    zg.consolidate(zg.open_pyramid(image.local, LEVELS))
    pyramid = image.open()
    level = {"GET": "0/c/", "PUT": "1/c/"}[method]
    faults = seeded(3, share=0.5, n_errors=9, keys=lambda key: key.startswith(level))

    def fail(m, key, attempt):
        return kind if m == method and faults(m, key.removeprefix(f"{image.name}/"), attempt) else None

    bucket.reset(fail)
    with pytest.raises(Exception) as error:
        zg.consolidate(pyramid, mode=mode)
    if kind == "skewed":
        assert "request time and the current time" in str(error.value)
    assert bucket.given[kind] > 0
    bucket.reset()
    assert type(error.value).__module__.partition(".")[0] in ("builtins", "botocore", "aiohttp", "obstore")
    assert not isinstance(error.value, BaseExceptionGroup)
    there, here = image.download(tmp_path / "half")
    assert there.items() <= here.items()


MARKERS = {
    ("fsspec", "GET", 503): ["OSError", "request rate"],
    ("fsspec", "GET", 429): ["OSError", "TooManyRequests"],
    ("fsspec", "GET", "cut"): ["ClientPayloadError", "payload"],
    ("fsspec", "PUT", "cut"): ["ConnectionClosedError", "Connection"],
    ("obstore", "GET", 503): ["GenericError", "request rate", "503", "SlowDown"],
    ("obstore", "GET", 429): ["GenericError", "TooManyRequests", "429"],
    ("obstore", "GET", "cut"): ["GenericError", "HTTP error"],
    ("obstore", "PUT", "cut"): ["GenericError", "HTTP error"],
}


@pytest.mark.parametrize(("backend", "method", "fault"), MARKERS)
def test_errors_hold_the_markers_that_the_documentation_names(bucket, remote, backend, method, fault):
    image = remote(backend).open()
    level = {"GET": "0/c/", "PUT": "1/c/"}[method]
    bucket.reset(lambda m, key, attempt: fault if m == method and level in key else None)
    with pytest.raises(Exception) as error:
        zg.consolidate(image)
    text = f"{type(error.value).__name__}: {error.value}"
    page = (Path(__file__).parents[1] / "docs/howto/s3.md").read_text()
    for marker in MARKERS[backend, method, fault]:
        assert marker in text
        assert marker in page
    # What people expect, and what is not there.
    assert ("SlowDown" in text) == (backend == "obstore" and fault == 503)


def test_custom_markers_make_s3fs_retry_by_itself(bucket, remote, tmp_path, monkeypatch):
    import s3fs

    image = remote("fsspec")
    zg.consolidate(zg.open_pyramid(image.local, LEVELS))
    monkeypatch.setattr(s3fs.S3FileSystem, "retries", 2)

    def faults(method, key, attempt):
        return 429 if method == "GET" and "/0/c/1/" in key and attempt == 1 else None

    bucket.reset(faults)
    with pytest.raises(OSError, match="TooManyRequests"):
        zg.consolidate(image.open())
    zg.get_config().s3fs.custom_retry_markers = ["TooManyRequests"]
    zg.refresh_s3fs_config()
    bucket.reset(faults)
    zg.consolidate(image.open())
    assert bucket.given[429] == 4
    there, here = image.download(tmp_path / "full")
    assert there == here


# --- the web, and what is refused


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.mark.parametrize("backend", BACKENDS)
def test_web_servers_are_read_only(tmp_path, backend):
    fill(zarr.create_group(LocalStore(tmp_path / "a b.zarr")), shards=False)  # this server knows no ranges
    before = tree_hash(tmp_path)
    web = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=tmp_path))
    with serving(web):
        url = f"http://127.0.0.1:{web.server_port}/a%20b.zarr"
        chosen = {"client_options": {"allow_http": True}} if backend == "obstore" else {}
        pyramid = zg.open_pyramid(url, LEVELS, storage_options=chosen, backend=backend)
        np.testing.assert_array_equal(pyramid[0][...], pixels())
        with pytest.raises(ReadOnlyError):
            zg.consolidate(pyramid)
        assert zg.verify(pyramid).is_stale
        with pytest.raises(PyramidNotFoundError):
            zg.open_pyramid(url + "/nowhere", LEVELS, storage_options=chosen, backend=backend)
    assert tree_hash(tmp_path) == before


def test_urls_are_opened_by_the_backend_that_is_named(bucket):
    kinds = {"fsspec": FsspecStore, "obstore": ObjectStore}
    for backend in BACKENDS:
        store = open_url(f"s3://{BUCKET}/a", options(bucket, backend), backend)
        assert isinstance(store, kinds[backend])
        assert not store.read_only
    assert isinstance(open_url("gs://bucket/a", {"skip_signature": True}, "obstore"), ObjectStore)


@pytest.mark.parametrize("backend", BACKENDS)
def test_memory_behind_a_url_is_refused_for_processes(backend):
    url = {"fsspec": f"memory://{backend}", "obstore": "memory:///"}[backend]
    store = open_url(url, backend=backend)
    fill(zarr.create_group(store), shards=False)
    arrays = [zarr.open_array(store, path=path, mode="r+") for path in LEVELS]
    with (
        dask.config.set(scheduler="processes", num_workers=1),
        pytest.raises(StoreError, match="memory of this process"),
    ):
        zg.consolidate(arrays, mode="dask")
    zg.consolidate(arrays)
    assert int(arrays[1][0, 0]) == 26  # the mean of 1, 2, 51 and 52 is 26.5, half to even


def test_what_cannot_be_opened_is_refused(bucket, tmp_path):
    for backend in BACKENDS:
        with pytest.raises(StoreError, match="nonsense://a/b"):
            zg.open_pyramid("nonsense://a/b", LEVELS, backend=backend)
    with pytest.raises(StoreError, match="backend 'boto'"):
        zg.open_pyramid("s3://a/b", LEVELS, backend="boto")
    fill(zarr.create_group(LocalStore(tmp_path)), shards=False)
    arrays = [zarr.open_array(tmp_path / path) for path in LEVELS]
    for target in (tmp_path, str(tmp_path), arrays, zg.open_pyramid(arrays)):
        with pytest.raises(StoreError, match="leave them out"):
            zg.consolidate(target, storage_options={"key": "k"})
        with pytest.raises(StoreError, match="leave them out"):
            zg.plan(target, backend="obstore")
    with pytest.raises(PyramidNotFoundError):
        zg.open_pyramid(f"s3://{BUCKET}/nowhere", LEVELS, storage_options=options(bucket, "fsspec"))
