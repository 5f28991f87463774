"""Compiled weighted sums over any taps. Importing this module loads numba."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from ziggurat._jit import jitted
from ziggurat._jit_calls import inner
from ziggurat._taps import Taps

__all__ = ["sums"]

type Array = NDArray[Any]


def sums(v: Array, taps: Sequence[Taps], dtype: np.dtype[Any], each: bool) -> Array:
    """Return the sum of ``v * w`` in C order, in `dtype`: float64 or int64.

    The weights of the axes are multiplied with the pixel one after the other (`each`), or with each other first.
    At most three axes may have more than one tap.
    """
    v = v.astype(np.float32) if v.dtype == np.float16 else v  # which numba cannot read
    order = sorted(range(v.ndim), key=lambda axis: not taps[axis].is_copy)
    moved = [taps[axis] for axis in order]
    outer, inner = moved[:-3], [Taps(np.zeros((1, 1), np.int64), np.ones((1, 1)))] * (3 - v.ndim) + moved[-3:]
    source = v.transpose(order)
    for axis, t in enumerate(outer):
        source = source.take(t.index[:, 0], axis=axis)
    source = np.ascontiguousarray(source).reshape(-1, *([1] * (3 - v.ndim)), *source.shape[len(outer) :])
    target = np.zeros((len(source), *(len(t.index) for t in inner)), dtype)
    index = [np.ascontiguousarray(t.index.T) for t in inner]
    weight = [np.ascontiguousarray(t.weight.T, dtype=dtype) for t in inner]
    kernel = _compiled(source.dtype, dtype)
    for plane, sum_of in zip(source, target, strict=True):
        kernel(plane, sum_of, *index, *weight, each)
    shape = [len(t.index) for t in moved]
    return target.reshape(shape).transpose(np.argsort(order))


@functools.cache
def _compiled(pixel: np.dtype[Any], dtype: np.dtype[Any]) -> Callable[..., None]:
    weight = numba.from_dtype(dtype)
    signature = numba.void(
        numba.types.Array(numba.from_dtype(pixel), 3, "C", readonly=True),
        numba.types.Array(weight, 3, "C"),
        *[numba.types.Array(numba.int64, 2, "C")] * 3,
        *[numba.types.Array(weight, 2, "C")] * 3,
        numba.boolean,
    )
    return jitted(_add_taps, signature)


def _add_taps(src: Any, out: Any, iz: Any, iy: Any, ix: Any, wz: Any, wy: Any, wx: Any, each: bool) -> None:
    for z in range(out.shape[0]):
        for y in range(out.shape[1]):
            for kz in range(len(iz)):
                for ky in range(len(iy)):
                    if wz[kz, z] != 0 and wy[ky, y] != 0:
                        row = src[iz[kz, z], iy[ky, y]]
                        for kx in range(len(ix)):
                            _add_row(row, out[z, y], ix[kx], wz[kz, z], wy[ky, y], wx[kx], each)


@inner
def _add_row(row: Any, acc: Any, index: Any, wz: Any, wy: Any, wx: Any, each: bool) -> None:
    # A tap of weight 0 is not read: its NaN or infinity must not count. Adding 0 changes no sum from 0.
    if each:
        for x in range(len(acc)):
            term = row[index[x]] * wz * wy * wx[x]
            acc[x] += term if wx[x] != 0 else 0
    else:
        for x in range(len(acc)):
            term = row[index[x]] * (wz * wy * wx[x])
            acc[x] += term if wx[x] != 0 else 0
