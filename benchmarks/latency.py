"""The same rebuild on a store that takes its time: `python -m benchmarks.latency --help`.

Every request takes as long as it would to a bucket, 20 ms by default, and any number may be under way at once; the
bytes themselves come from the local disk. Each line is a fresh process, warm, on two threads. Without such a wait
there is nothing that requests side by side could hide.
"""

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import warnings
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import zarr
from dask.utils import parse_bytes
from zarr.abc.store import ByteRequest, Store
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.storage import LocalStore, WrapperStore

from benchmarks.images import Geometry, clear_levels, make_image, warm_page_cache
from benchmarks.measure import measure
from benchmarks.processes import in_fresh_process

N_WORKERS = 2
CODEC = "blosc-lz4"
GEOMETRIES = (
    Geometry("small chunks", (8, 4096, 4096), (1, 256, 256), None, (1, 2, 2)),
    Geometry("large chunks", (8, 4096, 4096), (1, 1024, 1024), None, (1, 2, 2)),
    Geometry("shards", (8, 4096, 4096), (1, 512, 512), (1, 2048, 2048), (1, 2, 2)),
)


class LatencyStore(WrapperStore[Store]):
    """Waits before each request, without holding a thread; counts them."""

    _supports_sync_io = False  # as stores behind a network

    def __init__(self, store: Store, latency_s: float) -> None:
        super().__init__(store)
        self.latency_s = latency_s
        self.n_requests = 0

    def _with_store(self, store: Store) -> "LatencyStore":
        return LatencyStore(store, self.latency_s)

    async def _wait(self) -> None:
        self.n_requests += 1
        await asyncio.sleep(self.latency_s)

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        await self._wait()
        return await super().get(key, prototype, byte_range)

    async def get_ranges(
        self, key: str, byte_ranges: Sequence[ByteRequest | None], *, prototype: BufferPrototype, **limits: Any
    ) -> AsyncIterator[Sequence[tuple[int, Buffer | None]]]:
        given = {name: limit for name, limit in limits.items() if limit is not None}
        async for group in Store.get_ranges(self, key, byte_ranges, prototype=prototype, **given):
            yield group

    async def exists(self, key: str) -> bool:
        await self._wait()
        return await super().exists(key)

    async def set(self, key: str, value: Buffer) -> None:
        await self._wait()
        await super().set(key, value)

    async def delete(self, key: str) -> None:
        await self._wait()
        await super().delete(key)


def _ours(group: zarr.Group, concurrency: int) -> None:
    import ziggurat as zg

    zg.get_config().zarr.async_concurrency = concurrency
    zg.consolidate(group, method="linear", mode="dask", progress=False)


def _ngio(group: zarr.Group, concurrency: int) -> None:
    import ngio

    # It warns that it does not know this store.
    warnings.simplefilter("ignore", ngio.utils.NgioUserWarning)
    with zarr.config.set({"async.concurrency": concurrency}):
        ngio.open_ome_zarr_container(group).get_image(path="0").consolidate("linear", mode="dask")


CONTENDERS = {"ours": _ours, "ngio": _ngio}


def contend(name: str, image: str, concurrency: int, latency_s: float) -> None:
    """Warm the code up without a wait, then measure one run, and print what it cost."""
    import dask

    dask.config.set(scheduler="threads", num_workers=N_WORKERS)
    CONTENDERS[name](zarr.open_group(LatencyStore(LocalStore(image), 0.0), mode="r+"), concurrency)
    clear_levels(Path(image))
    store = LatencyStore(LocalStore(image), latency_s)
    group = zarr.open_group(store, mode="r+")
    store.n_requests = 0
    cost = measure(lambda: CONTENDERS[name](group, concurrency))
    print(json.dumps({**cost, "n_requests": store.n_requests}))


def main(arguments: Sequence[str]) -> None:
    """Print seconds and requests of each contender, geometry and concurrency."""
    options = _parser().parse_args(arguments)
    print(f"{options.latency_ms:g} ms per request, {CODEC}, linear, {N_WORKERS} threads")
    print(f"{'image':<14}{'concurrency':>12}{'contender':>11}{'wall, s':>9}{'CPU, s':>8}{'requests':>10}", flush=True)
    for geometry in (g.at_most(options.size) for g in GEOMETRIES):
        with tempfile.TemporaryDirectory(prefix="ziggurat-bench-", dir=options.directory) as temporary:
            image = Path(temporary) / "image.zarr"
            make_image(image, geometry, CODEC)
            warm_page_cache(image)
            for concurrency in options.concurrency:
                for name in options.contender:
                    call = f"contend({name!r}, {str(image)!r}, {concurrency}, {options.latency_ms / 1000})"
                    command = ("-c", f"from benchmarks.latency import contend; {call}")
                    runs = [in_fresh_process(*command) for _ in range(options.repeat)]
                    wall, cpu = (statistics.median(run[key] for run in runs) for key in ("wall_s", "cpu_s"))
                    n = runs[0]["n_requests"]
                    print(f"{geometry.name:<14}{concurrency:>12}{name:>11}{wall:>9.2f}{cpu:>8.2f}{n:>10,}", flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.latency", description=__doc__)
    parser.add_argument("--size", type=parse_bytes, default="256MiB", help="of level 0")
    parser.add_argument("--latency-ms", type=float, default=20.0, metavar="MS", help="of each request")
    parser.add_argument("--concurrency", type=int, nargs="+", default=[10, 64], metavar="N")
    parser.add_argument("--contender", nargs="+", choices=list(CONTENDERS), default=list(CONTENDERS))
    parser.add_argument("--repeat", type=int, default=3, metavar="N")
    parser.add_argument("--directory", type=Path, help="where the temporary images go")
    return parser


if __name__ == "__main__":
    main(sys.argv[1:])
