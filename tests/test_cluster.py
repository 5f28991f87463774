"""Distributed clients, however they are reached; and what happens when the work stops."""

import asyncio
import os
import pickle
import runpy
import signal
import subprocess
import sys
import time
from concurrent.futures import CancelledError, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Timer

import dask
import pytest
import zarr
from dask.utils import key_split
from distributed import Client, worker_client
from zarr.storage import LocalStore, MemoryStore, ObjectStore

import ziggurat as zg
from clusters import ceiling, chunks, cluster, expected, make_image, opened
from ziggurat.cascade import Work
from ziggurat.engines import find_scheduler
from ziggurat.errors import LockError, MemoryLimitError, ModeError
from ziggurat.events import TaskDone
from ziggurat.graph import make_graph
from ziggurat.handle import Handle
from ziggurat.testing import CountingStore, FlakyStore, SlowStore

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def client():
    with cluster() as client:
        yield client


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr("ziggurat.stages.ONE_TASK_BYTES", 0)
    with ceiling(4096):
        yield


@pytest.fixture
def image(tmp_path):
    make_image(tmp_path / "image")
    return tmp_path / "image"


def wait_for(condition, timeout_s=10):
    """Wait until the scheduler has heard what it is told in the background."""
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def ours(client):
    return [key for key in client.cluster.scheduler.tasks if "ziggurat" in str(key)]


# However the client is reached


def test_the_client_that_is_given(client, image, tmp_path):
    store = CountingStore(LocalStore(image))
    with dask.config.set(scheduler="sync"):
        zg.consolidate(opened(store), mode="dask", client=client)
    # The workers did it, each with a store of its own.
    assert not any("/c/" in key for key in {**store.gets, **store.sets})
    assert chunks(image) == expected(tmp_path)
    wait_for(lambda: not ours(client))


def test_the_client_that_is_active(client, image, tmp_path):
    store = CountingStore(LocalStore(image))
    with client.as_current():
        zg.consolidate(opened(store), mode="dask")
    assert not any("/c/" in key for key in {**store.gets, **store.sets})
    assert chunks(image) == expected(tmp_path)


def test_something_that_is_no_client(image):
    with pytest.raises(ModeError, match=r"distributed\.Client"):
        zg.consolidate(opened(image), mode="dask", client="tcp://127.0.0.1:8786")


def rebuild_in_a_task(where, explicit):
    with ceiling(4096):
        if not explicit:
            return zg.consolidate(opened(where), mode="dask").n_units
        with worker_client() as client:
            return zg.consolidate(opened(where), mode="dask", client=client).n_units


@pytest.mark.parametrize("explicit", [True, False])
def test_from_inside_tasks(client, tmp_path, explicit):
    places = [tmp_path / str(i) for i in range(3)]
    for place in places:
        make_image(place)
    # More of them than threads: each must let go of its thread while it waits.
    futures = client.map(rebuild_in_a_task, [str(p) for p in places], explicit=explicit, pure=False)
    assert client.gather(futures) == [20] * 3
    right = expected(tmp_path)
    assert all(chunks(place) == right for place in places)


def test_in_threads(client, tmp_path):
    places = [tmp_path / str(i) for i in range(3)]
    for place in places:
        make_image(place)
    totals = {}

    def rebuild(place, **options):
        events = []
        report = zg.consolidate(opened(place), mode="dask", progress=events.append, **options)
        totals[place] = sum(isinstance(event, TaskDone) for event in events), report.n_tasks

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(partial(rebuild, client=client), places))
        right = expected(tmp_path)
        assert all(chunks(place) == right for place in places)
        with dask.config.set(scheduler="threads"):
            list(pool.map(rebuild, places))
    # Nobody hears of another's tasks.
    assert all(heard == n_tasks for heard, n_tasks in totals.values())


def test_in_a_running_event_loop(client, image, tmp_path):
    async def main():
        return zg.consolidate(opened(image), mode="dask", client=client)

    assert asyncio.run(main()).n_units == 20
    assert chunks(image) == expected(tmp_path)


def test_an_asynchronous_client(client, image, tmp_path):
    async def main():
        async with Client(client.scheduler.address, asynchronous=True) as mine:
            with pytest.raises(ModeError, match="to_thread"):
                zg.consolidate(opened(image), mode="dask", client=mine)
            with pytest.raises(ModeError, match="to_thread"):
                zg.consolidate(opened(image), mode="dask")
            report = await asyncio.to_thread(zg.consolidate, opened(image), mode="dask", client=mine)
            later = await mine.compute(zg.consolidate(opened(image), mode="dask", compute=False))
            return report, later

    report, later = asyncio.run(main())
    assert report.n_units == later.n_units == 20
    assert chunks(image) == expected(tmp_path)


