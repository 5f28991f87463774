"""Memory of one process: `python -m benchmarks.memory`.

Growth is the peak of resident memory above what a warm process had, with `MALLOC_MMAP_THRESHOLD_=131072`. In memory the
source is held whole, so growth is compared with it; with write blocks of at most 8 MiB and two dask threads it does not
depend on the image, and is compared with what the plan promises for two tasks at once.
"""

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.contender import N_WORKERS, WRITE_BLOCK_MAX_BYTES, two_threads
from benchmarks.images import GEOMETRIES, clear_levels, make_image
from benchmarks.measure import measure
from benchmarks.processes import MEMORY_ENVIRONMENT, answer, in_fresh_process
from benchmarks.record import Record, parser_of

MODES = {"in memory": "numpy", "2 threads, 8 MiB": "dask"}


def main(arguments: Sequence[str]) -> None:
    """Measure both modes on all geometries."""
    parser = parser_of("memory", __doc__, size="256MiB")
    parser.add_argument("--contend", nargs=3, help="MODE IMAGE TINY_IMAGE: one measured run, JSON out")
    options = parser.parse_args(arguments)
    if options.contend:
        answer(lambda: contend(*options.contend))
        return
    record = Record("memory", options, arguments)
    geometries = [g.at_most(options.size) for g in GEOMETRIES]
    for geometry in record.within(geometries, lambda g: g.name):
        with tempfile.TemporaryDirectory(prefix="ziggurat-bench-", dir=options.directory) as temporary:
            image, tiny = Path(temporary) / "image.zarr", Path(temporary) / "tiny.zarr"
            make_image(image, geometry, "blosc-lz4")
            make_image(tiny, geometry.at_most(min(options.size, geometry.tiny().n_bytes)), "blosc-lz4")
            for shown, mode in MODES.items():
                clear_levels(image)
                command = ("-m", "benchmarks.memory", "--contend", mode, str(image), str(tiny))
                found = in_fresh_process(*command, environment=MEMORY_ENVIRONMENT)
                growth = found.get("growth_bytes", 0)
                figures = {
                    "growth_bytes": growth,
                    "source_bytes": geometry.n_bytes,
                    "share": growth / geometry.n_bytes,
                    "promised_MiB": found.get("peak_bytes", 0) / 2**20,
                }
                error = found.get("error")
                record.add({"image": geometry.name, "mode": shown}, [] if error else [figures], error=error)
    record.close()


def contend(mode: str, image: str, tiny: str) -> dict[str, Any]:
    """Warm the code up on the tiny image, then measure one run on the other."""
    import ziggurat as zg

    two_threads()
    zg.get_config().dask.write_block_max_bytes = WRITE_BLOCK_MAX_BYTES
    zg.consolidate(tiny, method="mean", mode=mode)
    plan = zg.plan(image, method="mean", mode=mode)
    at_once = 1 if mode == "numpy" else N_WORKERS
    return {**measure(lambda: plan.run(progress=False)), "peak_bytes": plan.peak_bytes * at_once}


if __name__ == "__main__":
    main(sys.argv[1:])
