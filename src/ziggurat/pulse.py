"""What running tasks of a cluster tell their caller, and how they hear that they are to stop."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from threading import Thread
from typing import Any

from ziggurat.cascade import Record
from ziggurat.errors import StoppedError

__all__ = ["listening", "pulse"]


def pulse(every_s: float) -> Callable[[Record], None]:
    """Return what the task that runs in this thread of a worker calls before each block that it writes.

    It tells the caller how far the task is, at most once in `every_s` seconds, and raises once the client has taken
    the task back: distributed itself lets a running task go on.
    """
    from distributed import get_worker

    worker = get_worker()
    key: Any = worker.get_current_task()  # (name, *index), as `graph` makes them
    state = worker.state.tasks.get(key)
    topic = _topic(key[0].rpartition("-")[2])
    told_s = time.monotonic()

    def beat(so_far: Record) -> None:
        nonlocal told_s
        if getattr(state, "state", "") == "cancelled":
            raise StoppedError("the call that this task belongs to was stopped")
        if time.monotonic() - told_s >= every_s:
            told_s = time.monotonic()
            worker.log_event(topic, _packed(so_far))

    return beat


@contextmanager
def listening(client: Any, token: str, hear: Callable[[Record], None]) -> Iterator[Callable[[], None]]:
    """Let `hear` have what running tasks tell, in a thread of its own; yield what raises the error that it raised.

    Not in the client's thread: that must not wait for what a caller does there.
    """
    told: SimpleQueue[tuple[float, Any] | None] = SimpleQueue()
    errors: list[BaseException] = []

    def listen() -> None:
        while (message := told.get()) is not None:
            try:
                hear(_unpacked(message[1]))
            except BaseException as e:
                errors.append(e)
                return

    def check() -> None:
        if errors:
            raise errors[0]

    client.subscribe_topic(_topic(token), told.put)
    thread = Thread(target=listen, name="ziggurat-progress", daemon=True)
    thread.start()
    try:
        yield check
    finally:
        with suppress(Exception):  # the scheduler is gone
            client.unsubscribe_topic(_topic(token))
        told.put(None)
        thread.join()
    check()


def _topic(token: str) -> str:
    return f"ziggurat-{token}"


def _packed(record: Record) -> list[Any]:
    """Return what of a record is told on the way, as msgpack takes it."""
    levels = [list(map(int, level)) for level in record.levels]
    return [levels, record.bytes_read, record.started_s, record.finished_s, record.stage, list(map(int, record.index))]


def _unpacked(message: Any) -> Record:
    levels, bytes_read, started_s, finished_s, stage, index = message
    return Record(tuple(map(tuple, levels)), bytes_read, started_s, finished_s, stage=stage, index=tuple(index))
