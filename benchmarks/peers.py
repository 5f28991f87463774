"""Peers in four geometries: `python -m benchmarks.peers`.

Three coarser levels of a uint16 image, blosc-lz4; every run is a fresh process, warmed up on a small image of the same
kind, and everyone has two threads. Contenders take turns.

- ours is `consolidate(method="mean", mode="dask")`; "in memory" is the same with `mode="numpy"`.
- ngio rebuilds with its order "linear", which at factor 2 is the mean, rounded away from zero: dask, numpy, coarsen.
- tensorstore: its downsample driver over each level, one write unit of the next level after the other, two at a time.
- topozarr: `downsample_level` of its engine, level by level.
- ome-zarr and ngff-zarr have no rebuild: they write the whole image anew, level 0 too, and compare with "ours, new
  image", which is `zg.build` out of the same level 0. Chunks, shards and codec are those of the image.
- "pixels" compares level 1 with that of the first contender. Differences of 1 are another rounding.
"""

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import zarr

from benchmarks.images import GEOMETRIES, Geometry, clear_levels, make_image, warm_page_cache
from benchmarks.peers_contender import CONTENDERS, new_image
from benchmarks.processes import in_fresh_process, take_turns
from benchmarks.record import Record, parser_of

VERSIONS = ("ngio", "tensorstore", "topozarr", "ome-zarr", "ngff-zarr")
CODEC = "blosc-lz4"
TIMEOUT_S = 120


def main(arguments: Sequence[str]) -> None:
    """Measure every case asked for."""
    options = _parser().parse_args(arguments)
    record = Record("peers", options, arguments, VERSIONS)
    geometries = [g.at_most(options.size) for g in GEOMETRIES if g.name in options.geometry]
    for geometry in record.within(geometries, lambda g: g.name):
        with tempfile.TemporaryDirectory(prefix="ziggurat-bench-", dir=options.directory) as temporary:
            _compare(record, geometry, options, Path(temporary))
    record.close()


def _parser() -> argparse.ArgumentParser:
    names = [geometry.name for geometry in GEOMETRIES]
    parser = parser_of("peers", __doc__, size="256MiB")
    parser.add_argument("--geometry", nargs="+", choices=names, default=names)
    parser.add_argument("--contender", nargs="+", choices=list(CONTENDERS), default=list(CONTENDERS))
    return parser


def _compare(record: Record, geometry: Geometry, options: argparse.Namespace, temporary: Path) -> None:
    image, tiny = temporary / "image.zarr", temporary / "tiny.zarr"
    make_image(image, geometry, CODEC)
    make_image(tiny, geometry.at_most(min(options.size, geometry.tiny().n_bytes)), CODEC)
    warm_page_cache(image)
    level1: dict[str, Any] = {}

    def run(name: str, environment: dict[str, str]) -> dict[str, Any]:
        clear_levels(image)
        for path in (image, tiny):
            shutil.rmtree(new_image(path), ignore_errors=True)
        os.sync()
        command = ("-m", "benchmarks.peers_contender", name, str(image), str(tiny))
        cost = in_fresh_process(*command, environment=environment, timeout_s=TIMEOUT_S)
        if environment and "error" not in cost:
            written = new_image(image) if new_image(image).exists() else image
            level1[name] = _level1(written)
        return cost

    found = take_turns(options.contender, options.repeat, run)
    for name, (runs, error) in found.items():
        labels = {"image": f"{geometry.name} {geometry.n_bytes >> 20} MiB", "contender": name}
        record.add(labels, runs, error=error, pixels=_difference(level1.get(name), level1.get(options.contender[0])))


def _level1(image: Path) -> Any:
    """Return the pixels of level 1; what it is called is the business of whoever wrote it."""
    group: Any = zarr.open_group(image, mode="r")
    datasets = group.attrs["ome"]["multiscales"][0]["datasets"]
    return group[datasets[1]["path"]][...]


def _difference(pixels: Any, ours: Any) -> str | None:
    if pixels is None or ours is None:
        return None
    if pixels.shape != ours.shape:
        return f"shape {pixels.shape}, not {ours.shape}"
    most = int(np.abs(pixels.astype("i4") - ours).max())
    return f"differ by {most} at most" if most else "equal"


if __name__ == "__main__":
    main(sys.argv[1:])
