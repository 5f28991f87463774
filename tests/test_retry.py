"""Retries: what is tried again, how often, after which delay, and what arrives when it does not help."""

import asyncio
import errno
import logging
import pickle
from concurrent.futures import CancelledError
from functools import partial
from inspect import isfunction
from typing import ClassVar

import dask
import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from zarr.abc.store import RangeByteRequest, Store
from zarr.core.buffer import default_buffer_prototype
from zarr.storage import LocalStore, MemoryStore, WrapperStore

import ziggurat as zg
from ziggurat import policy as rules
from ziggurat.config import ConstantBackoff, ExponentialBackoff, LinearBackoff, RetryConfig
from ziggurat.errors import StoreError
from ziggurat.policy import delay_s
from ziggurat.retry import RetryStore, retrying, wrap
from ziggurat.store import innermost
from ziggurat.testing import CountingStore, FlakyStore

slow_down = partial(OSError, "503 Slow Down")
NOW = ConstantBackoff(delay_s=0, jitter=False)


def slow(max_retries=3, backoff=NOW):
    return RetryConfig(max_retries=max_retries, retry_on=["Slow Down"], backoff=backoff)


@pytest.fixture
def io_retry():
    """Set the policy; the default comes back afterwards."""
    yield lambda policy: setattr(zg.get_config(), "io_retry", policy)
    zg.get_config().io_retry = RetryConfig()


@pytest.fixture
def on_windows(monkeypatch):
    monkeypatch.setattr(rules, "IS_WINDOWS", True)
    monkeypatch.setattr(rules, "_sharing_conflicts", lambda: RetryConfig(max_retries=5, backoff=NOW))


def buffer(content=b"content"):
    return default_buffer_prototype().buffer.from_bytes(content)


# --- delays


@pytest.mark.parametrize(
    ("backoff", "expected"),
    [
        (ConstantBackoff(delay_s=0.1), [0.1, 0.1, 0.1, 0.1]),
        (LinearBackoff(delay_s=0.1, max_delay_s=0.3), [0.1, 0.2, 0.3, 0.3]),
        (ExponentialBackoff(delay_s=0.1, max_delay_s=0.5), [0.1, 0.2, 0.4, 0.5]),
    ],
)
def test_delays_of_each_strategy(backoff, expected):
    assert [delay_s(backoff, attempt) for attempt in (1, 2, 3, 4)] == pytest.approx(expected)


@given(
    kind=st.sampled_from([ConstantBackoff, LinearBackoff, ExponentialBackoff]),
    delay=st.floats(0, 1e6),
    most=st.floats(0, 1e6),
    attempt=st.integers(1, 10**5),
    jitter=st.floats(0.5, 1.5),
)
def test_delays_are_capped_before_and_after_jitter(kind, delay, most, attempt, jitter):
    backoff = kind(delay_s=delay, max_delay_s=most)
    plain = delay_s(backoff, attempt)
    assert 0 <= plain <= most
    assert delay_s(backoff, attempt, jitter) == min(plain * jitter, most)


def test_jitter_spreads_the_delays(caplog, monkeypatch):
    monkeypatch.setattr("tenacity.nap.time.sleep", lambda seconds: None)
    store = RetryStore(
        FlakyStore(MemoryStore(), slow_down, n_errors=50), slow(50, ConstantBackoff(delay_s=2, max_delay_s=2.5))
    )
    store.get_sync("a")
    waits = [record.args[3] for record in caplog.records]
    assert min(waits) >= 1
    assert max(waits) == 2.5
    assert len(set(waits)) > 10


# --- the store

