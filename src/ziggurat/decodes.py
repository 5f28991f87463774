"""How often the chunks of a source are decoded where the pieces that it is read in part them. Pure arithmetic."""

import math
from collections.abc import Iterator
from itertools import islice

from ziggurat.boxes import Interval, around
from ziggurat.chunkaxis import ChunkAxis
from ziggurat.grid import Shape
from ziggurat.steps import Step

__all__ = ["decodes_along"]


def decodes_along(step: Step, block: Shape, piece: Shape, axis: int) -> float:
    """Return how often a source chunk is decoded because of the cuts along `axis`, judged by the first thousand.

    Parameters
    ----------
    block, piece : tuple of int
        Pixels of one block of the target, and of what one source piece yields of it.
    """
    chunks, blocks = step.source.chunks.axes[axis], step.target.units.axes[axis].grouped(block[axis])
    if _splits_none(step, axis, blocks, piece[axis]):
        return 1.0
    touched = last = 0
    for a, b in islice(_cuts(blocks, piece[axis]), 1000):
        met = chunks.meeting(*around(step.edges[axis].span(a, b), step.halos[axis], chunks.n))
        last, touched = met.stop, touched + len(met)
    return max(1.0, touched / max(1, last))


def _splits_none(step: Step, axis: int, blocks: ChunkAxis, piece: int) -> bool:
    """Say whether all cuts along `axis` surely lie between chunks of the source: then none need be looked at."""
    edge, chunks, size = step.edges[axis], step.source.chunks.axes[axis], blocks.size
    if step.halos[axis] or not (blocks.is_regular and chunks.is_regular):
        return False
    every = size if size <= piece else math.gcd(size, piece)
    return every >= edge.m or every * edge.p % (edge.q * chunks.size) == 0


def _cuts(blocks: ChunkAxis, piece: int) -> Iterator[Interval]:
    for start, stop in map(blocks.interval, range(len(blocks))):
        yield from ((a, min(stop, a + piece)) for a in range(start, stop, piece))
