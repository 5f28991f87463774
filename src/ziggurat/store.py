"""The only module that knows zarr: opening, and reading and writing boxes of an array."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, cast
from urllib.parse import unquote, urlsplit

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.abc.store import Store
from zarr.core.array import AsyncArray
from zarr.storage import LocalStore, MemoryStore, WrapperStore, ZipStore

from ziggurat.boxes import Box, shape_of, slices
from ziggurat.errors import LevelError, PyramidNotFoundError, StoreError
from ziggurat.grid import Level, is_whole, round_up

__all__ = [
    "Handle",
    "check_writable",
    "codec_threads",
    "get_array",
    "is_in_memory",
    "level_of",
    "open_group",
]

FUSED = "zarr.core.codec_pipeline.FusedCodecPipeline"


class _Settings:
    """Scoped changes of zarr's global configuration, safe with threads: the last one to leave restores."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.lock = threading.Lock()
        self.depth = 0
        self.found: Any = None

    @contextmanager
    def __call__(self, value: Any) -> Iterator[None]:
        with self.lock:
            if self.depth == 0:
                self.found = zarr.config.get(self.key, None)
                zarr.config.set({self.key: value})
            self.depth += 1
        try:
            yield
        finally:
            with self.lock:
                self.depth -= 1
                if self.depth == 0:
                    zarr.config.set({self.key: self.found})


codec_threads = _Settings("codec_pipeline.max_workers")
"""Context manager: codec threads per zarr call. zarr has no other way to say it than its global configuration."""

_codec_pipeline = _Settings("codec_pipeline.path")


class Handle:
    """One level's array, opened the way Ziggurat reads and writes it; a pickled one opens without a request.

    Parameters
    ----------
    array : zarr.Array
        The array.
    pipeline : str, optional
        Import path of the codec pipeline; zarr's fused one by default.
    """

    def __init__(self, array: "zarr.Array[Any]", pipeline: str | None = None) -> None:
        self.pipeline = pipeline
        # `write_empty_chunks` off: units that hold only fill are deleted, as every path must do alike.
        with _codec_pipeline(pipeline or FUSED):
            self.array = array.with_config({"write_empty_chunks": False})
            self._padded = _padded(self.array)
        self.level = level_of(array)
        self.dtype = self.level.dtype.newbyteorder("=")

    def __reduce__(self) -> tuple[Any, ...]:
        if is_in_memory(self.array.store):
            raise StoreError(
                f"level {self.level.name!r} lies in the memory of this process, where dask's workers cannot write it: "
                "use mode='numpy', the threaded scheduler, or a store on disk"
            )
        return Handle, (self.array, self.pipeline)

    def read(self, box: Box) -> NDArray[Any]:
        """Return the pixels of `box`, in native byte order."""
        pixels = cast("NDArray[Any]", self.array.get_basic_selection(slices(box)))
        return np.asarray(pixels).astype(self.dtype, copy=False)

    def write(self, box: Box, pixels: NDArray[Any]) -> None:
        """Set the whole write units of `box` to `pixels` without reading what is there; fill-only units are deleted."""
        assert is_whole(box, self.level), f"{box} is not whole write units of {self.level.name}"
        # zarr does not swap the bytes of version 2 chunks that are written whole.
        pixels = pixels.astype(self.array.dtype, copy=False)
        if self._padded is None:
            self.array.set_basic_selection(slices(box), pixels)
        else:
            whole, padded = _pad(box, pixels, self.level, self.array.fill_value)
            self._padded.set_basic_selection(slices(whole), padded)


def _padded(array: "zarr.Array[Any]") -> "zarr.Array[Any] | None":
    """Return `array` with its shape rounded up to shards; None where it is not sharded.

    zarr reads a shard that overhangs the array before it writes it, although all of it is given: slower, and a torn
    one could never be replaced. The declared shape, in memory alone, is what decides; there is no public way.
    """
    if array.shards is None:
        return None
    shape = tuple(round_up(n, s) for n, s in zip(array.shape, array.shards, strict=True))
    metadata = replace(array.metadata, shape=shape)
    return zarr.Array(AsyncArray(metadata=metadata, store_path=array.store_path, config=array.async_array.config))


