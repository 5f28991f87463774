"""How the pixels of one level cover the pixels of the next finer one, axis by axis, in exact integers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from ziggurat.boxes import Box, Interval, grown
from ziggurat.errors import GeometryError

__all__ = ["Edge", "Edges", "Stretch", "Window", "edges_from_factors", "halo", "infer_edges", "own", "window"]


@dataclass(frozen=True, slots=True)
class Edge:
    """One axis of one step of a pyramid: `n` source pixels become `m` target pixels.

    Target ``i`` covers the source interval ``[i*p/q, (i+1)*p/q)``: `p` and `q` are in lowest terms. Use `Window` or
    `Stretch`.
    """

    n: int
    m: int
    p: int = field(init=False, repr=False, compare=False, default=1)
    q: int = field(init=False, repr=False, compare=False, default=1)

    @property
    def is_identity(self) -> bool:
        """Whether each target pixel is one source pixel."""
        return self.p == self.q

    def span(self, start: int, stop: int) -> Interval:
        """Return the source pixels that the targets ``[start, stop)`` need."""
        return start * self.p // self.q, min(self.n, -(-stop * self.p // self.q))

    def own(self, start: int, stop: int) -> Interval:
        """Return the source pixels that are built and written together with the targets ``[start, stop)``.

        `start` (and `stop`, unless it is the end) lies on a multiple of `q`, so that sources are owned once.
        """
        return start * self.p // self.q, self.n if stop == self.m else stop * self.p // self.q

    def hit(self, start: int, stop: int) -> Interval:
        """Return the targets that the sources ``[start, stop)`` can change; an empty interval means none."""
        first = start * self.q // self.p
        return first, max(first, min(self.m, -(-stop * self.q // self.p)))


@dataclass(frozen=True, slots=True)
class Window(Edge):
    """`f` source pixels per target; the last window may be short, or trailing sources may lie in none.

    Raises
    ------
    GeometryError
        When `m` windows of `f` pixels do not fit `n` source pixels: ``n/(m+1) < f < n/(m-1)`` must hold.
    """

    f: int

    def __post_init__(self) -> None:
        if not fits(self.n, self.m, self.f):
            raise GeometryError(
                f"factor {self.f} does not lead from {self.n} pixels to {self.m}: "
                f"it gives {max(1, self.n // max(1, self.f))} or {-(-self.n // max(1, self.f))}; "
                "correct factors=, or leave it out"
            )
        object.__setattr__(self, "p", self.f)


@dataclass(frozen=True, slots=True)
class Stretch(Edge):
    """The whole source axis stretched over the whole target axis: ``n/m`` source pixels per target.

    The identity where the sizes are equal.

    Raises
    ------
    GeometryError
        When the target has more pixels than the source.
    """

    def __post_init__(self) -> None:
        if not 0 <= self.m <= self.n:
            raise GeometryError(
                f"{self.m} target pixels cannot be computed from {self.n} source pixels; list the levels finest first"
            )
        if self.m:
            divisor = math.gcd(self.n, self.m)
            object.__setattr__(self, "p", self.n // divisor)
            object.__setattr__(self, "q", self.m // divisor)


type Edges = tuple[Edge, ...]


def fits(n: int, m: int, f: int) -> bool:
    """Say whether `m` windows of `f` pixels cover `n` source pixels but for less than a window."""
    return f >= 1 and 1 <= m <= n and (m - 1) * f < n < (m + 1) * f


def infer_edges(source: Sequence[int], target: Sequence[int], ratio: Sequence[float | None] | None = None) -> Edges:
    """Find the geometry that leads from the shape `source` to the shape `target`.

    Parameters
    ----------
    source, target : sequence of int
        Shapes of two consecutive levels, finest first.
    ratio : sequence of float or None, optional
        Target scale over source scale of each axis, where the metadata says it.

    Returns
    -------
    tuple of Edge

    Raises
    ------
    GeometryError
        When the target is larger than the source along an axis.

    Examples
    --------
    >>> infer_edges((501,), (250,))
    (Window(n=501, m=250, f=2),)
    >>> infer_edges((501,), (250,), (2.004,))
    (Stretch(n=501, m=250),)
    """
    ratios = ratio if ratio is not None else (None,) * len(source)
    return tuple(_infer(n, m, r) for n, m, r in zip(source, target, ratios, strict=True))


def _infer(n: int, m: int, ratio: float | None) -> Edge:
    factor = None if m >= n or m < 1 else _nearest_factor(n, m, Fraction(n, m) if ratio is None else Fraction(ratio))
    if factor is None:
        return Stretch(n, m)
    if ratio is not None and abs(Fraction(n, m) - Fraction(ratio)) < abs(factor - Fraction(ratio)):
        return Stretch(n, m)
    return Window(n, m, factor)


def _nearest_factor(n: int, m: int, wanted: Fraction) -> int | None:
    """Return the valid factor nearest to `wanted`, the smaller on a tie; None when there is none."""
    lowest = n // (m + 1) + 1
    nearest = max(lowest, math.ceil(wanted - Fraction(1, 2)))
    if m > 1:
        nearest = min(nearest, (n - 1) // (m - 1))
    return nearest if nearest >= lowest else None


def edges_from_factors(source: Sequence[int], target: Sequence[int], factors: int | Sequence[int]) -> Edges:
    """Build windows from explicit `factors`: one for all axes whose size changes, or one per axis.

    Raises
    ------
    GeometryError
        When a factor does not lead from the source size to the target size, or their number is wrong.
    """
    if isinstance(factors, int):
        per_axis = tuple(factors if n != m else 1 for n, m in zip(source, target, strict=True))
    else:
        per_axis = tuple(factors)
    if len(per_axis) != len(source):
        raise GeometryError(f"factors {per_axis} name {len(per_axis)} axes, the levels have {len(source)}")
    return tuple(
        Stretch(n, m) if n == m == 1 else Window(n, m, f) for n, m, f in zip(source, target, per_axis, strict=True)
    )


def own(edges: Edges, box: Box) -> Box:
    """Return the source box that is built and written together with the target `box`."""
    return tuple(e.own(*ab) for e, ab in zip(edges, box, strict=True))


def window(edges: Edges, box: Box, halos: Sequence[int]) -> Box:
    """Return the source box that the target `box` is computed from, with `halos` pixels around it in bounds."""
    spans = tuple(e.span(*ab) for e, ab in zip(edges, box, strict=True))
    return grown(spans, halos, [e.n for e in edges])


def halo(method: str, edge: Edge) -> int:
    """Return how many source pixels beyond its span a target of `method` reads along `edge`.

    ``cubic`` has Keys' four taps around x; ``gaussian`` is truncated at 4 sigma, sigma = (r-1)/2, around the taps
    of ``linear``. Every other method stays in its span.
    """
    if edge.is_identity:
        return 0
    if method == "cubic":
        return 1 if edge.p < 3 * edge.q else 0
    if method == "gaussian":
        return int(4 * (edge.p / edge.q - 1) / 2 + 0.5)
    return 0
