"""Process workers do what threads do, or the work is refused."""

import pickle
from contextlib import nullcontext

import numpy as np
import pytest
import zarr
from helpers import ceiling, make_arrays, threads
from zarr.storage import LocalStore, MemoryStore

import ziggurat as zg
from clusters import cluster, in_processes
from ziggurat.errors import StoreError

pytestmark = pytest.mark.timeout(60)  # workers that do not start are waited for

SOURCE = np.random.default_rng(29).integers(0, 65536, (64, 64), "uint16")


@pytest.fixture(scope="module")
def client():
    with cluster() as client:
        yield client


@pytest.fixture(params=["distributed", "processes"])
def workers(request):
    if request.param == "distributed":
        request.getfixturevalue("client")
        return nullcontext()
    return in_processes()


def make_levels(store, sharded=False, version=3):
    group = zarr.create_group(store, zarr_format=version)
    make_arrays(group, SOURCE, [(32, 32), (16, 16)], chunks=(16, 16), sharded=sharded)
    return [group[str(k)] for k in range(3)]


@pytest.mark.parametrize(("version", "sharded"), [(3, False), (3, True), (2, False)])
@pytest.mark.parametrize("cap", [1, 8 << 20])
def test_processes_give_what_threads_give(workers, tmp_path, cap, version, sharded):
    one = make_levels(LocalStore(tmp_path / "threads"), sharded, version)
    other = make_levels(LocalStore(tmp_path / "processes"), sharded, version)
    with ceiling(cap):
        with threads(2):
            zg.consolidate(one, mode="dask")
        with workers:
            report = zg.consolidate(other, mode="dask")
    assert [level.n_units for level in report.levels] == [level.n_units_total for level in report.levels]
    for a, b in zip(one, other, strict=True):
        assert a[...].any()
        assert a[...].tobytes() == b[...].tobytes()


@pytest.mark.parametrize("cap", [1, 8 << 20])
def test_memory_is_refused(workers, cap):
    levels = make_levels(MemoryStore())
    with ceiling(cap), workers, pytest.raises(StoreError, match="memory"):
        zg.consolidate(levels, mode="dask")
    assert levels[1].nchunks_initialized == levels[2].nchunks_initialized == 0


def test_memory_is_no_matter_in_the_caller(workers):
    levels = make_levels(MemoryStore())
    with workers:
        zg.consolidate(levels, mode="numpy")
    assert levels[1].nchunks_initialized == 4


def test_the_graph_can_be_pickled_and_holds_no_pixels(tmp_path):
    levels = make_levels(LocalStore(tmp_path))
    with ceiling(1):
        collection = zg.consolidate(levels, mode="dask", compute=False)
    assert levels[1].nchunks_initialized == 0
    # A lock could not be pickled.
    assert len(pickle.dumps(dict(collection.dask))) < 20_000 + SOURCE.nbytes // 2
    twin = pickle.loads(pickle.dumps(collection))
    with threads(2):
        report = twin.compute()
    assert [level.n_units for level in report.levels] == [4, 1]
    blocks = SOURCE.astype("float64").reshape(32, 2, 32, 2).mean((1, 3))
    np.testing.assert_array_equal(levels[1][...], np.rint(blocks))


def test_a_delayed_rebuild_runs_on_process_workers(workers, tmp_path):
    levels = make_levels(LocalStore(tmp_path))
    with ceiling(1), workers:
        report = zg.consolidate(levels, compute=False).compute()
    assert (report.mode, [level.n_units for level in report.levels]) == ("dask", [4, 1])
    assert levels[2][...].all()
