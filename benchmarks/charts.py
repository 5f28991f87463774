"""Rows of a record as bars: one group per case, one bar per contender, shorter is better but for GB/s."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.tables import QUANTITIES, Row, first_quantity, median

CONTENDER = "contender"
# Where the longest bar is so many times the shortest, lengths are logarithms.
WIDE = 100


def draw(rows: Sequence[Row], path: Path) -> bool:
    """Draw the first quantity as an SVG, and return whether there was anything to draw."""
    quantity = first_quantity(rows)
    shown = [row for row in rows if quantity and median(row, quantity) is not None]
    if quantity is None or not shown:
        return False
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    # Text stays text, and the same figures give the same file.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": path.stem, "font.size": 8}):
        figure = Figure(figsize=(7, 0.8 + 0.16 * (len(shown) + len(_groups(shown)))), layout="constrained")
        _bars(figure.subplots(), shown, quantity)
        figure.savefig(path, metadata={"Date": None})
    return True


def _groups(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(map(_group, rows)))


def _group(row: Row) -> str:
    return ", ".join(value for key, value in row["labels"].items() if key != CONTENDER)


def _bars(axes: Any, rows: Sequence[Row], quantity: str) -> None:
    contenders = list(dict.fromkeys(row["labels"].get(CONTENDER, "") for row in rows))
    position, ticks = 0.0, {}
    for group in _groups(rows):
        members = [row for row in rows if _group(row) == group]
        ticks[position + (len(members) - 1) / 2] = group
        for row in members:
            color = f"C{contenders.index(row['labels'].get(CONTENDER, '')) % 10}"
            axes.barh(position, median(row, quantity), color=color)
            position += 1
        position += 1
    axes.set_yticks(list(ticks), list(ticks.values()))
    axes.invert_yaxis()
    values = [median(row, quantity) or 0.0 for row in rows]
    logarithmic = min(values) > 0 and max(values) > WIDE * min(values)
    axes.set_xscale("log" if logarithmic else "linear")
    axes.set_xlabel(QUANTITIES[quantity][0] + (", logarithmic" if logarithmic else ""))
    axes.spines[["top", "right"]].set_visible(False)
    if contenders != [""]:
        from matplotlib.patches import Patch

        handles = [Patch(color=f"C{k % 10}", label=name) for k, name in enumerate(contenders)]
        axes.legend(handles=handles, loc="best", frameon=False)
