"""The methods: how target pixels are computed from the source pixels under them.

`reduce` fills a box of a target. It depends on the source pixels, the method and the geometry of the axes alone: not
on how the target is cut into boxes, nor on memory layout or byte order. Two paths give the same bytes: plain numpy for
everything, and numba for whole windows where there is enough to do to pay for loading it.
"""

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ziggurat import _generic, _hot, _taps
from ziggurat.boxes import Box, cut, is_empty, slices
from ziggurat.errors import DTypeError, MethodError
from ziggurat.geometry import Edge, Edges, halo, window

__all__ = ["METHODS", "check", "chunk_loop", "expect", "reduce", "scratch_bytes"]

METHODS: tuple[str, ...] = (
    "mean", "median", "mode", "min", "max", "linear", "cubic", "gaussian", "nearest", "stride",
)  # fmt: skip

_DTYPES = ("b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16")
_SAMPLING = ("nearest", "stride")
_WITH_NODATA = ("mean", "median", "mode", "min", "max")
_WITH_COMPLEX = ("mean", "linear", "nearest", "stride")

# Source pixels that the numpy path works on at a time: its temporaries then stay in a core's cache.
_PIECE_PIXELS = 2**16

# numba is loaded (and compiles, once per machine) when numpy has worked on that many bytes of a method and dtype.
_NUMBA_PAYS_BYTES = 64 * 2**20
_worked_bytes: dict[tuple[str, str], int] = {}

type Array = NDArray[Any]
type DType = np.dtype[Any]
type Sizes = Sequence[int]


def check(method: str, dtype: DTypeLike, nodata: complex | None = None) -> None:
    """Refuse what `reduce` cannot do.

    Parameters
    ----------
    method : str
        One of `METHODS`.
    dtype : dtype
        Of source and target; in either byte order.
    nodata : number, optional
        Value of the pixels to leave out.

    Raises
    ------
    MethodError
        When there is no such method, it takes no `nodata`, or `dtype` cannot hold `nodata`.
    DTypeError
        When the method is not defined for `dtype`.

    Examples
    --------
    >>> check("mean", "uint16", nodata=0)
    >>> check("mean", "uint16", nodata=-1)
    Traceback (most recent call last):
    ...
    ziggurat.errors.MethodError: nodata=-1 is no value of uint16; give one that the pixels can have
    """
    if method not in METHODS:
        raise MethodError(f"there is no method {method!r}; choose one of {', '.join(METHODS)}")
    kind = np.dtype(dtype)
    if kind.str[1:] not in _DTYPES:
        raise DTypeError(f"pixels of dtype {kind} cannot be downsampled; use bool, integers, floats or complex numbers")
    if kind.kind == "c" and method not in _WITH_COMPLEX:
        raise DTypeError(f"method {method!r} is not defined for {kind}; choose one of {', '.join(_WITH_COMPLEX)}")
    if nodata is not None:
        _check_nodata(method, kind, nodata)


def _check_nodata(method: str, dtype: DType, nodata: complex) -> None:
    if method not in _WITH_NODATA:
        raise MethodError(f"method {method!r} takes no nodata; leave it out or choose {', '.join(_WITH_NODATA)}")
    if not _holds(dtype, nodata):
        raise MethodError(f"nodata={nodata!r} is no value of {dtype.name}; give one that the pixels can have")


def _holds(dtype: DType, value: object) -> bool:
    """Say whether `value` is a value of `dtype`, but for the rounding of a finite one to a float."""
    number = value.item() if isinstance(value, np.generic) else value
    if dtype.kind == "c" and isinstance(number, complex):
        real = np.dtype(f"f{dtype.itemsize // 2}")
        return _holds(real, number.real) and _holds(real, number.imag)
    if not isinstance(number, int | float):
        return False
    if dtype.kind in "fc":
        return not math.isfinite(number) or abs(number) <= float(np.finfo(dtype).max)
    low, high = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    return math.isfinite(number) and number == int(number) and low <= number <= high


