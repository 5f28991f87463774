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

__all__ = [
    "SEGMENT",
    "compiled",
    "float_extremes",
    "float_sums",
    "int_extremes",
    "int_means",
    "jitted",
    "ranks",
    "wide_means",
]

# Targets that `ranks` sorts at a time: their windows stay in the L1 cache.
SEGMENT = 256

type Kernel = Callable[..., None]
type Grid = tuple[int, ...]


@functools.cache
def compiled(kernel: Kernel, dtype: np.dtype[Any], scratch: np.dtype[Any], n_parameters: int) -> Kernel:
    """Return `kernel` compiled for flat arrays of `dtype`, scratch of its own dtype and int64 parameters."""
    pixel, of_scratch = numba.from_dtype(dtype), numba.from_dtype(scratch)
    signature = numba.void(
        numba.types.Array(pixel, 1, "C", readonly=True),  # takes writable arrays too
        numba.types.Array(pixel, 1, "C"),
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


def int_means(src: Any, out: Any, acc: Any, grid: Grid, away: int) -> None:
    """Means of integers of at most 32 bits, half to even, or half away from zero for a power of two of pixels.

    A quotient that float64 rounds stays on its side of a tie: sums are below 2**52. `acc` has room for a row of
    targets and, where pixels are paired along it, for its source pixels.
    """
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


def wide_means(src: Any, out: Any, acc: Any, grid: Grid, flip: int) -> None:
    """Means of int64, half to even, from sums of 32-bit halves; uint64 comes as int64 with `flip` its top bit."""
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


def float_sums(src: Any, out: Any, acc: Any, grid: Grid, linear: int) -> None:
    """Means of floats, or for `linear` the sum of ``v*0.5`` (once per axis that is halved), in C order, in float64."""
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


def int_extremes(src: Any, out: Any, best: Any, grid: Grid, greatest: int) -> None:
    """Smallest or greatest value of integers: of the rows of a window first, where pixels lie in line."""
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


def float_extremes(src: Any, out: Any, scratch: Any, grid: Grid, greatest: int) -> None:
    """Smallest or greatest value, the first in C order of equal ones (zeros have signs); NaN if there is one."""
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


def ranks(src: Any, out: Any, rows: Any, grid: Grid, rank: int, infinity: int) -> None:
    """Sort each window and take the value at `rank`, or for a negative rank the most frequent, the smallest on a tie.

    `rows` holds one row of SEGMENT targets per tap, and two more; rows are sorted against each other, whole, so that no
    pixel decides a branch. Floats come as the signed integers of their bits, `infinity` those of infinity (else 0).
    """
    nz, ny, nx, fz, fy, fx, sz, sy, oz, oy = grid
    count = fz * fy * fx
    for segment in range(nz * ny * ((nx + SEGMENT - 1) // SEGMENT)):
        plane, x0 = segment % (nz * ny), segment // (nz * ny) * SEGMENT
        z, y, n = plane // ny, plane % ny, min(SEGMENT, nx - x0)
        base = z * fz * sz + y * fy * sy + x0 * fx
        for tap in range(count):
            start = base + tap // (fy * fx) * sz + tap // fx % fy * sy
            _take(src[start : start + n * fx].reshape((n, fx)), tap % fx, rows[tap * SEGMENT : tap * SEGMENT + n])
        if infinity:
            _to_keys(rows, n, count, infinity)
        _sort_rows(rows, n, count)
        target = out[z * oz + y * oy + x0 : z * oz + y * oy + x0 + n]
        if rank >= 0:
            target[:] = rows[rank * SEGMENT : rank * SEGMENT + n]
        else:
            _longest_runs(rows, n, count, target)
        if infinity:
            nans = rows[(count - 1) * SEGMENT :] if rank >= 0 else target
            _from_keys(target, nans, src[base:], grid, infinity)


@numba.njit(nogil=True)
def _take(row: Any, dx: int, values: Any) -> None:
    if row.shape[1] == 2 and dx == 0:  # constant indices, for LLVM to vectorise
        for x in range(len(values)):
            values[x] = row[x, 0]
    elif row.shape[1] == 2:
        for x in range(len(values)):
            values[x] = row[x, 1]
    else:
        for x in range(len(values)):
            values[x] = row[x, dx]


@numba.njit(nogil=True)
def _sort_rows(rows: Any, n: int, count: int) -> None:
    """Batcher's odd-even merge sort (Knuth, TAOCP 3, 5.2.2, algorithm M) of rows, each pair of pixels on its own."""
    p = 1
    while p < count:
        k = p
        while k >= 1:
            for j in range(k % p, count - k, 2 * k):
                for i in range(j, j + min(k, count - j - k)):
                    if i // (2 * p) == (i + k) // (2 * p):
                        low, high = rows[i * SEGMENT : i * SEGMENT + n], rows[(i + k) * SEGMENT : (i + k) * SEGMENT + n]
                        for x in range(n):
                            smaller = min(low[x], high[x])
                            high[x] = max(low[x], high[x])
                            low[x] = smaller
            k //= 2
        p *= 2


@numba.njit(nogil=True)
def _longest_runs(rows: Any, n: int, count: int, target: Any) -> None:
    """Find the first of the longest runs of equal values in sorted rows; the lengths take the two rows after them."""
    run = rows[count * SEGMENT : count * SEGMENT + n]
    longest = rows[(count + 1) * SEGMENT : (count + 1) * SEGMENT + n]
    run[:] = 1
    longest[:] = 1
    target[:] = rows[:n]
    for tap in range(1, count):
        before = rows[(tap - 1) * SEGMENT : (tap - 1) * SEGMENT + n]
        values = rows[tap * SEGMENT : tap * SEGMENT + n]
        for x in range(n):
            run[x] = run[x] * (values[x] == before[x]) + 1
        for x in range(n):
            # all loads first: a load inside a condition keeps LLVM from vectorising
            length, most, value, best = run[x], longest[x], values[x], target[x]
            better = length > most
            target[x] = value if better else best
            longest[x] = length if better else most


@numba.njit(nogil=True)
def _to_keys(rows: Any, n: int, count: int, infinity: int) -> None:
    """Map the bits of floats to integers in their order: -0.0 as 0.0, every NaN as the greatest."""
    greatest = infinity | ((infinity & -infinity) - 1)
    for tap in range(count):
        values = rows[tap * SEGMENT : tap * SEGMENT + n]
        for x in range(n):
            bits = np.int64(values[x])
            size = bits & greatest
            key = -size if bits < 0 else size
            values[x] = greatest if size > infinity else key


@numba.njit(nogil=True)
def _from_keys(target: Any, nans: Any, src: Any, grid: Grid, infinity: int) -> None:
    """Map keys back to bits; a zero is the first of its window in C order, which may be negative."""
    _, fy, fx, sz, sy = grid[3:8]
    greatest = infinity | ((infinity & -infinity) - 1)
    for x in range(len(target)):
        key = np.int64(target[x])
        bits = key if key >= 0 else -greatest - 1 - key
        if key == 0:
            tap = 0
            while np.int64(src[x * fx + tap // (fy * fx) * sz + tap // fx % fy * sy + tap % fx]) & greatest:
                tap += 1
            bits = np.int64(src[x * fx + tap // (fy * fx) * sz + tap // fx % fy * sy + tap % fx])
        target[x] = infinity | ((infinity & -infinity) >> 1) if nans[x] == greatest else bits
