"""A zarr store around another that hears of each request, on whichever path zarr makes it."""

import copy
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from threading import Lock
from typing import Any, Literal, Self, override

from zarr.abc.store import ByteRequest, Store
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.storage import WrapperStore

__all__ = ["Operation", "Tally", "WatchedStore"]

type Operation = Literal["get", "set", "delete", "list"]


class Tally:
    """Counts per operation and key that threads share; a pickled one starts at zero."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._counts: Counter[tuple[Operation, str]] = Counter()

    def __reduce__(self) -> tuple[type[Self], tuple[()]]:
        return type(self), ()

    def add(self, operation: Operation, key: str) -> int:
        """Count an operation on `key`; return how many there were."""
        with self._lock:
            self._counts[operation, key] += 1
            return self._counts[operation, key]

    def of(self, operation: Operation) -> Counter[str]:
        """Return the counts of one operation, by key."""
        with self._lock:
            return Counter({key: n for (kind, key), n in self._counts.items() if kind == operation})

    def clear(self) -> None:
        """Begin anew."""
        with self._lock:
            self._counts.clear()


class WatchedStore(WrapperStore[Store]):
    """Calls `_before` ahead of each get, set, delete and listing, on whichever path zarr takes to them."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._tally = Tally()

    def _before(self, operation: Operation, key: str) -> None:
        raise NotImplementedError

    async def _before_async(self, operation: Operation, key: str) -> None:
        self._before(operation, key)

    def _with_store(self, store: Store) -> Self:
        # Shares the tally: zarr may open a read-only twin of the store that it was given.
        twin = copy.copy(self)
        twin._store = store
        return twin

    @override
    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        await self._before_async("get", key)
        return await super().get(key, prototype, byte_range)

    @override
    def get_sync(
        self, key: str, *, prototype: BufferPrototype | None = None, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        self._before("get", key)
        return super().get_sync(key, prototype=prototype, byte_range=byte_range)

    @override
    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        return [await self.get(key, prototype, byte_range) for key, byte_range in key_ranges]

    @override
    async def get_ranges(
        self, key: str, byte_ranges: Sequence[ByteRequest | None], *, prototype: BufferPrototype, **limits: int | None
    ) -> AsyncIterator[Sequence[tuple[int, Buffer | None]]]:
        # Not the wrapped store's: its ranges would not pass through `get` here.
        given: dict[str, Any] = {name: limit for name, limit in limits.items() if limit is not None}
        async for group in Store.get_ranges(self, key, byte_ranges, prototype=prototype, **given):
            yield group

    @override
    async def _get_many(
        self, requests: Iterable[tuple[str, BufferPrototype, ByteRequest | None]]
    ) -> AsyncGenerator[tuple[str, Buffer | None]]:
        for key, prototype, byte_range in requests:
            yield key, await self.get(key, prototype, byte_range)

    @override
    async def set(self, key: str, value: Buffer) -> None:
        await self._before_async("set", key)
        await super().set(key, value)

    @override
    def set_sync(self, key: str, value: Buffer) -> None:
        self._before("set", key)
        super().set_sync(key, value)

    @override
    async def set_if_not_exists(self, key: str, value: Buffer) -> None:
        await self._before_async("set", key)
        await super().set_if_not_exists(key, value)

    @override
    async def _set_many(self, values: Iterable[tuple[str, Buffer]]) -> None:
        for key, value in values:
            await self.set(key, value)

    @override
    async def delete(self, key: str) -> None:
        await self._before_async("delete", key)
        await super().delete(key)

    @override
    def delete_sync(self, key: str) -> None:
        self._before("delete", key)
        super().delete_sync(key)

    @override
    async def delete_dir(self, prefix: str) -> None:
        await self._before_async("delete", prefix)
        await super().delete_dir(prefix)

    @override
    async def list(self) -> AsyncIterator[str]:
        await self._before_async("list", "")
        async for key in super().list():
            yield key

    @override
    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        await self._before_async("list", prefix)
        async for key in super().list_prefix(prefix):
            yield key

    @override
    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        await self._before_async("list", prefix)
        async for key in super().list_dir(prefix):
            yield key
