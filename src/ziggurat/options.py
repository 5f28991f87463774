"""What the verbs of the command line share: arguments, options, and how an answer is printed."""

import json
import logging
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ziggurat.parsing import parse_bytes

if TYPE_CHECKING:
    from ziggurat.boxes import Box
    from ziggurat.pyramid import Pyramid

__all__ = [
    "METHODS",
    "BlockBytes",
    "Factors",
    "Json",
    "Levels",
    "Method",
    "Mode",
    "Nodata",
    "Quiet",
    "Regions",
    "Verbose",
    "Where",
    "answer",
    "as_target",
    "log_to_stderr",
]

METHODS = ("auto", "nearest", "stride", "linear", "cubic", "gaussian", "mean", "median", "mode", "min", "max")


def log_to_stderr(context: typer.Context, is_verbose: bool) -> bool:
    """Show the log from now on, and the traceback of an error."""
    if is_verbose and not context.obj.verbose:
        context.obj.verbose = True
        logger, handler = logging.getLogger("ziggurat"), _Stderr()
        context.obj.at_end.callback(logger.setLevel, logger.level)
        context.obj.at_end.callback(logger.removeHandler, handler)
        logger.setLevel(logging.INFO)
        logger.addHandler(handler)
    return is_verbose


class _Stderr(logging.Handler):
    """Prints to whatever stderr is then: while a bar is drawn, it is what prints above the bar."""

    def emit(self, record: logging.LogRecord) -> None:
        print(f"{record.levelname.lower()}: {record.getMessage()}", file=sys.stderr, flush=True)


def _methods(incomplete: str) -> list[str]:
    return [method for method in METHODS if method.startswith(incomplete)]


Where = Annotated[str, typer.Argument(metavar="PATH", help="OME-Zarr image, or group of levels: a path or URL.")]
Levels = Annotated[
    list[str] | None,
    typer.Option(
        "--level",
        metavar="NAME",
        help="Name of a level, finest first; give it once per level. By default the image's metadata name them.",
    ),
]
Method = Annotated[
    str,
    typer.Option(
        metavar="METHOD",
        help=f"How coarser pixels are computed: {', '.join(METHODS[:-1])} or {METHODS[-1]}. auto: as the metadata "
        "record, else mode for labels and mean for images.",
        autocompletion=_methods,
    ),
]
Mode = Annotated[
    Literal["auto", "numpy", "dask"],
    typer.Option(help="How the work runs: numpy in memory, dask in bounded memory; auto chooses by size."),
]
Factors = Annotated[
    str | None,
    typer.Option(
        metavar="FACTORS",
        help="Factor of each coarser level to the next finer one: 2 for all of them, 2,4,2 for each, or of each axis, "
        "1x2x2,1x2x2. By default shapes and scales tell.",
    ),
]
Nodata = Annotated[str | None, typer.Option(metavar="VALUE", help="Pixel value that does not count: a number or nan.")]
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
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
Verbose = Annotated[
    bool,
    typer.Option(
        "--verbose",
        "-v",
        help="Show the log, and where an error comes from.",
        callback=log_to_stderr,
        envvar="ZIGGURAT_DEBUG",
        show_envvar=False,
    ),
]


def answer(quiet: bool, as_json: bool, values: Callable[[], Any], text: Callable[[], object]) -> None:
    """Print an answer as JSON or as text (None: it is printed already), or not at all."""
    if as_json:
        typer.echo(json.dumps(values(), indent=2, default=str))
    elif not quiet and (shown := text()) is not None:
        typer.echo(shown)


def as_target(
    path: str, levels: list[str] | None, regions: str | None = None, write_block_max_bytes: str | None = None
) -> "tuple[str | Pyramid, list[Box] | str | None]":
    """Return what is to be rebuilt, and the regions that are named."""
    import ziggurat

    if write_block_max_bytes is not None:
        ziggurat.get_config().dask.write_block_max_bytes = parse_bytes(write_block_max_bytes)
    if not levels and regions is None:
        return path, None
    if regions == "touched":
        raise typer.BadParameter("'touched' is what a Python object wrote; use 'changed', or 'marked'.")
    pyramid = ziggurat.open_pyramid(path, levels=levels)
    if regions is None or regions in ("changed", "marked"):
        return pyramid, regions
    return pyramid, ziggurat.read_regions(regions, pyramid)
