"""What worker processes grow by, beside what the plan promises: `python -m benchmarks.worker_memory --help`.

Every worker has one thread, so that its growth is to stay under the promise for one task, and some megabytes for what
is allocated beside: `SLACK_BYTES` in `tests/test_worker_memory.py`. Images lie on disk, two levels each.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import dask
import numpy as np
import zarr
from distributed import Client, LocalCluster
from zarr.storage import LocalStore

import ziggurat as zg
from benchmarks.processes import MEMORY_ENVIRONMENT
from ziggurat import kernels

MIB = 2**20

type Shape = tuple[int, ...]

# Of the finest level: shape, chunk, shard; and the shape of the next.
IMAGES: dict[str, tuple[Shape, Shape, Shape | None, Shape]] = {
    "2-D chunks, floor": ((8, 8001, 8203), (1, 1024, 1024), None, (8, 4000, 4101)),
    "2-D chunks, ceil": ((8, 8001, 8203), (1, 1024, 1024), None, (8, 4001, 4102)),
    "3-D shards of 64 MiB, floor": ((513, 511, 1025), (64, 64, 64), (256, 256, 512), (256, 255, 512)),
    "3-D shards of 64 MiB, ceil": ((513, 511, 1025), (64, 64, 64), (256, 256, 512), (257, 256, 513)),
}
COLUMNS = ("image", "method", "level 0", "tasks", "promised", "grew most", "share")


def main(arguments: Sequence[str]) -> None:
    """Rebuild each image with each method on a fresh cluster, and print a table in MiB."""
    options = _parser().parse_args(arguments)
    print(f"{COLUMNS[0]:<30}{COLUMNS[1]:>10}" + "".join(f"{name:>11}" for name in COLUMNS[2:]), flush=True)
    for name in options.image:
        shape, chunk, shard, coarser = IMAGES[name]
        with tempfile.TemporaryDirectory(prefix="ziggurat-bench-", dir=options.directory) as temporary:
            image = _make(Path(temporary) / "image.zarr", [shape, coarser], chunk, shard)
            for method in options.method:
                n_tasks, promised, grew = _measure(image, method, options.workers)
                sizes = (int(np.prod(shape)) * 2 // MIB, n_tasks, promised // MIB, grew // MIB)
                figures = "".join(f"{n:>11,}" for n in sizes) + f"{grew / promised:>11.0%}"
                print(f"{name:<30}{method:>10}{figures}", flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.worker_memory", description=__doc__)
    parser.add_argument("--image", nargs="+", choices=list(IMAGES), default=list(IMAGES))
    parser.add_argument("--method", nargs="+", default=["mean", "gaussian"])
    parser.add_argument("--workers", type=int, default=2, metavar="N")
    parser.add_argument("--directory", type=Path, help="where the temporary images go")
    return parser


def _make(where: Path, shapes: Sequence[Shape], chunk: Shape, shard: Shape | None) -> Path:
    group = zarr.create_group(LocalStore(where))
    for k, shape in enumerate(shapes):
        group.create_array(str(k), shape=shape, chunks=chunk, shards=shard, dtype="u2", compressors=None)
    noise = np.random.default_rng(0).integers(0, 60_000, shapes[0][1:], "u2")
    step = (shard or chunk)[0]
    level = zarr.open_array(LocalStore(where), path="0")
    for z in range(0, shapes[0][0], step):
        level[z : z + step] = np.broadcast_to(noise, (min(step, shapes[0][0] - z), *noise.shape))
    return where


def _measure(image: Path, method: str, n_workers: int) -> tuple[int, int, int]:
    """Return tasks, bytes that the plan promises, and bytes that the worker grew by that grew most."""
    options: dict[str, Any] = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0", "memory_limit": 0}
    cluster = LocalCluster(n_workers=n_workers, threads_per_worker=1, env=MEMORY_ENVIRONMENT, **options)
    with cluster, Client(cluster) as client:
        client.run(_warm_up, image, method)
        plan = zg.plan(zg.open_pyramid(image, levels=["0", "1"]), method=method, mode="dask")
        before = client.run(_forget_peak)
        plan.run(client=client, progress=False)
        after = client.run(_resident_bytes, "VmHWM")
        return plan.n_tasks, plan.peak_bytes, max(after[worker] - before[worker] for worker in after)


def _warm_up(image: Path, method: str, dask_worker: Any) -> None:
    """Import and compile what a worker needs for the image, on a small one with the same parities."""
    kernels._NUMBA_PAYS_BYTES = 0  # numba takes 60 to 130 MiB once, whatever it is loaded for
    shapes = [level.shape for level in zg.open_pyramid(image, levels=["0", "1"]).levels]
    source = tuple(n if n < 16 else 64 + n % 2 for n in shapes[0])
    target = tuple(s if n == m else s // 2 + (2 * m > n) * (n % 2) for s, n, m in zip(source, *shapes, strict=True))
    small = _make(Path(dask_worker.local_directory) / uuid4().hex, [source, target], (16,) * 3, (32,) * 3)
    # In the thread of the call: it is the worker's event loop, which must not wait for its own tasks.
    with dask.config.set(scheduler="sync"):
        zg.consolidate(zg.open_pyramid(small, levels=["0", "1"]), method=method, mode="dask")


def _forget_peak() -> int:
    """Let the high-water mark begin anew (Linux), and return what is resident."""
    Path("/proc/self/clear_refs").write_text("5")
    return _resident_bytes("VmRSS")


def _resident_bytes(key: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{key}:"))


if __name__ == "__main__":
    main(sys.argv[1:])
