"""What is set in zarr and s3fs: when, for how long, and on which workers."""

import json
import os
import subprocess
import sys
from pathlib import Path

import dask
import dask.array as da
import numpy as np
import pytest
import zarr
from zarr.core.codec_pipeline import BatchedCodecPipeline, FusedCodecPipeline
from zarr.storage import LocalStore, MemoryStore, WrapperStore

import ziggurat as zg
from ziggurat import runtime
from ziggurat.config import S3fsConfig, ZarrConfig
from ziggurat.errors import ConfigError
from ziggurat.handle import Handle
from ziggurat.runtime import FUSED
from ziggurat.store import remake
from ziggurat.testing import CountingStore

BATCHED = "zarr.core.codec_pipeline.BatchedCodecPipeline"
ZARRS = "zarrs.ZarrsCodecPipeline"


@pytest.fixture
def settings():
    """Set one key of the section ``zarr``; the defaults come back afterwards."""
    yield lambda **keys: setattr(zg.get_config(), "zarr", ZarrConfig(**keys))
    zg.get_config().zarr = ZarrConfig()
    zg.get_config().s3fs = S3fsConfig()
    zg.refresh_s3fs_config()


def make(store, shards=None, n=8):
    group = zarr.create_group(store)
    first = group.create_array("0", shape=(n, n), chunks=(4, 4), shards=shards, dtype="uint16", compressors=None)
    first[...] = np.arange(1, n * n + 1).reshape(n, n)
    group.create_array("1", shape=(n // 2, n // 2), chunks=(4, 4), dtype="uint16")
    return group


def run(code, place, config, **env):
    """Run `code` in a fresh process with `config` as its file."""
    file = place / "config.json"
    file.write_text(config if isinstance(config, str) else json.dumps(config))
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("ZIGGURAT", "ZARR"))}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", "import sys\n" + code],
        env={**inherited, "ZIGGURAT_CONFIG_PATH": str(file), **env},
        cwd=place,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


# --- at import


THREADS = {"zarr": {"threading_max_workers": 3}}


@pytest.mark.parametrize("order", ["import ziggurat, zarr", "import zarr, ziggurat"])
def test_threads_are_limited_at_import(tmp_path, order):
    code = f"{order}\nfrom zarr.core.sync import _get_executor\nzarr.zeros((2,), chunks=(1,))[:]\n"
    code += "print(zarr.config.get('threading.max_workers'), _get_executor()._max_workers)"
    assert run(code, tmp_path, THREADS) == "3 3"
    assert run(code, tmp_path, THREADS, ZARR_THREADING__MAX_WORKERS="7") == "3 3"


@pytest.mark.parametrize("order", ["import ziggurat, zarr", "import zarr, ziggurat"])
def test_null_leaves_zarr_as_found(tmp_path, order):
    code = f"{order}\n"
    code += "import json\nfrom zarr.core.config import config\n"
    code += "print(json.dumps(config.config, sort_keys=True, default=str))"
    plain = code.replace("ziggurat, ", "").replace(", ziggurat", "")
    for env in ({}, {"ZARR_THREADING__MAX_WORKERS": "7", "ZARR_ASYNC__CONCURRENCY": "5"}):
        assert run(code, tmp_path, {}, **env) == run(plain, tmp_path, {}, **env)


def test_help_loads_neither_zarr_nor_s3fs(tmp_path):
    code = "from ziggurat.cli import main\ntry:\n main(['--help'])\nexcept SystemExit: pass\n"
    code += "print({'zarr', 'dask', 's3fs'} & set(sys.modules))"
    assert run(code, tmp_path, THREADS).endswith("set()")


def test_a_bad_file_is_for_get_config_to_refuse(tmp_path):
    code = "import ziggurat\ntry:\n ziggurat.get_config()\nexcept ziggurat.config.ConfigError as e: print(e)"
    assert "config.json" in run(code, tmp_path, "{")


MARKERS = {"s3fs": {"custom_retry_markers": ["ServerNotInitialized"]}}


def test_markers_reach_s3fs_at_import(tmp_path):
    code = "import ziggurat, s3fs.core as core\n"
    code += "print([bool(core.CUSTOM_ERROR_HANDLER(OSError(m))) for m in ('XMinioServerNotInitialized', 'Other')])"
    assert run(code, tmp_path, MARKERS) == "[True, False]"


def test_without_s3fs_markers_do_nothing(tmp_path):
    code = "sys.modules['s3fs'] = None\nimport ziggurat\nziggurat.refresh_s3fs_config()\nprint('imported')"
    assert run(code, tmp_path, MARKERS) == "imported"


