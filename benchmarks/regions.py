"""Regional rebuilds: `python -m benchmarks.regions`. 1, 100 and 10,000 random regions of 16 x 16 (x 16) pixels.

Each run is a fresh process, warm, on two dask threads, contenders in turns: ours with the regions, ngio's with the
same, and our full rebuild. blosc-lz4, `linear`. "read" is what the plan says that the chunks read hold, uncompressed.
"""

import argparse
import itertools
import json
import random
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.images import GEOMETRIES, Geometry, make_image, warm_page_cache
from benchmarks.processes import in_fresh_process, take_turns
from benchmarks.record import Record, parser_of

COUNTS = (1, 100, 10_000)
SIZE = 16
NAMES = ("ours", "ngio", "ours, full")


def main(arguments: Sequence[str]) -> None:
    """Measure each image and number of regions."""
    parser = parser_of("regions", __doc__, size="2GiB")
    parser.add_argument("--geometry", nargs="+", choices=[g.name for g in GEOMETRIES], default=["planes", "cubes"])
    parser.add_argument("--count", nargs="+", type=int, default=COUNTS, metavar="N", help="of regions")
    parser.add_argument("--contender", nargs="+", choices=NAMES, default=NAMES)
    options = parser.parse_args(arguments)
    record = Record("regions", options, arguments, ["ngio"])
    geometries = [g.at_most(options.size) for g in GEOMETRIES if g.name in options.geometry]
    with tempfile.TemporaryDirectory(prefix="ziggurat-regions-", dir=options.directory) as temporary:
        for geometry in geometries:
            image = Path(temporary) / geometry.name
            make_image(image, geometry, "blosc-lz4")
            warm_page_cache(image)
            in_fresh_process("-m", "benchmarks.regions_contender", "ours, full", str(image), "[]")
        cases = list(itertools.product(options.count, geometries))
        for count, geometry in record.within(cases, lambda case: f"{case[0]} regions, {case[1].name}"):
            _compare(record, geometry, Path(temporary) / geometry.name, count, options)
    record.close()


def random_regions(geometry: Geometry, count: int) -> list[list[list[int]]]:
    """Draw regions of 16 pixels along the axes that are reduced and one along the others, always the same ones."""
    rng = random.Random(count)
    extents = [1 if factor == 1 else SIZE for factor in geometry.factors]
    corners = ([rng.randrange(n - e + 1) for n, e in zip(geometry.shape, extents, strict=True)] for _ in range(count))
    return [[[a, a + e] for a, e in zip(corner, extents, strict=True)] for corner in corners]


def _compare(record: Record, geometry: Geometry, image: Path, count: int, options: argparse.Namespace) -> None:
    file = image.with_name("regions.json")
    file.write_text(json.dumps(random_regions(geometry, count)))

    def run(name: str, environment: dict[str, str]) -> dict[str, Any]:
        command = ("-m", "benchmarks.regions_contender", name, str(image), str(file))
        return in_fresh_process(*command, environment=environment)

    for name, (runs, error) in take_turns(options.contender, options.repeat, run).items():
        labels = {"image": f"{geometry.name} {geometry.n_bytes >> 20} MiB", "regions": str(count), "contender": name}
        record.add(labels, runs, error=error)


if __name__ == "__main__":
    main(sys.argv[1:])
