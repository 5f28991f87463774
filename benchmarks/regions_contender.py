"""One measured regional rebuild in its own process: `regions_contender NAME IMAGE TINY REGIONS`, JSON out."""

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


def _ours(image: str, tiny: str, regions: Any) -> tuple[Run, int]:
    import ziggurat as zg

    zg.get_config().dask.write_block_max_bytes = WRITE_BLOCK_MAX_BYTES
    # The loops are loaded, as they are where an image was built: else some run or other pays for it.
    zg.consolidate(tiny, method="linear", mode="dask")
    boxes = None if regions is None else [tuple(tuple(interval) for interval in region) for region in regions]
    pyramid = zg.open_pyramid(image)
    options: dict[str, Any] = {"method": "linear", "regions": boxes, "mode": "auto" if boxes else "dask"}
    return lambda: zg.consolidate(pyramid, **options), zg.plan(pyramid, **options).bytes_read


def _ngio(image: str, tiny: str, regions: Any) -> tuple[Run, None]:
    import ngio
    from ngio.config import get_config

    get_config().dask.write_block_max_bytes = WRITE_BLOCK_MAX_BYTES
    boxes = [tuple(slice(*interval) for interval in region) for region in regions]
    level = ngio.open_ome_zarr_container(image).get_image(path="0")
    return lambda: level.consolidate("linear", mode="dask", regions=boxes), None


def main() -> dict[str, Any]:
    """Run once to be warm, once measured."""
    name, image, tiny, file = sys.argv[1:]
    dask.config.set(scheduler="threads", num_workers=N_WORKERS)
    regions = None if name == "ours, full" else json.loads(Path(file).read_text())
    run, read = (_ngio if name == "ngio" else _ours)(image, tiny, regions)
    run()
    return {**measure(run), "read_bytes": read}


if __name__ == "__main__":
    answer(main)
