"""Compiled loops over whole windows. Importing this module loads numba.

All of them walk flat arrays by `grid`, in pixels: targets (z, y, x), factors (z, y, x), source strides (z, y), target
strides (z, y); rows are contiguous. The inner loops run along a row, without branches, so that LLVM vectorises them.
Arithmetic is written out in int64: numba turns uint64 mixed with int64 into float64.
"""

import functools
from collections.abc import Callable
from typing import Any

import numba
import numpy as np

from ziggurat._jit_chunks import CHUNKS, fetched

__all__ = ["compiled", "float_extremes", "float_sums", "int_extremes", "int_means", "jitted", "wide_means"]

type Kernel = Callable[..., None]
type Grid = tuple[int, ...]


@functools.cache
def compiled(kernel: Kernel, dtype: np.dtype[Any], scratch: np.dtype[Any], n_parameters: int) -> Kernel:
    """Return `kernel` compiled for flat arrays of `dtype`, scratch of its own dtype and int64 parameters."""
    pixel, of_scratch = numba.from_dtype(dtype), numba.from_dtype(scratch)
    signature = numba.void(
        CHUNKS,
        numba.types.Array(pixel, 1, "C", readonly=True),  # takes writable arrays too
        numba.types.Array(pixel, 1, "C"),
        numba.int64[:, ::1],
        numba.types.Array(of_scratch, 1, "C"),
        numba.types.UniTuple(numba.int64, 10),
        *[numba.int64] * n_parameters,
    )
    return jitted(kernel, signature)


def jitted(kernel: Kernel, signature: Any) -> Kernel:
    """Return `kernel` compiled without the GIL, from the cache where there is a place for one."""
    try:
        run: Kernel = numba.njit(signature, nogil=True, cache=True)(kernel)
    except RuntimeError:  # there is none, as in a read-only installation
        run = numba.njit(signature, nogil=True)(kernel)
    return run


def int_means(chunks: Any, src: Any, out: Any, starts: Any, acc: Any, grid: Grid, away: int) -> None:
    """Means of integers of at most 32 bits, half to even, or half away from zero for a power of two of pixels.

    A quotient that float64 rounds stays on its side of a tie: sums are below 2**52. `acc` has room for a row of
    targets and, where pixels are paired along it, for its source pixels.
    """
    for i in range(len(starts)):
        if fetched(chunks, i, src):
            _int_means(src[starts[i, 0] :], out[starts[i, 1] :], acc, grid, away)


@numba.njit(nogil=True)
def _int_means(src: Any, out: Any, acc: Any, grid: Grid, away: int) -> None:
    nz, ny, nx, fz, fy, fx, sz, sy, oz, oy = grid
    count = fz * fy * fx
    shift = 0
    while 1 << shift < count:
        shift += 1
    half = (1 << shift) >> 1
    sums, columns = acc[:nx], acc[nx : 3 * nx]
    pairs = columns.reshape((nx, 2))
    for z in range(nz):
        for y in range(ny):
            base = z * fz * sz + y * fy * sy
            if fx == 2:
                # Across rows first, where pixels lie in line: that leaves half the work and an eighth of the time.
                _add_rows(src, columns, base, fz, fy, sz, sy)
                for x in range(nx):
                    sums[x] = np.int64(pairs[x, 0]) + np.int64(pairs[x, 1])
            else:
                sums[:] = 0
                for dz in range(fz):
                    for dy in range(fy):
                        start = base + dz * sz + dy * sy
                        row = src[start : start + nx * fx].reshape((nx, fx))
                        for dx in range(fx):
                            for x in range(nx):
                                sums[x] += np.int64(row[x, dx])
            target = out[z * oz + y * oy : z * oz + y * oy + nx]
            if away:
                for x in range(nx):
                    t = np.int64(sums[x])
                    target[x] = (t + half - (t < 0)) >> shift
            elif 1 << shift == count:
                for x in range(nx):
                    t = np.int64(sums[x])
                    target[x] = (t + (half - 1) + ((t >> shift) & 1)) >> shift
            else:
                for x in range(nx):
                    target[x] = np.int64(np.rint(np.int64(sums[x]) / count))