AFTER_FORK = """
import os, sys
import dask
import ziggurat as zg

def rebuild(mode):
    pyramid = zg.open_pyramid(sys.argv[1], levels=["0", "1", "2"])
    return zg.consolidate(pyramid, mode=mode).n_units

if __name__ == "__main__":
    zg.get_config().dask.write_block_max_bytes = 4096
    assert rebuild("dask") == rebuild("numpy") == 20
    if (child := os.fork()) == 0:
        os._exit(0 if rebuild("dask") == rebuild("numpy") == 20 else 1)
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
def test_after_a_fork(image):
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", AFTER_FORK, str(image)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


# Stopping


def slow_image(where):
    """Open it such that a rebuild takes seconds."""
    return opened(SlowStore(LocalStore(where), 0.02))


@pytest.mark.parametrize("scheduler", ["threads", "distributed"])
def test_control_c(client, image, tmp_path, scheduler, caplog):
    caplog.set_level("INFO", "ziggurat")
    options = {"client": client} if scheduler == "distributed" else {}
    started = []

    def interrupt(event):
        if isinstance(event, TaskDone) and not started:
            started.append(Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)))
            started[0].start()

    with dask.config.set(scheduler="threads", num_workers=2), pytest.raises(KeyboardInterrupt) as caught:
        zg.consolidate(slow_image(image), mode="dask", progress=interrupt, **options)
    (note,) = caught.value.__notes__
    assert "of 20 write units were done" in note and "resume=True" in note
    assert note in caplog.text
    # Nothing goes on behind the caller's back.
    before = {path: path.stat().st_mtime_ns for path in image.rglob("*") if path.is_file()}
    time.sleep(0.3)
    assert {path: path.stat().st_mtime_ns for path in image.rglob("*") if path.is_file()} == before
    wait_for(lambda: not ours(client))
    # And what is there can be completed, or repaired.
    assert zg.verify(opened(image), mode="dask").is_stale
    report = zg.consolidate(opened(image), mode="dask", resume=True)
    assert 0 < report.n_units < 20
    assert chunks(image) == expected(tmp_path)


def test_a_stopped_call_can_be_repaired(client, image, tmp_path):
    def stop(event):
        if event.n_units:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        zg.consolidate(slow_image(image), mode="dask", client=client, progress=stop)
    assert zg.verify(opened(image), repair=True).n_stale > 0
    assert chunks(image) == expected(tmp_path)


def test_a_long_task_stops_before_its_end(client, image):
    config = zg.get_config().dask
    before, config.max_tasks = config.max_tasks, 2
    try:
        plan = zg.plan(opened(SlowStore(LocalStore(image), 0.1)), mode="dask")
    finally:
        config.max_tasks = before
    assert plan.n_tasks == 2  # a walk of over eight seconds each
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        plan.run(client=client)
    assert time.monotonic() - begun < 5
    with pytest.raises(LockError, match="lock_timeout_s"), zg.changes.locked(opened(image)[0], 1):
        zg.consolidate(opened(image), lock_timeout_s=0.1)
    zg.consolidate(opened(image), lock_timeout_s=0.1)


def test_a_cluster_that_goes_away(image, tmp_path):
    with cluster(silence_logs=50) as short_lived:
        Timer(0.5, short_lived.cluster.close).start()
        with pytest.raises((CancelledError, OSError)) as caught:
            zg.consolidate(slow_image(image), mode="dask", client=short_lived)
    assert "resume=True" in caught.value.__notes__[0]
    zg.consolidate(opened(image), mode="dask", resume=True, lock_timeout_s=1)
    assert chunks(image) == expected(tmp_path)


# The example


def test_the_example(client, tmp_path, capsys):
    make_image(tmp_path / "image")
    scales = [[{"type": "scale", "scale": [2.0**k] * 2}] for k in range(3)]
    datasets = [{"path": str(k), "coordinateTransformations": scale} for k, scale in enumerate(scales)]
    axes = [{"name": name, "type": "space"} for name in "yx"]
    multiscale = {"axes": axes, "datasets": datasets}
    zarr.open_group(tmp_path / "image").attrs["ome"] = {"version": "0.5", "multiscales": [multiscale]}
    example = runpy.run_path(str(Path(__file__).parents[1] / "examples" / "cluster_job.py"))
    assert example["main"]([str(tmp_path / "image"), "--scheduler", client.scheduler.address]) == 0
    assert (
        chunks(tmp_path / "image").items()
        >= {key: value for key, value in expected(tmp_path).items() if key.startswith(("1/c", "2/c"))}.items()
    )
    assert "no write units are stale" in capsys.readouterr().out


# Before anything starts


def test_too_little_memory(tmp_path):
    make_image(tmp_path / "image")
    before = chunks(tmp_path / "image")
    plan = zg.plan(opened(tmp_path / "image"), mode="dask")
    limit = 4 * plan.peak_bytes - 1
    with cluster(1, n_threads=4, processes=False, memory_limit=limit) as client:
        with pytest.raises(MemoryLimitError, match=r"4 threads.*memory_limit.*write_block_max_bytes"):
            zg.consolidate(opened(tmp_path / "image"), mode="dask", client=client)
        assert chunks(tmp_path / "image") == before
        assert not list((tmp_path / "image").rglob("journal*"))
        with pytest.raises(MemoryError):
            zg.verify(opened(tmp_path / "image"), mode="dask", client=client)
    with cluster(1, n_threads=4, processes=False, memory_limit=limit + 1) as client:
        assert zg.consolidate(opened(tmp_path / "image"), mode="dask", client=client).n_units == 20


def test_too_few_threads_of_zarr(tmp_path):
    obstore = pytest.importorskip("obstore")
    (tmp_path / "image").mkdir()
    make_image(tmp_path / "image")
    plan = zg.plan(opened(ObjectStore(obstore.store.LocalStore(tmp_path / "image"))), mode="dask")
    work = Work(plan.steps, plan.stages, tuple(Handle(a) for a in plan.pyramid.arrays))
    with zarr.config.set({"threading.max_workers": 2}), dask.config.set(scheduler="threads", num_workers=3):
        with pytest.warns(UserWarning, match=r"max_workers is 2, below the 3 threads.*zarr.threading_max_workers"):
            find_scheduler(work, plan)
        with dask.config.set(num_workers=2):
            find_scheduler(work, plan)
        with cluster(1, n_threads=3, processes=False) as client, pytest.warns(UserWarning, match="below the 3"):
            find_scheduler(work, plan, client)
        # Where zarr does not use its threads, their number is no matter.
        plan = zg.plan(opened(tmp_path / "image"), mode="dask")
        work = Work(plan.steps, plan.stages, tuple(Handle(a) for a in plan.pyramid.arrays))
        find_scheduler(work, plan)


# The graph


def slow_down():
    return OSError("503 Slow Down")


def test_retries_of_tasks(client, image, tmp_path):
    flaky = FlakyStore(LocalStore(image), slow_down, keys=lambda key: "/c/" in key)
    with dask.annotate(retries=50, priority=3):
        zg.consolidate(opened(flaky), mode="dask", client=client)
    assert chunks(image) == expected(tmp_path)


def metadata_only(n=1 << 23, n_levels=14):
    store = MemoryStore()
    options = {"chunks": (1024, 1024), "dtype": "u2"}
    group = zarr.create_group(store)
    for k in range(n_levels):
        group.create_array(str(k), shape=(n >> k, n >> k), **options)
    return opened(store, n_levels)


def on_disk(pyramid, where):
    """Return handles as they would be for a real store: those of memory refuse to travel."""
    group = zarr.create_group(LocalStore(where))
    arrays = (group.create_array(a.path, shape=a.shape, chunks=a.chunks, dtype=a.dtype) for a in pyramid.arrays)
    return tuple(map(Handle, arrays))


def test_ten_thousand_tasks_are_a_small_graph(tmp_path):
    with ceiling(8 << 20):
        plan = zg.plan(metadata_only(), mode="dask")
    assert 5_000 < plan.n_tasks <= 10_000
    work = Work(plan.steps, plan.stages, on_disk(plan.pyramid, tmp_path))
    graph, keys = make_graph(work, plan)
    assert len(keys) == plan.n_tasks
    assert len(pickle.dumps(graph)) < 150 * plan.n_tasks
    assert len(pickle.dumps(work)) < 64 * 1024


def test_keys_say_what_is_built(tmp_path):
    plan = zg.plan(metadata_only(1 << 14, 7), mode="dask")
    work = Work(plan.steps, plan.stages, on_disk(plan.pyramid, tmp_path))
    graph, keys = make_graph(work, plan)
    names = {f"ziggurat.level{s.first}" + (f"to{s.last}" if s.last > s.first else "") for s in plan.stages}
    assert {key_split(key) for key in keys} == names
    assert {key_split(key) for key in graph} == names | {"ziggurat.arrays"}


@pytest.mark.parametrize(("n_threads", "at_once"), [(1, 4), (2, 2), (3, 1), (0, 1)])
def test_workers_are_given_small_tasks_together(tmp_path, n_threads, at_once):
    with ceiling(8 << 20):
        plan = zg.plan(metadata_only(1 << 15, 6), mode="dask")
    work = Work(plan.steps, plan.stages, on_disk(plan.pyramid, tmp_path))
    graph, keys = make_graph(work, plan, n_threads=n_threads)
    key_of = {(task.stage, task.index): key for key in keys for task in graph[key][2]}
    tasks = [task for i in range(len(plan.stages)) for task in plan.tasks(i)]
    assert list(key_of) == [(task.stage, task.index) for task in tasks]
    assert max(len(graph[key][2]) for key in keys) == at_once
    for task in tasks:
        if task.stage:
            waits = {key_of[task.stage - 1, index] for index in plan.waits(task)}
            assert waits <= set(graph[key_of[task.stage, task.index]][3])
