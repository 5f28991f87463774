"""A store that tries failed operations again; it keeps the policy that it was opened with."""

from asyncio import gather
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import Any, Self, override

from zarr.abc.store import ByteRequest, Store
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.storage import LocalStore, WrapperStore

from ziggurat import policy as rules
from ziggurat.config import RetryConfig
from ziggurat.policy import retry, retry_async, retrying

__all__ = ["RetryStore", "innermost", "retrying", "wrap"]


def innermost(store: Store) -> Store:
    """Return the store inside all wrappers."""
    while isinstance(store, WrapperStore):
        store = store._store
    return store


def wrap(store: Store, policy: RetryConfig) -> Store:
    """Return `store` with a copy of `policy` applied to all that is asked of it.

    Where nothing would be retried that is `store` itself: some codec pipelines do not work through wrappers. So is a
    store that was wrapped before, as it keeps the policy of that time.
    """
    inner: Store = store
    while isinstance(inner, WrapperStore):
        if isinstance(inner, RetryStore):
            return store
        inner = inner._store
    retries = policy.max_retries > 0 and (policy.retry_all_errors or bool(policy.retry_on))
    return RetryStore(store, policy) if retries or (rules.IS_WINDOWS and isinstance(inner, LocalStore)) else store


class RetryStore(WrapperStore[Store]):
    """Applies a policy to every operation on a store: on data, metadata and listings, synchronous and not.

    Operations may be retried although they have been carried out, when only the answer was lost; all of zarr's can be
    repeated. What is given up raises the error itself, with a note that names the key.

    Parameters
    ----------
    store : zarr store
        The store to wrap.
    policy : RetryConfig
        What to retry, and how; it is copied.
    """

    def __init__(self, store: Store, policy: RetryConfig) -> None:
        super().__init__(store)
        self.policy = policy.model_copy(deep=True)

    @override
    def _with_store(self, store: Store) -> Self:
        return type(self)(store, self.policy)

    def __str__(self) -> str:
        return str(self._store)

    async def _retry[R](self, what: str, function: Callable[..., Awaitable[R]], *args: Any, **kwargs: Any) -> R:
        return await retry_async(self.policy, what, function, *args, **kwargs)

    def _retry_sync[R](self, what: str, function: Callable[..., R], *args: Any, **kwargs: Any) -> R:
        return retry(self.policy, what, function, *args, **kwargs)

    @override
    async def _open(self) -> None:
        await self._retry("open", super()._open)

    @override
    async def _ensure_open(self) -> None:
        await self._retry("open", super()._ensure_open)

    @override
    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        return await self._retry(f"get {key!r}", super().get, key, prototype, byte_range)

    @override
    def get_sync(
        self, key: str, *, prototype: BufferPrototype | None = None, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        options = {"prototype": prototype, "byte_range": byte_range}
        return self._retry_sync(f"get {key!r}", super().get_sync, key, **options)

    @override
    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        return await gather(*(self.get(key, prototype, byte_range) for key, byte_range in key_ranges))

    @override
    async def get_ranges(
        self, key: str, byte_ranges: Sequence[ByteRequest | None], *, prototype: BufferPrototype, **limits: int | None
    ) -> AsyncIterator[Sequence[tuple[int, Buffer | None]]]:
        # Not the wrapped store's: each merged fetch is to be retried on its own, by `get`.
        given: dict[str, Any] = {name: limit for name, limit in limits.items() if limit is not None}
        async for group in Store.get_ranges(self, key, byte_ranges, prototype=prototype, **given):
            yield group

    @override
    async def _get_many(
        self, requests: Iterable[tuple[str, BufferPrototype, ByteRequest | None]]
    ) -> AsyncGenerator[tuple[str, Buffer | None]]:
        async for found in Store._get_many(self, requests):
            yield found

    @override
    async def exists(self, key: str) -> bool:
        return await self._retry(f"look for {key!r}", super().exists, key)

    @override
    async def is_empty(self, prefix: str) -> bool:
        return await self._retry(f"list {prefix!r}", super().is_empty, prefix)

    @override
    async def getsize(self, key: str) -> int:
        return await self._retry(f"get the size of {key!r}", self._store.getsize, key)

    @override
    async def getsize_prefix(self, prefix: str) -> int:
        return await self._retry(f"get the size of {prefix!r}", self._store.getsize_prefix, prefix)

    @override
    async def set(self, key: str, value: Buffer) -> None:
        await self._retry(f"set {key!r}", super().set, key, value)

    @override
    def set_sync(self, key: str, value: Buffer) -> None:
        self._retry_sync(f"set {key!r}", super().set_sync, key, value)

    @override
    async def set_if_not_exists(self, key: str, value: Buffer) -> None:
        await self._retry(f"set {key!r}", super().set_if_not_exists, key, value)

    @override
    async def _set_many(self, values: Iterable[tuple[str, Buffer]]) -> None:
        await Store._set_many(self, values)

    @override
    async def delete(self, key: str) -> None:
        await self._retry(f"delete {key!r}", super().delete, key)

    @override
    def delete_sync(self, key: str) -> None:
        self._retry_sync(f"delete {key!r}", super().delete_sync, key)

    @override
    async def delete_dir(self, prefix: str) -> None:
        await self._retry(f"delete {prefix!r}", super().delete_dir, prefix)

    @override
    async def clear(self) -> None:
        await self._retry("delete all", super().clear)

    @override
    async def list(self) -> AsyncIterator[str]:
        for key in await self._retry("list ''", _collect, super().list):
            yield key

    @override
    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        for key in await self._retry(f"list {prefix!r}", _collect, super().list_prefix, prefix):
            yield key

    @override
    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        for key in await self._retry(f"list {prefix!r}", _collect, super().list_dir, prefix):
            yield key


async def _collect(listing: Callable[..., AsyncIterator[str]], *args: str) -> Sequence[str]:
    """Return a whole listing: one that breaks off is begun again, and must not yield keys twice."""
    return [key async for key in listing(*args)]
