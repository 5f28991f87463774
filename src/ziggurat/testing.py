"""For tests of code that builds on Ziggurat: stores that count, that fail and that are slow, and a hash of a directory.

They wrap any zarr store, for synchronous and asynchronous calls alike, and may be put around one another: a
`CountingStore` around a `FlakyStore` counts attempts.
"""

import copy
import hashlib
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from pathlib import Path
from threading import Lock
from typing import Any, Literal, Self

from zarr.abc.store import ByteRequest, Store
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.storage import WrapperStore

__all__ = ["CountingStore", "FlakyStore", "SlowStore", "tree_hash"]

type Operation = Literal["get", "set", "delete", "list"]


class _Tally:
    """Counts per operation and key that threads share; a pickled one starts at zero."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._counts: Counter[tuple[Operation, str]] = Counter()

    def __reduce__(self) -> tuple[type[Self], tuple[()]]:
        return type(self), ()

    def add(self, operation: Operation, key: str) -> int:
        with self._lock:
            self._counts[operation, key] += 1
            return self._counts[operation, key]

    def of(self, operation: Operation) -> Counter[str]:
        with self._lock:
            return Counter({key: n for (kind, key), n in self._counts.items() if kind == operation})

    def clear(self) -> None:
        with self._lock:
            self._counts.clear()


class _WatchedStore(WrapperStore[Store]):
    """Calls `_before` ahead of each get, set, delete and listing, on whichever path zarr takes to them."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._tally = _Tally()

    def _before(self, operation: Operation, key: str) -> None:
        raise NotImplementedError

    def _with_store(self, store: Store) -> Self:
        # Shares the tally: zarr may open a read-only twin of the store that it was given.
        twin = copy.copy(self)
        twin._store = store
        return twin

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        self._before("get", key)
        return await super().get(key, prototype, byte_range)

    def get_sync(
        self, key: str, *, prototype: BufferPrototype | None = None, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        self._before("get", key)
        return super().get_sync(key, prototype=prototype, byte_range=byte_range)

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        return [await self.get(key, prototype, byte_range) for key, byte_range in key_ranges]

    async def get_ranges(
        self, key: str, byte_ranges: Sequence[ByteRequest | None], *, prototype: BufferPrototype, **limits: int | None
    ) -> AsyncIterator[Sequence[tuple[int, Buffer | None]]]:
        # Not the wrapped store's: its ranges would not pass through `get` here.
        given: dict[str, Any] = {name: limit for name, limit in limits.items() if limit is not None}
        async for group in Store.get_ranges(self, key, byte_ranges, prototype=prototype, **given):
            yield group

    async def _get_many(
        self, requests: Iterable[tuple[str, BufferPrototype, ByteRequest | None]]
    ) -> AsyncGenerator[tuple[str, Buffer | None]]:
        for key, prototype, byte_range in requests:
            yield key, await self.get(key, prototype, byte_range)

    async def set(self, key: str, value: Buffer) -> None:
        self._before("set", key)
        await super().set(key, value)

    def set_sync(self, key: str, value: Buffer) -> None:
        self._before("set", key)
        super().set_sync(key, value)

    async def set_if_not_exists(self, key: str, value: Buffer) -> None:
        self._before("set", key)
        await super().set_if_not_exists(key, value)

    async def _set_many(self, values: Iterable[tuple[str, Buffer]]) -> None:
        for key, value in values:
            await self.set(key, value)

    async def delete(self, key: str) -> None:
        self._before("delete", key)
        await super().delete(key)

    def delete_sync(self, key: str) -> None:
        self._before("delete", key)
        super().delete_sync(key)

    async def delete_dir(self, prefix: str) -> None:
        self._before("delete", prefix)
        await super().delete_dir(prefix)

    async def list(self) -> AsyncIterator[str]:
        self._before("list", "")
        async for key in super().list():
            yield key

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        self._before("list", prefix)
        async for key in super().list_prefix(prefix):
            yield key

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        self._before("list", prefix)
        async for key in super().list_dir(prefix):
            yield key


class CountingStore(_WatchedStore):
    """Counts what is asked of a zarr store, per key, failed attempts included.

    Threads count together, and so do the read-only twins that zarr opens. A pickled copy, as a worker process gets,
    starts at zero and counts for itself.

    Parameters
    ----------
    store : zarr store
        The store to wrap.

    Examples
    --------
    >>> import zarr
    >>> store = CountingStore(zarr.storage.MemoryStore())
    >>> array = zarr.create_array(store, shape=(4,), chunks=(2,), dtype="uint8")
    >>> store.reset()
    >>> array[0] = 5
    >>> store.gets, store.sets
    (Counter({'c/0': 1}), Counter({'c/0': 1}))
    """

    def _before(self, operation: Operation, key: str) -> None:
        self._tally.add(operation, key)

    @property
    def gets(self) -> Counter[str]:
        """Reads per key; each byte range that is fetched on its own is one read."""
        return self._tally.of("get")

    @property
    def sets(self) -> Counter[str]:
        """Writes per key."""
        return self._tally.of("set")

    @property
    def deletes(self) -> Counter[str]:
        """Deletions per key, or per prefix where a whole directory is deleted."""
        return self._tally.of("delete")

    @property
    def lists(self) -> Counter[str]:
        """Listings per prefix."""
        return self._tally.of("list")

    def reset(self) -> None:
        """Set all counts to zero."""
        self._tally.clear()


class FlakyStore(_WatchedStore):
    """Fails the first times that each key is read, written, deleted or listed, then works.

    A pickled copy, as a worker process gets, has all its failures still to come; `error` and `keys` must then be
    picklable.

    Parameters
    ----------
    store : zarr store
        The store to wrap.
    error : callable
        Makes the exception to raise.
    n_errors : int
        How often each operation on a key fails.
    keys : callable, optional
        Says which keys (prefixes, for listings) fail; all by default.
    every : int, optional
        Fail each so many-th call instead, whatever its key, for ever.

    Examples
    --------
    >>> import zarr
    >>> store = FlakyStore(zarr.storage.MemoryStore(), lambda: OSError("503 Slow Down"), keys=lambda k: k == "c/0")
    >>> array = zarr.create_array(store, shape=(4,), chunks=(2,), dtype="uint8")
    >>> array[0]
    Traceback (most recent call last):
    ...
    OSError: 503 Slow Down
    >>> int(array[0])
    0
    """

    def __init__(
        self,
        store: Store,
        error: Callable[[], BaseException],
        n_errors: int = 1,
        keys: Callable[[str], bool] | None = None,
        every: int | None = None,
    ) -> None:
        super().__init__(store)
        self._error = error
        self._n_errors = n_errors
        self._keys = keys
        self._every = every

    def _before(self, operation: Operation, key: str) -> None:
        if (self._keys is None or self._keys(key)) and self._fails(operation, key):
            raise self._error()

    def _fails(self, operation: Operation, key: str) -> bool:
        if self._every is not None:
            return self._tally.add("get", "") % self._every == 0
        return self._tally.add(operation, key) <= self._n_errors


class SlowStore(_WatchedStore):
    """Takes its time: each call holds its thread for a while.

    Parameters
    ----------
    store : zarr store
        The store to wrap.
    delay_s : float
        Seconds before each get, set, delete and listing.
    keys : callable, optional
        Says which keys (prefixes, for listings) are slow; all by default.

    Examples
    --------
    >>> import zarr
    >>> store = SlowStore(zarr.storage.MemoryStore(), 0.001)
    >>> zarr.create_array(store, shape=(4,), chunks=(2,), dtype="uint8").shape
    (4,)
    """

    def __init__(self, store: Store, delay_s: float, keys: Callable[[str], bool] | None = None) -> None:
        super().__init__(store)
        self._delay_s = delay_s
        self._keys = keys

    def _before(self, operation: Operation, key: str) -> None:
        if self._keys is None or self._keys(key):
            time.sleep(self._delay_s)


def tree_hash(path: str | Path) -> dict[str, str]:
    """Return the SHA-256 of each file below a directory, by its path in it; two equal results mean nothing changed.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as directory:
    ...     _ = (Path(directory) / "a.txt").write_bytes(b"")
    ...     tree_hash(directory)["a.txt"][:8]
    'e3b0c442'
    """
    root = Path(path)
    files = sorted(p for p in root.rglob("*") if p.is_file())
    return {p.relative_to(root).as_posix(): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}
