"""One suite over every engine: the same bytes, the same events, the same errors, whatever runs the tasks."""

import json
import pickle
import re
import threading
from contextlib import ExitStack, contextmanager
from functools import partial
from math import inf

import dask
import pytest
import zarr
from zarr.storage import LocalStore, MemoryStore

import ziggurat as zg
from clusters import ceiling, chunks, cluster, expected, in_processes, make_image, opened
from ziggurat.cascade import Work
from ziggurat.events import Finished, Started, TaskDone, UnitsDone
from ziggurat.graph import make_graph
from ziggurat.handle import Handle
from ziggurat.testing import CountingStore, FlakyStore, SlowStore

pytestmark = pytest.mark.timeout(120)

ENGINES = ["numpy", "threads", "processes", "distributed"]


@pytest.fixture(scope="module")
def two_workers():
    with cluster() as client:
        yield client


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Let a small image have many tasks in several stages."""
    monkeypatch.setattr("ziggurat.stages.ONE_TASK_BYTES", 0)
    with ceiling(4096):
        yield


@pytest.fixture(params=ENGINES)
def engine(request):
    """Return what names the engine in a call."""
    with ExitStack() as stack:
        if request.param == "numpy":
            yield partial(dict, mode="numpy")
        elif request.param == "distributed":
            yield partial(dict, mode="dask", client=request.getfixturevalue("two_workers"))
        else:
            is_threaded = request.param == "threads"
            stack.enter_context(dask.config.set(scheduler="threads", num_workers=2) if is_threaded else in_processes())
            yield partial(dict, mode="dask")


@contextmanager
def policy(**values):
    """Set what is retried, for a while."""
    settings = zg.get_config().io_retry
    settings.backoff = {"strategy": "constant", "delay_s": 0.0, "jitter": False}
    for name, value in values.items():
        setattr(settings, name, value)
    try:
        yield
    finally:
        settings.retry_on, settings.max_retries = [], 0


def slow_down():
    return OSError("503 Slow Down")


def is_chunk(key):
    return re.search(r"/c/\d", key) is not None


def flaky(where, **options):
    return FlakyStore(LocalStore(where), slow_down, keys=is_chunk, **options)


def test_same_bytes(engine, tmp_path):
    make_image(tmp_path / "image")
    report = zg.consolidate(opened(tmp_path / "image"), **engine())
    assert chunks(tmp_path / "image") == expected(tmp_path)
    assert [level.n_units for level in report.levels] == [level.n_units_total for level in report.levels] == [16, 4]


def test_every_third_call_fails_and_is_retried(engine, tmp_path):
    make_image(tmp_path / "image")
    with policy(max_retries=6, retry_on=["Slow Down"]):
        pyramid = opened(flaky(tmp_path / "image", every=3))
    # The policy of the time when the pyramid was opened is what counts, on workers too.
    report = zg.consolidate(pyramid, **engine())
    assert chunks(tmp_path / "image") == expected(tmp_path)
    n_calls = 64 + 16 + 4
    # In memory, level 0 is read by threads of zarr's own, where retries are logged and not counted.
    assert (1 if report.mode == "numpy" else n_calls // 4) <= report.n_retries <= n_calls


def test_calls_for_shards_fail_and_are_retried(engine, tmp_path):
    # Shards that overhang their level, whose writes fail as well as their reads.
    size = {"n": 250, "shard": 64}
    make_image(tmp_path / "image", **size)
    with policy(max_retries=6, retry_on=["Slow Down"]):
        pyramid = opened(flaky(tmp_path / "image", every=3))
    report = zg.consolidate(pyramid, **engine())
    assert chunks(tmp_path / "image") == expected(tmp_path, **size)
    assert [(level.n_units, level.n_sets) for level in report.levels] == [(4, 4), (1, 1)]
    assert report.n_gets == 16 + (4 if len(report.stages) > 1 and report.mode == "dask" else 0)
    regional = zg.consolidate(pyramid, regions=[(slice(247, 248), slice(247, 248))], **engine())
    assert (regional.n_units, regional.n_sets) == (2, 2)
    assert chunks(tmp_path / "image") == expected(tmp_path / "again", **size)


def test_every_third_call_fails_and_the_error_arrives(engine, tmp_path):
    make_image(tmp_path / "image")
    before = chunks(tmp_path / "image")
    with pytest.raises(OSError, match="503 Slow Down") as caught:
        zg.consolidate(opened(flaky(tmp_path / "image", every=3)), **engine())
    assert any("of 20 write units were done" in note for note in caught.value.__notes__)
    right = expected(tmp_path)
    assert all(content in (before[key], right[key]) for key, content in chunks(tmp_path / "image").items())
    # What was left undone can be done: nothing is torn, nothing is held.
    zg.consolidate(opened(tmp_path / "image"), **engine(), resume=True)
    assert chunks(tmp_path / "image") == right


def test_a_failed_read_is_never_fill_value(engine, tmp_path):
    make_image(tmp_path / "image")
    with policy(max_retries=1, retry_on=["Slow Down"]):
        pyramid = opened(flaky(tmp_path / "image", n_errors=2))
    with pytest.raises(OSError, match="503 Slow Down"):
        zg.consolidate(pyramid, **engine())
    image = opened(tmp_path / "image")
    assert all((array[...] > 0).all() for array in image.arrays)  # as no pixel of the image is 0


def test_a_torn_chunk_is_named(engine, tmp_path):
    make_image(tmp_path / "image")
    key = tmp_path / "image" / "0" / "c" / "3" / "5"
    key.write_bytes(key.read_bytes()[:-1])
    with pytest.raises(zg.errors.StoreError, match=r"cut short|bytes of pixels") as caught:
        zg.consolidate(opened(tmp_path / "image"), **engine())
    if engine()["mode"] == "dask":
        (note,) = (note for note in caught.value.__notes__ if "while reading" in note)
        assert note == "while reading [64:128, 128:192] of level '0'"


def test_every_chunk_is_read_once(engine, tmp_path):
    make_image(tmp_path / "image")
    report = zg.consolidate(opened(tmp_path / "image"), **engine())
    # Level 1 is read back by the second stage, if there is one; never level 0.
    read_back = 128 * 128 * 2 if report.mode == "dask" and len(report.stages) > 1 else 0
    assert report.bytes_read == 256 * 256 * 2 + read_back


def test_regions(engine, tmp_path):
    make_image(tmp_path / "image")
    zg.consolidate(opened(tmp_path / "image"), mode="numpy")
    pyramid = opened(tmp_path / "image")
    pyramid[0][:40, 180:] = 7
    report = zg.consolidate(pyramid, regions=[(slice(0, 40), slice(180, 256))], **engine())
    assert report.n_units == 2 + 1
    done = chunks(tmp_path / "image")
    zg.consolidate(pyramid, mode="numpy")
    assert chunks(tmp_path / "image") == done


def test_verify(engine, tmp_path):
    make_image(tmp_path / "image")
    zg.consolidate(opened(tmp_path / "image"), mode="numpy")
    pyramid = opened(tmp_path / "image")
    assert not zg.verify(pyramid, **engine()).is_stale
    pyramid[1][3, 100] += 1
    assert zg.verify(pyramid, **engine()).levels[0].stale == ((0, 3),)


def test_events(engine, tmp_path):
    make_image(tmp_path / "image")
    events = []
    report = zg.consolidate(opened(tmp_path / "image"), progress=events.append, **engine())
    assert isinstance(events[0], Started) and isinstance(events[-1], Finished)
    assert {type(event) for event in events[1:-1]} == {UnitsDone, TaskDone}
    assert sum(event.n_new for event in events if isinstance(event, UnitsDone)) == report.n_units == 20
    tasks = [event for event in events if isinstance(event, TaskDone)]
    assert [event.n_tasks_done for event in tasks] == list(range(1, len(tasks) + 1))
    assert (events[0].n_units, events[-1].n_units, events[-1].report) == (0, 20, report)
    assert [e.n_units for e in events] == sorted(e.n_units for e in events)
    assert events[-1].bytes_done == report.bytes_read + report.bytes_written


def test_units_are_told_as_they_are_written(engine, tmp_path, monkeypatch):
    monkeypatch.setattr("ziggurat.cluster.PULSE_S", 0.0)
    monkeypatch.setattr("ziggurat.cluster.MAX_PULSES_PER_S", inf)
    make_image(tmp_path / "image")
    config = zg.get_config().dask
    before, config.max_tasks = config.max_tasks, 2
    try:
        plan = zg.plan(opened(SlowStore(LocalStore(tmp_path / "image"), 0.01)), **{"mode": engine()["mode"]})
    finally:
        config.max_tasks = before
    events = []
    plan.run(events.append, **{key: value for key, value in engine().items() if key == "client"})
    heard = [event.n_new for event in events if isinstance(event, UnitsDone)]
    assert sum(heard) == 20
    # Processes of a pool tell when they are done, task by task; all others meanwhile.
    if plan.mode == "numpy" or dask.config.get("scheduler", "") != "processes":
        first_task = next(i for i, event in enumerate(events) if isinstance(event, TaskDone))
        assert sum(isinstance(event, UnitsDone) for event in events[:first_task]) > 2
    assert [e.bytes_done for e in events] == sorted(e.bytes_done for e in events)


def test_report(engine, tmp_path):
    make_image(tmp_path / "image")
    report = zg.consolidate(opened(tmp_path / "image"), **engine())
    assert (report.stages[0].first, report.stages[-1].last) == (1, 2)
    assert sum(stage.bytes_written for stage in report.stages) == report.bytes_written == 128 * 128 * 2 + 64 * 64 * 2
    assert report.bytes_read >= 256 * 256 * 2
    assert all(stage.task_s > 0 and stage.elapsed_s > 0 for stage in report.stages)
    assert all(level.write_s > 0 and level.bytes_per_s > 0 for level in report.levels)
    assert max(stage.peak_bytes for stage in report.stages) == report.peak_bytes
    assert report.n_retries == 0 and report.peak_bytes > 0 and report.bytes_per_s > 0
    data = json.loads(json.dumps(report.to_dict()))
    assert [stage["bytes_per_s"] > 0 for stage in data["stages"]] == [True] * len(report.stages)


def test_requests_are_counted(engine, tmp_path):
    make_image(tmp_path / "image")
    with policy(max_retries=6, retry_on=["Slow Down"]):
        pyramid = opened(flaky(tmp_path / "image", every=5))
    report = zg.consolidate(pyramid, **engine())
    # Each chunk is asked for once, however often that is tried; a second stage reads level 1 back.
    read_back = 16 if report.mode == "dask" and len(report.stages) > 1 else 0
    assert [(level.n_gets, level.n_sets) for level in report.levels] == [(read_back, 16), (0, 4)]
    assert (report.n_gets, report.n_sets) == (64 + read_back, 20)
    assert sum(stage.n_gets for stage in report.stages) == 64 + read_back
    assert f"{84 + read_back} requests" in str(report)
    assert json.loads(json.dumps(report.to_dict()))["n_gets"] == report.n_gets


def test_log(engine, tmp_path, caplog):
    make_image(tmp_path / "image")
    with caplog.at_level("DEBUG", "ziggurat"):
        zg.consolidate(opened(tmp_path / "image"), **engine())
    lines = [record.message for record in caplog.records if record.name == "ziggurat.job"]
    assert f"{tmp_path / 'image'}: mean on" in lines[0]
    assert "done: 20 units" in lines[-1]
    assert sum("task" in line and "took" in line for line in lines) >= 1


def test_a_callable_that_raises_stops_the_work(engine, tmp_path):
    make_image(tmp_path / "image")

    def stop(event):
        if event.n_units:
            raise InterruptedError("enough")

    with pytest.raises(InterruptedError, match="enough"):
        zg.consolidate(opened(tmp_path / "image"), progress=stop, **engine())
    zg.consolidate(opened(tmp_path / "image"), **engine(), lock_timeout_s=1)
    assert chunks(tmp_path / "image") == expected(tmp_path)


@pytest.mark.parametrize("regions", [None, [(slice(0, 100), slice(20, 60))]])
def test_each_task_may_run_twice(regions, tmp_path):
    make_image(tmp_path / "image")
    plan = zg.plan(opened(tmp_path / "image"), mode="dask", regions=regions)
    work = Work(plan.steps, plan.stages, tuple(Handle(a) for a in plan.pyramid.arrays))
    graph, keys = make_graph(work, plan)
    dask.get(graph, keys)
    done = chunks(tmp_path / "image")
    for key in reversed(keys):  # in an order that no scheduler would take: what a task reads is stored
        dask.get(graph, key)
    assert chunks(tmp_path / "image") == done


def test_the_one_task_of_a_stage_runs_in_the_calling_thread(tmp_path):
    make_image(tmp_path / "image")
    region, threads = [(slice(0, 1), slice(0, 1))], set()
    plan = zg.plan(opened(tmp_path / "image"), mode="numpy", regions=region)
    assert [len(owners.cells) for owners in plan.owners] == [1, 1]
    plan.run(lambda event: threads.add(threading.get_ident()))
    assert threads == {threading.get_ident()}


def test_handles_reach_workers_without_a_request(tmp_path):
    store = CountingStore(LocalStore(tmp_path / "image"))
    make_image(store)
    handle = pickle.loads(pickle.dumps(Handle(opened(store)[0])))
    assert not any((handle.array.store.gets, handle.array.store.lists, handle.array.store.sets))
    assert handle.read(((0, 4), (0, 4))).any()


def test_memory_is_refused_before_anything_happens(two_workers):
    store = MemoryStore()
    make_image(store)
    with pytest.raises(zg.errors.StoreError, match="memory of this process"):
        zg.consolidate(opened(store), mode="dask", client=two_workers)


@pytest.mark.parametrize(
    ("n_tasks", "wanted", "asked"), [(100, 1, {}), (300, 3, {}), (1024, 4, {}), (300, 1, {"chunksize": 1})]
)
def test_threads_are_given_few_small_tasks_at_once(n_tasks, wanted, asked, monkeypatch):
    import dask.local

    given, run = [], dask.local.batch_execute_tasks
    monkeypatch.setattr(dask.local, "batch_execute_tasks", lambda it: given.append(len(it)) or run(it))
    monkeypatch.setattr("ziggurat.stages.ONE_TASK_BYTES", 0)
    group = zarr.create_group(MemoryStore())
    arrays = [
        group.create_array(str(k), shape=(n,), chunks=(4,), dtype="u1")
        for k, n in enumerate((8 * n_tasks, 4 * n_tasks))
    ]
    arrays[0][...] = 1
    done = []
    with ceiling(4), dask.config.set(scheduler="threads", num_workers=2, **asked):
        zg.consolidate(arrays, mode="dask", progress=lambda e: done.append(e) if isinstance(e, TaskDone) else None)
    assert len(done) == n_tasks and max(given) == wanted
    assert (arrays[1][...] == 1).all()
