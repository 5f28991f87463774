"""Finding what changed: touched, marked, changed; the lock; resuming a killed run; verifying and repairing."""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
import warnings

import dask
import dask.array as da
import numpy as np
import pytest
import zarr
from zarr.storage import LocalStore, MemoryStore, WrapperStore

import ziggurat as zg
from clusters import forking, in_processes
from ziggurat.changes import locked
from ziggurat.cli import main
from ziggurat.errors import DTypeError, LockError, ReadOnlyError, RegionError, StoreError
from ziggurat.testing import CountingStore, FlakyStore, tree_hash

N = 256


@pytest.fixture(params=["v2", "v3", "sharded"])
def kind(request):
    return request.param


@pytest.fixture(autouse=True)
def small_blocks():
    config = zg.get_config().dask
    before = config.write_block_max_bytes
    config.write_block_max_bytes = 2 * 32 * 32
    yield
    config.write_block_max_bytes = before


def make(store, kind="sharded", n=N, levels=4):
    group = zarr.create_group(store, zarr_format=2 if kind == "v2" else 3)
    shards = {"shards": (32, 32)} if kind == "sharded" else {}
    for k in range(levels):
        group.create_array(str(k), shape=(n >> k, n >> k), chunks=(16, 16), dtype="u2", **shards)
    group["0"][:] = np.random.default_rng(0).integers(0, 60000, (n, n), "u2")
    return [str(k) for k in range(levels)]


def open_levels(where, names):
    return zg.open_pyramid(where, levels=names)


def data_hashes(path):
    """Hash the files of the levels, without the bookkeeping."""
    return {name: h for name, h in tree_hash(path).items() if ".ziggurat" not in name}


def rebuilt(path, names):
    """Return what a full rebuild of the same level 0 gives, elsewhere."""
    arrays = [zarr.open_array(path / name, mode="r") for name in names]
    group = zarr.create_group(MemoryStore())
    copies = [
        group.create_array(n, shape=a.shape, chunks=(16, 16), dtype="u2") for n, a in zip(names, arrays, strict=True)
    ]
    copies[0][:] = arrays[0][:]
    zg.consolidate(copies, mode="numpy")
    return [c[:] for c in copies]


def ended(jobs, start=True):
    """Let processes run to their end; return how they ended."""
    for job in jobs if start else []:
        job.start()
    for job in jobs:
        job.join(timeout=120)
    return [job.exitcode for job in jobs]


def assert_right(path, names):
    for name, expected in zip(names, rebuilt(path, names), strict=True):
        np.testing.assert_array_equal(zarr.open_array(path / name, mode="r")[:], expected)


def test_touched(tmp_path, kind):
    names = make(tmp_path, kind)
    pyramid = open_levels(tmp_path, names)
    zg.consolidate(pyramid)
    pyramid.set_array(np.full((3, 5), 9, "u2"), (slice(30, 33), slice(15, 20)))
    pyramid.set_array(1, (200, [7, 9]))
    assert pyramid.touched == [((30, 33), (15, 20)), ((200, 201), (7, 10))]
    report = zg.consolidate(pyramid, regions="touched")
    assert 0 < report.n_units < sum(level.n_units for level in pyramid.levels[1:])
    assert pyramid.touched == []
    assert_right(tmp_path, names)
    assert zg.consolidate(pyramid, regions="touched").n_units == 0


def test_a_full_rebuild_settles_everything(tmp_path):
    pyramid = open_levels(tmp_path, make(tmp_path))
    pyramid.set_array(3, (0, 0))
    pyramid.mark([(1, 1)])
    zg.consolidate(pyramid)
    assert pyramid.touched == []
    assert zg.consolidate(pyramid, regions="marked").n_units == 0


def test_a_failed_rebuild_settles_nothing():
    inner = MemoryStore()
    names = make(inner)
    flaky = FlakyStore(inner, lambda: OSError("no"), 99, keys=lambda key: key.startswith("1/c"))
    pyramid = open_levels(flaky, names)
    pyramid.set_array(3, (0, 0))
    pyramid.mark([(1, 1)])
    for regions in ("touched", "marked"):
        with pytest.raises(OSError, match="no"):
            zg.consolidate(pyramid, regions=regions)
    assert pyramid.touched == [((0, 1), (0, 1))]
    assert zg.plan(pyramid, regions="marked").n_units > 0


