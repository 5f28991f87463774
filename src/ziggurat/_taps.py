"""What the targets of one axis read: source indices and weights, from the geometry of one edge alone."""

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ziggurat.geometry import Edge

__all__ = ["Taps", "of", "positions"]


@dataclass(frozen=True, slots=True)
class Taps:
    """The taps of consecutive targets of one axis.

    Attributes
    ----------
    index : array of int, (targets, taps)
        Source pixels of the whole axis, within its bounds.
    weight : array, (targets, taps)
        int64 (overlap in units of 1/q) or float64. A tap of weight 0 is not read.
    """

    index: NDArray[np.int64]
    weight: NDArray[Any]

    @property
    def n(self) -> int:
        """Number of taps per target."""
        return int(self.index.shape[1])

    @property
    def is_copy(self) -> bool:
        """Whether each target is its one source pixel."""
        return self.n == 1 and bool((self.weight == 1).all())

    def seen_from(self, origin: int) -> "Taps":
        """Return the same taps with indices that count from the source pixel `origin`."""
        return Taps(self.index - origin, self.weight)


def of(method: str, edge: Edge, start: int, stop: int) -> Taps:
    """Return what the targets ``[start, stop)`` of `edge` read with `method`."""
    if method == "linear":
        return _linear(edge, start, stop)
    if method == "cubic":
        return _cubic(edge, start, stop)
    return _gaussian(edge, start, stop) if method == "gaussian" else _overlap(edge, start, stop)


def _overlap(edge: Edge, start: int, stop: int) -> Taps:
    """Return all pixels that the targets ``[start, stop)`` overlap, weighted by overlap, in exact integers."""
    p, q = edge.p, edge.q
    target = np.arange(start, stop, dtype=np.int64)
    first, last = target * p // q, np.minimum(edge.n, -(-(target + 1) * p // q)) - 1
    source = first[:, None] + np.arange((last - first).max() + 1)
    shared = np.minimum((source + 1) * q, (target[:, None] + 1) * p) - np.maximum(source * q, target[:, None] * p)
    return Taps(np.minimum(source, last[:, None]), np.where(source <= last[:, None], shared, 0))


def _linear(edge: Edge, start: int, stop: int) -> Taps:
    """Return the two taps around each target's centre."""
    low, t = _centres(edge, start, stop)
    return _clamped(edge, low, [1.0 - t, t])


def _cubic(edge: Edge, start: int, stop: int) -> Taps:
    """Return Keys' four taps (a = -0.5) around each target's centre.

    R. G. Keys, "Cubic convolution interpolation for digital image processing", IEEE TASSP 29 (1981), eq. 15.
    """
    low, t = _centres(edge, start, stop)
    weights = [
        ((-0.5 * t + 1.0) * t - 0.5) * t,
        (1.5 * t - 2.5) * t * t + 1.0,
        ((-1.5 * t + 2.0) * t + 0.5) * t,
        (0.5 * t - 0.5) * t * t,
    ]
    return _clamped(edge, low - 1, weights)


def _gaussian(edge: Edge, start: int, stop: int) -> Taps:
    """Return the taps of a Gaussian of sigma (r-1)/2, truncated at 4 sigma, sampled linearly at each centre."""
    low, t = _centres(edge, start, stop)
    kernel = _gaussian_kernel((edge.p / edge.q - 1) / 2)
    padded = [0.0, *kernel, 0.0]
    weights = [(1.0 - t) * here + t * before for before, here in itertools.pairwise(padded)]
    return _clamped(edge, low - len(kernel) // 2, weights)


def positions(edge: Edge, method: str, start: int, stop: int) -> NDArray[np.int64]:
    """Return the one source pixel that ``nearest`` or ``stride`` takes for each of the targets ``[start, stop)``."""
    target = np.arange(start, stop, dtype=np.int64)
    if method == "stride":
        return target * edge.p // edge.q
    if edge.q == 1:
        return np.minimum(target * edge.p + edge.p // 2, edge.n - 1)
    return (2 * target + 1) * edge.n // (2 * edge.m)


def _centres(edge: Edge, start: int, stop: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the pixel at or below each target's centre, and how far beyond it the centre lies."""
    x = (np.arange(start, stop, dtype=np.float64) + 0.5) * (edge.p / edge.q) - 0.5
    low: NDArray[np.float64] = np.floor(x)
    return low.astype(np.int64), x - low


def _clamped(edge: Edge, first: NDArray[np.int64], weights: list[NDArray[np.float64]]) -> Taps:
    """Return the taps from `first` on, clamped to the axis, without those that no target reads."""
    kept = [k for k, w in enumerate(weights) if w.any()]
    index = first[:, None] + np.array(kept)
    return Taps(np.clip(index, 0, edge.n - 1), np.stack([weights[k] for k in kept], axis=1))


def _gaussian_kernel(sigma: float) -> list[float]:
    """Return the normalised weights of a Gaussian truncated at 4 sigma.

    With math, not numpy: numpy's exp differs between processors in the last bit.
    """
    radius = int(4 * sigma + 0.5)
    if radius == 0:
        return [1.0]
    weights = [math.exp(-0.5 / (sigma * sigma) * k * k) for k in range(-radius, radius + 1)]
    total = math.fsum(weights)
    return [w / total for w in weights]
