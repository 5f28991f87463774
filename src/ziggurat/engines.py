"""Runs a plan: in memory with numpy, or as a dask graph on whatever scheduler is active."""

import os
import pickle
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from ziggurat.boxes import Box, cut, slices
from ziggurat.cascade import Record, Work, n_units, reduce_into, run_task
from ziggurat.grid import Shape
from ziggurat.planning import Plan, Task
from ziggurat.store import codec_threads

if TYPE_CHECKING:
    from dask.delayed import Delayed

__all__ = ["chunk_size_bytes", "delayed", "run_dask", "run_here", "run_numpy"]

type Notify = Callable[[Record], None]


def run_numpy(work: Work, writes: Sequence[Shape], notify: Notify) -> list[Record]:
    """Read level 0 at once and build the chain in memory, two adjacent levels at a time.

    Parameters
    ----------
    writes : sequence of tuple of int
        Pixels of one write block of each level, level 1 first.
    """
    records: list[Record] = []
    pixels = work.handles[0].read(work.handles[0].level.box) if work.steps else np.empty(0)
    with ThreadPoolExecutor(os.cpu_count()) as pool, codec_threads(1):
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


def run_here(work: Work, plan: Plan, notify: Notify) -> list[Record]:
    """Run the tasks in threads of this process, one stage after the other."""
    records: list[Record] = []
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for i in range(len(plan.stages)):
            for record in pool.map(partial(run_task, work), plan.tasks(i)):
                records.append(record)
                notify(record)
    return records


def delayed(work: Work, plan: Plan, finish: Callable[[list[Record]], Any]) -> "Delayed":
    """Return the work as one dask collection; its value is what `finish` makes of the tasks' records."""
    from dask.delayed import Delayed

    graph, keys = _graph(work, plan)
    name = f"ziggurat-report-{uuid4().hex}"
    return Delayed(name, {**graph, name: (finish, list(keys))})


def _graph(work: Work, plan: Plan) -> tuple[dict[Any, Any], list[Any]]:
    """Return the tasks as a plain graph, and the keys of their records.

    A task waits for the tasks of the stage before that write what it reads: those that the grids' arithmetic names
    in a full rebuild, all of them in a regional one.
    """
    token = uuid4().hex
    shared = f"ziggurat-work-{token}"
    graph: dict[Any, Any] = {shared: work}
    keys: list[Any] = []
    barrier: list[str] = []
    for i, stage in enumerate(plan.stages):
        name = f"ziggurat-level{stage.last}-{token}"
        before = f"ziggurat-level{stage.first - 1}-{token}"
        found = []
        for task in plan.tasks(i):
            needed = barrier if plan.is_regional or not i else [(before, *index) for index in plan.waits(task)]
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


def run_dask(work: Work, plan: Plan, notify: Notify) -> list[Record]:
    """Compute all tasks on the active scheduler: threads, processes, or a distributed client.

    Raises
    ------
    StoreError
        When a level lies in a store that the workers cannot see.
    """
    import dask
    from dask.callbacks import Callback

    collection = delayed(work, plan, list)
    client = _distributed_client(collection)
    if client is not None or _uses_processes(collection):
        # Refused here already: dask would wrap what pickling raises.
        pickle.dumps(work)
    if client is not None:
        return _run_distributed(client, work, plan, notify)

    def told(key: Any, result: Any, *_: Any) -> None:
        if isinstance(result, Record):
            notify(result)

    with Callback(posttask=told):
        (records,) = dask.compute(collection, optimize_graph=False)
    return list(records)


def _run_distributed(client: Any, work: Work, plan: Plan, notify: Notify) -> list[Record]:
    from distributed import as_completed

    graph, keys = _graph(work, plan)
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


def chunk_size_bytes() -> int:
    """Return dask's own limit for a chunk, ``array.chunk-size``, in bytes."""
    import dask
    from dask.utils import parse_bytes

    return int(parse_bytes(dask.config.get("array.chunk-size")))
