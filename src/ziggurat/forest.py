"""The dirty write units of a stage as trees: a unit, and the units of the level below that it is built with.

A regional rebuild goes through them depth first: what was rebuilt is reduced into the unit above while it is in memory,
and is never read back. Pure arithmetic.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from ziggurat.boxes import Box, intersect
from ziggurat.dirty import DirtyUnits, dirty_units
from ziggurat.geometry import own
from ziggurat.grid import Level
from ziggurat.regions import Boxes, as_box, clip
from ziggurat.stages import Stage, plan_stage
from ziggurat.steps import Step

__all__ = ["Forest", "regional_stages"]

type Indices = NDArray[np.int64]


def regional_stages(steps: Sequence[Step], ceiling: int, max_tasks: int) -> list[Stage]:
    """Plan the stages of a regional rebuild: those of a full one, cut where units are not built with one unit each."""
    stages: list[Stage] = []
    first = 1
    while first <= len(steps):
        last = first
        if _holds_shards(steps[first - 1]):
            while last < len(steps) and _nests(steps[last - 1].target, steps[last]):
                last += 1
        stages.append(plan_stage(steps[:last], first, ceiling, max_tasks))
        first = stages[-1].last + 1
    return stages


def _holds_shards(step: Step) -> bool:
    """Say whether windows of units are whole shards: a shard that several need is read for all of them at once."""
    axes = zip(step.edges, step.source.clipped_unit, step.target.clipped_unit, strict=True)
    return not step.source.is_sharded or all(u == e.m or u * e.p % (e.q * s) == 0 for e, s, u in axes)


def _nests(below: Level, step: Step) -> bool:
    """Say whether each unit of the level below is needed for one unit of the step's target alone, by whole windows."""
    axes = zip(step.edges, below.clipped_unit, step.target.clipped_unit, strict=True)
    return (
        below.is_regular
        and step.target.is_regular
        and not any(step.halos)
        and all(
            (c == e.n and u == e.m) or (e.q == 1 and c % e.p == 0 and (u == e.m or u * e.p % c == 0))
            for e, c, u in axes
        )
    )


@dataclass(frozen=True, slots=True, eq=False)
class Forest:
    """The dirty units of one task.

    Attributes
    ----------
    steps : tuple of Step
        What leads to each level of the stage.
    stage : Stage
        The stage.
    boxes : tuple of Box
        What the task owns of each of its levels.
    units : tuple of DirtyUnits
        The dirty units of each of its levels.
    order, starts : tuple of array of int
        Of each level but the last, its units in the order of those of the level above that they are built with: with
        unit j ``order[starts[j]:starts[j + 1]]``, and with none the ones before.
    is_whole : tuple of array of bool
        Whether a unit, and all that is built with it, is computed whole.
    """

    steps: tuple[Step, ...]
    stage: Stage
    boxes: tuple[Box, ...]
    units: tuple[DirtyUnits, ...]
    order: tuple[Indices, ...]
    starts: tuple[Indices, ...]
    is_whole: tuple[NDArray[np.bool_], ...]

    @classmethod
    def of(cls, steps: Sequence[Step], stage: Stage, box: Box, dirty: Sequence[Boxes]) -> "Forest":
        """Return the trees of the task that owns `box` of the stage's last level; `dirty` is one array per level."""
        run = tuple(steps[stage.first - 1 : stage.last])
        boxes = [box]
        for step in reversed(run[1:]):
            boxes.insert(0, own(step.edges, boxes[0]))
        units: list[DirtyUnits] = []
        for step, inside, changed in zip(run, boxes, dirty, strict=True):
            units.append(dirty_units(step, clip(changed, inside), units[-1] if units else None))
        above = [each.parents for each in units[1:]]
        is_whole = [~units[0].is_patched]
        for each, parent in zip(units[1:], above, strict=True):
            n_partial = np.bincount(1 + parent[~is_whole[-1]], minlength=len(each) + 1)[1:]
            is_whole.append(~each.is_patched & (n_partial == 0))
        order = [np.argsort(parent, kind="stable") for parent in above]
        each_above = zip(above, order, units[1:], strict=True)
        starts = [np.searchsorted(parent[o], np.arange(len(v) + 1)) for parent, o, v in each_above]
        return cls(run, stage, tuple(boxes), tuple(units), tuple(order), tuple(starts), tuple(is_whole))

    def roots(self, i: int) -> Indices:
        """Return the units of level `i` (of the stage's) that are built with no other."""
        return self.order[i][: self.starts[i][0]] if i < len(self.order) else np.arange(len(self.units[i]))

    def children(self, i: int, unit: int) -> Indices:
        """Return the units of the level below that are built with a `unit` of level `i`."""
        starts = self.starts[i - 1]
        return self.order[i - 1][starts[unit] : starts[unit + 1]]

    def box(self, i: int, unit: int) -> Box:
        """Return the pixels of a `unit` of level `i`."""
        return as_box(self.units[i].units[unit])

    def patches(self, i: int, unit: int) -> tuple[Box, ...]:
        """Return what is computed of a `unit` of level `i` where the rest of it is read; nothing where all is."""
        return tuple(map(as_box, self.units[i].patches(unit)))

    def blocks(self, i: int, units: Indices) -> tuple[list[Box], Indices]:
        """Part `units` of level `i` into blocks that are computed whole, at once, and the units that are left."""
        target = self.steps[i].target.units
        grid = target.grouped(self.stage.blocks[i])
        whole = units[self.is_whole[i][units]]
        if not len(whole):
            return [], units
        places = [axis.find(self.units[i].units[whole, n, 0]) for n, axis in enumerate(grid.axes)]
        cells, members, counts = np.unique(np.stack(places, axis=1), axis=0, return_inverse=True, return_counts=True)
        found = [intersect(self.boxes[i], grid.box(tuple(cell))) for cell in cells.tolist()]
        is_full = counts == [prod(map(len, target.meeting(box))) for box in found]
        left = np.setdiff1d(units, whole[is_full[members.reshape(-1)]])
        return [box for box, full in zip(found, is_full, strict=True) if full], left
