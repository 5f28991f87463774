"""The methods in plain numpy: any geometry, any dtype in native byte order, one small window at a time.

A window `v` holds what its targets read; `taps` (one per axis) index into it; `valid` says which pixels count, or is
None when all do. Each target is computed with the same operations whatever the window it is computed from.
"""

import cmath
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ziggurat._taps import Taps

__all__ = ["compute", "pick"]

type Array = NDArray[Any]
type Valid = NDArray[np.bool_] | None

_FLOAT, _INT = np.dtype(np.float64), np.dtype(np.int64)


def compute(
    v: Array, taps: Sequence[Taps], method: str, nodata: complex | None = None, compiled: bool = False
) -> Array:
    """Return target pixels from their window `v`; `compiled` allows numba for the sums."""
    statistic = _METHODS[method]
    if nodata is None:
        return _in_parts(statistic, v, taps, None, compiled)
    valid = ~np.isnan(v) if cmath.isnan(nodata) else v != v.dtype.type(nodata)
    result = _in_parts(statistic, v, taps, valid, compiled)
    result[_extreme(valid.view(np.uint8), taps, np.greater) == 0] = v.dtype.type(nodata)
    return result


def _in_parts(statistic: Callable[..., Array], v: Array, taps: Sequence[Taps], valid: Valid, compiled: bool) -> Array:
    if v.dtype.kind != "c":
        return statistic(v, taps, valid, compiled)
    result = np.empty([len(t.index) for t in taps], dtype=v.dtype)
    result.real, result.imag = (statistic(part, taps, valid, compiled) for part in (v.real, v.imag))
    return result


def pick(v: Array, index: Sequence[NDArray[np.int64]]) -> Array:
    """Return the pixels at the product of the indices of each axis; a view where they are evenly spaced."""
    for axis, where in enumerate(index):
        v = _along(v, where, axis)
    return v


def _mean(v: Array, taps: Sequence[Taps], valid: Valid, compiled: bool) -> Array:
    """Return the mean weighted by overlap: of floats in float64, in C order; of integers exact, half to even."""
    weights = _outer([t.weight.sum(axis=1) for t in taps])
    if valid is not None:
        weights = np.maximum(1, _exact_sums(valid.astype(weights.dtype), taps))
        v = np.where(valid, v, v.dtype.type(0))
    if v.dtype.kind == "f":
        return _cast(_sums(v, taps, _FLOAT, compiled) / weights.astype(np.float64), v.dtype)
    return _int_mean(v, taps, weights, compiled)


def _interpolate(v: Array, taps: Sequence[Taps], valid: Valid, compiled: bool) -> Array:
    """Return the sum of ``v*w0*w1*...`` over the taps in C order, in float64, cast to the dtype."""
    return _cast(_sums(v, taps, _FLOAT, compiled, each=True), v.dtype)


def _gaussian(v: Array, taps: Sequence[Taps], valid: Valid, compiled: bool) -> Array:
    """Return the same sum taken axis by axis, first axis first: the Gaussian has too many taps for their product."""
    acc = v.astype(np.float64) + 0.0  # a sum from 0.0 is never -0.0, not even of one pixel
    for axis, t in enumerate(taps):
        if t.is_copy:
            acc = _along(acc, t.index[:, 0], axis)
        else:
            source, acc = acc, np.zeros((*acc.shape[:axis], len(t.index), *acc.shape[axis + 1 :]))
            for index, weight in zip(t.index.T, t.weight.T, strict=True):
                term = _along(source, index, axis) * _on(weight, axis, v.ndim)
                np.add(acc, term, out=acc, where=_on(weight != 0, axis, v.ndim))
    return _cast(acc, v.dtype)


def _minimum(v: Array, taps: Sequence[Taps], valid: Valid, compiled: bool) -> Array:
    """Return the smallest value; NaN where there is one, the first in C order of equal ones."""
    kept = v if valid is None else np.where(valid, v, _greatest(v.dtype))
    return _extreme(kept, taps, np.less)


def _maximum(v: Array, taps: Sequence[Taps], valid: Valid, compiled: bool) -> Array:
    """Return the greatest value; NaN where there is one, the first in C order of equal ones."""
    kept = v if valid is None else np.where(valid, v, _least(v.dtype))
    return _extreme(kept, taps, np.greater)


def _median(v: Array, taps: Sequence[Taps], valid: Valid, compiled: bool) -> Array:
    """Return the lower of the two middle values; NaN where there is one."""
    pixels, counts = _gather(v, taps, valid)
    pixels[...] = np.where(counts, pixels, _greatest(v.dtype))
    middle = (np.maximum(counts.sum(axis=0), 1) - 1) // 2
    found: Array = np.take_along_axis(np.sort(pixels, axis=0), middle[None], axis=0)[0]
    if v.dtype.kind != "f":
        return found
    return np.where((np.isnan(pixels) & counts).any(axis=0), v.dtype.type(np.nan), _first_zero(found, pixels, counts))


