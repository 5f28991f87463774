"""Reads and writes chunks in the calling thread: one request, its codecs, and the pixels.

zarr hands each call to its one event loop and that to a thread of zarr's own: 0.6 to 1 ms of CPU per call, and one door
for all tasks. Where a store is synchronous and the codecs are known, nothing of that is needed.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, compress
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from zarr.abc.store import RangeByteRequest, SuffixByteRequest
from zarr.buffer import default_buffer_prototype

from ziggurat import _codes
from ziggurat._hot import Performance
from ziggurat.boxes import Box, corner, intersect, shape_of, slices
from ziggurat.chunkgrid import rectilinear_sizes
from ziggurat.codecs import ChunkCodec
from ziggurat.counted import local_root
from ziggurat.encoded import Calls, Encoded, Take, calls_of, compiled
from ziggurat.errors import first_of
from ziggurat.files import Files
from ziggurat.grid import SHARD_READ_BYTES, Shape, ceil_div, each_cell
from ziggurat.rooms import shared_rooms
from ziggurat.runtime import is_synchronous
from ziggurat.shards import MISSING, ShardIndex, located, stretches
from ziggurat.storing import UnitWriter, fill_of

if TYPE_CHECKING:
    import zarr

__all__ = ["Direct"]

type Batch = list[tuple[Shape, NDArray[np.uint8] | None]]
"""Chunks of a shard and their encoded bytes, None for those that hold only fill."""

type Get = Callable[[str], NDArray[np.uint8] | None]


class Direct:
    """One array on a synchronous store; use `of`."""

    def __init__(self, array: "zarr.Array[Any]", codec: ChunkCodec, index: ShardIndex | None) -> None:
        self.array = array
        self.codec = codec
        self.calls = calls_of(codec)
        self.index = index
        self.store: Any = array.store
        self.prefix = f"{array.path}/" if array.path else ""
        self.chunk: Shape = array.chunks
        self.unit: Shape = array.shards or array.chunks
        self.unit_bytes = math.prod(self.unit) * array.dtype.itemsize
        self.fill = fill_of(array)
        self.prototype = default_buffer_prototype()
        self.writer = UnitWriter(array, codec, index, self.key)
        self.rooms = shared_rooms()
        self.encoded_rooms = shared_rooms("encoded")
        self.local = local_root(self.store)
        most = max(self.codec.n_bytes, min(self.unit_bytes, SHARD_READ_BYTES) + (index.n_bytes if index else 0))
        # Codecs add little to what they cannot make smaller.
        self.encoded_bytes = most + most // 16 + 1024

    @classmethod
    def of(cls, array: "zarr.Array[Any]") -> "Direct | None":
        """Return the way around zarr's event loop; None where the store or a codec needs it."""
        # zarr tells of missing chunks where an array asks for it.
        usual = array.async_array.config.read_missing_chunks and rectilinear_sizes(array) is None
        if not usual or not is_synchronous(array.store):
            return None
        codec = ChunkCodec.of(array)
        index = ShardIndex.of(array) if array.shards else None
        return cls(array, codec, index) if codec and bool(index) == bool(array.shards) else None

    def read(self, box: Box, out: NDArray[Any]) -> None:
        """Fill `out` with the pixels of `box`; a whole chunk is decoded where it belongs."""
        origin = corner(box)
        is_whole = shape_of(box) == self.chunk and not any(a % c for a, c in zip(origin, self.chunk, strict=True))
        fits = is_whole and out.flags.c_contiguous and self.codec.order == "C" and out.dtype == self.codec.dtype
        room = out.reshape(-1).view(np.uint8) if fits else None
        if room is not None and self.index is None and self._load(box, room):
            return
        for part, pixels in self.chunks(box, room):
            if room is None or not np.may_share_memory(pixels, room):
                out[slices(part, origin)] = pixels

    def _load(self, box: Box, room: NDArray[np.uint8]) -> bool:
        """Read and decode a whole chunk in one compiled call; say whether that was done."""
        if compiled("perform") is None or self.calls is None or self.local is None:
            return False
        requests, data = self.local[1], self.encoded_rooms.take(self.encoded_bytes)
        index = tuple(start // c for (start, _), c in zip(box, self.chunk, strict=True))
        stored = Encoded.files(self.codec, self.calls, [box], [self.path(index)], data, room)
        order = (_codes.READ, -1, 0, *stored.spans[0], 0, len(room), 0, 0)
        work = Performance(np.array([order]), reading=stored.calls, data=data, room=room)
        work.go_on()
        is_done = int(work.found[0]) == _codes.DONE
        self.encoded_rooms.give(data)
        requests.add(gets=int(is_done))
        return is_done

    def chunks(
        self, box: Box, room: NDArray[np.uint8] | None = None, take: Take | None = None
    ) -> Iterator[tuple[Box, NDArray[Any]]]:
        """Yield the pixels of `box` chunk by chunk, in `room`; the next one takes the memory of the one before.

        What is not stored comes as one pixel, the fill value, seen in many places: its strides are 0. Chunks that
        `take` takes as they are stored do not come.
        """
        with self._lent() as (spare, get):
            room = spare if room is None else room
            ranges = [range(start // u, ceil_div(stop, u)) for (start, stop), u in zip(box, self.unit, strict=True)]
            if isinstance(get, Files) and get.lacks(self.key, ranges):
                # One value in all of the box is seen at once.
                yield self._chunk(box, corner(box), None, room)
                return
            cells = list(each_cell(box, self.unit))
            if self.index is None and take and self.calls is not None and isinstance(get, Files):
                cells, missing = self._left(take, self.calls, get, cells, room)
                for unit in missing:
                    yield self._chunk(intersect(box, unit), corner(unit), None, room)
            for index, unit in cells:
                wanted = intersect(box, unit)
                if self.index is None:
                    yield self._chunk(wanted, corner(unit), get(self.key(index)), room)
                else:
                    yield from self._shard(self.key(index), get, self.index, wanted, unit, room, take)

    def _left(
        self, take: Take, calls: Calls, files: Files, cells: list[tuple[Shape, Box]], room: NDArray[np.uint8]
    ) -> tuple[list[tuple[Shape, Box]], list[Box]]:
        """Let `take` read chunks that are files; return the cells that it leaves, and the boxes of those not stored."""
        paths = [self.path(index) for index, _ in cells]
        found = take(Encoded.files(self.codec, calls, [unit for _, unit in cells], paths, files.room, room))
        left = [cell for cell, state in zip(cells, found, strict=True) if state == _codes.LEFT]
        files.requests.add(gets=len(cells) - len(left))
        return left, [unit for (_, unit), state in zip(cells, found, strict=True) if state == _codes.MISSING]

    def gather(self, cells: Mapping[Shape, Iterable[Shape]]) -> Iterator[tuple[Shape, Box, NDArray[Any]]]:
        """Yield index, box and pixels of the inner chunks `cells`, by the index of their shard: each in one read."""
        assert self.index is not None
        array = tuple((0, n) for n in self.array.shape)
        with self._lent() as (room, get):
            for shard, chunks in cells.items():
                first = [i * n for i, n in zip(shard, self.index.grid, strict=True)]
                boxes = {
                    tuple(i - f for i, f in zip(chunk, first, strict=True)): tuple(
                        (i * c, (i + 1) * c) for i, c in zip(chunk, self.chunk, strict=True)
                    )
                    for chunk in chunks
                }
                is_whole = len(boxes) == math.prod(self.index.grid)
                found = self._fetched(self.key(shard), get, self.index, boxes, is_whole)
                for cell, data in ((cell, None) for cell in boxes) if found is None else chain.from_iterable(found):
                    chunk, box = tuple(i + f for i, f in zip(cell, first, strict=True)), boxes[cell]
                    yield chunk, *self._chunk(intersect(box, array), corner(box), data, room)

    def _chunk(
        self, wanted: Box, first: Shape, data: NDArray[np.uint8] | None, room: NDArray[np.uint8]
    ) -> tuple[Box, NDArray[Any]]:
        if data is None:
            return wanted, self.empty(wanted)
        return wanted, self.codec.decode(data, room)[slices(wanted, first)]

    def _shard(
        self,
        key: str,
        get: Get,
        index: ShardIndex,
        wanted: Box,
        unit: Box,
        room: NDArray[np.uint8],
        take: Take | None,
    ) -> Iterator[tuple[Box, NDArray[Any]]]:
        boxes = dict(each_cell(wanted, self.chunk, corner(unit)))
        clipped = intersect(unit, tuple((0, n) for n in self.array.shape))
        n_cells = math.prod(ceil_div(stop - start, c) for (start, stop), c in zip(clipped, self.chunk, strict=True))
        found = self._fetched(key, get, index, boxes, len(boxes) == n_cells)
        if found is None:
            yield self._chunk(wanted, corner(unit), None, room)
            return
        for batch in found:
            done = self._taken(take, batch, boxes, room) if take else set()
            for cell, data in batch:
                if cell not in done:
                    yield self._chunk(intersect(boxes[cell], wanted), corner(boxes[cell]), data, room)

    def _taken(self, take: Take, batch: Batch, boxes: Mapping[Shape, Box], room: NDArray[np.uint8]) -> set[Shape]:
        """Let `take` decode chunks of a shard; return which ones it did."""
        stored = {cell: data for cell, data in batch if data is not None}
        if self.calls is None or not stored:
            return set()
        parts = Encoded.parts(self.codec, self.calls, [boxes[cell] for cell in stored], list(stored.values()), room)
        return set(compress(stored, take(parts)))

    def _fetched(
        self, key: str, get: Get, index: ShardIndex, cells: Iterable[Shape], is_whole: bool
    ) -> Iterator[Batch] | None:
        """Return the encoded bytes of chunks of a shard, None for those that hold only fill; None if there is no shard.

        They come in batches, and the next one takes the memory of the one before. All of a small shard is one request.
        Else one is for the index, and one for each run of near byte ranges.
        """
        if is_whole and self.unit_bytes <= SHARD_READ_BYTES:
            shard = get(key)
            if shard is None:
                return None
            spans = located(index.read(index.in_shard(shard)), cells)
            return iter([[(cell, None if start == MISSING else shard[start : start + n]) for cell, start, n in spans]])
        where = SuffixByteRequest(index.n_bytes) if index.is_last else RangeByteRequest(0, index.n_bytes)
        found = self._get(key, where)
        return None if found is None else self._ranges(key, get, list(located(index.read(found), cells)))

    def _ranges(self, key: str, get: Get, spans: list[tuple[Shape, int, int]]) -> Iterator[Batch]:
        """Yield the bytes of chunks in the order in which they lie, from `SHARD_READ_BYTES` of the shard at a time."""
        yield [(cell, None) for cell, start, _ in spans if start == MISSING]
        stored = sorted((start, n, cell) for cell, start, n in spans if start != MISSING)
        config = self.array.async_array.config
        for batch in stretches(stored, SHARD_READ_BYTES):
            if isinstance(get, Files) and 2 * sum(n for _, n, _ in batch) > batch[-1][0] + batch[-1][1] - batch[0][0]:
                # Mostly wanted: read as one, into memory that is there.
                yield list(get.stretch(key, batch))
                continue
            try:
                buffers = self.store.get_ranges_sync(
                    key,
                    [RangeByteRequest(start, start + n) for start, n, _ in batch],
                    prototype=self.prototype,
                    max_gap_bytes=config.sharding_coalesce_max_gap_bytes,
                    max_coalesced_bytes=config.sharding_coalesce_max_bytes,
                )
            except BaseExceptionGroup as group:
                # Fetches of several parts fail together; what made them fail is what callers look for.
                raise first_of(group) from group
            for i, buffer in buffers:
                yield [(batch[i][2], buffer.as_numpy_array())]

    def path(self, index: Shape) -> str:
        """Return the path of the file of a unit; `local` must be."""
        assert self.local is not None
        return f"{self.local[0]}/{self.key(index)}"

    def empty(self, box: Box) -> NDArray[Any]:
        """Return the pixels of a box that is not stored: one, seen in many places; swapping its bytes would copy it."""
        return np.broadcast_to(np.asarray(self.fill, self.array.dtype.newbyteorder("=")), shape_of(box))

    def write(self, box: Box, pixels: NDArray[Any], changed: Sequence[Box] = ()) -> None:
        """Set the whole write units of `box`; those that hold only fill are deleted.

        Where `changed` boxes are given, pixels beyond them are those that are stored.
        """
        self.writer.write(box, pixels, changed)

    def key(self, index: Shape) -> str:
        """Return the key of a unit, given its grid index."""
        return self.prefix + self.array.metadata.encode_chunk_key(index)

    @contextmanager
    def _lent(self) -> Iterator[tuple[NDArray[np.uint8], Get]]:
        """Lend room for a decoded chunk, and what gets whole objects: the next one takes the memory of the one before.

        To one reader at a time, and then to the next.
        """
        room = self.rooms.take(self.codec.n_bytes)
        files = Files(*self.local, self.encoded_rooms.take(self.encoded_bytes)) if self.local else None
        try:
            yield room[: self.codec.n_bytes], files or self._get
        finally:
            self.rooms.give(room)
            if files is not None:
                self.encoded_rooms.give(files.room)

    def _get(self, key: str, byte_range: Any = None) -> NDArray[np.uint8] | None:
        found = self.store.get_sync(key, prototype=self.prototype, byte_range=byte_range)
        return None if found is None else found.as_numpy_array()
