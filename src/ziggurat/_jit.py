"""Compiled loops over whole windows. Importing this module loads numba.

All of them take addresses: of the first pixel of the source and of the target, of scratch, and of what is `given`, in
pixels: targets (z, y, x), factors (z, y, x), source strides (z, y), target strides (z, y), and parameters; rows are
contiguous. The inner loops run along a row, without branches, so that LLVM vectorises them: pixels two apart, whose
distance it knows, as well. They see memory and no arrays: numba counts who holds a slice, once per row, which takes
longer than a row of a small chunk.
Arithmetic is written out in int64: numba turns uint64 mixed with int64 into float64.
"""

import functools
from collections.abc import Callable
from typing import Any

import numba
import numpy as np

from ziggurat._jit_calls import GRID, grid_of, inner
from ziggurat._jit_perform import PERFORMING, perform
from ziggurat._jit_store import PACKING, SPLICING, pack, splice

__all__ = [
    "compiled",
    "float_extremes",
    "float_sums",
    "int_extremes",
    "int_means",
    "jitted",
    "of_chunks",
    "samples",
    "wide_means",
]

type Kernel = Callable[..., Any]
type Grid = tuple[int, ...]


@functools.cache
def compiled(kernel: Kernel, dtype: np.dtype[Any], scratch: np.dtype[Any]) -> Any:
    """Return `kernel` compiled for pixels of `dtype` and scratch of its own dtype, with the `address` of its code."""
    pixels, row = numba.types.CPointer(numba.from_dtype(dtype)), numba.types.CPointer(numba.from_dtype(scratch))
    signature = numba.void(pixels, pixels, row, numba.types.CPointer(numba.int64))
    try:
        return numba.cfunc(signature, cache=True)(kernel)
    except RuntimeError:  # there is no place for a cache, as in a read-only installation
        return numba.cfunc(signature)(kernel)


def jitted(kernel: Kernel, signature: Any) -> Kernel:
    """Return `kernel` compiled without the GIL, from the cache where there is a place for one."""
    try:
        run: Kernel = numba.njit(signature, nogil=True, cache=True)(kernel)
    except RuntimeError:  # there is none, as in a read-only installation
        run = numba.njit(signature, nogil=True)(kernel)
    return run


def int_means(src: Any, out: Any, acc: Any, given: Any) -> None:
    """Means of integers of at most 32 bits, half to even, or half away from zero for a power of two of pixels.

    A quotient that float64 rounds stays on its side of a tie: sums are below 2**52.
    """
    grid, away = grid_of(given), given[GRID]
    nz, ny, nx, fz, fy, fx, sz, sy, oz, oy = grid
    count = fz * fy * fx
    shift = 0
    while 1 << shift < count:
        shift += 1
    half = (1 << shift) >> 1
    for z in range(nz):
        for y in range(ny):
            _add_integers(src, z * fz * sz + y * fy * sy, acc, grid)
            target = z * oz + y * oy
            if away:
                for x in range(nx):
                    t = np.int64(acc[x])
                    out[target + x] = (t + half - (t < 0)) >> shift
            elif 1 << shift == count:
                for x in range(nx):
                    t = np.int64(acc[x])
                    out[target + x] = (t + (half - 1) + ((t >> shift) & 1)) >> shift
            else:
                for x in range(nx):
                    out[target + x] = np.int64(np.rint(np.int64(acc[x]) / count))


@inner
def _add_integers(src: Any, first: int, acc: Any, grid: Grid) -> None:
    """Sum each of a row of windows; those of 2 x 2 and 2 x 2 x 2 pixels in registers."""
    _, _, nx, fz, fy, fx, sz, sy, _, _ = grid
    a, b = first, first + (sy if fy > 1 else sz)
    if fx == 2 and fz * fy == 2:
        for x in range(nx):
            acc[x] = _pair(src, a, x) + _pair(src, b, x)
    elif fx == fy == fz == 2:
        c, d = first + sz, first + sz + sy
        for x in range(nx):
            acc[x] = _pair(src, a, x) + _pair(src, b, x) + _pair(src, c, x) + _pair(src, d, x)
    else:
        for x in range(nx):
            acc[x] = 0
        for tap in range(fz * fy):
            row = first + tap // fy * sz + tap % fy * sy
            if fx == 2:
                for x in range(nx):
                    acc[x] += _pair(src, row, x)
            else:
                for dx in range(fx):
                    for x in range(nx):
                        acc[x] += np.int64(src[row + x * fx + dx])


@inner
def _pair(src: Any, row: int, x: int) -> Any:
    return np.int64(src[row + 2 * x]) + np.int64(src[row + 2 * x + 1])


def wide_means(src: Any, out: Any, acc: Any, given: Any) -> None:
    """Means of int64, half to even, from sums of 32-bit halves; uint64 comes as int64 with `flip` its top bit."""
    nz, ny, nx, fz, fy, fx, sz, sy, oz, oy = grid_of(given)
    flip = given[GRID]
    count = fz * fy * fx
    for z in range(nz):
        for y in range(ny):
            for x in range(2 * nx):
                acc[x] = 0
            for tap in range(fz * fy):
                row = z * fz * sz + y * fy * sy + tap // fy * sz + tap % fy * sy
                for dx in range(fx):
                    for x in range(nx):
                        v = src[row + x * fx + dx] ^ flip
                        acc[x] += v >> 32
                        acc[nx + x] += v & 0xFFFFFFFF
            target = z * oz + y * oy
            for x in range(nx):
                quotient = acc[x] // count
                rest = ((acc[x] - quotient * count) << 32) + acc[nx + x]
                below = rest // count
                rest -= below * count
                below += (2 * rest > count) | ((2 * rest == count) & (below & 1))
                out[target + x] = ((quotient << 32) + below) ^ flip


