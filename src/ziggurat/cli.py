"""The command line: ``ziggurat info | plan | consolidate | verify | demo``."""

import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ziggurat.errors import ZigguratError
from ziggurat.report import Progress
from ziggurat.text import format_bytes, format_shape

if TYPE_CHECKING:
    from ziggurat.boxes import Box
    from ziggurat.grid import Level
    from ziggurat.pyramid import Pyramid

__all__ = ["app", "main"]

app = typer.Typer(
    name="ziggurat",
    help="Rebuild the coarser levels of a multiscale zarr image from its finest level.",
    add_completion=False,
)

_METHODS = "auto, nearest, stride, linear, cubic, gaussian, mean, median, mode, min or max."

Where = Annotated[str, typer.Argument(metavar="PATH", help="OME-Zarr image, or group of levels: a path or URL.")]
Levels = Annotated[
    list[str] | None,
    typer.Option("--level", help="Name of a level, finest first; once per level. Else the image's metadata tell."),
]
Method = Annotated[str, typer.Option(help=f"How coarser pixels are computed: {_METHODS}")]
Mode = Annotated[Literal["auto", "numpy", "dask"], typer.Option(help="How the work runs.")]
Factors = Annotated[
    str | None,
    typer.Option(help="Factor of each coarser level to the next finer one: 2,2,2 for all axes or 1x2x2,1x2x2."),
]
Nodata = Annotated[str | None, typer.Option(help="Pixel value that does not count: a number or nan.")]
Regions = Annotated[
    str | None,
    typer.Option(
        metavar="WHICH",
        help="Rebuild only what depends on these regions of level 0: 'changed' since the last rebuild, 'marked' by "
        "any process, a table (CSV, Parquet, Feather, AnnData), or the name of one of the image's own.",
    ),
]
BlockBytes = Annotated[
    str | None, typer.Option("--write-block-max-bytes", metavar="SIZE", help="Ceiling of a write block, as in 8 MiB.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.callback(invoke_without_command=True)
def _options(
    context: typer.Context,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", envvar="ZIGGURAT_DEBUG", help="Show where an error comes from.")
    ] = False,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    context.obj.verbose = verbose
    if version:
        from importlib.metadata import version as version_of

        typer.echo(version_of("ziggurat"))
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command()
def info(path: Where, level: Levels = None, as_json: Json = False) -> None:
    """Show the levels of an image and the method that a rebuild would use."""
    import ziggurat

    pyramid = ziggurat.open_pyramid(path, levels=level)
    if as_json:
        levels = [_level_values(record) for record in pyramid.levels]
        values = {"name": pyramid.name, "axes": list(pyramid.axes), "method": pyramid.method, "levels": levels}
        typer.echo(json.dumps(values, indent=2))
    else:
        _print_levels(pyramid)


@app.command()
def plan(
    path: Where,
    level: Levels = None,
    method: Method = "auto",
    mode: Mode = "auto",
    factors: Factors = None,
    nodata: Nodata = None,
    regions: Regions = None,
    write_block_max_bytes: BlockBytes = None,
) -> None:
    """Show what a rebuild would do, without reading a pixel."""
    import ziggurat

    options: dict[str, Any] = {"factors": _parse_factors(factors), "nodata": _parse_nodata(nodata)}
    target, options["regions"] = _target(path, level, regions, write_block_max_bytes)
    typer.echo(ziggurat.plan(target, method=method, mode=mode, **options))


@app.command()
def consolidate(
    path: Where,
    level: Levels = None,
    method: Method = "auto",
    mode: Mode = "auto",
    factors: Factors = None,
    nodata: Nodata = None,
    regions: Regions = None,
    write_block_max_bytes: BlockBytes = None,
    resume: Annotated[bool, typer.Option("--resume", help="Do what an interrupted dask run left undone.")] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Rebuild the coarser levels of an image from its finest level."""
    import ziggurat

    options: dict[str, Any] = {"factors": _parse_factors(factors), "nodata": _parse_nodata(nodata)}
    target, options["regions"] = _target(path, level, regions, write_block_max_bytes)
    with _progress_bar(shown=not quiet and sys.stderr.isatty()) as progress:
        report = ziggurat.consolidate(target, method=method, mode=mode, progress=progress, resume=resume, **options)
    if as_json:
        typer.echo(json.dumps(report.to_dict(), indent=2))
    elif not quiet:
        typer.echo(report)


@app.command()
def verify(
    path: Where,
    level: Levels = None,
    method: Method = "auto",
    mode: Mode = "auto",
    factors: Factors = None,
    nodata: Nodata = None,
    sample: Annotated[float | None, typer.Option(help="Compare only this share of the tasks, at random.")] = None,
    repair: Annotated[bool, typer.Option("--repair", help="Rewrite what is stale, and nothing else.")] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> int:
    """Recompute the coarser levels and compare; exits 1 when something is stale."""
    import ziggurat

    options: dict[str, Any] = {"factors": _parse_factors(factors), "nodata": _parse_nodata(nodata)}
    target, _ = _target(path, level, None, None)
    with _progress_bar(shown=not quiet and sys.stderr.isatty()) as progress:
        check = ziggurat.verify(
            target, method=method, mode=mode, sample=sample, repair=repair, progress=progress, **options
        )
    if as_json:
        typer.echo(json.dumps(check.to_dict(), indent=2))
    elif not quiet:
        typer.echo(check)
    return int(check.is_stale)


@app.command()
def demo(
    directory: Annotated[str, typer.Argument(metavar="DIR", help="Where to put it.")] = "ziggurat-demo",
) -> None:
    """Make an image, build its coarser levels and check every pixel."""
    from ziggurat.demo import run

    run(directory, echo=typer.echo)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    arguments
        What follows the program's name; `sys.argv` by default.

    Returns
    -------
    int
        0; 1 after one line on stderr that says what is wrong and what to do; 130 after an interrupt.
    """
    state = SimpleNamespace(verbose=bool(os.environ.get("ZIGGURAT_DEBUG")))
    try:
        code = typer.main.get_command(app).main(arguments, prog_name="ziggurat", standalone_mode=False, obj=state)
    except Exception as error:
        if state.verbose:
            raise
        print(f"ziggurat: {_one_line(error)}", file=sys.stderr)
        return 1
    return int(code or 0)


def _one_line(error: Exception) -> str:
    # What the command line itself refuses carries its text in format_message, not in str().
    usage = getattr(error, "format_message", None)
    if usage is not None:
        text = f"{usage()} See `ziggurat --help`."
    elif isinstance(error, (ZigguratError, OSError, ImportError)):
        text = str(error)
    else:
        text = f"{type(error).__name__}: {error}. Run `ziggurat -v ...` to see where it comes from."
    return " ".join(text.split())


def _target(
    path: str, levels: list[str] | None, regions: str | None, write_block_max_bytes: str | None
) -> "tuple[str | Pyramid, list[Box] | str | None]":
    """Return what is to be rebuilt, and the regions that are named."""
    import ziggurat

    if write_block_max_bytes is not None:
        ziggurat.get_config().dask.write_block_max_bytes = _parse_bytes(write_block_max_bytes)
    if not levels and regions is None:
        return path, None
    pyramid = ziggurat.open_pyramid(path, levels=levels)
    if regions is None or regions in ("changed", "marked"):
        return pyramid, regions
    return pyramid, ziggurat.read_regions(regions, pyramid)


def _parse_bytes(text: str) -> int:
    from ziggurat.config import parse_bytes

    try:
        return parse_bytes(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r}: {error}.") from None


def _parse_factors(text: str | None) -> list[int | tuple[int, ...]] | None:
    if text is None:
        return None
    try:
        levels = [[int(factor) for factor in level.split("x")] for level in text.split(",")]
    except ValueError:
        raise typer.BadParameter(f"{text!r} are no factors; write them as in 2,2,2 or 1x2x2,1x2x2.") from None
    return [level[0] if len(level) == 1 else tuple(level) for level in levels]


def _parse_nodata(text: str | None) -> int | float | None:
    if text is None:
        return None
    try:
        # An integer stays one: float would change values from 2**53 on.
        return int(text) if re.fullmatch(r"[+-]?\d+", text) else float(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no pixel value; write a number or nan.") from None


def _level_values(level: "Level") -> dict[str, Any]:
    return {
        "name": level.name,
        "shape": list(level.shape),
        "dtype": str(level.dtype),
        "chunk": list(level.chunk),
        "shard": list(level.unit) if level.is_sharded else None,
        "scale": None if level.scale is None else list(level.scale),
    }


def _print_levels(pyramid: "Pyramid") -> None:
    from rich.console import Console
    from rich.table import Table

    title = f"{pyramid.name} ({', '.join(pyramid.axes)})"
    table = Table(title=title, caption=f"method: {pyramid.method}", title_justify="left", caption_justify="left")
    for column in ("level", "shape", "dtype", "chunk", "shard", "scale"):
        table.add_column(column, justify="right")
    for level in pyramid.levels:
        values = _level_values(level)
        sizes = ["-" if values[key] is None else format_shape(values[key]) for key in ("chunk", "shard")]
        scale = "-" if values["scale"] is None else " ".join(f"{step:g}" for step in values["scale"])
        table.add_row(level.name, format_shape(level.shape), values["dtype"], *sizes, scale)
    # Into a file or a pipe a row stays one line; brackets in a name are no markup.
    Console(width=None if sys.stdout.isatty() else 200, markup=False, emoji=False).print(table)


@contextmanager
def _progress_bar(shown: bool) -> Iterator[Callable[[Progress], None] | None]:
    """Yield a callable that draws how far a rebuild is, or None where nobody would see it."""
    if not shown:
        yield None
        return
    from rich import progress
    from rich.console import Console

    level, *others = (progress.TextColumn(f"{{task.fields[texts][{i}]}}") for i in range(4))
    with progress.Progress(level, progress.BarColumn(), *others, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None, texts=[""] * 4)
        yield lambda record: bar.update(
            task, completed=record.n_units, total=record.n_units_total, texts=_progress_texts(record)
        )


def _progress_texts(record: Progress) -> list[str]:
    units = f"{record.n_units:,}/{record.n_units_total:,} units"
    left = f"{timedelta(seconds=round(record.remaining_s))} left" if record.n_units else ""
    return [f"level {record.level}", units, f"{format_bytes(record.bytes_per_s)}/s", left]


if __name__ == "__main__":
    sys.exit(main())
