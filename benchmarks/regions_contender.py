"""One measured regional rebuild in its own process: `python -m benchmarks.regions_contender NAME IMAGE REGIONS`."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask

from benchmarks.contender import N_WORKERS, WRITE_BLOCK_MAX_BYTES
from benchmarks.measure import measure
from benchmarks.processes import answer

type Run = Callable[[], object]


def _ours(image: str, regions: Any) -> tuple[Run, int]:
    import ziggurat as zg

    zg.get_config().dask.write_block_max_bytes = WRITE_BLOCK_MAX_BYTES
    boxes = None if regions is None else [tuple(tuple(interval) for interval in region) for region in regions]
    if boxes is not None:
        # The loops are loaded, as they are where the image was built: else some run or other pays for it.
        zg.consolidate(image, method="linear", mode="dask")
    plan = zg.plan(image, method="linear", regions=boxes, mode="auto" if boxes else "dask")
    return lambda: zg.consolidate(
        image, method="linear", regions=boxes, mode="auto" if boxes else "dask"
    ), plan.bytes_read


def _ngio(image: str, regions: Any) -> tuple[Run, None]:
    import ngio
    from ngio.config import get_config

    get_config().dask.write_block_max_bytes = WRITE_BLOCK_MAX_BYTES
    boxes = [tuple(slice(*interval) for interval in region) for region in regions]
    level = ngio.open_ome_zarr_container(image).get_image(path="0")
    return lambda: level.consolidate("linear", mode="dask", regions=boxes), None


def main() -> dict[str, Any]:
    """Run once to be warm, once measured."""
    name, image, file = sys.argv[1:]
    dask.config.set(scheduler="threads", num_workers=N_WORKERS)
    regions = None if name == "ours, full" else json.loads(Path(file).read_text())
    run, read = (_ngio if name == "ngio" else _ours)(image, regions)
    run()
    return {**measure(run), "read_bytes": read}


if __name__ == "__main__":
    answer(main)
