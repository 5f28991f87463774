"""The compiled path: whole windows of native pixels, laid out for the loops of ``_jit``."""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ziggurat.geometry import Edges

__all__ = ["can", "fits", "reduce", "reduce_copy"]

type Array = NDArray[Any]

_MOST_SORTED = 64  # taps that `ranks` sorts: the lengths of runs are kept in a byte, the rows in the cache
_MOST_SUMMED = 256  # taps whose sum of bytes fits 16 bits
_SHORTEST_ROW = 16  # below, loops over rows cost more than a copy with the axes in another order


class Axis(NamedTuple):
    """One loop: number of targets, factor, strides of source and target in pixels."""

    n: int
    factor: int
    source: int
    target: int


def can(method: str, dtype: np.dtype[Any], edges: Edges, factors: Sequence[int]) -> bool:
    """Say whether there is a compiled loop for windows of `factors` pixels: of `edges`, or short ones at their end."""
    count, whole = math.prod(factors), [e.p for e in edges]
    if dtype.kind not in "biuf" or count < 2 or sum(f > 1 for f in factors) > 3:
        return False
    if method in ("median", "mode"):
        return count <= _MOST_SORTED
    if dtype.kind == "f" and dtype.itemsize == 2:
        return False
    if method == "linear":
        # The clamped tap of a short window is read twice: exact sums do not mind, floats round differently.
        return max(whole) == 2 and (dtype.itemsize <= 4 if dtype.kind != "f" else list(factors) == whole)
    return method in ("min", "max") or (method == "mean" and count <= _MOST_SUMMED)


def fits(src: Array, factors: Sequence[int], out: Array) -> bool:
    """Say whether the loops can walk `src` and `out` where they lie."""
    if not all(a.dtype.isnative and a.flags.aligned and _is_whole(a) for a in (src, out)):
        return False
    axes = _axes(src, factors, out)
    row = axes[-1]
    return (
        (row.source == 1 or row.n * row.factor == 1)
        and (row.target == 1 or row.n == 1)
        and (row.factor > 1 or row.n >= _SHORTEST_ROW)
        and all(axis.factor == 1 for axis in axes[:-3])
    )


def reduce(src: Array, factors: Sequence[int], out: Array, method: str) -> None:
    """Fill `out` from `src`, whose shape is that of `out` times `factors`; `can` and `fits` must hold."""
    from ziggurat import _jit

    axes = _axes(src, factors, out)
    axes = [Axis(1, 1, 0, 0)] * (3 - len(axes)) + axes
    kernel, bits, scratch, parameters = _loop(method, src.dtype, math.prod(factors), axes[-1].n)
    run = _jit.compiled(kernel, bits, scratch.dtype, len(parameters))
    source, target = _flat(src, bits), _flat(out, bits)
    outer, (z, y, x) = axes[:-3], axes[-3:]
    grid = (z.n, y.n, x.n, z.factor, y.factor, x.factor, z.source, y.source, z.target, y.target)
    for where in itertools.product(*(range(axis.n) for axis in outer)):
        first_source = sum(i * axis.source for i, axis in zip(where, outer, strict=True))
        first_target = sum(i * axis.target for i, axis in zip(where, outer, strict=True))
        run(source[first_source:], target[first_target:], scratch, grid, *parameters)


def reduce_copy(src: Array, factors: Sequence[int], out: Array, method: str) -> None:
    """Do the same for any layout by way of copies, whose unreduced axes come first."""
    order = sorted(range(src.ndim), key=lambda axis: factors[axis] > 1)
    source = np.ascontiguousarray(src.transpose(order))
    target = np.empty([out.shape[axis] for axis in order], dtype=src.dtype)
    reduce(source, [factors[axis] for axis in order], target, method)
    out.transpose(order)[...] = target


class Loop(NamedTuple):
    """A kernel of ``_jit``, the dtype it takes pixels as, its scratch and its parameters."""

    kernel: Callable[..., None]
    dtype: np.dtype[Any]
    scratch: Array
    parameters: tuple[int, ...]


def _loop(method: str, dtype: np.dtype[Any], count: int, n_row: int) -> Loop:
    from ziggurat import _jit

    pixel = np.dtype(np.uint8) if dtype.kind == "b" else dtype
    if method in ("median", "mode"):
        bits = np.dtype(f"i{dtype.itemsize}") if dtype.kind == "f" else pixel
        infinity = int(np.array(np.inf, dtype).view(bits)) if dtype.kind == "f" else 0
        rank = (count - 1) // 2 if method == "median" else -1
        return Loop(_jit.ranks, bits, np.empty((count + 2) * _jit.SEGMENT, bits), (rank, infinity))
    if method in ("min", "max"):
        nan = np.full(1, np.nan if dtype.kind == "f" else 0, pixel)
        return Loop(_jit.extremes, pixel, nan, (int(method == "max"),))
    if dtype.kind == "f":
        return Loop(_jit.float_sums, pixel, np.empty(n_row), (int(method == "linear"),))
    if dtype.itemsize == 8:
        flip = -(2**63) if dtype.kind == "u" else 0
        return Loop(_jit.wide_means, np.dtype(np.int64), np.empty(2 * n_row, np.int64), (flip,))
    wider = np.dtype(f"{'i' if dtype.itemsize == 4 else pixel.kind}{2 * pixel.itemsize}")
    return Loop(_jit.int_means, pixel, np.empty(n_row, wider), (int(method == "linear"),))


def _is_whole(a: Array) -> bool:
    """Say whether the strides are whole pixels, none backwards."""
    return all(stride >= 0 and stride % a.itemsize == 0 for stride in a.strides)


def _axes(src: Array, factors: Sequence[int], out: Array) -> list[Axis]:
    """Return the loops over `out`, without axes of one pixel, unreduced neighbours merged where they lie in line."""
    axes: list[Axis] = []
    for n, factor, source, target in zip(out.shape, factors, src.strides, out.strides, strict=True):
        axis = Axis(n, factor, source // src.itemsize, target // out.itemsize)
        if n * factor == 1:
            continue
        before = axes[-1] if axes else None
        if before and before.factor == factor == 1 and before[2:] == (n * axis.source, n * axis.target):
            axes[-1] = Axis(before.n * n, 1, axis.source, axis.target)
        else:
            axes.append(axis)
    return axes


def _flat(a: Array, dtype: np.dtype[Any]) -> Array:
    """Return the memory from the first to the last pixel as one row: compiled once, for every layout."""
    n = 1 + sum((size - 1) * stride for size, stride in zip(a.shape, a.strides, strict=True)) // a.itemsize
    return np.lib.stride_tricks.as_strided(a, (n,), (a.itemsize,)).view(dtype)
