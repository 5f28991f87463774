"""The compiled path: whole windows of native pixels, laid out for the loops of ``_jit``."""

import functools
import itertools
import math
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ziggurat.geometry import Edges

__all__ = ["IS_OFF", "Walk", "address", "can", "reduce_copy", "walk"]

type Array = NDArray[Any]
type Strides = tuple[int, ...]

_MOST_SORTED = 64  # taps that `ranks` sorts: the lengths of runs are kept in a byte, the rows in the cache
_MOST_SUMMED = 256  # taps whose sum of bytes fits 16 bits
_SHORTEST_ROW = 16  # below, loops over rows cost more than a copy with the axes in another order

# Told so, numba leaves loops to Python, which cannot run these: they see memory.
IS_OFF = os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0")


class Axis(NamedTuple):
    """One loop: number of targets, factor, strides of source and target in pixels."""

    n: int
    factor: int
    source: int
    target: int


class Loop(NamedTuple):
    """A compiled loop, the dtype it takes pixels as, the size and dtype of its scratch, and its parameters."""

    kernel: Callable[..., None]
    dtype: np.dtype[Any]
    n_scratch: int
    scratch: np.dtype[Any]
    parameters: tuple[int, ...]


class Walk(NamedTuple):
    """How a compiled loop goes over source and target of one layout.

    Attributes
    ----------
    run : callable
        The compiled loop.
    loop : Loop
        What it takes.
    grid : tuple of int
        Targets and factors (z, y, x), strides of source and target (z, y), in pixels.
    starts : array of int64, shape (n, 2)
        Where it starts in source and target, once for each index of the axes beyond three, in pixels.
    n_source, n_target : int
        Pixels from the first to the last one of each, with all that lies between.
    """

    run: Callable[..., None]
    loop: Loop
    grid: tuple[int, ...]
    starts: NDArray[np.int64]
    n_source: int
    n_target: int

    def reduce(self, src: Array, out: Array) -> None:
        """Fill `out` from `src`."""
        from ziggurat import _jit_chunks

        loop = self.loop
        source, target = _flat(src, self.n_source, loop.dtype), _flat(out, self.n_target, loop.dtype)
        scratch = np.empty(loop.n_scratch, loop.scratch)
        self.run(_jit_chunks.NO_CHUNKS, source, target, self.starts, scratch, self.grid, *loop.parameters)

    def reduce_stored(self, chunks: Any, room: Array, out: Array, starts: Array) -> None:
        """Fill parts of `out` from stored chunks, decoded into `room`; each begins at pixels `starts` of both.

        `chunks` are what `ziggurat._jit_chunks.wanted` takes.
        """
        loop = self.loop
        n = 1 + sum((n - 1) * stride // out.itemsize for n, stride in zip(out.shape, out.strides, strict=True))
        target, scratch = _flat(out, n, loop.dtype), np.empty(loop.n_scratch, loop.scratch)
        self.run(chunks, room.view(loop.dtype), target, starts, scratch, self.grid, *loop.parameters)


def can(method: str, dtype: np.dtype[Any], edges: Edges, factors: Sequence[int]) -> bool:
    """Say whether there is a compiled loop for windows of `factors` pixels: of `edges`, or short ones at their end."""
    count, whole = math.prod(factors), [e.p for e in edges]
    if IS_OFF or not count:  # 0 stands for what is no whole number
        return False
    if method in ("nearest", "stride"):
        return dtype.itemsize <= 8 and sum(f > 1 for f in factors) <= 3
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


def walk(src: Array, factors: tuple[int, ...], out: Array, method: str) -> Walk | None:
    """Return the way over `src` and `out` where they lie; None where no loop can take it. `can` must hold.

    The shape of `src` is that of `out` times `factors`.
    """
    if not (src.dtype.isnative and out.dtype.isnative and src.flags.aligned and out.flags.aligned):
        return None
    return _walk(method, src.dtype, out.shape, factors, src.strides, out.strides)


def chunk_walk(
    method: str, dtype: np.dtype[Any], shape: Strides, chunk: Strides, factors: Strides, out: Array
) -> Walk | None:
    """Return the way from a box of `shape` in a `chunk` to a part of `out`; None where no loop can take it."""
    if not out.flags.aligned or out.dtype != dtype:
        return None
    targets = tuple(n // f for n, f in zip(shape, factors, strict=True))
    source = tuple(dtype.itemsize * math.prod(chunk[i + 1 :]) for i in range(len(chunk)))
    found = _walk(method, dtype, targets, factors, source, out.strides)
    return found if found is not None and len(found.starts) == 1 else None


@functools.lru_cache(1024)  # chunks are alike; working their layout out takes longer than many a loop over them
def _walk(
    method: str, dtype: np.dtype[Any], shape: Strides, factors: Strides, source: Strides, target: Strides
) -> Walk | None:
    from ziggurat import _jit

    size = dtype.itemsize
    if any(stride < 0 or stride % size for stride in (*source, *target)):
        return None
    axes = _axes(shape, factors, [s // size for s in source], [s // size for s in target])
    if not _fits(axes):
        return None
    axes = [Axis(1, 1, 0, 0)] * (3 - len(axes)) + axes
    outer, (z, y, x) = axes[:-3], axes[-3:]
    loop = _loop(method, dtype, tuple(axis.factor for axis in axes[-3:]), x.n)
    run = _jit.compiled(loop.kernel, loop.dtype, loop.scratch, len(loop.parameters))
    grid = (z.n, y.n, x.n, z.factor, y.factor, x.factor, z.source, y.source, z.target, y.target)
    strides = np.array([(a.source, a.target) for a in outer], np.int64).reshape(len(outer), 2)
    indices = list(itertools.product(*(range(axis.n) for axis in outer)))
    starts = np.array(indices, np.int64).reshape(len(indices), len(outer)) @ strides
    n_source = 1 + sum((axis.n * axis.factor - 1) * axis.source for axis in axes)
    n_target = 1 + sum((axis.n - 1) * axis.target for axis in axes)
    return Walk(run, loop, grid, starts, n_source, n_target)


def _fits(axes: Sequence[Axis]) -> bool:
    """Say whether rows lie in line and are worth it, and no axis beyond three is reduced."""
    row = axes[-1] if axes else Axis(1, 1, 1, 1)
    return (
        (row.source == 1 or row.n * row.factor == 1)
        and (row.target == 1 or row.n == 1)
        and (row.factor > 1 or row.n >= _SHORTEST_ROW)
        and all(axis.factor == 1 for axis in axes[:-3])
    )


def reduce_copy(src: Array, factors: Sequence[int], out: Array, method: str) -> None:
    """Fill `out` from `src` of any layout by way of copies, whose unreduced axes come first."""
    order = sorted(range(src.ndim), key=lambda axis: factors[axis] > 1)
    source = np.require(src.transpose(order), requirements=["C", "A"])  # the bytes of a shard may begin anywhere
    target = np.empty([out.shape[axis] for axis in order], dtype=src.dtype)
    found = walk(source, tuple(factors[axis] for axis in order), target, method)
    assert found is not None
    found.reduce(source, target)
    out.transpose(order)[...] = target


def _loop(method: str, dtype: np.dtype[Any], factors: Strides, n_row: int) -> Loop:
    from ziggurat import _jit, _jit_ranks

    count, factor = math.prod(factors), factors[-1]
    if method in ("nearest", "stride"):
        bits = np.dtype(f"u{dtype.itemsize}")
        return Loop(_jit.samples, bits, 1, bits, tuple(f // 2 * (method == "nearest") for f in factors))
    pixel = np.dtype(np.uint8) if dtype.kind == "b" else dtype
    if method in ("median", "mode") and factor == max(factors) == 2 and count >= 4 and dtype.kind != "f":
        return Loop(_jit_ranks.ranks_of_pairs, pixel, 1, pixel, (int(method == "median"),))
    if method in ("median", "mode"):
        bits = np.dtype(f"i{dtype.itemsize}") if dtype.kind == "f" else pixel
        infinity = int(np.array(np.inf, dtype).view(bits)) if dtype.kind == "f" else 0
        rank = (count - 1) // 2 if method == "median" else -1
        return Loop(_jit_ranks.ranks, bits, (count + 2) * _jit_ranks.SEGMENT, bits, (rank, infinity))
    if method in ("min", "max"):
        kernel = _jit.float_extremes if dtype.kind == "f" else _jit.int_extremes
        return Loop(kernel, pixel, 1, pixel, (int(method == "max"),))
    if dtype.kind == "f":
        return Loop(_jit.float_sums, pixel, n_row, np.dtype(np.float64), (int(method == "linear"),))
    if dtype.itemsize == 8:
        flip = -(2**63) if dtype.kind == "u" else 0
        return Loop(_jit.wide_means, np.dtype(np.int64), 2 * n_row, np.dtype(np.int64), (flip,))
    wider = np.dtype(f"{'i' if dtype.itemsize == 4 else pixel.kind}{2 * pixel.itemsize}")
    return Loop(_jit.int_means, pixel, n_row, wider, (int(method == "linear"),))


def _axes(shape: Sequence[int], factors: Sequence[int], sources: Sequence[int], targets: Sequence[int]) -> list[Axis]:
    """Return the loops over targets, but for axes of one pixel; unreduced neighbours in line are merged."""
    axes: list[Axis] = []
    for axis in map(Axis._make, zip(shape, factors, sources, targets, strict=True)):
        n, factor = axis[:2]
        if n * factor == 1:
            continue
        before = axes[-1] if axes else None
        if before and before.factor == factor == 1 and before[2:] == (n * axis.source, n * axis.target):
            axes[-1] = Axis(before.n * n, 1, axis.source, axis.target)
        else:
            axes.append(axis)
    return axes


def _flat(a: Array, n: int, dtype: np.dtype[Any]) -> Array:
    """Return the memory from the first to the last pixel as one row: compiled once, for every layout."""
    if a.flags.c_contiguous:
        row = a.reshape(n)
    elif isinstance(a.base, np.ndarray) and a.base.ndim == 1 and a.base.flags.c_contiguous:
        # Blocks lie in such rows, and their slices cost a tenth of `as_strided`, in which threads wait for each other.
        start = address(a) - address(a.base)
        row = a.base.view(np.uint8)[start : start + n * a.itemsize].view(a.dtype)
    else:
        row = np.lib.stride_tricks.as_strided(a, (n,), (a.itemsize,))
    return row.view(dtype)


def address(a: Array) -> int:
    """Return where the first pixel of `a` lies in memory."""
    found: int = a.__array_interface__["data"][0]
    return found
