"""Regional rebuilds: `python -m benchmarks.regions`.

- Regions are 16 pixels wide along the axes that are reduced, 16 x 16 or 16 x 16 x 16, and lie at random places, always
  the same.
- Each run is a fresh process, warm, on two dask threads, contenders in turns: ours with the regions, ngio's with the
  same, and our full rebuild. blosc-lz4, `linear`. Both are given an image that is open already, so that the rebuild
  alone is measured. "read" is what the plan says that the chunks read hold, uncompressed.
- With `--stored regions` an image may be larger than the disk: only what lies around the regions is stored. That is
  all of level 0 that shares a write unit of level 2 with a region (32 MiB: 16 chunks of a plane, 64 cubes), and what
  the coarser levels have of it. Chunks that are missing are fill to all who read them. Nobody rebuilds such an image in
  full.
- A process has two minutes to rebuild twice, first to be warm and then to be measured. ngio makes a dask array of a
  whole level for every region, so that its time grows with the image.
- "pixels" compares the write units of the coarser levels that regions touch with ours, once. All pixels in them that
  depend on the regions are set to 0 before.
"""

import argparse
import hashlib
import itertools
import json
import random
import shutil
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from math import prod
from pathlib import Path
from typing import Any

import zarr

import ziggurat as zg
from benchmarks.images import (
    GEOMETRIES,
    N_COARSER,
    Box,
    Geometry,
    make_image,
    make_image_in_part,
    warm_page_cache,
)
from benchmarks.processes import in_fresh_process, take_turns
from benchmarks.record import Record, parser_of

COUNTS = (1, 100, 10_000)
SIZE = 16
NAMES = ("ours", "ngio", "ours, full")
CODEC = "blosc-lz4"
# Stored is what lies under the same write unit of this level: 16 chunks of a plane, 64 cubes, 32 MiB each.
STORED_UNDER = 2
TIMEOUT_S = 120


def main(arguments: Sequence[str]) -> None:
    """Measure each image and number of regions."""
    options = _parser().parse_args(arguments)
    if options.stored == "regions":
        options.contender = [name for name in options.contender if name != "ours, full"]
    record = Record("regions", options, arguments, ["ngio"])
    geometries = [g.at_most(options.size) for g in GEOMETRIES if g.name in options.geometry]
    with tempfile.TemporaryDirectory(prefix="ziggurat-regions-", dir=options.directory) as temporary:
        for geometry in geometries:
            image = Path(temporary) / geometry.name
            make_image(_tiny(image), geometry.at_most(min(options.size, geometry.tiny().n_bytes)), CODEC)
            regions = [region for count in options.count for region in random_regions(geometry, count)]
            make_consistent(image, geometry, regions if options.stored == "regions" else None)
            warm_page_cache(image)
        cases = list(itertools.product(options.count, geometries))
        for count, geometry in record.within(cases, lambda case: f"{case[0]} regions, {case[1].name}"):
            _compare(record, geometry, Path(temporary) / geometry.name, count, options)
    record.close()


def _parser() -> argparse.ArgumentParser:
    parser = parser_of("regions", __doc__, size="2GiB")
    parser.add_argument("--geometry", nargs="+", choices=[g.name for g in GEOMETRIES], default=["planes", "cubes"])
    parser.add_argument("--count", nargs="+", type=int, default=COUNTS, metavar="N", help="of regions")
    parser.add_argument("--contender", nargs="+", choices=NAMES, default=NAMES)
    parser.add_argument("--stored", choices=["all", "regions"], default="all", help="the image, or chunks around them")
    return parser


def random_regions(geometry: Geometry, count: int) -> list[Box]:
    """Draw regions of 16 pixels along the axes that are reduced and one along the others, always the same ones."""
    rng = random.Random(count)
    extents = [1 if factor == 1 else SIZE for factor in geometry.factors]
    corners = ([rng.randrange(n - e + 1) for n, e in zip(geometry.shape, extents, strict=True)] for _ in range(count))
    return [[(a, a + e) for a, e in zip(corner, extents, strict=True)] for corner in corners]


def make_consistent(image: Path, geometry: Geometry, regions: Iterable[Box] | None) -> None:
    """Write an image whose coarser levels are right: all of it, or what lies around the regions."""
    boxes = None
    if regions is None:
        make_image(image, geometry, CODEC)
    else:
        boxes = stored_boxes(geometry, regions)
        _check_free_space(image.parent, 2 * sum(prod(b - a for a, b in box) for box in boxes))
        units = (_box(index, geometry.unit, geometry.shape) for box in boxes for index in _units(box, geometry.unit))
        make_image_in_part(image, geometry, CODEC, units)
    zg.consolidate(image, method="linear", regions=boxes, progress=False)


