"""A plan together with its arrays: runs it, reports, verifies, and settles the account of what changed."""

import logging
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, cast

from ziggurat import engines
from ziggurat.cascade import Record, Work
from ziggurat.changes import Fingerprints, Journal, forget_marks, locked, task_name
from ziggurat.display import shown
from ziggurat.errors import ReadOnlyError, StoreError, ZigguratError
from ziggurat.events import OnProgress
from ziggurat.graph import Wanted, every, make_delayed
from ziggurat.grid import Shape
from ziggurat.handle import Handle
from ziggurat.inmemory import run_numpy
from ziggurat.planning import Plan, Task
from ziggurat.pyramid import Pyramid
from ziggurat.report import LevelReport, Report, StageReport
from ziggurat.sidecar import sweep
from ziggurat.store import can_bookkeep, check_writable
from ziggurat.tell import Tell
from ziggurat.verification import LevelCheck, Verification
from ziggurat.virtual import Virtual

if TYPE_CHECKING:
    from dask.delayed import Delayed

__all__ = ["Changes", "Job", "fingerprints"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class Changes:
    """What a successful run settles: how many touched boxes, which marks, and the state of level 0 that it honoured."""

    n_touched: int = 0
    marks: tuple[str, ...] = ()
    seen: Fingerprints | None = None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Job(Plan):
    """A plan that can be run."""

    pyramid: Pyramid = field(repr=False)
    changes: Changes = field(default=Changes(), repr=False)

    def run(
        self,
        progress: OnProgress = None,
        *,
        resume: bool = False,
        lock_timeout_s: float = 600.0,
        client: Any = None,
    ) -> Report:
        """Do the work, and return what was done.

        Parameters
        ----------
        progress : callable or bool, optional
            Called with events, each a `Progress`; True for a bar, False for nothing.
        resume : bool
            Do only what an interrupted run of the same plan left undone.
        lock_timeout_s : float
            Seconds to wait for another call on the same local pyramid.
        client : distributed.Client, optional
            What runs the tasks of mode ``"dask"``; whatever scheduler is active by default.

        Raises
        ------
        ReadOnlyError, StoreError, MemoryLimitError
            Before anything is written, when a level cannot be written, another plan is to be resumed, or the workers
            have too little memory.
        LockError
            When another call holds the pyramid for too long.
        """
        work = self._work("write")
        if not self.n_tasks:
            self._settle()
            return self.report([])
        scheduler = self._scheduler(work, client)
        with self._told(progress) as tell, locked(self.pyramid.home, lock_timeout_s):
            seen = self.changes.seen or (None if self.is_regional else fingerprints(self.pyramid))
            records = self._run_journaled(work, scheduler, tell, resume)
            self._settle(seen)
            report = self.report(records, tell.elapsed_s)
            tell.finish(report)
        return report

    def verify(
        self, progress: OnProgress, sample: float | None, repair: bool, lock_timeout_s: float, client: Any = None
    ) -> Verification:
        """Recompute and compare, and rewrite what differs if asked to; see `ziggurat.verify`."""
        wanted = every if sample is None else self._sampled(sample)
        work = self._work("repair" if repair else "compare")
        scheduler = self._scheduler(work, client)
        with self._told(progress) as tell, locked(self.pyramid.home, lock_timeout_s) if repair else nullcontext():
            verification = self._verification(self._execute(work, scheduler, tell, wanted), repair)
            tell.finish(verification)
        return verification

    def to_delayed(self) -> "Delayed":
        """Return the work as a dask collection that computes to the report; nothing runs before that.

        Raises
        ------
        ReadOnlyError, StoreError
            When a level cannot be written.
        """
        return make_delayed(self._work("write"), self, self.report)

    def _scheduler(self, work: Work, client: Any) -> engines.Scheduler | None:
        return engines.find_scheduler(work, self, client) if self.mode == "dask" and self.stages else None

    def _run_journaled(self, work: Work, scheduler: engines.Scheduler | None, tell: Tell, resume: bool) -> list[Record]:
        home = self.pyramid.home
        if self.mode != "dask" or self.n_tasks < 2 or not can_bookkeep(home):
            return self._execute(work, scheduler, tell, every)
        journal = Journal(home, self)
        done = journal.resume() if resume else journal.start()
        if resume:
            for array in self.pyramid.arrays[1:]:
                sweep(array)
        tell.note = journal.note
        try:
            records = self._execute(work, scheduler, tell, lambda task: task_name(task) not in done)
        except BaseException:
            # What stopped the work is what callers look for, not that the store cannot be written any more.
            with suppress(Exception):
                journal.flush()
            raise
        journal.clear()
        return records

    def _execute(self, work: Work, scheduler: engines.Scheduler | None, tell: Tell, wanted: Wanted) -> list[Record]:
        tell.start()
        if not self.stages:
            return run_numpy(work, self.writes, tell) if self.steps and self.writes else []
        if scheduler is None:
            return engines.run_here(work, self, tell, wanted)
        return engines.run_dask(work, self, scheduler, tell, wanted)

    @contextmanager
    def _told(self, progress: OnProgress) -> Iterator[Tell]:
        """Tell callers and the log what happens; an error that stops the work says how far it came."""
        with shown(progress) as show:
            tell = Tell(self, show)
            try:
                yield tell
            except BaseException as error:
                if tell.n_units or not isinstance(error, ZigguratError):
                    error.add_note(tell.how_far())
                    logger.info("stopped by %s: %s", type(error).__name__, tell.how_far())
                raise

    def _work(self, act: Literal["write", "compare", "repair"]) -> Work:
        targets = self.pyramid.arrays[1:]
        if act != "compare":
            for array in targets:
                if array.read_only:
                    raise ReadOnlyError(
                        f"level {array.path!r} of {self.where} is opened read-only: open it for writing"
                    )
            check_writable(targets)
        return Work(
            self.steps, self.stages, tuple(map(self._handle, self.pyramid.arrays)), act, n_bytes=self.bytes_read
        )

    def _handle(self, array: Any) -> Handle:
        return cast("Handle", array) if isinstance(array, Virtual) else Handle(array, self.pyramid.settings)

    def _settle(self, seen: Fingerprints | None = None) -> None:
        """Take off the list what this run honoured, and nothing that came after it was planned."""
        del self.pyramid.touched[: self.changes.n_touched]
        forget_marks(self.pyramid.home, self.changes.marks)
        if seen is not None:
            with suppress(PermissionError):
                seen.save(self.pyramid[0])

    def _sampled(self, share: float) -> Callable[[Task], bool]:
        chosen: set[str] = set()
        for i in range(len(self.stages)):
            names = [task_name(t) for t in self.tasks(i)]
            chosen.update(random.sample(names, max(1, round(share * len(names)))))
        return lambda task: task_name(task) in chosen

    def report(self, records: Sequence[Record], elapsed_s: float | None = None) -> Report:
        """Make the report of what the tasks' `records` say was done."""
        write_s = dict.fromkeys(range(1, len(self.levels)), 0.0)
        for record in records:
            for (k, _, _), seconds in zip(record.levels, record.write_s, strict=True):
                write_s[k] += seconds
        asked = _requests(records)
        levels = tuple(
            LevelReport(level.name, level.shape, n, level.n_units, size, write_s[k], *asked.get(k, (0, 0)))
            for k, (n, size) in self._counts(records).items()
            for level in [self.levels[k]]
        )
        numbers = sorted({r.stage for r in records})
        peaks = {i: self.stages[i].peak_bytes if self.stages else self.peak_bytes for i in numbers}
        stages = tuple(_stage_report([r for r in records if r.stage == i], self.base, peaks[i]) for i in numbers)
        read = sum(r.bytes_read for r in records)
        about = (self.where, self.method, self.mode, self.reason)
        elapsed_s = _elapsed_s(records) if elapsed_s is None else elapsed_s
        return Report(*about, levels, self.n_tasks, read, self.peak_bytes, elapsed_s, stages)

    def _verification(self, records: Sequence[Record], repaired: bool) -> Verification:
        stale: dict[int, list[Shape]] = {k: [] for k in range(1, len(self.levels))}
        for k, box in sorted(chain.from_iterable(r.stale for r in records)):
            stale[k].append(self.levels[k].index_of(box))
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


def _elapsed_s(records: Sequence[Record]) -> float:
    return max(r.finished_s for r in records) - min(r.started_s for r in records) if records else 0.0


def _requests(records: Sequence[Record]) -> dict[int, tuple[int, int]]:
    """Return how many objects of each level were read, and set or deleted."""
    found: dict[int, tuple[int, int]] = {}
    for k, n_gets, n_sets in chain.from_iterable(r.requests for r in records):
        gets, sets = found.get(k, (0, 0))
        found[k] = gets + n_gets, sets + n_sets
    return found


def _stage_report(records: Sequence[Record], base: int, peak_bytes: int) -> StageReport:
    return StageReport(
        records[0].levels[0][0] + base,
        records[0].levels[-1][0] + base,
        len(records),
        sum(r.bytes_read for r in records),
        sum(size for r in records for _, _, size in r.levels),
        _elapsed_s(records),
        sum(r.finished_s - r.started_s for r in records),
        sum(r.n_retries for r in records),
        sum(n for r in records for _, n, _ in r.requests),
        sum(n for r in records for _, _, n in r.requests),
        peak_bytes,
    )


def fingerprints(pyramid: Pyramid) -> Fingerprints | None:
    """Take the fingerprints of level 0, where its store tells them and can keep them.

    What lies in memory is hashed for want of times: only for who asks for what changed.
    """
    if pyramid.home is not pyramid[0] or not can_bookkeep(pyramid[0]):
        return None
    with suppress(StoreError):
        return Fingerprints.take(pyramid[0])
    return None
