"""The plan: all the work of one call as a frozen value, made without reading a pixel."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Literal

from ziggurat.boxes import Box
from ziggurat.dirty import Dirty, Owners, dirty_of, share_out
from ziggurat.forest import Forest, regional_stages
from ziggurat.gathering import n_requests
from ziggurat.grid import Level, Shape, write_block
from ziggurat.regions import Boxes, coverage, push_up
from ziggurat.stages import Stage, plan_stage, source_box
from ziggurat.steps import Step
from ziggurat.text import align, format_bytes, format_shape

__all__ = ["Limits", "Mode", "Plan", "Task", "make_plan"]

COUNTED_BOXES = 1000
"""Dirty boxes up to which a printed plan counts requests: more of them take a moment."""

type Mode = Literal["numpy", "dask"]


@dataclass(frozen=True, slots=True)
class Limits:
    """What the configuration allows.

    Attributes
    ----------
    ceiling : int
        Bytes that a write block and a source piece stay under.
    max_tasks : int
        Tasks of all stages together, at most.
    numpy_max_bytes : int
        Bytes to read up to which ``mode="auto"`` works in this process.
    max_coverage : float
        Share of level 0 above which regions are rebuilt with everything else.
    """

    ceiling: int
    max_tasks: int
    numpy_max_bytes: int
    max_coverage: float


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """One independent piece of a stage: a box of its last level, and what is dirty in each level (None: all of it)."""

    stage: int
    index: Shape
    box: Box
    dirty: tuple[Boxes, ...] | None = None


@dataclass(frozen=True, slots=True, repr=False)
class Plan:
    """What a call would do.

    Attributes
    ----------
    where : str
        The pyramid's place, for people.
    levels : tuple of Level
        Finest first; level 0 is read, the others are written.
    steps : tuple of Step
        What leads from each level to the next; levels that hold no pixel are left out.
    mode : {"numpy", "dask"}
        How the work runs.
    reason : str
        Why it runs that way.
    stages : tuple of Stage
        The passes; empty where everything is built in memory.
    writes : tuple of tuple of int
        Pixels of one write block of each level where everything is built in memory, else empty.
    dirty : tuple of Dirty, optional
        What is dirty in each level that the stages build, for a regional rebuild; None for a full one.
    owners : tuple of Owners
        The tasks of each stage of a regional rebuild.
    base : int
        Number of the first of `levels`: -1 where level 0 is written, too, from data that lies elsewhere.
    """

    where: str
    levels: tuple[Level, ...]
    steps: tuple[Step, ...]
    mode: Mode
    reason: str
    stages: tuple[Stage, ...] = ()
    writes: tuple[Shape, ...] = ()
    dirty: tuple[Dirty, ...] | None = None
    owners: tuple[Owners, ...] = ()
    base: int = 0

    @property
    def method(self) -> str:
        """How target pixels are computed."""
        return self.steps[0].method if self.steps else "none"

    @property
    def is_regional(self) -> bool:
        """Whether only what changed is rebuilt."""
        return self.dirty is not None

    @property
    def n_tasks(self) -> int:
        """Number of tasks: independent pieces of work."""
        if self.dirty is not None:
            return sum(len(o.cells) for o in self.owners)
        return sum(s.n_tasks for s in self.stages) or min(1, len(self.steps))

    @property
    def n_units(self) -> int:
        """Number of write units that are set, over all levels."""
        if self.dirty is not None:
            return sum(d.n_units for d in self.dirty)
        return sum(s.target.n_units for s in self.steps)

    @property
    def n_requests(self) -> int | None:
        """Requests of a regional rebuild, at most; None for a full one.

        Chunks, whole shards and writes take one each, a part of a shard two: its index, and the chunks needed; more
        only where these exceed zarr's limits for one request: gaps of 1 MiB, 16 MiB in all, by default.
        """
        if self.dirty is None:
            return None
        tasks = (task for i in range(len(self.stages)) for task in self.tasks(i))
        return sum(n_requests(Forest.of(self.steps, self.stages[t.stage], t.box, t.dirty or ())) for t in tasks)

    @property
    def bytes_read(self) -> int:
        """Uncompressed bytes of the sources, each chunk counted as often as it is decoded."""
        if self.dirty is not None:
            return sum(d.bytes_read for d in self.dirty)
        if self.stages:
            return sum(int(self.steps[s.first - 1].source.nbytes * s.decodes) for s in self.stages)
        return sum(s.source.nbytes for s in self.steps[:1])

    @property
    def bytes_written(self) -> int:
        """Uncompressed bytes of the units that are written."""
        if self.dirty is not None:
            return sum(d.n_units * s.unit_bytes for d, s in zip(self.dirty, self.steps, strict=False))
        return sum(s.target.nbytes for s in self.steps)

    @property
    def peak_bytes(self) -> int:
        """Live bytes of one task, at most; of the whole work where everything is built in memory."""
        if self.stages:
            return max(s.peak_bytes for s in self.stages)
        return max((s.in_memory_bytes for s in self.steps), default=0) if not self.is_regional else 0

    def tasks(self, i: int) -> Iterator[Task]:
        """Yield the tasks of stage `i`."""
        stage = self.stages[i]
        grid = stage.tasks(self.steps[stage.last - 1].target)
        if self.dirty is None:
            for index in product(*map(range, grid.shape)):
                yield Task(i, index, grid.box(index))
        else:
            dirty, owners = self.dirty[stage.first - 1 : stage.last], self.owners[i]
            for index, members in zip(owners.cells, owners.members, strict=True):
                boxes = tuple(d.boxes[m] for d, m in zip(dirty, members, strict=True))
                yield Task(i, index, grid.box(index), boxes)

    def waits(self, task: Task) -> Iterator[Shape]:
        """Return the grid indices of the tasks of the stage before that write what `task` of a full rebuild reads."""
        before = self.stages[task.stage - 1]
        needed = source_box(self.stages[task.stage], self.steps, task.box)
        return product(*before.tasks(self.steps[before.last - 1].target).meeting(needed))

    def __str__(self) -> str:
        """Return the plan as a text of a few lines, for people."""
        lines = [
            f"{self.where}: {self.method}, {self.mode} ({self.reason})",
            f"reads {format_bytes(self.bytes_read)}, writes {format_bytes(self.bytes_written)}: {self.n_units} units, "
            f"{self.n_tasks} tasks of at most {format_bytes(self.peak_bytes)}{self._asks()}",
        ]
        lines += align(
            [("level", "shape", "dtype", "chunk", "unit", "units", "from the finer level by"), *self._level_rows()]
        )
        if self.stages:
            lines += align([("stage", "levels", "tasks", "blocks", "peak", "how"), *self._stage_rows()])
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Return the plan for notebooks: a picture of what is read, rebuilt and left of each level."""
        from ziggurat.plan_face import plan_html

        return plan_html(self)

    def _asks(self) -> str:
        """Say how many requests there are, where counting them costs nothing to speak of."""
        if self.dirty is None or sum(len(d.boxes) for d in self.dirty) > COUNTED_BOXES:
            return ""
        return f", about {self.n_requests:,} requests"

    def _level_rows(self) -> Iterator[tuple[str, ...]]:
        for k, level in enumerate(self.levels):
            how = _geometry(self.steps[k - 1]) if 0 < k <= len(self.steps) else ""
            unit = format_shape(level.unit) if level.is_regular else f"at most {format_shape(level.unit)}"
            sizes = (format_shape(level.shape), str(level.dtype), format_shape(level.chunk), unit)
            number = k + self.base
            yield level.name if number < 0 else f"{number} {level.name}", *sizes, str(level.n_units), how

    def _stage_rows(self) -> Iterator[tuple[str, ...]]:
        for i, s in enumerate(self.stages, 1):
            blocks = ", ".join(map(format_shape, s.blocks))
            how = f"{s.decodes:.3g} decodes per chunk"
            n_tasks = s.n_tasks
            if self.dirty is not None:
                dirty, n_tasks = self.dirty[s.first - 1 : s.last], len(self.owners[i - 1].cells)
                how = f"{sum(d.n_units for d in dirty)} units, {sum(d.n_patched for d in dirty)} of them patched"
            levels = f"{s.first + self.base}..{s.last + self.base}"
            yield f"{i}", levels, f"{n_tasks}", blocks, format_bytes(s.peak_bytes), how


