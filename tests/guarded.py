"""Decodes damaged chunks beside memory that cannot be touched; prints how many were taken, and how many refused.

``python guarded.py 1000 blosc zstd``
"""

import ctypes
import faulthandler
import mmap
import sys
import tempfile
from pathlib import Path

import numcodecs
import numpy as np

from ziggurat._codes import DONE, READ
from ziggurat._hot import Performance
from ziggurat.codecs import ChunkCodec
from ziggurat.encoded import Encoded, calls_of


class Fenced:
    """Memory between two pages that cannot be touched."""

    def __init__(self, n_pages: int) -> None:
        self.pages = mmap.mmap(-1, (n_pages + 2) * mmap.PAGESIZE)
        self.bytes = np.frombuffer(self.pages, np.uint8)
        self.end = (n_pages + 1) * mmap.PAGESIZE
        for place in (0, self.end):
            address = ctypes.c_void_p(self.bytes.ctypes.data + place)
            assert ctypes.CDLL(None).mprotect(address, mmap.PAGESIZE, 0) == 0

    def last(self, n: int) -> np.ndarray:
        """Return the last `n` bytes before the fence."""
        return self.bytes[self.end - n : self.end]


def damaged(rng: np.random.Generator, data: bytes, size: int, is_blosc: bool) -> bytes:
    """Return `data` with some bytes changed, cut off or added; its header often says what is expected of it."""
    found, how = bytearray(data), rng.integers(6) if data else 5
    if how in (1, 2):
        for place in rng.integers(0, len(found) if how == 1 else min(32, len(found)), 3):
            found[place] = rng.integers(256)
    elif how == 3:
        start = int(rng.integers(len(found)))
        found[start : start + 20] = rng.bytes(len(found[start : start + 20]))
    elif how == 4:
        del found[int(rng.integers(len(found))) :]
    elif how == 5:
        found += rng.bytes(int(rng.integers(1, 20)))
    if is_blosc and len(found) >= 16 and rng.integers(2):
        found[4:8], found[12:16] = size.to_bytes(4, "little"), len(found).to_bytes(4, "little")
    return bytes(found)


def coder(rng: np.random.Generator, name: str) -> list:
    """Return a random codec of a kind."""
    if name == "blosc":
        options = {"clevel": int(rng.integers(10)), "shuffle": int(rng.integers(3))}
        blocks = int(rng.choice([0, 0, 128, 1000]))
        return [numcodecs.Blosc(str(rng.choice(["lz4", "zstd", "blosclz", "zlib"])), blocksize=blocks, **options)]
    return [numcodecs.Zstd(int(rng.integers(1, 5)), bool(rng.integers(2)))] if name == "zstd" else []


def decoded(codec: ChunkCodec, data: bytes) -> bytes | None:
    """Return the bytes of pixels that numcodecs finds, None where it refuses."""
    try:
        return codec.decode(data, np.full(codec.n_bytes, 7, np.uint8)).tobytes()
    except Exception:  # codecs raise what they like
        return None


def is_fetched(stored: Encoded, first: int, last: int) -> bool:
    """Let compiled code decode a chunk, at least its bytes from `first` to `last`; say whether it did."""
    order = READ, -1, 0, *stored.spans[0], first, last, 0, 0
    work = Performance(np.array([order]), reading=stored.calls, data=stored.data, room=stored.room)
    work.go_on()
    return bool(work.found[0] == DONE)


def chunks(name: str, n: int) -> dict[bool, int]:
    """Let the loop and numcodecs decode the same bytes, `n` times."""
    rng, (stored, room) = np.random.default_rng(0), (Fenced(32), Fenced(32))
    counts = {True: 0, False: 0}
    for _ in range(n):
        dtype = np.dtype(rng.choice(["u1", "u2", "f4", "u8"]))
        codec = ChunkCodec((int(rng.choice([1, 7, 64, 1000, 8000])),), dtype, "C", coder(rng, name))
        pixels = rng.integers(0, rng.choice([2, 250]), max(0, codec.shape[0] + rng.choice([0, 0, 0, -1, 1])))
        pixels = pixels.astype(dtype)
        data = damaged(rng, bytes(codec.encode(pixels)), codec.n_bytes, name == "blosc")
        part, place = stored.last(len(data)), room.last(codec.n_bytes)
        part[:], place[:] = np.frombuffer(data, np.uint8), 7
        given = Encoded.parts(codec, calls_of(codec), [()], [part], place)
        is_taken = is_fetched(given, 0, codec.n_bytes)
        right = decoded(codec, data)
        assert is_taken == (right is not None) and (not is_taken or place.tobytes() == right)
        counts[is_taken] += 1
    return counts


def blocks(n: int) -> dict[bool, int]:
    """Let the loop decode parts of chunks that are files, `n` times, and numcodecs all of them."""
    rng, (read, room) = np.random.default_rng(0), (Fenced(160), Fenced(120))
    counts = {True: 0, False: 0}
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "0"
        for i in range(n):
            if i % 12 == 0:  # encoding takes longest, and damage comes afterwards
                size = int(rng.choice([200_000, 2**18, 300_001, 400_000]))
                options = {"clevel": int(rng.integers(1, 10)), "shuffle": int(rng.integers(3))}
                name, blocksize = str(rng.choice(["lz4", "zstd", "blosclz", "zlib"])), int(rng.choice([2**14, 10_000]))
                codec = ChunkCodec(
                    (size,), np.dtype("u1"), "C", [numcodecs.Blosc(name, blocksize=blocksize, **options)]
                )
                pixels = rng.integers(0, rng.choice([2, 250]), size).astype("u1")
                whole = bytes(codec.encode(pixels))
            data = damaged(rng, whole, size, True)
            path.write_bytes(data)
            memory, place = read.last(size * 17 // 16 + 1024), room.last(size)
            place[:] = 7
            first = int(rng.integers(0, size))
            last = int(rng.integers(first, size)) + 1
            given = Encoded.files(codec, calls_of(codec), [()], [str(path)], memory, place)
            is_taken = is_fetched(given, first, last)
            right = decoded(codec, data)
            assert right is None or (is_taken and place[first:last].tobytes() == right[first:last])
            counts[is_taken] += 1
    return counts


if __name__ == "__main__":
    faulthandler.enable()
    for kind in sys.argv[2:]:
        print(kind, end=" ", flush=True)  # so that it is known where a fault was
        found = blocks(int(sys.argv[1])) if kind == "blocks" else chunks(kind, int(sys.argv[1]))
        print(found[True], found[False], flush=True)
