"""Runs a plan: in memory with numpy, or as a dask graph on whatever scheduler is active."""

import os
import pickle
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from ziggurat.boxes import Box, cut, slices
from ziggurat.cascade import Record, Work, n_units, reduce_into, run_task
from ziggurat.grid import Shape
from ziggurat.planning import Plan, Task
from ziggurat.runtime import zarr_settings
from ziggurat.store import Handle

if TYPE_CHECKING:
    from dask.delayed import Delayed

__all__ = ["chunk_size_bytes", "delayed", "run_dask", "run_here", "run_numpy", "write_patch"]

type Notify = Callable[[Record], None]
type Wanted = Callable[[Task], bool]


def _all(task: Task) -> bool:
    return True


def run_numpy(work: Work, writes: Sequence[Shape], notify: Notify) -> list[Record]:
    """Read level 0 at once and build the chain in memory, two adjacent levels at a time.

    Parameters
    ----------
    writes : sequence of tuple of int
        Pixels of one write block of each level, level 1 first.
    """
    records: list[Record] = []
    settings = work.handles[0].settings
    with zarr_settings(settings, None):
        pixels = work.handles[0].read(work.handles[0].level.box) if work.steps else np.empty(0)
    with ThreadPoolExecutor(os.cpu_count()) as pool, zarr_settings(settings):
        for k, size in enumerate(writes, 1):
            started = time.time()
            read = pixels.nbytes if k == 1 else 0
            pixels = _build_level(work, k, size, pixels, pool)
            units = n_units(work.handles[k].level, work.handles[k].level.box)
            records.append(Record(((k, units, pixels.nbytes),), read, started, time.time()))
            notify(records[-1])
    return records


def _build_level(work: Work, k: int, size: Shape, source: NDArray[Any], pool: ThreadPoolExecutor) -> NDArray[Any]:
    step, handle = work.steps[k - 1], work.handles[k]
    level = np.empty(handle.level.shape, handle.dtype)

    def build(box: Box) -> None:
        block = level[slices(box)]
        reduce_into(step, source, (0,) * source.ndim, box, block)
        handle.write(box, block)

    for _ in pool.map(build, cut(handle.level.box, size)):
        pass
    return level


def run_here(work: Work, plan: Plan, notify: Notify, wanted: Wanted = _all) -> list[Record]:
    """Run the `wanted` tasks in threads of this process, one stage after the other."""
    records: list[Record] = []
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for i in range(len(plan.stages)):
            for record in pool.map(partial(run_task, work), filter(wanted, plan.tasks(i))):
                records.append(record)
                notify(record)
    return records


def delayed(work: Work, plan: Plan, finish: Callable[[list[Record]], Any], wanted: Wanted = _all) -> "Delayed":
    """Return the work as one dask collection; its value is what `finish` makes of the tasks' records."""
    from dask.delayed import Delayed

    graph, keys = _graph(work, plan, wanted)
    name = f"ziggurat-report-{uuid4().hex}"
    return Delayed(name, {**graph, name: (finish, list(keys))})


def _graph(work: Work, plan: Plan, wanted: Wanted) -> tuple[dict[Any, Any], list[Any]]:
    """Return the tasks as a plain graph, and the keys of their records.

    A task waits for the tasks of the stage before that write what it reads: those that the grids' arithmetic names
    in a full rebuild, all of them in a regional one.
    """
    token = uuid4().hex
    shared = f"ziggurat-work-{token}"
    graph: dict[Any, Any] = {shared: work}
    keys: list[Any] = []
    barrier: list[Any] = []
    for i, stage in enumerate(plan.stages):
        name = f"ziggurat-level{stage.last}-{token}"
        before = f"ziggurat-level{stage.first - 1}-{token}"
        found = []
        for task in filter(wanted, plan.tasks(i)):
            if plan.is_regional or not i:
                needed: list[Any] = barrier
            else:
                needed = [key for index in plan.waits(task) if (key := (before, *index)) in graph]
            found.append((name, *task.index))
            graph[found[-1]] = (_run, shared, task, needed)
        barrier = [f"ziggurat-level{stage.last}-done-{token}"]
        if plan.is_regional:
            graph[barrier[0]] = (_done, found)
        keys += found
    return graph, keys


def _run(work: Work, task: Task, needed: list[Any]) -> Record:
    return run_task(work, task)


def _done(records: list[Record]) -> None:
    """Stand for all tasks of a stage."""


def run_dask(work: Work, plan: Plan, notify: Notify, wanted: Wanted = _all) -> list[Record]:
    """Compute the `wanted` tasks on the active scheduler: threads, processes, or a distributed client.

    Raises
    ------
    StoreError
        When a level lies in a store that the workers cannot see.
    """
    import dask
    from dask.callbacks import Callback

    collection = delayed(work, plan, list, wanted)
    client = _distributed_client(collection)
    if client is not None or _uses_processes(collection):
        # Refused here already: dask would wrap what pickling raises.
        pickle.dumps(work)
    if client is not None:
        return _run_distributed(client, *_graph(work, plan, wanted), notify)

    def told(key: Any, result: Any, *_: Any) -> None:
        if isinstance(result, Record):
            notify(result)

    with Callback(posttask=told):
        (records,) = dask.compute(collection, optimize_graph=False)
    return list(records)


def _run_distributed(client: Any, graph: dict[Any, Any], keys: list[Any], notify: Notify) -> list[Record]:
    from distributed import as_completed

    futures = client.get(graph, keys, sync=False)
    records = []
    for future in as_completed(futures):
        records.append(future.result())
        notify(records[-1])
    return records


def _distributed_client(collection: Any) -> Any:
    """Return the client that would compute `collection`, if it is a distributed one."""
    from dask.base import get_scheduler

    scheduler = get_scheduler(collections=[collection])
    owner = getattr(scheduler, "__self__", None)
    return owner if type(owner).__module__.startswith("distributed") else None


def _uses_processes(collection: Any) -> bool:
    import dask.multiprocessing
    from dask.base import get_scheduler

    scheduler = get_scheduler(collections=[collection])
    return scheduler is dask.multiprocessing.get


def write_patch(handle: Handle, box: Box, patch: Any) -> None:
    """Write a numpy or dask array to `box`; a dask array on the active scheduler, each write unit by one task."""
    if isinstance(patch, np.ndarray):
        handle.patch(box, patch)
        return
    import dask.array as da

    chunks = tuple(_cuts(start, stop, u) for (start, stop), u in zip(box, handle.level.unit, strict=True))
    target: Any = _PatchTarget(handle)
    da.store(patch.rechunk(chunks), target, regions=slices(box), lock=False)


@dataclass(frozen=True, slots=True)
class _PatchTarget:
    """What dask stores to: its blocks lie in one write unit each."""

    handle: Handle

    def __setitem__(self, key: tuple[slice, ...], pixels: NDArray[Any]) -> None:
        self.handle.patch(tuple((s.start, s.stop) for s in key), pixels)


def _cuts(start: int, stop: int, unit: int) -> tuple[int, ...]:
    """Return the lengths of the pieces of an interval that is cut at the multiples of `unit`."""
    edges = [start, *range(start // unit * unit + unit, stop, unit), stop]
    return tuple(b - a for a, b in pairwise(edges))


def chunk_size_bytes() -> int:
    """Return dask's own limit for a chunk, ``array.chunk-size``, in bytes."""
    import dask
    from dask.utils import parse_bytes

    return int(parse_bytes(dask.config.get("array.chunk-size")))
