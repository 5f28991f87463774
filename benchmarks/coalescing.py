"""Chunk grids, and reads of parts of shards: `python -m benchmarks.coalescing`.

First, what it costs to project a selection of a million chunks onto a grid, one projection at a time: seconds, and how
much memory the stream takes. Then a regional rebuild of a sharded pyramid, scattered changes, on a store that waits
before each request: with merging of near byte ranges off (no gap allowed) and on (zarr's default), requests and
seconds, beside the requests that the plan says; it may be more where chunks lie over 1 MiB apart in their shard. Each
line is a fresh process, warm, on two threads.
"""

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Sequence
from typing import Any

import zarr
from zarr.storage import LocalStore

import ziggurat as zg
from benchmarks.processes import in_fresh_process
from ziggurat.testing import CountingStore, LatencyStore

GRIDS = {
    "1-D, equal": ((10**8,), (100,)),
    "2-D, equal": ((10**5, 10**5), (100, 100)),
    "2-D, unequal rows": ((10**5, 10**5), ([99, 101] * 500, 100)),
    "3-D, equal": ((6400, 6400, 6400), (64, 64, 64)),
}
N_REGIONS = (1, 30, 300)
GAPS = {"off": 0, "on": None}


def main(arguments: Sequence[str]) -> None:
    """Print both tables; with a grid's name, or a number of regions and a gap, measure that and print JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.coalescing", description=__doc__)
    parser.add_argument("--latency", type=float, default=0.02, metavar="S", help="seconds before each request")
    parser.add_argument("--size", type=int, default=8192, metavar="PIXELS", help="of level 0, along both axes")
    parser.add_argument("--repeat", type=int, default=3, metavar="N")
    parser.add_argument("--grid", choices=GRIDS, help=argparse.SUPPRESS)
    parser.add_argument("--rebuild", nargs=2, metavar=("N", "MERGING"), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.grid:
        print(json.dumps(_project(options.grid)))
    elif options.rebuild:
        print(json.dumps(_rebuild(options, int(options.rebuild[0]), GAPS[options.rebuild[1]])))
    else:
        _print_grids()
        _print_rebuilds(options)


def _print_grids() -> None:
    print(f"{'projecting':<20}{'chunks':>10}{'s':>8}{'KiB':>8}")
    for name in GRIDS:
        cost = in_fresh_process("-m", "benchmarks.coalescing", "--grid", name)
        print(f"{name:<20}{cost['n_chunks']:>10}{cost['wall_s']:>8.2f}{cost['peak_bytes'] / 1024:>8.0f}", flush=True)


def _print_rebuilds(options: argparse.Namespace) -> None:
    print(f"\n{'regions':<10}{'merging':<9}{'planned':>9}{'requests':>10}{'wall, s':>9}{'CPU, s':>8}")
    same = ("--latency", str(options.latency), "--size", str(options.size), "--repeat", str(options.repeat))
    for count in N_REGIONS:
        for merging in GAPS:
            cost = in_fresh_process("-m", "benchmarks.coalescing", *same, "--rebuild", str(count), merging)
            numbers = f"{cost['planned']:>9}{cost['n_requests']:>10}{cost['wall_s']:>9.3f}{cost['cpu_s']:>8.3f}"
            print(f"{count:<10}{merging:<9}{numbers}", flush=True)


def _project(name: str) -> dict[str, Any]:
    """Go through all projections, once for the time and once, in part, for the memory: watching it takes time."""
    grid = zg.ChunkGrid(*GRIDS[name])
    start = time.perf_counter()
    n_chunks = sum(1 for _ in grid.project())
    wall_s = time.perf_counter() - start
    tracemalloc.start()
    for _ in zip(range(10**5), grid.project(), strict=False):
        pass
    return {"n_chunks": n_chunks, "wall_s": wall_s, "peak_bytes": tracemalloc.get_traced_memory()[1]}


def _rebuild(options: argparse.Namespace, n_regions: int, gap_bytes: int | None) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="ziggurat-bench-") as directory:
        store = CountingStore(LatencyStore(LocalStore(directory), options.latency))
        levels = _pyramid(directory, store, options.size)
        zg.get_config().zarr.sharding_coalesce_max_gap_bytes = gap_bytes
        rng = random.Random(n_regions)
        corners = [[rng.randrange(options.size - 8) for _ in range(2)] for _ in range(n_regions)]
        regions = [tuple(slice(a, a + 8) for a in corner) for corner in corners]
        runs = []
        for _ in range(options.repeat + 1):
            plan = zg.plan(levels, regions=regions)
            store.reset()
            wall_s, cpu_s = time.perf_counter(), time.process_time()
            plan.run()
            runs.append((time.perf_counter() - wall_s, time.process_time() - cpu_s))
        wall_s, cpu_s = (statistics.median(found) for found in zip(*runs[1:], strict=True))
        n_requests = sum(n for key, n in (store.gets + store.sets).items() if ".ziggurat" not in key)
        return {"planned": plan.n_requests, "n_requests": n_requests, "wall_s": wall_s, "cpu_s": cpu_s}


def _pyramid(directory: str, store: CountingStore, size: int) -> list[zarr.Array[Any]]:
    """Make a sharded pyramid of noise without waiting, and open it on the store that does."""
    import numpy as np

    group = zarr.create_group(LocalStore(directory))
    sizes = [size >> k for k in range(4)]
    made = [
        group.create_array(str(k), shape=(n, n), chunks=(64, 64), shards=(1024, 1024), dtype="uint16")
        for k, n in enumerate(sizes)
    ]
    rng = np.random.default_rng(0)
    for start in range(0, size, 1024):
        made[0][start : start + 1024] = rng.integers(0, 4000, (min(1024, size - start), size), "uint16")
    zg.consolidate(made)
    opened = zarr.open_group(store)
    return [opened[str(k)] for k in range(len(sizes))]


if __name__ == "__main__":
    main(sys.argv[1:])
