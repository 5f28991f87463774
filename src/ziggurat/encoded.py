"""Stored chunks that compiled loops read and decode themselves, on the way to the pixels that they reduce."""

import ctypes
import functools
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numcodecs
import numcodecs.blosc
import numcodecs.zstd
import numpy as np
from numpy.typing import NDArray

from ziggurat._codes import BLOSC, RAW, ZSTD
from ziggurat._hot import IS_OFF, address
from ziggurat.boxes import Box
from ziggurat.codecs import ChunkCodec

__all__ = ["Calls", "Encoded", "Take", "addresses", "calls_of", "compiled"]

type Bytes = NDArray[np.uint8]

type Calls = NDArray[np.int64]
"""A codec, the addresses of its decoder, of C's `open`, `pread`, `close`, `errno` and `lseek`, and how to open."""


@dataclass(frozen=True, slots=True, eq=False)
class Encoded:
    """Stored chunks of one array, all of one shape.

    Attributes
    ----------
    codec : ChunkCodec
        What they were encoded with.
    boxes : sequence of Box
        Where they lie; some may reach beyond the array.
    calls : Calls
        What reads and decodes them.
    spans : list of (int, int)
        Address and number of the bytes of each chunk; or address of a file's path and -1.
    data : array of uint8
        Memory for the bytes of one file.
    room : array of uint8
        Memory for the pixels of one chunk.
    owner : object
        What lies at the addresses.
    """

    codec: ChunkCodec
    boxes: Sequence[Box]
    calls: Calls
    spans: list[tuple[int, int]]
    data: Bytes
    room: Bytes
    owner: Any

    @classmethod
    def files(
        cls, codec: ChunkCodec, calls: Calls, boxes: Sequence[Box], paths: Sequence[str], data: Bytes, room: Bytes
    ) -> "Encoded":
        """Return chunks that are files of their own."""
        names = [os.fsencode(path) + b"\0" for path in paths]
        joined = np.frombuffer(b"".join(names), np.uint8)
        starts = accumulate(map(len, names), initial=address(joined))
        spans = [(place, -1) for place, _ in zip(starts, names, strict=False)]
        return cls(codec, boxes, calls, spans, data, room, joined)

    @classmethod
    def parts(
        cls, codec: ChunkCodec, calls: Calls, boxes: Sequence[Box], parts: Sequence[Bytes], room: Bytes
    ) -> "Encoded":
        """Return chunks whose bytes are in memory."""
        spans = [(address(part), part.nbytes) for part in parts]
        return cls(codec, boxes, calls, spans, np.empty(0, np.uint8), room, parts)


type Take = Callable[[Encoded], Sequence[int]]
"""Reduces what it can of stored chunks, and says what became of each: `LEFT`, `DONE` or `MISSING`."""


def calls_of(codec: ChunkCodec) -> Calls | None:
    """Return what decodes such chunks without Python; None where nothing does."""
    if not codec.is_plain:
        return None
    return _calls(type(codec.coders[0]) if codec.coders else None)


@functools.cache
def _calls(coder: type | None) -> Calls | None:
    """Return the codec and the addresses of its decoder and of C's file functions.

    numcodecs has no way to decode many chunks without the GIL in between, but its modules export the C functions that
    they are made of: nothing that it promises. Where one is not found, chunks go the usual way.
    """
    try:
        c = ctypes.CDLL(None)
        if coder is None:
            number, decoder = RAW, c.memcpy
        elif coder is numcodecs.Blosc:
            number, decoder = BLOSC, ctypes.CDLL(numcodecs.blosc.__file__).blosc_decompress_ctx
        elif coder is numcodecs.Zstd:
            number, decoder = ZSTD, ctypes.CDLL(numcodecs.zstd.__file__).ZSTD_decompress
        else:
            return None
        errno = c.__error if sys.platform == "darwin" else c.__errno_location
        functions = [decoder, c.open, c.pread, c.close, errno, c.lseek]
    except (AttributeError, OSError, TypeError):  # as on Windows
        return None
    if np.intp(0).itemsize != np.int64(0).itemsize:  # the loops call C with words of 64 bits
        return None
    return np.array([number, *addresses(functions), os.O_RDONLY | os.O_CLOEXEC], np.int64)


def compiled(name: str) -> Callable[..., Any] | None:
    """Return a compiled function of chunks, where numba was worth its loading for what is computed."""
    found = None if IS_OFF else getattr(sys.modules.get("ziggurat._jit"), "of_chunks", None)
    return found(name) if found else None


def addresses(functions: Sequence[Any]) -> list[int]:
    """Return where C functions lie in memory."""
    return [ctypes.cast(function, ctypes.c_void_p).value or 0 for function in functions]