def reduce(
    src: Array, origin: Sizes, edges: Edges, box: Box, out: Array, method: str, nodata: complex | None = None
) -> None:
    """Fill `out` with the target pixels `box`.

    Parameters
    ----------
    src : array
        Source pixels; they cover `ziggurat.geometry.window` of `edges` and `box` with the method's halo.
    origin : sequence of int
        The source pixel that `src` begins with, in pixels of the whole source.
    edges : tuple of Edge
        The geometry of each axis.
    box : tuple of (start, stop)
        Target pixels to compute.
    out : array, of the shape of `box`
        Where they are written; any strides, the dtype of `src` in either byte order.
    method : str
        One of `METHODS`, which `check` accepts for the dtype.
    nodata : number, optional
        Pixels of this value are left out; a window with no other pixel gives `nodata`.

    Examples
    --------
    >>> from ziggurat.geometry import Window
    >>> target = np.empty(3, dtype="uint8")
    >>> reduce(np.array([1, 3, 5, 9, 11], dtype="uint8"), (0,), (Window(5, 3, 2),), ((0, 3),), target, "mean")
    >>> target.tolist()
    [2, 7, 11]
    """
    if is_empty(box) or (nodata is None and _reduce_whole(src, origin, edges, box, out, method)):
        return
    start = [a for a, _ in box]
    with np.errstate(all="ignore"):
        for part in _parts(edges, box):
            needed = window(edges, part, _halos(method, edges))
            _reduce_part(src[slices(needed, origin)], edges, part, out[slices(part, start)], method, nodata)


def _reduce_whole(src: Array, origin: Sizes, edges: Edges, box: Box, out: Array, method: str) -> bool:
    """Fill `out` by one compiled loop, where `src` is the windows of `box`, all whole; say whether that was done.

    That is what chunks are, and finding out what else they might be takes as long as the loop.
    """
    walk = None if method in _SAMPLING else whole_loop(src, origin, edges, box, out, method)
    if walk is not None:
        walk.reduce(src, out)
    return walk is not None


def whole_loop(src: Array, origin: Sizes, edges: Edges, box: Box, out: Array, method: str) -> _hot.Walk | None:
    """Return the compiled loop from `src`, the windows of `box` if all are whole, to `out`; None for no such."""
    each, factors = zip(edges, box, origin, src.shape, strict=True), tuple(edge.p for edge in edges)
    if any(e.q > 1 or first != start * e.p or n != (stop - start) * e.p for e, (start, stop), first, n in each):
        return None
    if not is_loaded(method, src.dtype) or not _hot.can(method, src.dtype, edges, factors):
        return None
    return _hot.walk(src, factors, out, method)


def chunk_loop(method: str, edges: Edges, shape: Sizes, chunk: Sizes, dtype: DType, out: Array) -> _hot.Walk | None:
    """Return the compiled loop from whole windows, boxes of `shape` in chunks, to parts of `out`; None for no such."""
    factors = tuple(edge.p for edge in edges)
    if not is_loaded(method, dtype) or not _hot.can(method, dtype, edges, factors):
        return None
    return _hot.chunk_walk(method, dtype, tuple(shape), tuple(chunk), factors, out)


