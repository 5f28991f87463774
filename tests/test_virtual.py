"""Virtual arrays: what is read through them is what was copied, and pyramids are built straight from them."""

import pickle
from functools import cache
from itertools import pairwise, product
from pathlib import Path
from tempfile import TemporaryDirectory

import dask
import dask.array as da
import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from zarr.storage import LocalStore, MemoryStore

import ziggurat as zg
from clusters import in_processes
from strategies import stored
from ziggurat import stages
from ziggurat.errors import DTypeError, GeometryError, LevelError, ReadOnlyError, RegionError, StoreError
from ziggurat.testing import CountingStore, tree_hash
from ziggurat.virtual import as_source

HEIGHTS, WIDTHS = (30, 41, 17), (50, 23, 64, 31)
SHAPE = (88, 168)


@pytest.fixture(autouse=True)
def fine_stages(monkeypatch):
    monkeypatch.setattr(stages, "MIN_BLOCKS", 1)
    monkeypatch.setattr(stages, "ONE_TASK_BYTES", 1000)
    config = zg.get_config()
    before = (config.dask.write_block_max_bytes, config.consolidation.partial_max_coverage)
    yield config
    config.dask.write_block_max_bytes, config.consolidation.partial_max_coverage = before


def pixels(shape=SHAPE, dtype="u2"):
    return np.random.default_rng(3).integers(0, 1000, shape).astype(dtype)


def tiles_of(whole, store=None, chunks=(8, 16), heights=HEIGHTS, widths=WIDTHS):
    """Cut an image into arrays of unequal sizes."""
    group = zarr.create_group(MemoryStore() if store is None else store)
    rows = []
    for i, (a, b) in enumerate(pairwise(np.cumsum((0, *heights)))):
        row = []
        for j, (c, d) in enumerate(pairwise(np.cumsum((0, *widths)))):
            tile = group.create_array(f"{i}/{j}", shape=(b - a, d - c), chunks=chunks, dtype=whole.dtype)
            tile[...] = whole[a:b, c:d]
            row.append(tile)
        rows.append(row)
    return rows


