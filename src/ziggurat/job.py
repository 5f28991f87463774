"""A plan together with its arrays: runs it, reports, verifies, and settles the account of what changed."""

import random
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Literal

from ziggurat import engines
from ziggurat.cascade import Record, Work
from ziggurat.changes import Fingerprints, Journal, forget_marks, locked, task_name
from ziggurat.errors import ReadOnlyError, StoreError
from ziggurat.grid import Shape
from ziggurat.planning import Plan, Task
from ziggurat.pyramid import Pyramid
from ziggurat.report import LevelCheck, LevelReport, Progress, Report, Verification
from ziggurat.sidecar import sweep
from ziggurat.store import Handle, can_bookkeep, check_writable

if TYPE_CHECKING:
    from dask.delayed import Delayed

__all__ = ["Changes", "Job"]

type OnProgress = Callable[[Progress], None] | None


@dataclass(frozen=True, slots=True, eq=False)
class Changes:
    """What a successful run settles: how many touched boxes, which marks, and the state of level 0 that it honoured."""

    n_touched: int = 0
    marks: tuple[str, ...] = ()
    seen: Fingerprints | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job(Plan):
    """A plan that can be run."""

    pyramid: Pyramid = field(repr=False)
    changes: Changes = field(default=Changes(), repr=False)

    def run(self, progress: OnProgress = None, *, resume: bool = False, lock_timeout_s: float = 600.0) -> Report:
        """Do the work, and return what was done.

        Parameters
        ----------
        progress : callable, optional
            Called with a `Progress` after each task.
        resume : bool
            Do only what an interrupted run of the same plan left undone.
        lock_timeout_s : float
            Seconds to wait for another call on the same local pyramid.

        Raises
        ------
        ReadOnlyError, StoreError
            Before anything is written, when a level cannot be written, or another plan is to be resumed.
        LockError
            When another call holds the pyramid for too long.
        """
        work = self._work("write")
        if not self.n_tasks:
            self._settle()
            return self.report([])
        with locked(self.pyramid[0], lock_timeout_s):
            seen = self.changes.seen or (None if self.is_regional else _fingerprints(self.pyramid))
            records = self._run_journaled(work, progress, resume)
            self._settle(seen)
        return self.report(records)

    def verify(self, progress: OnProgress, sample: float | None, repair: bool, lock_timeout_s: float) -> Verification:
        """Recompute and compare, and rewrite what differs if asked to; see `ziggurat.verify`."""
        wanted = _all if sample is None else self._sampled(sample)
        work = self._work("repair" if repair else "compare")
        with locked(self.pyramid[0], lock_timeout_s) if repair else nullcontext():
            records = self._execute(work, progress, wanted)
        return self._verification(records, repair)

    def to_delayed(self) -> "Delayed":
        """Return the work as a dask collection that computes to the report; nothing runs before that.

        Raises
        ------
        ReadOnlyError, StoreError
            When a level cannot be written.
        """
        return engines.delayed(self._work("write"), self, self.report)

    def _run_journaled(self, work: Work, progress: OnProgress, resume: bool) -> list[Record]:
        source = self.pyramid[0]
        if self.mode != "dask" or self.n_tasks < 2 or not can_bookkeep(source):
            return self._execute(work, progress, _all)
        journal = Journal(source, self)
        done = journal.resume() if resume else journal.start()
        if done:
            for array in self.pyramid.arrays[1:]:
                sweep(array)
        records = self._execute(replace(work, note=journal.note), progress, lambda task: task_name(task) not in done)
        journal.clear()
        return records

    def _execute(self, work: Work, progress: OnProgress, wanted: Callable[[Task], bool]) -> list[Record]:
        notify = _Notify(self, progress, time.time())
        if not self.stages:
            return engines.run_numpy(work, self.writes, notify) if self.steps and self.writes else []
        run = engines.run_dask if self.mode == "dask" else engines.run_here
        return run(work, self, notify, wanted)

    def _work(self, act: Literal["write", "compare", "repair"]) -> Work:
        targets = self.pyramid.arrays[1:]
        if act != "compare":
            for array in targets:
                if array.read_only:
                    raise ReadOnlyError(
                        f"level {array.path!r} of {self.where} is opened read-only: open it for writing"
                    )
            check_writable(targets)
        return Work(self.steps, self.stages, tuple(Handle(a, self.pyramid.settings) for a in self.pyramid.arrays), act)

    def _settle(self, seen: Fingerprints | None = None) -> None:
        """Take off the list what this run honoured, and nothing that came after it was planned."""
        del self.pyramid.touched[: self.changes.n_touched]
        forget_marks(self.pyramid[0], self.changes.marks)
        if seen is not None:
            with suppress(PermissionError):
                seen.save(self.pyramid[0])

    def _sampled(self, share: float) -> Callable[[Task], bool]:
        chosen: set[str] = set()
        for i in range(len(self.stages)):
            names = [task_name(t) for t in self.tasks(i)]
            chosen.update(random.sample(names, max(1, round(share * len(names)))))
        return lambda task: task_name(task) in chosen

    def report(self, records: Sequence[Record]) -> Report:
        """Make the report of what the tasks' `records` say was done."""
        levels = tuple(
            LevelReport(self.levels[k].name, self.levels[k].shape, n, self.levels[k].n_units, size)
            for k, (n, size) in self._counts(records).items()
        )
        read = sum(r.bytes_read for r in records)
        elapsed_s = max(r.finished_s for r in records) - min(r.started_s for r in records) if records else 0.0
        about = (self.where, self.method, self.mode, self.reason)
        return Report(*about, levels, self.n_tasks, read, self.peak_bytes, elapsed_s)

    def _verification(self, records: Sequence[Record], repaired: bool) -> Verification:
        stale: dict[int, list[Shape]] = {k: [] for k in range(1, len(self.levels))}
        for k, box in sorted(chain.from_iterable(r.stale for r in records)):
            stale[k].append(tuple(start // u for (start, _), u in zip(box, self.levels[k].unit, strict=True)))
        levels = tuple(
            LevelCheck(self.levels[k].name, n, self.levels[k].n_units, size, tuple(stale[k]))
            for k, (n, size) in self._counts(records).items()
        )
        return Verification(self.where, self.method, levels, repaired)

    def _counts(self, records: Sequence[Record]) -> dict[int, list[int]]:
        """Return write units and bytes of each coarser level that the tasks finished."""
        done = {k: [0, 0] for k in range(1, len(self.levels))}
        for k, n_units, n_bytes in chain.from_iterable(r.levels for r in records):
            done[k][0] += n_units
            done[k][1] += n_bytes
        return done


def _all(task: Task) -> bool:
    return True


def _fingerprints(pyramid: Pyramid) -> Fingerprints | None:
    """Take the fingerprints of level 0, where its store tells them and can keep them.

    What lies in memory is hashed for want of times: only for who asks for what changed.
    """
    if not can_bookkeep(pyramid[0]):
        return None
    with suppress(StoreError):
        return Fingerprints.take(pyramid[0])
    return None


class _Notify:
    """Adds up the records of finished tasks and tells how far the work is."""

    def __init__(self, plan: Plan, progress: Callable[[Progress], None] | None, start: float) -> None:
        self.plan = plan
        self.progress = progress
        self.start = start
        self.n_units = 0
        self.n_bytes = 0

    def __call__(self, record: Record) -> None:
        self.n_units += sum(n for _, n, _ in record.levels)
        self.n_bytes += record.bytes_read + sum(size for _, _, size in record.levels)
        if self.progress is not None:
            level = min(k for k, _, _ in record.levels)
            elapsed = time.time() - self.start
            self.progress(Progress(level, self.n_units, self.plan.n_units, self.n_bytes, elapsed))
