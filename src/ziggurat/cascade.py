"""Runs one task: reads source pieces, reduces them into blocks, writes the blocks' units, and pushes blocks upward.

One block per level is in memory, and one source piece. Blocks are computed from the blocks below while those are
still in memory, so that no level of a stage is read back.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ziggurat.boxes import Box, cut, intersect, is_empty, shape_of, slices
from ziggurat.dirty import dirty_units
from ziggurat.geometry import own
from ziggurat.grid import Level, grid_shape
from ziggurat.kernels import reduce
from ziggurat.planning import Task
from ziggurat.regions import Boxes, as_box
from ziggurat.runtime import zarr_settings
from ziggurat.stages import Stage, Step
from ziggurat.store import Handle

__all__ = ["Record", "Work", "reduce_into", "run_task"]

type Sink = Callable[[Box, NDArray[Any]], None]


@dataclass(frozen=True, slots=True)
class Work:
    """What all tasks of a plan share; travels to the workers once.

    Attributes
    ----------
    steps, stages
        As in the plan.
    handles : tuple of Handle
        The levels' arrays, finest first.
    act : {"write", "compare", "repair"}
        What is done with finished units: written, compared with what is stored, or written where they differ.
    note : callable, optional
        Told of each finished task, where it ran.
    """

    steps: tuple[Step, ...]
    stages: tuple[Stage, ...]
    handles: tuple[Handle, ...]
    act: Literal["write", "compare", "repair"] = "write"
    note: Callable[[Task], None] | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """What one task did.

    Attributes
    ----------
    levels : tuple of (int, int, int)
        Number, write units written and uncompressed bytes written of each level.
    bytes_read : int
        Uncompressed bytes that were read.
    started_s, finished_s : float
        When, in seconds since the epoch.
    stale : tuple of (int, Box)
        Level and box of each write unit that was found to differ.
    """

    levels: tuple[tuple[int, int, int], ...]
    bytes_read: int
    started_s: float
    finished_s: float
    stale: tuple[tuple[int, Box], ...] = ()


def run_task(work: Work, task: Task) -> Record:
    """Build the task's box of the last level of its stage and all that lies below it, or what is dirty of it."""
    walk = _Walk(work, work.stages[task.stage])
    started = time.time()
    with zarr_settings(work.handles[0].settings):
        if task.dirty is None:
            walk.build(walk.stage.last, task.box, _ignore)
        else:
            walk.rebuild(walk.stage.last, task.box, task.dirty)
    if work.note is not None:
        work.note(task)
    levels = tuple((k, n, walk.bytes_written[k]) for k, n in walk.units.items())
    return Record(levels, walk.bytes_read, started, time.time(), tuple(walk.stale))


def reduce_into(step: Step, pixels: NDArray[Any], origin: Sequence[int], box: Box, block: NDArray[Any]) -> None:
    """Compute the targets `box` from source `pixels` that begin at the pixel `origin`, into `block`."""
    reduce(pixels, tuple(origin), step.edges, box, block, step.method, step.nodata)


def n_units(level: Level, box: Box) -> int:
    """Return the number of write units of `level` in a box of whole ones."""
    return int(np.prod(grid_shape(shape_of(box), level.unit)))


class _Walk:
    def __init__(self, work: Work, stage: Stage) -> None:
        self.work = work
        self.stage = stage
        self.units = dict.fromkeys(range(stage.first, stage.last + 1), 0)
        self.bytes_read = 0
        self.bytes_written = dict.fromkeys(self.units, 0)
        self.stale: list[tuple[int, Box]] = []

    def build(self, k: int, box: Box, sink: Sink) -> None:
        """Build the blocks of level `k` in `box`; `sink` gets each block's box and pixels."""
        step = self.work.steps[k - 1]
        for target in cut(box, self.stage.blocks[k - self.stage.first]):
            block = np.empty(shape_of(target), self.work.handles[k].dtype)
            if k == self.stage.first:
                self._read(step, target, block)
            else:
                self.build(k - 1, own(step.edges, target), partial(_receive, step, target, block))
            self._write(k, target, block)
            sink(target, block)

    def rebuild(self, k: int, box: Box, dirty: Boxes) -> None:
        """Rebuild the write units of level `k` in `box` that hold `dirty` pixels; its stage has this level alone."""
        step = self.work.steps[k - 1]
        bounds = np.array(box)
        inside = np.stack([np.maximum(dirty[:, :, 0], bounds[:, 0]), np.minimum(dirty[:, :, 1], bounds[:, 1])], axis=2)
        units = dirty_units(step, inside)
        size = np.array(self.stage.blocks[0])
        blocks: dict[tuple[int, ...], list[int]] = {}
        for i, unit in enumerate(units.units):
            blocks.setdefault(tuple(unit[:, 0] // size), []).append(i)
        for index, members in blocks.items():
            block = intersect(box, tuple((int(j * s), int((j + 1) * s)) for j, s in zip(index, size, strict=True)))
            if len(members) == n_units(step.target, block) and not units.is_patched[members].any():
                self.build(k, block, _ignore)
            else:
                for i in members:
                    self._rebuild_unit(k, as_box(units.units[i]), [as_box(b) for b in units.patches(i)])

    def _rebuild_unit(self, k: int, unit: Box, patches: list[Box]) -> None:
        """Compute a unit whole, or read it and compute the `patches` of it that there are."""
        handle = self.work.handles[k]
        block = handle.read(unit) if patches else np.empty(shape_of(unit), handle.dtype)
        self.bytes_read += block.nbytes if patches else 0
        for target in patches or [unit]:
            self._read(self.work.steps[k - 1], target, block[slices(target, [start for start, _ in unit])])
        self._write(k, unit, block)

    def _read(self, step: Step, target: Box, block: NDArray[Any]) -> None:
        source = self.work.handles[self.stage.first - 1]
        origin = [start for start, _ in target]
        for piece in cut(target, self.stage.piece):
            window = step.window(piece)
            pixels = source.read(window)
            self.bytes_read += pixels.nbytes
            reduce_into(step, pixels, [start for start, _ in window], piece, block[slices(piece, origin)])

    def _write(self, k: int, target: Box, block: NDArray[Any]) -> None:
        handle, origin = self.work.handles[k], [start for start, _ in target]
        is_write = self.work.act == "write"
        size = self.stage.writes[k - self.stage.first] if is_write else handle.level.unit
        for box in cut(target, size):
            pixels = block[slices(box, origin)]
            if is_write:
                handle.write(box, pixels)
            elif not handle.holds(box, pixels):
                self.stale.append((k, box))
                if self.work.act == "repair":
                    handle.write(box, pixels)
            self.units[k] += n_units(handle.level, box)
        self.bytes_written[k] += block.nbytes


def _receive(step: Step, target: Box, block: NDArray[Any], child: Box, pixels: NDArray[Any]) -> None:
    """Reduce a finished block of the level below, `child`, into `block`; trailing pixels yield nothing."""
    box = step.sent(child)
    if not is_empty(box):
        origin = [start for start, _ in target]
        reduce_into(step, pixels, [start for start, _ in child], box, block[slices(box, origin)])


def _ignore(box: Box, pixels: NDArray[Any]) -> None:
    """Take a block that no coarser level of the stage needs."""