def test_markers_are_refreshed_and_the_handler_before_is_kept(settings, monkeypatch):
    import s3fs.core as core

    def own(error):
        return "mine" in str(error)

    monkeypatch.setattr(core, "CUSTOM_ERROR_HANDLER", own)

    def retried(*messages):
        return [bool(core.CUSTOM_ERROR_HANDLER(OSError(m))) for m in messages]

    for _ in range(2):
        zg.get_config().s3fs.custom_retry_markers = ["first", "OSError: second"]
        zg.refresh_s3fs_config()
        assert core.CUSTOM_ERROR_HANDLER.before is own
        assert retried("a first", "second", "a second", "mine", "else") == [True, True, False, True, False]
    zg.get_config().s3fs.custom_retry_markers = []
    zg.refresh_s3fs_config()
    assert core.CUSTOM_ERROR_HANDLER is own


# --- while the work runs


class Recording(WrapperStore):
    """Notes zarr's settings whenever a chunk of level 0 is read, in files that other processes can write too."""

    def __init__(self, store, place):
        super().__init__(store)
        self.place = Path(place)

    def _with_store(self, store):
        return type(self)(store, self.place)

    def get_sync(self, key, **options):
        if key.startswith("0/c/"):
            found = [zarr.config.get(k, None) for k in ("async.concurrency", "codec_pipeline.max_workers")]
            (self.place / f"{os.getpid()}-{key.replace('/', '.')}").write_text(json.dumps(found))
        return super().get_sync(key, **options)

    def seen(self):
        return {tuple(json.loads(path.read_text())) for path in self.place.iterdir()}


@pytest.fixture
def recording(tmp_path):
    for name in ("image", "notes"):
        (tmp_path / name).mkdir()
    make(LocalStore(tmp_path / "image"))
    return Recording(LocalStore(tmp_path / "image"), tmp_path / "notes")


@pytest.mark.parametrize(("mode", "method"), [("numpy", "mean"), ("numpy", "gaussian"), ("dask", "mean")])
@pytest.mark.parametrize("keys", [{}, {"async_concurrency": 4, "codec_max_workers": 3}])
def test_settings_hold_during_a_rebuild(settings, recording, mode, method, keys):
    before = zarr.config.get("async.concurrency"), zarr.config.get("codec_pipeline.max_workers")
    settings(**keys)
    zg.consolidate(zg.open_pyramid(recording, ["0", "1"]), mode=mode, method=method)
    # What cannot be reduced chunk by chunk is read at once in memory, on all cores.
    n_threads = before[1] if method == "gaussian" else 1
    assert recording.seen() == {(keys.get("async_concurrency", before[0]), keys.get("codec_max_workers", n_threads))}
    assert (zarr.config.get("async.concurrency"), zarr.config.get("codec_pipeline.max_workers")) == before


@pytest.mark.parametrize("lazy", [False, True])
def test_settings_hold_while_pixels_are_set(settings, recording, lazy):
    settings(async_concurrency=4, codec_max_workers=3)
    pyramid = zg.open_pyramid(recording, ["0", "1"])
    patch = np.ones((6, 6), pyramid[0].dtype)
    # Chunks that are set in part are read.
    pyramid.set_array(da.from_array(patch, chunks=3) if lazy else patch, (slice(1, 7), slice(1, 7)))
    assert recording.seen() == {(4, 3)}
    assert (pyramid[0][1:7, 1:7] == 1).all()
    assert zarr.config.get("async.concurrency") != 4


@pytest.mark.parametrize("workers", ["processes", "distributed"])
def test_the_drivers_settings_hold_on_workers(settings, recording, workers):
    settings(async_concurrency=4, codec_max_workers=3, codec_pipeline=FUSED)
    pyramid = zg.open_pyramid(recording, ["0", "1"])
    if workers == "processes":
        with dask.config.set(scheduler="processes", num_workers=1):
            zg.consolidate(pyramid, mode="dask")
    else:
        from distributed import Client

        with Client(n_workers=1, threads_per_worker=1, dashboard_address="127.0.0.1:0"):
            zg.consolidate(pyramid, mode="dask")
    assert recording.seen() == {(4, 3)}
    assert {int(path.name.split("-")[0]) for path in recording.place.iterdir()}.isdisjoint({os.getpid()})


