"""Runs one task: reads source pieces, reduces them into blocks, writes the blocks' units, and pushes blocks upward.

One block per level is in memory, and one source piece. Blocks are computed from the blocks below while those are
still in memory, so that no level of a stage is read back.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ziggurat.boxes import Box, corner, cut, intersect, is_empty, shape_of, slices
from ziggurat.dirty import dirty_units
from ziggurat.geometry import own
from ziggurat.grid import Level, Shape, cut_units, each_unit, grid_shape
from ziggurat.handle import Handle
from ziggurat.kernels import reduce
from ziggurat.planning import Task
from ziggurat.policy import counted_retries
from ziggurat.regions import Boxes, as_box
from ziggurat.runtime import zarr_settings
from ziggurat.stages import Stage, Step

__all__ = ["Record", "Work", "reduce_into", "run_task", "taken_requests"]

type Sink = Callable[[Box, NDArray[Any]], None]


class Spare:
    """Memory that finished tasks leave to the next; stays behind when it is pickled.

    Fresh memory costs the system as much time as decoding into it.
    """

    def __init__(self) -> None:
        self.sets: list[dict[int, NDArray[Any]]] = []

    def __reduce__(self) -> tuple[Any, ...]:
        return Spare, ()

    @contextmanager
    def borrow(self) -> Iterator[dict[int, NDArray[Any]]]:
        """Lend one buffer per level, to one task at a time."""
        try:
            buffers = self.sets.pop()
        except IndexError:
            buffers = {}
        yield buffers
        self.sets.append(buffers)


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
    spare : Spare
        Memory of finished tasks, for the next ones in this process.
    pulse_s : float
        Seconds between two messages, at least, in which a task on another machine tells how far it is.
    """

    steps: tuple[Step, ...]
    stages: tuple[Stage, ...]
    handles: tuple[Handle, ...]
    act: Literal["write", "compare", "repair"] = "write"
    note: Callable[[Task], None] | None = None
    spare: "Spare" = field(default_factory=lambda: Spare(), repr=False, compare=False)
    pulse_s: float = 1.0


@dataclass(frozen=True, slots=True)
class Record:
    """What one task did, or did so far.

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
    stage : int
        Number of the stage that the task belongs to.
    write_s : tuple of float
        Seconds that encoding and storing (or comparing) took, for each of `levels`.
    n_retries : int
        Operations on a store that were tried again.
    index : tuple of int
        Place of the task in the grid of its stage.
    requests : tuple of (int, int, int)
        Number, objects (or parts) read and objects set or deleted of each level that was asked for any. Tasks that
        run in one process at a time share one account: it is their sum that is right.
    """

    levels: tuple[tuple[int, int, int], ...]
    bytes_read: int
    started_s: float
    finished_s: float
    stale: tuple[tuple[int, Box], ...] = ()
    stage: int = 0
    write_s: tuple[float, ...] = ()
    n_retries: int = 0
    index: tuple[int, ...] = ()
    requests: tuple[tuple[int, int, int], ...] = ()


def _go_on(so_far: Record) -> None:
    """Let a task go on."""


def run_task(work: Work, task: Task, pulse: Callable[[Record], None] = _go_on) -> Record:
    """Build the task's box of the last level of its stage and all that lies below it, or what is dirty of it.

    `pulse` is told before each block is written what was done so far, and raises where the work is to stop.
    """
    with zarr_settings(work.handles[0].settings), counted_retries() as retries, work.spare.borrow() as buffers:
        walk = _Walk(work, task, buffers, retries, pulse)
        if task.dirty is None:
            walk.build(walk.stage.last, task.box, _ignore)
        else:
            walk.rebuild(walk.stage.last, task.box, task.dirty)
    if work.note is not None:
        work.note(task)
    return replace(walk.record(), requests=taken_requests(work))


def taken_requests(work: Work) -> tuple[tuple[int, int, int], ...]:
    """Return level, reads and writes of what this process asked of the stores since this was last called."""
    return tuple((k, *found) for k, handle in enumerate(work.handles) if any(found := handle.requests.take()))


def reduce_into(step: Step, pixels: NDArray[Any], origin: Sequence[int], box: Box, block: NDArray[Any]) -> None:
    """Compute the targets `box` from source `pixels` that begin at the pixel `origin`, into `block`."""
    reduce(pixels, tuple(origin), step.edges, box, block, step.method, step.nodata)


def n_units(level: Level, box: Box) -> int:
    """Return the number of write units of `level` in a box of whole ones."""
    if level.is_regular:
        return math.prod(grid_shape(shape_of(box), level.unit))
    return math.prod(map(len, level.units.meeting(box)))


