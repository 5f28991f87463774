"""A block that is being built: its pixels, or the one value that all of them have.

Sparse images are mostly chunks that are not stored. What is built from them is one value, too: it is computed once, and
neither kept, reduced nor encoded pixel by pixel.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ziggurat._codes import DONE, LEFT
from ziggurat.boxes import Box, corner, intersect, is_empty, n_pixels, slices
from ziggurat.encoded import Encoded
from ziggurat.handle import Handle
from ziggurat.kernels import chunk_loop, reduce
from ziggurat.steps import Step

__all__ = ["Block", "Known", "is_constant", "reduce_into"]

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
    room : array, of the shape of `box`
        Where they are put, unless they are all one value.
    known : dict, optional
        What constant pixels became in other blocks of the level.
    """

    def __init__(self, step: Step, box: Box, room: NDArray[Any], known: Known | None = None) -> None:
        self.step = step
        self.box = box
        self.room = room
        self.value: NDArray[Any] | None = None
        self._known: Known = {} if known is None else known
        self._is_filled = False

    @property
    def pixels(self) -> NDArray[Any]:
        """The pixels; where all are one value, that value seen in many places."""
        return self.room if self.value is None else np.broadcast_to(self.value, self.room.shape)

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

    def read(self, source: Any) -> int:
        """Reduce the chunks of `source` under the block one by one, each in the cache; return the bytes of pixels read.

        The step takes chunks, and `source` gives them.
        """
        n_bytes = 0

        def take(stored: Encoded) -> Sequence[int]:
            nonlocal n_bytes
            found = self.take(stored)
            parts = (intersect(window, box) for box, state in zip(stored.boxes, found, strict=True) if state == DONE)
            n_bytes += sum(map(n_pixels, parts)) * stored.codec.dtype.itemsize
            return found

        window = self.step.window(self.box)
        chunks = partial(source.chunks, take=take) if isinstance(source, Handle) else source.chunks
        for chunk, pixels in chunks(window):
            n_bytes += 0 if is_constant(pixels) else pixels.nbytes
            self.receive(chunk, pixels)
        return n_bytes

    def take(self, stored: Encoded) -> list[int]:
        """Reduce what the block needs of stored chunks, which a compiled loop reads; say what became of each."""
        step, codec, found = self.step, stored.codec, np.full(len(stored.boxes), LEFT, np.uint8)
        boxes, factors = np.array(stored.boxes), np.array([e.p for e in step.edges])
        (low, high), first = np.array(step.window(self.box)).T, boxes[..., 0]
        start, stop = np.maximum(first, low), np.minimum(boxes[..., 1], high)
        # The last window of an axis may be short.
        left = (start % factors != 0).any(axis=1) | (stop % factors != 0).any(axis=1) | (step.nodata is not None)
        places = (start // factors - corner(self.box)) @ np.array(self.room.strides) // self.room.itemsize
        while not left.all():
            shape = (stop - start)[np.argmin(left)]
            alike = ~left & (stop - start == shape).all(axis=1)
            left |= alike
            loop = chunk_loop(step.method, step.edges, shape.tolist(), codec.shape, codec.dtype, self.room)
            if loop is None:
                continue
            if self.value is not None:
                self.settle()
            states, origins = found[alike], np.ravel_multi_index(tuple((start - first)[alike].T), codec.shape)
            chunks = stored.calls, stored.spans[alike], stored.data, states
            loop.reduce_stored(chunks, stored.room, self.room, np.stack([origins, places[alike]], axis=1))
            found[alike] = states
        self._is_filled = self._is_filled or DONE in found
        return [int(each) for each in found]

    def _value(self, box: Box, pixels: NDArray[Any], origin: Sequence[int]) -> NDArray[Any] | None:
        key = pixels[(slice(1),) * pixels.ndim].tobytes()
        if key not in self._known:
            self._known[key] = _value(self.step, box, pixels, origin)
        return self._known[key]

    def settle(self) -> None:
        """Fill the room with the one value so far, if there is one: from now on they may differ."""
        if self.value is not None:
            self.room[...] = self.value
            self.value = None
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
