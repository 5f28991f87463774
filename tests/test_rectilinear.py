"""Arrays with chunks of unequal sizes, as source and as target: the laws hold for them too."""

import dask
import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from zarr.storage import LocalStore, MemoryStore

import ziggurat as zg
from ziggurat import stages
from ziggurat.api import _steps
from ziggurat.boxes import slices
from ziggurat.testing import CountingStore

quick = settings(max_examples=30, deadline=None)


@pytest.fixture(autouse=True)
def rectilinear(monkeypatch):
    monkeypatch.setattr(stages, "MIN_BLOCKS", 1)
    monkeypatch.setattr(stages, "ONE_TASK_BYTES", 500)
    config = zg.get_config()
    before = (config.dask.write_block_max_bytes, config.dask.max_tasks, config.consolidation.partial_max_coverage)
    config.consolidation.partial_max_coverage = 1.0
    with zarr.config.set({"array.rectilinear_chunks": True}):
        yield config
    config.dask.write_block_max_bytes, config.dask.max_tasks, config.consolidation.partial_max_coverage = before


@st.composite
def grids(draw, shape):
    """Draw chunks, and perhaps shards, of the sizes that each axis wants; some axes have equal ones."""
    inner = tuple(draw(st.integers(1, 3)) for _ in shape) if draw(st.booleans()) else None
    sizes = []
    for n, least in zip(shape, inner or (1,) * len(shape), strict=True):
        if draw(st.integers(0, 3)) == 0 or n % least:
            sizes.append(least * draw(st.integers(1, 6)))
            continue
        cuts = sorted(draw(st.sets(st.integers(1, max(1, n // least - 1)), max_size=5)) - {n // least})
        sizes.append([int(s) * least for s in np.diff([0, *cuts, n // least])])
    return (inner, sizes) if inner else (sizes, None)


@st.composite
def pyramids(draw):
    ndim = draw(st.integers(1, 2))
    shapes = [tuple(draw(st.integers(6, 40)) for _ in range(ndim))]
    for _ in range(draw(st.integers(1, 2))):
        shapes.append(tuple(draw(st.sampled_from([max(1, n // 2), -(-n // 2), n])) for n in shapes[-1]))
    return shapes, [draw(grids(s)) for s in shapes], draw(st.sampled_from(["mean", "cubic", "gaussian", "mode"]))


def make(shapes, chunkings, store=None):
    group = zarr.create_group(MemoryStore() if store is None else store)
    arrays = []
    for k, (shape, (chunks, shards)) in enumerate(zip(shapes, chunkings, strict=True)):
        options = {} if shards is None else {"shards": shards}
        arrays.append(group.create_array(str(k), shape=shape, chunks=chunks, dtype="u2", **options))
    arrays[0][...] = np.random.default_rng(1).integers(0, 999, shapes[0])
    for array in arrays[1:]:
        array[...] = 1
    return arrays


def pixels_of(arrays):
    return [a[...] for a in arrays]


def unit_keys(array):
    coords = np.ndindex(zg.ChunkGrid.of(array).shape)
    return {f"{array.path}/{array.metadata.encode_chunk_key(c)}" for c in coords}


@quick
@given(pyramid=pyramids(), cap=st.sampled_from([0, 64, 500, 2**23]), max_tasks=st.sampled_from([3, 10_000]))
def test_one_answer_from_one_writer(pyramid, cap, max_tasks):
    shapes, chunkings, method = pyramid
    plain = make(shapes, [(tuple(min(8, n) for n in s), None) for s in shapes])
    zg.consolidate(plain, method=method, mode="numpy")
    config = zg.get_config()
    config.dask.write_block_max_bytes, config.dask.max_tasks = cap, max_tasks
    for mode in ("numpy", "dask"):
        store = CountingStore(MemoryStore())
        arrays = make(shapes, chunkings, store)
        store.reset()
        plan = zg.plan(arrays, method=method, mode=mode)
        with dask.config.set(scheduler="sync"):
            report = plan.run()
        assert plan.n_tasks <= max_tasks
        changes = store.sets + store.deletes
        expected = set().union(*(unit_keys(a) for a in arrays[1:]))
        assert set(changes.values()) <= {1} and set(changes) == expected and report.n_units == len(expected)
        assert not [key for key in store.gets if key in unit_keys(arrays[-1])]
        for ours, theirs in zip(pixels_of(arrays), pixels_of(plain), strict=True):
            np.testing.assert_array_equal(ours, theirs)
        assert not zg.verify(arrays, method=method).is_stale


@quick
@given(
    data=st.data(),
    pyramid=pyramids(),
    cap=st.sampled_from([0, 64, 500, 2**23]),
    mode=st.sampled_from(["numpy", "dask"]),
)
def test_only_what_changed(data, pyramid, cap, mode):
    shapes, chunkings, method = pyramid
    store = CountingStore(MemoryStore())
    arrays = make(shapes, chunkings, store)
    zg.consolidate(arrays, method=method)
    zg.get_config().dask.write_block_max_bytes = cap
    changed = np.zeros(shapes[0], bool)
    regions = []
    for _ in range(data.draw(st.integers(1, 3))):
        start = [data.draw(st.integers(0, n - 1)) for n in shapes[0]]
        regions.append(
            tuple((a, min(n, a + data.draw(st.integers(1, 5)))) for a, n in zip(start, shapes[0], strict=True))
        )
        changed[slices(regions[-1])] = True
        arrays[0][slices(regions[-1])] = 7
    expected = set()
    for array, step in zip(arrays[1:], _steps(zg.open_pyramid(arrays), method, None, None), strict=True):
        above = np.zeros(array.shape, bool)
        for i in np.ndindex(array.shape):
            above[i] = changed[slices(step.window(tuple((j, j + 1) for j in i)))].any()
        changed = above
        grid = zg.ChunkGrid.of(array)
        for coords in np.ndindex(grid.shape):
            if changed[slices(grid.box(coords))].any():
                expected.add(f"{array.path}/{array.metadata.encode_chunk_key(coords)}")
    store.reset()
    with dask.config.set(scheduler="sync"):
        report = zg.consolidate(arrays, method=method, regions=regions, mode=mode)
    changes = store.sets + store.deletes
    assert set(changes.values()) <= {1} and set(changes) == expected and report.n_units == len(expected)
    after = pixels_of(arrays)
    zg.consolidate(arrays, method=method, mode="numpy")
    for one, other in zip(after, pixels_of(arrays), strict=True):
        np.testing.assert_array_equal(one, other)


def test_in_processes_and_changed(tmp_path):
    shapes = [(120, 90), (60, 45)]
    chunkings = [([[50, 30, 40], [45, 45]], None), ((5, 5), [[20, 30, 10], 15])]
    arrays = make(shapes, chunkings, LocalStore(tmp_path))
    zg.get_config().dask.write_block_max_bytes = 0
    plan = zg.plan(arrays, mode="dask")
    assert plan.n_tasks == 9 and "at most 30 x 15" in str(plan)
    with dask.config.set(scheduler="processes", num_workers=2):
        plan.run()
    expected = arrays[0][...].reshape(60, 2, 45, 2).mean(axis=(1, 3))
    assert np.abs(arrays[1][...] - expected).max() <= 0.5
    arrays[0][55, 3] += 9
    changed = zg.plan(arrays, regions="changed")
    assert changed.pyramid.levels[0].cuts == ((0, 50, 80), None)
    assert changed.run().n_units == 2
    assert not zg.verify(arrays).is_stale


def test_planning_lists_no_regular_axis():
    chunkings = [([[10, 20, 30], 1], None), ([[10, 20], 1], None)]
    group = zarr.create_group({})
    arrays = [
        group.create_array(str(k), shape=(n, 10**12 >> k), chunks=c, dtype="u1")
        for k, (n, (c, _)) in enumerate(zip((60, 30), chunkings, strict=True))
    ]
    assert zg.plan(arrays, mode="dask").n_tasks <= 10_000


def test_patches_of_rectilinear_levels():
    arrays = make([(60, 40)], [([[10, 20, 30], 8], None)])
    import dask.array as da

    pyramid = zg.open_pyramid(arrays)
    pyramid.set_array(da.full((30, 20), 5, dtype="u2", chunks=7), (slice(5, 35), slice(3, 23)))
    assert (arrays[0][5:35, 3:23] == 5).all() and pyramid.touched == [((5, 35), (3, 23))]


@pytest.mark.parametrize("sharded", [False, True])
def test_what_else_is_done_with_rectilinear_arrays(sharded):
    chunks, shards = ((5, 5), [[10, 20, 30], [20, 20]]) if sharded else ([[10, 20, 30], [20, 20]], None)
    arrays = make([(60, 40), (30, 20)], [(chunks, shards), ((10, 10), None)])
    pyramid = zg.open_pyramid(arrays)
    lazy = pyramid.to_datatree()["0"]["image"].data
    assert lazy.chunks == ((10, 20, 30), (20, 20))
    np.testing.assert_array_equal(lazy.compute(), arrays[0][...])
    built = zg.build(arrays[0], MemoryStore())
    np.testing.assert_array_equal(built[0][...], arrays[0][...])
    streamed = {p.chunk_coords: chunk.shape for p, chunk in zg.read_chunks(arrays[0])}
    assert streamed == {(i, j): (h, 20) for i, h in enumerate((10, 20, 30)) for j in range(2)}
