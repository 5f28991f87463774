"""Regional rebuilds tree by tree: every dirty unit once, what is in memory is not read, and no request uncounted."""

from collections import Counter
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory

import dask
import numpy as np
import pytest
import zarr
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st
from zarr.storage import LocalStore, MemoryStore

import ziggurat as zg
from reference import reference
from strategies import Recipe, recipes, stored
from test_encoded import counts_of, images, in_python, objects, watched
from test_regional import expected_units, regions_in
from ziggurat import dirty, kernels, stages
from ziggurat.api import _steps
from ziggurat.blocks import Block
from ziggurat.boxes import intersect, is_empty, n_pixels, slices
from ziggurat.forest import Forest
from ziggurat.geometry import own
from ziggurat.handle import Handle
from ziggurat.storing import FileWriter
from ziggurat.testing import CountingStore, LatencyStore


@pytest.fixture(autouse=True)
def small_stages(monkeypatch):
    """Let small images have several blocks, tasks, and levels per stage."""
    monkeypatch.setattr(stages, "MIN_BLOCKS", 1)
    monkeypatch.setattr(stages, "ONE_TASK_BYTES", 0)
    monkeypatch.setattr(dirty, "TASK_BYTES", 1)
    config = zg.get_config()
    monkeypatch.setattr(config.consolidation, "partial_max_coverage", 1.0)
    monkeypatch.setattr(config.dask, "write_block_max_bytes", 64)
    with dask.config.set(scheduler="sync"), zarr.config.set({"array.rectilinear_chunks": True}):
        yield config


@st.composite
def limits(draw, monkeypatch):
    """Draw what decides how a rebuild is cut into stages, tasks and blocks."""
    config = zg.get_config().dask
    monkeypatch.setattr(config, "write_block_max_bytes", draw(st.sampled_from([0, 64, 500, 2**23])))
    monkeypatch.setattr(config, "max_tasks", draw(st.sampled_from([1, 3, 12, 10_000])))
    monkeypatch.setattr(dirty, "TASK_BYTES", draw(st.sampled_from([1, 1, 300, 32 << 20])))
    monkeypatch.setattr(stages, "ONE_TASK_BYTES", draw(st.sampled_from([0, 32 << 20])))


@st.composite
def nesting(draw):
    """Draw levels that nest, by any factors, with units of any sizes that let them, shards among them."""
    ndim, n_levels = draw(st.integers(1, 2)), draw(st.integers(2, 4))
    axes = [draw(_nesting_axis(n_levels, 160 if ndim == 1 else 40)) for _ in range(ndim)]
    levels = [tuple(zip(*level, strict=True)) for level in zip(*axes, strict=True)]
    shapes, units, inner = zip(*levels, strict=True)
    is_sharded, version = [draw(st.booleans()) for _ in shapes], draw(st.sampled_from([2, 3, 3]))
    shards = tuple(unit if s and version == 3 else None for unit, s in zip(units, is_sharded, strict=True))
    chunks = tuple(c if s else unit for unit, c, s in zip(units, inner, shards, strict=True))
    method = draw(st.sampled_from(["mean", "mode", "nearest", "max", "median"]))
    dtype, fill, seed = draw(st.sampled_from(["u1", ">u2", "f4"])), draw(st.integers(0, 1)), draw(st.integers(0, 99))
    return Recipe(shapes, chunks, shards, dtype, version, fill, seed, method)


