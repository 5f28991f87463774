"""What a rebuild did: plain records that print themselves."""

from dataclasses import asdict, dataclass
from html import escape
from typing import Any

from ziggurat.events import Progress
from ziggurat.text import align, format_bytes, format_shape, html_table

__all__ = ["LevelReport", "Progress", "Report", "StageReport"]


@dataclass(frozen=True)
class LevelReport:
    """What was written to one level.

    Parameters
    ----------
    name
        Path of the level in its pyramid.
    shape
        Shape of the level, in pixels.
    n_units, n_units_total
        Write units that were written, and that the level has.
    bytes_written
        Uncompressed bytes of the pixels that were written.
    write_s
        Seconds that encoding and storing them took, added up over tasks.
    n_gets, n_sets
        Objects (or parts of them) of this level that tasks asked its store for, and that they set or deleted; what
        was tried again counts once.
    """

    name: str
    shape: tuple[int, ...]
    n_units: int
    n_units_total: int
    bytes_written: int
    write_s: float = 0.0
    n_gets: int = 0
    n_sets: int = 0

    @property
    def bytes_per_s(self) -> float:
        """Bytes encoded and stored per second of one task's time, 0 where no time has passed."""
        return self.bytes_written / self.write_s if self.write_s > 0 else 0.0


@dataclass(frozen=True)
class StageReport:
    """What one pass over a source did.

    Parameters
    ----------
    first, last
        Numbers of the finest and the coarsest level that it built.
    n_tasks
        Tasks that ran.
    bytes_read, bytes_written
        Uncompressed bytes.
    elapsed_s
        Seconds from the start of its first task to the end of its last, by the clocks of the workers.
    task_s
        Seconds that tasks took, added up.
    n_retries
        Operations on a store that were tried again; not those in threads of zarr's own, which are only logged.
    n_gets, n_sets
        Objects (or parts of them) that its tasks asked stores for, the source's among them, and that they set or
        deleted. Of two passes that overlap in time, a process may count a few to the other.
    peak_bytes
        What the plan promised for it: live bytes per task, at most.
    """

    first: int
    last: int
    n_tasks: int
    bytes_read: int
    bytes_written: int
    elapsed_s: float
    task_s: float
    n_retries: int
    n_gets: int = 0
    n_sets: int = 0
    peak_bytes: int = 0

    @property
    def bytes_per_s(self) -> float:
        """Bytes read and written per second, 0 where no time has passed."""
        return (self.bytes_read + self.bytes_written) / self.elapsed_s if self.elapsed_s > 0 else 0.0


