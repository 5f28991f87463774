"""The same rebuild on one worker process and on more: `python -m benchmarks.scaling --help`.

Every worker has one thread. What is measured is the run on a cluster that is up and has compiled everything, the only
one there is. Its scheduler and client, which elsewhere have a machine of their own, run on the workers' cores here. So
what dask does to watch itself, 50 to 70 ms per second for each process, is done less often: no profile of workers, and
`distributed.admin` looks once in seconds, not 50 times in one. Numbers of workers take turns, after a round that does
not count. "in tasks" is the sum over all tasks, of the time inside them. Beside the
peak that the plan promises for a task is the most that a worker grew by, in one run more, with the malloc that memory
is measured with. For time malloc keeps what it has. By default a nanny makes it give memory back at once, and the
codecs, which take some for each chunk, half as fast.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dask
from distributed import Client, LocalCluster

import ziggurat as zg
from benchmarks.images import CODECS, GEOMETRIES, clear_levels, make_image, warm_page_cache
from benchmarks.measure import resident_bytes
from benchmarks.processes import MEMORY_ENVIRONMENT
from benchmarks.record import Record, parser_of

SELDOM_WATCHED = {
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.system-monitor.interval": "5s",
}
KEEPING_ENVIRONMENT = {"MALLOC_TRIM_THRESHOLD_": str(128 * 2**20), "MALLOC_MMAP_THRESHOLD_": str(32 * 2**20)}


def main(arguments: Sequence[str]) -> None:
    """Make the image and rebuild it with each number of workers in turn."""
    options = _parser().parse_args(arguments)
    record = Record("scaling", options, arguments, ["distributed"])
    geometry = next(g for g in GEOMETRIES if g.name == options.geometry).at_most(options.size)
    with tempfile.TemporaryDirectory(prefix="ziggurat-bench-", dir=options.directory) as temporary:
        image, tiny = Path(temporary) / "image.zarr", Path(temporary) / "tiny.zarr"
        make_image(image, geometry, options.codec)
        make_image(tiny, geometry.at_most(min(options.size, geometry.tiny().n_bytes)), options.codec)
        warm_page_cache(image)
        timed = _runs(image, tiny, options.workers, options.repeat + 1, KEEPING_ENVIRONMENT)
        memory = _runs(image, tiny, options.workers, 1, MEMORY_ENVIRONMENT)
        for n_workers in options.workers:
            labels = {"image": f"{geometry.name} {geometry.n_bytes >> 20} MiB", "codec": options.codec}
            growth = {"growth_bytes": memory[n_workers][0]["growth_bytes"]}
            record.add({**labels, "workers": str(n_workers)}, [{**run, **growth} for run in timed[n_workers][1:]])
    record.close()


def _parser() -> argparse.ArgumentParser:
    parser = parser_of("scaling", __doc__, size="2GiB")
    parser.add_argument("--geometry", choices=[g.name for g in GEOMETRIES], default="planes")
    parser.add_argument("--codec", choices=list(CODECS), default="blosc-lz4")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2], metavar="N")
    return parser


def _runs(
    image: Path, tiny: Path, workers: Sequence[int], rounds: int, env: dict[str, str]
) -> dict[int, list[dict[str, Any]]]:
    """Return what each round of each number of workers cost; they take turns."""
    os.environ.update(env)  # what a nanny is given as `env` comes too late: malloc reads it when a process starts
    turns = [{n: _turn(image, tiny, n) for n in workers} for _ in range(rounds)]
    return {n: [turn[n] for turn in turns] for n in workers}


def _turn(image: Path, tiny: Path, n_workers: int) -> dict[str, Any]:
    """Return what a rebuild cost on a cluster that is up and has compiled everything, while no other one is there."""
    options = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0", "memory_limit": 0}
    with (
        dask.config.set(SELDOM_WATCHED),
        LocalCluster(n_workers=n_workers, threads_per_worker=1, **options) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        client.run(_warm_up, str(tiny))
        zg.plan(tiny, mode="dask").run(client=client, progress=False)
        return _one_run(client, image)


def _warm_up(tiny: str) -> None:
    # In the thread of the call: it is the worker's event loop, which must not wait for its own tasks.
    with dask.config.set(scheduler="sync"):
        zg.consolidate(tiny, mode="dask")


def _one_run(client: Client, image: Path) -> dict[str, Any]:
    clear_levels(image)
    before = client.run(_forget_peak)
    report = zg.plan(image, mode="dask").run(client=client, progress=False)
    after = client.run(resident_bytes, "VmHWM")
    return {
        "wall_s": report.elapsed_s,
        "task_s": sum(stage.task_s for stage in report.stages),
        "growth_bytes": max(after[worker] - before[worker] for worker in after),
        "peak_MiB": report.peak_bytes / 2**20,
    }


def _forget_peak() -> int:
    """Let the high-water mark begin anew (Linux), and return what is resident."""
    Path("/proc/self/clear_refs").write_text("5")
    return resident_bytes("VmRSS")


if __name__ == "__main__":
    main(sys.argv[1:])