def _mode(v: Array, taps: Sequence[Taps], valid: Valid, compiled: bool) -> Array:
    """Return the most frequent value, the smallest on a tie; NaN is one value and greater than every number."""
    pixels, counts = _gather(v, taps, valid)
    pixels[...] = np.where(counts, pixels, np.nan if v.dtype.kind == "f" else _greatest(v.dtype))
    ordered, n_counted = np.sort(pixels, axis=0), counts.sum(axis=0)
    found, run = ordered[0].copy(), np.ones(ordered.shape[1:], dtype=np.int64)
    longest = run.copy()
    for k in range(1, len(ordered)):
        same = (ordered[k] == ordered[k - 1]) | ((ordered[k] != ordered[k]) & (ordered[k - 1] != ordered[k - 1]))
        run = np.where(same, run + 1, 1)
        better = (run > longest) & (k < n_counted)
        found[better], longest[better] = ordered[k][better], run[better]
    return _without_nan_bits(_first_zero(found, pixels, counts))


def _cast(acc: NDArray[np.float64], dtype: np.dtype[Any]) -> Array:
    """Return float64 as `dtype`: integers rounded half away from zero and clipped, NaN always the same NaN."""
    if dtype.kind == "f":
        return _without_nan_bits(acc.astype(dtype))
    info = np.iinfo(dtype)
    rounded = np.trunc(acc + np.copysign(0.5, acc))
    # float(info.max) of a 64-bit integer is one too many and must not be cast
    low, high = rounded <= float(info.min), rounded >= float(info.max)
    result = np.where(low | high, 0.0, rounded).astype(dtype)
    result[low], result[high] = info.min, info.max
    return result


def _along(v: Array, index: NDArray[np.int64], axis: int) -> Array:
    step = int(index[1] - index[0]) if len(index) > 1 else 1
    first = int(index[0])
    if step > 0 and bool((index == first + step * np.arange(len(index))).all()):
        return v[(slice(None),) * axis + (slice(first, int(index[-1]) + 1, step),)]
    return v.take(index, axis=axis)


def _on(weight: Array, axis: int, ndim: int) -> Array:
    """Return a vector laid along `axis` of an array of `ndim` axes."""
    return weight.reshape((-1,) + (1,) * (ndim - axis - 1))


def _outer(vectors: Sequence[Array]) -> Array:
    """Return the product of one vector per axis, exact: Python integers where 64 bits do not hold it."""
    exact = math.prod(int(vector.max()) for vector in vectors) < 2**63
    result = np.ones((1,) * len(vectors), dtype=np.int64 if exact else object)
    for axis, vector in enumerate(vectors):
        result = result * _on(vector, axis, len(vectors))
    return result


def _each(taps: Sequence[Taps]) -> Iterator[tuple[list[NDArray[np.int64]], list[Array]]]:
    """Yield the indices and weights of every tap, in C order."""
    for ks in itertools.product(*(range(t.n) for t in taps)):
        chosen = list(zip(taps, ks, strict=True))
        yield [t.index[:, k] for t, k in chosen], [t.weight[:, k] for t, k in chosen]


def _read(weights: Sequence[Array]) -> NDArray[np.bool_] | None:
    """Say which targets read a tap; None when all do."""
    if all(weight.all() for weight in weights):
        return None
    read: Array = _outer([(weight != 0).astype(np.int64) for weight in weights]) != 0
    return read


def _sums(v: Array, taps: Sequence[Taps], dtype: np.dtype[Any], compiled: bool, each: bool = False) -> Array:
    """Return the sums of ``v * w`` in C order in float64, or exact in int64.

    The weights of the axes are multiplied with the pixel one after the other (`each`), or with each other first.
    """
    exact = each or math.prod(int(t.weight.sum(axis=1).max()) for t in taps) < 2**53
    if compiled and exact and sum(not t.is_copy for t in taps) <= 3:
        from ziggurat import _jit_taps

        return _jit_taps.sums(v, taps, dtype, each)
    return _float_sums(v, taps, each) if dtype == _FLOAT else _exact_sums(v.astype(dtype), taps)


def _float_sums(v: Array, taps: Sequence[Taps], each: bool) -> NDArray[np.float64]:
    acc = np.zeros([len(t.index) for t in taps])
    for index, weights in _each(taps):
        term, read = pick(v, index).astype(np.float64), _read(weights)
        for axis, weight in enumerate(weights if each else []):
            term *= _on(weight, axis, v.ndim)
        term = term if each else term * _outer(weights).astype(np.float64)
        np.add(acc, term, out=acc, where=True if read is None else read)
    return acc


