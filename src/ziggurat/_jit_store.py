"""Compiled encoding and storing of chunks. Importing this module loads numba.

A chunk is encoded and its file put in place in one call without the GIL. What cannot be done is left to Python.

numba's cache does not see changes of this file, nor of those that it imports: `make clean` after them.
"""

from typing import Any

import numba
import numpy as np

from ziggurat._codes import BLOSC, RAW, ZSTD
from ziggurat._jit_blosc import HEADER_BYTES, ONE_BLOCK_BYTES, block_bytes, decode_blocks, span
from ziggurat._jit_calls import address_of, call, inner, put_word, word
from ziggurat._jit_chunks import opened, read_at

__all__ = ["PACKING", "SPLICING", "begin", "end", "pack", "splice", "stored"]

ZSTD_LEVEL, ZSTD_CHECKSUM = 100, 201
LOW = 2**32 - 1
ROOM_BYTES = 1024  # beside a block: more than blosc adds to one that it cannot make smaller

SPLICING = [
    *(numba.int64[::1], numba.int64, numba.int64, numba.uint8[::1], numba.int64, numba.int64),
    *(numba.int64[::1], numba.int64[:, ::1], numba.int64),
]
"""What `splice` takes."""

PACKING = [
    *(numba.int64[::1], numba.int64[::1], numba.int64[::1], numba.int64),
    *(numba.uint8[::1], numba.uint8[::1], numba.int64, numba.int64[:, ::1]),
]
"""What `pack` takes."""


@inner
def stored(calls: Any, context: int, order: Any, rows: Any, room: Any, data: Any) -> Any:
    """Encode the pixels of a chunk, and put them where a file was, or none: all at once. Say whether that was done.

    It is not where all pixels may be fill: such chunks are not stored.

    Parameters
    ----------
    calls : array
        Which codec (of `ziggurat._codes`); the addresses of C's `creat`, `write`, `close`, `rename`, `unlink` and
        `memcpy`; the mode of new files; the addresses of what encodes, and its parameters.
    context : int
        What `begin` returned for these.
    order : array
        From its third number on: the address of the pixels; those of two paths, of the file, and of one beside it,
        which takes its place when it is complete; two that are not for here; the bytes of pixels in a row; and eight
        bytes of pixels that are fill.
    rows : array
        Where the rows begin, in bytes from the first pixel.
    room : array
        Memory for the pixels, where there are several rows.
    data : array
        Memory for the encoded bytes.
    """
    place, path, spare, row_bytes, fill = order[2], order[3], order[4], order[7], order[8]
    size = len(rows) * row_bytes
    if len(rows) > 1:
        place = address_of(room)
        if size > len(room):
            return False
        for r in range(len(rows)):
            call(calls[6], (place + r * row_bytes, order[2] + rows[r], row_bytes))
    if _may_be_fill(place, size, fill):
        return False
    n = _encode(calls, context, place, size, data, 0)
    source = place if calls[0] == RAW else address_of(data)
    return n > 0 and _put(calls, np.array([[source, np.int64(n)]]), path, spare)


@inner
def _may_be_fill(place: int, size: int, fill: int) -> Any:
    """Say whether bytes are eight given ones, again and again.

    Fewer are not: who has chunks as small as that looks at them.
    """
    for at in range(0, size - 7, 8):
        if word(place + at) != fill & LOW or word(place + at + 4) != (fill >> 32) & LOW:
            return False
    rest = size - size % 8
    if size % 8 > 3 and word(place + rest) != fill & LOW:
        return False
    turn = 8 * ((size - 4) % 8)  # where in the eight the last four begin
    last = (fill >> turn) & LOW
    if turn > 32:
        last = (last & (LOW >> (turn - 32))) | ((fill << (64 - turn)) & LOW)
    return size > 7 and word(place + size - 4) == last


