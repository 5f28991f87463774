"""How levels are built in passes: stages, and the sizes of their pieces, blocks and tasks. Pure arithmetic.

A stage is a run of levels built in one pass over its source. Its layout is one of:

* whole: few bytes; one task holds every level whole, up to the coarsest.
* nested: a block of every level is computed from whole blocks of the level below, and from whole source chunks.
  Nothing is decoded twice and several levels share the pass.
* overlapping: one level; each block of whole write units reads the window it needs, borders included. For methods
  with a halo, and for grids that do not nest within the ceiling.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ziggurat.boxes import Box
from ziggurat.chunkgrid import ChunkGrid
from ziggurat.decodes import decodes_along
from ziggurat.geometry import Edge, own
from ziggurat.grid import Level, Shape, ceil_div, grid_shape, round_up, write_block
from ziggurat.peaks import peak_bytes
from ziggurat.steps import Step

__all__ = ["Stage", "plan_stage", "source_box"]

ONE_TASK_BYTES = 32 << 20
"""A source of at most this many bytes (or four ceilings) is one task: more would cost more than they gain."""

USUAL_CEILING = 8 << 20
"""Bytes of a write block that are always allowed."""

MIN_BLOCKS = 32
"""A stage does not go on to a level with fewer blocks, so that workers have enough to do."""

CEILINGS = 8
"""How many ceilings a task may hold where grids do not nest, to decode less."""

LENT_BYTES = 2 << 20
"""Bytes of a block up to which chunks that are lent are copied together: each block takes time, too."""


@dataclass(frozen=True, slots=True)
class Stage:
    """Levels `first` to `last`, built in one pass over level ``first - 1``.

    Attributes
    ----------
    blocks, writes : tuple of tuple of int
        Pixels of one block, and of one write block in it, of each level, finest first.
    piece : tuple of int
        Pixels of level `first` that one source piece yields.
    step, grid : tuple of int
        Pixels of level `last` that one task owns, and tasks per axis.
    peak_bytes : int
        Live bytes of one task, at most.
    decodes : float
        How often each source chunk is decoded, on average.
    """

    first: int
    last: int
    blocks: tuple[Shape, ...]
    writes: tuple[Shape, ...]
    piece: Shape
    step: Shape
    grid: Shape
    peak_bytes: int
    decodes: float

    @property
    def n_tasks(self) -> int:
        """Number of tasks."""
        return math.prod(self.grid)

    def tasks(self, level: Level) -> ChunkGrid:
        """Return the grid of the tasks: groups of write units of the last `level`."""
        return level.units.grouped(self.step)


@dataclass(frozen=True, slots=True)
class _Layout:
    blocks: tuple[Shape, ...]
    piece: Shape


def source_box(stage: Stage, steps: Sequence[Step], box: Box) -> Box:
    """Return the box of the stage's source that the task of `box` reads."""
    for step in reversed(steps[stage.first : stage.last]):
        box = own(step.edges, box)
    return steps[stage.first - 1].window(box)


