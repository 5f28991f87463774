"""The same rebuild on one worker process and on more: `python -m benchmarks.scaling --help`.

Every worker has one thread. What is measured is the run on a cluster that is up and has compiled everything; also how
much each worker grew, beside what the plan promises for a task. The figures mean something on a quiet machine only.
"""

import argparse
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dask
from dask.utils import parse_bytes
from distributed import Client, LocalCluster

import ziggurat as zg
from benchmarks.images import CODECS, GEOMETRIES, clear_levels, make_image, warm_page_cache

# Else glibc keeps 10 to 40 MiB of freed blocks per thread.
ENVIRONMENT = {"MALLOC_MMAP_THRESHOLD_": "131072"}
COLUMNS = ("workers", "seconds", "MiB/s", "times faster", "growth, MiB", "peak, MiB", "task s, sum")


def main(arguments: Sequence[str]) -> None:
    """Make the image, rebuild it with each number of workers in turn, and print a table."""
    options = _parser().parse_args(arguments)
    geometry = next(g for g in GEOMETRIES if g.name == options.geometry).at_most(options.size)
    with tempfile.TemporaryDirectory(prefix="ziggurat-bench-", dir=options.directory) as temporary:
        image, tiny = Path(temporary) / "image.zarr", Path(temporary) / "tiny.zarr"
        make_image(image, geometry, options.codec)
        make_image(tiny, geometry.tiny(), options.codec)
        warm_page_cache(image)
        print(f"{geometry.name} {geometry.shape}, {options.codec}, {geometry.n_bytes / 2**20:.0f} MiB, mean")
        print("".join(f"{name:>14}" for name in COLUMNS))
        first = 0.0
        for n_workers in options.workers:
            runs = _measure(image, tiny, n_workers, options.repeat)
            seconds = statistics.median(run["elapsed_s"] for run in runs)
            first = first or seconds
            speed = statistics.median(run["bytes_per_s"] for run in runs) / 2**20
            growth, peak = (max(run[key] for run in runs) / 2**20 for key in ("growth_bytes", "peak_bytes"))
            task_s = statistics.median(run["task_s"] for run in runs)
            print(
                f"{n_workers:>14}{seconds:>14.2f}{speed:>14.0f}{first / seconds:>14.2f}"
                f"{growth:>14.0f}{peak:>14.0f}{task_s:>14.2f}",
                flush=True,
            )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scaling", description=__doc__)
    parser.add_argument("--size", type=parse_bytes, default="2GiB", help="of level 0")
    parser.add_argument("--geometry", choices=[g.name for g in GEOMETRIES], default="planes")
    parser.add_argument("--codec", choices=list(CODECS), default="blosc-lz4")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2], metavar="N")
    parser.add_argument("--repeat", type=int, default=3, metavar="N")
    parser.add_argument("--directory", type=Path, help="where the temporary image goes")
    return parser


def _measure(image: Path, tiny: Path, n_workers: int, repeat: int) -> list[dict[str, Any]]:
    options = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0", "env": ENVIRONMENT, "memory_limit": 0}
    with LocalCluster(n_workers=n_workers, threads_per_worker=1, **options) as cluster, Client(cluster) as client:
        client.run(_warm_up, str(tiny))
        return [_one_run(client, image) for _ in range(repeat)]


def _warm_up(tiny: str) -> None:
    # In the thread of the call: it is the worker's event loop, which must not wait for its own tasks.
    with dask.config.set(scheduler="sync"):
        zg.consolidate(tiny, mode="dask")


def _one_run(client: Client, image: Path) -> dict[str, Any]:
    clear_levels(image)
    before = client.run(_forget_peak)
    report = zg.plan(image, mode="dask").run(client=client, progress=False)
    after = client.run(_resident_bytes, "VmHWM")
    growth = max(after[worker] - before[worker] for worker in after)
    return {**report.to_dict(), "growth_bytes": growth, "task_s": sum(stage.task_s for stage in report.stages)}


def _forget_peak() -> int:
    """Let the high-water mark begin anew (Linux), and return what is resident."""
    Path("/proc/self/clear_refs").write_text("5")
    return _resident_bytes("VmRSS")


def _resident_bytes(key: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{key}:"))


if __name__ == "__main__":
    main(sys.argv[1:])
