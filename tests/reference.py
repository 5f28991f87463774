"""The table of methods in the plainest Python: one target pixel at a time, Python integers, float64 in written order.

Slow, and on purpose written without a look at the kernels: what they compute must equal this to the byte.
"""

import itertools
import math
from collections import Counter
from fractions import Fraction

import numpy as np

from ziggurat.geometry import Edge, Edges


def reference(source: np.ndarray, edges: Edges, method: str, nodata: complex | None = None) -> np.ndarray:
    """Compute the whole target of `source`, in the dtype (and byte order) of the source."""
    target = np.empty([e.m for e in edges], dtype=source.dtype)
    with np.errstate(all="ignore"):
        if source.dtype.kind == "c" and method in ("mean", "linear"):
            return _complex(source, edges, method, nodata)
        for where in np.ndindex(target.shape):
            target[where] = _pixel(source, edges, where, method, nodata)
    return target


def _pixel(source, edges, where, method, nodata):
    if method == "nearest":
        return source[tuple(_nearest(e, i) for e, i in zip(edges, where, strict=True))]
    if method == "stride":
        return source[tuple(i * e.p // e.q for e, i in zip(edges, where, strict=True))]
    if method in ("linear", "cubic"):
        taps = [_taps(e, i, _linear if method == "linear" else _keys) for e, i in zip(edges, where, strict=True)]
        return _rounded(_interpolated(source, taps), source.dtype)
    if method == "gaussian":
        taps = [_taps(e, i, _blurred) for e, i in zip(edges, where, strict=True)]
        return _rounded(_axis_by_axis(source, taps), source.dtype)
    taps = [overlaps(e, i) for e, i in zip(edges, where, strict=True)]
    pixels = [
        (source[tuple(s for s, _ in tap)], math.prod(w for _, w in tap))
        for tap in itertools.product(*taps)
    ]  # fmt: skip
    pixels = [(v, w) for v, w in pixels if not _is_nodata(v, nodata)]
    return _statistic(pixels, method, source.dtype) if pixels else source.dtype.type(nodata)


def _complex(source, edges, method, nodata):
    """Real and imaginary part each on its own; a pixel is left out as a whole."""
    target = np.empty([e.m for e in edges], dtype=source.dtype)
    left_out = np.vectorize(lambda v: _is_nodata(v, nodata), otypes=[bool])(source)
    for part in ("real", "imag"):
        values = getattr(source, part).astype(getattr(source, part).dtype.newbyteorder("="))
        if nodata is None:
            getattr(target, part)[...] = reference(values, edges, method)
            continue
        # A value that no pixel has marks the pixels to leave out.
        marker = max(v for v in (12345.0, 23456.0) if v not in values)
        result = reference(np.where(left_out, marker, values).astype(values.dtype), edges, method, marker)
        marked = result == marker
        getattr(target, part)[...] = np.where(marked, getattr(source.dtype.type(nodata), part), result)
    return target


def _is_nodata(value, nodata):
    if nodata is None:
        return False
    if nodata != nodata:
        return bool(value != value)
    return bool(value == np.asarray(nodata).astype(np.asarray(value).dtype))


def overlaps(edge: Edge, i: int):
    """Source pixels under target i, with the length of the overlap in units of 1/q."""
    low, high = i * edge.p, (i + 1) * edge.p
    all_overlaps = ((s, min(high, (s + 1) * edge.q) - max(low, s * edge.q)) for s in range(*edge.span(i, i + 1)))
    return [(s, w) for s, w in all_overlaps if w > 0]


def _nearest(edge: Edge, i: int) -> int:
    f = Fraction(edge.p, edge.q)
    if f.denominator == 1:
        return min(i * f.numerator + f.numerator // 2, edge.n - 1)
    return (2 * i + 1) * edge.n // (2 * edge.m)


def _taps(edge: Edge, i: int, kernel):
    """(source pixel, weight) around x, clamped to the axis; a weight of 0 is not read."""
    r = edge.p / edge.q
    x = (i + 0.5) * r - 0.5
    low = math.floor(x)
    return [(min(max(low + k, 0), edge.n - 1), w) for k, w in kernel(x - low, r) if w != 0]


def _linear(t, r):
    return [(0, 1.0 - t), (1, t)]


def _keys(t, r):
    return [
        (-1, ((-0.5 * t + 1.0) * t - 0.5) * t),
        (0, (1.5 * t - 2.5) * t * t + 1.0),
        (1, ((-1.5 * t + 2.0) * t + 0.5) * t),
        (2, (0.5 * t - 0.5) * t * t),
    ]


def _blurred(t, r):
    sigma = (r - 1) / 2
    radius = int(4 * sigma + 0.5)
    raw = {k: math.exp(-0.5 / (sigma * sigma) * k * k) if radius else 1.0 for k in range(-radius, radius + 1)}
    g = {k: v / math.fsum(raw.values()) for k, v in raw.items()}
    return [(k, (1.0 - t) * g.get(k, 0.0) + t * g.get(k - 1, 0.0)) for k in range(-radius, radius + 2)]


def _interpolated(source, taps):
    acc = np.float64(0.0)
    for tap in itertools.product(*taps):
        term = np.float64(source[tuple(s for s, _ in tap)])
        for _, w in tap:
            term = term * np.float64(w)
        acc = acc + term
    return acc


def _axis_by_axis(source, taps):
    """First axis first: each step sums one axis of what is left."""
    if not taps:
        return np.float64(source)
    acc = np.zeros(source.shape[1:], dtype=np.float64)
    for s, w in taps[0]:
        acc = acc + source[s].astype(np.float64) * np.float64(w)
    return _axis_by_axis(acc, taps[1:])


def _rounded(value, dtype):
    if dtype.kind == "f":
        return _float(value, dtype)
    low, high = (0, 1) if dtype.kind == "b" else (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
    return dtype.type(min(max(math.trunc(value + math.copysign(0.5, value)), low), high))


def _float(value, dtype):
    return dtype.type(math.nan) if math.isnan(value) else np.float64(value).astype(dtype)


def _statistic(pixels, method, dtype):
    values = [v for v, _ in pixels]
    if dtype.kind == "f" and method != "mode" and any(v != v for v in values):
        return dtype.type(math.nan)
    if method == "mean":
        return _mean(pixels, dtype)
    if method == "mode":
        counts = Counter(v for v in values if v == v)
        nans = sum(v != v for v in values)
        most = max([nans, *counts.values()])
        candidates = [v for v, count in counts.items() if count == most]
        return next(v for v in values if v == min(candidates)) if candidates else dtype.type(math.nan)
    chosen = {"min": min, "max": max, "median": lambda vs: sorted(vs)[(len(vs) - 1) // 2]}[method](values)
    return next(v for v in values if v == chosen)


def _mean(pixels, dtype):
    total_weight = sum(w for _, w in pixels)
    if dtype.kind != "f":
        mean = Fraction(sum(int(v) * w for v, w in pixels), total_weight)
        return dtype.type(round(mean) if dtype.kind != "b" else mean > Fraction(1, 2))
    acc = np.float64(0.0)
    for v, w in pixels:
        acc = acc + np.float64(v) * np.float64(w)
    return _float(acc / np.float64(total_weight), dtype)