CALLS = {
    "get": lambda s: s.get("a/b", default_buffer_prototype()),
    "get_sync": lambda s: s.get_sync("a/b"),
    "get_partial_values": lambda s: s.get_partial_values(default_buffer_prototype(), [("a/b", None)]),
    "get_ranges": lambda s: s.get_ranges("a/b", [RangeByteRequest(0, 3)], prototype=default_buffer_prototype()),
    "get_ranges_sync": lambda s: s.get_ranges_sync(
        "a/b", [RangeByteRequest(0, 3)], prototype=default_buffer_prototype()
    ),
    "_get_many": lambda s: s._get_many([("a/b", default_buffer_prototype(), None)]),
    "exists": lambda s: s.exists("a/b"),
    "is_empty": lambda s: s.is_empty("a"),
    "getsize": lambda s: s.getsize("a/b"),
    "getsize_prefix": lambda s: s.getsize_prefix("a"),
    "set": lambda s: s.set("a/c", buffer()),
    "set_sync": lambda s: s.set_sync("a/c", buffer()),
    "set_if_not_exists": lambda s: s.set_if_not_exists("a/c", buffer()),
    "_set_many": lambda s: s._set_many([("a/c", buffer())]),
    "delete": lambda s: s.delete("a/b"),
    "delete_sync": lambda s: s.delete_sync("a/b"),
    "delete_dir": lambda s: s.delete_dir("a"),
    "clear": lambda s: s.clear(),
    "list": lambda s: s.list(),
    "list_prefix": lambda s: s.list_prefix("a/"),
    "list_dir": lambda s: s.list_dir("a"),
    "_open": lambda s: s._open(),
    "_ensure_open": lambda s: s._ensure_open(),
}
LOCAL = {"open", "close", "with_read_only", "_with_store", "_check_writable"}
"""Methods that ask nothing of what is behind the store."""


class Failing(MemoryStore):
    """Fails one operation twice before it works, in the middle where it is a listing."""

    failing = ""
    attempts = 0

    def fail(self, name):
        if name == self.failing:
            self.attempts += 1
            if self.attempts <= 2:
                raise slow_down()


def failing(name):
    inner = getattr(MemoryStore, name, None)
    if name.endswith("_sync"):

        def method(self, *args, **kwargs):
            self.fail(name)
            return inner(self, *args, **kwargs)

    elif name in ("list", "list_prefix", "list_dir"):

        async def method(self, *args):
            async for key in inner(self, *args):
                yield key
                self.fail(name)

    else:

        async def method(self, *args, **kwargs):
            self.fail(name)
            return await inner(self, *args, **kwargs)

    return method


MADE_OF = {
    "get_partial_values": "get",
    "get_ranges": "get",
    "get_ranges_sync": "get_sync",
    "_get_many": "get",
    "_set_many": "set",
}
"""Operations that retry the single ones that they are made of."""

for name in set(CALLS) - set(MADE_OF):
    setattr(Failing, name, failing(name))


def answer(result):
    async def resolve():
        if hasattr(result, "__aiter__"):
            return [item async for item in result]
        return await result

    return plain(asyncio.run(resolve()) if hasattr(result, "__await__") or hasattr(result, "__aiter__") else result)


def plain(found):
    """Return buffers as bytes."""
    if isinstance(found, list | tuple):
        return [plain(item) for item in found]
    return found.to_bytes() if hasattr(found, "to_bytes") and not isinstance(found, int) else found


def content(store):
    return {key: value.to_bytes() for key, value in store._store_dict.items()}


@pytest.mark.parametrize("name", CALLS)
def test_every_operation_is_retried(name):
    bare, store = (kind({"a/b": buffer(), "d": buffer(b"other")}) for kind in (MemoryStore, Failing))
    if "open" in name:
        bare._is_open = store._is_open = False
    expected = answer(CALLS[name](bare))
    store.failing = MADE_OF.get(name, name)
    with pytest.raises((OSError, ExceptionGroup)) as error:
        answer(CALLS[name](RetryStore(store, slow(1))))
    assert "Slow Down" in repr(error.value)
    assert store.attempts == 2
    store.attempts = 0
    assert answer(CALLS[name](RetryStore(store, slow(2)))) == expected
    assert store.attempts == (4 if name == "list" else 3)
    assert content(store) == content(bare)


def test_no_operation_of_zarr_is_forgotten():
    methods = {n for kind in (Store, WrapperStore) for n, f in vars(kind).items() if isfunction(f)}
    own = {n for n in methods if not n.startswith("__")} - LOCAL
    assert own == set(CALLS)


