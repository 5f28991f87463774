"""One measured run in a process of its own: `python -m benchmarks.contender NAME IMAGE TINY_IMAGE`, JSON out."""

import atexit
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.measure import Cost, measure
from benchmarks.processes import answer

N_WORKERS = 2
WRITE_BLOCK_MAX_BYTES = 8 * 2**20

type Rebuild = Callable[[Path], object]


def floor_directory(path: Path) -> Path:
    """Where the codec floor writes for the image at `path`."""
    return path.with_name(f"{path.name}-floor")


def two_threads() -> None:
    """Let dask run on as many threads as everybody gets."""
    import dask

    dask.config.set(scheduler="threads", num_workers=N_WORKERS)


def _ours(image: Path) -> tuple[Rebuild, list[int]]:
    import ziggurat as zg

    two_threads()
    zg.get_config().dask.write_block_max_bytes = WRITE_BLOCK_MAX_BYTES
    return lambda path: zg.consolidate(path, method="linear", mode="dask"), []


def _ours_in_processes(image: Path) -> tuple[Rebuild, list[int]]:
    from distributed import Client, LocalCluster

    rebuild, _ = _ours(image)
    local = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0", "memory_limit": 0}
    client = Client(LocalCluster(n_workers=N_WORKERS, threads_per_worker=1, **local))
    atexit.register(client.shutdown)
    return rebuild, list(client.run(lambda: __import__("os").getpid()).values())


def _ngio(image: Path) -> tuple[Rebuild, list[int]]:
    import ngio
    from ngio.config import get_config

    two_threads()
    get_config().dask.write_block_max_bytes = WRITE_BLOCK_MAX_BYTES
    return lambda path: ngio.open_ome_zarr_container(path).get_image(path="0").consolidate("linear", mode="dask"), []


def _floor(image: Path) -> tuple[Rebuild, list[int]]:
    from benchmarks.floor import pixels_of, run_floor

    pixels_of(image)  # before the clock runs
    return lambda path: run_floor(path, floor_directory(path), pixels_of(path)), []


CONTENDERS = {"ours": _ours, "ours, 2 processes": _ours_in_processes, "ngio": _ngio, "floor": _floor}


def contend(name: str, image: str, tiny: str) -> Cost:
    """Warm the code up on the tiny image, then measure one run on the other."""
    run, pids = CONTENDERS[name](Path(image))
    for _ in range(len(pids) or 1):  # Both processes are to have compiled by then.
        run(Path(tiny))
    return measure(lambda: run(Path(image)), pids)


if __name__ == "__main__":
    answer(lambda: contend(*sys.argv[1:]))