@pytest.mark.parametrize("scheduler", ["threads", "processes"])
def test_dask_patches_have_one_writer_per_unit(tmp_path, kind, scheduler):
    names = make(tmp_path, kind)
    pyramid = open_levels(tmp_path, names)
    values = np.random.default_rng(1).integers(0, 60000, (150, 97), "u2")
    before = pyramid[0][:]
    with in_processes() if scheduler == "processes" else dask.config.set(scheduler=scheduler, num_workers=2):
        pyramid.set_array(da.from_array(values, chunks=(13, 11)), (slice(7, 157), slice(101, 198)))
    before[7:157, 101:198] = values
    np.testing.assert_array_equal(pyramid[0][:], before)


def test_patches_that_do_not_fit_are_refused(tmp_path):
    pyramid = open_levels(tmp_path, make(tmp_path))
    before = data_hashes(tmp_path)
    with pytest.raises(RegionError, match=r"the patch has the shape \(2, 3\), its region \(3, 2\)"):
        pyramid.set_array(np.zeros((2, 3), "u2"), (slice(0, 3), slice(0, 2)))
    with pytest.raises(RegionError, match="leaves the array"):
        pyramid.set_array(0, (slice(0, N + 1), 0))
    with pytest.raises(DTypeError, match="convert the patch"):
        pyramid.set_array(np.full((1, 1), 70000), (0, 0))
    with pytest.raises(DTypeError, match="convert the patch"):
        pyramid.set_array(da.zeros((1, 1), dtype="f8"), (0, 0))
    assert pyramid.touched == []
    pyramid.set_array(np.full((1, 1), 65535), (0, 0))
    with pytest.raises(ReadOnlyError):
        open_levels(zarr.open_group(tmp_path, mode="r"), ["0", "1"]).set_array(0, (0, 0))
    assert data_hashes(tmp_path) != before


def _mark(path, names, i):
    pyramid = open_levels(path, names)
    region = (slice(8 * i, 8 * i + 8), slice(0, 4))
    pyramid.set_array(i, region)
    pyramid.mark([region])


def test_marks_of_other_processes(tmp_path, kind):
    names = make(tmp_path, kind)
    zg.consolidate(open_levels(tmp_path, names))
    jobs = [forking().Process(target=_mark, args=(tmp_path, names, i)) for i in range(4)]
    assert ended(jobs) == [0] * 4
    pyramid = open_levels(tmp_path, names)
    plan = zg.plan(pyramid, regions="marked")
    pyramid.mark([(250, 250)])  # after the plan: not honoured by it, so not consumed
    assert plan.run().n_units > 0
    assert [p.dirty[0].boxes.tolist() for p in [zg.plan(pyramid, regions="marked")]] == [[[[125, 126], [125, 126]]]]
    zg.consolidate(pyramid, regions="marked")
    assert zg.plan(pyramid, regions="marked").n_units == 0
    assert_right(tmp_path, names)


def test_changed(tmp_path, kind):
    names = make(tmp_path, kind)
    pyramid = open_levels(tmp_path, names)
    assert zg.plan(pyramid, regions="changed").n_units == sum(level.n_units for level in pyramid.levels[1:])
    zg.consolidate(pyramid, regions="changed")
    assert zg.consolidate(pyramid, regions="changed").n_units == 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        group = zarr.open_group(tmp_path, mode="r+", use_consolidated=False)
        assert sorted(name for name, _ in group.members(max_depth=None)) == names
    group["0"][70:75, 3] = 11
    group["0"][128:160, 128:160] = 0  # whole units become fill: their objects go
    report = zg.consolidate(open_levels(tmp_path, names), regions="changed")
    assert 0 < report.n_units < sum(level.n_units for level in pyramid.levels[1:])
    assert_right(tmp_path, names)
    assert zg.consolidate(pyramid, regions="changed").n_units == 0


def test_a_write_during_a_rebuild_is_found_by_the_next(tmp_path):
    names = make(tmp_path)
    pyramid = open_levels(tmp_path, names)
    done = []

    def meddle(progress):
        if not done:
            done.append(progress)
            zarr.open_array(tmp_path / "0", mode="r+")[0, 0] += 1

    zg.consolidate(pyramid, mode="dask", progress=meddle)
    assert done
    assert zg.consolidate(pyramid, regions="changed").n_units > 0
    assert_right(tmp_path, names)


def test_a_changed_grid_forgets_the_fingerprints(tmp_path):
    names = make(tmp_path)
    zg.consolidate(open_levels(tmp_path, names))
    zarr.open_array(tmp_path / "0", mode="r+").resize((N - 1, N))
    pyramid = open_levels(tmp_path, names)
    assert not zg.plan(pyramid, regions="changed").is_regional


