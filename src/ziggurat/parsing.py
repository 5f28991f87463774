"""Reads what is typed on the command line: numbers, sizes and factors."""

import re

import typer

__all__ = ["parse_bytes", "parse_factors", "parse_nodata", "parse_numbers", "parse_place", "parse_sizes"]


def parse_bytes(text: str) -> int:
    """Read a number of bytes, as in ``8 MiB``."""
    from ziggurat import config

    try:
        return config.parse_bytes(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r}: {error}.") from None


def parse_factors(text: str | None) -> int | list[int | tuple[int, ...]] | None:
    """Read the factors of each level, as in ``2,2`` or ``1x2x2,1x2x2``; a single ``2`` is that of all levels."""
    if text is None:
        return None
    try:
        levels = [[int(factor) for factor in level.split("x")] for level in text.split(",")]
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} are no factors; write them as in 2 for all, 2,2,2 or 1x2x2,1x2x2."
        ) from None
    factors = [level[0] if len(level) == 1 else tuple(level) for level in levels]
    return factors[0] if len(factors) == 1 and isinstance(factors[0], int) else factors


def parse_sizes(text: str | None) -> tuple[int, ...] | None:
    """Read pixels per axis, as in ``1x512x512``."""
    try:
        return None if text is None else tuple(int(size) for size in text.split("x"))
    except ValueError:
        raise typer.BadParameter(f"{text!r} are no sizes; write one per axis, as in 1x512x512.") from None


def parse_numbers(text: str | None) -> list[float] | None:
    """Read one number per axis, as in ``1,0.5,0.5``."""
    try:
        return None if text is None else [float(number) for number in text.split(",")]
    except ValueError:
        raise typer.BadParameter(f"{text!r} are no numbers; write them as in 1,0.5,0.5.") from None


def parse_place(text: str | None) -> dict[str, tuple[float, float]] | None:
    """Read an interval of each axis that is named, as in ``y=10:12.5,x=0:8``."""
    if text is None:
        return None
    try:
        axes = [axis.split("=") for axis in text.split(",")]
        return {name.strip(): (float(start), float(stop)) for name, ends in axes for start, stop in [ends.split(":")]}
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no place; write it as in y=10:12.5,x=0:8.") from None


def parse_nodata(text: str | None) -> int | float | None:
    """Read a pixel value; an integer stays one."""
    if text is None:
        return None
    try:
        # An integer stays one: float would change values from 2**53 on.
        return int(text) if re.fullmatch(r"[+-]?\d+", text) else float(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no pixel value; write a number or nan.") from None
