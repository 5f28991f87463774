"""Kernels give the values that are known to be right, where others gave wrong ones."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from reference import overlaps
from test_kernels import both_paths, reduced, same
from ziggurat import kernels
from ziggurat.boxes import shape_of
from ziggurat.geometry import Stretch, Window, window


def block(values, dtype, method="mean", **more):
    """Reduce all of `values` to one pixel."""
    source = np.array(values, dtype=dtype)
    edges = tuple(Window(n, 1, n) for n in source.shape)
    return reduced(source, edges, method, **more).item()


@pytest.mark.parametrize(
    ("dtype", "values", "expected"),
    [
        ("u1", [255] * 4, 255),
        ("u4", [2**32 - 1] * 4, 2**32 - 1),
        ("u4", [2**32 - 1] * 3 + [2**32 - 5], 2**32 - 2),
        ("u8", [2**64 - 1] * 4, 2**64 - 1),
        ("u8", [2**63, 2**63 + 2, 2**63 + 4, 2**63 + 6], 2**63 + 3),
        ("i1", [-128] * 4, -128),
        ("i8", [-(2**63)] * 4, -(2**63)),
        ("i2", [-1, -2, -1, -2], -2),
        ("i2", [-1, -1, -1, -2], -1),
        ("u1", [0, 1, 0, 1], 0),
        ("u1", [254, 255, 254, 255], 254),
        ("f2", [60000] * 4, 60000),
    ],
)
def test_mean_neither_overflows_nor_loses_bits(dtype, values, expected):
    for path in both_paths(np.array(values, dtype=dtype).reshape(2, 2), (Window(2, 1, 2),) * 2, "mean"):
        assert path.item() == expected


@pytest.mark.parametrize("dtype", ["u2", "i4", "u8", "i8"])
@pytest.mark.parametrize("sizes", [(50021, 50020), (2000003, 2000001)])
def test_mean_is_exact_where_weights_do_not_fit_64_bits(dtype, sizes):
    edge, info = Stretch(*sizes), np.iinfo(dtype)
    edges, box = (edge, edge, edge), ((7, 8), (edge.m - 3, edge.m), (edge.m // 2, edge.m // 2 + 2))
    needed = window(edges, box, (0, 0, 0))
    source = np.random.default_rng(1).integers(info.max - 9, info.max, shape_of(needed), dtype=dtype, endpoint=True)
    target = np.empty(shape_of(box), dtype=dtype)
    kernels.reduce(source, [a for a, _ in needed], edges, box, target, "mean")
    for where in np.ndindex(target.shape):
        taps = [overlaps(edge, i + a) for i, (a, _) in zip(where, box, strict=True)]
        each = [tuple(zip(*tap, strict=True)) for tap in itertools.product(*taps)]
        total = sum(
            int(source[tuple(i - a for i, (a, _) in zip(at, needed, strict=True))]) * math.prod(w) for at, w in each
        )
        assert int(target[where]) == round(Fraction(total, edge.p**3))


def test_linear_rounds_half_away_from_zero():
    assert block([[-1, -2], [-1, -2]], "i2", "linear") == -2
    assert block([0, 1], "u1", "linear") == 1
    assert block([2**64 - 1] * 2, "u8", "linear") == 2**64 - 1


def test_cubic_is_clipped_and_does_not_depend_on_boxes():
    step = np.zeros((32, 32), dtype="u1")
    step[:, 15:] = 255
    target = reduced(step, (Window(32, 16, 2),) * 2, "cubic")
    assert target[0].tolist() == [0] * 6 + [0, 128] + [255] * 8  # Keys' overshoot of 18 grey values is clipped
    same(reduced(step, (Window(32, 16, 2),) * 2, "cubic", step=(4, 4)), target)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize(
    ("method", "nodata", "most"), [("mean", None, 1), ("linear", None, 1), ("mean", np.nan, 0), ("cubic", None, 16)]
)
def test_one_nan_stays_one(dtype, method, nodata, most):
    level = np.ones((64, 64), dtype=dtype)
    level[10, 10] = np.nan
    for _ in range(4):
        level = reduced(level, tuple(Window(n, n // 2, 2) for n in level.shape), method, nodata)
        n_nan = int(np.isnan(level).sum())
        assert n_nan == most if method != "cubic" else 1 <= n_nan <= most
        assert (level[~np.isnan(level)] == 1).all()


def test_nan_is_left_out_as_nodata():
    source, edges = np.array([[1, np.nan, 3, 3], [3, 3, 3, 3]], dtype="f4"), (Window(2, 1, 2), Window(4, 2, 2))
    assert str(reduced(source, edges, "mean").tolist()) == "[[nan, 3.0]]"
    assert reduced(source, edges, "mean", np.nan).tolist() == [[np.float32(7 / 3), 3.0]]
    assert np.isnan(block([np.nan] * 2, "f4", "median", nodata=np.nan))
    assert block([0, 0], "u2", "mean", nodata=0) == 0


def test_mode_keeps_ids():
    source = np.array([[0, 0, 7, 7], [0, 4, 7, 7], [9, 9, 4, 0], [9, 9, 0, 0]], dtype="u2")
    edges = (Window(4, 2, 2),) * 2
    assert reduced(source, edges, "mode").tolist() == [[0, 7], [9, 0]]
    assert reduced(source, edges, "stride").tolist() == [[0, 7], [9, 4]]
    assert reduced(source, edges, "nearest").tolist() == [[4, 7], [9, 0]]


@pytest.mark.parametrize("dtype", ["i4", "u4"])
@pytest.mark.parametrize("method", ["mode", "nearest"])
def test_large_ids_are_exact_and_ties_go_to_the_smallest(dtype, method):
    same(reduced(np.full((4, 6), 100001729, dtype), (Window(4, 2, 2), Window(6, 3, 2)), method),
         np.full((2, 3), 100001729, dtype))  # fmt: skip
    assert block([[5, 5], [9, 9]], dtype, "mode") == block([[9, 9], [5, 5]], dtype, "mode") == 5


def test_bool_mean_is_true_where_more_than_half_are():
    source = np.array([[1, 1, 0, 0], [1, 1, 0, 1]], dtype=bool)
    assert reduced(source, (Window(2, 1, 2), Window(4, 2, 2)), "mean").tolist() == [[True, False]]
    assert block([True, False], bool) is False


@pytest.mark.parametrize("dtype", ["c8", "c16"])
def test_complex_mean_has_an_imaginary_part(dtype):
    source = np.tile(np.array([[1 + 1j, 3 - 1j], [1 + 3j, 3 + 1j]], dtype=dtype), (2, 2))
    edges = (Window(4, 2, 2),) * 2
    assert (reduced(source, edges, "mean") == 2 + 1j).all()
    assert (reduced(source, edges, "nearest") == 3 + 1j).all()
