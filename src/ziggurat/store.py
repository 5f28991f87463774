"""Opens zarr groups and arrays, and judges their stores; nothing is created."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, cast
from urllib.parse import unquote, urlsplit
from zipfile import is_zipfile

import zarr
from zarr import AsyncGroup
from zarr.abc.store import Store
from zarr.core.array import AsyncArray
from zarr.core.array_spec import ArrayConfig
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync
from zarr.storage import LocalStore, MemoryStore, StorePath, ZipStore

from ziggurat.chunkgrid import ChunkGrid
from ziggurat.errors import LevelError, PyramidNotFoundError, StoreError
from ziggurat.grid import Level, Shape
from ziggurat.remote import Backend, check_options, is_url, literal, open_url
from ziggurat.retry import innermost, wrap
from ziggurat.runtime import is_synchronous
from ziggurat.settings import RetryConfig

__all__ = [
    "can_bookkeep",
    "check_writable",
    "get_arrays",
    "get_group",
    "get_object",
    "innermost",
    "is_in_memory",
    "level_of",
    "open_group",
    "remake",
    "retried",
]


def retried(array: "zarr.Array[Any]", policy: RetryConfig) -> "zarr.Array[Any]":
    """Return `array` with a copy of `policy` for its store; `array` itself where its store does already."""
    store = wrap(literal(array.store), policy)
    return array if store is array.store else remake(array, store)


def remake(
    array: "zarr.Array[Any]", store: Store | None = None, shape: Shape | None = None, config: ArrayConfig | None = None
) -> "zarr.Array[Any]":
    """Return `array` otherwise (store, shape, configuration), without a request; the codec pipeline is made anew."""
    metadata = array.metadata if shape is None else replace(array.metadata, shape=shape)
    path = array.store_path if store is None else StorePath(store, array.path)
    return zarr.Array(AsyncArray(metadata=metadata, store_path=path, config=config or array.async_array.config))


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
        When the array has no axis.
    """
    name = name if name is not None else array.path or str(array.store_path)
    if array.ndim == 0:
        raise LevelError(f"array {name!r} has no axis: a level has at least one")
    return replace(Level.of_grid(name, array.dtype, ChunkGrid.of(array)), scale=scale, translation=translation)


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
    policy = policy or RetryConfig.model_construct()
    check_options(where, storage_options, backend)
    path = where.path if isinstance(where, zarr.Group) else ""
    if isinstance(where, zarr.Group):
        store = wrap(literal(where.store), policy)
        if store is where.store:
            return where
    elif isinstance(where, Store):
        store = wrap(literal(where), policy)
    else:
        where = str(where)
        store = wrap(open_url(where, storage_options, backend) if is_url(where) else _local_store(where), policy)
    mode: Literal["r", "r+"] = "r" if store.read_only or is_zip(store) else "r+"
    try:
        # Consolidated metadata may be stale; what is written here must be judged by the arrays themselves.
        node = _read_node(StorePath(store, path))
        if node is None:
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
    if path.is_file() and not is_zipfile(path):
        raise PyramidNotFoundError(
            f"{where} is a file, and no zip archive: a pyramid is a directory, an archive of one, or a URL"
        )
    return ZipStore(path, mode="r") if path.is_file() else LocalStore(path)


def get_arrays(group: zarr.Group, paths: Sequence[str]) -> "list[zarr.Array[Any] | None]":
    """Return the array at each of the `paths` in `group`, None where there is none; all are asked for at once."""
    if group.metadata.zarr_format == 3 and is_synchronous(group.store):
        nodes = ((_read_node(group.store_path / path), path) for path in paths)
        found = [group.get(path) if node is None else node for node, path in nodes]
        return [node if isinstance(node, zarr.Array) else None for node in found]
    opened = sync(_opened(AsyncGroup(group.metadata, group.store_path), paths))
    return [zarr.Array(node) if isinstance(node, AsyncArray) else None for node in opened]


async def _opened(group: AsyncGroup, paths: Sequence[str]) -> list[Any]:
    return await asyncio.gather(*map(group.get, paths))


def _read_node(place: StorePath) -> "zarr.Array[Any] | zarr.Group | None":
    """Return the array or group at `place` where one request in this thread tells it; None where zarr is to be asked.

    zarr hands each request to its event loop, and that to a thread: for a group and its levels most of the time that
    opening takes. It also looks for what format 2 would have left.
    """
    if not is_synchronous(place.store) or is_zip(place.store):
        return None
    found = cast("Any", place.store).get_sync((place / "zarr.json").path, prototype=default_buffer_prototype())
    document: Any = None if found is None else json.loads(found.to_bytes())
    match document:
        case {"node_type": "array"}:
            return zarr.Array(AsyncArray(document, place))
        case {"node_type": "group"}:
            return zarr.Group(AsyncGroup.from_dict(place, {**document, "consolidated_metadata": None}))
    return None


def get_object(store: Store, key: str) -> bytes | None:
    """Return the object at `key`; None where there is none.

    zarr's stores are bound to zarr's own event loop, which `zarr.core.sync.sync` alone reaches.
    """
    buffer = sync(store.get(key, prototype=default_buffer_prototype()))
    return None if buffer is None else buffer.to_bytes()


def get_group(group: zarr.Group, path: str) -> zarr.Group | None:
    """Return the group at `path` in `group`; None where there is none."""
    node = group.get(path)
    return node if isinstance(node, zarr.Group) else None


def is_in_memory(store: Store) -> bool:
    """Say whether other processes cannot see what is written to `store`."""
    inner = innermost(store)
    behind = getattr(inner, "fs", getattr(inner, "store", None))  # of fsspec, of obstore
    kind = type(getattr(behind, "sync_fs", behind)).__name__
    return isinstance(inner, MemoryStore) or kind in ("MemoryFileSystem", "MemoryStore")


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
