"""Rebuild the pyramid at a path in this fresh process; print what was read and written and how far memory grew.

Usage: memory.py PATH MODE CAP, where CAP is a number of bytes or "null".
"""

import json
import re
import sys
from collections import Counter
from pathlib import Path

import zarr
from helpers import ceiling, threads
from zarr.storage import LocalStore

import ziggurat as zg
from ziggurat.testing import CountingStore


def kib(name: str) -> int:
    return int(re.search(rf"{name}:\s+(\d+)", Path("/proc/self/status").read_text())[1])


def warm_up() -> None:
    """Load and compile what is loaded once, whatever the size of the image; numba is, after some 32 MiB."""
    levels = [zarr.create_array({}, shape=(n, n), chunks=(512, 512), dtype="uint16") for n in (4096, 2048, 1024)]
    levels[0][...] = 5
    for mode in ("numpy", "dask"):
        zg.consolidate(levels, method="mean", mode=mode)


def measure(path: str, mode: str, cap: int | None) -> dict:
    store = CountingStore(LocalStore(path))
    group = zarr.open_group(store, mode="r+")
    pyramid = zg.open_pyramid(group, levels=["0", "1", "2"])
    with ceiling(cap), threads(4):
        warm_up()
        store.reset()
        Path("/proc/self/clear_refs").write_text("5")  # the peak so far is forgotten
        before = kib("VmRSS")
        report = zg.consolidate(pyramid, method="mean", mode=mode)
    return {
        "mode": report.mode,
        "growth_mib": (kib("VmHWM") - before) / 1024,
        "promise_mib": report.peak_bytes / 2**20 * (4 if report.mode == "dask" else 1),
        "gets": per_level(store.gets),
        "sets": per_level(store.sets),
        "deletes": per_level(store.deletes),
    }


def per_level(counts: Counter[str]) -> dict[str, list[int]]:
    """Return for each level how many chunks were used, and the most often that one was."""
    chunks = {level: [n for key, n in counts.items() if key.startswith(f"{level}/c/")] for level in "012"}
    return {level: [len(used), max(used)] for level, used in chunks.items() if used}


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], sys.argv[2], None if sys.argv[3] == "null" else int(sys.argv[3]))))
