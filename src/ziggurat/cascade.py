"""Walks through the blocks of a task: reads source pieces, reduces them into blocks, writes those, pushes them upward.

One block per level is in memory, and one source piece. Blocks are computed from the blocks below while those are
still in memory, so that no level of a stage is read back.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ziggurat.blocks import Block, Known
from ziggurat.boxes import Box, corner, cut, shape_of, slices
from ziggurat.geometry import own
from ziggurat.grid import Level, Shape, cut_units, each_unit, grid_shape
from ziggurat.handle import Handle
from ziggurat.kernels import expect
from ziggurat.orders import Alike
from ziggurat.planning import Task
from ziggurat.rooms import Rooms, shared_rooms
from ziggurat.stages import Stage
from ziggurat.steps import Step

__all__ = ["Record", "Sink", "Walk", "Work", "ignore", "n_units", "reading", "taken_requests"]

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
    rooms : Rooms
        Memory of finished tasks, for the next ones in this process.
    known : dict
        What constant pixels became, by level.
    alike : dict
        What trees of blocks have in common, by stage.
    pulse_s : float
        Seconds between two messages, at least, in which a task on another machine tells how far it is.
    n_bytes : int
        Bytes of pixels that all tasks read together.
    """

    steps: tuple[Step, ...]
    stages: tuple[Stage, ...]
    handles: tuple[Handle, ...]
    act: Literal["write", "compare", "repair"] = "write"
    rooms: Rooms = field(default_factory=shared_rooms, repr=False, compare=False)
    known: dict[int, Known] = field(default_factory=dict, repr=False, compare=False)
    alike: dict[int, Alike] = field(default_factory=dict, repr=False, compare=False)
    pulse_s: float = 1.0
    n_bytes: int = 0

    def expect(self) -> None:
        """Get ready for as much work as there is."""
        for step in self.steps:
            expect(step.method, step.source.native, self.n_bytes)


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


def taken_requests(work: Work) -> tuple[tuple[int, int, int], ...]:
    """Return level, reads and writes of what this process asked of the stores since this was last called."""
    return tuple((k, *found) for k, handle in enumerate(work.handles) if any(found := handle.requests.take()))


def n_units(level: Level, box: Box) -> int:
    """Return the number of write units of `level` in a box of whole ones."""
    if level.is_regular:
        return math.prod(grid_shape(shape_of(box), level.unit))
    return math.prod(map(len, level.units.meeting(box)))


@contextmanager
def reading(level: Level, box: Box) -> Iterator[None]:
    """Let an error say what was read when it came; codecs do not know whose bytes they are given."""
    try:
        yield
    except Exception as error:
        spans = ", ".join(f"{start}:{stop}" for start, stop in box)
        error.add_note(f"while reading [{spans}] of level {level.name!r}")
        raise


class Walk:
    """The walk of one task: through the blocks of its levels, depth first."""

    def __init__(
        self,
        work: Work,
        task: Task,
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
        self.known = {k: work.known.setdefault(k, {}) for k in self.units}
        self.rooms: dict[int, NDArray[np.uint8]] = {}

    def record(self) -> Record:
        """Return what was done so far."""
        levels = tuple((k, n, self.bytes_written[k]) for k, n in self.units.items())
        about = (tuple(self.stale), self.task.stage, tuple(self.write_s.values()), len(self.retries), self.task.index)
        return Record(levels, self.bytes_read, self.started_s, time.time(), *about)

    def build(self, k: int, box: Box, sink: Sink) -> None:
        """Build the blocks of level `k` in `box`; `sink` gets each block's box and pixels."""
        step = self.work.steps[k - 1]
        for target in cut_units(box, step.target, self.stage.blocks[k - self.stage.first]):
            block = Block(step, target, lambda shape: self.memory(k, shape), self.known[k])
            if k == self.stage.first:
                self.read(block)
            else:
                self.build(k - 1, own(step.edges, target), block.receive)
            self.write(k, target, block.pixels)
            sink(target, block.pixels)
            del block  # what it was lent is not held while the next one is read

    def memory(self, k: int, shape: Shape) -> NDArray[Any]:
        """Return room for pixels of level `k`, the same each time: a block is done when its level's next begins."""
        n_bytes = self.work.handles[k].level.bytes_of(shape)
        if k not in self.rooms or self.rooms[k].nbytes < n_bytes:
            self.rooms[k] = self.work.rooms.take(n_bytes)
        return self.rooms[k][:n_bytes].view(self.work.handles[k].dtype).reshape(shape)

    def leave(self) -> None:
        """Let other tasks have the memory."""
        for room in self.rooms.values():
            self.work.rooms.give(room)

    def read(self, block: Block) -> None:
        """Compute a block of the first level from the stage's source."""
        source, step = self.work.handles[self.stage.first - 1], block.step
        with reading(source.level, step.window(block.box)):
            self._read_pieces(source, step, block)

    def _read_pieces(self, source: Handle, step: Step, block: Block) -> None:
        if (n_bytes := block.read(source)) is not None:
            self.bytes_read += n_bytes
            return
        for piece in cut(block.box, self.stage.piece):
            window = step.window(piece)
            pixels = source.read(window, self.memory(self.stage.first - 1, shape_of(window)))
            self.bytes_read += pixels.nbytes
            block.put(piece, pixels, corner(window))

    def write(self, k: int, target: Box, block: NDArray[Any], changed: Sequence[Box] = ()) -> None:
        """Write the units of a finished block of level `k`, or compare them with what is stored.

        Where `changed` boxes are given, pixels beyond them are as they were read.
        """
        self.pulse(self.record())
        started = time.perf_counter()
        handle, origin = self.work.handles[k], corner(target)
        is_write = self.work.act == "write"
        level = handle.level
        written = cut_units(target, level, self.stage.writes[k - self.stage.first])
        for box in written if is_write else each_unit(target, level):
            pixels = block[slices(box, origin)]
            if is_write:
                handle.write(box, pixels, changed)
            elif not handle.holds(box, pixels):
                self.stale.append((k, box))
                if self.work.act == "repair":
                    handle.write(box, pixels)
            self.units[k] += n_units(level, box)
        self.bytes_written[k] += block.nbytes
        self.write_s[k] += time.perf_counter() - started


def ignore(box: Box, pixels: NDArray[Any]) -> None:
    """Take a block that no coarser level of the stage needs."""