def test_coalescing_is_limited_per_array(settings, tmp_path):
    store = CountingStore(LocalStore(tmp_path))
    make(store, shards=(8, 8))
    n_gets = {}
    for gap in (None, 0):
        settings(sharding_coalesce_max_gap_bytes=gap)
        pyramid = zg.open_pyramid(store, ["0", "1"])
        store.reset()
        Handle(pyramid[0], pyramid.settings).read(((0, 4), (0, 8)))
        n_gets[gap] = store.gets["0/c/0/0"]
    assert n_gets == {None: 2, 0: 3}  # the index, and one range for both chunks, or one each
    settings(sharding_coalesce_max_gap_bytes=5, sharding_coalesce_max_bytes=7)
    pyramid = zg.open_pyramid(store, ["0", "1"])
    handle = Handle(pyramid[0], pyramid.settings)
    for array in (handle._source, handle._padded, Handle(*handle.__class__.__reduce__(handle)[1])._source):
        config = array.async_array.config
        assert (config.sharding_coalesce_max_gap_bytes, config.sharding_coalesce_max_bytes) == (5, 7)


# --- the codec pipeline


def pipeline_of(array):
    return type(array.async_array.codec_pipeline)


@pytest.mark.parametrize("shards", [None, (8, 8)])
def test_one_array_is_made_of_what_needs_no_other(monkeypatch, shards):
    made = []
    monkeypatch.setattr("ziggurat.handle.remake", lambda *a, **k: made.append(1) or remake(*a, **k))
    handle = Handle(zg.open_pyramid(make(MemoryStore(), shards=shards), ["0", "1"])[0])
    handle.write(((0, 8), (0, 8)), handle.read(((0, 8), (0, 8))))
    assert made == [1]


@pytest.mark.parametrize(("path", "kind"), [(None, FusedCodecPipeline), (BATCHED, BatchedCodecPipeline)])
def test_the_pipeline_of_what_is_opened(settings, path, kind):
    settings(codec_pipeline=path)
    pyramid = zg.open_pyramid(make(MemoryStore(), shards=(8, 8)), ["0", "1"])
    handle = Handle(pyramid[0], pyramid.settings)
    assert {pipeline_of(a) for a in (handle._source, handle._writer, handle._padded)} == {kind}
    zg.consolidate(pyramid)
    assert int(pyramid[1][0, 0]) == 6  # the mean of 1, 2, 9 and 10 is 5.5, half to even


def test_a_pipeline_that_there_is_not_is_refused(settings):
    group = make(MemoryStore())
    for path in ("nowhere.Pipeline", "zarr.core.codec_pipeline.NoSuch"):
        settings(codec_pipeline=path)
        with pytest.raises(ConfigError, match=rf"zarr\.codec_pipeline = '{path}'"):
            zg.open_pyramid(group, ["0", "1"])


class AsyncOnly(WrapperStore):
    """A store without synchronous calls, as remote ones are."""

    _supports_sync_io = False


@pytest.mark.parametrize(
    ("path", "kind"), [(FUSED, AsyncOnly), (ZARRS, MemoryStore)], ids=["fused, asynchronous", "zarrs, memory"]
)
def test_a_pipeline_that_cannot_be_used_is_warned_of_once(settings, monkeypatch, path, kind):
    monkeypatch.setattr(runtime, "_warned", set())
    memory = MemoryStore()
    make(memory)
    store = memory if kind is MemoryStore else kind(memory)
    settings(codec_pipeline=path)
    with pytest.warns(UserWarning) as caught:
        zg.consolidate(zg.open_pyramid(store, ["0", "1"]))
    assert len(caught) == 1
    assert str(caught[0].message).startswith(f"zarr.codec_pipeline = {path!r} cannot be used with {kind.__name__}")
    assert caught[0].filename == __file__
    zg.consolidate(zg.open_pyramid(store, ["0", "1"]))  # and says no more
    assert int(zarr.open_array(memory, path="1")[0, 0]) == 6


@pytest.mark.parametrize("shards", [None, (8, 8)])
def test_zarrs_reads_and_never_writes(settings, tmp_path, shards):
    from zarrs import ZarrsCodecPipeline

    settings(codec_pipeline=ZARRS)
    pyramid = zg.open_pyramid(make(LocalStore(tmp_path), shards), ["0", "1"])
    handle = Handle(pyramid[0], pyramid.settings)
    assert pipeline_of(handle._source) is ZarrsCodecPipeline
    assert pipeline_of(handle._writer) is FusedCodecPipeline
    assert handle._padded is None or pipeline_of(handle._padded) is FusedCodecPipeline
    zg.consolidate(pyramid)
    assert int(pyramid[1][0, 0]) == 6
