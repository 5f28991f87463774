"""What `make bench` runs: each piece with its module, its options and the seconds after which it begins nothing new.

All of it takes less than half an hour on two cores.
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

PIECES: dict[str, Piece] = {
    "run": Piece("run", 420, f"{_RUN} --codec blosc-lz4 zstd", f"{_SMOKE} --geometry planes --codec zstd"),
    "codecs": Piece(
        "run",
        150,
        f"{_RUN} --name codecs --codec none v2-blosc --contender ours floor",
        f"{_SMOKE} --name codecs --codec v2-blosc --contender ours floor",
    ),
    "peers": Piece("peers", 300, "--size 256MiB --repeat 2", f"{_SMOKE} --geometry planes"),
    "sparse": Piece("sparse", 60, "--size 2GiB --repeat 3", "--size 128MiB --repeat 1"),
    "memory": Piece("memory", 40, "--size 256MiB", "--size 64MiB"),
    "small": Piece("small", 30, "--repeat 7", "--repeat 2"),
    "kernels": Piece(
        "kernels",
        60,
        "--size 4MiB --repeat 3 --contender ours tensorstore tinybrain scikit-image",
        "--size 1MiB --repeat 1 --method mean",
    ),
    "regions": Piece("regions", 90, "--size 512MiB --repeat 3", f"{_SMOKE} --geometry planes --count 1 100"),
    "cold_start": Piece("cold_start", 40, "--repeat 3", "--repeat 1"),
    "scaling": Piece("scaling", 60, "--size 1GiB --repeat 3", "--size 128MiB --repeat 1"),
    "plan_scale": Piece("plan_scale", 60, "", "--layout 2-D\\ chunked --terabytes 1"),
    "coalescing": Piece("coalescing", 90, "--repeat 2", "--repeat 1 --size 2048"),
    "latency": Piece("latency", 90, "--size 64MiB --repeat 1", "--size 32MiB --repeat 1 --concurrency 64"),
    "building": Piece("building", 120, "--size 256MiB --repeat 2", "--size 128MiB --repeat 1 --contender ours"),
    "worker_memory": Piece("worker_memory", 90, "", "--method mean"),
}
# They print their tables, and `collect` keeps what they print.
PRINTING = ("coalescing", "latency", "building", "worker_memory")
