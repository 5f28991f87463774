"""Chunk grids: every selection is taken chunk by chunk, each pixel once, as brute force and other libraries say."""

import tracemalloc
from itertools import accumulate, islice, pairwise, product

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from zarr_indexing import IndexTransform, dimension_grids_from_chunks, plan_chunks

import ziggurat as zg
from ziggurat.boxes import slices
from ziggurat.chunkaxis import ChunkAxis
from ziggurat.errors import GeometryError, RegionError

quick = settings(max_examples=200, deadline=None)


@st.composite
def axes(draw, max_size=12):
    """Draw the pixels and the chunks of one axis: one size, or several that add up."""
    if draw(st.booleans()):
        return draw(st.integers(0, 30)), draw(st.integers(1, max_size))
    sizes = draw(st.lists(st.integers(1, max_size), min_size=1, max_size=6))
    return sum(sizes), tuple(sizes)


def edges_of(n, sizes):
    """Return the pixels of each chunk of an axis."""
    if isinstance(sizes, int):
        return [(a, min(n, a + sizes)) for a in range(0, n, sizes)]
    return list(pairwise(accumulate(sizes, initial=0)))


def entries(n):
    """Draw selections of one axis: slices, boxes, and integers of either sign where there is a pixel."""
    bounds = st.one_of(st.none(), st.integers(-n - 2, n + 2))
    found = st.builds(slice, bounds, bounds, st.one_of(st.none(), st.integers(1, 9)))
    return st.one_of(found, st.integers(-n, n - 1)) if n else found


@quick
@given(data=st.data(), given=st.lists(axes(), min_size=1, max_size=3))
def test_projections_take_each_pixel_once(data, given):
    shape, chunks = zip(*given, strict=True)
    selection = tuple(data.draw(entries(n)) for n in shape)
    pixels = np.arange(np.prod(shape)).reshape(shape)
    grid = zg.ChunkGrid(shape, chunks)
    expected = pixels[selection]
    assert grid.out_shape(selection) == expected.shape
    out, taken = np.full(expected.shape, -1), np.zeros(expected.shape, int)
    all_coords = []
    for p in grid.project(selection):
        chunk = pixels[slices(grid.box(p.chunk_coords))]
        out[p.out_selection] = chunk[p.chunk_selection]
        taken[p.out_selection] += 1
        assert p.whole == (chunk[p.chunk_selection].size == chunk.size)
        all_coords.append(p.chunk_coords)
    np.testing.assert_array_equal(out, expected)
    assert (taken == 1).all()
    assert all_coords == sorted(set(all_coords))


@quick
@given(data=st.data(), given=st.lists(axes(), min_size=1, max_size=3))
def test_agrees_with_zarr_indexing(data, given):
    shape, chunks = zip(*given, strict=True)
    if 0 in shape:
        return
    starts = [data.draw(st.integers(0, n - 1)) for n in shape]
    selection = tuple(slice(a, data.draw(st.integers(a + 1, n))) for a, n in zip(starts, shape, strict=True))
    ours = {p.chunk_coords: p.whole for p in zg.ChunkGrid(shape, chunks).project(selection)}
    sizes = [tuple(b - a for a, b in edges_of(n, c)) for n, c in zip(shape, chunks, strict=True)]
    plan = plan_chunks(IndexTransform.from_shape(shape)[selection], dimension_grids_from_chunks(sizes, shape))
    assert ours == {tuple(map(int, p.chunk_coords)): p.coverage == "full" for p in plan}


@quick
@given(data=st.data(), axis=axes())
def test_axes_agree_with_brute_force(data, axis):
    n, sizes = axis
    ours, edges = ChunkAxis.of(n, sizes), edges_of(n, sizes)
    assert [ours.interval(i) for i in range(len(ours))] == edges
    start = data.draw(st.integers(0, n))
    stop = data.draw(st.integers(start, n))
    met = [i for i, (a, b) in enumerate(edges) if max(a, start) < min(b, stop)]
    assert list(ours.meeting(start, stop)) == met
    if met:
        assert ours.snap(start, stop) == (edges[met[0]][0], edges[met[-1]][1])
    pixels = np.arange(n)
    assert ours.find(pixels).tolist() == [i for i, (a, b) in enumerate(edges) for _ in range(a, b)]
    for i, bounds in enumerate(zip(*ours.bounds(np.arange(len(ours))), strict=True)):
        assert bounds == edges[i]