def test_each_merged_fetch_is_retried_on_its_own():
    class OncePerRange(MemoryStore):
        asked: ClassVar = []

        async def get(self, key, prototype, byte_range=None):
            self.asked.append(byte_range)
            if self.asked.count(byte_range) == 1:
                raise slow_down()
            return await super().get(key, prototype, byte_range)

        def get_sync(self, key, *, prototype=None, byte_range=None):
            self.asked.append(byte_range)
            if self.asked.count(byte_range) == 1:
                raise slow_down()
            return super().get_sync(key, prototype=prototype, byte_range=byte_range)

    ranges = [RangeByteRequest(i, i + 2) for i in (0, 2, 50, 90)]
    for method in ("get_ranges", "get_ranges_sync"):
        OncePerRange.asked = []
        store = RetryStore(OncePerRange({"a": buffer(bytes(range(100)))}), slow(1))
        found = getattr(store, method)("a", ranges, prototype=default_buffer_prototype(), max_gap_bytes=10)
        pairs = answer(found) if method == "get_ranges_sync" else [pair for batch in answer(found) for pair in batch]
        assert sorted(pairs) == [[i, bytes([r.start, r.start + 1])] for i, r in enumerate(ranges)]
        assert len(OncePerRange.asked) == 6


def test_a_given_up_error_is_the_original_and_names_the_key():
    original = slow_down()
    store = RetryStore(FlakyStore(MemoryStore(), lambda: original, n_errors=9), slow(2))
    with pytest.raises(OSError) as error:
        store.get_sync("a/b")
    assert error.value is original
    assert error.value.__cause__ is None
    assert error.value.__notes__ == ["get 'a/b': given up after 3 attempts"]


def test_what_is_not_named_is_not_retried():
    store = CountingStore(FlakyStore(MemoryStore(), partial(OSError, "disk full")))
    with pytest.raises(OSError, match="disk full"):
        RetryStore(store, slow()).get_sync("a")
    assert store.gets["a"] == 1


def test_markers_match_the_name_and_the_message():
    for marker in ("TimeoutError", "TimeoutError: took", "too long"):
        store = FlakyStore(MemoryStore(), partial(TimeoutError, "took too long"))
        assert RetryStore(store, RetryConfig(max_retries=1, retry_on=[marker], backoff=NOW)).get_sync("a") is None


@pytest.mark.parametrize("error", [StoreError, KeyboardInterrupt, SystemExit, asyncio.CancelledError, CancelledError])
def test_some_errors_are_never_retried(error):
    with pytest.warns(UserWarning, match="retry_all_errors"):
        policy = RetryConfig(max_retries=3, retry_all_errors=True, backoff=NOW)
    store = CountingStore(FlakyStore(MemoryStore(), error))
    with pytest.raises(error):
        RetryStore(store, policy).get_sync("a")
    assert store.gets["a"] == 1
    other = FlakyStore(MemoryStore(), ValueError)
    assert RetryStore(other, policy).get_sync("a") is None


def test_a_wait_can_be_cancelled():
    store = CountingStore(FlakyStore(MemoryStore(), slow_down, n_errors=99))
    patient = RetryStore(store, slow(9, ConstantBackoff(delay_s=60, max_delay_s=60, jitter=False)))

    async def main():
        task = asyncio.create_task(patient.get("a", default_buffer_prototype()))
        while not store.gets:
            await asyncio.sleep(0)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(main())
    assert store.gets["a"] == 1


def test_the_policy_is_copied_and_pickled(recwarn):
    policy = slow(2)
    store = RetryStore(FlakyStore(MemoryStore({"a": buffer()}), slow_down, n_errors=2), policy)
    policy.max_retries = 0
    for copy in (store, pickle.loads(pickle.dumps(store)), store.with_read_only(True)):
        assert copy.policy == slow(2)
        assert copy.get_sync("a").to_bytes() == b"content"
    assert not recwarn.list


def test_stores_are_bare_where_nothing_is_retried():
    store = MemoryStore()
    assert wrap(store, RetryConfig()) is store
    assert wrap(store, RetryConfig(max_retries=3)) is store
    assert wrap(store, RetryConfig(retry_on=["Slow Down"])) is store
    wrapped = wrap(store, slow())
    assert wrapped._supports_sync_io
    again = CountingStore(wrapped)
    assert wrap(again, slow(5)) is again
    assert str(wrapped) == str(store)


