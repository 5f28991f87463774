"""Sizes, shapes and tables as plain text, for people; and sizes as people write them."""

import re
from collections.abc import Iterable, Sequence
from fractions import Fraction
from html import escape
from numbers import Integral

__all__ = ["align", "format_bytes", "format_shape", "html_table", "parse_bytes", "whole"]

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(?:([kmgtp])(i?))?b?\s*", re.ASCII | re.IGNORECASE)
_SIZE_RULE = "a size is a whole number of bytes, or text such as '8 MiB' or '256MB'"


def format_bytes(n_bytes: float) -> str:
    """Return a size in bytes for people, in powers of 1024.

    >>> format_bytes(8 * 2**20), format_bytes(300)
    ('8.0 MiB', '300 B')
    """
    units = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
    # 1023.95 and not 1024: what rounds to 1024.0 belongs to the next unit.
    power = next((i for i in range(len(units)) if n_bytes < 1023.95 * 1024**i), len(units) - 1)
    return f"{n_bytes:.0f} B" if power == 0 else f"{n_bytes / 1024**power:.1f} {units[power]}"


def parse_bytes(size: object) -> int:
    """Read a size in bytes from an integer, or from text with a unit: kB is 1000 bytes, KiB is 1024.

    Raises
    ------
    ValueError
        When it is neither, or no whole number of bytes.

    Examples
    --------
    >>> parse_bytes("8 MiB"), parse_bytes("256MB"), parse_bytes(1024)
    (8388608, 256000000, 1024)
    """
    number = whole(size)
    if isinstance(number, str) and (match := _SIZE.fullmatch(number)):
        digits, prefix, binary = match.groups()
        n_bytes = Fraction(digits) * (1024 if binary else 1000) ** (" kmgtp".index((prefix or " ").lower()))
        number = int(n_bytes) if n_bytes.denominator == 1 else n_bytes
    if not isinstance(number, int) or isinstance(number, bool):
        raise ValueError(_SIZE_RULE)
    return number


def whole(value: object) -> object:
    """Turn numpy's integers into ints; leave the rest, bool above all, to be judged as it is."""
    return value if isinstance(value, bool) or not isinstance(value, Integral) else int(value)


def format_shape(shape: Iterable[int]) -> str:
    """Return a shape, or chunk, for people.

    >>> format_shape((3, 512, 512))
    '3 x 512 x 512'
    """
    return " x ".join(str(n) for n in shape)


def align(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return one line per row, with columns of equal width, aligned to the right.

    By hand and in ASCII: rich would wrap at the terminal's width, and its frames fail on consoles that are not UTF-8.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]


def html_table(heading: str, rows: Sequence[Sequence[str]]) -> str:
    """Return rows, the first being the head, as a table that takes its colours from the page."""
    head, *body = rows
    cells = [_html_row(head, "th"), *(_html_row(row, "td") for row in body)]
    caption = f'<caption style="color:inherit;text-align:left;white-space:nowrap">{escape(heading)}</caption>'
    return f'<table style="color:inherit">{caption}{"".join(cells)}</table>'


def _html_row(cells: Iterable[str], tag: str) -> str:
    return "<tr>" + "".join(f'<{tag} style="text-align:right">{escape(cell)}</{tag}>' for cell in cells) + "</tr>"
