"""Counts what is asked of one array's store."""

import os
from threading import Lock
from typing import Any, override

from zarr.abc.store import Store
from zarr.storage import LocalStore

from ziggurat.watching import Operation, WatchedStore

__all__ = ["CountedStore", "Requests", "is_missing", "local_root"]


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


class CountedStore(WatchedStore):
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

    @override
    def _before(self, operation: Operation, key: str) -> None:
        if operation != "list":
            self.requests.add(gets=operation == "get", sets=operation != "get")

    @override
    def delete_sync(self, key: str) -> None:
        # In sparse images most of what is to be deleted is not there, which zarr takes ten times as long to find.
        found = None if self.read_only else local_root(self)
        if found and is_missing(f"{found[0]}/{key}"):
            self._before("delete", key)
        else:
            super().delete_sync(key)


def local_root(store: Store) -> tuple[str, Requests] | None:
    """Return the directory that a counted store reads, and its count; None where anything else is on the way."""
    if type(store) is CountedStore and type(store._store) is LocalStore:
        return str(store._store.root), store.requests
    return None


def is_missing(path: str) -> bool:
    """Say whether there surely is no such file or directory; False where a look fails: what reads it then says why."""
    try:
        os.lstat(path)
    except OSError as error:
        return isinstance(error, FileNotFoundError | NotADirectoryError)
    return False
