"""The bytes of a shard: encoded inner chunks, and the index that says where each of them lies.

https://zarr-specs.readthedocs.io/en/latest/v3/codecs/sharding-indexed/index.html
"""

import functools
from collections.abc import Callable, Iterable, Iterator
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ziggurat.codecs import CRC_BYTES, checked, checksum
from ziggurat.errors import StoreError
from ziggurat.grid import Shape

if TYPE_CHECKING:
    import zarr

__all__ = ["MISSING", "ShardIndex", "located", "stretches"]

MISSING = int(np.iinfo(np.uint64).max)
"""Offset and size, in the index, of a chunk that holds only fill."""

type Spans = NDArray[np.uint64]
"""First byte and number of bytes of each inner chunk, shape (*grid, 2)."""


class ShardIndex:
    """Where the inner chunks of a shard lie; use `of`.

    Parameters
    ----------
    grid : tuple of int
        Inner chunks per axis.
    is_last : bool
        Whether the index follows the chunks, else it comes before them.
    is_checked : bool
        Whether a checksum follows the index.
    """

    def __init__(self, grid: Shape, is_last: bool, is_checked: bool) -> None:
        self.grid = grid
        self.is_last = is_last
        self.is_checked = is_checked
        self.n_bytes = 16 * int(np.prod(grid)) + CRC_BYTES * is_checked

    @classmethod
    def of(cls, array: "zarr.Array[Any]") -> "ShardIndex | None":
        """Return the index of the array's shards; None where it is stored in a way that is not known here."""
        metadata: dict[str, Any] = dict(array.metadata.to_dict())
        settings = metadata["codecs"][0]["configuration"]
        names = [c["name"] for c in settings["index_codecs"]]
        endian = settings["index_codecs"][0].get("configuration", {}).get("endian")
        if names not in (["bytes"], ["bytes", "crc32c"]) or endian != "little":
            return None
        grid = tuple(s // c for s, c in zip(array.shards or (), array.chunks, strict=True))
        return cls(grid, settings["index_location"] == "end", len(names) == 2)

    def read(self, data: NDArray[np.uint8]) -> Spans:
        """Return the spans from the bytes of the index.

        Raises
        ------
        StoreError
            When there are too few of them, or their checksum is wrong.
        """
        if len(data) != self.n_bytes:
            raise StoreError(f"a shard has {len(data)} bytes of index instead of {self.n_bytes}: write it again")
        return np.frombuffer(checked(data) if self.is_checked else data, "<u8").reshape(*self.grid, 2)

    def in_shard(self, shard: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return the bytes of the index of a whole shard."""
        return shard[-self.n_bytes :] if self.is_last else shard[: self.n_bytes]

    def pack(self, encoded: Callable[[Shape], bytes | None], room: NDArray[np.uint8]) -> NDArray[np.uint8] | None:
        """Return the bytes of a shard, with its chunks in Morton order as zarr writes them; None where it has none.

        Parameters
        ----------
        encoded : callable
            Returns the bytes of a chunk, None where it holds only fill. Each is asked for when the ones before it have
            been put in their place: they are never held twice.
        room : array
            Where the bytes are put; more is made where it is too small.
        """
        spans = self.spans()
        stop = 0 if self.is_last else self.n_bytes
        for index in self.order:
            if (piece := encoded(index)) is not None:
                spans[index] = stop, len(piece)
                room, stop = _put(room, stop, piece), stop + len(piece)
        return self.closed(spans, room)

    @property
    def order(self) -> list[Shape]:
        """The chunks in the order in which zarr writes them."""
        return _morton_order(self.grid)

    def spans(self) -> Spans:
        """Return the spans of a shard without chunks."""
        return np.full((*self.grid, 2), MISSING, "<u8")

    def closed(self, spans: Spans, room: NDArray[np.uint8]) -> NDArray[np.uint8] | None:
        """Add the index to the chunks in `room` that lie at `spans`; return the bytes of all, None for no chunks."""
        is_there = spans[..., 0] != MISSING
        if not is_there.any():
            return None
        stop = int(spans[is_there].sum(axis=1).max())
        packed = spans.tobytes()
        packed += checksum(np.frombuffer(packed, np.uint8)) if self.is_checked else b""
        room = _put(room, stop if self.is_last else 0, packed)
        return room[: stop + len(packed) if self.is_last else stop]


def _put(room: NDArray[np.uint8], start: int, data: bytes) -> NDArray[np.uint8]:
    """Put bytes at their place; return the room, or a larger one that has what was in it."""
    stop = start + len(data)
    if stop > len(room):
        room = np.concatenate([room, np.empty(stop, np.uint8)])
    room[start:stop] = np.frombuffer(data, np.uint8)
    return room


def located(spans: Spans, cells: Iterable[Shape]) -> Iterator[tuple[Shape, int, int]]:
    """Yield each cell with the first byte and the number of bytes of its chunk."""
    for cell in cells:
        start, n = spans[cell].tolist()
        yield cell, start, n


def stretches(stored: Iterable[tuple[int, int, Shape]], n_bytes: int) -> Iterator[list[tuple[int, int, Shape]]]:
    """Share chunks, in the order of their first bytes, out to stretches of at most `n_bytes` that are read at once.

    What lies between the chunks of one is read, too.
    """
    batch: list[tuple[int, int, Shape]] = []
    for start, n, cell in stored:
        if batch and start + n - batch[0][0] > n_bytes:
            yield batch
            batch = []
        batch.append((start, n, cell))
    if batch:
        yield batch


@functools.lru_cache(64)
def _morton_order(grid: Shape) -> list[Shape]:
    """Return the indices of a grid, those that share high bits together; short axes run out of bits early."""
    bits = [(n - 1).bit_length() for n in grid]
    places = [(bit, axis) for bit in range(max(bits, default=0)) for axis, n in enumerate(bits) if bit < n]
    return sorted(
        product(*map(range, grid)),
        key=lambda index: sum((index[axis] >> bit & 1) << place for place, (bit, axis) in enumerate(places)),
    )