def make_plan(
    where: str,
    levels: Sequence[Level],
    steps: Sequence[Step],
    mode: Literal["auto", "numpy", "dask"],
    limits: Limits,
    regions: Boxes | None = None,
) -> Plan:
    """Plan a rebuild of everything, or of what the changed `regions` of level 0 touch.

    Regions that cover more of level 0 than `limits` allow are rebuilt with everything else: that costs less.
    """
    work = tuple(s for s in steps if s.target.nbytes)
    full = ""
    if regions is not None:
        covered = coverage(regions, levels[0], limits.max_coverage)
        if covered <= limits.max_coverage:
            return _regional(where, tuple(levels), work, mode, limits, regions)
        full = f"regions cover {covered:.0%}, more than partial_max_coverage, {limits.max_coverage:.0%}; "
    to_read = sum(s.source.nbytes for s in work[:1])
    chosen, reason = _choose(mode, to_read, limits.numpy_max_bytes)
    plan = Plan(where, tuple(levels), work, chosen, full + reason)
    if chosen == "dask":
        return replace(plan, stages=_stages(work, limits))
    return replace(plan, writes=tuple(write_block(s.target, s.target.shape, limits.ceiling) for s in work))


def _regional(
    where: str,
    levels: tuple[Level, ...],
    steps: tuple[Step, ...],
    mode: Literal["auto", "numpy", "dask"],
    limits: Limits,
    boxes: Boxes,
) -> Plan:
    """Plan the stages that have something to do."""
    stages, dirty, owners = list[Stage](), list[Dirty](), list[Owners]()
    planned = regional_stages(steps, limits.ceiling, max(1, limits.max_tasks // max(1, len(steps))))
    for stage in planned:
        run, found = steps[stage.first - 1 : stage.last], list[Dirty]()
        for step in run:
            boxes = push_up(step, boxes)
            found.append(dirty_of(step, boxes, found[-1] if found else None))
        if not any(len(d.boxes) for d in found):
            break
        stage, shared = share_out(run, stage, found, max(1, limits.max_tasks // len(planned)))
        stages.append(stage)
        dirty += found
        owners.append(shared)
    chosen, reason = _choose(mode, sum(d.bytes_read for d in dirty), limits.numpy_max_bytes)
    regional = f"regions; {reason}"
    return Plan(where, levels, steps, chosen, regional, tuple(stages), dirty=tuple(dirty), owners=tuple(owners))


def _choose(mode: Literal["auto", "numpy", "dask"], to_read: int, numpy_max_bytes: int) -> tuple[Mode, str]:
    if mode != "auto":
        return mode, "asked for"
    fits = to_read <= numpy_max_bytes
    reason = f"is {'within' if fits else 'above'} numpy_max_bytes, {format_bytes(numpy_max_bytes)}"
    return "numpy" if fits else "dask", f"{format_bytes(to_read)} to read {reason}"


def _stages(steps: Sequence[Step], limits: Limits) -> tuple[Stage, ...]:
    stages: list[Stage] = []
    left = limits.max_tasks
    first = 1
    while first <= len(steps):
        # Each level that is still to come may want a stage of its own.
        stages.append(plan_stage(steps, first, limits.ceiling, max(1, left - (len(steps) - first))))
        left -= stages[-1].n_tasks
        first = stages[-1].last + 1
    return tuple(stages)


def _geometry(step: Step) -> str:
    ratios = [f"{e.p}" if e.q == 1 else f"{e.n}/{e.m}" for e in step.edges]
    return f"{step.method} " + " x ".join(ratios)
