"""What ``ziggurat info`` shows: the facts of a pyramid, as plain values and as a table."""

import sys
from collections.abc import Sequence
from typing import Any

from ziggurat.changes import Fingerprints, changed_boxes, read_marks
from ziggurat.errors import StoreError
from ziggurat.listing import image_paths
from ziggurat.planning import Plan
from ziggurat.pyramid import Pyramid
from ziggurat.sidecar import stored_units
from ziggurat.store import open_group
from ziggurat.text import format_bytes, format_shape

__all__ = ["describe", "describe_plan", "lists_images", "print_pyramid", "print_summary"]


def lists_images(where: str) -> bool:
    """Say whether the group at `where` is no image, but lists some: a plate, a well, labels."""
    return image_paths(open_group(where).attrs.asdict()) is not None


def describe(pyramid: Pyramid) -> dict[str, Any]:
    """Return all that is known of a pyramid without reading a pixel, as values that JSON can hold."""
    image = pyramid.image
    return {
        "name": pyramid.name,
        "where": pyramid.where,
        "version": image.version if image else None,
        "is_label": image.is_label if image else False,
        "axes": list(pyramid.axes),
        "units": {a.name: a.unit for a in image.axes if a.unit} if image else {},
        "method": pyramid.method,
        "state": state(pyramid),
        "levels": [_level(pyramid, k) for k in range(len(pyramid))],
    }


def _level(pyramid: Pyramid, k: int) -> dict[str, Any]:
    level, array = pyramid.levels[k], pyramid[k]
    return {
        "name": level.name,
        "shape": list(level.shape),
        "dtype": str(level.dtype),
        "chunk": list(level.chunk),
        "shard": list(level.unit) if level.is_sharded else None,
        "scale": None if level.scale is None else list(level.scale),
        "translation": None if level.translation is None else list(level.translation),
        "codecs": [_codec(c) for c in (*array.filters, *array.compressors)],
        "bytes": level.nbytes,
        "stored_bytes": _stored_bytes(pyramid, k),
    }


def describe_plan(plan: Plan) -> dict[str, Any]:
    """Return what a plan would do, as values that JSON can hold."""
    names = ("where", "method", "mode", "reason", "is_regional", "n_tasks", "n_units")
    sizes = ("bytes_read", "bytes_written", "peak_bytes")
    levels = [
        {"name": level.name, "shape": list(level.shape), "unit": list(level.unit), "n_units": level.n_units}
        for level in plan.levels
    ]
    n_units = [d.n_units for d in plan.dirty] if plan.dirty is not None else [s.target.n_units for s in plan.steps]
    stages = [
        {
            "first": stage.first + plan.base,
            "last": stage.last + plan.base,
            "n_tasks": len(plan.owners[i].cells) if plan.is_regional else stage.n_tasks,
            "n_units": sum(n_units[stage.first - 1 : stage.last]),
            "peak_bytes": stage.peak_bytes,
        }
        for i, stage in enumerate(plan.stages)
    ]
    return {name: getattr(plan, name) for name in (*names, *sizes)} | {"levels": levels, "stages": stages}


def _codec(codec: Any) -> str:
    """Return a codec's name, and the compressor in it where it holds several."""
    values = codec.to_dict() if hasattr(codec, "to_dict") else codec.get_config()
    name = str(values.get("name") or values.get("id"))
    inner = values.get("configuration", values).get("cname")
    return f"{name}-{inner}" if inner else name


def _stored_bytes(pyramid: Pyramid, k: int) -> int | None:
    """Return the bytes of the level's chunks as stored; None where the store does not tell."""
    try:
        return int(stored_units(pyramid[k])[:, 1].sum())
    except (StoreError, FileNotFoundError):
        return None


def state(pyramid: Pyramid) -> str:
    """Say whether level 0 changed since its coarser levels were built, as far as the bookkeeping beside it tells."""
    marks = len(read_marks(pyramid[0])[0])
    marked = f"{marks} marked change{'s' * (marks != 1)}" if marks else ""
    try:
        before = Fingerprints.load(pyramid[0])
        if before is None:
            return marked or "unknown: never rebuilt by Ziggurat"
        n = len(changed_boxes(before, Fingerprints.take(pyramid[0]), pyramid.levels[0]))
    except StoreError:
        return marked or "unknown: the store does not tell what changed"
    touched = f"{n} write unit{'s' * (n != 1)} changed since the last rebuild" if n else ""
    return "; ".join(filter(None, (marked, touched))) or "unchanged since the last rebuild"


def print_pyramid(pyramid: Pyramid) -> None:
    """Print the facts as a table, one row per level."""
    values = describe(pyramid)
    axes = [f"{a} in {values['units'][a]}" if a in values["units"] else a for a in values["axes"]]
    caption = f"method: {values['method']}; level 0: {values['state']}"
    rows = [_row(level) for level in values["levels"]]
    heads = ("level", "shape", "dtype", "chunk", "shard", "codecs", "stored", "scale")
    _print(f"{values['name'] or values['where']} ({', '.join(axes)})", caption, heads, rows)


def _row(level: dict[str, Any]) -> tuple[str, ...]:
    sizes = ["-" if level[key] is None else format_shape(level[key]) for key in ("chunk", "shard")]
    scale = "-" if level["scale"] is None else " ".join(f"{step:g}" for step in level["scale"])
    stored = "-" if level["stored_bytes"] is None else format_bytes(level["stored_bytes"])
    codecs = ", ".join(level["codecs"]) or "none"
    return level["name"], format_shape(level["shape"]), level["dtype"], *sizes, codecs, stored, scale


def print_summary(where: str, pyramids: Sequence[Pyramid]) -> None:
    """Print one row per image of a plate, a well, or another collection."""
    rows = []
    for p in pyramids:
        first = p.levels[0]
        path = p.where.rpartition(where.strip("/"))[2].strip("/")
        shape, dtype = format_shape(first.shape), str(first.dtype)
        rows.append((path, ",".join(p.axes), shape, dtype, f"{len(p)}", p.method, state(p)))
    n = len(rows)
    heads = ("image", "axes", "shape", "dtype", "levels", "method", "level 0")
    _print(where, f"{n} image{'s' * (n != 1)}", heads, rows)


def _print(title: str, caption: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, caption=caption, title_justify="left", caption_justify="left")
    for head in heads:
        table.add_column(head, justify="right")
    for row in rows:
        table.add_row(*row)
    # Into a file or a pipe a row stays one line; brackets in a name are no markup.
    Console(width=None if sys.stdout.isatty() else 250, markup=False, emoji=False).print(table)
