"""What a task holds at most. Pure arithmetic."""

from collections.abc import Sequence

from ziggurat.grid import Shape, ceil_div
from ziggurat.kernels import scratch_bytes
from ziggurat.steps import Step

__all__ = ["peak_bytes"]


def peak_bytes(run: Sequence[Step], blocks: Sequence[Shape], piece: Shape, writes: Sequence[Shape]) -> int:
    """Return the live bytes of a task that builds the levels of `run` in one pass.

    Two source pieces, the blocks, the larger of reading and writing, and the kernels' scratch. A chunk that is lent
    is read into no other memory (what it was computed from counts as another), and is the block where it covers it.

    Parameters
    ----------
    blocks, writes : sequence of tuple of int
        Pixels of one block, and of one write block in it, of each level, finest first.
    piece : tuple of int
        Pixels of the first level that one source piece yields.
    """
    first, source = run[0], run[0].source
    held = [s.target.bytes_of(b) for s, b in zip(run, blocks, strict=True)]
    write = max(3 * s.target.bytes_of(s.target.unit) + s.target.bytes_of(w) for s, w in zip(run, writes, strict=True))
    # What is reduced at once: a piece of the first level, what one block below yields of those above.
    children = zip(run[1:], blocks[:-1], strict=True)
    yields = [tuple(ceil_div(b * e.q, e.p) for b, e in zip(block, s.edges, strict=True)) for s, block in children]
    scratch = max(
        scratch_bytes(s.method, s.edges, s.source.dtype, shape) for s, shape in zip(run, [piece, *yields], strict=True)
    )
    if first.lends:
        is_covered = all(b <= c for b, c in zip(blocks[0], source.chunk, strict=True))
        chunk = source.bytes_of(tuple(map(min, source.chunk, source.shape)))
        return 2 * chunk + sum(held[1:] if is_covered else held) + write + scratch
    window = first.window_bytes(piece)
    read = max(window + 2 * source.bytes_of(source.chunk), source.reader_bytes)
    return 2 * window + sum(held) + max(read, write) + scratch
