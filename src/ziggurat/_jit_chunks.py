"""Compiled reading, decoding and storing of chunks, for the loops over pixels. Importing this module loads numba.

Between two chunks Python takes longer than many a codec, and its threads wait for each other. Here a row of chunks is
read, decoded and reduced in one call without the GIL, each while it is in the cache, and a chunk is encoded and stored
in another. Whatever is not as it should be is left to Python, which looks again and says what is wrong.

numba's cache does not see changes of this file: `make clean` after them.
"""

from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils
from numba.extending import intrinsic

from ziggurat._codes import BLOSC, DONE, MISSING, RAW, ZSTD

__all__ = ["CHUNKS", "NO_CHUNKS", "STORING", "fetched", "memory", "store"]

CHUNKS = numba.types.Tuple([numba.int64[::1], numba.int64[:, ::1], numba.uint8[::1], numba.uint8[::1]])
"""What `fetched` takes."""

NO_CHUNKS = np.empty(0, np.int64), np.empty((0, 2), np.int64), np.empty(0, np.uint8), np.empty(0, np.uint8)

NOT_THERE = -2
ENOENT = 2
BLOSC_HEADER_BYTES = 16
ZSTD_LEVEL, ZSTD_CHECKSUM = 100, 201


def _calling(typing: Any, address: Any, words: Any) -> Any:
    """Call the C function at an address with a tuple of integers and pointers.

    numba cannot keep code with such an address in its cache, so the address is a value like any other.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = ir.IntType(64)
        given = cgutils.unpack_tuple(builder, arguments[1], words.count)
        function = builder.inttoptr(arguments[0], ir.FunctionType(word, [word] * words.count).as_pointer())
        return builder.call(function, given)

    return numba.int64(numba.int64, numba.types.UniTuple(numba.int64, words.count)), generate


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
    file = np.int64(np.int32(_call(calls[2], (path, calls[6]))))
    if file < 0:
        return NOT_THERE if _word(_call(calls[5], (0,))) == ENOENT else -1
    n, count = 0, 1
    while n < len(data):
        count = _call(calls[3], (file, data.ctypes.data + n, len(data) - n))
        if count <= 0:
            break
        n += count
    _call(calls[4], (file,))
    return n if count == 0 else -1


@numba.njit(nogil=True)
def _decode(calls: Any, address: int, n: int, room: Any) -> Any:
    """Decode `n` bytes to exactly as many pixels as `room` has; say whether they were that."""
    codec, place, size = calls[0], room.ctypes.data, room.size * room.itemsize
    if codec == BLOSC:
        # blosc reads past the end of what was cut short, and gives garbage.
        whole = n >= BLOSC_HEADER_BYTES and _word(address + 4) == size and _word(address + 12) == n
        return whole and np.int32(_call(calls[1], (address, place, size, 1))) == size
    if codec == ZSTD:
        return n > 0 and _call(calls[1], (place, size, address, n)) == size
    if n == size:
        _call(calls[1], (place, address, n))
    return n == size


STORING = [numba.int64[::1], numba.int64, numba.int64, numba.uint8[::1], numba.int64, numba.int64]
"""What `store` takes."""


def store(calls: Any, place: int, size: int, data: Any, path: int, spare: int) -> Any:
    """Encode the pixels of a chunk, and put them where a file was, or none: all at once. Say whether that was done.

    Parameters
    ----------
    calls : array
        Which codec (of `ziggurat._codes`); the addresses of C's `creat`, `write`, `close`, `rename` and `unlink`; the
        mode of new files; the addresses of what encodes, and its parameters.
    place, size : int
        Address and number of the bytes of the pixels.
    data : array
        Memory for the encoded bytes.
    path, spare : int
        Addresses of two paths: of the file, and of one beside it, which takes its place when it is complete.
    """
    n = _encode(calls, place, size, data)
    if n <= 0:
        return False
    file = np.int64(np.int32(_call(calls[1], (spare, calls[6]))))
    if file < 0:
        return False
    source = place if calls[0] == RAW else data.ctypes.data
    done, count = 0, 1
    while done < n and count > 0:
        count = _call(calls[2], (file, source + done, n - done))
        done += count
    is_closed = np.int32(_call(calls[3], (file,))) == 0
    if done == n and is_closed and np.int32(_call(calls[4], (spare, path))) == 0:
        return True
    _call(calls[5], (spare,))
    return False


@numba.njit(nogil=True)
def _encode(calls: Any, place: int, size: int, data: Any) -> Any:
    """Encode `size` bytes into `data`, and return how many they are then; the same as numcodecs does."""
    codec, room = calls[0], data.ctypes.data
    if codec == BLOSC:
        level, shuffle, pixel, name, block = calls[8], calls[9], calls[10], calls[11], calls[12]
        most = size + BLOSC_HEADER_BYTES
        return np.int32(_call(calls[7], (level, shuffle, pixel, size, place, room, most, name, block, 1)))
    if codec == ZSTD:
        context = _call(calls[7], (0,))
        _call(calls[8], (context, ZSTD_LEVEL, calls[11]))
        _call(calls[8], (context, ZSTD_CHECKSUM, calls[12]))
        n = _call(calls[9], (context, room, len(data), place, size))
        _call(calls[10], (context,))
        return n if n <= len(data) else -1
    return size
