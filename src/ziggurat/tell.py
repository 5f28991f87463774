"""Adds up what the tasks of a run report, and tells callers and the log how far it is."""

import logging
import time
from collections.abc import Callable
from threading import Lock

from ziggurat.cascade import Record
from ziggurat.events import Finished, Progress, Started, TaskDone, UnitsDone
from ziggurat.planning import Plan
from ziggurat.report import Report
from ziggurat.verification import Verification

__all__ = ["Tell"]

logger = logging.getLogger("ziggurat.job")


type _Key = tuple[int, tuple[int, ...]]


class Tell:
    """Adds up the records of tasks, finished or not, and tells how far the work is; from one thread at a time."""

    def __init__(self, plan: Plan, show: Callable[[Progress], None]) -> None:
        self.plan = plan
        self.show = show
        self.note: Callable[[Record], None] | None = None
        self.started_s = time.monotonic()
        self.level = min(1, len(plan.levels) - 1)
        self.n_units_total = plan.n_units
        self.n_units = self.n_bytes = self.n_tasks = 0
        self._lock = Lock()
        self._running: dict[_Key, Record] = {}
        self._finished: set[_Key] = set()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the work began."""
        return time.monotonic() - self.started_s

    def start(self) -> None:
        """Begin, and count the time from now on."""
        self.started_s = time.monotonic()
        logger.info("%s: %s on %s, %d tasks", self.plan.where, self.plan.method, self.plan.mode, self.plan.n_tasks)
        self.show(Started(*self._progress(), self.plan.n_tasks))

    def so_far(self, record: Record) -> None:
        """Tell of the units that a task has written since it was last heard of."""
        key = (record.stage, record.index)
        with self._lock:
            before = self._running.get(key)
            # What was heard of a task that a dead worker had begun is not counted twice; messages may come late.
            if key not in self._finished and (before is None or _n_bytes(before) < _n_bytes(record)):
                self._running[key] = record
                self._add(record, before)

    def done(self, record: Record) -> None:
        """Tell of one finished task, and of the units of which it was not told yet."""
        key = (record.stage, record.index)
        if self.note is not None:
            self.note(record)
        with self._lock:
            self._finished.add(key)
            self._add(record, self._running.pop(key, None))
            self.n_tasks += 1
            self.level = record.levels[0][0]
            task_s = record.finished_s - record.started_s
            logger.debug("%s: task %d of level %d took %.3f s", self.plan.where, self.n_tasks, self.level, task_s)
            self.show(TaskDone(*self._progress(), self.n_tasks, self.plan.n_tasks, task_s, record.n_retries))

    def _add(self, record: Record, before: Record | None) -> None:
        self.n_bytes += record.bytes_read - (before.bytes_read if before else 0)
        told = {k: (n_units, n_bytes) for k, n_units, n_bytes in before.levels} if before else {}
        for k, n_units, n_bytes in record.levels:
            units_before, bytes_before = told.get(k, (0, 0))
            self.n_bytes += n_bytes - bytes_before
            if n_units > units_before:
                self.level = k
                self.n_units += n_units - units_before
                self.show(UnitsDone(*self._progress(), n_units - units_before))

    def finish(self, result: Report | Verification) -> None:
        """Tell that all is done."""
        logger.info("%s: done: %d units in %.2f s", self.plan.where, self.n_units, self.elapsed_s)
        self.show(Finished(*self._progress(), result))

    def how_far(self) -> str:
        """Say what is done, and how to do the rest."""
        rest = "resume=True does the rest" if self.note else "run it again"
        units = f"{self.n_units} of {self.plan.n_units} write units"
        return f"{self.plan.where}: {units} were done after {self.elapsed_s:.1f} s; {rest}"

    def _progress(self) -> tuple[int, int, int, int, float]:
        return self.level + self.plan.base, self.n_units, self.n_units_total, self.n_bytes, self.elapsed_s


def _n_bytes(record: Record) -> int:
    return record.bytes_read + sum(n_bytes for _, _, n_bytes in record.levels)
