"""How compiled loops encode chunks and store them: the C functions of a codec, and its settings."""

import ctypes
import functools
from typing import Any, NamedTuple

import numcodecs
import numcodecs.blosc
import numcodecs.zstd
import numpy as np
from numpy.typing import NDArray

from ziggurat._codes import BLOSC, RAW, ZSTD
from ziggurat._hot import address
from ziggurat.codecs import ChunkCodec
from ziggurat.encoded import addresses

__all__ = ["Encoding"]

NEW_FILE_MODE = 0o666
"""What Python opens new files with; the process's mask takes away from it."""


class Encoding(NamedTuple):
    """What encodes the chunks of one codec; use `of`.

    Attributes
    ----------
    calls : array of int64
        What `ziggurat._jit_store.store` takes.
    owner : object
        What lies at the addresses in it.
    """

    calls: NDArray[np.int64]
    owner: Any

    @classmethod
    def of(cls, codec: ChunkCodec) -> "Encoding | None":
        """Return the encoding of a codec; None where it is not known, or pixels have another order."""
        if not codec.is_plain:
            return None
        coder = codec.coders[0] if codec.coders else None
        if isinstance(coder, numcodecs.Blosc):
            name, pixel = coder.cname.encode() + b"\0", codec.pixel_bytes
            shuffle = coder.shuffle if coder.shuffle >= 0 else (1 if pixel > 1 else 2)
            text = np.frombuffer(name, np.uint8)
            own: list[int] = [coder.clevel, shuffle, pixel, address(text), coder.blocksize]
            calls, owner = _calls(numcodecs.Blosc), text
        elif isinstance(coder, numcodecs.Zstd):
            calls, owner, own = _calls(numcodecs.Zstd), None, [coder.level, int(coder.checksum)]
        else:
            calls, owner, own = _calls(None) if coder is None else None, None, []
        return None if calls is None else cls(np.append(calls, np.array(own, np.int64)), owner)


@functools.cache
def _calls(coder: type | None) -> NDArray[np.int64] | None:
    """Return what all chunks of a codec are stored with, None where something of it is missing."""
    try:
        c = ctypes.CDLL(None)
        functions = [c.creat, c.write, c.close, c.rename, c.unlink, c.memcpy]
        if coder is numcodecs.Blosc:
            number, encoders = BLOSC, [ctypes.CDLL(numcodecs.blosc.__file__).blosc_compress_ctx]
        elif coder is numcodecs.Zstd:
            names = ("ZSTD_createCCtx", "ZSTD_CCtx_setParameter", "ZSTD_compress2", "ZSTD_freeCCtx")
            number, encoders = ZSTD, [getattr(ctypes.CDLL(numcodecs.zstd.__file__), name) for name in names]
        else:
            number, encoders = RAW, []
    except (AttributeError, OSError, TypeError):  # as on Windows
        return None
    return np.array([number, *addresses(functions), NEW_FILE_MODE, *addresses(encoders)], np.int64)
