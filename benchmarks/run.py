"""Ours, ngio and the codec floor side by side: `python -m benchmarks.run --help`."""

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from dask.utils import parse_bytes

from benchmarks.contender import CONTENDERS, floor_directory
from benchmarks.images import (
    CODECS,
    GEOMETRIES,
    clear_levels,
    coarser_objects,
    digests,
    encoded_bytes,
    make_image,
    warm_page_cache,
)
from benchmarks.processes import MEMORY_ENVIRONMENT, in_fresh_process
from benchmarks.tables import Case, document, equalities, table

RESULTS = Path(__file__).with_name("RESULTS.md")
# The image, its coarser levels, the floor's copy of them, and room to breathe.
SPACE_PER_IMAGE = 3


def main(arguments: Sequence[str]) -> None:
    """Measure every case asked for, print the table and write it to `--output`."""
    options = _parser().parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="ziggurat-bench-", dir=options.directory) as temporary:
        _check_free_space(Path(temporary), options.size)
        cases = list(_measured(options, Path(temporary)))
    print(f"\n{table(cases)}\n\n{equalities(cases)}")
    command = " ".join(["python -m benchmarks.run", *arguments])
    options.output.write_text(document(cases, command, options.repeat))
    if any("DIFFERENT" in case.equality for case in cases):
        raise SystemExit("ours and ngio wrote different pixels")


def _parser() -> argparse.ArgumentParser:
    names = [geometry.name for geometry in GEOMETRIES]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__)
    parser.add_argument("--size", type=parse_bytes, default="2GiB", help="of level 0, rounded down to halvings of 2GiB")
    parser.add_argument("--geometry", nargs="+", choices=names, default=names)
    parser.add_argument("--codec", nargs="+", choices=list(CODECS), default=list(CODECS))
    parser.add_argument("--contender", nargs="+", choices=list(CONTENDERS), default=list(CONTENDERS))
    parser.add_argument("--repeat", type=int, default=3, metavar="N")
    parser.add_argument("--directory", type=Path, help="where the temporary images go")
    parser.add_argument("--output", type=Path, default=RESULTS, help="the Markdown file to write")
    return parser


def _check_free_space(directory: Path, size_bytes: int) -> None:
    free, needed = shutil.disk_usage(directory).free, SPACE_PER_IMAGE * size_bytes
    if free < needed:
        raise SystemExit(
            f"{directory.parent} has {free / 2**30:.1f} GiB free and the benchmark needs {needed / 2**30:.1f} GiB: "
            "give another --directory or a smaller --size"
        )


def _measured(options: argparse.Namespace, temporary: Path) -> Iterator[Case]:
    image, tiny = temporary / "image.zarr", temporary / "tiny.zarr"
    for geometry in (g.at_most(options.size) for g in GEOMETRIES if g.name in options.geometry):
        for codec in options.codec:
            make_image(image, geometry, codec)
            make_image(tiny, geometry.tiny(), codec)
            case = Case(geometry, codec)
            warm_page_cache(image)
            for repeat in range(options.repeat):
                _one_round(case, _rotated(options.contender, repeat), image, tiny)
            shutil.rmtree(image)
            shutil.rmtree(tiny)
            yield case


def _rotated(names: list[str], by: int) -> list[str]:
    """Nobody always runs after the same neighbour, whose writes are still on their way to the disk."""
    by %= len(names)
    return names[by:] + names[:by]


def _one_round(case: Case, names: Sequence[str], image: Path, tiny: Path) -> None:
    for name in names:
        arguments = ("-m", "benchmarks.contender", name, str(image), str(tiny))
        if name not in case.growth_bytes:
            clear_levels(image)
            case.growth_bytes[name] = in_fresh_process(*arguments, environment=MEMORY_ENVIRONMENT)["growth_bytes"]
        clear_levels(image)
        for path in (image, tiny):
            shutil.rmtree(floor_directory(path), ignore_errors=True)
        os.sync()
        cost = {**in_fresh_process(*arguments), "growth_bytes": case.growth_bytes[name]}
        case.costs.setdefault(name, []).append(cost)
        print(f"{case.title}: {name} {cost['wall_s']:.2f} s", file=sys.stderr, flush=True)
        if name == "floor":
            case.written_bytes[name] = encoded_bytes(floor_directory(image))
        else:
            case.written_bytes[name] = sum(map(encoded_bytes, coarser_objects(image)))
            case.digests.setdefault(name, set()).add(tuple(digests(image)))


if __name__ == "__main__":
    main(sys.argv[1:])
