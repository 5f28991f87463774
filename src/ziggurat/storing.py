"""Encodes write units and stores them: those that are files of a local store in one compiled call each."""

import functools
import math
import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import numcodecs
import numpy as np
from numpy.typing import NDArray
from zarr.buffer.cpu import Buffer, NDBuffer

from ziggurat._codes import STORE
from ziggurat._hot import Performance, address
from ziggurat.boxes import Box, corner, intersect, of_shape, slices
from ziggurat.codecs import ChunkCodec
from ziggurat.counted import Requests, local_root
from ziggurat.encoded import calls_of, compiled
from ziggurat.encoding import Encoding
from ziggurat.grid import Shape, each_cell
from ziggurat.regions import as_boxes, meeting
from ziggurat.rooms import shared_rooms
from ziggurat.shards import ShardIndex, Spans

if TYPE_CHECKING:
    import zarr

__all__ = ["FileWriter", "UnitWriter", "fill_of", "rows_of"]


class UnitWriter:
    """Encodes write units and puts them into the store of one array: a local one straight, any other through zarr.

    Parameters
    ----------
    array : zarr.Array
        The array, on a synchronous store.
    codec, index : ChunkCodec, ShardIndex
        The way of its chunks, and of its shards if it has such.
    key : callable
        Returns the key of a unit, given its grid index.
    """

    def __init__(
        self, array: "zarr.Array[Any]", codec: ChunkCodec, index: ShardIndex | None, key: Callable[[Shape], str]
    ) -> None:
        self.array = array
        self.codec = codec
        self.index = index
        self.key = key
        self.store: Any = array.store
        self.chunk: Shape = array.chunks
        self.unit: Shape = array.shards or array.chunks
        self.fill = fill_of(array)
        # A store that refuses to be written says so itself.
        is_apart = index is not None or array.store.read_only
        local = local_root(array.store)
        self.files = None if is_apart else FileWriter.of(local, codec, self.fill)
        self._encoding = Encoding.of(codec) if index else None
        self._rooms, self._pixel_rooms = shared_rooms("encoded"), shared_rooms()
        # What makes a file of bytes holds on to none of them.
        self._is_local = local is not None
        unit_bytes = math.prod(self.unit) * array.dtype.itemsize
        self._shard_bytes = unit_bytes + unit_bytes // 64 + 1024 + (index.n_bytes if index else 0)

    def write(self, box: Box, pixels: NDArray[Any], changed: Sequence[Box] = ()) -> None:
        """Set the whole write units of `box`; those that hold only fill are deleted.

        Where `changed` boxes are given, pixels beyond them are those that are stored.
        """
        origin = corner(box)
        is_fill = not any(pixels.strides) and self._is_fill(pixels)
        for index, unit in each_cell(box, self.unit):
            key, part = self.key(index), intersect(box, unit)
            inside = pixels[slices(part, origin)]
            if is_fill:
                data = None
            elif self.index is not None:
                self._write_shard(self.index, key, inside)
                continue
            elif (chunk := self._whole_chunk(inside)) is None:
                data = None
            elif self.files and self.files.put(key, chunk, self._bytes_of(changed, unit)):
                continue
            else:
                data = self.codec.encode(chunk)
            if data is None:
                self.store.delete_sync(key)
            else:
                self.store.set_sync(key, Buffer.from_bytes(data))

    def _bytes_of(self, boxes: Sequence[Box], unit: Box) -> NDArray[np.int64] | None:
        """Return the bytes of a chunk from the first to the last pixel of each of some boxes, None where it is no use.

        Of a chunk that reaches beyond the array, nobody knows what others stored there.
        """
        is_within = all(stop <= n for (_, stop), n in zip(unit, self.array.shape, strict=True))
        if not (boxes and is_within and self.files and self.files.block_bytes):
            return None
        met = as_boxes(meeting(as_boxes(boxes, len(unit)), unit), len(unit))
        first, last = met[..., 0] - corner(unit), met[..., 1] - corner(unit) - 1
        strides = [self.array.dtype.itemsize * math.prod(self.chunk[i + 1 :]) for i in range(len(unit))]
        return np.ascontiguousarray(np.stack([first @ strides, last @ strides + strides[-1]], axis=1))

    def _write_shard(self, index: ShardIndex, key: str, pixels: NDArray[Any]) -> None:
        """Set a shard, or delete it where it holds only fill."""
        room = self._rooms.take(self._shard_bytes)
        spans = self._pack(index, pixels, room)
        data = index.pack(self._encoder(pixels), room) if spans is None else index.closed(spans, room)
        if data is None:
            self.store.delete_sync(key)
        else:
            self.store.set_sync(key, Buffer.from_array_like(data if self._is_local else data.copy()))
        self._rooms.give(room)

    def _encoder(self, pixels: NDArray[Any]) -> Callable[[Shape], bytes | None]:
        """Return what encodes one chunk of a shard, given its index; None where it holds only fill."""
        boxes = dict(each_cell(of_shape(pixels.shape), self.chunk))

        def encoded(cell: Shape) -> bytes | None:
            chunk = self._whole_chunk(pixels[slices(boxes[cell])]) if cell in boxes else None
            return None if chunk is None else self.codec.encode(chunk)

        return encoded

    def _pack(self, index: ShardIndex, pixels: NDArray[Any], room: NDArray[np.uint8]) -> Spans | None:
        """Encode the chunks of a shard into `room` in one compiled call; return where they lie, None for not done."""
        pack = compiled("pack")
        is_whole = not any(n % c for n, c in zip(pixels.shape, self.chunk, strict=True))
        rows, row_bytes = rows_of(self.chunk, pixels.strides, pixels.itemsize)
        can = is_whole and row_bytes and pixels.dtype == self.codec.dtype
        if pack is None or self._encoding is None or not can:
            return None
        firsts = pixels[tuple(slice(None, None, c) for c in self.chunk)]
        is_stored = (firsts != self.fill) & (firsts == firsts)
        for cell in np.argwhere(~is_stored):
            box = tuple((i * c, (i + 1) * c) for i, c in zip(cell.tolist(), self.chunk, strict=True))
            is_stored[tuple(cell)] = not self._is_fill(pixels[slices(box)])
        there = set(map(tuple, np.argwhere(is_stored).tolist()))
        cells = [cell for cell in index.order if cell in there]
        starts = np.array(cells, np.int64).reshape(-1, pixels.ndim) @ (np.array(self.chunk) * pixels.strides)
        found = np.empty((len(cells), 2), np.int64)
        scratch = self._pixel_rooms.take(self.codec.n_bytes)
        first = 0 if index.is_last else index.n_bytes
        given = address(pixels) + starts, rows, row_bytes, scratch[: self.codec.n_bytes]
        is_done = pack(self._encoding.calls, *given, room, first, found)
        self._pixel_rooms.give(scratch)
        if not is_done:
            return None
        spans = index.spans()
        if cells:
            spans[tuple(np.transpose(cells))] = found
        return spans

    def _whole_chunk(self, pixels: NDArray[Any]) -> NDArray[Any] | None:
        """Return the pixels of a chunk with those beyond the array, None where it holds only fill."""
        if self._is_fill(pixels):
            return None
        if pixels.shape == self.chunk:
            return pixels
        padded = np.full(self.chunk, self.fill, self.array.dtype)
        padded[tuple(map(slice, pixels.shape))] = pixels
        return padded

    def _is_fill(self, pixels: NDArray[Any]) -> bool:
        """Say whether all pixels are fill, as zarr does: by bits where it is zero, and NaN is NaN."""
        if not any(pixels.strides):  # one pixel, seen in many places
            pixels = pixels[(slice(1),) * pixels.ndim]
        first = pixels[(0,) * pixels.ndim]
        if first != self.fill and first == first:
            return False
        if pixels.size == 1 and pixels.dtype.kind in "biu":
            return True
        return NDBuffer.from_ndarray_like(cast("Any", pixels)).all_equal(self.fill)


