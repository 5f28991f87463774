"""Small objects beside an array's chunks, and what is known of the chunks' own objects without reading them.

Everything lies under one hidden prefix inside the array, which no zarr reader lists or warns about.
"""

import asyncio
import os
import re
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.abc.store import Store
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync
from zarr.storage import FsspecStore, LocalStore, MemoryStore, ObjectStore

from ziggurat.chunkgrid import ChunkGrid
from ziggurat.errors import StoreError
from ziggurat.policy import retry
from ziggurat.runtime import is_synchronous
from ziggurat.settings import RetryConfig
from ziggurat.store import get_object, innermost

__all__ = ["Sidecar", "local_directory", "stored_units", "sweep"]

PREFIX = ".ziggurat"

_CHUNK_KEY = re.compile(r"(?:c[/.])?\d+(?:[/.]\d+)*")


class Sidecar:
    """Named small objects of one array; picklable."""

    def __init__(self, array: "zarr.Array[Any]") -> None:
        self.store = array.store
        self.prefix = f"{array.path}/{PREFIX}".lstrip("/")

    def read(self, name: str) -> bytes | None:
        """Return the object `name`; None where there is none."""
        return get_object(self.store, f"{self.prefix}/{name}")

    def write(self, name: str, content: bytes) -> None:
        """Set the object `name`."""
        buffer = default_buffer_prototype().buffer.from_bytes(content)
        if is_synchronous(self.store):
            cast("Any", self.store).set_sync(f"{self.prefix}/{name}", buffer)
        else:
            sync(self.store.set(f"{self.prefix}/{name}", buffer))

    def delete(self, name: str) -> None:
        """Delete the object `name`, if it is there."""
        with suppress(FileNotFoundError, KeyError):
            if is_synchronous(self.store):
                cast("Any", self.store).delete_sync(f"{self.prefix}/{name}")
            else:
                sync(self.store.delete(f"{self.prefix}/{name}"))

    def names(self, folder: str) -> list[str]:
        """Return the names of the objects in `folder`, each with it, without what killed writers left unfinished."""
        return [name for name in self._listed(folder) if not name.endswith(".partial")]

    def clear(self, folder: str) -> None:
        """Delete all objects in `folder`, and what killed writers left unfinished there."""
        self.delete_all(self._listed(folder))

    def read_all(self, names: Iterable[str]) -> dict[str, bytes]:
        """Return the objects `names`, those that are there; many at a time where the store takes its time."""
        keys = {f"{self.prefix}/{name}": name for name in names}
        if is_synchronous(self.store):
            found = [(name, self.read(name)) for name in keys.values()]
        else:
            found = [(keys[key], content) for key, content in sync(_at_once(_get, self.store, keys))]
        return {name: content for name, content in found if content is not None}

    def delete_all(self, names: Iterable[str]) -> None:
        """Delete the objects `names`, those that are there; many at a time where the store takes its time."""
        if is_synchronous(self.store):
            for name in names:
                self.delete(name)
        else:
            sync(_at_once(_delete, self.store, [f"{self.prefix}/{name}" for name in names]))

    def _listed(self, folder: str) -> list[str]:
        start = f"{self.prefix}/{folder}/"
        return sorted(f"{folder}/{key[len(start) :]}" for key in sync(_collect(self.store.list_prefix(start))))


async def _at_once[R](do: Callable[[Store, str], Awaitable[R]], store: Store, keys: Iterable[str]) -> list[R]:
    """Do the same with many objects of a store, as many at a time as zarr makes requests."""
    places = asyncio.Semaphore(int(zarr.config.get("async.concurrency")))

    async def one(key: str) -> R:
        async with places:
            return await do(store, key)

    return await asyncio.gather(*map(one, keys))


async def _get(store: Store, key: str) -> tuple[str, bytes | None]:
    found = await store.get(key, prototype=default_buffer_prototype())
    return key, None if found is None else found.to_bytes()


async def _delete(store: Store, key: str) -> None:
    with suppress(FileNotFoundError, KeyError):
        await store.delete(key)


