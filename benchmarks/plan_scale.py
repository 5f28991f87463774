"""What planning costs, from a terabyte to a petabyte: `python -m benchmarks.plan_scale`.

The arrays have metadata and no pixels. Each plan is made in a fresh process, after a plan of a small image.
"""

import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import zarr

from benchmarks.measure import measure
from benchmarks.processes import in_fresh_process

SIZES_TB = (1, 100, 1000)
WARM_UP_BYTES = 2**30
TOP = 256
COLUMNS = ("TB", "levels", "tasks", "stages", "seconds", "growth, MiB", "peak, MiB")


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
    """Print the table; with a layout and a size in bytes, measure that one plan and print JSON."""
    if arguments:
        print(json.dumps(_measure_plan(LAYOUTS[arguments[0]], int(arguments[1]))))
        return
    print(f"{'image':<14}" + "".join(f"{name:>13}" for name in COLUMNS))
    for name in LAYOUTS:
        for size_tb in SIZES_TB:
            cost = in_fresh_process("-m", "benchmarks.plan_scale", name, str(size_tb * 10**12))
            counts = "".join(f"{cost[key]:>13}" for key in ("n_levels", "n_tasks", "n_stages"))
            sizes = "".join(f"{cost[key] / 2**20:>13.1f}" for key in ("growth_bytes", "peak_bytes"))
            print(f"{name:<14}{size_tb:>13}{counts}{cost['wall_s']:>13.3f}{sizes}", flush=True)


def _measure_plan(layout: Layout, size_bytes: int) -> dict[str, Any]:
    import ziggurat as zg

    zg.plan(_pyramid(layout, WARM_UP_BYTES), method="mean", mode="dask")
    levels, plans = _pyramid(layout, size_bytes), []
    cost = measure(lambda: plans.append(zg.plan(levels, method="mean", mode="dask")))
    (plan,) = plans
    counts = {"n_levels": len(levels), "n_tasks": plan.n_tasks, "n_stages": len(plan.stages)}
    return {**cost, **counts, "peak_bytes": plan.peak_bytes}


def _pyramid(layout: Layout, size_bytes: int) -> list[zarr.Array[Any]]:
    """Arrays without pixels, halved on every axis until `TOP` pixels hold one."""
    n = round((size_bytes / 2) ** (1 / layout.n_axes))
    store = zarr.storage.MemoryStore()
    return [_level(store, k, n >> k, layout) for k in range(max(1, math.ceil(math.log2(n / TOP))) + 1)]


def _level(store: zarr.storage.MemoryStore, k: int, n: int, layout: Layout) -> zarr.Array[Any]:
    chunk = min(layout.chunk, n)
    shard = layout.shard and min(layout.shard, -(-n // chunk) * chunk)
    shards = (shard,) * layout.n_axes if shard else None
    shape, chunks = (n,) * layout.n_axes, (chunk,) * layout.n_axes
    return zarr.create_array(store, name=str(k), shape=shape, chunks=chunks, shards=shards, dtype="uint16")


if __name__ == "__main__":
    main(sys.argv[1:])