def test_retrying_reads_the_policy_at_each_call():
    policies = [slow(1), slow(2)]
    attempts = []

    @retrying(lambda: policies.pop(0))
    def probe(n_errors):
        attempts.append(n_errors)
        if attempts.count(n_errors) <= n_errors:
            raise slow_down()
        return n_errors

    assert probe(1) == 1
    assert probe(2) == 2
    assert attempts == [1, 1, 2, 2, 2]


# --- sharing conflicts


def conflict(winerror):
    error = PermissionError(errno.EACCES, "in use by another process")
    if winerror is not None:
        error.winerror = winerror
    return error


@pytest.mark.parametrize("winerror", [5, 32, 33, None])
def test_sharing_conflicts_get_a_bounded_retry_of_their_own(tmp_path, on_windows, winerror):
    bare = LocalStore(tmp_path)
    assert isinstance(wrap(bare, RetryConfig()), RetryStore)
    for n_errors, works in ((5, True), (6, False)):
        store = CountingStore(FlakyStore(bare, partial(conflict, winerror), n_errors))
        guarded = wrap(store, RetryConfig())
        if works:
            guarded.set_sync("a", buffer())
        else:
            with pytest.raises(PermissionError, match="in use"):
                guarded.set_sync("a", buffer())
        assert store.sets["a"] == 6


def test_other_errors_of_windows_are_not_retried(tmp_path, on_windows):
    store = CountingStore(FlakyStore(LocalStore(tmp_path), partial(conflict, 112)))
    with pytest.raises(PermissionError):
        wrap(store, RetryConfig()).set_sync("a", buffer())
    assert store.sets["a"] == 1


def test_elsewhere_access_denied_is_final(tmp_path, monkeypatch):
    monkeypatch.setattr(rules, "IS_WINDOWS", False)
    bare = LocalStore(tmp_path)
    assert wrap(bare, RetryConfig()) is bare
    store = CountingStore(FlakyStore(bare, partial(conflict, None)))
    with pytest.raises(PermissionError):
        wrap(store, slow()).set_sync("a", buffer())
    assert store.sets["a"] == 1


# --- rebuilds, PYR-31


def make(store, shards=None):
    group = zarr.create_group(store)
    group.create_array("0", shape=(8, 8), chunks=(4, 4), shards=shards, dtype="uint16")[...] = 50
    group.create_array("1", shape=(4, 4), chunks=(2, 2), shards=shards and (2, 2), dtype="uint16")
    return group


def is_metadata(key):
    return key.endswith("zarr.json")


def is_chunk_of(level, key):
    return key.startswith(f"{level}/c/")


WAITS = ExponentialBackoff(delay_s=0.01, jitter=False)
FAILING = {
    "reads": partial(is_chunk_of, "0"),
    "writes": partial(is_chunk_of, "1"),
    "metadata": is_metadata,
}


@pytest.mark.parametrize("failing", FAILING)
@pytest.mark.parametrize("mode", ["numpy", "dask"])
def test_transient_errors_are_outlived(io_retry, caplog, mode, failing):
    io_retry(slow(3, WAITS))
    memory = MemoryStore()
    group = make(memory)
    store = CountingStore(FlakyStore(memory, slow_down, n_errors=2, keys=FAILING[failing]))
    pyramid = zg.open_pyramid(store, levels=["0", "1"])
    io_retry(RetryConfig())  # the policy of the time of opening counts
    zg.consolidate(pyramid, mode=mode)
    assert (group["1"][...] == 50).all()
    tries = store.sets if failing == "writes" else store.gets
    if failing != "metadata":
        assert {key: n for key, n in tries.items() if FAILING[failing](key)} == {
            f"{'01'[failing == 'writes']}/c/{i}/{j}": 3 for i in range(2) for j in range(2)
        }
    keys = {key for key in tries if FAILING[failing](key)}
    warnings = [record for record in caplog.records if record.name == "ziggurat.retry"]
    assert all(record.levelno == logging.WARNING for record in warnings)
    for key in keys:
        waits = [record.args[3] for record in warnings if repr(key) in record.args[0]]
        assert waits == pytest.approx([0.01, 0.02])
    assert len(warnings) == 2 * len(keys)


