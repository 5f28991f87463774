"""The codec floor: what the same bytes cost without zarr, kernels or a scheduler.

Every stored object of level 0 is read and decoded, and as many objects as the coarser levels have are encoded and
written, each of as many inner chunks of the same shape. Their pixels are those of a few chunks of these levels, worked
out beforehand: they take some codecs longer than the noisier ones of level 0.
"""

import functools
import itertools
import json
import math
import mmap
import random
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import google_crc32c
import numcodecs  # type: ignore[import-untyped]
import numcodecs.blosc  # type: ignore[import-untyped]
import numpy as np
import zarr
from numpy.typing import NDArray

from benchmarks.images import objects_of

N_THREADS = 2
PIXELS_BYTES = 128 << 20  # of level 0, from which chunks of each coarser level are worked out; of one chunk at least
INDEX_ENTRY_BYTES = 16
CRC_BYTES = 4
MISSING = np.iinfo(np.uint64).max
SHUFFLES = {"noshuffle": 0, "shuffle": 1, "bitshuffle": 2}


@dataclass(frozen=True)
class Layout:
    """How one level is stored. `inner` is the shape that the codec sees; `n_inner` of them make an object."""

    shape: tuple[int, ...]
    outer: tuple[int, ...]
    inner: tuple[int, ...]
    n_inner: int
    sharded: bool
    codec: Any

    @property
    def grid(self) -> tuple[int, ...]:
        """Objects along each axis."""
        return tuple(-(-n // c) for n, c in zip(self.shape, self.outer, strict=True))

    @property
    def n_objects(self) -> int:
        """Objects of the whole level."""
        return math.prod(self.grid)

    @property
    def n_bytes(self) -> int:
        """Bytes of the pixels of one object, 16 bits each."""
        return 2 * self.n_inner * math.prod(self.inner)


def run_floor(path: Path, into: Path, coarser_pixels: Sequence[Sequence[NDArray[np.uint16]]]) -> None:
    """Decode level 0 of the image at `path` and write objects of its coarser levels below `into`."""
    # As zarr does it: the process-wide blosc threads take a lock.
    numcodecs.blosc.use_threads = False
    source, *coarser = layouts(path)
    files = objects_of(path, 0)
    into.mkdir()
    jobs = iter(enumerate(files))
    levels = list(zip(coarser, coarser_pixels, strict=True))
    with ThreadPoolExecutor(N_THREADS) as pool:
        workers = [pool.submit(_work, jobs, len(files), source, levels, into) for _ in range(N_THREADS)]
    for worker in workers:
        worker.result()


@functools.cache
def pixels_of(path: Path) -> list[list[NDArray[np.uint16]]]:
    """Return the pixels of some inner chunks of each coarser level, as they come from those of level 0."""
    source, *coarser = layouts(path)
    level0 = zarr.open_array(path / "0", mode="r")
    found = []
    for k, layout in enumerate(coarser, start=1):
        ratio = tuple(n // m for n, m in zip(source.shape, layout.shape, strict=True))
        grid = tuple(max(1, n // c) for n, c in zip(layout.shape, layout.inner, strict=True))
        most = PIXELS_BYTES // (2 * math.prod(layout.inner) * math.prod(ratio))
        cells = random.Random(k).sample(range(math.prod(grid)), max(1, min(math.prod(grid), most)))
        indices = (map(int, np.unravel_index(cell, grid)) for cell in cells)
        corners = ([i * c * r for i, c, r in zip(index, layout.inner, ratio, strict=True)] for index in indices)
        found.append([_coarse(level0, corner, layout.inner, ratio, k) for corner in corners])
    return found


def _coarse(
    level0: "zarr.Array[Any]", corner: Sequence[int], inner: tuple[int, ...], ratio: tuple[int, ...], k: int
) -> NDArray[np.uint16]:
    """Return the pixels of a chunk of level `k` that begins at a pixel of level 0: means of means."""
    pixels = np.asarray(level0[tuple(slice(a, a + n * r) for a, n, r in zip(corner, inner, ratio, strict=True))])
    factors = [round(r ** (1 / k)) for r in ratio]
    for _ in range(k):
        blocks = pixels.reshape([m for n, f in zip(pixels.shape, factors, strict=True) for m in (n // f, f)])
        pixels = np.rint(blocks.mean(axis=tuple(range(1, blocks.ndim, 2)), dtype=np.float32)).astype(np.uint16)
    chunk = np.zeros(inner, np.uint16)
    chunk[tuple(map(slice, pixels.shape))] = pixels
    return chunk


def layouts(path: Path) -> list[Layout]:
    """Return how each level of an image is stored."""
    n_levels = sum(1 for level in path.iterdir() if level.name.isdigit())
    return [_level(path / str(k)) for k in range(n_levels)]


def _level(path: Path) -> Layout:
    if (path / ".zarray").exists():
        return _layout_v2(json.loads((path / ".zarray").read_text()))
    return _layout(json.loads((path / "zarr.json").read_text()))


def _layout_v2(metadata: dict[str, Any]) -> Layout:
    chunks = tuple(metadata["chunks"])
    return Layout(tuple(metadata["shape"]), chunks, chunks, 1, False, numcodecs.get_codec(metadata["compressor"]))


def _layout(metadata: dict[str, Any]) -> Layout:
    outer = tuple(metadata["chunk_grid"]["configuration"]["chunk_shape"])
    codecs, inner, sharded = metadata["codecs"], outer, False
    if codecs[0]["name"] == "sharding_indexed":
        sharding = codecs[0]["configuration"]
        codecs, inner, sharded = sharding["codecs"], tuple(sharding["chunk_shape"]), True
        assert sharding.get("index_location", "end") == "end"
    n_inner = math.prod(n // c for n, c in zip(outer, inner, strict=True))
    return Layout(tuple(metadata["shape"]), outer, inner, n_inner, sharded, _codec(codecs[-1]))


def _codec(metadata: dict[str, Any]) -> Any:
    settings = metadata["configuration"]
    if metadata["name"] == "bytes":
        return None
    if metadata["name"] == "zstd":
        return numcodecs.Zstd(level=settings["level"], checksum=settings["checksum"])
    return numcodecs.Blosc(cname=settings["cname"], clevel=settings["clevel"], shuffle=SHUFFLES[settings["shuffle"]])


def _work(
    jobs: Iterator[tuple[int, Path]],
    n: int,
    source: Layout,
    coarser: Sequence[tuple[Layout, Sequence[NDArray[np.uint16]]]],
    into: Path,
) -> None:
    """Take objects of level 0 until there are none. Buffers are reused: fresh pages cost more than the codec."""
    decoded, data = np.empty((source.n_inner, *source.inner), np.uint16), np.empty(0, np.uint8)
    for i, file in jobs:
        if data.size < file.stat().st_size:
            data = page_aligned(file.stat().st_size)
        decode(file, source, data, decoded)
        for k, (layout, pixels) in enumerate(coarser, start=1):
            # Rounded up, so that the largest jobs start first and none is left alone at the end.
            for j in range(-(-i * layout.n_objects // n), -(-(i + 1) * layout.n_objects // n)):
                chunks = [pixels[(j + i) % len(pixels)] for i in range(layout.n_inner)]
                encode(into / f"{k}-{j}", chunks, layout)


def page_aligned(n_bytes: int) -> NDArray[np.uint8]:
    """Return memory that begins with a page: into other places some processors copy from the page cache slowly."""
    memory = np.empty(n_bytes + mmap.PAGESIZE, np.uint8)
    first = -memory.ctypes.data % mmap.PAGESIZE
    return memory[first : first + n_bytes]


def decode(file: Path, layout: Layout, data: NDArray[np.uint8], out: NDArray[np.uint16]) -> NDArray[np.uint16]:
    """Read and decode an object, with `data` as memory for its bytes and `out` for its pixels."""
    with file.open("rb", buffering=0) as stream:
        n_bytes = stream.readinto(data)
    if layout.codec is None:  # The bytes are the pixels, shards have their index behind them.
        return data[: out.nbytes].view(np.uint16).reshape(out.shape)
    for pixels, piece in zip(out, _pieces(memoryview(data)[:n_bytes], layout), strict=True):
        layout.codec.decode(piece, out=pixels)
    return out


def _pieces(data: memoryview, layout: Layout) -> list[memoryview]:
    if not layout.sharded:
        return [data]
    end = len(data) - CRC_BYTES
    index = np.frombuffer(data[end - INDEX_ENTRY_BYTES * layout.n_inner : end], "<u8").reshape(-1, 2)
    assert not (index == MISSING).any(), "the benchmark's images have no empty chunks"
    return [data[start : start + n_bytes] for start, n_bytes in index.tolist()]


def encode(file: Path, pixels: Iterable[NDArray[np.uint16]], layout: Layout) -> None:
    """Encode and write an object, given the pixels of its inner chunks."""
    pieces = [chunk.data.cast("B") if layout.codec is None else layout.codec.encode(chunk) for chunk in pixels]
    if layout.sharded:
        sizes = [len(piece) for piece in pieces]
        starts = itertools.accumulate(sizes[:-1], initial=0)
        index = np.array(list(zip(starts, sizes, strict=True)), "<u8").tobytes()
        pieces += [index, google_crc32c.value(index).to_bytes(CRC_BYTES, "little")]
    with file.open("wb", buffering=0) as stream:
        stream.writelines(pieces)
