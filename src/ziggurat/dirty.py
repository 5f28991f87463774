"""What a regional rebuild does: the dirty write units of a level, how each is rebuilt, and the tasks that own them.

Pure arithmetic, on many boxes at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ziggurat.chunkgrid import ChunkGrid
from ziggurat.grid import Shape
from ziggurat.regions import Boxes, clip
from ziggurat.stages import Stage
from ziggurat.steps import Step

__all__ = ["Dirty", "DirtyUnits", "Owners", "dirty_of", "dirty_units", "n_meetings", "share_out"]

COUNTED_UNITS = 100_000
"""Meetings of boxes and units up to which a plan counts units exactly; above it they are estimated."""

TASK_BYTES = 32 << 20
"""What a task should read and write, to be worth the two milliseconds that it takes itself."""

TASK_UNITS = 16
"""How many units are as good a reason: each takes requests, which on a distant store are what takes time."""

type Indices = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Dirty:
    """What is dirty in one level, and the work that it makes.

    Attributes
    ----------
    boxes : array of shape (n, ndim, 2)
        The dirty pixels of the level.
    units : DirtyUnits, optional
        Its dirty write units; None where there are very many.
    n_units, n_patched, bytes_read : int
        Dirty write units, those of them that are patched, and the bytes that all of them read; estimates, with
        `n_patched` 0, where there are very many.
    """

    boxes: Boxes
    units: "DirtyUnits | None"
    n_units: int
    n_patched: int
    bytes_read: int


@dataclass(frozen=True, slots=True, eq=False)
class Owners:
    """The tasks of a stage that own dirty pixels.

    Attributes
    ----------
    cells : tuple of tuple of int
        Their grid indices.
    members : tuple of tuple of array of int
        The dirty boxes that each of them meets, of each level of the stage.
    """

    cells: tuple[Shape, ...]
    members: tuple[tuple[Indices, ...], ...]


def dirty_of(step: Step, boxes: Boxes, below: Dirty | None) -> Dirty:
    """Find the dirty units of a level and what they read; `below` is what is dirty in a level of the same stage."""
    met = n_meetings(boxes, step.target.units)
    if met > COUNTED_UNITS or (below and below.units is None):
        n_units = min(met, step.target.n_units)
        n_bytes = 0 if below else int(n_units / step.target.n_units * step.source.nbytes)
        return Dirty(boxes, None, n_units, 0, n_bytes)
    units = dirty_units(step, boxes, below.units if below else None)
    return Dirty(boxes, units, len(units), int(units.is_patched.sum()), int(units.bytes_read.sum()))


def share_out(steps: Sequence[Step], stage: Stage, dirty: Sequence[Dirty], max_tasks: int) -> tuple[Stage, Owners]:
    """Share the dirty boxes of a stage's levels out to its tasks.

    Neighbouring tasks are joined, twice as many at a time, until there are few enough of them, and each is worth it.

    Parameters
    ----------
    steps : sequence of Step
        What leads to each level of the stage.
    dirty : sequence of Dirty
        What is dirty in each of them.
    """
    level = steps[-1].target
    n_bytes = sum(d.bytes_read + d.n_units * s.unit_bytes for s, d in zip(steps, dirty, strict=True))
    n_units = sum(d.n_units for d in dirty)
    most = max(1, min(max_tasks, max(n_bytes // TASK_BYTES, n_units // TASK_UNITS)))
    lifted = [_lifted(steps[i + 1 :], d.boxes) for i, d in enumerate(dirty)]
    boxes = np.concatenate(lifted)
    while True:
        grid = stage.tasks(level)
        if n_meetings(boxes, grid) <= max(COUNTED_UNITS, len(boxes)):
            cells, which = expand(boxes, grid)
            firsts, order = _groups(cells)
            if len(firsts) <= most:
                break
        axis = max(range(len(stage.grid)), key=lambda i: stage.grid[i])
        stage = replace(stage, step=(*stage.step[:axis], 2 * stage.step[axis], *stage.step[axis + 1 :]))
        stage = replace(stage, grid=stage.tasks(level).shape)
    owners = tuple(map(tuple, cells[order][firsts].tolist()))
    ends = np.cumsum([len(each) for each in lifted])
    return stage, Owners(owners, tuple(_by_level(np.sort(m), ends) for m in np.split(which[order], firsts[1:])))


def _by_level(members: Indices, ends: Indices) -> tuple[Indices, ...]:
    """Tell the boxes of one level from those of another; all of them were numbered together."""
    parts = np.split(members, np.searchsorted(members, ends[:-1]))
    return tuple(part - first for part, first in zip(parts, (0, *ends), strict=False))


def _lifted(steps: Sequence[Step], boxes: Boxes) -> Boxes:
    """Return the targets that are built together with `boxes`, some levels above; trailing pixels go with the last."""
    for step in steps:
        p, q, m = (np.array([getattr(e, name) for e in step.edges])[None] for name in "pqm")
        first, last = boxes[:, :, 0] * q // p, (boxes[:, :, 1] - 1) * q // p
        boxes = np.stack([np.minimum(first, m - 1), np.minimum(last, m - 1) + 1], axis=2)
    return boxes


def n_meetings(boxes: Boxes, grid: ChunkGrid) -> int:
    """Return how many pairs of a box and a chunk of `grid` meet."""
    return int(_met(boxes, grid)[1].prod(axis=1).sum())


def _met(boxes: Boxes, grid: ChunkGrid) -> tuple[Indices, Indices]:
    """Return the grid index of the first chunk that each box meets, and how many it meets, along each axis."""
    ends = boxes - (0, 1)
    found = np.stack([axis.find(ends[:, i]) for i, axis in enumerate(grid.axes)], axis=1)
    return found[..., 0], found[..., 1] - found[..., 0] + 1


def expand(boxes: Boxes, grid: ChunkGrid) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Find the chunks of `grid` that each box meets.

    Returns
    -------
    cells : array of shape (k, ndim)
        Grid indices, one row per meeting.
    which : array of shape (k,)
        The box that meets it.
    """
    first, count = _met(boxes, grid)
    total = count.prod(axis=1)
    which = np.repeat(np.arange(len(boxes)), total)
    place = np.arange(len(which)) - np.repeat(np.cumsum(total) - total, total)
    cells = first[which]
    for i in reversed(range(cells.shape[1])):
        place, inside = np.divmod(place, count[which, i])
        cells[:, i] += inside
    return cells, which


