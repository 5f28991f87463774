"""One measured run in a process of its own: `python -m benchmarks.contender NAME IMAGE TINY_IMAGE`, JSON out."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.measure import measure

N_WORKERS = 2
WRITE_BLOCK_MAX_BYTES = 8 * 2**20


def floor_directory(path: Path) -> Path:
    """Where the codec floor writes for the image at `path`."""
    return path.with_name(f"{path.name}-floor")


def _ours() -> Callable[[Path], object]:
    import dask

    import ziggurat as zg

    dask.config.set(scheduler="threads", num_workers=N_WORKERS)
    zg.get_config().dask.write_block_max_bytes = WRITE_BLOCK_MAX_BYTES
    return lambda path: zg.consolidate(path, method="linear", mode="dask")


def _ngio() -> Callable[[Path], object]:
    import dask
    import ngio
    from ngio.config import get_config

    dask.config.set(scheduler="threads", num_workers=N_WORKERS)
    get_config().dask.write_block_max_bytes = WRITE_BLOCK_MAX_BYTES
    return lambda path: ngio.open_ome_zarr_container(path).get_image(path="0").consolidate("linear", mode="dask")


def _floor() -> Callable[[Path], object]:
    from benchmarks.floor import run_floor

    return lambda path: run_floor(path, floor_directory(path))


CONTENDERS = {"ours": _ours, "ngio": _ngio, "floor": _floor}


def main() -> None:
    """Warm the code up on the tiny image, then measure one run on the other."""
    name, image, tiny = sys.argv[1:]
    run = CONTENDERS[name]()
    run(Path(tiny))
    print(json.dumps(measure(lambda: run(Path(image)))))


if __name__ == "__main__":
    main()