class _Walk:
    def __init__(
        self,
        work: Work,
        task: Task,
        buffers: dict[int, NDArray[Any]],
        retries: Sequence[str],
        pulse: Callable[[Record], None],
    ) -> None:
        self.work = work
        self.task = task
        self.stage = stage = work.stages[task.stage]
        self.started_s = time.time()
        self.retries = retries
        self.pulse = pulse
        self.units = dict.fromkeys(range(stage.first, stage.last + 1), 0)
        self.bytes_read = 0
        self.bytes_written = dict.fromkeys(self.units, 0)
        self.write_s = dict.fromkeys(self.units, 0.0)
        self.stale: list[tuple[int, Box]] = []
        self.buffers = buffers

    def record(self) -> Record:
        """Return what was done so far."""
        levels = tuple((k, n, self.bytes_written[k]) for k, n in self.units.items())
        about = (tuple(self.stale), self.task.stage, tuple(self.write_s.values()), len(self.retries), self.task.index)
        return Record(levels, self.bytes_read, self.started_s, time.time(), *about)

    def build(self, k: int, box: Box, sink: Sink) -> None:
        """Build the blocks of level `k` in `box`; `sink` gets each block's box and pixels."""
        step = self.work.steps[k - 1]
        for target in cut_units(box, step.target, self.stage.blocks[k - self.stage.first]):
            block = self._memory(k, shape_of(target))
            if k == self.stage.first:
                self._read(step, target, block)
            else:
                self.build(k - 1, own(step.edges, target), partial(_receive, step, target, block))
            self._write(k, target, block)
            sink(target, block)

    def _memory(self, k: int, shape: Shape) -> NDArray[Any]:
        """Return room for pixels of level `k`, the same each time: a block is done when its level's next begins."""
        size, dtype = math.prod(shape), self.work.handles[k].dtype
        if k not in self.buffers or self.buffers[k].size < size:
            self.buffers[k] = np.empty(size, dtype)
        return self.buffers[k][:size].reshape(shape)

    def rebuild(self, k: int, box: Box, dirty: Boxes) -> None:
        """Rebuild the write units of level `k` in `box` that hold `dirty` pixels; its stage has this level alone."""
        step = self.work.steps[k - 1]
        bounds = np.array(box)
        inside = np.stack([np.maximum(dirty[:, :, 0], bounds[:, 0]), np.minimum(dirty[:, :, 1], bounds[:, 1])], axis=2)
        units = dirty_units(step, inside)
        grid = step.target.units.grouped(self.stage.blocks[0])
        blocks: dict[tuple[int, ...], list[int]] = {}
        for i, index in enumerate(zip(*(a.find(units.units[:, j, 0]) for j, a in enumerate(grid.axes)), strict=True)):
            blocks.setdefault(index, []).append(i)
        for index, members in blocks.items():
            block = intersect(box, grid.box(index))
            if len(members) == n_units(step.target, block) and not units.is_patched[members].any():
                self.build(k, block, _ignore)
            else:
                for i in members:
                    self._rebuild_unit(k, as_box(units.units[i]), [as_box(b) for b in units.patches(i)])

    def _rebuild_unit(self, k: int, unit: Box, patches: list[Box]) -> None:
        """Compute a unit whole, or read it and compute the `patches` of it that there are."""
        handle = self.work.handles[k]
        block = handle.read(unit) if patches else self._memory(k, shape_of(unit))
        self.bytes_read += block.nbytes if patches else 0
        for target in patches or [unit]:
            self._read(self.work.steps[k - 1], target, block[slices(target, corner(unit))])
        self._write(k, unit, block)

    def _read(self, step: Step, target: Box, block: NDArray[Any]) -> None:
        source = self.work.handles[self.stage.first - 1]
        if step.takes_chunks and source.gives_chunks:
            # Each chunk is reduced while it is in the cache, and needs no place beside the others.
            for chunk, pixels in source.chunks(step.window(target)):
                self.bytes_read += pixels.nbytes
                _receive(step, target, block, chunk, pixels)
            return
        origin = corner(target)
        for piece in cut(target, self.stage.piece):
            window = step.window(piece)
            pixels = source.read(window, self._memory(self.stage.first - 1, shape_of(window)))
            self.bytes_read += pixels.nbytes
            reduce_into(step, pixels, corner(window), piece, block[slices(piece, origin)])

    def _write(self, k: int, target: Box, block: NDArray[Any]) -> None:
        self.pulse(self.record())
        started = time.perf_counter()
        handle, origin = self.work.handles[k], corner(target)
        is_write = self.work.act == "write"
        level = handle.level
        written = cut_units(target, level, self.stage.writes[k - self.stage.first])
        for box in written if is_write else each_unit(target, level):
            pixels = block[slices(box, origin)]
            if is_write:
                handle.write(box, pixels)
            elif not handle.holds(box, pixels):
                self.stale.append((k, box))
                if self.work.act == "repair":
                    handle.write(box, pixels)
            self.units[k] += n_units(level, box)
        self.bytes_written[k] += block.nbytes
        self.write_s[k] += time.perf_counter() - started


def _receive(step: Step, target: Box, block: NDArray[Any], child: Box, pixels: NDArray[Any]) -> None:
    """Reduce a finished block of the level below, `child`, into `block`; trailing pixels yield nothing."""
    box = step.sent(child)
    if not is_empty(box):
        origin = corner(target)
        reduce_into(step, pixels, corner(child), box, block[slices(box, origin)])


def _ignore(box: Box, pixels: NDArray[Any]) -> None:
    """Take a block that no coarser level of the stage needs."""