def test_objects_of_another_grid_are_not_looked_at(tmp_path):
    names = make(tmp_path)
    pyramid = open_levels(tmp_path, names)
    zg.consolidate(pyramid)
    for key in ("c/99/0", "c/88", "c/99/1/0", "7"):  # of a larger array, of one axis, of three, and of version 2
        path = tmp_path / "0" / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"another's")
    assert zg.consolidate(pyramid, regions="changed").n_units == 0
    zg.consolidate(pyramid)


def test_unknown_words_are_refused(tmp_path):
    with pytest.raises(RegionError, match="'touched', 'marked', 'changed'"):
        zg.plan(open_levels(tmp_path, make(tmp_path)), regions="dirty")


def test_verify_names_stale_units_and_repair_heals_them(tmp_path, kind):
    names = make(tmp_path, kind)
    pyramid = open_levels(tmp_path, names)
    zg.consolidate(pyramid)
    clean = data_hashes(tmp_path)
    check = zg.verify(pyramid)
    assert not check.is_stale
    assert check.bytes_compared == sum(level.nbytes for level in pyramid.levels[1:])
    pyramid[1][40, 70] += 1
    pyramid[3][0, 0] += 1
    before = data_hashes(tmp_path)
    for mode in ("numpy", "dask"):
        check = zg.verify(pyramid, mode=mode)
        unit = pyramid.levels[1].unit
        assert [level.stale for level in check.levels] == [((40 // unit[0], 70 // unit[1]),), (), ((0, 0),)]
    assert data_hashes(tmp_path) == before
    assert "2 write units are stale" in str(check) and "<td" in check._repr_html_()
    check = zg.verify(pyramid, repair=True)
    assert (check.n_stale, check.is_stale) == (2, False)
    assert data_hashes(tmp_path) == clean


def test_a_torn_shard_is_named_and_healed(tmp_path):
    names = make(tmp_path, n=300, levels=2)  # the last shards overhang the array
    pyramid = open_levels(tmp_path, names)
    zg.consolidate(pyramid)
    clean = data_hashes(tmp_path)
    for torn in ("1/c/4/4", "1/c/0/1"):
        path = tmp_path / torn
        path.write_bytes(path.read_bytes()[:-7])
    assert zg.verify(pyramid).levels[0].stale == ((0, 1), (4, 4))
    zg.verify(pyramid, repair=True)
    assert data_hashes(tmp_path) == clean


def test_a_sample_compares_less(tmp_path):
    names = make(tmp_path)
    pyramid = open_levels(tmp_path, names)
    zg.consolidate(pyramid)
    check = zg.verify(pyramid, sample=0.01)
    assert 0 < check.bytes_compared < sum(level.nbytes for level in pyramid.levels[1:]) / 4
    with pytest.raises(ValueError, match="sample"):
        zg.verify(pyramid, sample=1.5)


@pytest.mark.parametrize("error", [OSError, RuntimeError])
def test_a_failed_read_is_not_called_stale(error):
    """Not even where a store's errors are no OSErrors, as those of cloud libraries are."""
    inner = MemoryStore()
    names = make(inner)
    zg.consolidate(open_levels(inner, names))
    flaky = FlakyStore(inner, lambda: error("gone"), 99, keys=lambda key: key.startswith("1/c"))
    with pytest.raises(error, match="gone"):
        zg.verify(open_levels(flaky, names))


def test_the_lock(tmp_path):
    pyramid = open_levels(tmp_path, make(tmp_path))
    with locked(pyramid[0], 1), pytest.raises(LockError, match="lock_timeout_s"):
        zg.consolidate(pyramid, lock_timeout_s=0.1)
    zg.consolidate(pyramid, lock_timeout_s=0.1)
    # A process that dies leaves no lock behind.
    code = f"""
        import os, zarr
        from ziggurat.changes import locked
        with locked(zarr.open_array({str(tmp_path / "0")!r}), 1):
            print("held", flush=True)
            os.kill(os.getpid(), 9)
    """
    job = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, timeout=60, check=False)
    assert job.stdout == b"held\n" and job.returncode == -signal.SIGKILL
    zg.consolidate(pyramid, lock_timeout_s=0.1)


def _paint(path, names, column, times):
    pyramid = open_levels(path, names)
    for i in range(times):
        region = (slice(i % 64, i % 64 + 1), slice(column, column + 16))
        pyramid.set_array(i + column, region)
        zg.consolidate(pyramid, regions=[region])


def test_neighbours_in_one_shard_lose_nothing(tmp_path):
    names = make(tmp_path)
    zg.consolidate(open_levels(tmp_path, names))
    jobs = [forking().Process(target=_paint, args=(tmp_path, names, c, 100)) for c in (0, 16)]
    assert ended(jobs) == [0, 0]
    assert_right(tmp_path, names)


def _rebuild(path, names, pipe):
    zg.get_config().dask.write_block_max_bytes = 2048
    dask.config.set(num_workers=2)
    pyramid = open_levels(path, names)
    pipe.send("begin")
    zg.consolidate(pyramid, mode="dask", resume=True)


def test_a_killed_run_goes_on_where_it_was(tmp_path):
    rng = random.Random(1)
    clean = tmp_path / "clean"
    names = make(clean, n=512)
    zg.consolidate(open_levels(clean, names))
    expected = data_hashes(clean)
    path = tmp_path / "killed"
    make(path, n=512)
    old, new = ({name: zarr.open_array(p / name, mode="r")[:] for name in names} for p in (path, clean))
    kills = 0
    for _ in range(20):
        ours, theirs = forking().Pipe()
        job = forking().Process(target=_rebuild, args=(path, names, theirs))
        job.start()
        assert ours.recv() == "begin"
        time.sleep(rng.uniform(0.0, 0.25))
        job.kill()
        kills += ended([job], start=False) == [-signal.SIGKILL]
        for k, name in enumerate(names[1:], 1):
            now = zarr.open_array(path / name, mode="r")[:]
            for i in range(0, 512 >> k, 32):
                for j in range(0, 512 >> k, 32):
                    box = (slice(i, i + 32), slice(j, j + 32))
                    assert np.array_equal(now[box], old[name][box]) or np.array_equal(now[box], new[name][box])
    assert kills
    done = (
        len([p for p in (path / "0" / ".ziggurat" / "journal" / "done").glob("*") if p.suffix != ".partial"])
        if (path / "0/.ziggurat/journal").exists()
        else 0
    )
    plan = zg.plan(open_levels(path, names), mode="dask")
    report = zg.consolidate(open_levels(path, names), mode="dask", resume=True)
    assert report.n_units <= plan.n_units and (done == 0 or report.n_units < plan.n_units)
    assert data_hashes(path) == expected
    assert not list((path / "0" / ".ziggurat").glob("journal/done/*"))


def test_resume_does_the_rest_and_refuses_another_plan(tmp_path):
    names = make(tmp_path)
    pyramid = open_levels(tmp_path, names)

    class StopError(Exception):
        pass

    def stop(progress):
        if progress.n_units >= 8:
            raise StopError

    with pytest.raises(StopError), dask.config.set(scheduler="sync"):
        zg.consolidate(pyramid, mode="dask", progress=stop)
    with pytest.raises(StoreError, match="method was mean, is max"):
        zg.consolidate(pyramid, mode="dask", method="max", resume=True)
    zg.get_config().dask.write_block_max_bytes = 8192
    with pytest.raises(StoreError, match="stages was"):
        zg.consolidate(pyramid, mode="dask", resume=True)
    zg.get_config().dask.write_block_max_bytes = 2048
    report = zg.consolidate(pyramid, mode="dask", resume=True)
    assert report.n_units <= sum(level.n_units for level in pyramid.levels[1:]) - 8
    assert_right(tmp_path, names)
    # Nothing is left to resume.
    assert zg.consolidate(pyramid, mode="dask", resume=True).n_units == sum(v.n_units for v in pyramid.levels[1:])


@pytest.mark.parametrize("after_s", [0.0, 60.0])
def test_short_runs_record_no_tasks_unless_they_are_interrupted(tmp_path, monkeypatch, after_s):
    monkeypatch.setattr("ziggurat.changes.NOTED_AFTER_S", after_s)
    store = CountingStore(LocalStore(tmp_path))
    pyramid = open_levels(store, make(store))
    store.reset()

    def stop(progress):
        assert not progress.n_units >= 8

    with pytest.raises(AssertionError), dask.config.set(scheduler="sync"):
        zg.consolidate(pyramid, mode="dask", progress=stop)
    assert sum("journal/done" in key for key in store.sets) >= 1
    store.reset()
    n_tasks = zg.plan(pyramid, mode="dask").n_tasks
    zg.consolidate(pyramid, mode="dask")
    assert sum("journal/done" in key for key in store.sets) == (0 if after_s else n_tasks)


def test_bookkeeping_is_json_and_npz_under_one_prefix(tmp_path):
    pyramid = open_levels(tmp_path, make(tmp_path))
    zg.consolidate(pyramid)
    pyramid.mark([(0, 0)])
    hidden = tmp_path / "0" / ".ziggurat"
    assert sorted(os.listdir(hidden)) == ["fingerprints.npz", "lock", "marks"]
    assert [json.loads(p.read_text()) for p in (hidden / "marks").iterdir()] == [[[[0, 1], [0, 1]]]]


def physical(tmp_path):
    """Make an OME-Zarr image of 0.5 µm pixels."""
    names = make(tmp_path)
    axes = [{"name": n, "type": "space", "unit": "micrometer"} for n in "yx"]
    scales = [[{"type": "scale", "scale": [0.5 * 2**k] * 2}] for k in range(4)]
    datasets = [{"path": n, "coordinateTransformations": s} for n, s in zip(names, scales, strict=True)]
    group = zarr.open_group(tmp_path, mode="r+")
    group.attrs["ome"] = {"version": "0.5", "multiscales": [{"axes": axes, "datasets": datasets}]}
    pyramid = zg.open_pyramid(tmp_path)
    zg.consolidate(pyramid)
    return pyramid


def test_physical_regions(tmp_path):
    pyramid = physical(tmp_path)
    pyramid.set_roi(np.full((4, N), 5, "u2"), {"y": (10.0, 12.0)})
    assert pyramid.touched == [((20, 24), (0, N))]
    plan = zg.plan(pyramid, regions=[{"y": (10.0, 12.0), "x": (0.0, 0.5)}, (0, 0)])
    assert plan.dirty[0].boxes.tolist() == [[[0, 1], [0, 1]], [[10, 12], [0, 1]]]
    pyramid.mark([{"x": (127.9, 128.0)}])
    zg.consolidate(pyramid, regions="touched")
    assert_right(tmp_path, [level.name for level in pyramid.levels])


def test_the_command_line(tmp_path, capfd):
    pyramid = physical(tmp_path)
    where = str(tmp_path)
    assert main(["verify", where]) == 0
    pyramid[1][0, 0] += 1
    capfd.readouterr()
    assert main(["verify", where, "--sample", "1", "--json"]) == 1
    assert json.loads(capfd.readouterr().out)["levels"][0]["stale"] == [[0, 0]]
    assert main(["verify", where, "--repair"]) == 0
    assert main(["verify", where, "--quiet"]) == 0
    pyramid[0][5, 5] += 1
    capfd.readouterr()
    assert main(["consolidate", where, "--regions", "changed"]) == 0
    assert "1 of 16" in capfd.readouterr().out
    assert main(["consolidate", where, "--regions", "marked", "--quiet"]) == 0
    assert main(["consolidate", where, "--mode", "dask", "--resume", "--quiet"]) == 0


# Stores that take their time


class DistantStore(WrapperStore):
    """Lets other requests be made while one is under way, as a bucket does; counts those under way at once."""

    _supports_sync_io = False

    def __init__(self, store):
        super().__init__(store)
        self.under_way = {"get": 0, "delete": 0}
        self.most = dict(self.under_way)

    async def _wait(self, operation):
        self.under_way[operation] += 1
        self.most[operation] = max(self.most[operation], self.under_way[operation])
        await asyncio.sleep(0.001)
        self.under_way[operation] -= 1

    async def get(self, key, prototype, byte_range=None):
        if "marks" in key:
            await self._wait("get")
        return await super().get(key, prototype, byte_range)

    async def delete(self, key):
        if ".ziggurat" in key:
            await self._wait("delete")
        await super().delete(key)


def test_bookkeeping_does_not_wait_for_each_of_its_objects(tmp_path, monkeypatch):
    monkeypatch.setattr("ziggurat.changes.NOTED_AFTER_S", 0.0)
    names = make(LocalStore(tmp_path))
    store = DistantStore(LocalStore(tmp_path))
    pyramid = open_levels(store, names)
    zg.consolidate(pyramid, mode="dask")  # a journal of many tasks is cleared
    assert 1 < store.most["delete"] <= 10
    store.most["delete"] = 0
    for i in range(12):
        pyramid[0][i, i] = 7
        pyramid.mark([(i, i)])
    report = zg.consolidate(pyramid, regions="marked")
    assert report.n_units == 3
    assert 1 < store.most["get"] <= 10 and 1 < store.most["delete"] <= 10
    assert zg.plan(pyramid, regions="marked").n_units == 0
    assert not zg.verify(pyramid).is_stale
