"""What `make bench` runs: each piece with its module, its options and the seconds after which it begins nothing new.

All of it takes about fifty minutes on two cores.
"""

from typing import NamedTuple


class Piece(NamedTuple):
    """One benchmark as it is run for RESULTS.md."""

    module: str
    seconds: int
    options: str = ""
    smoke: str = ""


_RUN = "--size 512MiB --repeat 3"
_SMOKE = "--size 64MiB --repeat 1"
_REBUILDING = "'ours' 'ours, in memory' 'ngio, numpy' 'ngio, coarsen' tensorstore topozarr"
_ANEW = "'ours, new image' 'ome-zarr, new image' 'ngff-zarr, new image'"

# What is asked for first comes first: `--minutes` cuts the end off.
PIECES: dict[str, Piece] = {
    "run": Piece(
        "run",
        450,
        f"{_RUN} --codec blosc-lz4 --contender ours ngio floor",
        f"{_SMOKE} --geometry planes --codec zstd --contender ours ngio floor",
    ),
    "peers": Piece(
        "peers",
        300,
        f"--size 256MiB --repeat 2 --contender {_REBUILDING}",
        f"{_SMOKE} --geometry planes --contender {_REBUILDING}",
    ),
    "sparse": Piece("sparse", 60, "--size 2GiB --repeat 3", "--size 128MiB --repeat 1"),
    "small": Piece("small", 30, "--repeat 7", "--repeat 2"),
    "memory": Piece("memory", 40, "--size 256MiB", "--size 64MiB"),
    "kernels": Piece(
        "kernels",
        60,
        "--size 4MiB --repeat 3 --contender ours tensorstore tinybrain scikit-image",
        "--size 1MiB --repeat 1 --method mean",
    ),
    "codecs": Piece(
        "run",
        120,
        f"{_RUN} --name codecs --codec zstd none v2-blosc --contender ours ngio floor",
        f"{_SMOKE} --name codecs --codec v2-blosc --contender ours floor",
    ),
    "breakdown": Piece("breakdown", 90, "--size 512MiB --repeat 3", f"{_SMOKE} --geometry planes --codec blosc-lz4"),
    "processes": Piece(
        "run",
        100,
        "--size 512MiB --repeat 2 --name processes --codec blosc-lz4 --contender ours 'ours, 2 processes' floor",
        f"{_SMOKE} --geometry planes --name processes --codec zstd --contender ours 'ours, 2 processes'",
    ),
    "regions": Piece("regions", 120, "--size 1GiB --repeat 2", f"{_SMOKE} --geometry planes --count 1 100"),
    "large_regions": Piece(
        "regions",
        420,
        "--size 8GiB --repeat 2 --name large_regions --contender ours 'ours, full'",
        f"{_SMOKE} --geometry planes --name large_regions --count 100 --contender ours 'ours, full'",
    ),
    "terabyte": Piece(
        "regions",
        200,
        "--size 1TiB --repeat 3 --name terabyte --stored regions --count 1",
        "--size 128MiB --repeat 1 --geometry planes --name terabyte --stored regions --count 1",
    ),
    "anew": Piece(
        "peers",
        120,
        f"--size 256MiB --repeat 2 --name anew --contender {_ANEW}",
        f"{_SMOKE} --geometry planes --name anew --contender {_ANEW}",
    ),
    "building": Piece("building", 90, "--size 256MiB --repeat 2", "--size 128MiB --repeat 1 --contender ours"),
    "cold_start": Piece("cold_start", 20, "--repeat 3", "--repeat 1"),
    "scaling": Piece("scaling", 200, "--size 8GiB --repeat 4", "--size 128MiB --repeat 1"),
    "plan_scale": Piece("plan_scale", 50, "", "--layout '2-D chunked' --terabytes 1"),
    "latency": Piece("latency", 60, "--size 64MiB --repeat 1", "--size 32MiB --repeat 1 --concurrency 64"),
    "coalescing": Piece("coalescing", 60, "--repeat 2", "--repeat 1 --size 2048"),
    "worker_memory": Piece("worker_memory", 60, "", "--method mean"),
}
# They print their tables, and `collect` keeps what they print.
PRINTING = ("coalescing", "latency", "building", "worker_memory")
