"""Memory that is used again: fresh memory costs the system as much time as decoding into it."""

from bisect import bisect_left, insort
from threading import Lock
from typing import Any, Literal
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from ziggurat._hot import address

__all__ = ["Rooms", "shared_rooms"]

PAGE_BYTES = 4096

type Room = NDArray[np.uint8]
type Kind = Literal["pixels", "encoded"]


class Rooms:
    """Memory that is not in use; whoever takes some gives it back.

    There is never more than was in use at once, of about each size.

    Parameters
    ----------
    kind : {"pixels", "encoded"}
        What it is for. Encoded bytes fill a part of the memory that they might need, and the system gives no more than
        that: pixels there would have it give all.
    """

    def __init__(self, kind: Kind = "pixels") -> None:
        self.kind = kind
        self._free: list[Room] = []
        self._lock = Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return shared_rooms, (self.kind,)

    def take(self, n_bytes: int) -> Room:
        """Return memory for `n_bytes`, and at most as much again."""
        with self._lock:
            # Ordered by size: the first that is large enough, or it replaces the one before, the next smaller one.
            i = bisect_left(self._free, n_bytes, key=_size)
            if i < len(self._free) and self._free[i].nbytes <= 2 * n_bytes:
                return self._free.pop(i)
            if i:
                del self._free[i - 1]
        return _aligned(n_bytes)

    def give(self, room: Room) -> None:
        """Let others have `room`."""
        with self._lock:
            insort(self._free, room, key=_size)


def _aligned(n_bytes: int) -> Room:
    """Return new memory that begins with a page.

    What the system maps for numpy begins 16 bytes later. Into such places AMD's processors copy from whole pages, which
    is what reading a cached file does, at a third of their speed.
    """
    room = np.empty(n_bytes + PAGE_BYTES, np.uint8)
    first = -address(room) % PAGE_BYTES
    return room[first : first + n_bytes]


def _size(room: Room) -> int:
    return room.nbytes


_all: WeakValueDictionary[str, Rooms] = WeakValueDictionary()


def shared_rooms(kind: Kind = "pixels") -> Rooms:
    """Return the rooms of this process for what is of one kind; they last as long as anyone holds on to them."""
    return _all.setdefault(kind, Rooms(kind))