def levels_of(whole, store=None, n=2, level_0=True):
    group = zarr.create_group(MemoryStore() if store is None else store)
    shapes = [tuple(-(-size // 2**k) for size in whole.shape) for k in range(n + 1)]
    arrays = [group.create_array(str(k), shape=s, chunks=(8, 8), dtype=whole.dtype) for k, s in enumerate(shapes)]
    if level_0:
        arrays[0][...] = whole
    return arrays


@pytest.fixture(scope="module")
def tiles(tmp_path_factory):
    """Make the tiles of an image once, in a directory; they are only read."""
    return tiles_of(pixels(), LocalStore(tmp_path_factory.mktemp("tiles")))


@cache
def levels_of_a_copy(method):
    """Return the hashes of the levels above a copy of the image."""
    with TemporaryDirectory() as where:
        zg.consolidate(levels_of(pixels(), LocalStore(where)), method=method)
        return {k: tree_hash(Path(where) / k) for k in ("1", "2")}


@pytest.mark.parametrize("method", ["mean", "cubic", "mode"])
@pytest.mark.parametrize("scheduler", ["numpy", "sync", "threads", "processes"])
def test_the_pyramid_of_a_mosaic_is_that_of_its_copy(tmp_path, tiles, method, scheduler, fine_stages):
    whole, copied = pixels(), levels_of_a_copy(method)
    mosaic = zg.concatenate(tiles)
    arrays = levels_of(whole, LocalStore(tmp_path / "built"), level_0=False)
    fine_stages.dask.write_block_max_bytes = 0
    mode = "numpy" if scheduler == "numpy" else "dask"
    named = scheduler if mode == "dask" else None
    with in_processes() if scheduler == "processes" else dask.config.set(scheduler=named, num_workers=2):
        plan = zg.plan([mosaic, *arrays[1:]], method=method, mode=mode)
        assert mode == "numpy" or plan.n_tasks > 4
        plan.run()
    for k in ("1", "2"):
        built = {n: h for n, h in tree_hash(tmp_path / "built" / k).items() if ".ziggurat" not in n}
        assert built == copied[k]
    assert not zg.verify([mosaic, *arrays[1:]], method=method).is_stale


@cache
def a_mosaic_and_its_copy(method):
    """Return what is stored of tiles, of the levels above them, and of a copy of all, built."""
    whole, made = pixels(), [MemoryStore() for _ in range(3)]
    mosaic = zg.concatenate(tiles_of(whole, made[0]))
    copied = levels_of(whole, made[2])
    for levels in ([mosaic, *levels_of(whole, made[1], level_0=False)[1:]], copied):
        zg.consolidate(levels, method=method)
    return [store._store_dict for store in made]


@settings(max_examples=25, deadline=None)
@given(
    data=st.data(),
    mode=st.sampled_from(["numpy", "dask"]),
    method=st.sampled_from(["mean", "cubic", "gaussian"]),
    cap=st.sampled_from([0, 2000, 2**23]),
)
def test_a_regional_rebuild_of_a_mosaic(data, mode, method, cap):
    stores = [MemoryStore(dict(stored)) for stored in a_mosaic_and_its_copy(method)]
    store = CountingStore(stores[1])
    of_tiles, of_levels, of_copy = (zarr.open_group(s) for s in (stores[0], store, stores[2]))
    tiles = [[of_tiles[f"{i}/{j}"] for j in range(len(WIDTHS))] for i in range(len(HEIGHTS))]
    mosaic = zg.concatenate(tiles)
    arrays, copied = ([group[str(k)] for k in range(3)] for group in (of_levels, of_copy))
    regions = []
    for i, j in data.draw(st.sets(st.tuples(st.integers(0, 2), st.integers(0, 3)), min_size=1, max_size=3)):
        top, left = sum(HEIGHTS[:i]), sum(WIDTHS[:j])
        tiles[i][j][3:7, -4:] = copied[0][top + 3 : top + 7, left + WIDTHS[j] - 4 : left + WIDTHS[j]] = 9
        regions.append((slice(top + 3, top + 7), slice(left + WIDTHS[j] - 4, left + WIDTHS[j])))
    store.reset()
    zg.get_config().dask.write_block_max_bytes = cap
    zg.get_config().consolidation.partial_max_coverage = 1.0
    with dask.config.set(scheduler="sync"):
        report = zg.consolidate([mosaic, *arrays[1:]], regions=regions, mode=mode, method=method)
        theirs = zg.consolidate(copied, regions=regions, mode=mode, method=method)
    assert report.n_units == theirs.n_units == len(store.sets + store.deletes)
    for ours, copy in zip(arrays[1:], copied[1:], strict=True):
        np.testing.assert_array_equal(ours[...], copy[...])


@settings(max_examples=100, deadline=None)
@given(data=st.data(), gives=st.booleans())
def test_reading_a_mosaic(data, gives):
    heights = data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=3))
    widths = data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=3))
    whole = pixels((sum(heights), sum(widths)), ">i4" if gives else "f4")
    chunks = data.draw(st.tuples(st.integers(1, 5), st.integers(1, 5)))
    tiles = tiles_of(whole, chunks=chunks, heights=heights, widths=widths)
    for i, j in product(range(len(heights)), range(len(widths))):
        kind = "zarr" if gives else data.draw(st.sampled_from(["zarr", "numpy", "dask", "rechunked"]))
        tiles[i][j] = {
            "zarr": lambda t: t,
            "numpy": lambda t: t[...],
            "dask": lambda t: da.from_array(t[...], chunks=2),
            "rechunked": lambda t: zg.rechunked(t, (2, 3)),
        }[kind](tiles[i][j])
    mosaic = zg.concatenate(tiles)
    assert mosaic.shape == whole.shape and mosaic.dtype == whole.dtype.newbyteorder("=")
    box = tuple(sorted(data.draw(st.tuples(*[st.integers(0, n)] * 2))) for n in whole.shape)
    selection = tuple(slice(a, b, data.draw(st.integers(1, 3))) for a, b in box)
    np.testing.assert_array_equal(mosaic[selection], whole[selection])
    assert mosaic.gives_chunks or not gives
    grid = mosaic.grid
    seen = np.zeros(whole.shape, int)
    for part, chunk in mosaic.chunks(mosaic.level.box):
        where = tuple(slice(a, b) for a, b in part)
        np.testing.assert_array_equal(chunk, whole[where])
        seen[where] += 1
        if mosaic.gives_chunks:
            assert grid.snap(part) == part
    assert (seen == 1).all()