@numba.njit(nogil=True)
def _add_rows(src: Any, columns: Any, base: int, fz: int, fy: int, sz: int, sy: int) -> None:
    """Sum the rows of a row of windows, pixel by pixel; the usual two and four rows with the sums in registers."""
    n = len(columns)
    first = src[base : base + n]
    if fz * fy == 1:
        for x in range(n):
            columns[x] = first[x]
        return
    step = sy if fy > 1 else sz
    second = src[base + step : base + step + n]
    if fz == 2 and fy == 2:
        third, fourth = src[base + sz : base + sz + n], src[base + sz + sy : base + sz + sy + n]
        for x in range(n):
            columns[x] = np.int64(first[x]) + np.int64(second[x]) + np.int64(third[x]) + np.int64(fourth[x])
        return
    for x in range(n):
        columns[x] = np.int64(first[x]) + np.int64(second[x])
    for tap in range(2, fz * fy):
        start = base + tap // fy * sz + tap % fy * sy
        row = src[start : start + n]
        for x in range(n):
            columns[x] += np.int64(row[x])


def wide_means(chunks: Any, src: Any, out: Any, starts: Any, acc: Any, grid: Grid, flip: int) -> None:
    """Means of int64, half to even, from sums of 32-bit halves; uint64 comes as int64 with `flip` its top bit."""
    for i in range(len(starts)):
        if fetched(chunks, i, src):
            _wide_means(src[starts[i, 0] :], out[starts[i, 1] :], acc, grid, flip)


@numba.njit(nogil=True)
def _wide_means(src: Any, out: Any, acc: Any, grid: Grid, flip: int) -> None:
    nz, ny, nx, fz, fy, fx, sz, sy, oz, oy = grid
    count = fz * fy * fx
    high, low = acc[:nx], acc[nx : 2 * nx]
    for z in range(nz):
        for y in range(ny):
            acc[:] = 0
            for dz in range(fz):
                for dy in range(fy):
                    start = (z * fz + dz) * sz + (y * fy + dy) * sy
                    row = src[start : start + nx * fx].reshape((nx, fx))
                    for dx in range(fx):
                        for x in range(nx):
                            v = row[x, dx] ^ flip
                            high[x] += v >> 32
                            low[x] += v & 0xFFFFFFFF
            target = out[z * oz + y * oy : z * oz + y * oy + nx]
            for x in range(nx):
                quotient = high[x] // count
                rest = ((high[x] - quotient * count) << 32) + low[x]
                below = rest // count
                rest -= below * count
                below += (2 * rest > count) | ((2 * rest == count) & (below & 1))
                target[x] = ((quotient << 32) + below) ^ flip


def float_sums(chunks: Any, src: Any, out: Any, starts: Any, acc: Any, grid: Grid, linear: int) -> None:
    """Means of floats, or for `linear` the sum of ``v*0.5`` (once per axis that is halved), in C order, in float64."""
    for i in range(len(starts)):
        if fetched(chunks, i, src):
            _float_sums(src[starts[i, 0] :], out[starts[i, 1] :], acc, grid, linear)


