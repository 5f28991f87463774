"""The chunks of one axis, equal and unequal ones alike. Pure arithmetic.

An axis is the sequence of its chunks' first pixels. Where all chunks have one size that sequence is a `range`: it costs
nothing, however many chunks there are. Nothing else tells equal from unequal chunks apart.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from operator import index

import numpy as np
from numpy.typing import NDArray

from ziggurat.boxes import Interval
from ziggurat.errors import GeometryError

__all__ = ["ChunkAxis", "Part", "Picked"]

type Picked = int | range
"""The pixels of one axis: one, which leaves the output without that axis, or several."""

type Part = tuple[int, int | slice, slice | None, bool]
"""Chunk, selection in it, selection in the output (None where it has no such axis), and whether all is taken."""


@dataclass(frozen=True, slots=True)
class ChunkAxis:
    """The chunks of one axis.

    Attributes
    ----------
    n : int
        Pixels.
    starts : range or tuple of int
        First pixel of each chunk; a range where all have one size.
    """

    n: int
    starts: range | tuple[int, ...]

    @classmethod
    def of(cls, n: int, sizes: int | Sequence[int]) -> "ChunkAxis":
        """Return the axis of `n` pixels in chunks of one size, or of the given `sizes`.

        Raises
        ------
        GeometryError
            When a size is not positive, or the sizes do not add up to `n`.
        """
        if not isinstance(sizes, Sequence):
            return cls(n, range(0, n, _positive(index(sizes))))
        edges = [0, *accumulate(_positive(index(s)) for s in sizes if n or s)]
        if edges[-1] != n:
            raise GeometryError(f"chunks of {tuple(sizes)} pixels are {edges[-1]} together, the axis has {n}")
        return cls.of_starts(n, edges[:-1])

    @classmethod
    def of_starts(cls, n: int, starts: Sequence[int]) -> "ChunkAxis":
        """Return the axis of `n` pixels whose chunks begin at `starts`."""
        sizes = {b - a for a, b in pairwise(starts)}
        if len(sizes) <= 1 and (size := max(sizes, default=n)) >= n - (starts[-1] if starts else 0):
            return cls(n, range(0, n, max(1, size)))
        return cls(n, tuple(starts))

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def size(self) -> int:
        """Pixels of the largest chunk; where all have one size, also if the axis has fewer pixels."""
        if isinstance(self.starts, range):
            return self.starts.step
        return max(b - a for a, b in pairwise((*self.starts, self.n)))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Pixels of each chunk."""
        return tuple(b - a for a, b in map(self.interval, range(len(self))))

    @property
    def is_regular(self) -> bool:
        """Whether all chunks have one size, but for the last."""
        return isinstance(self.starts, range)

    def divides(self, size: int) -> bool:
        """Whether every chunk begins at a multiple of `size` pixels."""
        if isinstance(self.starts, range):
            return self.starts.step % size == 0 or len(self.starts) <= 1
        return not any(start % size for start in self.starts)

    def interval(self, i: int) -> Interval:
        """Return the pixels of chunk `i`."""
        return self.starts[i], self.starts[i + 1] if i + 1 < len(self.starts) else self.n

    def meeting(self, start: int, stop: int) -> range:
        """Return the chunks that the pixels ``[start, stop)`` meet."""
        if start >= stop:
            return range(0)
        if isinstance(self.starts, range):
            return range(start // self.starts.step, -(-stop // self.starts.step))
        return range(bisect_right(self.starts, start) - 1, bisect_left(self.starts, stop))

    def find(self, pixels: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the chunk of each of the `pixels`."""
        if isinstance(self.starts, range):
            return pixels // self.starts.step
        return np.searchsorted(np.array(self.starts), pixels, "right") - 1

    def bounds(self, chunks: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the first pixel of each of the `chunks`, and the one after its last."""
        if isinstance(self.starts, range):
            start = chunks * self.starts.step
            return start, np.minimum(start + self.starts.step, self.n)
        edges = np.array((*self.starts, self.n))
        return edges[chunks], edges[chunks + 1]

    def snap(self, start: int, stop: int) -> Interval:
        """Return the pixels of all chunks that ``[start, stop)`` meets."""
        chunks = self.meeting(start, stop)
        return self.interval(chunks[0])[0], self.interval(chunks[-1])[1]

    def grouped(self, size: int) -> "ChunkAxis":
        """Return the axis in groups of whole chunks: as many as `size` pixels hold, but at least one."""
        if size >= self.n:
            return ChunkAxis(self.n, range(0, self.n, max(1, self.n)))
        if isinstance(self.starts, range):
            return ChunkAxis(self.n, range(0, self.n, max(size // self.starts.step, 1) * self.starts.step))
        return ChunkAxis.of_starts(self.n, [a for a, _ in self.cut(0, self.n, size)])

    def cut(self, start: int, stop: int, size: int) -> Iterator[Interval]:
        """Cut whole chunks, ``[start, stop)``, into groups of at most `size` pixels, but at least one chunk."""
        while start < stop:
            last = self.meeting(start, min(stop, start + max(1, size)))[-1]
            a, b = self.interval(last)
            end = min(stop, b if a <= start or b - start <= size else a)
            yield start, end
            start = end

    def project(self, picked: Picked) -> Iterator["Part"]:
        """Yield what `picked` takes of each chunk that it meets, in order."""
        if isinstance(picked, int):
            (i,) = self.meeting(picked, picked + 1)
            start, stop = self.interval(i)
            yield i, picked - start, None, stop - start == 1
            return
        first, step, n = picked.start, picked.step, len(picked)
        for i in self.meeting(first, picked[-1] + 1) if n else ():
            start, stop = self.interval(i)
            a, b = max(0, -(-(start - first) // step)), min(n, -(-(stop - first) // step))
            if a < b:
                inside = slice(first + a * step - start, first + (b - 1) * step - start + 1, step)
                yield i, inside, slice(a, b), b - a == stop - start


def _positive(size: int) -> int:
    if size < 1:
        raise GeometryError(f"a chunk has at least one pixel, not {size}: correct the chunks")
    return size
