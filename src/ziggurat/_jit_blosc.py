"""Blocks of chunks that blosc encoded: each can be decoded alone. Importing this module loads numba.

A chunk is a header of 16 bytes (format, sizes), where each block begins (32 bits each), and the blocks. The layout is
that of c-blosc's README_CHUNK_FORMAT. What is not laid out so is not taken.
"""

from typing import Any

import numpy as np

from ziggurat._jit_calls import call, inner, put_word, word

__all__ = ["HEADER_BYTES", "ONE_BLOCK_BYTES", "block_bytes", "decode_blocks", "is_whole", "span"]

HEADER_BYTES = 16
IS_COPY = 0x2 << 16  # in the first word: the pixels follow as they are
ONE_BLOCK_BYTES = HEADER_BYTES + 4
"""What stands before the block in a chunk of one block."""


@inner
def is_whole(head: int, n: int, size: int) -> Any:
    """Say whether `n` bytes are what their header tells, for `size` bytes of pixels.

    The decoder reads past the end of what was cut short, and gives garbage.
    """
    return n >= HEADER_BYTES and word(head + 4) == size and word(head + 12) == n


@inner
def block_bytes(head: int, n_head: int, n: int, size: int) -> Any:
    """Return the bytes of pixels in one block, 0 where there are not several, one after the other.

    Parameters
    ----------
    head, n_head : int
        Address and number of the first bytes of a chunk: its header and where the blocks begin, if they hold that.
    n, size : int
        Bytes of the chunk, encoded and decoded.
    """
    if n_head < HEADER_BYTES or not is_whole(head, n, size) or word(head) & IS_COPY:
        return 0
    block = word(head + 8)
    if not 0 < block < size:
        return 0
    n_blocks = (size + block - 1) // block
    before = HEADER_BYTES + 4 * n_blocks
    if n_head < before:
        return 0
    for b in range(n_blocks):
        start, stop = span(head, b, block, n, size)
        if not before <= start < stop <= n:
            return 0
        before = stop
    return block


@inner
def span(head: int, b: int, block: int, n: int, size: int) -> Any:
    """Return where the bytes of a block begin and end in the chunk."""
    stop = n if (b + 1) * block >= size else word(head + HEADER_BYTES + 4 * (b + 1))
    return word(head + HEADER_BYTES + 4 * b), stop


@inner
def decode_blocks(decoder: int, head: int, blocks: Any, data: int, sizes: Any, place: int) -> Any:
    """Decode a run of blocks to `place`, and say whether that was done.

    Parameters
    ----------
    decoder : int
        Address of blosc's decoder.
    blocks : tuple of int
        The first block, and the one after the last.
    data : int
        Address of the bytes of the blocks. What lies before each is overwritten: 20 bytes.
    sizes : tuple of int
        Bytes of pixels of a block; bytes of the chunk, encoded and decoded.
    """
    block, n, size = sizes
    first = span(head, blocks[0], block, n, size)[0]
    for b in range(blocks[0], blocks[1]):
        start, stop = span(head, b, block, n, size)
        alone = data + start - first - ONE_BLOCK_BYTES
        wanted = min(block, size - b * block)
        put_word(alone, word(head))
        put_word(alone + 4, wanted)
        put_word(alone + 8, block)
        put_word(alone + 12, stop - start + ONE_BLOCK_BYTES)
        put_word(alone + 16, ONE_BLOCK_BYTES)
        if np.int32(call(decoder, (alone, place, block, 1))) != wanted:
            return False
        place += block
    return True