def _pad(box: Box, pixels: NDArray[Any], level: Level, fill: Any) -> tuple[Box, NDArray[Any]]:
    whole = tuple((start, round_up(stop, u)) for (start, stop), u in zip(box, level.unit, strict=True))
    if whole == box:
        return box, pixels
    padded = np.full(shape_of(whole), 0 if fill is None else fill, pixels.dtype)
    padded[tuple(slice(n) for n in pixels.shape)] = pixels
    return whole, padded


def level_of(
    array: "zarr.Array[Any]",
    name: str | None = None,
    scale: tuple[float, ...] | None = None,
    translation: tuple[float, ...] | None = None,
) -> Level:
    """Describe `array` as a level.

    Raises
    ------
    LevelError
        When the array has no axis, or a grid of unequal chunks.
    """
    name = name if name is not None else array.path or str(array.store_path)
    if array.ndim == 0:
        raise LevelError(f"array {name!r} has no axis: a level has at least one")
    try:
        chunk, unit = array.chunks, array.shards or array.chunks
    except NotImplementedError:
        raise LevelError(f"array {name!r} has chunks of unequal sizes: rewrite it with a regular chunk grid") from None
    return Level(name, array.shape, array.dtype, chunk, unit, scale, translation)


def open_group(where: "str | Path | Store | zarr.Group", storage_options: dict[str, Any] | None = None) -> zarr.Group:
    """Open the zarr group at `where`; nothing is created.

    Parameters
    ----------
    where : str, Path, zarr store or group
        A path is taken literally; a ``file://`` URL is decoded once; other URLs go through fsspec.

    Raises
    ------
    PyramidNotFoundError
        When there is no zarr group.
    """
    if isinstance(where, zarr.Group):
        return where
    store = where if isinstance(where, Store) else _store_at(str(where), storage_options)
    mode: Literal["r", "r+"] = "r" if store.read_only or is_zip(store) else "r+"
    try:
        # Consolidated metadata may be stale; what is written here must be judged by the arrays themselves.
        node = zarr.open(store=store, mode=mode, use_consolidated=False)
    except (FileNotFoundError, KeyError) as e:
        raise PyramidNotFoundError(f"there is no zarr group at {where}: check the path") from e
    if isinstance(node, zarr.Array):
        raise PyramidNotFoundError(
            f"{where} is one zarr array, a pyramid is a group of them: open the group above it, or list the arrays"
        )
    return node


def _store_at(where: str, storage_options: dict[str, Any] | None) -> Any:
    if where.startswith("file://"):
        where = unquote(urlsplit(where).path)
    elif "://" in where:
        return zarr.storage.FsspecStore.from_url(where, storage_options=storage_options)
    path = Path(where).expanduser()
    if not path.exists():
        raise PyramidNotFoundError(f"there is nothing at {where}: check the path")
    return ZipStore(path, mode="r") if path.is_file() else LocalStore(path)


def get_array(group: zarr.Group, path: str) -> "zarr.Array[Any] | None":
    """Return the array at `path` in `group`; None where there is none."""
    node = group.get(path)
    return node if isinstance(node, zarr.Array) else None


def innermost(store: Store) -> Store:
    """Return the store inside all wrappers."""
    while isinstance(store, WrapperStore):
        store = store._store
    return store


def is_in_memory(store: Store) -> bool:
    """Say whether other processes cannot see what is written to `store`."""
    return isinstance(innermost(store), MemoryStore)


def is_zip(store: Store) -> bool:
    """Say whether `store` is a zip archive, which can neither replace nor delete an entry."""
    return isinstance(innermost(store), ZipStore)


def holds_chunks(array: "zarr.Array[Any]") -> bool:
    """Say whether any chunk of `array` is stored."""
    return array.nchunks_initialized > 0


def check_writable(arrays: Sequence["zarr.Array[Any]"]) -> None:
    """Refuse arrays that cannot be written.

    Raises
    ------
    StoreError
        When a level lies in a zip archive and has chunks already.
    """
    for array in arrays:
        if is_zip(array.store) and holds_chunks(array):
            raise StoreError(
                f"level {array.path!r} of {array.store} is already built, and a zip archive cannot replace entries: "
                "unpack it, rebuild, and pack it again"
            )
