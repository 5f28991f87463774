"""A big image is neither loaded whole nor read more than once."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import zarr
from zarr.storage import MemoryStore

import ziggurat as zg

N = 16384


def rows(start, stop, step=1):
    y, x = np.ogrid[start:stop:step, 0:N:step]
    return (7 * y + 13 * x).astype("uint16")


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    """512 MiB of uint16, two coarser levels, nothing compressed."""
    path = tmp_path_factory.mktemp("image")
    group = zarr.create_group(path)
    for k, n in enumerate((N, N // 2, N // 4)):
        group.create_array(str(k), shape=(n, n), chunks=(512, 512), dtype="uint16", compressors=None)
    for start in range(0, N, 512):
        group["0"][start : start + 512] = rows(start, start + 512)
    return path


def measured(path, mode, cap):
    script = Path(__file__).with_name("memory.py")
    # glibc keeps freed memory of this size for later otherwise.
    env = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "131072", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, script, path, mode, str(cap)]
    done = subprocess.run(command, env=env, check=True, capture_output=True, text=True, timeout=200)
    return json.loads(done.stdout)


def check_counts(found):
    assert found["gets"]["0"] == [1024, 1]
    assert found["gets"].get("1", [0, 0]) in ([0, 0], [256, 1])
    assert set(found["gets"]) <= {"0", "1"}
    assert found["sets"] == {"1": [256, 1], "2": [64, 1]}
    assert found["deletes"] == {}


def check_pixels(path):
    """Compare a part of each level with means computed here, each level from the rounded finer one."""
    group = zarr.open_group(path, mode="r")
    for start in (0, 5000, N - 512):
        source = np.asarray(rows(start, start + 512), "uint32")
        for level in "12":
            source = np.rint(source.reshape(len(source) // 2, 2, -1, 2).mean((1, 3))).astype("uint32")
            first = start >> int(level)
            np.testing.assert_array_equal(group[level][first : first + len(source)], source)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize(
    ("mode", "cap", "ran", "most_mib"),
    [("auto", 8 << 20, "dask", 200), ("auto", "null", "dask", 350), ("numpy", 8 << 20, "numpy", 1.8 * 512)],
)
def test_memory_and_reads(image, mode, cap, ran, most_mib):
    found = measured(image, mode, cap)
    assert found["mode"] == ran
    check_counts(found)
    check_pixels(image)
    assert found["growth_mib"] <= min(most_mib, found["promise_mib"])


@pytest.mark.parametrize(("n_more", "mode"), [(0, "numpy"), (1, "dask")])
def test_auto_works_in_memory_up_to_256_mib(n_more, mode):
    group = zarr.create_group(MemoryStore())
    n = (256 << 20) + n_more
    levels = [group.create_array(str(k), shape=(n >> k,), chunks=(1 << 20,), dtype="uint8") for k in range(3)]
    assert zg.plan(levels).mode == mode
