"""Compiled work on chunks, one order after the other. Importing this module loads numba.

Between two chunks Python takes longer than many a codec, and its threads wait for each other. Here chunks are read,
decoded, reduced, encoded and stored in one call without the GIL, each while it is in the cache.

numba's cache does not see changes of the files that this one imports: `make clean` after them.
"""

from typing import Any

import numba
import numpy as np

from ziggurat._codes import DONE, READ, REDUCE, STORE
from ziggurat._jit_calls import address_of, call, inner, word
from ziggurat._jit_chunks import fetched
from ziggurat._jit_store import begin, end, stored

__all__ = ["PERFORMING", "perform"]

_TABLE = numba.int64[:, ::1]
_ROW = numba.int64[::1]
_BYTES = numba.uint8[::1]

PERFORMING = [
    *(_TABLE, numba.int64, _TABLE, _ROW, _BYTES, _BYTES, _BYTES),
    *(_TABLE, _BYTES, _ROW, _ROW, _BYTES, _ROW),
]
"""What `perform` takes."""

NANOSECONDS = 1_000_000_000


def perform(
    orders: Any,
    first: int,
    loops: Any,
    reading: Any,
    data: Any,
    room: Any,
    scratch: Any,
    encodings: Any,
    encoded: Any,
    rows: Any,
    clock: Any,
    found: Any,
    spent: Any,
) -> Any:
    """Follow one order after the other, from the `first`, and return the first one that was not reached.

    A chunk that cannot be read is left to Python, and with it what comes after the reads that follow; so is an order
    that cannot be followed.

    Parameters
    ----------
    orders : array, shape (n, 9)
        What is done, and with what. `READ`: a loop (-1 for none), the address of targets, address and number of encoded
        bytes as `fetched` takes them, the first and the last byte of `room` that are needed. `REDUCE`: a loop, the
        address of targets, that of the source. `STORE`: an encoding, the address of pixels, the addresses of two paths,
        where its rows are and how many, the bytes of each, and what fill looks like. See `stored`.
    loops : array
        The address of each loop, and what it is given.
    reading, data, room
        As `fetched` takes them.
    scratch : array
        What loops need beside.
    encodings, encoded, rows : array
        As `stored` takes them.
    clock : array
        Address of C's `clock_gettime`, and which clock.
    found : array
        What became of each order, set here: `LEFT`, `DONE` or `MISSING`.
    spent : array
        Nanoseconds that each order took, set here.
    """
    is_left, used = False, np.int64(-1)
    context: Any = np.int64(0)
    i = first
    while i < len(orders):
        kind, begun = orders[i, 0], _now(clock, scratch)
        if kind == READ:
            state = fetched(reading, orders[i, 3], orders[i, 4], data, room, orders[i, 5], orders[i, 6])
            if state == DONE and orders[i, 1] >= 0:
                _reduce(loops, orders[i, 1], address_of(room) + orders[i, 5], orders[i, 2], scratch)
            found[i] = state
            is_left = is_left or state != DONE
        elif is_left:
            break
        elif kind == REDUCE:
            _reduce(loops, orders[i, 1], orders[i, 3], orders[i, 2], scratch)
            found[i] = DONE
        elif kind == STORE:
            if orders[i, 1] != used:
                if used >= 0:
                    end(encodings[used], context)
                used = orders[i, 1]
                context = begin(encodings[used])
            its_rows = rows[orders[i, 5] : orders[i, 5] + orders[i, 6]]
            if not stored(encodings[used], context, orders[i], its_rows, room, encoded):
                break
            found[i] = DONE
        else:
            break
        spent[i] = _now(clock, scratch) - begun
        i += 1
    if used >= 0:
        end(encodings[used], context)
    return i


@inner
def _reduce(loops: Any, i: int, source: int, target: int, scratch: Any) -> None:
    given = address_of(loops) + 8 * (i * loops.shape[1] + 1)
    call(loops[i, 0], (source, target, address_of(scratch), given))


@inner
def _now(clock: Any, scratch: Any) -> Any:
    """Return the time in nanoseconds, 0 where there is no clock."""
    if clock[0] == 0:
        return 0
    call(clock[0], (clock[1], address_of(scratch)))
    place = address_of(scratch)
    seconds, rest = word(place) + (word(place + 4) << 32), word(place + 8)
    return seconds * NANOSECONDS + rest
