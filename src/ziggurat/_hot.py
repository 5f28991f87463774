"""The compiled path: whole windows of native pixels, laid out for the loops of ``_jit``."""

import ctypes
import functools
import itertools
import math
import os
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ziggurat._codes import LEFT, REDUCE
from ziggurat.geometry import Edges

__all__ = ["IS_OFF", "Performance", "Walk", "address", "can", "reduce_copy", "walk"]

type Array = NDArray[Any]
type Strides = tuple[int, ...]

_MOST_SORTED = 64  # taps that `ranks` sorts: the lengths of runs are kept in a byte, the rows in the cache
_MOST_SUMMED = 256  # taps whose sum of bytes fits 16 bits
_MOST_PARAMETERS = 3  # of a loop
_LEAST_SCRATCH = 16  # bytes, for the time
_SHORTEST_ROW = 16  # below, loops over rows cost more than a copy with the axes in another order

# Told so, numba leaves loops to Python, which cannot run these: they see memory.
IS_OFF = os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0")


_NO_TABLE = np.empty((0, 0), np.int64)
_NO_ROW = np.empty(0, np.int64)
_NO_BYTES = np.empty(0, np.uint8)
_FIRST_ROW = np.zeros(1, np.int64)


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
    loop : Loop
        What it takes.
    table : array of int64, shape (1, n)
        The address of its code, and what it is given: targets and factors (z, y, x), strides of source and target
        (z, y), in pixels, and its parameters.
    starts : array of int64, shape (n, 2)
        Where it starts in source and target, once for each index of the axes beyond three, in bytes.
    n_source : int
        Bytes of the source from its first pixel to its last one, with all that lies between.
    code : object
        What lies at the address.
    """

    loop: Loop
    table: NDArray[np.int64]
    starts: NDArray[np.int64]
    n_source: int
    code: Any

    @property
    def n_scratch(self) -> int:
        """Bytes that the loop needs beside source and target."""
        return self.loop.n_scratch * self.loop.scratch.itemsize

    def reduce(self, src: Array, out: Array) -> None:
        """Fill `out` from `src`."""
        source, target = address(src), address(out)
        orders = [(REDUCE, 0, target + b, source + a, 0, 0, 0, 0, 0) for a, b in self.starts.tolist()]
        Performance(np.array(orders), self.table, self.n_scratch).go_on()


class Performance:
    """Orders that compiled code follows, and what it needs for that; see `ziggurat._jit_perform.perform`.

    Parameters
    ----------
    orders, loops : array of int64
        What is to be done, and the loops for it.
    n_scratch : int
        Bytes that the loops need.
    reading, data, room : array, optional
        What chunks are read with, memory for the bytes of one, and for its pixels.
    encodings, encoded, rows : array, optional
        What chunks are encoded with, memory for the bytes of one, and where the rows of pixels begin.

    Attributes
    ----------
    found : array of uint8
        What became of each order.
    spent : array of int64
        Nanoseconds that each order took.
    """

    def __init__(
        self,
        orders: NDArray[np.int64],
        loops: NDArray[np.int64] = _NO_TABLE,
        n_scratch: int = 0,
        reading: NDArray[np.int64] = _NO_ROW,
        data: NDArray[np.uint8] = _NO_BYTES,
        room: NDArray[np.uint8] = _NO_BYTES,
        encodings: NDArray[np.int64] = _NO_TABLE,
        encoded: NDArray[np.uint8] = _NO_BYTES,
        rows: NDArray[np.int64] = _FIRST_ROW,
    ) -> None:
        self.found = np.full(len(orders), LEFT, np.uint8)
        self.spent = np.zeros(len(orders), np.int64)
        scratch = np.empty(max(n_scratch, _LEAST_SCRATCH), np.uint8)
        self.orders = orders
        self._given = loops, reading, data, room, scratch, encodings, encoded, rows, _clock(), self.found, self.spent

    def go_on(self, first: int = 0) -> int:
        """Follow the orders from the `first` on, and return the first one that was not reached."""
        from ziggurat import _jit

        reached: int = _jit.of_chunks("perform")(self.orders, first, *self._given)
        return reached


@functools.cache
def _clock() -> NDArray[np.int64]:
    """Return the address of C's `clock_gettime`, and the clock that never goes back; zeros where there is no such."""
    try:
        address_of_clock = ctypes.cast(ctypes.CDLL(None).clock_gettime, ctypes.c_void_p).value
        return np.array([address_of_clock, time.CLOCK_MONOTONIC], np.int64)
    except (AttributeError, TypeError):  # as on Windows
        return np.zeros(2, np.int64)


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
    code = _jit.compiled(loop.kernel, loop.dtype, loop.scratch)
    grid = (z.n, y.n, x.n, z.factor, y.factor, x.factor, z.source, y.source, z.target, y.target)
    given = (code.address, *grid, *loop.parameters, *[0] * (_MOST_PARAMETERS - len(loop.parameters)))
    strides = size * np.array([(a.source, a.target) for a in outer], np.int64).reshape(len(outer), 2)
    indices = list(itertools.product(*(range(axis.n) for axis in outer)))
    starts = np.array(indices, np.int64).reshape(len(indices), len(outer)) @ strides
    n_source = size + size * sum((axis.n * axis.factor - 1) * axis.source for axis in axes)
    return Walk(loop, np.array([given], np.int64), starts, n_source, code)


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


def address(a: Array) -> int:
    """Return where the first pixel of `a` lies in memory."""
    found: int = a.__array_interface__["data"][0]
    return found
