"""The command line: ``ziggurat info | build | plan | consolidate | verify | demo``."""

import json
import os
import sys
from collections.abc import Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ziggurat.errors import ZigguratError
from ziggurat.parsing import parse_bytes, parse_factors, parse_nodata, parse_numbers, parse_sizes

if TYPE_CHECKING:
    from ziggurat.boxes import Box
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
    """Show the levels of an image, how they are stored and whether they are up to date; of a plate, all its images."""
    import ziggurat
    from ziggurat import details

    is_many = level is None and details.lists_images(path)
    pyramids = list(ziggurat.open_pyramids(path)) if is_many else [ziggurat.open_pyramid(path, levels=level)]
    if as_json:
        values = [details.describe(p) for p in pyramids]
        typer.echo(json.dumps(values if is_many else values[0], indent=2))
    elif is_many:
        details.print_summary(path, pyramids)
    else:
        details.print_pyramid(pyramids[0])


@app.command()
def build(
    source: Annotated[str, typer.Argument(metavar="SRC", help="OME-Zarr image, zarr array, .tif or .npy file.")],
    target: Annotated[str, typer.Argument(metavar="DST", help="The image to make; with --labels-of a label's name.")],
    axes: Annotated[str | None, typer.Option(help="Names of the axes, as in czyx.")] = None,
    scale: Annotated[str | None, typer.Option(help="Size of a pixel along each axis, as in 1,2,0.5,0.5.")] = None,
    unit: Annotated[str | None, typer.Option(help="Unit of the spatial axes, as in micrometer.")] = None,
    chunks: Annotated[str | None, typer.Option(help="Pixels per chunk, as in 1x512x512.")] = None,
    shards: Annotated[str | None, typer.Option(help="Pixels per shard, as in 1x4096x4096.")] = None,
    n_levels: Annotated[int | None, typer.Option(help="Number of levels, the finest among them.")] = None,
    method: Method = "auto",
    mode: Mode = "auto",
    factors: Factors = None,
    nodata: Nodata = None,
    labels_of: Annotated[str | None, typer.Option(metavar="IMAGE", help="The image that SRC labels.")] = None,
    version: Annotated[Literal["0.5", "0.4"], typer.Option(help="Of OME-Zarr.")] = "0.5",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Delete what is at DST first.")] = False,
    quiet: Quiet = False,
) -> None:
    """Make an OME-Zarr image with all its levels."""
    import ziggurat
    from ziggurat.details import print_pyramid
    from ziggurat.readers import opened

    options: dict[str, Any] = {"factors": parse_factors(factors), "nodata": parse_nodata(nodata)}
    options |= {"axes": axes, "chunks": parse_sizes(chunks), "shards": parse_sizes(shards), "n_levels": n_levels}
    with opened(source) as data:
        pyramid = ziggurat.build(
            data,
            target,
            scale=parse_numbers(scale),
            units=unit,
            method=method,
            mode=mode,
            labels_of=labels_of,
            version=version,
            overwrite=overwrite,
            progress=not quiet and sys.stderr.isatty(),
            **options,
        )
    if not quiet:
        print_pyramid(pyramid)


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

    options: dict[str, Any] = {"factors": parse_factors(factors), "nodata": parse_nodata(nodata)}
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

    options: dict[str, Any] = {"factors": parse_factors(factors), "nodata": parse_nodata(nodata)}
    target, options["regions"] = _target(path, level, regions, write_block_max_bytes)
    progress = not quiet and sys.stderr.isatty()
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

    options: dict[str, Any] = {"factors": parse_factors(factors), "nodata": parse_nodata(nodata)}
    target, _ = _target(path, level, None, None)
    progress = not quiet and sys.stderr.isatty()
    check = ziggurat.verify(
        target, method=method, mode=mode, sample=sample, repair=repair, progress=progress, **options
    )
    if as_json:
        typer.echo(json.dumps(check.to_dict(), indent=2))
    elif not quiet:
        typer.echo(check)
    return int(check.is_stale)


@app.command()
def config(
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON schema of the configuration file.")] = False,
    as_json: Json = False,
) -> None:
    """Show the settings in effect, and where each comes from."""
    from ziggurat import config as settings

    rows = settings.describe(settings.get_config())
    if schema:
        typer.echo(json.dumps(settings.schema(), indent=2))
    elif as_json:
        typer.echo(json.dumps({key: {"value": value, "origin": origin} for key, value, origin in rows}, indent=2))
    else:
        width = max(len(key) for key, _, _ in rows)
        for key, value, origin in rows:
            typer.echo(f"{key:<{width}}  {json.dumps(value):<13}  {origin}")


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
        ziggurat.get_config().dask.write_block_max_bytes = parse_bytes(write_block_max_bytes)
    if not levels and regions is None:
        return path, None
    pyramid = ziggurat.open_pyramid(path, levels=levels)
    if regions is None or regions in ("changed", "marked"):
        return pyramid, regions
    return pyramid, ziggurat.read_regions(regions, pyramid)


if __name__ == "__main__":
    sys.exit(main())
