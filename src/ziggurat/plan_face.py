"""What a notebook shows of a plan: which write units of each level are read, rebuilt and left, as a picture."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ziggurat.grid import Level, ceil_div
from ziggurat.regions import Boxes, as_boxes
from ziggurat.steps import Step
from ziggurat.text import format_bytes, format_shape

if TYPE_CHECKING:
    from ziggurat.planning import Plan

__all__ = ["plan_html"]

type Mask = NDArray[np.bool_]

CELLS = 32
"""Squares per side of a level's picture, at most: of the widest grid it is 15 kB at most, whatever is dirty."""

MAX_LEVELS = 8
WIDTH = 120
COLOURS = {"read": "#3b82f6", "rebuilt": "#f59e0b", "patched": "#db2777"}
"""They are seen on white and on black."""


def plan_html(plan: "Plan") -> str:
    """Return `plan` as HTML: a line of text, and the grid of each level's write units as an SVG picture."""
    head = f"{plan.where}: {plan.method}, {plan.mode} ({plan.reason})"
    sums = (
        f"reads {format_bytes(plan.bytes_read)}, writes {format_bytes(plan.bytes_written)}: {plan.n_units:,} units, "
        f"{plan.n_tasks:,} tasks of at most {format_bytes(plan.peak_bytes)}"
    )
    marks = _marks_of_regions(plan) if plan.is_regional else _marks_of_all(plan)
    shown = "".join(_figure(plan, k, marks[k]) for k in range(min(len(plan.levels), MAX_LEVELS)))
    more = len(plan.levels) - MAX_LEVELS
    rest = f"<p>and {more} coarser levels</p>" if more > 0 else ""
    is_deep = any(math.prod(level.grid[:-2]) > 1 for level in plan.levels)
    note = "; units that lie behind one another are one square" if is_deep else ""
    text = f"<p>{escape(head[:500])}<br>{sums}</p><p>{_legend(marks)}{note}</p>"
    return f'<div style="color:inherit">{text}<div>{shown}</div>{rest}</div>'


@dataclass(frozen=True, slots=True)
class _Marks:
    """The boxes of a level that are read, rebuilt whole and patched, and how many units the last two are."""

    read: Boxes
    rebuilt: Boxes
    patched: Boxes
    n_rebuilt: int = 0
    n_patched: int = 0
    note: str = ""


def _marks_of_all(plan: "Plan") -> list[_Marks]:
    sources = {s.first - 1: i for i, s in enumerate(plan.stages, 1)} if plan.stages else {0: 1}
    targets = {s.target.name for s in plan.steps}
    found = []
    for k, level in enumerate(plan.levels):
        whole, none = as_boxes([level.box], len(level.shape)), as_boxes([], len(level.shape))
        if k and level.name in targets:
            note = f"then read by stage {sources[k]}" if k in sources else ""
            found.append(_Marks(none, whole, none, level.n_units, note=note))
        else:
            found.append(_Marks(whole if plan.steps and not k else none, none, none))
    return found


def _marks_of_regions(plan: "Plan") -> list[_Marks]:
    none = as_boxes([], len(plan.levels[0].shape))
    read, found = [none] * (len(plan.levels) + 1), [_Marks(none, none, none)] * len(plan.levels)
    firsts = {stage.first for stage in plan.stages}
    for k, (step, dirty) in enumerate(zip(plan.steps, plan.dirty or (), strict=False), 1):
        units = dirty.units
        if units is None:
            # Too many to tell one from another: as if all of them were rebuilt whole.
            found[k] = _Marks(none, dirty.boxes, none, dirty.n_units)
            read[k - 1] = _windows(step, dirty.boxes)
            continue
        whole, patched = units.units[~units.is_patched], units.units[units.is_patched]
        patches = [units.patches(int(i)) for i in np.flatnonzero(units.is_patched)]
        found[k] = _Marks(none, whole, patched, len(whole), len(patched))
        # Levels inside a stage are not read back.
        read[k - 1] = _windows(step, np.concatenate([whole, *patches])) if k in firsts else none
    return [_Marks(r, m.rebuilt, m.patched, m.n_rebuilt, m.n_patched) for r, m in zip(read, found, strict=False)]


