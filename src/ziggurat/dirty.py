"""What a regional rebuild does: the dirty write units of a level, how each is rebuilt, and the tasks that own them.

Pure arithmetic, on many boxes at once.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ziggurat.chunkgrid import ChunkGrid
from ziggurat.grid import Shape
from ziggurat.regions import Boxes
from ziggurat.stages import Stage
from ziggurat.steps import Step

__all__ = ["Dirty", "DirtyUnits", "dirty_units", "plan_dirty"]

COUNTED_UNITS = 100_000
"""Meetings of boxes and units up to which a plan counts units exactly; above it they are estimated."""


@dataclass(frozen=True, slots=True, eq=False)
class Dirty:
    """What is dirty in one level, and the work that it makes.

    Attributes
    ----------
    boxes : array of shape (n, ndim, 2)
        The dirty pixels of the level.
    cells : tuple of tuple of int
        Grid indices of the stage's tasks that own a dirty pixel.
    members : tuple of array of int
        The boxes that each of those tasks meets.
    n_units, n_patched, bytes_read : int
        Dirty write units, those of them that are patched, and the bytes that all of them read; estimates, with
        `n_patched` 0, where there are very many.
    """

    boxes: Boxes
    cells: tuple[Shape, ...]
    members: tuple[NDArray[np.int64], ...]
    n_units: int
    n_patched: int
    bytes_read: int


def plan_dirty(step: Step, stage: Stage, boxes: Boxes, max_tasks: int) -> tuple[Stage, Dirty]:
    """Share the dirty `boxes` of a level out to the tasks of its single-level stage.

    Neighbouring tasks are joined, twice as many at a time, until there are few enough.
    """
    while n_meetings(boxes, stage.tasks(step.target)) > max_tasks and max(stage.grid) > 1:
        axis = max(range(len(stage.grid)), key=lambda i: stage.grid[i])
        stage = replace(stage, step=(*stage.step[:axis], 2 * stage.step[axis], *stage.step[axis + 1 :]))
        stage = replace(stage, grid=stage.tasks(step.target).shape)
    cells, which = expand(boxes, stage.tasks(step.target))
    firsts, order = _groups(cells)
    members = tuple(np.split(which[order], firsts[1:])) if len(firsts) else ()
    owners = tuple(tuple(map(int, c)) for c in cells[order][firsts])
    met = n_meetings(boxes, step.target.units)
    n_units = min(met, step.target.n_units)
    if met > COUNTED_UNITS:
        return stage, Dirty(boxes, owners, members, n_units, 0, int(n_units / step.target.n_units * step.source.nbytes))
    units = dirty_units(step, boxes)
    counts = (len(units), int(units.is_patched.sum()), int(units.bytes_read.sum()))
    return stage, Dirty(boxes, owners, members, *counts)


def n_meetings(boxes: Boxes, grid: ChunkGrid) -> int:
    """Return how many pairs of a box and a chunk of `grid` meet."""
    counts = [a.find(boxes[:, i, 1] - 1) - a.find(boxes[:, i, 0]) + 1 for i, a in enumerate(grid.axes)]
    return int(np.prod(counts, axis=0).sum())


def expand(boxes: Boxes, grid: ChunkGrid) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Find the chunks of `grid` that each box meets.

    Returns
    -------
    cells : array of shape (k, ndim)
        Grid indices, one row per meeting.
    which : array of shape (k,)
        The box that meets it.
    """
    cells = np.zeros((len(boxes), 0), np.int64)
    which = np.arange(len(boxes))
    for i, axis in enumerate(grid.axes):
        first = axis.find(boxes[which, i, 0])
        count = axis.find(boxes[which, i, 1] - 1) - first + 1
        repeats = np.repeat(np.arange(len(which)), count)
        offset = np.arange(len(repeats)) - np.repeat(np.cumsum(count) - count, count)
        cells = np.column_stack([cells[repeats], first[repeats] + offset])
        which = which[repeats]
    return cells, which


@dataclass(frozen=True, slots=True, eq=False)
class DirtyUnits:
    """The write units of a level that dirty boxes meet, and how each is best rebuilt.

    Attributes
    ----------
    units : array of shape (n, ndim, 2)
        Boxes of the units, clipped to the level.
    boxes : array of shape (k, ndim, 2)
        Dirty pixels, each box inside one unit, in the order of the units.
    offsets : array of shape (n + 1,)
        ``boxes[offsets[i]:offsets[i + 1]]`` lie in unit i.
    is_patched : array of shape (n,)
        Whether reading the stored unit and the windows of its dirty pixels reads less than the unit's whole window.
    bytes_read : array of shape (n,)
        Uncompressed bytes of the chunks that the better way reads.
    """

    units: Boxes
    boxes: Boxes
    offsets: NDArray[np.int64]
    is_patched: NDArray[np.bool_]
    bytes_read: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.units)

    def patches(self, i: int) -> Boxes:
        """Return the dirty boxes of unit `i`; none where it is computed whole."""
        return self.boxes[self.offsets[i] : self.offsets[i + 1] if self.is_patched[i] else self.offsets[i]]


def dirty_units(step: Step, boxes: Boxes) -> DirtyUnits:
    """Cut dirty target `boxes` at the unit grid, gather them by unit, and choose how to rebuild each by bytes read."""
    level = step.target
    cells, which = expand(boxes, level.units)
    firsts, order = _groups(cells)
    cells, which = cells[order], which[order]
    met = np.stack([np.stack(a.bounds(cells[:, i]), axis=1) for i, a in enumerate(level.units.axes)], axis=1)
    clipped = np.stack(
        [np.maximum(boxes[which, :, 0], met[:, :, 0]), np.minimum(boxes[which, :, 1], met[:, :, 1])], axis=2
    )
    units = met[firsts]
    whole = _window_bytes(step, units)
    patches = _window_bytes(step, clipped)
    patched = np.add.reduceat(patches, firsts) + level.bytes_of(level.unit) if len(firsts) else whole
    offsets = np.append(firsts, len(cells))
    return DirtyUnits(units, clipped, offsets, patched < whole, np.minimum(patched, whole))


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
