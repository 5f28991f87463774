"""How far a rebuild is: the records that ``progress=`` callables get, the same from every scheduler."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ziggurat.report import Report
    from ziggurat.verification import Verification

__all__ = ["Finished", "OnProgress", "Progress", "Started", "TaskDone", "UnitsDone"]


@dataclass(frozen=True)
class Progress:
    """How far a rebuild is; every event is one.

    Parameters
    ----------
    level
        The finest level that is being written.
    n_units, n_units_total
        Write units done so far and in all, over all levels.
    bytes_done
        Uncompressed bytes that were read and written so far.
    elapsed_s
        Seconds since the start.

    Examples
    --------
    >>> half = Progress(level=1, n_units=8, n_units_total=16, bytes_done=4_000_000, elapsed_s=2.0)
    >>> half.fraction, half.bytes_per_s, half.remaining_s
    (0.5, 2000000.0, 2.0)
    """

    level: int
    n_units: int
    n_units_total: int
    bytes_done: int
    elapsed_s: float

    @property
    def fraction(self) -> float:
        """Share of the write units that are done, 0 to 1."""
        return self.n_units / self.n_units_total if self.n_units_total else 1.0

    @property
    def bytes_per_s(self) -> float:
        """Bytes read and written per second, 0 before time has passed."""
        return self.bytes_done / self.elapsed_s if self.elapsed_s > 0 else 0.0

    @property
    def remaining_s(self) -> float:
        """Seconds left at the pace so far, infinite before a unit is done."""
        return self.elapsed_s * (1 / self.fraction - 1) if self.fraction else math.inf


@dataclass(frozen=True)
class Started(Progress):
    """The work begins: nothing is done yet.

    Parameters
    ----------
    n_tasks
        Tasks that will run.
    """

    n_tasks: int


@dataclass(frozen=True)
class UnitsDone(Progress):
    """Write units of one level were written (or compared, by `verify`).

    Parameters
    ----------
    n_new
        How many, since the last event of this kind.
    """

    n_new: int


@dataclass(frozen=True)
class TaskDone(Progress):
    """A task is finished; the events about its units come before.

    Parameters
    ----------
    n_tasks_done, n_tasks
        Tasks finished so far, and in all.
    task_s
        Seconds that this one took.
    n_retries
        Operations on a store that it tried again.
    """

    n_tasks_done: int
    n_tasks: int
    task_s: float
    n_retries: int


@dataclass(frozen=True)
class Finished(Progress):
    """All is done.

    Parameters
    ----------
    report
        What the call returns.
    """

    report: "Report | Verification"


type OnProgress = Callable[[Progress], None] | bool | None
"""A callable; True for a bar; False for nothing; None for a bar on a terminal, once a run takes over ten seconds."""