def stored_boxes(geometry: Geometry, regions: Iterable[Box]) -> list[Box]:
    """Find the boxes of level 0 that are stored, each that of one write unit of level `STORED_UNDER`."""
    sides = [u * f**STORED_UNDER for u, f in zip(geometry.unit, geometry.factors, strict=True)]
    found = sorted(set(itertools.chain.from_iterable(_units(region, sides) for region in regions)))
    return [_box(index, sides, geometry.shape) for index in found]


def _units(box: Box, sides: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Go through the cells that a box touches of a grid with these sides."""
    return itertools.product(*(range(a // s, -(-b // s)) for (a, b), s in zip(box, sides, strict=True)))


def _box(index: Sequence[int], sides: Sequence[int], shape: Sequence[int]) -> Box:
    return [(i * s, min((i + 1) * s, n)) for i, s, n in zip(index, sides, shape, strict=True)]


def _check_free_space(directory: Path, needed: int) -> None:
    free = shutil.disk_usage(directory).free
    if free < needed:
        raise SystemExit(
            f"{directory.parent} has {free / 2**30:.1f} GiB free and the regions need {needed / 2**30:.1f} GiB: "
            "give another --directory or fewer regions"
        )


def spoil(image: Path, geometry: Geometry, regions: Iterable[Box]) -> None:
    """Set to 0 what depends on the regions in the coarser levels, so that only a rebuild makes it right."""
    for level, box, dirty in _touched(image, geometry, regions):
        where = tuple(slice(*interval) for interval in box)
        pixels = level[where]
        for inner in dirty:
            pixels[tuple(slice(max(a - o, 0), b - o) for (a, b), (o, _) in zip(inner, box, strict=True))] = 0
        level[where] = pixels


def digest(image: Path, geometry: Geometry, regions: Iterable[Box]) -> str:
    """Hash the write units of the coarser levels that the regions touch."""
    pixels = hashlib.blake2b(digest_size=16)
    for level, box, _ in _touched(image, geometry, regions):
        pixels.update(level[tuple(slice(*interval) for interval in box)])
    return pixels.hexdigest()


def _touched(image: Path, geometry: Geometry, regions: Iterable[Box]) -> Iterator[tuple[Any, Box, list[Box]]]:
    """Go through levels and their write units that regions touch, each with the pixels that depend on regions."""
    group: Any = zarr.open_group(image)
    regions = list(regions)
    for k in range(1, N_COARSER + 1):
        level = group[str(k)]
        sides, found = level.shards or level.chunks, defaultdict[tuple[int, ...], list[Box]](list)
        for region in regions:
            each = zip(region, geometry.factors, level.shape, strict=True)
            dirty = [(a // f**k, min(-(-b // f**k), n)) for (a, b), f, n in each]
            for index in _units(dirty, sides):
                found[index].append(dirty)
        for index in sorted(found):
            yield level, _box(index, sides, level.shape), found[index]


def _tiny(image: Path) -> Path:
    return image.with_name(f"{image.name}-tiny")


def _compare(record: Record, geometry: Geometry, image: Path, count: int, options: argparse.Namespace) -> None:
    regions = random_regions(geometry, count)
    file = image.with_name("regions.json")
    file.write_text(json.dumps(regions))
    pixels: dict[str, str] = {}

    def run(name: str, environment: dict[str, str]) -> dict[str, Any]:
        command = ("-m", "benchmarks.regions_contender", name, str(image), str(_tiny(image)), str(file))
        if not environment:
            return in_fresh_process(*command, timeout_s=TIMEOUT_S)
        spoil(image, geometry, regions)  # In the round for memory, once.
        cost = in_fresh_process(*command, environment=environment, timeout_s=TIMEOUT_S)
        pixels[name] = digest(image, geometry, regions)
        return cost

    for name, (runs, error) in take_turns(options.contender, options.repeat, run).items():
        size = f"{geometry.n_bytes >> 40} TiB" if geometry.n_bytes >> 40 else f"{geometry.n_bytes >> 20} MiB"
        labels = {"image": f"{geometry.name} {size}", "regions": str(count), "contender": name}
        compared = {"pixels": "equal" if pixels[name] == pixels.get("ours") else "DIFFERENT"} if name in pixels else {}
        record.add(labels, runs, error=error, **compared)


if __name__ == "__main__":
    main(sys.argv[1:])