@dataclass(frozen=True, slots=True, eq=False)
class DirtyUnits:
    """The write units of a level that dirty boxes meet, and how each is best rebuilt.

    Attributes
    ----------
    cells : array of shape (n, ndim)
        Grid indices of the units, in C order.
    units : array of shape (n, ndim, 2)
        Their boxes, clipped to the level.
    boxes : array of shape (k, ndim, 2)
        Dirty pixels, each box inside one unit, in the order of the units.
    offsets : array of shape (n + 1,)
        ``boxes[offsets[i]:offsets[i + 1]]`` lie in unit i.
    is_patched : array of shape (n,)
        Whether the stored unit is read, and the windows of its dirty pixels, where that reads less than computing all
        of the unit.
    bytes_read : array of shape (n,)
        Uncompressed bytes of the chunks that the better way reads; what the stage has built itself is not read.
    parents : array of int
        Which of the units each dirty unit of the level below is built with, -1 for none; empty where the stage builds
        no level below.
    """

    cells: Indices
    units: Boxes
    boxes: Boxes
    offsets: Indices
    is_patched: NDArray[np.bool_]
    bytes_read: NDArray[np.float64]
    parents: Indices

    def __len__(self) -> int:
        return len(self.units)

    def patches(self, i: int) -> Boxes:
        """Return the dirty boxes of unit `i`; none where it is computed whole."""
        return self.boxes[self.offsets[i] : self.offsets[i + 1] if self.is_patched[i] else self.offsets[i]]