@numba.njit(nogil=True)
def _float_sums(src: Any, out: Any, acc: Any, grid: Grid, linear: int) -> None:
    nz, ny, nx, fz, fy, fx, sz, sy, oz, oy = grid
    wz = 0.5 if linear and fz == 2 else 1.0
    wy = 0.5 if linear and fy == 2 else 1.0
    wx = 0.5 if linear and fx == 2 else 1.0
    weight = 1.0 if linear else np.float64(fz * fy * fx)
    for z in range(nz):
        for y in range(ny):
            acc[:nx] = 0.0
            for dz in range(fz):
                for dy in range(fy):
                    start = (z * fz + dz) * sz + (y * fy + dy) * sy
                    row = src[start : start + nx * fx].reshape((nx, fx))
                    if fx == 2:
                        for x in range(nx):
                            first = acc[x] + np.float64(row[x, 0]) * wz * wy * wx
                            acc[x] = first + np.float64(row[x, 1]) * wz * wy * wx
                    else:
                        for dx in range(fx):
                            for x in range(nx):
                                acc[x] += np.float64(row[x, dx]) * wz * wy * wx
            target = out[z * oz + y * oy : z * oz + y * oy + nx]
            for x in range(nx):
                t = acc[x] / weight
                target[x] = t if t == t else np.nan


def int_extremes(chunks: Any, src: Any, out: Any, starts: Any, best: Any, grid: Grid, greatest: int) -> None:
    """Smallest or greatest value of integers: of the rows of a window first, where pixels lie in line."""
    for i in range(len(starts)):
        if fetched(chunks, i, src):
            _int_extremes(src[starts[i, 0] :], out[starts[i, 1] :], best, grid, greatest)


@numba.njit(nogil=True)
def _int_extremes(src: Any, out: Any, best: Any, grid: Grid, greatest: int) -> None:
    nz, ny, nx, fz, fy, fx, sz, sy, oz, oy = grid
    n = nx * fx
    columns = best[:n]
    windows = columns.reshape((nx, fx))
    for z in range(nz):
        for y in range(ny):
            base = z * fz * sz + y * fy * sy
            columns[:] = src[base : base + n]
            for tap in range(1, fz * fy):
                start = base + tap // fy * sz + tap % fy * sy
                row = src[start : start + n]
                if greatest:
                    for x in range(n):
                        columns[x] = max(columns[x], row[x])
                else:
                    for x in range(n):
                        columns[x] = min(columns[x], row[x])
            target = out[z * oz + y * oy : z * oz + y * oy + nx]
            if fx == 2 and greatest:  # constant indices, for LLVM to vectorise
                for x in range(nx):
                    target[x] = max(windows[x, 0], windows[x, 1])
            elif fx == 2:
                for x in range(nx):
                    target[x] = min(windows[x, 0], windows[x, 1])
            else:
                target[:] = windows[:, 0]
                for dx in range(1, fx):
                    for x in range(nx):
                        v = windows[x, dx]
                        target[x] = max(target[x], v) if greatest else min(target[x], v)


def float_extremes(chunks: Any, src: Any, out: Any, starts: Any, scratch: Any, grid: Grid, greatest: int) -> None:
    """Smallest or greatest value, the first in C order of equal ones (zeros have signs); NaN if there is one."""
    for i in range(len(starts)):
        if fetched(chunks, i, src):
            _float_extremes(src[starts[i, 0] :], out[starts[i, 1] :], scratch, grid, greatest)


@numba.njit(nogil=True)
def _float_extremes(src: Any, out: Any, scratch: Any, grid: Grid, greatest: int) -> None:
    nz, ny, nx, fz, fy, fx, sz, sy, oz, oy = grid
    for z in range(nz):
        for y in range(ny):
            best = out[z * oz + y * oy : z * oz + y * oy + nx]
            for dz in range(fz):
                for dy in range(fy):
                    start = (z * fz + dz) * sz + (y * fy + dy) * sy
                    row = src[start : start + nx * fx].reshape((nx, fx))
                    for dx in range(fx):
                        if dz == 0 and dy == 0 and dx == 0:
                            best[:] = row[:, 0]
                        elif greatest:
                            for x in range(nx):
                                v = row[x, dx]
                                best[x] = v if v > best[x] or v != v else best[x]
                        else:
                            for x in range(nx):
                                v = row[x, dx]
                                best[x] = v if v < best[x] or v != v else best[x]
            for x in range(nx):
                best[x] = best[x] if best[x] == best[x] else np.nan
