"""Walks through the blocks of a task by orders that compiled code follows, many in one call.

What is read, reduced and stored is the same as in `ziggurat.cascade`, in the same order and the same memory. Whatever
compiled code leaves is done as there; so are blocks that are not stored, which sparse images mostly are made of.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import accumulate
from typing import Any, override

import numpy as np
from numpy.typing import NDArray

from ziggurat import _hot
from ziggurat._codes import DONE, LEFT, MISSING, READ, REDUCE, STORE
from ziggurat._hot import Performance, address
from ziggurat.blocks import Block
from ziggurat.boxes import Box, corner, intersect, is_empty, n_pixels, shape_of, slices
from ziggurat.cascade import Record, Sink, Walk, Work, reading
from ziggurat.counted import is_missing
from ziggurat.direct import Direct
from ziggurat.encoded import Calls
from ziggurat.geometry import own
from ziggurat.grid import Shape, cut_units, each_cell, each_unit
from ziggurat.handle import Handle
from ziggurat.kernels import chunk_loop, is_loaded, whole_loop
from ziggurat.orders import NOTHING, Alike, Order, Orders
from ziggurat.planning import Task
from ziggurat.storing import FileWriter

__all__ = ["walk_of"]

ORDERED_BYTES = 32 << 20
"""Pixels that are read in one call: of progress, and of a stop, is heard between two."""

_MOST_CALLS = 14  # numbers of an encoding


class _Climb(Walk):
    """The walk of a task whose chunks are files, of the source and of all levels of its stage."""

    def __init__(
        self, source: Direct, calls: Calls, targets: Sequence[Direct], files: Sequence[FileWriter], *given: Any
    ) -> None:
        super().__init__(*given)
        self.source, self.calls = source, calls
        self.targets = dict(zip(self.units, targets, strict=True))
        self.files = dict(zip(self.units, files, strict=True))
        self._encodings = np.array([np.resize(file.encoding.calls, _MOST_CALLS) for file in files])
        self._encoded_bytes = max(source.encoded_bytes, *(file.encoded_bytes for file in files))
        self._alike = self.work.alike.setdefault(self.task.stage, Alike())

    @override
    def build(self, k: int, box: Box, sink: Sink) -> None:
        for target in cut_units(box, self.work.steps[k - 1].target, self._size(k)):
            boxes = self._boxes(k, target)
            if not self._begins(boxes):
                super().build(k, target, sink)
                continue
            for j in range(self.stage.first, k + 1):  # as much as any block needs: it stays where it is
                self.memory(j, tuple(map(min, self._size(j), self._shape(j))))
            self._build_tree(k, target, boxes)
            sink(target, self.memory(k, shape_of(target)))

    def _size(self, k: int) -> Shape:
        return self.stage.blocks[k - self.stage.first]

    def _shape(self, k: int) -> Shape:
        return self.work.handles[k].level.shape

    def _boxes(self, k: int, target: Box) -> dict[int, Box]:
        """Return what is built with a block of level `k` in it and each level below, and read of the source."""
        boxes = {k: target}
        for j in range(k, self.stage.first, -1):
            boxes[j - 1] = own(self.work.steps[j - 1].edges, boxes[j])
        step = self.work.steps[self.stage.first - 1]
        return {**boxes, self.stage.first - 1: step.window(boxes[self.stage.first])}

    def _begins(self, boxes: dict[int, Box]) -> bool:
        """Say whether numba is worth its loading, and the first source chunk may be stored."""
        step = self.work.steps[self.stage.first - 1]
        if _hot.IS_OFF or not is_loaded(step.method, self.source.codec.dtype):
            return False
        first = corner(boxes[self.stage.first - 1])
        return not is_missing(self.source.path(tuple(i // c for i, c in zip(first, self.source.chunk, strict=True))))

    def _build_tree(self, k: int, target: Box, boxes: dict[int, Box]) -> None:
        """Build a block and all that lies below it: as a tree of the same kind was, or order by order."""
        chunks = {j: self.files[j].codec.shape if j in self.files else self.source.chunk for j in boxes}
        base = {j: [a // c for (a, _), c in zip(box, chunks[j], strict=True)] for j, box in boxes.items()}
        lies = {j: [a % c for (a, _), c in zip(box, chunks[j], strict=True)] for j, box in boxes.items()}
        ends = {j: tuple(b == n for (_, b), n in zip(box, self._shape(j), strict=True)) for j, box in boxes.items()}
        key = tuple((shape_of(box), tuple(lies[j]), ends[j]) for j, box in boxes.items())
        kept = self._alike.trees.get(key)
        if kept is not None:
            self._follow(kept.moved(base), partial(self._orders, k, target))
            return
        n_parts = 0
        for part in _cut(self._orders(k, target), ORDERED_BYTES):
            orders = Orders.of(part)
            self._follow(orders, partial(iter, part))
            n_parts += 1
        if n_parts == 1:
            self._alike.keep(key, orders.moved({j: [-i for i in index] for j, index in base.items()}))

    def _orders(self, k: int, box: Box, above: Block | None = None) -> Iterator[Order]:
        """Yield what builds the blocks of level `k` in `box`, and reduces each into the block `above`."""
        step, size = self.work.steps[k - 1], self._size(k)
        for target in cut_units(box, step.target, size):
            block = Block(step, target, self.memory(k, shape_of(target)))
            block.settle()
            if k == self.stage.first:
                yield from self._reads(block)
            else:
                yield from self._orders(k - 1, own(step.edges, target), block)
            # First, while it is in the cache.
            if above is not None:
                yield from self._reduces(k, block, above)
            yield from self._stores(k, block)

    def _reads(self, block: Block) -> Iterator[Order]:
        """Yield what reads the chunks under a block of the first level, and reduces each."""
        step, chunk, dtype = block.step, self.source.chunk, self.source.codec.dtype
        window = step.window(block.box)
        cells = list(each_cell(window, chunk))
        numbers = [NOTHING] * len(cells)
        for shape, starts in block.wanted([box for _, box in cells], chunk).items():
            loop = chunk_loop(step.method, step.edges, shape, chunk, dtype, block.room)
            if loop is None:
                continue
            for i, (first, target) in starts.items():
                which, last = self._alike.number(loop), first + loop.n_source
                numbers[i] = (READ, which, target, 0, -1, first, last, 0, 0)
        for (cell, box), each in zip(cells, numbers, strict=True):
            part = intersect(box, window)
            n_bytes = n_pixels(part) * dtype.itemsize
            yield Order(each, partial(self._take, block, window, part), n_bytes, self.stage.first - 1, cell)

    def _take(self, block: Block, window: Box, part: Box, state: int) -> None:
        """Read a part of a chunk, if it is stored, and reduce it."""
        if state == MISSING:
            block.receive(part, self.source.empty(part))
            return
        handle = self.work.handles[self.stage.first - 1]
        with reading(handle.level, window):
            for box, pixels in handle.chunks(part):
                self.bytes_read += pixels.nbytes if any(pixels.strides) else 0
                block.receive(box, pixels)

    def _reduces(self, k: int, block: Block, above: Block) -> Iterator[Order]:
        """Yield what reduces a block into the one above."""
        step, room = above.step, above.room
        sent = step.sent(block.box)
        if is_empty(sent):
            return
        target = room[slices(sent, corner(above.box))]
        loop = whole_loop(block.room, corner(block.box), step.edges, sent, target, step.method)
        if loop is None:
            yield Order(NOTHING, lambda _: above.receive(block.box, block.room))
            return
        place = _offset(above, corner(sent))
        for source, start in loop.starts.tolist():
            yield Order((REDUCE, self._alike.number(loop), place + start, source, *[0] * 5), _done, level=k)

    def _stores(self, k: int, block: Block) -> Iterator[Order]:
        """Yield what stores the units of a block."""
        file, level = self.files[k], self.work.handles[k].level
        rows = self._alike.rows_of(file.codec, block.room.strides)
        for unit in each_unit(block.box, level):
            instead = partial(self._write, k, unit, block)
            if shape_of(unit) == file.codec.shape and rows[-1]:
                numbers = (STORE, k - self.stage.first, _offset(block, corner(unit)), 0, 0, *rows, file.fill)
                yield Order(numbers, instead, file.codec.n_bytes, k, level.index_of(unit))
            else:
                yield Order(NOTHING, instead)

    def _write(self, k: int, unit: Box, block: Block, state: int) -> None:
        self.write(k, unit, block.room[slices(unit, corner(block.box))])

    def _follow(self, orders: Orders, again: Callable[[], Iterator[Order]]) -> None:
        """Do what is ordered; `again` yields the same orders, with what does each instead."""
        self.pulse(self.record())
        source = self.source
        names, spares = self._names(orders)
        held = np.frombuffer(b"".join(names), np.uint8)
        starts = address(held) + np.fromiter(accumulate(map(len, names), initial=0), np.int64)[:-1]
        numbers = orders.placed(self._places(), starts)
        numbers[:, 4] += spares
        loops, n_scratch = self._alike.loops()
        room, data = source.rooms.take(source.codec.n_bytes), source.encoded_rooms.take(self._encoded_bytes)
        reads = self.calls, data, room[: source.codec.n_bytes]
        work = Performance(numbers, loops, n_scratch, *reads, self._encodings, data, self._alike.rows())
        try:
            self._perform(work, orders, again)
        finally:
            source.rooms.give(room)
            source.encoded_rooms.give(data)

    def _names(self, orders: Orders) -> tuple[list[bytes], list[int]]:
        """Return the names of the chunks of orders, and where the second one of those that are stored begins."""
        found = []
        for kind, k, cell in zip(orders.kinds, orders.levels, orders.cells, strict=True):
            if kind == READ:
                found.append((os.fsencode(self.source.path(cell)) + b"\0", 0))
            elif kind == STORE:
                found.append(self.files[k].names(self.targets[k].key(cell)))
            else:
                found.append((b"", 0))
        return [name for name, _ in found], [spare for _, spare in found]

    def _places(self) -> NDArray[np.int64]:
        """Return where the pixels of each level of the stage are, and zeros for others."""
        found = np.zeros(len(self.work.handles) + 1, np.int64)
        for k in self.units:
            found[k] = address(self.rooms[k]) if k in self.rooms else 0
        return found

    def _perform(self, work: Performance, orders: Orders, again: Callable[[], Iterator[Order]]) -> None:
        i, n = 0, len(orders.levels)
        instead: list[Order] = []
        while i < n:
            reached = work.go_on(i)
            self._account(orders, work, slice(i, reached))
            left = [(j, state) for j, state in enumerate(work.found[i:reached].tolist(), i) if state != DONE]
            if not left and reached < n:
                left, reached = [(reached, LEFT)], reached + 1
            instead = instead or (list(again()) if left else [])
            for j, state in left:
                instead[j].instead(state)
            i = reached

    def _account(self, orders: Orders, work: Performance, done: slice) -> None:
        """Count what was done."""
        n_read, states, spent = 0, work.found[done].tolist(), work.spent[done].tolist()
        each = orders.kinds[done], orders.levels[done], orders.n_bytes[done]
        for kind, k, n_bytes, state, nanoseconds in zip(*each, states, spent, strict=True):
            if kind == READ:
                n_read += state != LEFT
                self.bytes_read += n_bytes * (state == DONE)
            elif kind == STORE and state == DONE:
                self.units[k] += 1
                self.bytes_written[k] += n_bytes
                self.write_s[k] += nanoseconds / 1e9
                self.files[k].requests.add(sets=1)
        self.work.handles[self.stage.first - 1].requests.add(gets=n_read)


def _offset(block: Block, pixel: Sequence[int]) -> int:
    """Return at which byte of its room a pixel of a block begins."""
    each = zip(pixel, block.box, block.room.strides, strict=True)
    return sum((i - start) * stride for i, (start, _), stride in each)


def _done(state: int) -> None:
    """Do nothing: compiled code leaves no loop."""


def _cut(orders: Iterator[Order], n_bytes: int) -> Iterator[list[Order]]:
    """Cut orders into parts that read about so many bytes."""
    part: list[Order] = []
    n_read = 0
    for order in orders:
        if order.numbers[0] == READ:
            if n_read >= n_bytes:
                yield part
                part, n_read = [], 0
            n_read += order.n_bytes
        part.append(order)
    yield part


def walk_of(work: Work, task: Task, retries: Sequence[str], pulse: Callable[[Record], None]) -> Walk:
    """Return the walk of a task, by orders where all of its chunks are files that compiled code can do all with."""
    stage, given = work.stages[task.stage], (work, task, retries, pulse)
    steps, handles = work.steps[stage.first - 1 : stage.last], work.handles[stage.first - 1 : stage.last + 1]
    ways = [handle.direct for handle in handles if isinstance(handle, Handle) and handle.direct]
    can = work.act == "write" and steps[0].takes_chunks and all(step.nodata is None for step in steps)
    if not can or len(ways) < len(handles):
        return Walk(*given)
    source, *targets = ways
    files = [target.writer.files for target in targets if target.writer.files]
    if source.index or source.local is None or source.calls is None or len(files) < len(targets):
        return Walk(*given)
    if not all(file.tells_fill for file in files):
        return Walk(*given)
    return _Climb(source, source.calls, targets, files, *given)
