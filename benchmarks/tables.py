"""Rows of a record as a table: medians, how many times ours, and how far the repeats lie apart."""

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

OURS = "ours"
NOTHING = "-"
MIB = 2**20

type Row = Mapping[str, Any]

# Name of a quantity in a run: its head in a table, and how it is shown.
QUANTITIES: dict[str, tuple[str, Callable[[float], str]]] = {
    "wall_s": ("wall, s", "{:.3g}".format),
    "cpu_s": ("CPU, s", "{:.3g}".format),
    "growth_bytes": ("growth, MiB", lambda n: f"{n / MIB:.0f}"),
    "written_bytes": ("written, MiB", lambda n: f"{n / MIB:.0f}"),
    "source_bytes": ("source, MiB", lambda n: f"{n / MIB:.0f}"),
    "import_s": ("import, s", "{:.3g}".format),
    "call_s": ("call, s", "{:.3g}".format),
    "graph_s": ("graph, s", "{:.3g}".format),
    "submit_s": ("submit, s", "{:.3g}".format),
    "task_s": ("in tasks, s", "{:.3g}".format),
    "total_s": ("all, s", "{:.3g}".format),
    "fetching_s": ("fetching, s", "{:.3g}".format),
    "reducing_s": ("reducing, s", "{:.3g}".format),
    "storing_s": ("storing, s", "{:.3g}".format),
    "python_s": ("Python, s", "{:.3g}".format),
    "floor_s": ("floor, s", "{:.3g}".format),
    "floor_storing_s": ("floor, storing, s", "{:.3g}".format),
    "graph_MiB": ("graph, MiB", "{:.2f}".format),
    "peak_MiB": ("peak, MiB", "{:.0f}".format),
    "promised_MiB": ("promised, MiB", "{:.0f}".format),
    "n_levels": ("levels", "{:.0f}".format),
    "n_tasks": ("tasks", "{:.0f}".format),
    "n_stages": ("stages", "{:.0f}".format),
    "n_requests": ("requests", "{:.0f}".format),
    "n_planned": ("planned", "{:.0f}".format),
    "read_bytes": ("read, MiB", lambda n: f"{n / MIB:.3g}"),
    "gb_per_s": ("GB/s", "{:.2f}".format),
    "ms": ("ms", "{:.3g}".format),
    "share": ("growth / source", "{:.2f}".format),
}
MORE = {"pixels": "pixels", "error": "failed with"}


def table(rows: Sequence[Row]) -> str:
    """Make a table in Markdown that lines up on a terminal.

    Rows with the same labels but for `contender` are compared with the first whose contender begins with `OURS`, by
    their first quantity; `times ours` is the median of the ratios in each round.
    """
    labels = list(dict.fromkeys(key for row in rows for key in row["labels"]))
    quantities = list(dict.fromkeys(key for row in rows for run in row["runs"] for key in run))
    more = [key for key in MORE if any(row.get(key) for row in rows)]
    compared = any(_ours(row, rows) for row in rows)
    heads = [QUANTITIES[key][0] if key in QUANTITIES else key.replace("_", " ") for key in quantities]
    head = [*labels, *heads, *(["times ours"] if compared else []), "spread", *(MORE[key] for key in more)]
    body = [
        [
            *(row["labels"].get(key, NOTHING) for key in labels),
            *(_shown(row, key) for key in quantities),
            *([_times(row, rows)] if compared else []),
            _spread(row),
            *(str(row.get(key) or NOTHING).replace("|", "/") for key in more),
        ]
        for row in rows
    ]
    return aligned([head, *body])


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table of a head and a body."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["| " + " | ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) + " |" for row in rows]
    lines.insert(1, "|" + "|".join("-" * (w + 2) for w in widths) + "|")
    return "\n".join(lines)


def median(row: Row, quantity: str) -> float | None:
    """Return the median over the runs that have the quantity."""
    values = [run[quantity] for run in row["runs"] if run.get(quantity) is not None]
    return statistics.median(values) if values else None


def first_quantity(rows: Iterable[Row]) -> str | None:
    """Return what rows are compared by."""
    return next((key for row in rows for run in row["runs"] for key in run), None)


def times_ours(row: Row, rows: Sequence[Row]) -> float | None:
    """Return the median over the rounds of this row's first quantity divided by ours."""
    ours, key = _ours(row, rows), first_quantity([row])
    if ours is None or key is None:
        return None
    pairs = zip(row["runs"], ours["runs"], strict=False)
    ratios = [a[key] / b[key] for a, b in pairs if a.get(key) is not None and b.get(key)]
    return statistics.median(ratios) if ratios else None


def _ours(row: Row, rows: Sequence[Row]) -> Row | None:
    if "contender" not in row["labels"]:
        return None
    group = [other for other in rows if {**other["labels"], "contender": ""} == {**row["labels"], "contender": ""}]
    return next((other for other in group if other["labels"]["contender"].startswith(OURS)), None)


def _times(row: Row, rows: Sequence[Row]) -> str:
    ratio = None if _ours(row, rows) is row else times_ours(row, rows)
    if not ratio:
        return NOTHING
    return f"{ratio:.2f}" if ratio >= 1 else f"1 / {1 / ratio:.2f}"


def _shown(row: Row, quantity: str) -> str:
    value = median(row, quantity)
    if value is None:
        return NOTHING
    return QUANTITIES[quantity][1](value) if quantity in QUANTITIES else f"{value:,.4g}"


def _spread(row: Row) -> str:
    key = first_quantity([row])
    values = [run[key] for run in row["runs"] if run.get(key) is not None] if key else []
    middle = statistics.median(values) if values else 0
    return f"{(max(values) - min(values)) / middle:.0%}" if len(values) > 1 and middle else NOTHING
