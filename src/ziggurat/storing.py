"""Puts chunks into the files of a local store: encoded and written in one compiled call, without Python in between."""

import ctypes
import functools
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numcodecs
import numcodecs.blosc
import numcodecs.zstd
import numpy as np
from numpy.typing import NDArray

from ziggurat._codes import BLOSC, RAW, ZSTD
from ziggurat._hot import address
from ziggurat.codecs import ChunkCodec
from ziggurat.counted import Requests
from ziggurat.encoded import addresses, compiled

__all__ = ["FileWriter"]

NEW_FILE_MODE = 0o666
"""What Python opens new files with; the process's mask takes away from it."""


class FileWriter:
    """Stores chunks as zarr's local store does: in a file beside, which then takes the place of the one before.

    Use `of`.
    """

    def __init__(self, root: str, requests: Requests, codec: ChunkCodec, calls: NDArray[np.int64], owner: Any) -> None:
        self.root = root
        self.requests = requests
        self.codec = codec
        self._calls = calls
        self._owner = owner
        self._folders: set[str] = set()
        self._spare: list[NDArray[np.uint8]] = []

    @classmethod
    def of(cls, place: tuple[str, Requests] | None, codec: ChunkCodec) -> "FileWriter | None":
        """Return what stores such chunks in a directory, and counts it; None where that is not done so.

        That is where there is no directory, codecs are not known, or pixels have another order.
        """
        if place is None or codec.order != "C" or not codec.dtype.isnative or len(codec.coders) > 1:
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
        return None if calls is None else cls(*place, codec, np.append(calls, np.array(own, np.int64)), owner)

    def put(self, key: str, pixels: NDArray[Any]) -> bool:
        """Store a whole chunk, and say whether that was done; where it was not, nothing has changed."""
        store = compiled("storing")
        if store is None or pixels.dtype != self.codec.dtype:
            return False
        pixels = np.ascontiguousarray(pixels)
        path = f"{self.root}/{key}"
        folder = path.rpartition("/")[0]
        if folder not in self._folders:
            os.makedirs(folder, exist_ok=True)
            self._folders.add(folder)
        paths = np.frombuffer(os.fsencode(f"{path}\0{path}.{uuid.uuid4().hex}.partial\0"), np.uint8)
        first = address(paths)
        with self._lent() as data:
            done = store(self._calls, address(pixels), pixels.nbytes, data, first, first + len(os.fsencode(path)) + 1)
        self.requests.add(sets=int(done))
        return bool(done)

    @contextmanager
    def _lent(self) -> Iterator[NDArray[np.uint8]]:
        """Lend memory for the bytes of a chunk, to one thread at a time: fresh memory costs as much as encoding."""
        try:
            data = self._spare.pop()
        except IndexError:
            # More than any codec makes of what it cannot make smaller.
            data = np.empty(self.codec.n_bytes + self.codec.n_bytes // 128 + 1024, np.uint8)
        yield data
        self._spare.append(data)


@functools.cache
def _calls(coder: type | None) -> NDArray[np.int64] | None:
    """Return what all chunks of a codec are stored with, None where something of it is missing."""
    try:
        c = ctypes.CDLL(None)
        functions = [c.creat, c.write, c.close, c.rename, c.unlink]
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
