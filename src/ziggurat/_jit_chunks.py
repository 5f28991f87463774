"""Compiled reading and decoding of stored chunks, for the loops over pixels. Importing this module loads numba.

Between two chunks Python takes longer than many a codec, and its threads wait for each other. Here a row of chunks is
read, decoded and reduced in one call without the GIL, each while it is in the cache. Whatever is not as it should be is
left to Python, which looks again and says what is wrong.

numba's cache does not see changes of this file: `make clean` after them.
"""

from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.extending import intrinsic

from ziggurat._codes import BLOSC, DONE, MISSING, ZSTD

__all__ = ["CHUNKS", "NO_CHUNKS", "fetched", "memory"]

CHUNKS = numba.types.Tuple([numba.int64[::1], numba.int64[:, ::1], numba.uint8[::1], numba.uint8[::1]])
"""What `fetched` takes."""

NO_CHUNKS = np.empty(0, np.int64), np.empty((0, 2), np.int64), np.empty(0, np.uint8), np.empty(0, np.uint8)

NOT_THERE = -2
ENOENT = 2
BLOSC_HEADER_BYTES = 16


def _calling(typing: Any, address: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    """Call the C function at an address with integers and pointers; those that it does not have are not looked at.

    numba cannot keep code with such an address in its cache, so the address is a value like any other.
    """
    signature = numba.int64(*[numba.int64] * 5)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = ir.IntType(64)
        function = builder.inttoptr(arguments[0], ir.FunctionType(word, [word] * 4).as_pointer())
        return builder.call(function, arguments[1:])

    return signature, generate


_call: Any = intrinsic(_calling)


def _reading(typing: Any, address: Any) -> Any:
    """Return the 32 bits at an address, without a sign."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = builder.load(builder.inttoptr(arguments[0], ir.IntType(32).as_pointer()), align=1)
        return builder.zext(word, ir.IntType(64))

    return numba.int64(numba.int64), generate


_word: Any = intrinsic(_reading)


def _pointing(typing: Any, array: Any, first: Any) -> Any:
    """Return the memory of a flat array from the pixel `first` on, which takes no indices from the end."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.gep(context.make_array(array)(context, builder, arguments[0]).data, [arguments[1]])

    return numba.types.CPointer(array.dtype)(array, numba.int64), generate


memory: Any = intrinsic(_pointing)


@numba.njit(nogil=True)
def fetched(chunks: Any, i: int, room: Any) -> Any:
    """Put the pixels of the stored chunk `i` into `room`, and say whether that was done.

    Where there are no stored chunks, `room` holds what is wanted.

    Parameters
    ----------
    chunks : tuple of array
        Which codec (of `ziggurat._codes`), and the addresses of its decoder (C's `memcpy` for pixels as they are), of
        C's `open`, `read` and `close`, and of what tells where its `errno` is; and how files are opened.
        Address and number of the encoded bytes of each chunk, or address of its path and -1.
        Memory for what is read from a file.
        What became of each chunk, set here: `DONE` or `MISSING`, where it is not left to Python.
    """
    calls, spans, data, found = chunks
    if len(spans) == 0:
        return True
    address, n = spans[i, 0], spans[i, 1]
    if n < 0:
        n = _read(calls, address, data)
        if n == NOT_THERE:
            found[i] = MISSING
            return False
        address = data.ctypes.data
    if _decode(calls, address, n, room):
        found[i] = DONE
        return True
    return False


@numba.njit(nogil=True)
def _read(calls: Any, path: int, data: Any) -> Any:
    """Read a file, and return the number of its bytes; -1 where it cannot be read or `data` cannot hold it."""
    file = np.int32(_call(calls[2], path, calls[6], 0, 0))
    if file < 0:
        return NOT_THERE if _word(_call(calls[5], 0, 0, 0, 0)) == ENOENT else -1
    n, count = 0, 1
    while n < len(data):
        count = _call(calls[3], file, data.ctypes.data + n, len(data) - n, 0)
        if count <= 0:
            break
        n += count
    _call(calls[4], file, 0, 0, 0)
    return n if count == 0 else -1


@numba.njit(nogil=True)
def _decode(calls: Any, address: int, n: int, room: Any) -> Any:
    """Decode `n` bytes to exactly as many pixels as `room` has; say whether they were that."""
    codec, place, size = calls[0], room.ctypes.data, room.size * room.itemsize
    if codec == BLOSC:
        # blosc reads past the end of what was cut short, and gives garbage.
        whole = n >= BLOSC_HEADER_BYTES and _word(address + 4) == size and _word(address + 12) == n
        return whole and np.int32(_call(calls[1], address, place, size, 1)) == size
    if codec == ZSTD:
        return n > 0 and _call(calls[1], place, size, address, n) == size
    if n == size:
        _call(calls[1], place, address, n, 0)
    return n == size