def test_chunks_of_a_mosaic_are_those_of_its_tiles():
    whole = pixels((48, 64))
    even = zg.concatenate(tiles_of(whole, chunks=(8, 16), heights=(16, 32), widths=(32, 32)))
    assert all(axis.is_regular for axis in even.grid.axes) and even.level.chunk == (8, 16)
    uneven = zg.concatenate(tiles_of(whole, chunks=(8, 16), heights=(15, 33), widths=(64,)))
    assert uneven.grid.axes[0].starts == (0, 8, 15, 23, 31, 39, 47)
    assert uneven.level.cuts == ((0, 8, 15, 23, 31, 39, 47), None) and uneven.gives_chunks


def test_tiles_in_three_dimensions_nested_and_pickled(tmp_path):
    whole = pixels((4, 20, 30))
    parts = [[whole[:2, :, :11], whole[:2, :, 11:]], [whole[2:, :, :11], whole[2:, :, 11:]]]
    rows = [zg.concatenate(row) for row in parts]  # along the last axis
    stacked = zg.concatenate([[[rows[0]]], [[rows[1]]]])
    np.testing.assert_array_equal(np.asarray(stacked), whole)
    array = zarr.create_array(LocalStore(tmp_path), shape=(20, 30), chunks=(7, 7), dtype="u2")
    array[...] = whole[0]
    view = zg.overlapping(zg.rechunked(zg.concatenate([array, array]), (9, (30, 30))), (2, 0))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(view))[5:9, ::2], np.hstack([whole[0]] * 2)[5:9, ::2])
    assert "mosaic of 1 x 2 arrays, rechunked, overlapping" in repr(view)


def test_build_from_tiles(fine_stages):
    whole = pixels()
    rows = tiles_of(whole)
    for data in (zg.concatenate(rows), zg.rechunked(zg.concatenate(rows), (16, 16)), zg.overlapping(rows[0][0], 3)):
        expected = whole if data.shape == whole.shape else rows[0][0][...]
        fine_stages.dask.write_block_max_bytes = 2000
        for mode in ("numpy", "dask"):
            built = zg.build(data, MemoryStore(), mode=mode, n_levels=2, chunks=(16, 16))
            other = zg.build(expected, MemoryStore(), n_levels=2, chunks=(16, 16))
            assert built.levels[0].chunk == (16, 16)
            ours, theirs = stored(built.arrays), stored(other.arrays)
            assert {k: v for k, v in ours.items() if "/c/" in k} == {k: v for k, v in theirs.items() if "/c/" in k}
    assert zg.build(zg.rechunked(rows[0][0], (10, 20)), MemoryStore()).levels[0].chunk == (10, 20)


def test_a_pyramid_in_the_place_of_a_tile():
    whole = pixels((20, 30))
    field = zg.build(whole, MemoryStore())
    twice = zg.concatenate([field, field])
    np.testing.assert_array_equal(twice[...], np.hstack([whole, whole]))
    seen = zg.open_pyramid([twice, zarr.create_array({}, shape=(10, 30), chunks=(8, 8), dtype="u2")])
    np.testing.assert_array_equal(zg.rechunked(seen, (7, 7))[...], twice[...])
    with pytest.raises(DTypeError, match="is a zarr group"):
        zg.concatenate([zarr.create_group({})])


def test_what_a_mosaic_cannot_do_is_refused(tmp_path):
    a = np.zeros((4, 5), "u1")
    with pytest.raises(GeometryError, match=r"tile \(0, 1\) has the shape \(3, 5\), its neighbours leave it \(4, 5\)"):
        zg.concatenate([[a, a[:3]]])
    with pytest.raises(DTypeError, match=r"tile \(0, 1\) holds uint16, the first one uint8"):
        zg.concatenate([[a, a.astype("u2")]])
    with pytest.raises(GeometryError, match="not equally long"):
        zg.concatenate([[a, a], [a]])
    with pytest.raises(GeometryError, match="2 axes cannot be joined along 3"):
        zg.concatenate([[[a]]])
    with pytest.raises(GeometryError, match="halo -1"):
        zg.overlapping(a, -1)
    array = zarr.create_array(LocalStore(tmp_path / "a"), shape=(4, 5), chunks=(2, 2), dtype="u1")
    with pytest.raises(LevelError, match="computed from itself"):
        zg.plan([zg.concatenate([array, array]), array])
    with pytest.raises(LevelError, match="a list of zarr arrays"):
        zg.plan([zg.concatenate([array, array])])
    pyramid = zg.open_pyramid(
        [zg.concatenate([array, array]), zarr.create_array({}, shape=(2, 5), chunks=(2, 2), dtype="u1")]
    )
    with pytest.raises(ReadOnlyError):
        pyramid.set_array(1)
    with pytest.raises(RegionError, match="keep no account"):
        zg.plan(pyramid, regions="changed")
    with pytest.raises(StoreError, match="cannot be overwritten"):
        zg.build(zg.concatenate([array, array]), tmp_path / "a", overwrite=True)


