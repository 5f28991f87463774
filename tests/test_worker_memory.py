"""Law 6 on workers: what a worker process grows by stays under what the plan promises for each of its threads."""

import sys
from pathlib import Path
from uuid import uuid4

import dask
import numpy as np
import pytest
import zarr
from zarr.storage import LocalStore

import ziggurat as zg
from clusters import cluster
from ziggurat import kernels

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(sys.platform != "linux", reason="reads what Linux tells of a process"),
]

MIB = 2**20
SLACK = 32 * MIB  # of allocators, of zarr's and distributed's own objects, of what is compiled late

# Of the finest level: shape, chunk, shard; and the shape of the next.
IMAGES = {
    "2-D chunks, floor": ((3, 4001, 4099), (1, 512, 512), None, (3, 2000, 2049)),
    "2-D chunks, ceil": ((3, 4001, 4099), (1, 512, 512), None, (3, 2001, 2050)),
    "3-D shards of 64 MiB, floor": ((257, 255, 1025), (64, 64, 64), (256, 256, 512), (128, 127, 512)),
    "3-D shards of 64 MiB, ceil": ((257, 255, 1025), (64, 64, 64), (256, 256, 512), (129, 128, 513)),
}


@pytest.fixture(scope="module")
def client():
    # Else glibc keeps 10 to 40 MiB of freed blocks per thread.
    with cluster(n_workers=2, n_threads=1, env={"MALLOC_MMAP_THRESHOLD_": "131072"}) as client:
        yield client


@pytest.fixture(scope="module")
def image(request, tmp_path_factory):
    shape, chunk, shard, coarser = IMAGES[request.param]
    return make(tmp_path_factory.mktemp("image"), [shape, coarser], chunk, shard)


def make(where, shapes, chunk, shard):
    group = zarr.create_group(LocalStore(where))
    for k, shape in enumerate(shapes):
        group.create_array(str(k), shape=shape, chunks=chunk, shards=shard, dtype="u2", compressors=None)
    noise = np.random.default_rng(0).integers(0, 60_000, shapes[0][1:], "u2")
    step = (shard or chunk)[0]
    for z in range(0, shapes[0][0], step):
        group["0"][z : z + step] = np.broadcast_to(noise, (min(step, shapes[0][0] - z), *noise.shape))
    return where


def resident_bytes(key):
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(key)


def forget_peak():
    """Let the high-water mark begin anew, and return what is resident."""
    Path("/proc/self/clear_refs").write_text("5")
    return resident_bytes("VmRSS")


def warm_up(where, method, dask_worker):
    """Import and compile what a worker needs for the image at `where`, on a small one with the same parities."""
    kernels._NUMBA_PAYS_BYTES = 0  # numba takes 60 to 130 MiB once, whatever it is loaded for
    shapes = [level.shape for level in zg.open_pyramid(where, levels=["0", "1"]).levels]
    source = [n if n < 4 else 64 + n % 2 for n in shapes[0]]
    target = [s if n == m else s // 2 + (2 * m > n) * (n % 2) for s, n, m in zip(source, *shapes, strict=True)]
    small = make(Path(dask_worker.local_directory) / uuid4().hex, [source, target], (16,) * 3, (32,) * 3)
    with dask.config.set(scheduler="sync"):
        zg.consolidate(zg.open_pyramid(small, levels=["0", "1"]), method=method, mode="dask")


@pytest.mark.parametrize("method", ["mean", "gaussian"])
@pytest.mark.parametrize("image", IMAGES, indirect=True)
def test_growth_per_worker(client, image, method):
    client.run(warm_up, image, method)
    plan = zg.plan(zg.open_pyramid(image, levels=["0", "1"]), method=method, mode="dask")
    before = client.run(forget_peak)
    plan.run(client=client)
    growth = {worker: peak - before[worker] for worker, peak in client.run(resident_bytes, "VmHWM").items()}
    print(f"grew by {[n // MIB for n in growth.values()]} MiB, {plan.peak_bytes // MIB} MiB promised")
    assert max(growth.values()) < plan.peak_bytes + SLACK
    assert max(growth.values()) > 0  # the work was done there
