"""Compiled loops that sort each window: medians and modes. Importing this module loads numba."""

from typing import Any

import numpy as np
from numba import carray  # type: ignore[attr-defined]

from ziggurat._jit_calls import GRID, grid_of, inner

__all__ = ["SEGMENT", "ranks", "ranks_of_pairs"]

# Targets that `ranks` sorts at a time: their windows stay in the L1 cache.
SEGMENT = 256

type Grid = tuple[int, ...]


def ranks_of_pairs(src: Any, out: Any, scratch: Any, given: Any) -> None:
    """Medians or modes of integers in windows of 2 x 2 and 2 x 2 x 2 pixels, sorted in registers without a branch."""
    nz, ny, nx, fz, fy, _, sz, sy, oz, oy = grid_of(given)
    is_median = given[GRID]
    for z in range(nz):
        for y in range(ny):
            a = z * fz * sz + y * fy * sy
            b, c, d = a + (sy if fy == 2 else sz), a + sz, a + sz + sy
            target = z * oz + y * oy
            if fz * fy == 2 and is_median:
                for x in range(nx):
                    out[target + x] = _sorted_of_two(src, a, b, x)[1]
            elif fz * fy == 2:
                for x in range(nx):
                    out[target + x] = _mode_of_four(*_sorted_of_two(src, a, b, x))
            elif is_median:
                for x in range(nx):
                    out[target + x] = _merged(_sorted_of_two(src, a, b, x), _sorted_of_two(src, c, d, x))[3]
            else:
                for x in range(nx):
                    low, high = _sorted_of_two(src, a, b, x), _sorted_of_two(src, c, d, x)
                    out[target + x] = _mode_of_eight(*_merged(low, high))


@inner
def _order(a: Any, b: Any) -> Any:
    return min(a, b), max(a, b)


@inner
def _sorted_of_two(src: Any, first: int, second: int, x: int) -> Any:
    """Return the four pixels of target `x` in two rows, sorted."""
    a, b = _order(src[first + 2 * x], src[first + 2 * x + 1])
    c, d = _order(src[second + 2 * x], src[second + 2 * x + 1])
    a, c = _order(a, c)
    b, d = _order(b, d)
    b, c = _order(b, c)
    return a, b, c, d


@inner
def _merged(low: Any, high: Any) -> Any:
    """Merge two sorted fours (Batcher's odd-even merge, Knuth, TAOCP 3, 5.3.4)."""
    a, b, c, d = low
    e, f, g, h = high
    a, e = _order(a, e)
    b, f = _order(b, f)
    c, g = _order(c, g)
    d, h = _order(d, h)
    c, e = _order(c, e)
    d, f = _order(d, f)
    b, c = _order(b, c)
    d, e = _order(d, e)
    f, g = _order(f, g)
    return a, b, c, d, e, f, g, h


@inner
def _mode_of_four(a: Any, b: Any, c: Any, d: Any) -> Any:
    """Return the first of the longest runs: longer runs, and among equals earlier ones, have the later word."""
    v = c if c == d else a
    v = b if b == c else v
    return a if a == b else v


@inner
def _mode_of_eight(a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, g: Any, h: Any) -> Any:
    """Do the same for eight; a run of five or more is the only one that long."""
    v = g if g == h else a
    v = f if f == g else v
    v = e if e == f else v
    v = d if d == e else v
    v = c if c == d else v
    v = b if b == c else v
    v = a if a == b else v
    v = f if f == h else v
    v = e if e == g else v
    v = d if d == f else v
    v = c if c == e else v
    v = b if b == d else v
    v = a if a == c else v
    v = e if e == h else v
    v = d if d == g else v
    v = c if c == f else v
    v = b if b == e else v
    return a if a == d else v


def ranks(src: Any, out: Any, rows: Any, given: Any) -> None:
    """Sort each window and take the value at `rank`, or for a negative rank the most frequent, the smallest on a tie.

    `rows` holds one row of SEGMENT targets per tap, and two more; rows are sorted against each other, whole, so that no
    pixel decides a branch. Floats come as the signed integers of their bits, `infinity` those of infinity (else 0).
    """
    nz, ny, nx, fz, fy, fx, sz, sy, oz, oy = grid_of(given)
    rank, infinity = given[GRID], given[GRID + 1]
    source = carray(src, (nz * fz - 1) * sz + (ny * fy - 1) * sy + nx * fx)
    target = carray(out, (nz - 1) * oz + (ny - 1) * oy + nx)
    _ranks(source, target, carray(rows, (fz * fy * fx + 2) * SEGMENT), grid_of(given), rank, infinity)


@inner
def _ranks(src: Any, out: Any, rows: Any, grid: Grid, rank: int, infinity: int) -> None:
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


@inner
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


@inner
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


@inner
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


@inner
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


@inner
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
