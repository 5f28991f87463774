"""What a notebook shows of a pyramid: its levels with small pictures. HTML without scripts, in the page's colours."""

from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING

from ziggurat.pictures import data_uri
from ziggurat.planes import Planes
from ziggurat.runtime import is_synchronous
from ziggurat.text import format_bytes, format_shape

if TYPE_CHECKING:
    from ziggurat.pyramid import Pyramid

__all__ = ["pyramid_html"]

OVERVIEW, THUMBNAIL = 128, 40
"""Pixels per side: with `MAX_THUMBNAILS` of them, noise in four channels still makes less than 200 kB."""

MAX_THUMBNAILS = 10
OVERVIEW_BYTES, THUMBNAIL_BYTES = 64 << 20, 16 << 20
"""Bytes of chunks that a picture may decode; a level of which it would take more has none."""


def pyramid_html(pyramid: "Pyramid") -> str:
    """Return the levels of `pyramid` as a table, with an overview and a small picture of each level as it is stored.

    The overview is made from the coarsest level that suffices. What cannot be read has no picture, and says so.
    """
    planes = Planes.of(pyramid)
    overview = _picture(planes, _overview_level(planes), OVERVIEW, OVERVIEW_BYTES)
    heads = ("level", "", "shape", "chunk", "shard", "bytes", "scale")
    rows = [f"<tr>{''.join(_cell(head, 'th') for head in heads)}</tr>", *_rows(planes)]
    side = '<div style="display:inline-block;vertical-align:top;margin-right:1em'
    table = f'<table style="color:inherit">{"".join(rows)}</table>'
    return f'<div style="color:inherit">{_heading(pyramid)}{side}">{overview}</div>{side}">{table}</div></div>'


def _heading(pyramid: "Pyramid") -> str:
    units = {axis.name: axis.unit for axis in pyramid.image.axes if axis.unit} if pyramid.image else {}
    axes = ", ".join(f"{a} in {units[a]}" if a in units else a for a in pyramid.axes)
    about = f"{_clipped(axes)}; {pyramid.levels[0].dtype}; method {pyramid.method}"
    touched = f"; {len(pyramid.touched)} touched regions are not rebuilt" if pyramid.touched else ""
    return f"<p><b>{_clipped(pyramid.name or pyramid.where)}</b> ({about}{touched})<br>{_clipped(pyramid.where)}</p>"


def _rows(planes: Planes) -> Iterator[str]:
    for k, level in enumerate(planes.pyramid.levels):
        # A remote level would cost a request each time that the cell is shown; a virtual one may be remote.
        store = getattr(planes.pyramid[k], "store", None)
        is_near = k < MAX_THUMBNAILS and store is not None and is_synchronous(store)
        picture = _picture(planes, k, THUMBNAIL, THUMBNAIL_BYTES) if is_near else ""
        shard = format_shape(level.unit) if level.is_sharded else "-"
        scale = " ".join(f"{s:g}" for s in level.scale) if level.scale else "-"
        texts = (format_shape(level.shape), format_shape(level.chunk), shard, format_bytes(level.nbytes), scale)
        cells = [_cell(_clipped(level.name)), _cell(picture), *map(_cell, texts)]
        yield f"<tr>{''.join(cells)}</tr>"


def _overview_level(planes: Planes) -> int:
    """Return the coarsest level that suffices, or a coarser one where that costs too much to read."""
    n = len(planes.pyramid)
    enough = next((k for k in reversed(range(n)) if planes.size(k) >= OVERVIEW), 0)
    return next((k for k in range(enough, n) if planes.cost_bytes(k, planes.box(k)) <= OVERVIEW_BYTES), enough)


def _picture(planes: Planes, k: int, size: int, max_bytes: int) -> str:
    level, box = planes.pyramid.levels[k], planes.box(k)
    if not level.nbytes or planes.cost_bytes(k, box) > max_bytes:
        return ""
    try:
        picture = planes.picture(planes.read(k, box), size)
    except Exception as error:
        # Codecs and stores raise what they like, and a face that raises hides what is still to be seen.
        return f'<span title="{_clipped(f"{type(error).__name__}: {error}")}">cannot be read</span>'
    height, width = (round(n * size / max(picture.shape[:2])) for n in picture.shape[:2])
    sides = f'width="{max(1, width)}" height="{max(1, height)}" style="image-rendering:pixelated;margin:0"'
    return f'<img src="{data_uri(picture)}" alt="level {_clipped(level.name)}" {sides}>'


def _cell(html: str, tag: str = "td") -> str:
    return f'<{tag} style="text-align:right">{html}</{tag}>'


def _clipped(text: object, n: int = 200) -> str:
    """Return a text of at most `n` characters, fit for HTML."""
    whole = str(text)
    return escape(whole if len(whole) <= n else f"{whole[: n - 3]}...")
