"""Runs the tasks of a plan: in threads of this process, or as a dask graph on whatever scheduler is active."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from threading import Event
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ziggurat.boxes import Box, slices
from ziggurat.cascade import Record, Work
from ziggurat.chunkaxis import ChunkAxis
from ziggurat.cluster import check_client, check_memory, check_workers, needs_threads, run_distributed, warn_of_threads
from ziggurat.errors import ModeError, StoppedError, StoreError
from ziggurat.graph import RunInGraph, Told, Wanted, every, make_graph, run_in_graph
from ziggurat.handle import Handle
from ziggurat.planning import Plan, Task
from ziggurat.runtime import zarr_settings, zarr_threads
from ziggurat.tasks import run_task

__all__ = [
    "Scheduler",
    "check_scheduler",
    "chunk_size_bytes",
    "find_scheduler",
    "run_dask",
    "run_here",
    "write_patch",
]

HANDED_OVER = 4
"""Tasks that a thread is given at once, at most: an error is heard of when those with it are done."""


def run_here(work: Work, plan: Plan, told: Told, wanted: Wanted = every) -> list[Record]:
    """Run the `wanted` tasks in threads of this process, one stage after the other."""
    records: list[Record] = []
    stop = Event()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        try:
            for i in range(len(plan.stages)):
                run = partial(run_task, work, pulse=partial(_pulse, stop, told))
                tasks = list(filter(wanted, plan.tasks(i)))
                # One alone needs no thread, which would take a millisecond.
                for record in (pool.map if len(tasks) > 1 else map)(run, tasks):
                    records.append(record)
                    told.done(record)
        except BaseException:
            stop.set()
            raise
    return records


def _pulse(stop: Event, told: Told, so_far: Record) -> None:
    if stop.is_set():
        raise StoppedError("the call that this task belongs to was stopped")
    told.so_far(so_far)


@dataclass(frozen=True, slots=True)
class Scheduler:
    """What runs a graph: a distributed client, or a `get` function of dask's."""

    get: Callable[..., Any]
    client: Any = None


def find_scheduler(work: Work, plan: Plan, client: Any = None) -> Scheduler:
    """Return the given client, or else whatever scheduler is active, and check that it can do the work.

    Raises
    ------
    StoreError
        When a level lies in a store that the workers cannot see.
    MemoryLimitError
        When a worker's threads together may need more than its memory limit.
    ModeError
        When the client cannot be waited for here.
    """
    found = Scheduler(check_client(client).get, client) if client is not None else _active()
    if found.client is not None or _uses_processes(found.get):
        import cloudpickle

        # Refused here already: dask would wrap what pickling raises.
        cloudpickle.dumps(work)
    if found.client is not None:
        check_workers(found.client, work, plan.peak_bytes)
    elif found.get is _threaded() and needs_threads(work):
        warn_of_threads(_n_threads(), zarr_threads())
    return found


def check_scheduler(plan: Plan, client: Any, is_in_memory: bool) -> None:
    """Refuse, before an image is made that it would write, a plan that the given or the active scheduler cannot run.

    Raises
    ------
    StoreError, MemoryLimitError, ModeError
        As `find_scheduler` does.
    """
    found = Scheduler(check_client(client).get, client) if client is not None else _active()
    if is_in_memory and (found.client is not None or _uses_processes(found.get)):
        raise StoreError(
            f"{plan.where} is to lie in the memory of this process, where dask's workers cannot write it: "
            "use mode='numpy', the threaded scheduler, or a directory"
        )
    if found.client is not None:
        check_memory(found.client, plan.peak_bytes)


def _active() -> Scheduler:
    from dask.base import get_scheduler

    try:
        found = get_scheduler() or _threaded()
    except RuntimeError as e:
        # dask refuses an asynchronous client, and a scheduler that is named and not there.
        raise ModeError(
            f"{e}: in an event loop, `await asyncio.to_thread(consolidate, ...)`, or "
            "`await client.compute(consolidate(..., compute=False))`"
        ) from e
    owner = getattr(found, "__self__", None)
    return Scheduler(found, check_client(owner) if type(owner).__module__.startswith("distributed") else None)