@dataclass(frozen=True, repr=False)
class Report:
    """What one rebuild did.

    Parameters
    ----------
    where
        The pyramid, as it was named by the caller.
    method, mode
        What was used, never ``"auto"``.
    reason
        Why that mode.
    levels
        The coarser levels, finest first.
    n_tasks
        Independent pieces of work.
    bytes_read
        Uncompressed bytes of the pixels that were read.
    peak_bytes
        What the plan promised: live bytes per task, at most.
    elapsed_s
        Wall time in seconds.
    stages
        What each pass did, in order.

    Examples
    --------
    >>> level = LevelReport("1", (256, 256), n_units=4, n_units_total=16, bytes_written=32_768)
    >>> report = Report("cells.zarr", "mean", "numpy", "0.1 MiB to read", (level,), 1, 131_072, 400_000, 0.25)
    >>> report.n_units, report.bytes_written
    (4, 32768)
    >>> print(report)
    cells.zarr: mean on numpy (0.1 MiB to read)
    level      shape  units written   written
        1  256 x 256        4 of 16  32.0 KiB
    1 task, read 128.0 KiB, wrote 32.0 KiB in 0.25 s, at most 390.6 KiB per task
    """

    where: str
    method: str
    mode: str
    reason: str
    levels: tuple[LevelReport, ...]
    n_tasks: int
    bytes_read: int
    peak_bytes: int
    elapsed_s: float
    stages: tuple[StageReport, ...] = ()

    @property
    def n_units(self) -> int:
        """Write units that were written, over all levels."""
        return sum(level.n_units for level in self.levels)

    @property
    def bytes_written(self) -> int:
        """Uncompressed bytes of the pixels that were written, over all levels."""
        return sum(level.bytes_written for level in self.levels)

    @property
    def n_retries(self) -> int:
        """Operations on a store that were tried again."""
        return sum(stage.n_retries for stage in self.stages)

    @property
    def n_gets(self) -> int:
        """Objects, or parts of them, that tasks asked stores for, over all passes."""
        return sum(stage.n_gets for stage in self.stages)

    @property
    def n_sets(self) -> int:
        """Objects that tasks set or deleted, over all passes."""
        return sum(stage.n_sets for stage in self.stages)

    @property
    def bytes_per_s(self) -> float:
        """Bytes read and written per second, 0 where no time has passed."""
        return (self.bytes_read + self.bytes_written) / self.elapsed_s if self.elapsed_s > 0 else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain values, fit for JSON."""
        names = ("n_units", "bytes_written", "n_retries", "n_gets", "n_sets", "bytes_per_s")
        levels, stages = (
            [asdict(part) | {"bytes_per_s": part.bytes_per_s} for part in parts] for parts in (self.levels, self.stages)
        )
        return asdict(self) | {"levels": levels, "stages": stages} | {name: getattr(self, name) for name in names}

    def __str__(self) -> str:
        """Return the report as plain-text tables."""
        stages = align(self._stage_rows()) if len(self.stages) > 1 else []
        return "\n".join([self._heading(), *align(self._rows()), *stages, self._totals()])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Return the report as tables for notebooks; they take their colours from the page, light or dark."""
        stages = html_table("", self._stage_rows()) if len(self.stages) > 1 else ""
        times = ["time to write", *(f"{level.write_s:.2f} s" for level in self.levels)]
        levels = [(*row, time) for row, time in zip(self._rows(), times, strict=True)]
        return f"{html_table(self._heading(), levels)}{stages}<p>{escape(self._totals())}</p>"

    def _heading(self) -> str:
        return f"{self.where}: {self.method} on {self.mode} ({self.reason})"

    def _rows(self) -> list[tuple[str, ...]]:
        head = ("level", "shape", "units written", "written")
        return [head, *(_row(level) for level in self.levels)]

    def _stage_rows(self) -> list[tuple[str, ...]]:
        head = ("levels", "tasks", "time", "speed", "gets", "sets", "retries")
        return [head, *map(_stage_row, self.stages)]

    def _totals(self) -> str:
        tasks = "1 task" if self.n_tasks == 1 else f"{self.n_tasks:,} tasks"
        moved = f"read {format_bytes(self.bytes_read)}, wrote {format_bytes(self.bytes_written)}"
        requests = f" with {self.n_gets + self.n_sets:,} requests" if self.n_gets + self.n_sets else ""
        retries = f", {self.n_retries:,} retries" if self.n_retries else ""
        time = f"in {self.elapsed_s:.2f} s{requests}"
        return f"{tasks}, {moved} {time}, at most {format_bytes(self.peak_bytes)} per task{retries}"


def _row(level: LevelReport) -> tuple[str, ...]:
    units = f"{level.n_units:,} of {level.n_units_total:,}"
    return level.name, format_shape(level.shape), units, format_bytes(level.bytes_written)


def _stage_row(stage: StageReport) -> tuple[str, ...]:
    levels = f"{stage.first}" if stage.first == stage.last else f"{stage.first}..{stage.last}"
    speed = f"{format_bytes(stage.bytes_per_s)}/s"
    requests = (f"{stage.n_gets:,}", f"{stage.n_sets:,}", f"{stage.n_retries:,}")
    return levels, f"{stage.n_tasks:,}", f"{stage.elapsed_s:.2f} s", speed, *requests
