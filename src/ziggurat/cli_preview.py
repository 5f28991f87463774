"""``ziggurat preview``: a picture of all levels, side by side."""

from pathlib import Path
from typing import Annotated, Any

import typer

from ziggurat.options import Factors, Json, Levels, Method, Nodata, Quiet, Verbose, Where, answer
from ziggurat.parsing import parse_factors, parse_nodata, parse_place

__all__ = ["preview"]

FORMATS = (".jpg", ".pdf", ".png", ".svg", ".webp")


def preview(
    path: Where,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="The picture: .png, .svg, .pdf, .jpg or .webp.")
    ] = "preview.png",
    level: Levels = None,
    where: Annotated[
        str | None,
        typer.Option(
            metavar="PLACE",
            help="What is shown, in the axes' units: y=10:30,x=12.5:40. By default where most is to see, or a region.",
        ),
    ] = None,
    regions: Annotated[
        str | None,
        typer.Option(
            metavar="WHICH",
            help="Outline these regions and the write units that depend on them: 'changed', 'marked', a table; or "
            "'stale', what a verification finds.",
        ),
    ] = None,
    method: Method = "auto",
    factors: Factors = None,
    nodata: Nodata = None,
    dark: Annotated[bool, typer.Option("--dark", help="Light text on a black page.")] = False,
    quiet: Quiet = False,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Draw all levels side by side at the same physical place, so that shifts and wrong methods show."""
    import ziggurat

    if Path(output).suffix.lower() not in FORMATS:
        raise typer.BadParameter(f"{output!r} has none of the endings {', '.join(FORMATS)}: name the file so.")
    options: dict[str, Any] = {"factors": parse_factors(factors), "nodata": parse_nodata(nodata)}
    options |= {"where": parse_place(where), "method": method}
    pyramid = ziggurat.open_pyramid(path, levels=level)
    if regions is not None and regions not in ("changed", "marked", "stale"):
        options["regions"] = ziggurat.read_regions(regions, pyramid)
    else:
        options["regions"] = regions
    figure = ziggurat.preview(pyramid, dark=dark, **options)
    figure.savefig(output, dpi=120)
    titles = [axes.get_title() for axes in figure.axes]
    answer(quiet, as_json, lambda: {"file": output, "panels": titles}, lambda: f"{output}: {'; '.join(titles)}")
