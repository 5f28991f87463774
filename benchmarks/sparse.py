"""Sparse labels: `python -m benchmarks.sparse`. One chunk in a hundred is stored, the others are fill.

uint32, chunks of 64 pixels per axis, three coarser levels, `nearest`, as zarr writes it by default (zstd). Every run is
a fresh process on two dask threads, warm; contenders take turns. "pixels" compares all coarser levels with ours.
"""

import hashlib
import random
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import zarr

from benchmarks.contender import two_threads
from benchmarks.images import N_COARSER, clear_levels, warm_page_cache
from benchmarks.measure import Cost, measure
from benchmarks.processes import answer, in_fresh_process, take_turns
from benchmarks.record import Record, parser_of

SHAPE = (512, 2048, 2048)
CHUNK = 64
STORED = 0.01


def _ours(path: Path) -> None:
    import ziggurat as zg

    zg.consolidate(path, method="nearest", mode="dask")


def _ngio(path: Path) -> None:
    import ngio

    ngio.open_ome_zarr_container(path).get_image(path="0").consolidate("nearest", mode="dask")


CONTENDERS: dict[str, Callable[[Path], None]] = {"ours": _ours, "ngio": _ngio}


def main(arguments: Sequence[str]) -> None:
    """Measure one image."""
    parser = parser_of("sparse", __doc__, size="2GiB")
    parser.add_argument("--contend", nargs=3, help="NAME IMAGE TINY_IMAGE: one measured run, JSON out")
    options = parser.parse_args(arguments)
    if options.contend:
        answer(lambda: contend(*options.contend))
        return
    record = Record("sparse", options, arguments, ["ngio"])
    with tempfile.TemporaryDirectory(prefix="ziggurat-bench-", dir=options.directory) as temporary:
        image, tiny = Path(temporary) / "image.zarr", Path(temporary) / "tiny.zarr"
        shape = shape_of(options.size)
        n_stored = make_sparse(image, shape)
        make_sparse(tiny, (CHUNK * 4,) * 3)
        warm_page_cache(image)
        pixels: dict[str, str] = {}

        def run(name: str, environment: dict[str, str]) -> dict[str, Any]:
            clear_levels(image)
            command = ("-m", "benchmarks.sparse", "--contend", name, str(image), str(tiny))
            cost = in_fresh_process(*command, environment=environment, timeout_s=600)
            pixels[name] = _digest(image)
            return cost

        for name, (runs, error) in take_turns(list(CONTENDERS), options.repeat, run).items():
            labels = {"image": f"{'x'.join(map(str, shape))}, chunks stored: {n_stored}", "contender": name}
            record.add(labels, runs, error=error, pixels="equal" if pixels.get(name) == pixels["ours"] else "DIFFERENT")
    record.close()


def shape_of(size_bytes: int) -> tuple[int, ...]:
    """Halve the longest axis of `SHAPE` until the pixels fit."""
    shape = list(SHAPE)
    while 4 * np.prod(shape) > size_bytes:
        shape[shape.index(max(shape))] //= 2
    return tuple(shape)


def make_sparse(path: Path, shape: Sequence[int]) -> int:
    """Write an OME-Zarr 0.5 image with few chunks, always the same ones, and return how many."""
    group = zarr.create_group(path)
    for k in range(N_COARSER + 1):
        coarse = tuple(max(1, n >> k) for n in shape)
        group.create_array(str(k), shape=coarse, chunks=tuple(min(CHUNK, n) for n in coarse), dtype="uint32")
    datasets = [
        {"path": str(k), "coordinateTransformations": [{"type": "scale", "scale": [2.0**k] * 3}]}
        for k in range(N_COARSER + 1)
    ]
    axes = [{"name": name, "type": "space"} for name in "zyx"]
    group.attrs["ome"] = {"version": "0.5", "multiscales": [{"name": "labels", "axes": axes, "datasets": datasets}]}
    grid = [n // CHUNK for n in shape]
    stored = random.Random(0).sample(range(int(np.prod(grid))), max(1, round(STORED * np.prod(grid))))
    rng, level0 = np.random.default_rng(0), group["0"]
    for corner in np.stack(np.unravel_index(stored, grid), axis=1).tolist():
        level0[tuple(slice(c * CHUNK, (c + 1) * CHUNK) for c in corner)] = _cells(rng)  # type: ignore[index]
    return len(stored)


def _cells(rng: np.random.Generator) -> Any:
    """Return a chunk of boxes of 16 pixels per axis, each one label."""
    labels = rng.integers(1, 100_000, (CHUNK // 16,) * 3, dtype="u4")
    return np.kron(labels, np.ones((16,) * 3, "u4"))


def _digest(image: Path) -> str:
    group: Any = zarr.open_group(image, mode="r")
    pixels = hashlib.blake2b(digest_size=16)
    for k in range(1, N_COARSER + 1):
        for z in range(0, group[str(k)].shape[0], CHUNK):
            pixels.update(group[str(k)][z : z + CHUNK])
    return pixels.hexdigest()


def contend(name: str, image: str, tiny: str) -> Cost:
    """Warm the code up on the tiny image, then measure one run on the other."""
    two_threads()
    CONTENDERS[name](Path(tiny))
    return measure(lambda: CONTENDERS[name](Path(image)))


if __name__ == "__main__":
    main(sys.argv[1:])