def _windows(step: Step, boxes: Boxes) -> Boxes:
    """Return the source boxes that target `boxes` are computed from."""
    axes = []
    for axis, (edge, reach) in enumerate(zip(step.edges, step.halos, strict=True)):
        start = np.maximum(0, boxes[:, axis, 0] * edge.p // edge.q - reach)
        stop = np.minimum(edge.n, -(-boxes[:, axis, 1] * edge.p // edge.q) + reach)
        axes.append(np.stack([start, stop], axis=1))
    return np.stack(axes, axis=1)


def _figure(plan: "Plan", k: int, marks: _Marks) -> str:
    level, first = plan.levels[k], plan.levels[0]
    sizes = _cells(level)
    shape = tuple(ceil_div(n, s) for n, s in zip(level.shape[-2:], sizes, strict=True))
    grid = (1, *shape)[-2:]
    masks = {name: _mask(getattr(marks, name), level, sizes) for name in ("rebuilt", "patched", "read")}
    masks["read"] &= ~(masks["rebuilt"] | masks["patched"])
    paths = "".join(_path(mask, COLOURS[name]) for name, mask in masks.items() if mask.any())
    sides = first.shape[-2:]
    height = WIDTH if len(sides) < 2 else min(2 * WIDTH, max(WIDTH // 4, WIDTH * sides[0] // max(1, sides[1])))
    box = f'width="{WIDTH}" height="{height}" viewBox="0 0 {max(1, grid[1])} {max(1, grid[0])}"'
    lines = "".join(f"M0 {i}h{grid[1]}" for i in range(grid[0] + 1))
    lines += "".join(f"M{i} 0v{grid[0]}" for i in range(grid[1] + 1))
    line = 'fill="none" stroke="currentColor" stroke-opacity=".3" vector-effect="non-scaling-stroke"'
    back = '<rect width="100%" height="100%" fill="currentColor" fill-opacity=".08"/>'
    svg = f'<svg {box} preserveAspectRatio="none" role="img">{back}{paths}<path d="{lines}" {line}/></svg>'
    caption = "<br>".join(map(escape, _caption(plan, k, marks, sizes)))
    style = "display:inline-block;vertical-align:top;margin:0 1em 1em 0;max-width:15em;font-size:85%"
    return f'<figure style="{style}">{svg}<figcaption>{caption}</figcaption></figure>'


def _caption(plan: "Plan", k: int, marks: _Marks, sizes: Sequence[int]) -> Iterator[str]:
    level = plan.levels[k]
    yield f"level {k + plan.base}: {format_shape(level.shape)}"
    done = [(marks.n_rebuilt, "rebuilt"), (marks.n_patched, "patched")]
    left = level.n_units - marks.n_rebuilt - marks.n_patched
    counts = [f"{n:,} {word}" for n, word in [*done, (left, "left")] if n]
    yield f"units: {', '.join(counts)}" if k else f"{level.n_units:,} units, never written"
    if marks.note:
        yield marks.note
    if any(s > u for s, u in zip(sizes, level.unit[-2:], strict=True)):
        yield f"a square is {format_shape(sizes)} pixels, its colour that of any unit in it"


def _cells(level: Level) -> tuple[int, ...]:
    """Return the pixels of one square along the last two axes: a write unit, or as many as leave few squares."""
    pairs = list(zip(level.shape[-2:], level.unit[-2:], strict=True))
    if level.cuts is not None:
        return tuple(max(1, ceil_div(n, CELLS)) for n, _ in pairs)
    return tuple(u * max(1, ceil_div(ceil_div(n, u), CELLS)) for n, u in pairs)


def _mask(boxes: Boxes, level: Level, sizes: Sequence[int]) -> Mask:
    """Return which squares some box meets; all other axes are looked through."""
    axes = [(level.shape[i - len(sizes)], s, boxes[:, i - len(sizes)]) for i, s in enumerate(sizes)]
    if len(axes) == 1:
        axes.insert(0, (1, 1, np.tile([0, 1], (len(boxes), 1))))
    (ny, y, rows), (nx, x, columns) = axes
    # Corners of all boxes at once: the running sum over both axes counts the boxes that cover a square.
    corners = np.zeros((ceil_div(ny, y) + 1, ceil_div(nx, x) + 1), np.int64)
    top, bottom = rows[:, 0] // y, -(-rows[:, 1] // y)
    left, right = columns[:, 0] // x, -(-columns[:, 1] // x)
    for edge, side, sign in ((top, left, 1), (bottom, right, 1), (top, right, -1), (bottom, left, -1)):
        np.add.at(corners, (edge, side), sign)
    return np.asarray(corners.cumsum(axis=0).cumsum(axis=1)[:-1, :-1] > 0)


def _path(mask: Mask, colour: str) -> str:
    """Return the squares of `mask` as one path, a run of a row as one piece; equal rows are one piece, too."""
    pieces = []
    y = 0
    for row, same in groupby(map(tuple, mask)):
        n_rows, x = len(list(same)), 0
        for is_set, run in groupby(row):
            n = len(list(run))
            if is_set:
                pieces.append(f"M{x} {y}h{n}v{n_rows}h-{n}z")
            x += n
        y += n_rows
    return f'<path d="{"".join(pieces)}" fill="{colour}" fill-opacity=".8"/>'


def _legend(marks: Sequence[_Marks]) -> str:
    used = [name for name in COLOURS if any(len(getattr(m, name)) for m in marks)]
    squares = [f'<span style="color:{COLOURS[name]}">&#9632;</span> {name}' for name in used]
    return " ".join([*squares, '<span style="opacity:.3">&#9632;</span> left'])
