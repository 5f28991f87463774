"""The verbs around images: ``ziggurat info``, ``build``, ``demo`` and ``config``."""

import json
from typing import Annotated, Any, Literal

import typer

from ziggurat.options import Factors, Json, Levels, Method, Mode, Nodata, Quiet, Verbose, Where, answer
from ziggurat.parsing import parse_factors, parse_nodata, parse_numbers, parse_sizes

__all__ = ["build", "config", "demo", "info"]


def info(
    path: Where, level: Levels = None, quiet: Quiet = False, as_json: Json = False, verbose: Verbose = False
) -> None:
    """Show the levels of an image, how they are stored and whether they are up to date; of a plate, all its images."""
    import ziggurat
    from ziggurat import details

    is_many = level is None and details.lists_images(path)
    pyramids = list(ziggurat.open_pyramids(path)) if is_many else [ziggurat.open_pyramid(path, levels=level)]

    def values() -> Any:
        described = [details.describe(p) for p in pyramids]
        return described if is_many else described[0]

    def text() -> None:
        if is_many:
            details.print_summary(path, pyramids)
        else:
            details.print_pyramid(pyramids[0])

    answer(quiet, as_json, values, text)


def build(
    source: Annotated[str, typer.Argument(metavar="SRC", help="OME-Zarr image, zarr array, .tif or .npy file.")],
    target: Annotated[str, typer.Argument(metavar="DST", help="The image to make; with --labels-of a label's name.")],
    axes: Annotated[str | None, typer.Option(metavar="AXES", help="Names of the axes, as in czyx.")] = None,
    scale: Annotated[
        str | None, typer.Option(metavar="SIZES", help="Size of a pixel along each axis, as in 1,2,0.5,0.5.")
    ] = None,
    unit: Annotated[
        str | None, typer.Option(metavar="UNIT", help="Unit of the spatial axes, as in micrometer.")
    ] = None,
    chunks: Annotated[str | None, typer.Option(metavar="SIZES", help="Pixels per chunk, as in 1x512x512.")] = None,
    shards: Annotated[str | None, typer.Option(metavar="SIZES", help="Pixels per shard, as in 1x4096x4096.")] = None,
    n_levels: Annotated[
        int | None, typer.Option(metavar="N", help="Number of levels, the finest among them; by default down to 256.")
    ] = None,
    method: Method = "auto",
    mode: Mode = "auto",
    factors: Factors = None,
    nodata: Nodata = None,
    labels_of: Annotated[
        str | None, typer.Option("--labels-of", metavar="IMAGE", help="The image that SRC labels.")
    ] = None,
    version: Annotated[Literal["0.5", "0.4"], typer.Option(help="Of OME-Zarr.")] = "0.5",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Delete what is at DST first.")] = False,
    quiet: Quiet = False,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Make an OME-Zarr image with all its levels, in one pass over the data."""
    import ziggurat
    from ziggurat.details import describe, print_pyramid
    from ziggurat.readers import opened

    options: dict[str, Any] = {"factors": parse_factors(factors), "nodata": parse_nodata(nodata)}
    options |= {"axes": axes, "chunks": parse_sizes(chunks), "shards": parse_sizes(shards), "n_levels": n_levels}
    options |= {"scale": parse_numbers(scale), "units": unit, "labels_of": labels_of, "version": version}
    with opened(source) as data:
        pyramid = ziggurat.build(
            data, target, method=method, mode=mode, overwrite=overwrite, progress=not quiet, **options
        )
    answer(quiet, as_json, lambda: describe(pyramid), lambda: print_pyramid(pyramid))


def config(
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON schema of the configuration file.")] = False,
    quiet: Quiet = False,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Show the settings in effect, and where each comes from."""
    from ziggurat import config as settings

    rows = settings.describe(settings.get_config())
    if schema:
        answer(quiet, True, settings.schema, str)
        return
    width = max(len(key) for key, _, _ in rows)
    lines = [f"{key:<{width}}  {json.dumps(value):<13}  {origin}" for key, value, origin in rows]
    values = {key: {"value": value, "origin": origin} for key, value, origin in rows}
    answer(quiet, as_json, lambda: values, lambda: "\n".join(lines))


def demo(
    directory: Annotated[str, typer.Argument(metavar="DIR", help="Where to put it.")] = "ziggurat-demo",
    quiet: Quiet = False,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Make a real image and its labels, build their coarser levels and check every pixel."""
    from ziggurat.demo import run
    from ziggurat.report import Report

    told: list[object] = []
    image = run(directory, echo=told.append if quiet or as_json else typer.echo)
    reports = [thing.to_dict() for thing in told if isinstance(thing, Report)]
    answer(quiet, as_json, lambda: {"image": str(image), "reports": reports}, lambda: None)
