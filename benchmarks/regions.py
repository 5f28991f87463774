"""Regional rebuilds: `python -m benchmarks.regions`. 1, 100 and 10,000 random regions of 16 x 16 (x 16) pixels.

Each line is a fresh process, warm, on two dask threads: ours with the regions, ngio's with the same, and our full
rebuild. The bytes are what the plan says that the chunks read hold, uncompressed.
"""

import argparse
import json
import random
import shutil
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dask.utils import parse_bytes

from benchmarks.images import GEOMETRIES, Geometry, make_image, warm_page_cache
from benchmarks.processes import in_fresh_process

COUNTS = (1, 100, 10_000)
SIZE = 16
NAMES = ("ours", "ngio", "ours, full")


def main(arguments: Sequence[str]) -> None:
    """Print seconds and bytes for each image and number of regions."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.regions", description=__doc__)
    parser.add_argument("--size", type=parse_bytes, default="2GiB", help="of level 0")
    parser.add_argument("--repeat", type=int, default=3, metavar="N")
    parser.add_argument("--geometry", nargs="+", default=["planes", "cubes"])
    options = parser.parse_args(arguments)
    print(f"{'image':<16}{'regions':>8}  {'contender':<12}{'wall, s':>9}{'CPU, s':>9}{'MiB read':>10}")
    for geometry in (g.at_most(options.size) for g in GEOMETRIES if g.name in options.geometry):
        with tempfile.TemporaryDirectory(prefix="ziggurat-regions-") as temporary:
            image = Path(temporary) / "image.zarr"
            make_image(image, geometry, "blosc-lz4")
            warm_page_cache(image)
            in_fresh_process("-m", "benchmarks.regions_contender", "ours, full", str(image), "[]")
            for count in COUNTS:
                _compare(geometry, image, random_regions(geometry.shape, count), options.repeat)
            shutil.rmtree(image)


def random_regions(shape: tuple[int, ...], count: int) -> list[list[list[int]]]:
    """Draw regions of 16 pixels along the spatial axes that change (one along the others), always the same ones."""
    rng = random.Random(count)
    extents = [min(n, 1 if n == min(shape) and n < 128 else SIZE) for n in shape]
    corners = ([rng.randrange(n - e + 1) for n, e in zip(shape, extents, strict=True)] for _ in range(count))
    return [[[a, a + e] for a, e in zip(corner, extents, strict=True)] for corner in corners]


def _compare(geometry: Geometry, image: Path, regions: list[Any], n_repeats: int) -> None:
    file = image.with_name("regions.json")
    file.write_text(json.dumps(regions))
    runs: dict[str, list[Any]] = {name: [] for name in NAMES}
    for _ in range(n_repeats):
        for name in NAMES:
            runs[name].append(in_fresh_process("-m", "benchmarks.regions_contender", name, str(image), str(file)))
    for name, found in runs.items():
        wall, cpu = (statistics.median(run[key] for run in found) for key in ("wall_s", "cpu_s"))
        read = found[0]["bytes_read"]
        shown = f"{read / 2**20:.0f}" if read is not None else "-"
        print(f"{geometry.name:<16}{len(regions):>8}  {name:<12}{wall:>9.3f}{cpu:>9.3f}{shown:>10}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