def expect(method: str, dtype: DTypeLike, n_bytes: int) -> None:
    """Say how many bytes of pixels are to be read, so that numba is loaded soon; who knows how many are stored."""
    key = method, np.dtype(dtype).char
    if n_bytes > 4 * _NUMBA_PAYS_BYTES:
        _worked_bytes[key] = max(3 * _NUMBA_PAYS_BYTES // 4, _worked_bytes.get(key, 0))


def _parts(edges: Edges, box: Box) -> Iterator[Box]:
    """Cut `box` into whole windows and, along each axis, the last window where it is short."""
    axes = []
    for (start, stop), edge in zip(box, edges, strict=True):
        whole = max(start, min(stop, edge.n // edge.p)) if edge.q == 1 else stop
        axes.append([(a, b) for a, b in ((start, whole), (whole, stop)) if a < b])
    return itertools.product(*axes)


def _reduce_part(src: Array, edges: Edges, box: Box, out: Array, method: str, nodata: complex | None) -> None:
    """Fill `out` with the targets `box` from exactly their window."""
    if method in _SAMPLING and all(e.q == 1 for e in edges):
        _pays(method, src)
        _sample(src, edges, box, out, method)
    elif method not in _SAMPLING and src.dtype.kind == "c" and nodata is None:
        _reduce_part(src.real, edges, box, out.real, method, None)
        _reduce_part(src.imag, edges, box, out.imag, method, None)
    else:
        factors = _factors(edges, box)
        compiled = _pays(method, src)
        hot = compiled and nodata is None and _hot.can(method, src.dtype, edges, factors)
        if hot and (walk := _hot.walk(src, factors, out, method)):
            walk.reduce(src, out)
        else:
            _reduce_pieces(src, edges, box, out, method, nodata, compiled, factors if hot else None)


def _reduce_pieces(
    src: Array,
    edges: Edges,
    box: Box,
    out: Array,
    method: str,
    nodata: complex | None,
    compiled: bool,
    factors: tuple[int, ...] | None,
) -> None:
    """Fill `out` piece by piece from native copies: by a loop over whole windows where `factors` are given."""
    halos = _halos(method, edges)
    first, start = [a for a, _ in window(edges, box, halos)], [a for a, _ in box]
    taps_of = functools.lru_cache(2 * len(edges))(functools.partial(_taps.of, method))  # pieces share most axes
    for piece in cut(box, _piece_shape(out.shape, edges, halos, method)):
        needed = window(edges, piece, halos)
        pixels, target = src[slices(needed, first)], out[slices(piece, start)]
        if method in _SAMPLING:
            _sample(pixels, edges, piece, target, method)
        elif factors:
            _hot.reduce_copy(_native(pixels), factors, target, method)
        else:
            each = zip(edges, piece, needed, strict=True)
            taps = [taps_of(e, *ab).seen_from(low) for e, ab, (low, _) in each]
            target[...] = _generic.compute(_native(pixels), taps, method, nodata, compiled)


def _sample(src: Array, edges: Edges, box: Box, out: Array, method: str) -> None:
    """Fill `out` with the one pixel that each target takes."""
    needed = window(edges, box, _halos(method, edges))
    each = zip(edges, box, needed, strict=True)
    out[...] = _generic.pick(src, [_taps.positions(e, method, *ab) - first for e, ab, (first, _) in each])


def _factors(edges: Edges, box: Box) -> tuple[int, ...]:
    """Return the source pixels per target of a part; 0 where they are not one whole number."""
    each = zip(edges, box, strict=True)
    return tuple(min(e.p, e.n - start * e.p) if e.q == 1 else 0 for e, (start, _) in each)


def _pays(method: str, src: Array) -> bool:
    """Say whether numba is worth its loading: numpy does what takes less."""
    key = method, src.dtype.char
    _worked_bytes[key] = _worked_bytes.get(key, 0) + src.nbytes
    return is_loaded(method, src.dtype)


def is_loaded(method: str, dtype: DType) -> bool:
    """Say whether numba has paid for its loading; samples are as quickly taken by numpy, if not without the GIL."""
    pays_bytes = _NUMBA_PAYS_BYTES * (8 if method in _SAMPLING else 1)
    return _worked_bytes.get((method, dtype.char), 0) > pays_bytes


def _native(v: Array) -> Array:
    """Return `v` in native byte order, bool as uint8: every method treats it as 0 and 1."""
    native = v.astype(v.dtype.newbyteorder("="), copy=False)
    return native.view(np.uint8) if native.dtype.kind == "b" else native


def _halos(method: str, edges: Edges) -> tuple[int, ...]:
    return tuple(halo(method, e) for e in edges)


def _piece_shape(shape: Sequence[int], edges: Edges, halos: Sequence[int], method: str) -> tuple[int, ...]:
    """Return how many targets per axis to compute at a time: rows as long as they come, or cubes under a halo."""
    step = list(shape)
    while max(step) > 1 and _n_read(step, edges, halos, method) > _PIECE_PIXELS:
        axis = step.index(max(step)) if any(halos) else next(k for k, n in enumerate(step) if n > 1)
        step[axis] = -(-step[axis] // 2)
    return tuple(step)


def _n_read(shape: Sequence[int], edges: Edges, halos: Sequence[int], method: str) -> int:
    """Return the most source pixels under a box of `shape`, or of their copies where each target gathers its own."""
    windows = [-(-n * e.p // e.q) + (e.q > 1) + 2 * h for n, e, h in zip(shape, edges, halos, strict=True)]
    pixels = math.prod(min(e.n, n) for e, n in zip(edges, windows, strict=True))
    gathered = math.prod(n * _n_taps(e) for n, e in zip(shape, edges, strict=True))
    return max(pixels, gathered) if method in ("median", "mode") else pixels


def _n_taps(edge: Edge) -> int:
    return edge.p if edge.q == 1 else min(edge.n, edge.p // edge.q + 2)


def scratch_bytes(method: str, edges: Edges, dtype: DTypeLike, shape: Sequence[int]) -> int:
    """Return what `reduce` allocates at most beside source and target, for a target box of `shape`, in bytes.

    Copies in wider types of one piece, the taps of its axes, and a row of sums.
    """
    kind, halos = np.dtype(dtype), _halos(method, edges)
    step = _piece_shape(shape, edges, halos, method)
    taps = sum(n * (_n_taps(e) + 2 * h) for n, e, h in zip(step, edges, halos, strict=True))
    as_objects = kind.kind in "iu" and math.prod(e.p for e in edges) << 4 * kind.itemsize >= 2**63
    each = 40 + 4 * kind.itemsize + 160 * as_objects
    return 2**18 + each * _n_read(step, edges, halos, method) + 96 * taps + 32 * max(shape, default=0)
