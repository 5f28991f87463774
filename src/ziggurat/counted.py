"""Counts what is asked of one array's store."""

from collections.abc import AsyncIterator, Sequence
from threading import Lock
from typing import Any, Self, override

from zarr.abc.store import ByteRequest, Store
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.storage import LocalStore, WrapperStore

__all__ = ["CountedStore", "Requests", "local_root"]


class Requests:
    """How many requests were made since they were last taken; all threads of a process count together.

    Not by task: zarr's own threads do not know which task they work for.

    Examples
    --------
    >>> requests = Requests()
    >>> requests.add(gets=1)
    >>> requests.add(sets=1)
    >>> requests.take(), requests.take()
    ((1, 1), (0, 0))
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._gets = self._sets = 0

    def __reduce__(self) -> tuple[Any, ...]:
        return Requests, ()

    def add(self, gets: int = 0, sets: int = 0) -> None:
        """Count reads, and writes or deletions."""
        with self._lock:
            self._gets += gets
            self._sets += sets

    def take(self) -> tuple[int, int]:
        """Return the reads and the writes, and begin anew."""
        with self._lock:
            found = self._gets, self._sets
            self._gets = self._sets = 0
        return found


class CountedStore(WrapperStore[Store]):
    """Passes on what is asked of a store, and counts objects, or parts of them, that are read, set and deleted.

    What a retry policy below tries again is one request.

    Parameters
    ----------
    store : zarr store
        The store to wrap.
    requests : Requests
        Where it is counted.
    """

    def __init__(self, store: Store, requests: Requests) -> None:
        super().__init__(store)
        self.requests = requests
        self._sync: Any = store  # asked for what zarr's types do not promise of every store

    @override
    def _with_store(self, store: Store) -> Self:
        return type(self)(store, self.requests)

    @override
    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        self.requests.add(gets=1)
        return await self._store.get(key, prototype, byte_range)

    @override
    def get_sync(
        self, key: str, *, prototype: BufferPrototype | None = None, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        self.requests.add(gets=1)
        found: Buffer | None = self._sync.get_sync(key, prototype=prototype, byte_range=byte_range)
        return found

    @override
    async def get_ranges(
        self, key: str, byte_ranges: Sequence[ByteRequest | None], *, prototype: BufferPrototype, **limits: int | None
    ) -> AsyncIterator[Sequence[tuple[int, Buffer | None]]]:
        # Not the wrapped store's: each merged fetch is one request, made by `get`.
        given: dict[str, Any] = {name: limit for name, limit in limits.items() if limit is not None}
        async for group in Store.get_ranges(self, key, byte_ranges, prototype=prototype, **given):
            yield group

    @override
    async def set(self, key: str, value: Buffer) -> None:
        self.requests.add(sets=1)
        await self._store.set(key, value)

    @override
    def set_sync(self, key: str, value: Buffer) -> None:
        self.requests.add(sets=1)
        self._sync.set_sync(key, value)

    @override
    async def delete(self, key: str) -> None:
        self.requests.add(sets=1)
        await self._store.delete(key)

    @override
    def delete_sync(self, key: str) -> None:
        self.requests.add(sets=1)
        self._sync.delete_sync(key)


def local_root(store: Store) -> tuple[str, Requests] | None:
    """Return the directory that a counted store reads, and its count; None where anything else is on the way."""
    if type(store) is CountedStore and type(store._store) is LocalStore:
        return str(store._store.root), store.requests
    return None
