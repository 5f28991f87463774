"""Where a full rebuild spends its time: `python -m benchmarks.breakdown`.

One thread, so that nothing waits for anything, blosc and zstd, `linear`; seconds, of which Python's profiler takes a
few per cent itself. "fetching" is compiled code that reads, decodes and reduces chunks of level 0, "reducing" what
is reduced of blocks in memory, "storing" encoding and writing, "Python" all that is left: ours, zarr's and dask's.
"floor" is reading and decoding the same objects, "floor, storing" encoding and writing the levels that were built, both
with numcodecs and nothing in between: what "fetching" takes beyond it are the kernels, and caches that were used for
something else between two chunks.
"""

import argparse
import cProfile
import itertools
import pstats
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.images import CODECS, GEOMETRIES, Geometry, clear_levels, make_image, warm_page_cache
from benchmarks.processes import answer, in_fresh_process
from benchmarks.record import Record, parser_of
from ziggurat._codes import READ, REDUCE, STORE

# Functions by where they are defined, and what they do. What is called from them and not named here is Python; what
# compiled code spends on its orders it says itself.
PARTS = {
    ("~", "<method 'readinto' of '_io.FileIO' objects>"): "fetching_s",
    ("storing.py", "_splice"): "storing_s",
    ("storing.py", "_pack"): "storing_s",
    ("codecs.py", "encode"): "storing_s",
    ("~", "<method 'write' of '_io.BufferedWriter' objects>"): "storing_s",
    ("~", "<built-in method posix.replace>"): "storing_s",
}

ORDERS = {READ: "fetching_s", REDUCE: "reducing_s", STORE: "storing_s"}


def main(arguments: Sequence[str]) -> None:
    """Profile each image."""
    parser = parser_of("breakdown", __doc__, size="1GiB", repeat=3)
    names = [g.name for g in GEOMETRIES]
    parser.add_argument("--geometry", nargs="+", choices=names, default=names)
    parser.add_argument("--codec", nargs="+", choices=list(CODECS), default=["blosc-lz4", "zstd"])
    options = parser.parse_args(arguments)
    record = Record("breakdown", options, arguments)
    geometries = [g.at_most(options.size) for g in GEOMETRIES if g.name in options.geometry]
    cases = list(itertools.product(geometries, options.codec))
    for geometry, codec in record.within(cases, lambda case: f"{case[0].name}, {case[1]}"):
        _profile(record, geometry, codec, options)
    record.close()


def _profile(record: Record, geometry: Geometry, codec: str, options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(prefix="ziggurat-breakdown-", dir=options.directory) as temporary:
        image = Path(temporary) / "image.zarr"
        make_image(image, geometry, codec)
        warm_page_cache(image)
        code = f"from benchmarks import breakdown; breakdown.run({str(image)!r}, {options.repeat})"
        found = in_fresh_process("-c", code)
    labels = {"image": f"{geometry.name} {geometry.n_bytes >> 20} MiB", "codec": codec}
    record.add(labels, found.get("runs", []), error=found.get("error"))


def run(image: str, repeat: int) -> None:
    """Print what each of some rebuilds spent, and the floor."""
    answer(lambda: {"runs": [_spent(Path(image)) for _ in range(repeat + 1)][1:]})  # the first one compiles


def _spent(image: Path) -> dict[str, float]:
    import dask

    import ziggurat as zg

    clear_levels(image)
    profile = cProfile.Profile()
    spent: dict[int, list[int]] = defaultdict(list)
    with dask.config.set(scheduler="sync"), _told(spent):
        started = time.perf_counter()
        profile.runcall(zg.consolidate, image, method="linear", mode="dask")
        total = time.perf_counter() - started
    parts = {name: sum(spent[kind]) / 1e9 for kind, name in ORDERS.items()}
    stats: dict[Any, Any] = pstats.Stats(profile).stats  # type: ignore[attr-defined]
    for (file, _, function), (_, _, own, *_) in stats.items():
        part = PARTS.get((Path(file).name, function))
        if part:
            parts[part] += own
    return {"total_s": total, **parts, "python_s": total - sum(parts.values()), **_floor(image)}


@contextmanager
def _told(spent: dict[int, list[int]]) -> Iterator[None]:
    """Gather the nanoseconds that compiled code spends on each kind of order."""
    from ziggurat._hot import Performance

    go_on = Performance.go_on

    def told(work: Performance, first: int = 0) -> int:
        reached = go_on(work, first)
        for kind, nanoseconds in zip(work.orders[first:reached, 0], work.spent[first:reached], strict=True):
            spent[int(kind)].append(int(nanoseconds))
        return reached

    Performance.go_on = told
    yield
    Performance.go_on = go_on


def _floor(image: Path) -> dict[str, float]:
    import numpy as np

    from benchmarks import floor
    from benchmarks.images import objects_of

    floor.numcodecs.blosc.use_threads = False
    spent = []
    for k, layout in enumerate(floor.layouts(image)):
        decoded, data = np.empty((layout.n_inner, *layout.inner), np.uint16), floor.page_aligned(2 * layout.n_bytes)
        for file in objects_of(image, k):
            started = time.perf_counter()
            pixels = floor.decode(file, layout, data, decoded)
            read = time.perf_counter()
            if k:
                floor.encode(image.with_name("object"), pixels, layout)
            spent.append((read - started, 0.0) if k == 0 else (0.0, time.perf_counter() - read))
    return {"floor_s": sum(a for a, _ in spent), "floor_storing_s": sum(b for _, b in spent)}


if __name__ == "__main__":
    main(sys.argv[1:])
