"""What a verification found: plain records that print themselves."""

from dataclasses import asdict, dataclass
from typing import Any

from ziggurat.text import align, html_table

__all__ = ["LevelCheck", "Verification"]


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


@dataclass(frozen=True, repr=False)
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
        1  16 of 16      1    0.3
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

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Return the answer as a table for notebooks; it takes its colours from the page, light or dark."""
        return html_table(self._heading(), self._rows())

    def _heading(self) -> str:
        units = "1 write unit" if self.n_stale == 1 else f"{self.n_stale or 'no'} write units"
        verb = "was" if self.n_stale == 1 else "were"
        state = f"{verb} stale and {verb} repaired" if self.repaired and self.n_stale else "is stale"
        if state == "is stale" and self.n_stale != 1:
            state = "are stale"
        return f"{self.where}: {units} {state} ({self.method})"

    def _rows(self) -> list[tuple[str, ...]]:
        return [("level", "compared", "stale", "which"), *map(_check_row, self.levels)]


def _check_row(level: LevelCheck) -> tuple[str, ...]:
    which = ", ".join(".".join(map(str, index)) for index in level.stale[:4]) + (
        ", ..." if len(level.stale) > 4 else ""
    )
    return level.name, f"{level.n_units:,} of {level.n_units_total:,}", f"{len(level.stale):,}", which or "-"