def _threaded() -> Callable[..., Any]:
    import dask.threaded

    get: Callable[..., Any] = dask.threaded.get
    return get


def _uses_processes(get: Callable[..., Any]) -> bool:
    import dask.multiprocessing

    return get is dask.multiprocessing.get


def _n_threads() -> int:
    import dask
    from dask.system import CPU_COUNT

    pool = dask.config.get("pool", None)
    return int(getattr(pool, "_max_workers", 0) or dask.config.get("num_workers", None) or CPU_COUNT)


def run_dask(work: Work, plan: Plan, scheduler: Scheduler, told: Told, wanted: Wanted = every) -> list[Record]:
    """Compute the `wanted` tasks on a scheduler: threads, processes, or a distributed client."""
    import dask

    if scheduler.client is not None:
        return run_distributed(scheduler.client, work, plan, told, wanted)
    if scheduler.get is not _threaded():
        return _run_local(scheduler.get, work, plan, told, wanted)
    if (pool := dask.config.get("pool", None)) is not None:
        return _run_local(partial(scheduler.get, pool=pool), work, plan, told, wanted)
    # A pool of our own: dask's default one does not survive a fork, and would let tasks run on after an error.
    stop = Event()

    def run(work: Work, task: Task, needed: list[Any]) -> Record:
        return run_task(work, task, partial(_pulse, stop, told))

    n_threads = _n_threads()
    # Handing over a task takes longer than one of an empty block; few at once leave no thread without work at the end.
    at_once = dask.config.get("chunksize", min(HANDED_OVER, 1 + plan.n_tasks // (64 * n_threads)))
    with ThreadPoolExecutor(n_threads) as pool:
        try:
            return _run_local(partial(scheduler.get, pool=pool, chunksize=at_once), work, plan, told, wanted, run)
        except BaseException:
            stop.set()
            raise


def _run_local(
    get: Callable[..., Any], work: Work, plan: Plan, told: Told, wanted: Wanted, run: RunInGraph = run_in_graph
) -> list[Record]:
    from dask.callbacks import Callback

    graph, keys = make_graph(work, plan, wanted, run)

    def posttask(key: Any, result: Any, *_: Any) -> None:
        if isinstance(result, Record):
            told.done(result)

    # Given, not entered: callbacks that are entered hear of the graphs of all threads.
    ours = Callback(posttask=posttask)._callback
    return list(get(graph, keys, callbacks=[ours, *Callback.active]))


def write_patch(handle: Handle, box: Box, patch: Any) -> None:
    """Write a numpy or dask array to `box`; a dask array on the active scheduler, each write unit by one task."""
    if isinstance(patch, np.ndarray):
        with zarr_settings(handle.settings, None):
            handle.patch(box, patch)
        return
    import dask.array as da

    chunks = tuple(_cuts(units, *ab) for units, ab in zip(handle.level.units.axes, box, strict=True))
    target: Any = _PatchTarget(handle)
    da.store(patch.rechunk(chunks), target, regions=slices(box), lock=False)


@dataclass(frozen=True, slots=True)
class _PatchTarget:
    """What dask stores to: its blocks lie in one write unit each."""

    handle: Handle

    def __setitem__(self, key: tuple[slice, ...], pixels: NDArray[Any]) -> None:
        with zarr_settings(self.handle.settings):
            self.handle.patch(tuple((s.start, s.stop) for s in key), pixels)


def _cuts(units: ChunkAxis, start: int, stop: int) -> tuple[int, ...]:
    """Return the lengths of the pieces of an interval that is cut where write units begin."""
    met = map(units.interval, units.meeting(start, stop))
    return tuple(min(b, stop) - max(a, start) for a, b in met)


def chunk_size_bytes() -> int:
    """Return dask's own limit for a chunk, ``array.chunk-size``, in bytes."""
    import dask
    from dask.utils import parse_bytes

    return int(parse_bytes(dask.config.get("array.chunk-size")))