def dirty_units(step: Step, boxes: Boxes, below: DirtyUnits | None = None) -> DirtyUnits:
    """Cut dirty target `boxes` at the unit grid, gather them by unit, and choose how to rebuild each by bytes read.

    Where the dirty units of the source are given, `below`, they are in memory while those above them are rebuilt.
    """
    level = step.target
    cells, which = expand(boxes, level.units)
    firsts, order = _groups(cells)
    cells, which = cells[order], which[order]
    met = np.stack([np.stack(a.bounds(cells[:, i]), axis=1) for i, a in enumerate(level.units.axes)], axis=1)
    clipped = clip(boxes[which], met)
    units = met[firsts]
    above = np.zeros(0, np.int64)
    unit_bytes = float(level.bytes_of(level.unit))
    if below is not None:
        above = _parents(step, below.units, cells[firsts])
        whole = np.where(_is_all_below(step, units, above), 0.0, np.inf)
        patched = np.full(len(units), unit_bytes)
    else:
        whole = _window_bytes(step, units)
        patches = _window_bytes(step, clipped)
        patched = np.add.reduceat(patches, firsts) + unit_bytes if len(firsts) else whole
    offsets = np.append(firsts, len(cells))
    return DirtyUnits(cells[firsts], units, clipped, offsets, patched < whole, np.minimum(patched, whole), above)


def _parents(step: Step, units: Boxes, cells: Indices) -> Indices:
    """Return which of the target's units `cells` (in C order) each of the source's `units` is built with, -1 for none.

    The source's units nest in the target's.
    """
    first, shape = _lifted([step], units)[:, :, 0], step.target.grid
    above = [axis.find(first[:, i]) for i, axis in enumerate(step.target.units.axes)]
    wanted, known = np.ravel_multi_index(tuple(above), shape), np.ravel_multi_index(tuple(cells.T), shape)
    place = np.minimum(np.searchsorted(known, wanted), max(0, len(known) - 1))
    return np.where(known[place] == wanted, place, -1) if len(known) else np.full(len(units), -1)


def _is_all_below(step: Step, units: Boxes, above: Indices) -> NDArray[np.bool_]:
    """Say of each target unit whether all units of the source that it is built with are dirty, as `above` says."""
    n_dirty = np.bincount(1 + above, minlength=len(units) + 1)[1:]
    n_below = np.ones(len(units), np.int64)
    for i, (edge, axis) in enumerate(zip(step.edges, step.source.units.axes, strict=True)):
        start, stop = units[:, i, 0] * edge.p // edge.q, units[:, i, 1] * edge.p // edge.q
        stop = np.where(units[:, i, 1] == edge.m, edge.n, stop)
        n_below *= axis.find(stop - 1) - axis.find(start) + 1
    return np.asarray(n_dirty == n_below)


def _window_bytes(step: Step, boxes: Boxes) -> NDArray[np.float64]:
    """Return the bytes of the source chunks that the windows of target `boxes` meet."""
    n_pixels = np.ones(len(boxes))
    for axis, (edge, reach, chunks) in enumerate(zip(step.edges, step.halos, step.source.chunks.axes, strict=True)):
        start = np.maximum(0, boxes[:, axis, 0] * edge.p // edge.q - reach)
        stop = np.minimum(edge.n, -(-boxes[:, axis, 1] * edge.p // edge.q) + reach)
        if chunks.is_regular:
            n_pixels *= (chunks.find(stop - 1) - chunks.find(start) + 1) * min(chunks.size, edge.n)
        else:
            n_pixels *= chunks.bounds(chunks.find(stop - 1))[1] - chunks.bounds(chunks.find(start))[0]
    return n_pixels * step.source.dtype.itemsize


def _groups(cells: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return an order of `cells` that brings equal rows together, and where in it each group begins."""
    order = np.lexsort(cells.T[::-1])
    is_first = np.ones(len(cells), bool)
    is_first[1:] = (cells[order][1:] != cells[order][:-1]).any(axis=1)
    return np.flatnonzero(is_first), order
