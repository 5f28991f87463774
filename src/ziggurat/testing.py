"""For tests of code that builds on Ziggurat: stores that count, that fail and that are slow, and a hash of a directory.

They wrap any zarr store, for synchronous and asynchronous calls alike, and may be put around one another: a
`CountingStore` around a `FlakyStore` counts attempts.
"""

import asyncio
import hashlib
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from zarr.abc.store import Store

from ziggurat.watching import Operation, WatchedStore

__all__ = ["CountingStore", "FlakyStore", "LatencyStore", "SlowStore", "tree_hash"]


class CountingStore(WatchedStore):
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


class FlakyStore(WatchedStore):
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


class SlowStore(WatchedStore):
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


class LatencyStore(WatchedStore):
    """Takes as long as a store behind a network: each request waits, any number of them at once.

    What zarr merges is one request and waits once. It is called as such stores are, asynchronously.

    Parameters
    ----------
    store : zarr store
        The store to wrap.
    latency_s : float
        Seconds before each get, set, delete and listing.

    Examples
    --------
    >>> import zarr
    >>> store = CountingStore(LatencyStore(zarr.storage.MemoryStore(), 0.001))
    >>> array = zarr.create_array(store, shape=(64,), chunks=(4,), shards=(64,), dtype="uint8")
    >>> array[:] = 1
    >>> store.reset()
    >>> array[::8].sum(), store.gets.total()  # the index, and every second chunk
    (np.uint64(8), 2)
    """

    _supports_sync_io = False

    def __init__(self, store: Store, latency_s: float) -> None:
        super().__init__(store)
        self._latency_s = latency_s

    def _before(self, operation: Operation, key: str) -> None:
        time.sleep(self._latency_s)

    async def _before_async(self, operation: Operation, key: str) -> None:
        await asyncio.sleep(self._latency_s)


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