async def _collect(keys: AsyncIterator[str]) -> list[str]:
    return [key async for key in keys]


def local_directory(array: "zarr.Array[Any]") -> Path | None:
    """Return the directory of `array`; None where it is not on a local file system."""
    store = innermost(array.store)
    return store.root / array.path if isinstance(store, LocalStore) else None


def sweep(array: "zarr.Array[Any]") -> None:
    """Remove what a killed writer left unfinished in the directory of `array`.

    zarr writes a local object beside its place and renames it; whoever calls this holds the pyramid's lock.
    """
    directory = local_directory(array)
    if directory is not None:
        for path in directory.rglob("*.partial"):
            path.unlink(missing_ok=True)


def stored_units(array: "zarr.Array[Any]") -> NDArray[np.int64]:
    """List the stored write units of `array`: one row per unit with its number in C order, size and stamp.

    The stamp changes with the object: the time of its last change in nanoseconds, or a hash of its etag. Nothing is
    requested per object.

    Raises
    ------
    StoreError
        When the store tells neither times nor etags.
    """
    policy = getattr(array.store, "policy", None) or RetryConfig.model_construct()
    objects = retry(policy, f"list {array.path}", lambda: list(_objects(array)))
    grid = ChunkGrid.of(array).shape
    rows = [
        (*map(int, re.findall(r"\d+", key)), size, stamp) for key, size, stamp in objects if _CHUNK_KEY.fullmatch(key)
    ]
    # Objects of other grids may lie there, too: no reader looks at them.
    found = np.array([row for row in rows if len(row) == len(grid) + 2], np.int64).reshape(-1, len(grid) + 2)
    found = found[(found[:, :-2] < grid).all(axis=1)]
    number = np.ravel_multi_index(tuple(found[:, :-2].T), grid) if grid else np.zeros(len(found), np.int64)
    return np.column_stack([number, found[:, -2:]])[np.argsort(number)]


def _objects(array: "zarr.Array[Any]") -> Iterator[tuple[str, int, int]]:
    store, path = innermost(array.store), array.path
    if isinstance(store, LocalStore):
        return _local_objects(store.root / path)
    if isinstance(store, MemoryStore):
        start = f"{path}/" if path else ""
        items = list(store._store_dict.items())
        return ((k[len(start) :], len(v), zlib.crc32(v.to_bytes())) for k, v in items if k.startswith(start))
    if isinstance(store, FsspecStore):
        return _fsspec_objects(store, path)
    if isinstance(store, ObjectStore):
        return _obstore_objects(store, path)
    raise StoreError(f"{store} does not tell when its objects changed: name the regions, or rebuild everything")


def _local_objects(root: str | Path, prefix: str = "") -> Iterator[tuple[str, int, int]]:
    with os.scandir(root) as entries:
        for entry in entries:
            if entry.is_dir():
                if entry.name != PREFIX:
                    yield from _local_objects(entry.path, f"{prefix}{entry.name}/")
            else:
                found = entry.stat()
                yield prefix + entry.name, found.st_size, found.st_mtime_ns


def _fsspec_objects(store: FsspecStore, path: str) -> Iterator[tuple[str, int, int]]:
    root = f"{store.path.rstrip('/')}/{path}".rstrip("/")
    for key, info in sync(store.fs._find(root, detail=True)).items():
        mark = (
            info.get("ETag") or info.get("etag") or info.get("LastModified") or info.get("mtime") or info.get("updated")
        )
        yield key[len(root) :].lstrip("/"), int(info.get("size") or 0), _stamp(mark)


def _obstore_objects(store: Any, path: str) -> Iterator[tuple[str, int, int]]:
    start = f"{path}/" if path else ""
    for batch in store.store.list(start or None):
        for found in batch:
            mark = found.get("e_tag") or found.get("last_modified")
            yield found["path"][len(start) :], int(found["size"]), _stamp(mark)


def _stamp(mark: object) -> int:
    if mark is None:
        raise StoreError("the store does not tell when its objects changed: name the regions, or rebuild everything")
    return zlib.crc32(str(mark).encode())