def fill_of(array: "zarr.Array[Any]") -> Any:
    """Return the pixel that stands for what is not stored."""
    return array.dtype.type(0) if array.fill_value is None else array.fill_value


class FileWriter:
    """Stores chunks as zarr's local store does: in a file beside, which then takes the place of the one before.

    Use `of`.
    """

    def __init__(self, root: str, requests: Requests, codec: ChunkCodec, encoding: Encoding, fill: Any) -> None:
        self.root = root
        self.requests = requests
        self.codec = codec
        self.encoding = encoding
        self.fill = _word(fill, codec.dtype)
        # Compiled code sees fill by its bits, eight bytes at a time. NaN may have several of them, and so may zero in
        # complex numbers, which zarr compares by value.
        self.tells_fill = bool(fill == fill) and codec.n_bytes > 7 and codec.dtype.kind != "c"
        self._reading = calls_of(codec)
        self._folders: set[str] = set()
        self._rooms = shared_rooms("encoded")
        # More than any codec makes of what it cannot make smaller.
        self.encoded_bytes = codec.n_bytes + codec.n_bytes // 128 + 1024

    @classmethod
    def of(cls, place: tuple[str, Requests] | None, codec: ChunkCodec, fill: Any) -> "FileWriter | None":
        """Return what stores such chunks in a directory, and counts it; None where that is not done so.

        That is where there is no directory, or the codec is not known.
        """
        encoding = Encoding.of(codec) if place else None
        return cls(*place, codec, encoding, fill) if place and encoding else None

    def put(self, key: str, pixels: NDArray[Any], changed: NDArray[np.int64] | None = None) -> bool:
        """Store a whole chunk, and say whether that was done; where it was not, nothing has changed.

        `changed`, where it is given, are the first byte and the one after the last of the pixels that differ from those
        stored, one row each: only so much is encoded where that gives the same file. What is read of the file for that
        is not counted.
        """
        if compiled("perform") is None or pixels.dtype != self.codec.dtype:
            return False
        pixels = np.ascontiguousarray(pixels)
        names, spare = self.names(key)
        place = address(held := np.frombuffer(names, np.uint8))
        paths = place, place + spare
        given = self.encoding.calls, address(pixels), pixels.nbytes
        done = changed is not None and self._splice(given, paths, changed)
        if not done:
            order = (STORE, 0, address(pixels), *paths, 0, 1, pixels.nbytes, self.fill)
            with self._lent(self.encoded_bytes) as data:
                work = Performance(np.array([order]), encodings=self.encoding.calls[np.newaxis], encoded=data)
                done = work.go_on() == 1
        del held  # what lies there
        self.requests.add(sets=int(done))
        return bool(done)

    def names(self, key: str) -> tuple[bytes, int]:
        """Make the directory of a file; return its path and that of one beside it, and where the second begins."""
        path = f"{self.root}/{key}"
        folder = path.rpartition("/")[0]
        if folder not in self._folders:
            os.makedirs(folder, exist_ok=True)
            self._folders.add(folder)
        first = os.fsencode(path) + b"\0"
        return first + first[:-1] + f".{uuid.uuid4().hex}.partial\0".encode(), len(first)

    def _splice(self, given: tuple[Any, ...], paths: tuple[int, int], changed: NDArray[np.int64]) -> bool:
        """Store a chunk of which only some blocks are encoded anew, and say whether that was done."""
        splice = compiled("splice")
        if splice is None or self._reading is None:
            return False
        with self._lent(2 * self.encoded_bytes) as data:
            is_done: bool = splice(*given, data, *paths, self._reading, changed, self.block_bytes)
            return is_done

    @functools.cached_property
    def block_bytes(self) -> int:
        """Bytes of pixels in the blocks of a chunk, whatever they are; 0 where there are fewer than three, or none."""
        coder = self.codec.coders[0] if self.codec.coders else None
        if not isinstance(coder, numcodecs.Blosc):
            return 0
        settings = coder.cname, coder.clevel, coder.shuffle, coder.blocksize
        return _block_bytes(settings, self.codec.dtype, self.codec.n_bytes)

    @contextmanager
    def _lent(self, n_bytes: int) -> Iterator[NDArray[np.uint8]]:
        data = self._rooms.take(n_bytes)
        try:
            yield data
        finally:
            self._rooms.give(data)


@functools.lru_cache(64)
def _block_bytes(settings: tuple[Any, ...], dtype: np.dtype[Any], n_bytes: int) -> int:
    encoded = numcodecs.Blosc(*settings).encode(np.zeros(n_bytes // dtype.itemsize, dtype))
    found = int(np.frombuffer(encoded[8:12], "<u4")[0])
    return found if 2 * found < n_bytes else 0


def _word(fill: Any, dtype: np.dtype[Any]) -> int:
    """Return the first eight bytes of pixels that are fill, as a number."""
    return int(np.full(8, fill, dtype).view(np.int64)[0])


def rows_of(shape: Shape, strides: Sequence[int], item_bytes: int) -> tuple[NDArray[np.int64], int]:
    """Return where the rows of an array begin, in bytes from its first pixel, and the bytes of one; 0 for no rows."""
    row, axis = item_bytes, len(shape)
    while axis and strides[axis - 1] == row:
        axis -= 1
        row *= shape[axis]
    starts = np.zeros(1, np.int64)
    for n, stride in zip(shape[:axis], strides[:axis], strict=True):
        starts = np.add.outer(starts, stride * np.arange(n)).ravel()
    return starts, row if axis < len(shape) else 0
