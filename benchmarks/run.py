"""Full rebuild of three coarser levels: `python -m benchmarks.run`.

Every run is a fresh process, warmed up on a small image of the same kind (192 MiB or less); contenders take turns.

- ours is `consolidate(method="linear", mode="dask")`, ngio `Image.consolidate("linear", mode="dask")`, both on two dask
  threads with write blocks of at most 8 MiB; "2 processes" is ours on a local cluster of two workers with one thread
  each, CPU and growth summed over it.
- floor is the codecs alone on two threads: level 0 decoded, as many objects as the coarser levels have encoded and
  written, without zarr and without a kernel. It encodes the pixels of a few chunks of these levels, again and again.
- Images are uint16, noisy as a camera's; blosc-lz4 at level 5 with byte shuffle, zstd at level 1, none, and blosc-lz4
  in zarr v2. The source is in the page cache; nothing is synced to disk while the clock runs.
- The pixels of all coarser levels are compared with ours, once.
"""

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.contender import CONTENDERS, floor_directory
from benchmarks.images import (
    CODECS,
    GEOMETRIES,
    Geometry,
    can_make,
    clear_levels,
    coarser_objects,
    digests,
    encoded_bytes,
    make_image,
    warm_page_cache,
)
from benchmarks.processes import in_fresh_process, take_turns
from benchmarks.record import Record, parser_of

# The image, its coarser levels, the floor's copy of them, and room to breathe.
SPACE_PER_IMAGE = 3


def main(arguments: Sequence[str]) -> None:
    """Measure every case asked for."""
    options = _parser().parse_args(arguments)
    record = Record("run", options, arguments, ["ngio"])
    geometries = [g.at_most(options.size) for g in GEOMETRIES if g.name in options.geometry]
    cases = [(g, codec) for codec in options.codec for g in geometries if can_make(g, codec)]
    for geometry, codec in record.within(cases, lambda case: f"{case[0].name}, {case[1]}"):
        with tempfile.TemporaryDirectory(prefix="ziggurat-bench-", dir=options.directory) as temporary:
            _check_free_space(Path(temporary), options.size)
            _compare(record, geometry, codec, options, Path(temporary))
    record.close()


def _parser() -> argparse.ArgumentParser:
    names = [geometry.name for geometry in GEOMETRIES]
    parser = parser_of("run", __doc__, size="2GiB")
    parser.add_argument("--geometry", nargs="+", choices=names, default=names)
    parser.add_argument("--codec", nargs="+", choices=list(CODECS), default=list(CODECS))
    parser.add_argument("--contender", nargs="+", choices=list(CONTENDERS), default=list(CONTENDERS))
    return parser


def _check_free_space(directory: Path, size_bytes: int) -> None:
    free, needed = shutil.disk_usage(directory).free, SPACE_PER_IMAGE * size_bytes
    if free < needed:
        raise SystemExit(
            f"{directory.parent} has {free / 2**30:.1f} GiB free and the benchmark needs {needed / 2**30:.1f} GiB: "
            "give another --directory or a smaller --size"
        )


def _compare(record: Record, geometry: Geometry, codec: str, options: argparse.Namespace, temporary: Path) -> None:
    image, tiny = temporary / "image.zarr", temporary / "tiny.zarr"
    make_image(image, geometry, codec)
    make_image(tiny, geometry.at_most(min(options.size, geometry.tiny().n_bytes)), codec)
    warm_page_cache(image)
    pixels: dict[str, list[str]] = {}

    def run(name: str, environment: dict[str, str]) -> dict[str, Any]:
        _clear(image, tiny)
        cost = in_fresh_process("-m", "benchmarks.contender", name, str(image), str(tiny), environment=environment)
        if name == "floor":
            return {**cost, "written_bytes": encoded_bytes(floor_directory(image))}
        if environment:  # In the round for memory, for hashing all levels takes longer than to build them.
            pixels[name] = digests(image)
        return {**cost, "written_bytes": sum(map(encoded_bytes, coarser_objects(image)))}

    found = take_turns(options.contender, options.repeat, run)
    expected = pixels.get("ours")
    for name, (runs, error) in found.items():
        labels = {"image": f"{geometry.name} {geometry.n_bytes >> 20} MiB", "codec": codec, "contender": name}
        compared = {"pixels": "equal" if pixels[name] == expected else "DIFFERENT"} if name in pixels else {}
        record.add(labels, runs, error=error, **compared)


def _clear(image: Path, tiny: Path) -> None:
    clear_levels(image)
    for path in (image, tiny):
        shutil.rmtree(floor_directory(path), ignore_errors=True)
    os.sync()


if __name__ == "__main__":
    main(sys.argv[1:])
