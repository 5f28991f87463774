"""A block that is being built: its pixels, or the one value that all of them have.

Sparse images are mostly chunks that are not stored. What is built from them is one value, too: it is computed once, and
neither kept, reduced nor encoded pixel by pixel.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ziggurat._codes import DONE, LEFT, READ
from ziggurat._hot import Performance, address
from ziggurat.boxes import Box, corner, intersect, is_empty, shape_of, slices
from ziggurat.encoded import Encoded
from ziggurat.grid import Shape
from ziggurat.handle import Handle
from ziggurat.kernels import chunk_loop, reduce
from ziggurat.steps import Step

__all__ = ["Block", "Known", "is_constant", "reduce_into"]

type Room = Callable[[Shape], NDArray[Any]]
"""Returns memory for pixels of a shape."""

type Known = dict[bytes, NDArray[Any] | None]
"""What targets of constant pixels are, by the bytes of one pixel; None where they may differ."""


class Block:
    """The targets `box`, as they come.

    Parameters
    ----------
    step : Step
        What leads to them.
    box : Box
        The targets.
    room : array, of the shape of `box`, or what makes it
        Where they are put, unless they are all one value, or lent.
    known : dict, optional
        What constant pixels became in other blocks of the level.
    """

    def __init__(self, step: Step, box: Box, room: NDArray[Any] | Room, known: Known | None = None) -> None:
        self.step = step
        self.box = box
        self._room = room
        self._lent: NDArray[Any] | None = None
        self.value: NDArray[Any] | None = None
        self._known: Known = {} if known is None else known
        self._is_filled = False

    @property
    def room(self) -> NDArray[Any]:
        """Where the pixels are put."""
        if callable(self._room):
            self._room = self._room(shape_of(self.box))
        return self._room

    @property
    def pixels(self) -> NDArray[Any]:
        """The pixels; where all are one value, that value seen in many places."""
        if self._lent is not None:
            return self._lent
        return self.room if self.value is None else np.broadcast_to(self.value, shape_of(self.box))

    def _borrow(self, source: Any) -> int | None:
        """Take pixels that `source` lends as they are, where the block is a copy; return their bytes, None for no such.

        What does not lie row by row is copied after all: the level above would go through memory in leaps.
        """
        found = source.lent(self.box) if self.step.is_copy else None
        if found is None:
            return None
        if is_constant(found) or all(a >= b for a, b in pairwise(found.strides)):
            self._lent = found
        else:
            self.put(self.box, found, corner(self.box))
        return 0 if is_constant(found) else int(found.nbytes)

    def receive(self, child: Box, pixels: NDArray[Any]) -> None:
        """Reduce a block of the level below, `child`; trailing pixels yield nothing."""
        self.put(self.step.sent(child), pixels, corner(child))

    def put(self, box: Box, pixels: NDArray[Any], origin: Sequence[int]) -> None:
        """Compute the targets `box` from source `pixels` that begin at the pixel `origin`."""
        if is_empty(box):
            return
        value = self._value(box, pixels, origin) if is_constant(pixels) else None
        if value is not None and not self._is_filled and (self.value is None or _same(self.value, value)):
            self.value = value
            return
        self.settle()
        place = self.room[slices(box, corner(self.box))]
        if value is not None:
            place[...] = value
        else:
            reduce_into(self.step, pixels, origin, box, place)

    def read(self, source: Any) -> int | None:
        """Take what `source` lends, or reduce its chunks under the block one by one, each in the cache.

        Return the bytes of pixels read; None, and nothing is done, where neither can be.
        """
        if (n_bytes := self._borrow(source)) is not None:
            return n_bytes
        if not (self.step.takes_chunks and source.gives_chunks):
            return None
        n_bytes = 0

        def take(stored: Encoded) -> list[int]:
            nonlocal n_bytes
            found, n_taken = self.take(stored)
            n_bytes += n_taken
            return found

        window = self.step.window(self.box)
        chunks = partial(source.chunks, take=take) if isinstance(source, Handle) else source.chunks
        for chunk, pixels in chunks(window):
            n_bytes += 0 if is_constant(pixels) else pixels.nbytes
            self.receive(chunk, pixels)
            del pixels  # or it is held while the next one is computed
        return n_bytes

    def take(self, stored: Encoded) -> tuple[list[int], int]:
        """Reduce what the block needs of stored chunks, which a compiled loop reads.

        Return what became of each, and the bytes of the pixels that were needed of those that are done.
        """
        step, codec = self.step, stored.codec
        found, n_bytes = [LEFT] * len(stored.boxes), 0
        for shape, starts in self.wanted(stored.boxes, codec.shape).items() if step.nodata is None else ():
            loop = chunk_loop(step.method, step.edges, shape, codec.shape, codec.dtype, self.room)
            if loop is None:
                continue
            if self.value is not None:
                self.settle()
            place, each = address(self.room), starts.items()
            orders = [(READ, 0, place + b, *stored.spans[i], a, a + loop.n_source, 0, 0) for i, (a, b) in each]
            work = Performance(np.array(orders), loop.table, loop.n_scratch, stored.calls, stored.data, stored.room)
            work.go_on()
            for i, state in zip(starts, work.found.tolist(), strict=True):
                found[i] = state
                n_bytes += (state == DONE) * math.prod(shape) * codec.dtype.itemsize
        self._is_filled = self._is_filled or DONE in found
        return found, n_bytes

    def wanted(self, chunks: Sequence[Box], chunk: Shape) -> dict[Shape, dict[int, tuple[int, int]]]:
        """Return where in its pixels and in the block's, in bytes, what is needed of each chunk begins, by its shape.

        Not of chunks in which a window is short, as the last one of an axis may be. For the few chunks of a block numpy
        takes longer: pixels have just filled the caches, and what it needs for each call comes from memory.
        """
        window, factors = self.step.window(self.box), [e.p for e in self.step.edges]
        in_chunk = [self.room.itemsize * math.prod(chunk[i + 1 :]) for i in range(len(factors))]
        in_block = self.room.strides
        origin = corner(self.box)
        wanted: dict[Shape, dict[int, tuple[int, int]]] = {}
        for i, box in enumerate(chunks):
            part = intersect(box, window)
            if any(a % f or b % f for (a, b), f in zip(part, factors, strict=True)):
                continue
            source = sum((a - c) * s for (a, _), (c, _), s in zip(part, box, in_chunk, strict=True))
            axes = zip(part, factors, origin, in_block, strict=True)
            target = sum((a // f - o) * s for (a, _), f, o, s in axes)
            wanted.setdefault(shape_of(part), {})[i] = source, target
        return wanted

    def _value(self, box: Box, pixels: NDArray[Any], origin: Sequence[int]) -> NDArray[Any] | None:
        key = pixels[(slice(1),) * pixels.ndim].tobytes()
        if key not in self._known:
            self._known[key] = _value(self.step, box, pixels, origin)
        return self._known[key]

    def settle(self) -> None:
        """Fill the room with the one value so far, or what was lent: from now on they may differ."""
        if self.value is not None:
            self.room[...] = self.value
            self.value = None
        if self._lent is not None:
            self.room[...] = self._lent
            self._lent = None
        self._is_filled = True


def reduce_into(step: Step, pixels: NDArray[Any], origin: Sequence[int], box: Box, block: NDArray[Any]) -> None:
    """Compute the targets `box` from source `pixels` that begin at the pixel `origin`, into `block`."""
    reduce(pixels, tuple(origin), step.edges, box, block, step.method, step.nodata)


def is_constant(pixels: NDArray[Any]) -> bool:
    """Say whether `pixels` are one, seen in many places."""
    return not any(pixels.strides)


def _value(step: Step, box: Box, pixels: NDArray[Any], origin: Sequence[int]) -> NDArray[Any] | None:
    """Return the one value, in an array of no axes, that targets of constant `pixels` have; None where they may differ.

    Sums of weighted values may round differently from one target to the next; those of zeros and NaNs do not, and means
    of integers are exact.
    """
    pixel = pixels[(0,) * pixels.ndim]
    is_zero, is_float = not pixel.tobytes().strip(b"\0"), pixel.dtype.kind in "fc"
    is_weighted = step.method in ("cubic", "gaussian") or (step.method == "linear" and any(e.q > 1 for e in step.edges))
    if not is_zero and (is_weighted or is_float) and not (is_float and np.isnan(pixel) and pixel.dtype.kind == "f"):
        return None
    found = np.empty((1,) * len(box), pixels.dtype)
    reduce_into(step, pixels, origin, tuple((start, start + 1) for start, _ in box), found)
    return found.reshape(())


def _same(a: NDArray[Any], b: NDArray[Any]) -> bool:
    return a.tobytes() == b.tobytes()
