"""What a rebuild did, and how far it is: plain records that print themselves."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import Any

from ziggurat.text import align, format_bytes, format_shape

__all__ = ["LevelCheck", "LevelReport", "Progress", "Report", "Verification"]


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
    """

    name: str
    shape: tuple[int, ...]
    n_units: int
    n_units_total: int
    bytes_written: int


@dataclass(frozen=True)
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

    @property
    def n_units(self) -> int:
        """Write units that were written, over all levels."""
        return sum(level.n_units for level in self.levels)

    @property
    def bytes_written(self) -> int:
        """Uncompressed bytes of the pixels that were written, over all levels."""
        return sum(level.bytes_written for level in self.levels)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain values, fit for JSON."""
        return asdict(self) | {"n_units": self.n_units, "bytes_written": self.bytes_written}

    def __str__(self) -> str:
        """Return the report as a plain-text table."""
        return "\n".join([self._heading(), *align(self._rows()), self._totals()])

    def _repr_html_(self) -> str:
        """Return the report as a table for notebooks; it takes its colours from the page, light or dark."""
        return f"{_html_table(self._heading(), self._rows())}<p>{escape(self._totals())}</p>"

    def _heading(self) -> str:
        return f"{self.where}: {self.method} on {self.mode} ({self.reason})"

    def _rows(self) -> list[tuple[str, ...]]:
        head = ("level", "shape", "units written", "written")
        return [head, *(_row(level) for level in self.levels)]

    def _totals(self) -> str:
        tasks = "1 task" if self.n_tasks == 1 else f"{self.n_tasks:,} tasks"
        moved = f"read {format_bytes(self.bytes_read)}, wrote {format_bytes(self.bytes_written)}"
        return f"{tasks}, {moved} in {self.elapsed_s:.2f} s, at most {format_bytes(self.peak_bytes)} per task"


@dataclass(frozen=True)
class LevelCheck:
    """What was compared in one level.

    Parameters
    ----------
    name
        Path of the level in its pyramid.
    n_units, n_units_total
        Write units that were compared, and that the level has.
    bytes_compared
        Uncompressed bytes of the pixels that were compared.
    stale
        Grid index of each write unit that differs from what its source gives.
    """

    name: str
    n_units: int
    n_units_total: int
    bytes_compared: int
    stale: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Verification:
    """Which write units of a pyramid are stale.

    Parameters
    ----------
    where, method
        The pyramid, and how it was recomputed.
    levels
        The coarser levels, finest first.
    repaired
        Whether the stale units were rewritten.

    Examples
    --------
    >>> check = Verification("cells.zarr", "mean", (LevelCheck("1", 16, 16, 32_768, ((0, 3),)),), repaired=False)
    >>> check.is_stale, check.n_stale, check.bytes_compared
    (True, 1, 32768)
    >>> print(check)
    cells.zarr: 1 write unit is stale (mean)
    level  compared  stale  which
        1  16 of 16      1   0.3
    """

    where: str
    method: str
    levels: tuple[LevelCheck, ...]
    repaired: bool

    @property
    def n_stale(self) -> int:
        """Write units that differ from what their sources give."""
        return sum(len(level.stale) for level in self.levels)

    @property
    def is_stale(self) -> bool:
        """Whether the pyramid is stale now: something differs and was not repaired."""
        return self.n_stale > 0 and not self.repaired

    @property
    def bytes_compared(self) -> int:
        """Uncompressed bytes of the pixels that were compared, over all levels."""
        return sum(level.bytes_compared for level in self.levels)

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as plain values, fit for JSON."""
        return asdict(self) | {
            "n_stale": self.n_stale,
            "is_stale": self.is_stale,
            "bytes_compared": self.bytes_compared,
        }

    def __str__(self) -> str:
        """Return the answer as a plain-text table."""
        return "\n".join([self._heading(), *align(self._rows())])

    def _repr_html_(self) -> str:
        """Return the answer as a table for notebooks; it takes its colours from the page, light or dark."""
        return _html_table(self._heading(), self._rows())

    def _heading(self) -> str:
        units = "1 write unit" if self.n_stale == 1 else f"{self.n_stale or 'no'} write units"
        verb = "was" if self.n_stale == 1 else "were"
        state = f"{verb} stale and {verb} repaired" if self.repaired and self.n_stale else "is stale"
        if state == "is stale" and self.n_stale != 1:
            state = "are stale"
        return f"{self.where}: {units} {state} ({self.method})"

    def _rows(self) -> list[tuple[str, ...]]:
        return [("level", "compared", "stale", "which"), *map(_check_row, self.levels)]


@dataclass(frozen=True)
class Progress:
    """How far a rebuild is; handed to ``progress=`` callables.

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


def _row(level: LevelReport) -> tuple[str, ...]:
    units = f"{level.n_units:,} of {level.n_units_total:,}"
    return level.name, format_shape(level.shape), units, format_bytes(level.bytes_written)


def _check_row(level: LevelCheck) -> tuple[str, ...]:
    which = ", ".join(".".join(map(str, index)) for index in level.stale[:4]) + (
        ", ..." if len(level.stale) > 4 else ""
    )
    return level.name, f"{level.n_units:,} of {level.n_units_total:,}", f"{len(level.stale):,}", which or "-"


def _html_table(heading: str, rows: Sequence[Sequence[str]]) -> str:
    head, *body = rows
    cells = [_html_row(head, "th"), *(_html_row(row, "td") for row in body)]
    caption = f'<caption style="color:inherit">{escape(heading)}</caption>'
    return f'<table style="color:inherit">{caption}{"".join(cells)}</table>'


def _html_row(cells: Iterable[str], tag: str) -> str:
    return "<tr>" + "".join(f'<{tag} style="text-align:right">{escape(cell)}</{tag}>' for cell in cells) + "</tr>"
