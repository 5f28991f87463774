"""Orders that compiled code follows, and what those of like blocks have in common."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import add
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ziggurat._codes import OTHER, READ, REDUCE, STORE
from ziggurat._hot import Walk as Loop
from ziggurat.codecs import ChunkCodec
from ziggurat.grid import Shape
from ziggurat.storing import rows_of

__all__ = ["NOTHING", "Alike", "Order", "Orders"]

NOTHING = (OTHER, *[0] * 8)
"""The numbers of an order that compiled code leaves."""

_MOST_TREES = 64  # that are kept: those at an image's edges differ from the others, and from each other


class Order(NamedTuple):
    """One thing to do.

    Attributes
    ----------
    numbers : tuple of int
        As `ziggurat._jit_perform.perform` takes them. Addresses of pixels count from where the room of their level
        begins, those of paths from the first of the names of `cell`.
    instead : callable
        What does it where compiled code does not, given what became of it.
    n_bytes : int
        Bytes of its pixels.
    level : int
        Of the chunk that is read or stored, or of the block that is reduced, into the room of the level above.
    cell : tuple of int
        Which chunk.
    """

    numbers: tuple[int, ...]
    instead: Callable[[int], None]
    n_bytes: int = 0
    level: int = 0
    cell: Shape = ()


@dataclass(frozen=True, slots=True, eq=False)
class Orders:
    """Many orders, one after the other, without what does them instead: one row, or one element, for each.

    Attributes
    ----------
    numbers : array, shape (n, 9)
        Of each order.
    rooms : array, shape (n, 2)
        The levels whose rooms' addresses are to be added to the third and the fourth number; -1 for none.
    named : array, shape (n, 2)
        Whether the address of its names is to be added to the fourth and the fifth.
    kinds, levels, n_bytes, cells : list
        As in the order.
    """

    numbers: NDArray[np.int64]
    rooms: NDArray[np.int64]
    named: NDArray[np.int64]
    kinds: Sequence[int]
    levels: Sequence[int]
    n_bytes: Sequence[int]
    cells: Sequence[Shape]

    @classmethod
    def of(cls, orders: Sequence[Order]) -> "Orders":
        """Return orders together."""
        numbers = np.array([order.numbers for order in orders], np.int64)
        kinds, levels = [order.numbers[0] for order in orders], [order.level for order in orders]
        rooms = np.array([_ROOMS[kind](k) for kind, k in zip(kinds, levels, strict=True)])
        named = np.array([(kind in (READ, STORE), kind == STORE) for kind in kinds], np.int64)
        n_bytes, cells = [order.n_bytes for order in orders], [order.cell for order in orders]
        return cls(numbers, rooms, named, kinds, levels, n_bytes, cells)

    def moved(self, by: Mapping[int, Sequence[int]]) -> "Orders":
        """Return the same orders for chunks that lie elsewhere: `by` so many chunks in each level."""
        each = zip(self.cells, self.levels, strict=True)
        cells = [tuple(map(add, cell, by[k])) if cell else () for cell, k in each]
        return replace(self, cells=cells)

    def placed(self, rooms: NDArray[np.int64], names: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the numbers, given the address of the room of each level, with a 0 at the end, and of each's names."""
        found = self.numbers.copy()
        found[:, 2:4] += rooms[self.rooms]
        found[:, 3:5] += self.named * names[:, np.newaxis]
        return found


_ROOMS: dict[int, Callable[[int], tuple[int, int]]] = {
    READ: lambda k: (k + 1, -1),
    REDUCE: lambda k: (k + 1, k),
    STORE: lambda k: (k, -1),
    OTHER: lambda k: (-1, -1),
}


class Alike:
    """What is found out for one tree of blocks and kept for the next: trees are alike.

    Attributes
    ----------
    trees : dict
        Orders, by the shapes of what they build and how it lies in the chunks, as they are for the first chunks.
    """

    def __init__(self) -> None:
        self.trees: dict[Any, Orders] = {}
        self._loops: list[Loop] = []
        self._rows: dict[tuple[Shape, Shape, int], tuple[int, NDArray[np.int64], int]] = {}
        self._lock = Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return Alike, ()

    def keep(self, key: Any, orders: Orders) -> None:
        """Keep orders for the next tree of the kind."""
        if len(self.trees) < _MOST_TREES:
            self.trees[key] = orders

    def number(self, loop: Loop) -> int:
        """Return the number of a loop, which there is one of for each layout."""
        with self._lock:
            for i, known in enumerate(self._loops):
                if known is loop:
                    return i
            self._loops.append(loop)
            return len(self._loops) - 1

    def loops(self) -> tuple[NDArray[np.int64], int]:
        """Return the table of all loops, and the bytes of scratch that any of them needs."""
        found = list(self._loops)
        table = np.concatenate([loop.table for loop in found]) if found else np.empty((0, 0), np.int64)
        return table, max((loop.n_scratch for loop in found), default=0)

    def rows_of(self, codec: ChunkCodec, strides: Shape) -> tuple[int, int, int]:
        """Return where the rows of a chunk are among all `rows`, how many, and the bytes of each; 0 for no rows."""
        key = codec.shape, strides, codec.dtype.itemsize
        with self._lock:
            if key not in self._rows:
                self._rows[key] = sum(len(rows) for _, rows, _ in self._rows.values()), *rows_of(*key)
            first, rows, row_bytes = self._rows[key]
        return first, len(rows), row_bytes

    def rows(self) -> NDArray[np.int64]:
        """Return where rows begin, all of them: none while only reads were ordered."""
        return np.concatenate([np.empty(0, np.int64), *(rows for _, rows, _ in list(self._rows.values()))])
