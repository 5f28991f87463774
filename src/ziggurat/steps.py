"""What leads from one level to the next."""

from dataclasses import dataclass
from functools import cached_property

from ziggurat.boxes import Box
from ziggurat.geometry import Edges, halo, window
from ziggurat.grid import Level, Shape, ceil_div
from ziggurat.kernels import scratch_bytes

__all__ = ["Step"]


@dataclass(frozen=True)
class Step:
    """What leads from one level to the next: the two levels, the geometry and the method.

    Attributes
    ----------
    lends : bool
        Whether the source hands over pixels of its own, one chunk at a time.
    """

    source: Level
    target: Level
    edges: Edges
    method: str
    nodata: float | int | None = None
    lends: bool = False

    @cached_property
    def halos(self) -> Shape:
        """Source pixels read beyond the span, per axis."""
        return tuple(halo(self.method, e) for e in self.edges)

    @cached_property
    def is_copy(self) -> bool:
        """Whether each target pixel is one source pixel."""
        return all(e.is_identity for e in self.edges) and not any(self.halos)

    @cached_property
    def takes_chunks(self) -> bool:
        """Whether each source chunk can be reduced alone: no window crosses the border of one."""
        axes = zip(self.edges, self.source.chunks.axes, strict=True)
        return not any(self.halos) and all(e.q == 1 and chunks.divides(e.p) for e, chunks in axes)

    @property
    def unit_bytes(self) -> int:
        """Bytes of the largest write unit of the target."""
        return self.target.bytes_of(self.target.clipped_unit)

    @property
    def in_memory_bytes(self) -> int:
        """Live bytes of a step whose source, which is read by several threads, and target are held whole."""
        scratch = scratch_bytes(self.method, self.edges, self.source.dtype, self.target.shape)
        reading = max(self.source.reader_bytes, self.source.nbytes // 4)
        return self.source.nbytes + reading + 2 * self.target.nbytes + scratch

    def window(self, box: Box) -> Box:
        """Return the source box that the target `box` is computed from."""
        return window(self.edges, box, self.halos)

    def window_bytes(self, shape: Shape) -> int:
        """Return the bytes of the largest window of a target box of `shape` pixels."""
        axes = zip(self.edges, shape, self.halos, strict=True)
        return self.source.bytes_of([min(e.n, ceil_div(t * e.p, e.q) + (e.q > 1) + 2 * h) for e, t, h in axes])

    def sent(self, box: Box) -> Box:
        """Return the targets that the owned source `box` yields; empty where it holds only trailing pixels."""
        axes = zip(self.edges, box, strict=True)
        return tuple((min(e.m, a * e.q // e.p), e.m if b == e.n else min(e.m, b * e.q // e.p)) for e, (a, b) in axes)