def _exact_sums(v: Array, taps: Sequence[Taps]) -> Array:
    """Return weighted integer sums, axis by axis: they are exact, so order does not matter."""
    for axis, t in enumerate(taps):
        if t.is_copy:
            v = _along(v, t.index[:, 0], axis)
        else:
            source = v
            v = np.zeros((*v.shape[:axis], len(t.index), *v.shape[axis + 1 :]), dtype=v.dtype)
            for index, weight in zip(t.index.T, t.weight.T, strict=True):
                v += _along(source, index, axis) * _on(weight, axis, v.ndim)
    return v


def _int_mean(v: Array, taps: Sequence[Taps], weights: Array, compiled: bool) -> Array:
    """Return exact means, half to even, in the narrowest arithmetic that holds every sum."""
    heaviest, info, half = math.prod(int(t.weight.sum(axis=1).max()) for t in taps), np.iinfo(v.dtype), 4 * v.itemsize
    if heaviest * max(info.max, -info.min) < 2**63:
        return _divide(_sums(v, taps, _INT, compiled), weights).astype(v.dtype)
    if heaviest << half < 2**63:
        return _two_limb_mean(v, taps, weights.astype(np.int64), half)
    return _divide(_exact_sums(v.astype(object), taps), weights).astype(v.dtype)


def _two_limb_mean(v: Array, taps: Sequence[Taps], weights: Array, half: int) -> Array:
    """Return the means of ``v = high * 2**half + low``, whose sums hold where those of v do not."""
    high = _exact_sums((v >> half).astype(np.int64), taps)
    low = _exact_sums((v & v.dtype.type((1 << half) - 1)).astype(np.int64), taps)
    quotient, rest = np.divmod(high, weights)
    below = _divide((rest.astype(np.uint64) << np.uint64(half)) + low.astype(np.uint64), weights.astype(np.uint64))
    return ((quotient.astype(np.uint64) << np.uint64(half)) + below).astype(v.dtype)


def _divide(total: Array, weights: Array) -> Array:
    """Return ``total / weights`` half to even."""
    quotient = total // weights
    rest = total - quotient * weights
    odd = (quotient & quotient.dtype.type(1) if quotient.dtype != object else quotient % 2) == 1
    up = (rest > weights - rest) | ((rest == weights - rest) & odd)
    rounded: Array = quotient + up.astype(quotient.dtype)
    return rounded


def _extreme(v: Array, taps: Sequence[Taps], before: Callable[[Array, Array], Array]) -> Array:
    # Last axis first: what is kept of equal values is then the first in C order.
    for axis, t in reversed(list(enumerate(taps))):
        best = _along(v, t.index[:, 0], axis)
        for k in range(1, t.n):
            other = _along(v, t.index[:, k], axis)
            best = np.where(before(other, best) | (other != other), other, best)
        v = best
    return _without_nan_bits(v)


def _gather(v: Array, taps: Sequence[Taps], valid: Valid) -> tuple[Array, NDArray[np.bool_]]:
    """Return the pixels of every target, (taps, ...) in C order, and which of them count."""
    shape = (math.prod(t.n for t in taps), *(len(t.index) for t in taps))
    pixels, counts = np.empty(shape, dtype=v.dtype), np.ones(shape, dtype=np.bool_)
    for k, (index, weights) in enumerate(_each(taps)):
        pixels[k] = pick(v, index)
        if valid is not None:
            counts[k] = pick(valid, index)
        read = _read(weights)
        if read is not None:
            counts[k] &= read
    return pixels, counts


def _first_zero(found: Array, pixels: Array, counts: NDArray[np.bool_]) -> Array:
    """Return `found` with each zero replaced by the first zero in C order, which may be negative."""
    if found.dtype.kind != "f":
        return found
    first = np.argmax((pixels == 0) & counts, axis=0)
    return np.where(found == 0, np.take_along_axis(pixels, first[None], axis=0)[0], found)


def _without_nan_bits(v: Array) -> Array:
    """Return `v` with every NaN the same NaN: sign and payload depend on the order of operands in machine code."""
    return np.where(v != v, v.dtype.type(np.nan), v) if v.dtype.kind == "f" else v


def _greatest(dtype: np.dtype[Any]) -> Any:
    return dtype.type(np.inf if dtype.kind == "f" else np.iinfo(dtype).max)


def _least(dtype: np.dtype[Any]) -> Any:
    return dtype.type(-np.inf if dtype.kind == "f" else np.iinfo(dtype).min)


_METHODS: dict[str, Callable[[Array, Sequence[Taps], Valid, bool], Array]] = {
    "mean": _mean,
    "median": _median,
    "mode": _mode,
    "min": _minimum,
    "max": _maximum,
    "linear": _interpolate,
    "cubic": _interpolate,
    "gaussian": _gaussian,
}