def plan_stage(steps: Sequence[Step], first: int, ceiling: int, tasks_left: int) -> Stage:
    """Plan the stage that begins with level `first`; ``steps[k - 1]`` leads to level k.

    Parameters
    ----------
    ceiling : int
        Bytes that a write block and a source piece stay under, unless one unit, or one chunk, is larger.
    tasks_left : int
        Tasks that the stage may use.
    """
    run = tuple(steps[first - 1 :])
    # A higher ceiling would leave workers without work, and hold much of a small image at once.
    source = run[0].source
    ceiling = min(ceiling, max(USUAL_CEILING, source.nbytes // MIN_BLOCKS, source.bytes_of(source.chunk)))
    if run[0].source.nbytes <= min(ONE_TASK_BYTES, 4 * ceiling):
        layout = _whole(run, ceiling)
    else:
        layout = _nested(run, ceiling, tasks_left) or _overlapping(run[0], ceiling)
    run = run[: len(layout.blocks)]
    step, grid = _tasks(run[-1].target, layout.blocks[-1], tasks_left)
    layout = _lean(run, layout)
    writes = tuple(write_block(s.target, b, ceiling) for s, b in zip(run, layout.blocks, strict=True))
    peak = peak_bytes(run, layout.blocks, layout.piece, writes)
    decodes = math.prod(decodes_along(run[0], layout.blocks[0], layout.piece, i) for i in range(len(grid)))
    return Stage(first, first + len(run) - 1, layout.blocks, writes, layout.piece, step, grid, peak, decodes)


def _whole(run: Sequence[Step], ceiling: int) -> _Layout:
    blocks = tuple(s.target.shape for s in run)
    return _Layout(blocks, _piece(run[0], blocks[0], blocks[0], ceiling))


def _nested(run: Sequence[Step], ceiling: int, tasks_left: int) -> _Layout | None:
    """Lay out as many levels as nest, fit and leave enough blocks; None where not even the first nests."""
    if any(run[0].halos) or not (run[0].source.is_regular and run[0].target.is_regular):
        return None
    limit = max(ceiling, run[0].unit_bytes)
    aligns, shape = _alignments(run[:1]), run[0].target.shape
    align = aligns[0]
    if run[0].target.bytes_of(align) > limit:
        fits_together = run[0].target.bytes_of(align) <= CEILINGS * limit
        return _Layout((align,), _piece(run[0], align, align, ceiling)) if fits_together else None
    piece = _piece(run[0], align, shape, ceiling)
    layout = _hold(run[:1], aligns, piece)
    wanted = max(MIN_BLOCKS, min(run[0].source.nbytes >> 30, 3 * tasks_left // 4))
    # Where the first level has fewer already, going on costs no worker anything.
    wanted = min(wanted, math.prod(grid_shape(shape, layout.blocks[0])))
    for n in range(2, len(run) + 1):
        if any(run[n - 1].halos) or not run[n - 1].target.is_regular:
            break
        aligns = _alignments(run[:n])
        if aligns[0] != align:
            align = aligns[0]
            piece = _piece(run[0], align, shape, ceiling)
        higher = _hold(run[:n], aligns, piece)
        if not _fits(run[:n], aligns, higher, ceiling, wanted):
            break
        layout = higher
    return layout


def _hold(run: Sequence[Step], aligns: Sequence[Shape], piece: Shape) -> _Layout:
    """Lay out the smallest blocks that nest and hold what a piece yields."""
    blocks: list[Shape] = []
    child = piece
    for step, align in zip(run, aligns, strict=True):
        axes = zip(child, align, step.target.shape, strict=True)
        blocks.append(tuple(min(m, round_up(max(1, c), a)) for c, a, m in axes))
        following = run[len(blocks)].edges if len(blocks) < len(run) else ()
        child = tuple(ceil_div(b * e.q, e.p) for b, e in zip(blocks[-1], following, strict=False))
    return _Layout(tuple(blocks), piece)


def _fits(run: Sequence[Step], aligns: Sequence[Shape], layout: _Layout, ceiling: int, wanted: int) -> bool:
    units = [s.unit_bytes for s in run]
    held = [s.target.bytes_of(a) for s, a in zip(run, aligns, strict=True)]
    blocks = [s.target.bytes_of(b) for s, b in zip(run, layout.blocks, strict=True)]
    return (
        all(a <= max(ceiling, u) for a, u in zip(held, units, strict=True))
        and sum(blocks) <= max(4 * ceiling, 2 * max(units))
        and math.prod(grid_shape(run[-1].target.shape, layout.blocks[-1])) >= wanted
    )


def _alignments(run: Sequence[Step]) -> list[Shape]:
    """Return what the blocks of each level are multiples of, so that they nest (the whole axis where it is not cut)."""
    ndim = len(run[0].edges)
    return list(zip(*(_axis_alignments(run, i) for i in range(ndim)), strict=True))


def _axis_alignments(run: Sequence[Step], axis: int) -> list[int]:
    edges = [s.edges[axis] for s in run]
    below = math.lcm(min(run[0].source.chunk[axis], edges[0].n), edges[0].p)
    found: list[int] = []
    for k, (step, edge) in enumerate(zip(run, edges, strict=True)):
        align = math.lcm(step.target.clipped_unit[axis], below * edge.q // edge.p)
        if k + 1 < len(run):
            align = math.lcm(align, edges[k + 1].p)
        if align >= edge.m or below >= edge.n:
            return found + [e.m for e in edges[k:]]
        found.append(align)
        below = align
    return found


def _piece(step: Step, align: Shape, limit: Shape, ceiling: int) -> Shape:
    """Return the targets of one source piece: from one source chunk up, as many as the ceiling holds.

    It grows first to whole shards of the source, then to whole units of the target: whole shards cost one request
    and a third of the CPU of slabs, whole units need no second piece.
    """
    least = piece = _chunk_targets(step, limit, ceiling)
    shard = tuple(_targets(e, u, m) for e, u, m in zip(step.edges, step.source.unit, limit, strict=True))
    for wanted in (shard, step.target.clipped_unit, limit):
        goal = tuple(min(m, round_up(w, t)) for m, w, t in zip(limit, wanted, least, strict=True))
        while True:
            grown = [(t / g, -i, _grow(piece, i, g)) for i, (t, g) in enumerate(zip(piece, goal, strict=True)) if t < g]
            fitting = [g for g in grown if _holds(step, g[2], align, ceiling)]
            if not fitting:
                break
            piece = min(fitting)[2]
    return piece


def _holds(step: Step, piece: Shape, align: Shape, ceiling: int) -> bool:
    block = tuple(min(m, round_up(t, a)) for t, a, m in zip(piece, align, step.target.shape, strict=True))
    return step.window_bytes(piece) <= ceiling and step.target.bytes_of(block) <= max(
        ceiling, step.target.bytes_of(align)
    )


def _grow(piece: Shape, axis: int, most: int) -> Shape:
    return (*piece[:axis], min(2 * piece[axis], most), *piece[axis + 1 :])


def _targets(edge: Edge, sources: int, most: int) -> int:
    """Return the targets that whole multiples of `sources` source pixels yield, the whole axis at most."""
    return min(most, math.lcm(min(sources, edge.n), edge.p) * edge.q // edge.p)


def _chunk_targets(step: Step, limit: Shape, ceiling: int) -> Shape:
    """Return the targets of whole source chunks; where those are too many (sizes that hardly nest) of about a chunk."""
    edges, chunk = step.edges, step.source.chunk
    piece = tuple(_targets(e, c, m) for e, c, m in zip(edges, chunk, limit, strict=True))
    while step.window_bytes(piece) > ceiling:
        least = [max(1, ceil_div(c * e.q, e.p)) for c, e in zip(chunk, edges, strict=True)]
        axis = max(range(len(piece)), key=lambda i: piece[i] / least[i])
        if piece[axis] <= least[axis]:
            break
        piece = (*piece[:axis], max(least[axis], piece[axis] // 2), *piece[axis + 1 :])
    return piece


def _lean(run: Sequence[Step], layout: _Layout) -> _Layout:
    """Cut blocks to what one chunk yields where the source lends it, or what some small ones yield together."""
    if not run[0].lends or any(h for s in run[1:] for h in s.halos):
        return layout
    aligns = _alignments(run)
    block = tuple(map(min, layout.blocks[0], aligns[0]))
    for axis in reversed(range(len(block))):
        while block[axis] < layout.blocks[0][axis] and 2 * run[0].target.bytes_of(block) <= LENT_BYTES:
            block = _grow(block, axis, layout.blocks[0][axis])
    return _hold(run, aligns, tuple(map(min, layout.piece, block)))


def _overlapping(step: Step, ceiling: int) -> _Layout:
    """Start from one write unit and grow the axis with most repeated decodes while two windows and the block fit."""
    layout = _overlap(step, step.target.clipped_unit, ceiling)
    while True:
        axes = [i for i, (b, m) in enumerate(zip(layout.blocks[0], step.target.shape, strict=True)) if b < m]
        if not axes:
            return layout
        axis = max(axes, key=lambda i: (decodes_along(step, layout.blocks[0], layout.piece, i), i))
        wider = _overlap(step, _grow(layout.blocks[0], axis, step.target.shape[axis]), ceiling)
        held = 2 * step.window_bytes(wider.piece) + step.target.bytes_of(wider.blocks[0])
        if held > CEILINGS * ceiling or decodes_along(step, layout.blocks[0], layout.piece, axis) <= 1:
            return layout
        layout = wider


def _overlap(step: Step, block: Shape, ceiling: int) -> _Layout:
    if 2 * step.window_bytes(block) + step.target.bytes_of(block) <= CEILINGS * ceiling:
        return _Layout((block,), block)
    return _Layout((block,), _piece(step, block, block, ceiling))


def _tasks(level: Level, block: Shape, tasks_left: int) -> tuple[Shape, Shape]:
    """Return pixels per task and tasks per axis: blocks, doubled along the least grouped axis until few enough."""
    step = block
    while math.prod(grid := level.units.grouped(step).shape) > max(1, tasks_left):
        axes = [i for i, n in enumerate(grid) if n > 1]
        axis = min(axes, key=lambda i: (step[i] // block[i], -grid[i]))
        step = (*step[:axis], 2 * step[axis], *step[axis + 1 :])
    return step, grid
