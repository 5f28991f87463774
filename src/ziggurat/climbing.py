"""Walks through the blocks of a task by orders that compiled code follows, many in one call.

What is read, reduced and stored is the same as in `ziggurat.cascade`, in the same order and the same memory. Whatever
compiled code leaves is done as there; so are blocks that are not stored, which sparse images mostly are made of.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import accumulate
from typing import Any, NamedTuple, override

import numpy as np
from numpy.typing import NDArray

from ziggurat._codes import DONE, LEFT, MISSING, OTHER, READ, REDUCE, STORE
from ziggurat._hot import IS_OFF, Performance, address
from ziggurat._hot import Walk as Loop
from ziggurat.blocks import Block
from ziggurat.boxes import Box, corner, intersect, is_empty, n_pixels, shape_of, slices
from ziggurat.cascade import Record, Sink, Walk, Work, ignore, reading
from ziggurat.counted import is_missing
from ziggurat.direct import Direct
from ziggurat.encoded import Calls
from ziggurat.geometry import own
from ziggurat.grid import Shape, cut_units, each_cell, each_unit
from ziggurat.handle import Handle
from ziggurat.kernels import chunk_loop, is_loaded, whole_loop
from ziggurat.planning import Task
from ziggurat.storing import FileWriter, rows_of

__all__ = ["walk_of"]

_MOST_CALLS = 14  # numbers of an encoding
_NOTHING = (OTHER, *[0] * 8)
ORDERED_BYTES = 32 << 20
"""Pixels that are read in one call: of progress, and of a stop, is heard between two."""


class _Order(NamedTuple):
    """One thing to do: its numbers, and what does it instead, given what became of it.

    `n_bytes` are those of its pixels; `owner` holds what lies at its addresses.
    """

    numbers: tuple[int, ...]
    instead: Callable[[int], None]
    n_bytes: int = 0
    level: int = 0
    owner: Any = None


class _Climb(Walk):
    """The walk of a task whose chunks are files, of the source and of all levels of its stage."""

    def __init__(self, source: Direct, calls: Calls, files: Sequence[FileWriter], *given: Any) -> None:
        super().__init__(*given)
        self.source, self.calls = source, calls
        self.files = dict(zip(self.units, files, strict=True))
        self._loops: dict[int, tuple[int, Loop]] = {}
        self._rows: dict[tuple[int, Shape], tuple[int, NDArray[np.int64], int]] = {}

    @override
    def build(self, k: int, box: Box, sink: Sink) -> None:
        if self._begins(k, box):
            orders = self._orders(k, box, sink)
            while some := list(_up_to(orders, ORDERED_BYTES)):
                self._follow(some)
        else:
            super().build(k, box, sink)

    def _begins(self, k: int, box: Box) -> bool:
        """Say whether numba is worth its loading, and the first source chunk of a box of level `k` may be stored."""
        step = self.work.steps[self.stage.first - 1]
        if IS_OFF or not is_loaded(step.method, self.source.codec.dtype):
            return False
        for j in range(k, self.stage.first, -1):
            box = own(self.work.steps[j - 1].edges, box)
        index = tuple(start // c for start, c in zip(corner(step.window(box)), self.source.chunk, strict=True))
        return not is_missing(self.source.path(index))

    def _orders(self, k: int, box: Box, sink: Sink | Block) -> Iterator[_Order]:
        """Yield what builds the blocks of level `k` in `box`, and passes each on."""
        step, size = self.work.steps[k - 1], self.stage.blocks[k - self.stage.first]
        self.memory(k, tuple(map(min, size, step.target.shape)))  # as much as any block needs: it stays where it is
        for target in cut_units(box, step.target, size):
            block = Block(step, target, self.memory(k, shape_of(target)))
            block.settle()
            if k == self.stage.first:
                yield from self._reads(block)
            else:
                yield from self._orders(k - 1, own(step.edges, target), block)
            yield from self._stores(k, block)
            yield from self._passed_on(block, sink)

    def _reads(self, block: Block) -> Iterator[_Order]:
        """Yield what reads the chunks under a block of the first level, and reduces each."""
        step, source = block.step, self.source
        window = step.window(block.box)
        cells = list(each_cell(window, source.chunk))
        names = [os.fsencode(source.path(index)) + b"\0" for index, _ in cells]
        joined = np.frombuffer(b"".join(names), np.uint8)
        paths = list(accumulate(map(len, names), initial=address(joined)))
        boxes, place = [box for _, box in cells], address(block.room)
        loops = {}
        for shape, starts in block.wanted(boxes, source.chunk).items():
            loop = chunk_loop(step.method, step.edges, shape, source.chunk, source.codec.dtype, block.room)
            loops.update({i: (loop, *ab) for i, ab in starts.items()} if loop else {})
        for i, box in enumerate(boxes):
            part = intersect(box, window)
            numbers: tuple[int, ...] = _NOTHING
            if i in loops:
                loop, first, target = loops[i]
                numbers = (READ, self._loop(loop), place + target, paths[i], -1, first, first + loop.n_source, 0, 0)
            n_bytes = n_pixels(part) * source.codec.dtype.itemsize
            yield _Order(numbers, partial(self._take, block, part), n_bytes, self.stage.first - 1, joined)

    def _take(self, block: Block, part: Box, state: int) -> None:
        """Read a part of a chunk, if it is stored, and reduce it."""
        if state == MISSING:
            block.receive(part, self.source.empty(part))
            return
        handle = self.work.handles[self.stage.first - 1]
        with reading(handle.level, block.step.window(block.box)):
            for box, pixels in handle.chunks(part):
                self.bytes_read += pixels.nbytes if any(pixels.strides) else 0
                block.receive(box, pixels)

    def _stores(self, k: int, block: Block) -> Iterator[_Order]:
        """Yield what stores the units of a block."""
        file, handle = self.files[k], self.work.handles[k]
        first, n_rows, row_bytes = self._rows_of(k, block.room.strides)
        for unit in each_unit(block.box, handle.level):
            pixels = block.room[slices(unit, corner(block.box))]
            numbers: tuple[int, ...] = _NOTHING
            names = None
            if pixels.shape == file.codec.shape and row_bytes:
                names, paths = file.paths(self._key(k, unit))
                which = k - self.stage.first
                numbers = (STORE, which, address(pixels), *paths, first, n_rows, row_bytes, file.fill)
            yield _Order(numbers, partial(self._write, k, unit, pixels), pixels.nbytes, k, (names, pixels))

    def _key(self, k: int, unit: Box) -> str:
        handle = self.work.handles[k]
        assert handle.direct is not None
        return handle.direct.key(handle.level.index_of(unit))

    def _write(self, k: int, unit: Box, pixels: NDArray[Any], state: int) -> None:
        self.write(k, unit, pixels)

    def _passed_on(self, block: Block, sink: Sink | Block) -> Iterator[_Order]:
        """Yield what reduces a block into the one above, or hands it to `sink`."""
        if not isinstance(sink, Block):
            if sink is not ignore:
                yield _Order(_NOTHING, lambda _: sink(block.box, block.room))
            return
        sent = sink.step.sent(block.box)
        if is_empty(sent):
            return
        target = sink.room[slices(sent, corner(sink.box))]
        loop = whole_loop(block.room, corner(block.box), sink.step.edges, sent, target, sink.step.method)
        if loop is None:
            yield _Order(_NOTHING, lambda _: sink.receive(block.box, block.room))
            return
        i, a, b = self._loop(loop), address(target), address(block.room)
        for source, place in loop.starts.tolist():
            yield _Order((REDUCE, i, a + place, b + source, *[0] * 5), lambda _: None)

    def _loop(self, loop: Loop) -> int:
        """Return the number of a loop."""
        return self._loops.setdefault(id(loop), (len(self._loops), loop))[0]

    def _rows_of(self, k: int, strides: Shape) -> tuple[int, int, int]:
        """Return where in the table the rows of a chunk of level `k` are, how many, and the bytes of each."""
        if (k, strides) not in self._rows:
            codec, first = self.files[k].codec, sum(len(rows) for _, rows, _ in self._rows.values())
            self._rows[k, strides] = first, *rows_of(codec.shape, strides, codec.dtype.itemsize)
        first, rows, row_bytes = self._rows[k, strides]
        return first, len(rows), row_bytes

    def _follow(self, orders: Sequence[_Order]) -> None:
        """Do what is ordered."""
        self.pulse(self.record())
        source, room = self.source, self.source.rooms.take(self.source.codec.n_bytes)
        n_bytes = max(source.encoded_bytes, *(file.encoded_bytes for file in self.files.values()))
        data = source.encoded_rooms.take(n_bytes)
        loops = [loop for _, loop in self._loops.values()]
        work = Performance(
            np.array([order.numbers for order in orders]),
            np.concatenate([loop.table for loop in loops]) if loops else np.empty((0, 0), np.int64),
            max((loop.n_scratch for loop in loops), default=0),
            self.calls,
            data,
            room[: source.codec.n_bytes],
            np.array([np.resize(file.encoding.calls, _MOST_CALLS) for file in self.files.values()]),
            data,
            np.concatenate([rows for _, rows, _ in self._rows.values()]),
        )
        i = 0
        while i < len(orders):
            reached = work.go_on(i)
            found = list(zip(orders[i:reached], work.found[i:reached].tolist(), strict=True))
            self._account(orders[i:reached], work.found[i:reached], work.spent[i:reached])
            left = [(order, state) for order, state in found if state != DONE]
            if not left and reached < len(orders):
                left, reached = [(orders[reached], LEFT)], reached + 1
            for order, state in left:
                order.instead(state)
            i = reached
        source.rooms.give(room)
        source.encoded_rooms.give(data)

    def _account(self, orders: Sequence[_Order], found: NDArray[np.uint8], spent: NDArray[np.int64]) -> None:
        """Count what was done."""
        n_read = 0
        for order, state, time in zip(orders, found.tolist(), spent.tolist(), strict=True):
            kind, k = order.numbers[0], order.level
            if kind == READ:
                n_read += state != LEFT
                self.bytes_read += order.n_bytes * (state == DONE)
            elif kind == STORE and state == DONE:
                self.units[k] += 1
                self.bytes_written[k] += order.n_bytes
                self.write_s[k] += time / 1e9
                self.files[k].requests.add(sets=1)
        self.work.handles[self.stage.first - 1].requests.add(gets=n_read)


def _up_to(orders: Iterator[_Order], n_bytes: int) -> Iterator[_Order]:
    """Yield orders until they read so many bytes."""
    n_read = 0
    for order in orders:
        yield order
        n_read += order.n_bytes * (order.numbers[0] == READ)
        if n_read >= n_bytes:
            return


def walk_of(work: Work, task: Task, retries: Sequence[str], pulse: Callable[[Record], None]) -> Walk:
    """Return the walk of a task, by orders where all of its chunks are files that compiled code can do all with."""
    stage = work.stages[task.stage]
    steps, handles = work.steps[stage.first - 1 : stage.last], work.handles[stage.first - 1 : stage.last + 1]
    source, *targets = (_direct(handle) for handle in handles)
    files = [direct.writer.files for direct in targets if direct and direct.writer.files]
    can = work.act == "write" and steps[0].takes_chunks and all(step.nodata is None for step in steps)
    are_files = source is not None and source.is_files and len(files) == len(steps)
    if not (can and are_files and all(file.tells_fill for file in files)):
        return Walk(work, task, retries, pulse)
    assert source is not None and source.calls is not None
    return _Climb(source, source.calls, files, work, task, retries, pulse)


def _direct(handle: Any) -> Direct | None:
    return handle.direct if isinstance(handle, Handle) else None
