"""Draws previews with matplotlib: a figure that any backend, and a notebook without one, can show."""

import io
import math
from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING

from matplotlib.collections import PatchCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle as Patch
from matplotlib.style import context

from ziggurat.places import Panel, Rectangle

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Preview", "draw"]

TOUCHED, STALE, PLACE = "#00b4ff", "#ff7f0e", "#ff2fa0"
"""They are seen on black, on white and on most pictures."""

MOST_COLUMNS = 5


class Preview(Figure):
    """A figure that a notebook shows, whichever backend matplotlib has."""

    def _repr_png_(self) -> bytes:
        file = io.BytesIO()
        self.savefig(file, format="png", dpi=100)
        return file.getvalue()


def draw(title: str, panels: Sequence[Panel], units: tuple[str, str], dark: bool | None = None) -> Preview:
    """Draw panels side by side; `units` belong to the axes that run right and down."""
    with nullcontext() if dark is None else context("dark_background" if dark else "default"):
        return _drawn(title, panels, units)


def _drawn(title: str, panels: Sequence[Panel], units: tuple[str, str]) -> Preview:
    n_rows = math.ceil(len(panels) / MOST_COLUMNS)
    n_columns = math.ceil(len(panels) / n_rows)
    left, right, top, bottom = panels[-1].view
    height = 3.0 * min(2.0, max(0.4, abs(bottom - top) / abs(right - left)))
    figure = Preview(figsize=(3.2 * n_columns, (height + 0.7) * n_rows + 0.5), layout="constrained")
    figure.suptitle(title, parse_math=False)
    for i, panel in enumerate(panels):
        axes = figure.add_subplot(n_rows, n_columns, i + 1)
        _draw_panel(axes, panel)
        axes.set_xlabel(units[0], parse_math=False)
        axes.set_ylabel(units[1] if i % n_columns == 0 else "", parse_math=False)
    _legend(figure, panels)
    return figure


def _draw_panel(axes: "Axes", panel: Panel) -> None:
    left, right, top, bottom = panel.view
    axes.set_title(panel.title, fontsize="medium", parse_math=False)
    axes.set_facecolor((0.5, 0.5, 0.5, 0.12))
    if panel.picture is None:
        axes.text(0.5, 0.5, panel.why, ha="center", va="center", transform=axes.transAxes, parse_math=False)
    else:
        x, until_x, y, until_y = panel.extent
        axes.imshow(panel.picture, extent=(x, until_x, until_y, y), interpolation="nearest", aspect="auto")
    axes.set(xlim=(left, right), ylim=(bottom, top), aspect="equal" if abs(bottom - top) != 1 else "auto")
    axes.tick_params(labelsize="small")
    _outline(axes, panel.stale, STALE, 0.25)
    _outline(axes, panel.touched, TOUCHED, 0.2)
    _outline(axes, [panel.place] if panel.place else [], PLACE, 0)


def _outline(axes: "Axes", rectangles: Sequence[Rectangle], colour: str, opacity: float) -> None:
    patches = [Patch((left, top), right - left, bottom - top) for left, right, top, bottom in rectangles]
    if patches:
        axes.add_collection(PatchCollection(patches, facecolor=(colour, opacity), edgecolor=colour, linewidth=1.2))


def _legend(figure: Figure, panels: Sequence[Panel]) -> None:
    words = {
        "the place that is shown": (PLACE, any(p.place for p in panels)),
        "touched": (TOUCHED, any(p.touched for p in panels)),
        "write units to rebuild": (STALE, any(p.stale for p in panels)),
    }
    used = [
        Patch((0, 0), 1, 1, facecolor="none", edgecolor=c, label=word)
        for word, (c, is_used) in words.items()
        if is_used
    ]
    figure.legend(handles=used, loc="outside lower center", ncols=3, frameon=False, fontsize="small")
