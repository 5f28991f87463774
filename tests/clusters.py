"""Clusters of this machine for tests, and images that many workers can share."""

import functools
import multiprocessing
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import dask
import numpy as np
import zarr
from distributed import Client, LocalCluster
from zarr.abc.store import Store
from zarr.storage import LocalStore

import ziggurat as zg
from ziggurat.pyramid import Pyramid

# What workers import, which takes each of them a second or two: they are forked from a process that has done it.
PRELOADED = [
    *("pytest", "dask.array", "dask.multiprocessing", "distributed.nanny"),
    *("ziggurat.cli", "ziggurat.complete", "ziggurat.testing"),
]


@functools.cache
def forking() -> Any:
    """Return what starts processes, each in the environment of the first call."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    forkserver.ensure_running()
    return context


def in_processes(n_workers: int = 2) -> AbstractContextManager[Any]:
    """Let dask's own scheduler for processes run what follows."""
    method = forking().get_start_method()
    return dask.config.set({"scheduler": "processes", "num_workers": n_workers, "multiprocessing.context": method})


@contextmanager
def cluster(n_workers: int = 2, n_threads: int = 1, processes: bool = True, **options: Any) -> Iterator[Client]:
    """Start workers on the loopback interface, with a status page on any free port, and end them afterwards."""
    settings: dict[str, Any] = {"distributed.worker.memory.terminate": False, "distributed.worker.memory.pause": False}
    if processes and "env" not in options:
        settings["distributed.worker.multiprocessing-method"] = forking().get_start_method()
    options = {"host": "127.0.0.1", "protocol": "tcp", "dashboard_address": "127.0.0.1:0", **options}
    with (
        dask.config.set(settings),
        LocalCluster(n_workers=n_workers, threads_per_worker=n_threads, processes=processes, **options) as made,
        Client(made) as client,
    ):
        yield client


@contextmanager
def ceiling(n_bytes: int) -> Iterator[None]:
    """Set the ceiling of a write block for a while."""
    settings = zg.get_config().dask
    before, settings.write_block_max_bytes = settings.write_block_max_bytes, n_bytes
    try:
        yield
    finally:
        settings.write_block_max_bytes = before


def make_image(
    where: Path | Store, n: int = 256, chunk: int = 32, n_levels: int = 3, seed: int = 0, shard: int | None = None
) -> list[str]:
    """Make a square image whose coarser levels hold wrong pixels; return the names of its levels."""
    group = zarr.create_group(where if isinstance(where, Store) else LocalStore(where))
    names = [str(k) for k in range(n_levels)]
    rng = np.random.default_rng(seed)
    for k, name in enumerate(names):
        size = (n >> k, n >> k)
        options: dict[str, Any] = {"chunks": (chunk, chunk), "shards": shard and (shard, shard), "compressors": None}
        array = group.create_array(name, shape=size, dtype="u2", **options)
        array[...] = rng.integers(1, 60_000, size, "u2")
    return names


def opened(where: Path | Store, n_levels: int = 3) -> Pyramid:
    """Open what `make_image` made."""
    return zg.open_pyramid(where, levels=[str(k) for k in range(n_levels)])


def chunks(where: Path) -> dict[str, bytes]:
    """Return what lies in the directory of an image, bookkeeping left out."""
    files = (p for p in where.rglob("*") if p.is_file() and ".ziggurat" not in p.parts)
    return {p.relative_to(where).as_posix(): p.read_bytes() for p in files}


def expected(tmp_path: Path, **options: Any) -> dict[str, bytes]:
    """Return the right answer: the same image, rebuilt in memory."""
    where = tmp_path / "expected"
    make_image(where, **options)
    zg.consolidate(opened(where, options.get("n_levels", 3)), mode="numpy")
    return chunks(where)
