"""Rebuild one image on a dask cluster: ``python cluster_job.py IMAGE [--scheduler tcp://HOST:8786]``.

Run it again after an interruption: what was done stays done. Without a scheduler, workers start on this machine.
"""

import argparse
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import dask
from distributed import Client, LocalCluster

import ziggurat as zg
from ziggurat.events import Progress, TaskDone

logger = logging.getLogger("cluster_job")


def main(arguments: Sequence[str] | None = None) -> int:
    """Plan, rebuild, and compare a sample; returns 1 when something is stale."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("image", help="OME-Zarr image: a path or URL that all workers see")
    parser.add_argument("--scheduler", help="address of a running dask scheduler")
    parser.add_argument("--workers", type=int, default=2, help="workers to wait for, or to start")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")

    plan = zg.plan(options.image, mode="dask")
    print(plan)
    with connected(options.scheduler, options.workers) as client:
        client.wait_for_workers(options.workers, timeout=300)
        # A task that fails, whatever the store's own retries, is given to a worker three times more.
        with dask.annotate(retries=3):
            print(plan.run(log_progress, resume=True, client=client))
        check = zg.verify(options.image, mode="dask", sample=0.01, client=client)
    print(check)
    return int(check.is_stale)


@contextmanager
def connected(address: str | None, n_workers: int) -> Iterator[Client]:
    """Connect to a scheduler, or start a small cluster on this machine."""
    if address is not None:
        with Client(address) as client:
            yield client
        return
    with (
        LocalCluster(n_workers=n_workers, threads_per_worker=2, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster) as client,
    ):
        yield client


def log_progress(event: Progress) -> None:
    """Write a line after every hundredth task."""
    if isinstance(event, TaskDone) and event.n_tasks_done % 100 == 0:
        logger.info("%.0f %%, %.0f s left", 100 * event.fraction, event.remaining_s)


if __name__ == "__main__":
    raise SystemExit(main())
