"""What planning costs, from a terabyte to a petabyte: `python -m benchmarks.plan_scale`.

The arrays have metadata and no pixels. Each plan is made in a fresh process, after a plan of a small image: wall, CPU
and growth are those of planning. Then its graph is made, pickled, and submitted to a dask scheduler of its own that has
no workers. "peak" is what the plan promises for a task.
"""

import argparse
import itertools
import json
import math
import pickle
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import zarr

from benchmarks.measure import measure
from benchmarks.processes import in_fresh_process
from benchmarks.record import Record, parser_of

SIZES_TB = (1, 100, 1000)
WARM_UP_BYTES = 2**30
TOP = 256


@dataclass(frozen=True)
class Layout:
    """Chunks and shards of one kind of image, in pixels per axis."""

    n_axes: int
    chunk: int
    shard: int | None


LAYOUTS = {
    "2-D chunked": Layout(2, 1024, None),
    "2-D sharded": Layout(2, 1024, 4096),
    "3-D chunked": Layout(3, 128, None),
    "3-D sharded": Layout(3, 64, 256),
}


def main(arguments: Sequence[str]) -> None:
    """Measure every plan, or with `--plan` that one, JSON out."""
    parser = parser_of("plan_scale", __doc__, repeat=1)
    parser.add_argument("--layout", nargs="+", choices=list(LAYOUTS), default=list(LAYOUTS))
    parser.add_argument("--terabytes", nargs="+", type=int, default=SIZES_TB, metavar="TB")
    parser.add_argument("--plan", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.plan:
        print(json.dumps(_measure_plan(LAYOUTS[options.plan[0]], int(options.plan[1]))))
        return
    record = Record("plan_scale", options, arguments, ["distributed"])
    cases = itertools.product(options.layout, options.terabytes)
    for layout, size_tb in record.within(cases, lambda case: f"{case[0]}, {case[1]} TB"):
        command = ("-m", "benchmarks.plan_scale", "--plan", layout, str(size_tb * 10**12))
        runs = [in_fresh_process(*command) for _ in range(options.repeat)]
        record.add({"image": layout, "TB": str(size_tb)}, runs)
    record.close()


def _measure_plan(layout: Layout, size_bytes: int) -> dict[str, Any]:
    import ziggurat as zg

    with tempfile.TemporaryDirectory(prefix="ziggurat-bench-") as directory:
        zg.plan(_pyramid(f"{directory}/small", layout, WARM_UP_BYTES), method="mean", mode="dask")
        levels, plans = _pyramid(f"{directory}/large", layout, size_bytes), []
        cost = measure(lambda: plans.append(zg.plan(levels, method="mean", mode="dask")))
        (plan,) = plans
        counts = {"n_levels": len(levels), "n_tasks": plan.n_tasks, "n_stages": len(plan.stages)}
        return {**cost, **counts, "peak_MiB": plan.peak_bytes / 2**20, **_measure_graph(plan)}


def _measure_graph(plan: Any) -> dict[str, Any]:
    from distributed import Client, LocalCluster

    from ziggurat.cascade import Work
    from ziggurat.graph import make_graph
    from ziggurat.handle import Handle

    work = Work(plan.steps, plan.stages, tuple(map(Handle, plan.pyramid.arrays)))
    start = time.perf_counter()
    graph, keys = make_graph(work, plan)
    made_s = time.perf_counter() - start
    n_bytes = len(pickle.dumps(graph))
    with (
        LocalCluster(n_workers=0, host="127.0.0.1", dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster) as client,
    ):
        start = time.perf_counter()
        futures = client.get(graph, keys, sync=False)
        while len(cluster.scheduler.tasks) < len(graph):
            time.sleep(0.005)
        submit_s = time.perf_counter() - start
        client.cancel(futures)
    return {"graph_s": made_s, "graph_MiB": n_bytes / 2**20, "submit_s": submit_s}


def _pyramid(where: str, layout: Layout, size_bytes: int) -> list[zarr.Array[Any]]:
    """Arrays without pixels, halved on every axis until `TOP` pixels hold one."""
    n = round((size_bytes / 2) ** (1 / layout.n_axes))
    store = zarr.storage.LocalStore(where)
    return [_level(store, k, n >> k, layout) for k in range(max(1, math.ceil(math.log2(n / TOP))) + 1)]


def _level(store: zarr.storage.LocalStore, k: int, n: int, layout: Layout) -> zarr.Array[Any]:
    chunk = min(layout.chunk, n)
    shard = layout.shard and min(layout.shard, -(-n // chunk) * chunk)
    shards = (shard,) * layout.n_axes if shard else None
    shape, chunks = (n,) * layout.n_axes, (chunk,) * layout.n_axes
    return zarr.create_array(store, name=str(k), shape=shape, chunks=chunks, shards=shards, dtype="uint16")


if __name__ == "__main__":
    main(sys.argv[1:])
