"""Runs a plan on a distributed client: checks the workers, gathers records as they come, and can stop."""

import logging
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import chain
from typing import Any

from ziggurat.cascade import Record, Work
from ziggurat.errors import MemoryLimitError, ModeError
from ziggurat.graph import Told, Wanted, every, make_graph
from ziggurat.handle import Handle
from ziggurat.planning import Plan, Task
from ziggurat.pulse import listening, pulse
from ziggurat.runtime import is_synchronous, zarr_threads
from ziggurat.sidecar import sweep
from ziggurat.tasks import run_task
from ziggurat.text import format_bytes

__all__ = ["check_client", "check_memory", "check_workers", "run_distributed", "warn_of_threads"]

logger = logging.getLogger(__name__)

STOP_S = 60.0
"""How long a call that is interrupted waits for its tasks; they stop before the next block that they would write."""

PULSE_S = 1.0
"""A running task tells how far it is no more often; with many workers less often."""

MAX_PULSES_PER_S = 20
"""What all workers together send, so that the scheduler has nothing to do with it."""

_IN_A_LOOP = (
    "an asynchronous client cannot be waited for in its own event loop: `await asyncio.to_thread(consolidate, ...)`, "
    "or `await client.compute(consolidate(..., compute=False))`"
)


def check_client(client: Any) -> Any:
    """Return `client`, if it is one that can be waited for here.

    Raises
    ------
    ModeError
        When it is no `distributed.Client`, or an asynchronous one that is used in its own event loop.
    """
    if not hasattr(client, "scheduler_info") or not hasattr(client, "get"):
        raise ModeError(f"client={client!r} is no distributed.Client: give one, or None for the active scheduler")
    if client.asynchronous:
        raise ModeError(_IN_A_LOOP)
    return client


def check_memory(client: Any, peak_bytes: int) -> None:
    """Compare what a plan needs with what the workers have, before anything is written.

    Raises
    ------
    MemoryLimitError
        When a worker's threads together may need more than its memory limit.
    """
    for address, worker in client.scheduler_info()["workers"].items():
        limit, n_threads = worker["memory_limit"], worker["nthreads"]
        if limit and peak_bytes * n_threads > limit:
            raise MemoryLimitError(
                f"each task may take {format_bytes(peak_bytes)}, which {n_threads} threads of worker {address} do not "
                f"have in {format_bytes(limit)}: give workers more memory_limit or fewer threads, or lower "
                "dask.write_block_max_bytes (never below one write unit)"
            )


def check_workers(client: Any, work: Work, peak_bytes: int) -> None:
    """Check the workers' memory, and warn where zarr has fewer threads than they."""
    check_memory(client, peak_bytes)
    workers = client.scheduler_info()["workers"]
    busy = [address for address, worker in workers.items() if worker["nthreads"] > 1]
    if busy and needs_threads(work):
        found = client.run(zarr_threads, workers=busy, on_error="ignore")
        for address, n_zarr in found.items():
            warn_of_threads(workers[address]["nthreads"], n_zarr)


def needs_threads(work: Work) -> bool:
    """Say whether zarr uses its executor to reach the levels."""
    return not all(is_synchronous(h.array.store) for h in work.handles if isinstance(h, Handle))


def warn_of_threads(n_threads: int, n_zarr: int | None) -> None:
    """Warn where zarr's executor, which all tasks of a process share, was made smaller than what runs them."""
    if n_zarr is not None and n_zarr < n_threads:
        warnings.warn(
            f"zarr's threading.max_workers is {n_zarr}, below the {n_threads} threads of a worker, which will wait for "
            f"one another: set zarr.threading_max_workers to {n_threads} or more where the workers run",
            UserWarning,
            stacklevel=2,
        )


def run_distributed(client: Any, work: Work, plan: Plan, told: Told, wanted: Wanted = every) -> list[Record]:
    """Run the `wanted` tasks on the workers of `client`.

    `dask.annotate` is honoured: priorities, resources, retries of tasks. Records are let go as they arrive, so that a
    worker that dies takes little with it; what it had begun runs again elsewhere.
    """
    before = _threads(client)
    work = replace(work, pulse_s=max(PULSE_S, len(before) / MAX_PULSES_PER_S))
    graph, keys = make_graph(work, plan, wanted, _run, sum(before.values()))
    records: list[Record] = []
    futures: list[Any] = []
    try:
        with listening(client, graph.token, told.so_far) as check, _seceded():
            futures = client.get(graph, keys, sync=False)
            for record in chain.from_iterable(_arriving(client, futures)):
                check()
                records.append(record)
                told.done(record)
    except BaseException:
        _stop(client, futures)
        raise
    finally:
        if before.keys() - _threads(client).keys():
            # A worker that was killed leaves what it was just writing beside its place.
            for handle in work.handles[1:]:
                sweep(handle.array)
    return records


def _threads(client: Any) -> dict[str, int]:
    """Return the number of threads of each worker, by its address; none where the scheduler is gone."""
    with suppress(Exception):
        workers = client.scheduler_info().get("workers", {})
        return {address: worker["nthreads"] for address, worker in workers.items()}
    return {}


def _run(work: Work, tasks: Sequence[Task], needed: list[Any]) -> list[Record]:
    beat = pulse(work.pulse_s)
    return [run_task(work, task, beat) for task in tasks]


def _arriving(client: Any, futures: Sequence[Any]) -> Iterator[list[Record]]:
    from distributed import as_completed

    arrived = as_completed(futures, loop=client.loop, with_results=True, raise_errors=False)
    for batch in arrived.batches():
        for future, records in batch:
            if future.status != "finished":
                future.result()
            yield records
            future.release()


@contextmanager
def _seceded() -> Iterator[None]:
    """Free this thread's place on its worker while it waits, where this runs in a task of a cluster."""
    from distributed import rejoin, secede

    seceded = False
    with suppress(Exception):  # no task, or one that has seceded already
        secede()
        seceded = True
    try:
        yield
    finally:
        if seceded:
            rejoin()


def _stop(client: Any, futures: Sequence[Any]) -> None:
    """Cancel the tasks, and wait until none runs: the next call may rebuild the same units."""
    keys = {future.key for future in futures}
    deadline = time.monotonic() + STOP_S
    with suppress(Exception):  # the scheduler is gone, and its workers with it; what stopped the call is told instead
        client.cancel(futures, force=True)
        while n := sum(client.run(_n_running, keys, on_error="ignore").values()):
            if time.monotonic() > deadline:
                logger.warning("%d tasks still run after %g s", n, STOP_S)
                return
            time.sleep(0.1)


def _n_running(keys: set[Any], dask_worker: Any) -> int:
    return sum(state.key in keys for state in dask_worker.state.all_running_tasks)