@quick
@given(axis=axes(), size=st.integers(0, 40))
def test_groups_are_whole_chunks_and_no_larger_than_they_may(axis, size):
    n, sizes = axis
    ours, edges = ChunkAxis.of(n, sizes), edges_of(n, sizes)
    grouped = ours.grouped(size)
    for groups in (list(map(grouped.interval, range(len(grouped)))), list(ours.cut(0, n, size))):
        assert [a for a, _ in groups] == [0, *(b for _, b in groups[:-1])][: len(groups)]
        assert {b for _, b in groups} <= {b for _, b in edges}
        assert all(b - a <= size or (a, b) in edges for a, b in groups)
        assert sum(b - a for a, b in groups) == n


@quick
@given(data=st.data(), inner=st.tuples(st.integers(1, 3), st.integers(1, 3)))
def test_chunks_in_shards(data, inner):
    counts = [data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=4)) for _ in inner]
    shards = [[c * n for n in ns] for c, ns in zip(inner, counts, strict=True)]
    cut_off = [data.draw(st.integers(0, c - 1)) for c in inner]
    shape = [sum(s) - off for s, off in zip(shards, cut_off, strict=True)]
    shards = [[*s[:-1], s[-1] - off] for s, off in zip(shards, cut_off, strict=True)]
    selection = tuple(data.draw(entries(n)) for n in shape)
    grid = zg.ChunkGrid(shape, shards, inner)
    pixels = np.arange(np.prod(shape)).reshape(shape)
    out = np.full(grid.out_shape(selection), -1)
    seen = set()
    for shard, chunks in grid.nested(selection):
        box = grid.box(shard.chunk_coords)
        for p in chunks:
            start = [a + i * c for (a, _), i, c in zip(box, p.chunk_coords, inner, strict=True)]
            chunk = pixels[tuple(slice(a, min(a + c, b)) for a, c, (_, b) in zip(start, inner, box, strict=True))]
            out[p.out_selection] = chunk[p.chunk_selection]
            assert p.whole == (chunk[p.chunk_selection].size == chunk.size)
            seen.add(tuple(a // c for a, c in zip(start, inner, strict=True)))
    np.testing.assert_array_equal(out, pixels[selection])
    assert seen == {p.chunk_coords for p in grid.of_inner().project(selection)}


def test_a_million_chunks_are_a_stream():
    tracemalloc.start()
    grid = zg.ChunkGrid((10**12, 10**12), (100, 100))
    head = list(islice(grid.project(), 1000))
    deep = next(grid.project((slice(10**11, None), 10**11 + 5)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert head[-1].chunk_coords == (0, 999) and deep.chunk_coords == (10**9, 10**9)
    assert peak < 2**20


def test_grids_of_arrays():
    with zarr.config.set({"array.rectilinear_chunks": True}):
        unequal = zarr.create_array({}, shape=(60, 1000), chunks=[[10, 20, 30], 100], dtype="u1")
        shrunk = zarr.create_array({}, shape=(60, 1000), chunks=[[10, 20, 30], 100], dtype="u1")
        shrunk.resize((55, 1000))
        sharded = zarr.create_array({}, shape=(120, 9), chunks=(10, 3), shards=[[60, 40, 20], 9], dtype="u1")
    assert zg.ChunkGrid.of(unequal) == zg.ChunkGrid((60, 1000), ((10, 20, 30), 100))
    assert zg.ChunkGrid.of(sharded) == zg.ChunkGrid((120, 9), ((60, 40, 20), 9), (10, 3))
    assert zg.ChunkGrid.of(sharded).of_inner() == zg.ChunkGrid((120, 9), (10, 3))
    assert zg.ChunkGrid.of(shrunk) == zg.ChunkGrid((55, 1000), ((10, 20, 25), 100))
    equal = zg.ChunkGrid((60,), ((20, 20, 20),))
    assert equal == zg.ChunkGrid((60,), (20,)) and equal.axes[0].is_regular


def test_what_is_no_grid_or_no_selection_is_refused():
    with pytest.raises(GeometryError, match="50 together, the axis has 60"):
        zg.ChunkGrid((60,), ((20, 30),))
    with pytest.raises(GeometryError, match="at least one pixel, not 0"):
        zg.ChunkGrid((60,), (0,))
    with pytest.raises(GeometryError, match="do not name the 1 axes"):
        zg.ChunkGrid((60,), (1, 2))
    with pytest.raises(GeometryError, match="do not fill shards"):
        zg.ChunkGrid((60,), ((25, 35),), (10,))
    grid = zg.ChunkGrid((60, 8), (7, 8))
    for selection in (60, -61, slice(None, None, -1), (0, 0, 0), [1, 2], ((0, 61), 1), True, "x"):
        with pytest.raises(RegionError, match="selection"):
            list(grid.project(selection))


def test_boxes_are_selections():
    grid = zg.ChunkGrid((60, 8), (7, 8))
    assert list(grid.project(((3, 20), (0, 8)))) == list(grid.project(slice(3, 20)))
    assert len(list(grid.project())) == len(grid) == len(list(product(range(9), range(1))))
