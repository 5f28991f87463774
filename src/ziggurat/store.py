"""The only module that knows zarr: opening, and reading and writing boxes of an array."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, cast
from urllib.parse import unquote, urlsplit

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.abc.store import Store
from zarr.core.array import AsyncArray
from zarr.storage import LocalStore, MemoryStore, StorePath, ZipStore

from ziggurat.boxes import Box, shape_of, slices
from ziggurat.errors import LevelError, PyramidNotFoundError, StoreError
from ziggurat.grid import Level, Shape, is_whole, round_up
from ziggurat.remote import Backend, WholeObjects, check_options, is_url, open_url
from ziggurat.retry import innermost, wrap
from ziggurat.runtime import FUSED, codec_pipeline, is_synchronous
from ziggurat.settings import RetryConfig, ZarrConfig

__all__ = [
    "Handle",
    "can_bookkeep",
    "check_writable",
    "get_array",
    "innermost",
    "is_in_memory",
    "level_of",
    "open_group",
    "retried",
]

logger = logging.getLogger(__name__)


class Handle:
    """One level's array, opened the way Ziggurat reads and writes it; a pickled one opens without a request.

    Parameters
    ----------
    array : zarr.Array
        The array.
    settings : ZarrConfig, optional
        Codec pipeline (zarr's fused one by default) and limits for the coalescing of reads.
    """

    def __init__(self, array: "zarr.Array[Any]", settings: ZarrConfig | None = None) -> None:
        self.settings = settings or ZarrConfig()
        names = ("sharding_coalesce_max_gap_bytes", "sharding_coalesce_max_bytes")
        limits = {name: n for name in names if (n := getattr(self.settings, name)) is not None}
        pipeline = self.settings.codec_pipeline or FUSED
        with codec_pipeline(pipeline):
            # `write_empty_chunks` off: units that hold only fill are deleted, as every path must do alike.
            self.array = array.with_config(cast("Any", {"write_empty_chunks": False, **limits}))
        # zarrs writes in place: a kill would leave torn chunks.
        with codec_pipeline(FUSED if pipeline.startswith("zarrs.") else pipeline):
            self._writer = _remake(self.array)
            self._padded = _padded(self.array)
        self.level = level_of(array)
        overhangs = any(n % u for n, u in zip(self.level.shape, self.level.unit, strict=True))
        self._gets_twice = overhangs and self._padded is not None and not is_synchronous(array.store)
        self.dtype = self.level.native

    def __reduce__(self) -> tuple[Any, ...]:
        where = "the memory of this process" if is_in_memory(self.array.store) else "a zip archive"
        if is_in_memory(self.array.store) or (is_zip(self.array.store) and not self.array.read_only):
            raise StoreError(
                f"level {self.level.name!r} lies in {where}, where dask's workers cannot write it: "
                "use mode='numpy', the threaded scheduler, or a directory"
            )
        return Handle, (self.array, self.settings)

    def read(self, box: Box) -> NDArray[Any]:
        """Return the pixels of `box`, in native byte order."""
        try:
            pixels = cast("NDArray[Any]", self._reader(box).get_basic_selection(slices(box)))
        except BaseExceptionGroup as group:
            # Fetches of several parts of a shard fail together; what made them fail is what callers look for.
            raise _first(group) from group
        return np.asarray(pixels).astype(self.dtype, copy=False)

    def _reader(self, box: Box) -> "zarr.Array[Any]":
        if not self._gets_twice or not is_whole(box, self.level):
            return self.array
        with codec_pipeline(self.settings.codec_pipeline or FUSED):
            return _remake(self.array, WholeObjects(self.array.store))

    def write(self, box: Box, pixels: NDArray[Any]) -> None:
        """Set the whole write units of `box` to `pixels` without reading what is there; fill-only units are deleted."""
        assert is_whole(box, self.level), f"{box} is not whole write units of {self.level.name}"
        # zarr does not swap the bytes of version 2 chunks that are written whole.
        pixels = pixels.astype(self.array.dtype, copy=False)
        if self._padded is None:
            self._writer.set_basic_selection(slices(box), pixels)
        else:
            whole, padded = _pad(box, pixels, self.level, self.array.fill_value)
            self._padded.set_basic_selection(slices(whole), padded)

    def patch(self, box: Box, pixels: NDArray[Any]) -> None:
        """Set the pixels of `box`; write units that it covers in part are read, merged and set again."""
        self._writer.set_basic_selection(slices(box), pixels.astype(self.array.dtype, copy=False))

    def holds(self, box: Box, pixels: NDArray[Any]) -> bool:
        """Say whether the stored pixels of `box` equal `pixels`; what cannot be decoded does not."""
        try:
            stored = self.read(box)
        except OSError:
            raise
        except Exception as e:
            # Codecs raise what they like for torn chunks: ValueError, RuntimeError, their libraries' own.
            logger.warning("%s: %s cannot be decoded: %s", self.level.name, box, e)
            return False
        return bool(np.array_equal(stored, pixels, equal_nan=stored.dtype.kind in "fc"))


def _padded(array: "zarr.Array[Any]") -> "zarr.Array[Any] | None":
    """Return `array` with its shape rounded up to shards; None where it is not sharded.

    zarr reads a shard that overhangs the array before it writes it, although all of it is given: slower, and a torn
    one could never be replaced. The declared shape, in memory alone, is what decides; there is no public way.
    """
    if array.shards is None:
        return None
    shape = tuple(round_up(n, s) for n, s in zip(array.shape, array.shards, strict=True))
    return _remake(array, shape=shape)


def _remake(array: "zarr.Array[Any]", store: Store | None = None, shape: Shape | None = None) -> "zarr.Array[Any]":
    """Return `array` on another store, or with another shape, without a request; the codec pipeline is made anew."""
    metadata = array.metadata if shape is None else replace(array.metadata, shape=shape)
    path = array.store_path if store is None else StorePath(store, array.path)
    return zarr.Array(AsyncArray(metadata=metadata, store_path=path, config=array.async_array.config))


def _first(error: BaseException) -> BaseException:
    """Return the first error in a group of groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def retried(array: "zarr.Array[Any]", policy: RetryConfig) -> "zarr.Array[Any]":
    """Return `array` with a copy of `policy` for its store; `array` itself where nothing would be retried."""
    store = wrap(array.store, policy)
    return array if store is array.store else _remake(array, store)


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


def open_group(
    where: "str | Path | Store | zarr.Group",
    storage_options: dict[str, Any] | None = None,
    *,
    policy: RetryConfig | None = None,
    backend: Backend = "fsspec",
) -> zarr.Group:
    """Open the zarr group at `where`; nothing is created.

    Parameters
    ----------
    where : str, Path, zarr store or group
        A path is taken literally; a ``file://`` URL is decoded once; other URLs go through fsspec or obstore.
    policy : RetryConfig, optional
        What is retried, while opening and later; nothing by default.

    Raises
    ------
    PyramidNotFoundError
        When there is no zarr group.
    StoreError
        When the URL, or an option, is not understood.
    """
    policy = policy or RetryConfig()
    check_options(where, storage_options, backend)
    path = where.path if isinstance(where, zarr.Group) else ""
    if isinstance(where, zarr.Group):
        store = wrap(where.store, policy)
        if store is where.store:
            return where
    elif isinstance(where, Store):
        store = wrap(where, policy)
    else:
        where = str(where)
        store = wrap(open_url(where, storage_options, backend) if is_url(where) else _local_store(where), policy)
    mode: Literal["r", "r+"] = "r" if store.read_only or is_zip(store) else "r+"
    try:
        # Consolidated metadata may be stale; what is written here must be judged by the arrays themselves.
        node = zarr.open(store=store, path=path, mode=mode, use_consolidated=False)
    except (FileNotFoundError, KeyError) as e:
        raise PyramidNotFoundError(f"there is no zarr group at {where}: check the path") from e
    if isinstance(node, zarr.Array):
        raise PyramidNotFoundError(
            f"{where} is one zarr array, a pyramid is a group of them: open the group above it, or list the arrays"
        )
    return node


def _local_store(where: str) -> Store:
    path = Path(unquote(urlsplit(where).path) if where.startswith("file://") else where).expanduser()
    if not path.exists():
        raise PyramidNotFoundError(f"there is nothing at {where}: check the path")
    return ZipStore(path, mode="r") if path.is_file() else LocalStore(path)


def get_array(group: zarr.Group, path: str) -> "zarr.Array[Any] | None":
    """Return the array at `path` in `group`; None where there is none."""
    node = group.get(path)
    return node if isinstance(node, zarr.Array) else None


def is_in_memory(store: Store) -> bool:
    """Say whether other processes cannot see what is written to `store`."""
    return isinstance(innermost(store), MemoryStore)


def is_zip(store: Store) -> bool:
    """Say whether `store` is a zip archive, which can neither replace nor delete an entry."""
    return isinstance(innermost(store), ZipStore)


def holds_chunks(array: "zarr.Array[Any]") -> bool:
    """Say whether any chunk of `array` is stored."""
    return array.nchunks_initialized > 0


def can_bookkeep(array: "zarr.Array[Any]") -> bool:
    """Say whether small objects beside `array` can be set, replaced and deleted, and outlive this process."""
    return not (array.read_only or is_in_memory(array.store) or is_zip(array.store))


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