@pytest.mark.parametrize("failing", FAILING)
@pytest.mark.parametrize("mode", ["numpy", "dask"])
@pytest.mark.parametrize("max_retries", [1, 0])
def test_lasting_errors_arrive_and_no_chunk_becomes_fill(io_retry, mode, failing, max_retries):
    io_retry(slow(max_retries))
    memory = MemoryStore()
    group = make(memory)
    store = CountingStore(FlakyStore(memory, slow_down, n_errors=2, keys=FAILING[failing]))
    with pytest.raises(OSError) as error:
        zg.consolidate(zg.open_pyramid(store, levels=["0", "1"]), mode=mode)
    assert (type(error.value), str(error.value)) == (OSError, "503 Slow Down")
    tries = store.sets if failing == "writes" else store.gets
    # Others may be between two attempts when the first one fails for good.
    assert max(n for key, n in tries.items() if FAILING[failing](key)) == max_retries + 1
    stored = [key for key in memory._store_dict if is_chunk_of("1", key)]
    assert all((group["1"].get_block_selection(tuple(map(int, key.split("/")[2:]))) == 50).all() for key in stored)


@pytest.mark.parametrize("max_retries", [3, 1, 0])
def test_policies_travel_to_process_workers(io_retry, tmp_path, max_retries):
    io_retry(slow(max_retries))
    group = make(LocalStore(tmp_path))
    store = FlakyStore(group.store, slow_down, n_errors=2, keys=FAILING["reads"])
    pyramid = zg.open_pyramid([zarr.open_array(store, path=path, mode="r+") for path in "01"])
    io_retry(RetryConfig())
    with dask.config.set(scheduler="processes", num_workers=1):
        if max_retries == 3:
            zg.consolidate(pyramid, mode="dask")
            assert (group["1"][...] == 50).all()
        else:
            with pytest.raises(OSError, match="503 Slow Down"):
                zg.consolidate(pyramid, mode="dask")
            assert group["1"].nchunks_initialized == 0


@pytest.mark.parametrize("kind", ["arrays", "group", "store", "path"])
def test_whatever_is_opened_gets_the_policy(io_retry, tmp_path, kind):
    group = make(LocalStore(tmp_path))
    targets = {"arrays": [group["0"], group["1"]], "group": group, "store": group.store, "path": tmp_path}
    levels = None if kind == "arrays" else ["0", "1"]
    assert not any(isinstance(a.store, RetryStore) for a in zg.open_pyramid(targets[kind], levels).arrays)
    io_retry(slow())
    pyramid = zg.open_pyramid(targets[kind], levels)
    assert all(a.store.policy == slow() for a in pyramid.arrays)
    assert all(innermost(a.store) == group.store for a in pyramid.arrays)
    zg.consolidate(pyramid)
    assert (group["1"][...] == 50).all()


class AsyncOnly(WrapperStore):
    """A store without synchronous calls, as remote ones are."""

    _supports_sync_io = False

    async def get(self, key, prototype, byte_range=None):
        if is_chunk_of("0", key) and isinstance(byte_range, RangeByteRequest):
            raise slow_down()
        return await super().get(key, prototype, byte_range)

    async def get_ranges(self, key, byte_ranges, *, prototype, **limits):
        async for group in Store.get_ranges(self, key, byte_ranges, prototype=prototype):
            yield group


@pytest.mark.parametrize("max_retries", [0, 2])
def test_what_fails_inside_a_group_arrives_as_itself(io_retry, max_retries):
    io_retry(slow(max_retries))
    memory = MemoryStore()
    make(memory, shards=(8, 8))
    arrays = [zarr.open_array(AsyncOnly(memory), path=path, mode="r+") for path in "01"]
    with pytest.raises(OSError) as error:
        zg.consolidate(arrays, regions=[(slice(0, 1), slice(0, 1))])
    assert (type(error.value), str(error.value)) == (OSError, "503 Slow Down")
    assert not [key for key in memory._store_dict if is_chunk_of("1", key)]


def test_a_rebuild_through_the_wrapper_writes_the_same_bytes(io_retry):
    stores = MemoryStore(), MemoryStore()
    for store, policy in zip(stores, (RetryConfig(), slow()), strict=True):
        io_retry(policy)
        group = make(store, shards=(8, 8))
        group["0"][...] = np.arange(64).reshape(8, 8)
        zg.consolidate([group["0"], group["1"]])
    chunks = [{key: value for key, value in content(store).items() if "/c/" in key} for store in stores]
    assert chunks[0] == chunks[1]