def float_sums(src: Any, out: Any, acc: Any, given: Any) -> None:
    """Means of floats, or for `linear` the sum of ``v*0.5`` (once per axis that is halved), in C order, in float64."""
    nz, ny, nx, fz, fy, fx, sz, sy, oz, oy = grid_of(given)
    linear = given[GRID]
    # A product with a power of two is exact, but for numbers so small that what they are multiplied with first matters.
    wz = 0.5 if linear and fz == 2 else 1.0
    wy = 0.5 if linear and fy == 2 else 1.0
    wx = 0.5 if linear and fx == 2 else 1.0
    weight = 1.0 if linear else np.float64(fz * fy * fx)
    for z in range(nz):
        for y in range(ny):
            first = z * fz * sz + y * fy * sy
            for x in range(nx):
                acc[x] = 0.0
            for tap in range(fz * fy):
                row = first + tap // fy * sz + tap % fy * sy
                if fx == 2:
                    for x in range(nx):
                        t = acc[x] + np.float64(src[row + 2 * x]) * wz * wy * wx
                        acc[x] = t + np.float64(src[row + 2 * x + 1]) * wz * wy * wx
                else:
                    for dx in range(fx):
                        for x in range(nx):
                            acc[x] += np.float64(src[row + x * fx + dx]) * wz * wy * wx
            target = z * oz + y * oy
            for x in range(nx):
                t = acc[x] / weight
                out[target + x] = t if t == t else np.nan


def int_extremes(src: Any, out: Any, scratch: Any, given: Any) -> None:
    """Smallest or greatest value of integers."""
    nz, ny, nx, fz, fy, fx, sz, sy, oz, oy = grid_of(given)
    greatest = given[GRID]
    for z in range(nz):
        for y in range(ny):
            first, target = z * fz * sz + y * fy * sy, z * oz + y * oy
            for tap in range(fz * fy):
                row = first + tap // fy * sz + tap % fy * sy
                if fx == 2 and tap == 0:
                    for x in range(nx):
                        out[target + x] = _better(src[row + 2 * x], src[row + 2 * x + 1], greatest)
                elif fx == 2:
                    for x in range(nx):
                        v = _better(src[row + 2 * x], src[row + 2 * x + 1], greatest)
                        out[target + x] = _better(out[target + x], v, greatest)
                else:
                    for dx in range(fx):
                        for x in range(nx):
                            v = src[row + x * fx + dx]
                            out[target + x] = v if tap + dx == 0 else _better(out[target + x], v, greatest)


@inner
def _better(v: Any, w: Any, greatest: int) -> Any:
    return max(v, w) if greatest else min(v, w)


def float_extremes(src: Any, out: Any, scratch: Any, given: Any) -> None:
    """Smallest or greatest value, the first in C order of equal ones (zeros have signs); NaN if there is one."""
    nz, ny, nx, fz, fy, fx, sz, sy, oz, oy = grid_of(given)
    greatest = given[GRID]
    for z in range(nz):
        for y in range(ny):
            first, target = z * fz * sz + y * fy * sy, z * oz + y * oy
            for tap in range(fz * fy):
                row = first + tap // fy * sz + tap % fy * sy
                for dx in range(fx):
                    if tap + dx == 0:
                        for x in range(nx):
                            out[target + x] = src[row + x * fx]
                    elif greatest:
                        for x in range(nx):
                            v, best = src[row + x * fx + dx], out[target + x]
                            out[target + x] = v if v > best or v != v else best
                    else:
                        for x in range(nx):
                            v, best = src[row + x * fx + dx], out[target + x]
                            out[target + x] = v if v < best or v != v else best
            for x in range(nx):
                best = out[target + x]
                out[target + x] = best if best == best else np.nan


def samples(src: Any, out: Any, scratch: Any, given: Any) -> None:
    """One pixel of each window, at the place (dz, dy, dx) in it; of any dtype, as integers of its size."""
    nz, ny, nx, fz, fy, fx, sz, sy, oz, oy = grid_of(given)
    dz, dy, dx = given[GRID], given[GRID + 1], given[GRID + 2]
    for z in range(nz):
        for y in range(ny):
            row, target = (z * fz + dz) * sz + (y * fy + dy) * sy + dx, z * oz + y * oy
            if fx == 2:
                for x in range(nx):
                    out[target + x] = src[row + 2 * x]
            else:
                for x in range(nx):
                    out[target + x] = src[row + x * fx]


_OF_CHUNKS: dict[str, tuple[Kernel, Any]] = {
    "pack": (pack, numba.boolean(*PACKING)),
    "perform": (perform, numba.int64(*PERFORMING)),
    "splice": (splice, numba.boolean(*SPLICING)),
}


# Last, so that where it is there, all of the module is.
@functools.cache
def of_chunks(name: str) -> Callable[..., Any]:
    """Return what reads, encodes or stores chunks, compiled, by its name in `_jit_perform` and `_jit_store`."""
    return jitted(*_OF_CHUNKS[name])