def splice(
    calls: Any, place: int, size: int, data: Any, path: int, spare: int, reading: Any, changed: Any, usual: int
) -> Any:
    """Store a chunk of which parts differ from what is stored: the bytes of other blocks are kept.

    That is done where it gives the same bytes: blosc's blocks do not depend on each other, and a block that comes out
    as it is stored tells, as far as one block can, that the file was encoded in the same way.

    Parameters
    ----------
    calls : array
        As `stored` takes them.
    place, size : int
        Address and number of the bytes of the pixels.
    data : array
        Memory for the encoded bytes, before and after.
    path, spare : int
        Addresses of two paths: of the file, and of one beside it, which takes its place when it is complete.
    reading : array
        What opens and reads files, as in `ziggurat._jit_chunks.fetched`.
    changed : array of int, shape (n, 2)
        The bytes of pixels that may differ.
    usual : int
        The bytes of pixels in a block, as blosc chooses them for such chunks.
    """
    head = address_of(data)
    file, n = opened(reading, path)
    if file < 0:
        return False
    is_read = read_at(reading, file, head, len(data), n, 0)
    call(reading[4], (file,))
    block = block_bytes(head, n, n, size) if is_read else 0
    if block == 0 or block != usual:
        return False
    n_blocks, end, n_changed = (size + block - 1) // block, n, 0
    differs = np.zeros(n_blocks, np.int64)
    for i in range(len(changed)):
        for b in range(changed[i, 0] // block, (changed[i, 1] + block - 1) // block):
            n_changed += 1 - differs[b]
            differs[b] = 1
    # One is encoded twice. The last one, where it is shorter, is encoded otherwise when it is alone.
    if 4 * (n_changed + 1) > 3 * n_blocks or (differs[n_blocks - 1] and size % block):
        return False
    parts = np.empty((1 + n_blocks, 2), np.int64)
    for b in range(n_blocks):
        start, stop = span(head, b, block, n, size)
        parts[1 + b, 0], parts[1 + b, 1] = head + start, stop - start
        if differs[b]:
            if end == n and not _is_alike(calls, reading, data, (block, n, size), b):
                return False
            n_bytes = _encode_block(calls, place + b * block, block, data, end)
            if n_bytes <= ONE_BLOCK_BYTES or word(head + end) != word(head):
                return False
            parts[1 + b, 0], parts[1 + b, 1] = head + end + ONE_BLOCK_BYTES, n_bytes - ONE_BLOCK_BYTES
            end += n_bytes
    at = HEADER_BYTES + 4 * n_blocks
    if span(head, 0, block, n, size)[0] != at:
        return False
    parts[0, 0], parts[0, 1] = head, at
    for b in range(n_blocks):
        put_word(head + HEADER_BYTES + 4 * b, at)
        at += parts[1 + b, 1]
    put_word(head + 12, at)
    # Near its limit blosc gives up on the whole chunk.
    return at + block <= size and _put(calls, parts, path, spare)


@inner
def _is_alike(calls: Any, reading: Any, data: Any, sizes: Any, b: int) -> Any:
    """Say whether a stored block, decoded and encoded again, comes out as it is; beyond the chunk, `data` is memory."""
    block, n, size = sizes
    head = address_of(data)
    start, stop = span(head, b, block, n, size)
    copy = n + ONE_BLOCK_BYTES
    pixels = copy + stop - start
    again = pixels + block
    if again + block + ROOM_BYTES > len(data):
        return False
    call(calls[6], (head + copy, head + start, stop - start))
    if not decode_blocks(reading[1], head, (b, b + 1), head + copy, sizes, head + pixels):
        return False
    n_bytes = _encode_block(calls, head + pixels, block, data, again)
    if n_bytes - ONE_BLOCK_BYTES != stop - start:
        return False
    encoded = again + ONE_BLOCK_BYTES
    n_same = 0
    while n_same < stop - start and data[encoded + n_same] == data[start + n_same]:
        n_same += 1
    return n_same == stop - start


@inner
def _encode_block(calls: Any, place: int, block: int, data: Any, end: int) -> Any:
    """Encode one block as a chunk of its own, at `end` of `data`; return its bytes, 0 or less for nothing done."""
    level, shuffle, pixel, name = calls[9], calls[10], calls[11], calls[12]
    most = block + ROOM_BYTES
    if end + most > len(data):
        return np.int32(0)
    return np.int32(call(calls[8], (level, shuffle, pixel, block, place, address_of(data) + end, most, name, block, 1)))


@inner
def _put(calls: Any, parts: Any, path: int, spare: int) -> Any:
    """Write bytes (addresses and numbers), one after the other, to a file that takes the place of another."""
    file = np.int64(np.int32(call(calls[1], (spare, calls[7]))))
    if file < 0:
        return False
    is_done = True
    for i in range(len(parts)):
        done, count = 0, 1
        while done < parts[i, 1] and count > 0:
            count = call(calls[2], (file, parts[i, 0] + done, parts[i, 1] - done))
            done += count
        is_done = is_done and done == parts[i, 1]
    is_closed = np.int32(call(calls[3], (file,))) == 0
    if is_done and is_closed and np.int32(call(calls[4], (spare, path))) == 0:
        return True
    call(calls[5], (spare,))
    return False


def pack(calls: Any, starts: Any, rows: Any, row_bytes: int, scratch: Any, data: Any, first: int, spans: Any) -> Any:
    """Encode chunks one after the other, and say whether that was done.

    Parameters
    ----------
    calls : array
        As `stored` takes them.
    starts : array
        Addresses of the first pixels of the chunks.
    rows : array
        Where the rows of a chunk begin, in bytes from its first pixel.
    row_bytes : int
        Bytes of pixels in a row.
    scratch : array
        Memory for the pixels of one chunk.
    data : array
        Memory for the encoded bytes, which are put there from `first` on.
    spans : array of int, shape (n, 2)
        Where each chunk begins in `data` and how many bytes it has, set here.
    """
    at, size, n_done, context = first, len(scratch), 0, begin(calls)
    for i in range(len(starts)):
        place = starts[i]
        if calls[0] == RAW:
            place = address_of(data) + at
            if at + size > len(data):
                break
        elif len(rows) > 1:
            place = address_of(scratch)
        if place != starts[i]:
            for r in range(len(rows)):
                call(calls[6], (place + r * row_bytes, starts[i] + rows[r], row_bytes))
        n = _encode(calls, context, place, size, data, at)
        if n <= 0:
            break
        spans[i, 0], spans[i, 1] = at, n
        at += n
        n_done += 1
    end(calls, context)
    return n_done == len(starts)


@inner
def begin(calls: Any) -> Any:
    """Return what zstd encodes several chunks with, one after the other, to `end` it; 0 for what needs none.

    It is half a megabyte that the system gives and takes back each time, and the bytes do not depend on its use before.
    """
    if calls[0] != ZSTD:
        return np.int64(0)
    context = call(calls[8], (0,))
    call(calls[9], (context, ZSTD_LEVEL, calls[12]))
    call(calls[9], (context, ZSTD_CHECKSUM, calls[13]))
    return context


@inner
def end(calls: Any, context: int) -> None:
    """Give back what `begin` returned."""
    if context != 0:
        call(calls[11], (context,))


@inner
def _encode(calls: Any, context: int, place: int, size: int, data: Any, at: int) -> Any:
    """Encode `size` bytes into `data` from `at` on, and return how many they are then; the same as numcodecs does."""
    codec, room, left = calls[0], address_of(data) + at, len(data) - at
    if codec == BLOSC:
        level, shuffle, pixel, name, block = calls[9], calls[10], calls[11], calls[12], calls[13]
        most = size + HEADER_BYTES
        if most > left:
            return np.int64(-1)
        return np.int64(np.int32(call(calls[8], (level, shuffle, pixel, size, place, room, most, name, block, 1))))
    if codec == ZSTD:
        n = call(calls[10], (context, room, left, place, size)) if context != 0 else np.int64(-1)
        return n if 0 < n <= left else np.int64(-1)
    return np.int64(size)