@st.composite
def _nesting_axis(draw, n_levels, most):
    """Draw sizes, units, and chunks in those, of one axis of all levels."""
    n = draw(st.integers(most // 2, most))
    unit = inner = draw(st.integers(1, 9))
    sizes, units, chunks = [n], [unit], [inner]
    for _ in range(n_levels - 1):
        factor = draw(st.sampled_from([1, 2, 2, 2, 3, 4]))
        n = draw(st.sampled_from([max(1, n // factor), -(-n // factor)]))
        # Units of the level below are whole windows; those of this one hold whole units of it.
        units[-1] *= factor if len(units) > 1 and units[-1] % factor and units[-1] < sizes[-1] else 1
        inner = draw(st.integers(1, 4))
        least = int(np.lcm(units[-1] // np.gcd(units[-1], factor), inner)) if len(units) > 1 else inner
        sizes, units, chunks = [*sizes, n], [*units, least * draw(st.integers(1, 3))], [*chunks, inner]
        if draw(st.integers(0, 9)) == 0:
            units[-1] = -(-n // inner) * inner
    return list(zip(sizes, units, chunks, strict=True))


pyramids = st.one_of(recipes(max_levels=4), nesting())


def forests(plan):
    """Return the trees of all tasks."""
    tasks = [task for i in range(len(plan.stages)) for task in plan.tasks(i)]
    return [Forest.of(plan.steps, plan.stages[task.stage], task.box, task.dirty) for task in tasks]


def by_tree(forest, i, units):
    """Yield level and number of all units under `units`, one by one."""
    for unit in units:
        yield i, int(unit)
        if i:
            yield from by_tree(forest, i - 1, forest.children(i, unit))


def by_block(forest, i, units):
    """Yield level and grid index of all units under `units`, as tasks go through them: blocks first."""
    blocks, left = forest.blocks(i, units)
    for block in blocks:
        for j in range(i, -1, -1):
            grid = forest.steps[j].target.units
            cells = np.stack(np.meshgrid(*grid.meeting(block), indexing="ij"), axis=-1).reshape(-1, len(block))
            yield from ((j, tuple(cell)) for cell in cells.tolist())
            block = own(forest.steps[j].edges, block)
    for unit in left:
        yield i, tuple(forest.units[i].cells[unit].tolist())
        if i:
            yield from by_block(forest, i - 1, forest.children(i, unit))


def all_of(forest, walk):
    return [found for i in range(len(forest.units)) for found in walk(forest, i, forest.roots(i))]


def keys(forest, arrays, found):
    """Name units as the store does."""
    levels = [arrays[forest.stage.first + i] for i, _ in found]
    return [f"{a.path}/{a.metadata.encode_chunk_key(cell)}" for a, (_, cell) in zip(levels, found, strict=True)]


def inside(box, outer):
    return all(a >= c and b <= d for (a, b), (c, d) in zip(box, outer, strict=True))


# --- what the trees hold


@settings(max_examples=80, deadline=None)
@given(data=st.data(), recipe=pyramids)
def test_every_dirty_unit_once(data, recipe):
    with pytest.MonkeyPatch.context() as patched:
        data.draw(limits(patched))
        arrays = recipe.make()
        regions = data.draw(regions_in(recipe.shapes[0]))
        plan = zg.plan(arrays, method=recipe.method, regions=regions, mode="dask")
        found = forests(plan)
        n_tasks = zg.get_config().dask.max_tasks
    event(f"levels of a stage: {max((s.last - s.first + 1 for s in plan.stages), default=0)}")
    expected = expected_units(arrays, recipe, regions)
    one_by_one, at_once = [], []
    for forest in found:
        trees = [(i, tuple(forest.units[i].cells[unit].tolist())) for i, unit in all_of(forest, by_tree)]
        one_by_one += keys(forest, arrays, trees)
        at_once += keys(forest, arrays, all_of(forest, by_block))
    assert Counter(one_by_one) == Counter(at_once) == Counter(expected)
    assert plan.n_units == len(expected)
    assert len(found) == plan.n_tasks <= max(n_tasks, len(recipe.shapes))


@settings(max_examples=60, deadline=None)
@given(data=st.data(), recipe=pyramids)
def test_units_lie_in_what_they_are_built_with(data, recipe):
    with pytest.MonkeyPatch.context() as patched:
        data.draw(limits(patched))
        arrays = recipe.make()
        regions = data.draw(regions_in(recipe.shapes[0]))
        found = forests(zg.plan(arrays, method=recipe.method, regions=regions, mode="dask"))
    for forest in found:
        for i, units in enumerate(forest.units):
            level = forest.steps[i].target
            for unit in range(len(units)):
                box, patches = forest.box(i, unit), forest.patches(i, unit)
                assert box == level.units.box(tuple(units.cells[unit].tolist())) and inside(box, forest.boxes[i])
                assert bool(patches) == bool(units.is_patched[unit]) and all(inside(p, box) for p in patches)
        for i in range(1, len(forest.units)):
            step, below, above = forest.steps[i], forest.units[i - 1], forest.units[i]
            owned = [own(step.edges, forest.box(i, unit)) for unit in range(len(above))]
            children = [forest.box(i - 1, unit) for unit in range(len(below))]
            holders = [[j for j, outer in enumerate(owned) if inside(child, outer)] for child in children]
            touched = [
                [j for j, outer in enumerate(owned) if not is_empty(intersect(child, outer))] for child in children
            ]
            assert holders == touched and all(len(each) <= 1 for each in holders)
            right = [each[0] if each else -1 for each in holders]
            assert above.parents.tolist() == right
            for j in range(len(above)):
                assert forest.children(i, j).tolist() == [n for n, each in enumerate(right) if each == j]
            assert sorted(forest.roots(i - 1)) == [n for n, each in enumerate(right) if each == -1]
            # What is computed whole needs no unit that is not in memory.
            for j in np.flatnonzero(~above.is_patched):
                source = step.window(forest.box(i, j))
                parts = [intersect(forest.box(i - 1, n), source) for n in forest.children(i, j)]
                assert sum(map(n_pixels, parts)) == n_pixels(source)


def image(sizes, chunk, store=None, shards=None, dtype="u2"):
    """Make a pyramid of two axes that is built already."""
    group = zarr.create_group(MemoryStore() if store is None else store)
    options = {"chunks": (chunk, chunk), "shards": shards, "dtype": dtype}
    arrays = [group.create_array(str(k), shape=(n, n), **options) for k, n in enumerate(sizes)]
    arrays[0][...] = np.random.default_rng(0).integers(1, 999, (sizes[0], sizes[0]))
    zg.consolidate(arrays, mode="numpy")
    return arrays


def change(arrays, regions):
    for region in regions:
        arrays[0][slices(region)] = arrays[0][slices(region)] + 1


# --- what is read


@settings(max_examples=50, deadline=None)
@given(data=st.data(), recipe=pyramids)
def test_levels_in_memory_are_not_read(data, recipe):
    with pytest.MonkeyPatch.context() as patched:
        data.draw(limits(patched))
        store = CountingStore(MemoryStore())
        arrays = recipe.make(store)
        zg.consolidate(arrays, method=recipe.method, mode="numpy")
        regions = data.draw(regions_in(recipe.shapes[0]))
        plan = zg.plan(arrays, method=recipe.method, regions=regions, mode="dask")
        store.reset()
        plan.run()
        gets = store.gets
        found = forests(plan)
    for forest in found:
        for i, units in enumerate(forest.units[: len(forest.units) if forest.stage.last == len(arrays) - 1 else -1]):
            cells = [(i, tuple(units.cells[j].tolist())) for j in range(len(units))]
            names = keys(forest, arrays, cells)
            patched_units = {name for name, is_patched in zip(names, units.is_patched, strict=True) if is_patched}
            assert {name for name in names if gets[name]} == patched_units
            assert all(gets[name] == 1 for name in patched_units)
    for stage in plan.stages:
        for k in range(stage.first, stage.last):
            n = sum(int(f.units[k - stage.first].is_patched.sum()) for f in found if f.stage.first == stage.first)
            path = arrays[k].path
            assert sum(n for key, n in gets.items() if key.startswith(f"{path}/") and "zarr" not in key) == n


def test_one_stage_reads_each_chunk_once(monkeypatch):
    """Five pixels in four levels: five chunks of level 0 are read, patched units, and nothing between."""
    monkeypatch.setattr(zg.get_config().dask, "write_block_max_bytes", 1000)
    store = CountingStore(MemoryStore())
    arrays = image((256, 128, 64, 32), 8, store)
    regions = [((16 * i, 16 * i + 16), (48 * i, 48 * i + 16)) for i in range(5)]
    change(arrays, regions)
    plan = zg.plan(arrays, regions=regions, mode="dask")
    assert [(s.first, s.last) for s in plan.stages] == [(1, 3)]
    store.reset()
    plan.run()
    by_level = Counter(key[0] for key, n in store.gets.items() for _ in range(n) if "zarr" not in key)
    assert by_level == {"0": 5 * 4, "2": plan.dirty[1].n_patched, "3": plan.dirty[2].n_patched}
    assert plan.dirty[0].n_patched == 0 and plan.dirty[1].n_patched == 5
    assert plan.n_requests == store.gets.total() + store.sets.total()


@settings(max_examples=60, deadline=None)
@given(data=st.data(), recipe=pyramids, where=st.sampled_from(["memory", "directory", "latency"]))
def test_plans_never_say_too_few_requests(data, recipe, where):
    with pytest.MonkeyPatch.context() as patched, TemporaryDirectory() as root:
        data.draw(limits(patched))
        stores = {"memory": MemoryStore, "latency": lambda: LatencyStore(MemoryStore(), 0.0)}
        store = LocalStore(root) if where == "directory" else CountingStore(stores[where]())
        arrays = recipe.make(store)
        zg.consolidate(arrays, method=recipe.method, mode="numpy")
        if data.draw(st.booleans()):
            arrays[1][...] = 0  # units that are read and are not there
        regions = data.draw(regions_in(recipe.shapes[0]))
        change(arrays, regions) if recipe.dtype not in ("?",) else None
        plan = zg.plan(arrays, method=recipe.method, regions=regions, mode="dask")
        n_requests = plan.n_requests
        if where != "directory":
            store.reset()
        report = plan.run()
        done = sum(stage.n_gets + stage.n_sets for stage in report.stages)
        event(f"exact: {done == n_requests}")
        assert done <= n_requests
        if where != "directory":
            assert store.gets.total() + store.sets.total() + store.deletes.total() == done


# --- the same bytes


def test_blocks_of_upper_levels_are_read_in_pieces_of_their_own(monkeypatch):
    monkeypatch.setattr(zg.get_config().dask, "write_block_max_bytes", 0)
    monkeypatch.setattr(zg.get_config().dask, "max_tasks", 1)
    store = CountingStore(MemoryStore())
    group = zarr.create_group(store)
    made = [(123, 9), (62, 36), (15, 15)]
    arrays = [group.create_array(str(k), shape=(n,), chunks=(c,), dtype="u1") for k, (n, c) in enumerate(made)]
    arrays[0][...] = np.arange(123) % 250 + 1
    zg.consolidate(arrays, method="mean", mode="numpy")
    plan = zg.plan(arrays, method="mean", regions=[((0, 100),)], mode="dask")
    store.reset()
    plan.run()
    assert store.gets.total() + store.sets.total() + store.deletes.total() <= plan.n_requests


def test_many_requests_are_many_tasks():
    """Few bytes may be much work: each unit is asked for, which takes long where stores are distant."""
    levels = lazy(16384, 64)
    corners = np.random.default_rng(0).integers(0, 16384, (500, 2))
    plan = zg.plan(levels, regions=[tuple((int(i), int(i) + 1) for i in c) for c in corners], mode="dask")
    assert plan.n_tasks >= 20


@contextmanager
def all_in_python():
    """Let no chunk be read or stored by compiled calls."""
    with in_python(), pytest.MonkeyPatch.context() as patched:
        patched.setattr(FileWriter, "of", lambda place, codec, fill: None)
        yield


@settings(max_examples=25, deadline=None)
@given(data=st.data(), picture=images(), scheduler=st.sampled_from(["sync", "threads"]))
def test_compiled_calls_do_what_python_does(data, picture, scheduler):
    """Patches need parts of chunks; the units that they lie in are read, and stored again."""
    regions, found = data.draw(regions_in(picture.shapes[0])), []
    with pytest.MonkeyPatch.context() as patched, TemporaryDirectory() as root:
        data.draw(limits(patched))
        patched.setattr(kernels, "_NUMBA_PAYS_BYTES", -1)
        patched.setattr("ziggurat.direct.SHARD_READ_BYTES", data.draw(st.sampled_from([0, 100, 2**23])))
        for way in (nullcontext, all_in_python):
            arrays = picture.make(LocalStore(Path(root) / way.__name__))
            zg.consolidate(arrays, method=picture.method, nodata=picture.nodata, mode="numpy")
            for region in regions:
                arrays[0][slices(region)] = 1
            with way(), watched() as counts, dask.config.set(scheduler=scheduler, num_workers=3):
                report = zg.consolidate(
                    arrays, method=picture.method, nodata=picture.nodata, mode="dask", regions=regions
                )
            event(f"{way.__name__}, taken: {counts['taken'] > 0}")
            found.append((objects(Path(root) / way.__name__), counts_of(report)))
        zg.consolidate(arrays, method=picture.method, nodata=picture.nodata, mode="numpy")
        assert objects(Path(root) / way.__name__) == found[1][0]
    assert found[0] == found[1]


@settings(max_examples=40, deadline=None)
@given(data=st.data(), picture=images())
def test_parts_of_chunks_are_reduced_where_they_belong(data, picture):
    """Into parts of a block that lie in larger memory, of which nothing else changes."""
    with pytest.MonkeyPatch.context() as patched, TemporaryDirectory() as root:
        patched.setattr(kernels, "_NUMBA_PAYS_BYTES", -1)
        patched.setattr("ziggurat.direct.SHARD_READ_BYTES", data.draw(st.sampled_from([0, 100, 2**23])))
        arrays = picture.make(LocalStore(root))
        step = _steps(zg.open_pyramid(arrays), picture.method, None, picture.nodata)[0]
        source, shape = Handle(arrays[0]), arrays[1].shape
        assume(step.takes_chunks and source.gives_chunks)
        right = reference(arrays[0][...], step.edges, picture.method, picture.nodata)
        kernels.expect(picture.method, source.dtype, 1)
        with watched() as counts:
            for _ in range(6):
                starts = [data.draw(st.integers(0, n - 1)) for n in shape]
                box = tuple((a, data.draw(st.integers(a + 1, n))) for a, n in zip(starts, shape, strict=True))
                memory = np.full([n + 2 for n in shape], 1, source.dtype).reshape(-1)
                place = memory.reshape([n + 2 for n in shape])[tuple(slice(a + 1, b + 1) for a, b in box)]
                block = Block(step, box, place)
                block.read(source)
                block.settle()
                np.testing.assert_array_equal(place, right[slices(box)])
                place[...] = 1
                assert (memory == 1).all()
        event(f"taken: {counts['taken'] > 0}")


@settings(max_examples=40, deadline=None)
@given(data=st.data(), recipe=nesting(), scheduler=st.sampled_from(["sync", "threads"]))
def test_levels_that_nest_end_as_after_a_full_build(data, recipe, scheduler):
    with pytest.MonkeyPatch.context() as patched, dask.config.set(scheduler=scheduler, num_workers=3):
        data.draw(limits(patched))
        arrays = recipe.make()
        zg.consolidate(arrays, method=recipe.method, mode="numpy")
        regions = data.draw(regions_in(recipe.shapes[0]))
        for region in regions:
            arrays[0][slices(region)] = 1 - arrays[0][slices(region)]
        plan = zg.plan(arrays, method=recipe.method, regions=regions, mode="dask")
        event(f"levels of a stage: {max((s.last - s.first + 1 for s in plan.stages), default=0)}")
        plan.run()
        after = stored(arrays)
        zg.consolidate(arrays, method=recipe.method, mode="numpy")
        assert stored(arrays) == after


# --- tasks


def lazy(n, chunk, n_levels=4, shards=None):
    """Make a large pyramid without pixels."""
    group = zarr.create_group(MemoryStore())
    return [
        group.create_array(str(k), shape=(n >> k, n >> k), chunks=(chunk, chunk), shards=shards, dtype="u2")
        for k in range(n_levels)
    ]


def scattered(n, size):
    return [(int(y), int(x)) for y, x in np.random.default_rng(0).integers(0, size, (n, 2))]


@pytest.fixture
def usual(small_stages, monkeypatch):
    """Plan large images as they are planned."""
    monkeypatch.undo()
    before, small_stages.consolidation.partial_max_coverage = small_stages.consolidation.partial_max_coverage, 1.0
    yield small_stages.dask
    small_stages.consolidation.partial_max_coverage = before


@pytest.mark.parametrize("shards", [None, (2048, 2048)])
def test_many_regions_are_many_tasks(shards, usual, monkeypatch):
    arrays = lazy(2**17, 256, shards=shards)
    n_tasks = [zg.plan(arrays, regions=scattered(n, 2**17), mode="dask").n_tasks for n in (1, 10, 1000, 10_000)]
    stages_of = zg.plan(arrays, regions=[(0, 0)], mode="dask").stages
    assert n_tasks[0] == len(stages_of)
    assert n_tasks[0] <= n_tasks[1] <= 10 * len(stages_of) and n_tasks[1] <= n_tasks[2]
    assert n_tasks[3] >= 50
    for most in (len(stages_of), 7 * len(stages_of), 100):
        monkeypatch.setattr(usual, "max_tasks", most)
        assert zg.plan(arrays, regions=scattered(10_000, 2**17), mode="dask").n_tasks <= most


def test_a_task_that_is_not_worth_it_is_joined_with_others(usual):
    arrays = lazy(2**15, 256)
    plan = zg.plan(arrays, regions=scattered(100, 2**15), mode="dask")
    n_bytes = plan.bytes_read + plan.bytes_written
    assert plan.n_tasks <= 1 + max(n_bytes // dirty.TASK_BYTES, plan.n_units // dirty.TASK_UNITS)


def test_nothing_is_no_task():
    arrays = image((32, 16, 8), 4)
    assert zg.plan(arrays, regions=[], mode="dask").n_tasks == 0


def test_trailing_pixels_dirty_no_unit():
    """With 17 pixels and windows of two the last one yields nothing, but its neighbours do."""
    arrays = image((17, 8, 4), 4)
    assert zg.plan(arrays, regions=[(16, 16)], mode="dask").n_units == 0
    assert zg.plan(arrays, regions=[(15, 15)], mode="dask").n_units == 2


# --- units that do not nest

GRIDS = {
    # shape, chunks and shards of each level, method
    "odd units": ([(64,), (32,), (16,)], [(8,), (5,), (3,)], [None] * 3, "mean"),
    "no multiple": ([(96,), (48,), (24,)], [(8,), (8,), (6,)], [None] * 3, "mean"),
    "half of a window": ([(96,), (48,), (16,)], [(8,), (8,), (8,)], [None] * 3, "mean"),
    "stretch": ([(60,), (40,), (25,)], [(8,), (8,), (8,)], [None] * 3, "linear"),
    "gaussian": ([(64,), (32,), (16,)], [(8,), (8,), (8,)], [None] * 3, "gaussian"),
    "cubic": ([(64,), (32,), (16,)], [(8,), (8,), (8,)], [None] * 3, "cubic"),
    "shards that exceed windows": ([(64,), (32,), (16,)], [(4,), (4,), (4,)], [(32,), (8,), (4,)], "mean"),
    "shards that do not nest": ([(96,), (48,), (24,)], [(4,), (4,), (4,)], [(8,), (12,), (8,)], "mean"),
    "rectilinear below": ([(64,), (32,), (16,)], [(8,), ([4, 12, 16],), (8,)], [None] * 3, "mean"),
    "rectilinear above": ([(64,), (32,), (16,)], [(8,), (8,), ([4, 12],)], [None] * 3, "mean"),
    "one axis of two": ([(64, 64), (32, 32), (16, 16)], [(8, 8), (8, 8), (8, 6)], [None] * 3, "mean"),
}


def of_grids(name, store=None):
    shapes, chunks, shards, method = GRIDS[name]
    group = zarr.create_group(MemoryStore() if store is None else store)
    made = zip(shapes, chunks, shards, strict=True)
    arrays = [
        group.create_array(str(k), shape=n, chunks=c, shards=s, dtype="i4", compressors=None)
        for k, (n, c, s) in enumerate(made)
    ]
    arrays[0][...] = np.random.default_rng(0).integers(1, 999, shapes[0])
    return arrays, method


@pytest.mark.parametrize("name", GRIDS)
def test_levels_that_do_not_nest_are_stages_of_their_own(name, monkeypatch):
    arrays, method = of_grids(name)
    n = arrays[0].shape[0]
    for regions in ([(3,)], [(a,) for a in range(1, n, 9)], [((0, n),)], [((5, 40),), (n - 1,)]):
        given_regions = [region * arrays[0].ndim for region in regions]
        for cap in (0, 64, 2**23):
            monkeypatch.setattr(zg.get_config().dask, "write_block_max_bytes", cap)
            zg.consolidate(arrays, method=method, mode="numpy")
            for region in given_regions:
                where = tuple(slice(*r) if isinstance(r, tuple) else r for r in region)
                arrays[0][where] = arrays[0][where] + 1
            plan = zg.plan(arrays, method=method, regions=given_regions, mode="dask")
            assert [(s.first, s.last) for s in plan.stages] == [(1, 1), (2, 2)]
            plan.run()
            after = stored(arrays)
            zg.consolidate(arrays, method=method, mode="numpy")
            assert stored(arrays) == after


NESTING = {
    "halves": ([(64,), (32,), (16,)], [(8,), (8,), (8,)], [None] * 3),
    "larger units above": ([(64,), (32,), (16,)], [(4,), (4,), (8,)], [None] * 3),
    "smaller units above": ([(64,), (32,), (16,)], [(8,), (8,), (4,)], [None] * 3),
    "one unit above": ([(70,), (35,), (17,)], [(8,), (6,), (32,)], [None] * 3),
    "one unit each": ([(70,), (35,), (20,)], [(8,), (35,), (20,)], [None] * 3),
    "whole shards": ([(64,), (32,), (16,)], [(4,), (4,), (4,)], [(16,), (8,), (8,)]),
    "an axis that stays": ([(3, 64), (3, 32), (3, 16)], [(1, 8), (1, 8), (1, 8)], [None] * 3),
}


@pytest.mark.parametrize("name", NESTING)
def test_levels_that_nest_are_one_stage(name, monkeypatch):
    shapes, chunks, shards = NESTING[name]
    monkeypatch.setitem(GRIDS, name, (shapes, chunks, shards, "mean"))
    arrays, method = of_grids(name)
    zg.consolidate(arrays, method=method, mode="numpy")
    for regions in ([((3, 4),)], [((a, a + 1),) for a in range(1, 60, 9)], [((0, 64),)], [((5, 40),), ((60, 63),)]):
        boxes = [(((1, 2),) if len(shapes[0]) > 1 else ()) + region for region in regions]
        change(arrays, boxes)
        plan = zg.plan(arrays, method=method, regions=boxes, mode="dask")
        assert [(s.first, s.last) for s in plan.stages] == [(1, 2)]
        plan.run()
        after = stored(arrays)
        zg.consolidate(arrays, method=method, mode="numpy")
        assert stored(arrays) == after


def test_a_directory_and_memory_end_alike(tmp_path):
    """What compiled calls read and store of patched units is what others do."""
    import ziggurat._jit  # noqa: F401

    found = []
    for store in (LocalStore(tmp_path), MemoryStore()):
        arrays = image((128, 64, 32, 16), 8, store)
        regions = [((16 * i, 16 * i + 9), (24 * i + 3, 24 * i + 16)) for i in range(5)]
        change(arrays, regions)
        report = zg.consolidate(arrays, regions=regions, mode="dask")
        found.append(([a[...].tobytes() for a in arrays], report.n_units, report.bytes_read))
        assert sum(s.n_gets + s.n_sets for s in report.stages) == zg.plan(arrays, regions=regions).n_requests
    assert found[0] == found[1] and not list(Path(tmp_path).rglob("*.partial"))
