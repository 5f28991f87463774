"""Compiled reading and decoding of chunks. Importing this module loads numba.

Of a chunk that is wanted in part, the blocks that hold it are read. Whatever is not as it should be is left to Python,
which looks again and says what is wrong.

numba's cache does not see changes of this file, nor of those that it imports: `make clean` after them.
"""

from typing import Any

import numpy as np

from ziggurat._codes import BLOSC, DONE, LEFT, MISSING, RAW, ZSTD
from ziggurat._jit_blosc import block_bytes, decode_blocks, is_whole, span
from ziggurat._jit_calls import address_of, call, inner, word

__all__ = ["fetched", "opened", "read_at"]

ENOENT = 2
END_OF_FILE = 2  # what C's `lseek` counts from
HEAD_BYTES = 4096  # read of a chunk to see its blocks: enough for a thousand
GAP_BYTES = 32  # between those and the bytes of blocks, for `decode_blocks` to overwrite
WORTH_BYTES = 2**17  # of pixels: what takes longer to decode than to look for blocks


@inner
def fetched(calls: Any, address: int, n: int, data: Any, room: Any, first: int, last: int) -> Any:
    """Put the pixels of a stored chunk into `room`, at least its bytes from `first` to `last`.

    Return `DONE`; `MISSING` where there is no such file, and `LEFT` what is left to Python.

    Parameters
    ----------
    calls : array
        Which codec (of `ziggurat._codes`), and the addresses of its decoder (C's `memcpy` for pixels as they are), of
        C's `open`, `pread` and `close`, of what tells where its `errno` is, and of `lseek`; and how files are opened.
    address, n : int
        Address and number of the encoded bytes; or address of the path of a file and -1.
    data : array of uint8
        Memory for what is read from a file.
    room : array of uint8
        As many bytes as the pixels of a chunk have.
    """
    is_done = False
    if n >= 0:
        is_done = _decode(calls, address, n, room)
    else:
        file, n = opened(calls, address)
        if file < 0:
            return MISSING if word(call(calls[5], (0,))) == ENOENT else LEFT
        if calls[0] == RAW:
            is_done = n == len(room) and read_at(
                calls, file, address_of(room) + first, last - first, last - first, first
            )
        else:
            if calls[0] == BLOSC and last - first + WORTH_BYTES < len(room):
                is_done = _decode_some(calls, file, data, n, room, first, last)
            if not is_done:
                memory = address_of(data)
                is_done = read_at(calls, file, memory, len(data), n, 0) and _decode(calls, memory, n, room)
        call(calls[4], (file,))
    return DONE if is_done else LEFT


@inner
def _decode_some(calls: Any, file: int, data: Any, n: int, room: Any, first: int, last: int) -> Any:
    """Read and decode the blocks that hold the bytes from `first` to `last`, and say whether that was done."""
    head, n_head, gap = address_of(data), min(n, HEAD_BYTES), HEAD_BYTES + GAP_BYTES
    size = len(room)
    block = block_bytes(head, n_head, n, size) if read_at(calls, file, head, len(data), n_head, 0) else 0
    if block == 0:
        return False
    blocks = first // block, (last + block - 1) // block
    start, stop = span(head, blocks[0], block, n, size)[0], span(head, blocks[1] - 1, block, n, size)[1]
    if not read_at(calls, file, head + gap, len(data) - gap, stop - start, start):
        return False
    pixels = address_of(room) + blocks[0] * block
    return decode_blocks(calls[1], head, blocks, head + gap, (block, n, size), pixels)


@inner
def opened(calls: Any, path: int) -> Any:
    """Open a file to be read; return it, negative where that was not done, and the number of its bytes."""
    file = np.int64(np.int32(call(calls[2], (path, calls[7]))))
    return file, call(calls[6], (file, 0, END_OF_FILE)) if file >= 0 else np.int64(0)


@inner
def read_at(calls: Any, file: int, place: int, room: int, n: int, start: int) -> Any:
    """Read `n` bytes of a file from `start` on to an address with `room` for so many, and say whether that was done."""
    done, count = 0, 1
    if not 0 <= n <= room:
        return False
    while done < n and count > 0:
        count = call(calls[3], (file, place + done, n - done, start + done))
        done += max(count, 0)
    return done == n


@inner
def _decode(calls: Any, address: int, n: int, room: Any) -> Any:
    """Decode `n` bytes to exactly as many pixels as `room` has; say whether they were that."""
    codec, place, size = calls[0], address_of(room), len(room)
    if codec == BLOSC:
        return is_whole(address, n, size) and np.int32(call(calls[1], (address, place, size, 1))) == size
    if codec == ZSTD:
        return n > 0 and call(calls[1], (place, size, address, n)) == size
    if n == size:
        call(calls[1], (place, address, n))
    return n == size
