"""Opens stores at URLs, through fsspec or obstore; both are loaded when used."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from glob import has_magic
from importlib import import_module
from typing import Any, Literal, override
from urllib.parse import quote

import zarr
from zarr.abc.store import ByteRequest, OffsetByteRequest, RangeByteRequest, Store, SuffixByteRequest
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.storage import FsspecStore, ObjectStore, WrapperStore

from ziggurat.errors import StoreError

__all__ = ["Backend", "LiteralStore", "WholeObjects", "check_options", "is_url", "literal", "open_url"]

type Backend = Literal["fsspec", "obstore"]

# A cached listing misses what other processes wrote.
_FRESH: dict[str, Any] = {"use_listings_cache": False}

# s3fs asks for an object's size before it gets it, unless it may make one request only.
_S3: dict[str, Any] = _FRESH | {"max_concurrency": 1}

_FSSPEC_DEFAULTS = {"s3": _S3, "s3a": _S3, "gs": _FRESH, "gcs": _FRESH, "http": _FRESH, "https": _FRESH}

_EXTRAS = {"s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs"}


def is_url(where: object) -> bool:
    """Say whether `where` is a URL that is not a local one."""
    return isinstance(where, str) and "://" in where and not where.startswith("file://")


def check_options(where: object, storage_options: dict[str, Any] | None, backend: Backend) -> None:
    """Refuse options that would be ignored, because `where` is no URL.

    Raises
    ------
    StoreError
        When there are any.
    """
    if not is_url(where) and (storage_options or backend != "fsspec"):
        raise StoreError(f"storage_options and backend are for URLs, {where!r} is none: leave them out")


def open_url(url: str, storage_options: dict[str, Any] | None = None, backend: Backend = "fsspec") -> Store:
    """Return the store at `url`; nothing is requested. Web servers (``http://``, ``https://``) are read-only.

    Parameters
    ----------
    storage_options : dict, optional
        What the file system of fsspec, or `obstore.store.from_url`, is given: credentials, endpoint and the like.
    backend : {"fsspec", "obstore"}
        Which library makes the requests.

    Raises
    ------
    StoreError
        When there is nothing installed that knows such URLs, or it does not accept the options.
    """
    if backend not in ("fsspec", "obstore"):
        raise StoreError(f"backend {backend!r} does not exist: use 'fsspec' or 'obstore'")
    scheme, _, rest = url.partition("://")
    read_only = scheme in ("http", "https")
    options = dict(storage_options or {})
    try:
        if backend == "obstore":
            # obstore decodes URLs; the names of buckets and objects are taken literally here, as fsspec does.
            literal = url if read_only else f"{scheme}://{quote(rest)}"
            return ObjectStore(import_module("obstore.store").from_url(literal, **options), read_only=read_only)
        return LiteralStore.from_url(url, _FSSPEC_DEFAULTS.get(scheme, {}) | options, read_only)
    except Exception as e:
        # Nothing was requested, so it is the URL, an option, or a missing package; the libraries raise what they like.
        reason = str(e).partition("\n")[0]
        raise StoreError(f"{url} cannot be opened with {backend}: {reason}{_remedy(scheme, e)}") from e


def _remedy(scheme: str, error: Exception) -> str:
    extra = _EXTRAS.get(scheme) if isinstance(error, ImportError) else None
    return f": pip install 'ziggurat[{extra}]' brings what is missing" if extra else ""


class LiteralStore(FsspecStore):
    """Deletes what is named, and nothing else.

    fsspec takes names to remove that hold ``*``, ``?`` or ``[`` for patterns: zarr's own store leaves the object of
    that very name where it is, without a word, or removes those of a neighbour.
    """

    @override
    async def delete(self, key: str) -> None:
        path = "/".join(part for part in (self.path.rstrip("/"), key) if part)
        if not has_magic(path):
            return await super().delete(key)
        self._check_writable()
        with suppress(*self.allowed_exceptions):
            await self.fs._rm_file(path)

    @override
    async def delete_dir(self, prefix: str) -> None:
        if not has_magic(f"{self.path}/{prefix}"):
            return await super().delete_dir(prefix)  # in bulk, where the file system can
        start = prefix.rstrip("/")
        keys = [key async for key in self.list_prefix(f"{start}/" if start else "")]
        places = asyncio.Semaphore(int(zarr.config.get("async.concurrency")))

        async def one(key: str) -> None:
            async with places:
                await self.delete(key)

        await asyncio.gather(*map(one, keys))


def literal(store: Store) -> Store:
    """Return a store of zarr's own over fsspec as a `LiteralStore`, and any other as it is."""
    if type(store) is not FsspecStore:
        return store
    return LiteralStore(store.fs, store.read_only, store.path, store.allowed_exceptions)


class WholeObjects(WrapperStore[Store]):
    """Gets each object once, whole, and serves parts of it from memory, for as long as the store lives.

    zarr asks for a shard that overhangs its array in two requests, first for the index, though all of it is wanted.
    """

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._objects: dict[str, Buffer | None] = {}

    @override
    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        if byte_range is None:
            return await super().get(key, prototype)
        if key not in self._objects:
            self._objects[key] = await super().get(key, prototype)
        whole = self._objects[key]
        return None if whole is None else whole[_slice(byte_range, len(whole))]

    @override
    async def get_ranges(
        self, key: str, byte_ranges: Sequence[ByteRequest | None], *, prototype: BufferPrototype, **limits: int | None
    ) -> AsyncIterator[Sequence[tuple[int, Buffer | None]]]:
        yield [(i, await self.get(key, prototype, byte_range)) for i, byte_range in enumerate(byte_ranges)]


def _slice(byte_range: ByteRequest, n_bytes: int) -> slice:
    match byte_range:
        case RangeByteRequest(start, end):
            return slice(start, end)
        case OffsetByteRequest(offset):
            return slice(offset, None)
        case SuffixByteRequest(suffix):
            return slice(max(0, n_bytes - suffix), None)