def test_marks_of_a_mosaic_lie_beside_the_finest_level_that_is_stored(tmp_path):
    whole = pixels()
    arrays = levels_of(whole, LocalStore(tmp_path), level_0=False)
    pyramid = zg.open_pyramid([zg.concatenate(tiles_of(whole)), *arrays[1:]])
    zg.consolidate(pyramid)
    pyramid.mark([(3, 5)])
    assert zg.consolidate(pyramid, regions="marked").n_units == 2
    assert zg.consolidate(pyramid, regions="marked").n_units == 0


def test_overlapping_chunks():
    whole = pixels((20, 30))
    view = zg.overlapping(zg.rechunked(whole, (8, (10, 20))), (2, 3))
    out = np.zeros_like(whole)
    for p, chunk in zg.read_chunks(view):
        (a, b), (c, d) = view.grid.box(p.chunk_coords)
        np.testing.assert_array_equal(chunk, whole[max(0, a - 2) : b + 2, max(0, c - 3) : d + 3])
        out[p.out_selection] = chunk[p.chunk_selection]
    np.testing.assert_array_equal(out, whole)


def test_halo_methods_read_what_overlapping_views_read():
    levels = levels_of(pixels(), n=1)
    step = zg.plan(levels, method="gaussian").steps[0]
    view = zg.overlapping(levels[0], step.halos)
    assert step.halos == (2, 2)
    assert step.window(((4, 12), (0, 20))) == view.window(((8, 24), (0, 40))) == ((6, 26), (0, 42))


def test_sources_of_what_there_is():
    assert as_source([[1, 2]]).read(((0, 1), (1, 2))).tolist() == [[2]]


def test_a_regional_rebuild_of_a_mosaic_in_processes(tmp_path, fine_stages):
    whole = pixels()
    tiles = tiles_of(whole, LocalStore(tmp_path / "tiles"))
    arrays = [zg.concatenate(tiles), *levels_of(whole, LocalStore(tmp_path / "built"), level_0=False)[1:]]
    zg.consolidate(arrays)
    tiles[1][2][5:9, 60:] = 9
    whole[35:39, 133:137] = 9
    fine_stages.dask.write_block_max_bytes = 0
    with dask.config.set(scheduler="processes", num_workers=2):
        report = zg.consolidate(arrays, regions=[(slice(35, 39), slice(133, 137))], mode="dask")
    assert report.n_units < 8
    zg.consolidate(levels_of(whole, LocalStore(tmp_path / "copy")))
    for k in ("1", "2"):
        built = {n: h for n, h in tree_hash(tmp_path / "built" / k).items() if ".ziggurat" not in n}
        assert built == tree_hash(tmp_path / "copy" / k)


@pytest.mark.parametrize("mode", ["numpy", "dask"])
def test_tiles_that_are_sharded(mode, fine_stages):
    whole, group = pixels((96, 128)), zarr.create_group({})
    halves = []
    for j, columns in enumerate((slice(0, 80), slice(80, 128))):
        halves.append(
            group.create_array(str(j), shape=whole[:, columns].shape, chunks=(8, 8), shards=(32, 16), dtype="u2")
        )
        halves[j][...] = whole[:, columns]
    mosaic = zg.concatenate([halves])
    arrays, copied = levels_of(whole, level_0=False), levels_of(whole)
    fine_stages.dask.write_block_max_bytes = 500
    with dask.config.set(scheduler="sync"):
        zg.consolidate([mosaic, *arrays[1:]], mode=mode)
        zg.consolidate(copied, mode=mode)
        region = (slice(10, 20), slice(75, 85))
        halves[0][10:20, 75:] = halves[1][10:20, :5] = copied[0][region] = 5
        for levels in ([mosaic, *arrays[1:]], copied):
            assert zg.plan(levels, regions=[region], mode=mode).run().n_units == 5
    for ours, theirs in zip(arrays[1:], copied[1:], strict=True):
        np.testing.assert_array_equal(ours[...], theirs[...])
