"""The verbs around a rebuild: ``ziggurat plan``, ``consolidate`` and ``verify``."""

from typing import Annotated, Any

import typer

from ziggurat.options import (
    BlockBytes,
    Factors,
    Json,
    Levels,
    Method,
    Mode,
    Nodata,
    Quiet,
    Regions,
    Verbose,
    Where,
    answer,
    as_target,
)
from ziggurat.parsing import parse_factors, parse_nodata

__all__ = ["consolidate", "plan", "verify"]


def plan(
    path: Where,
    level: Levels = None,
    method: Method = "auto",
    mode: Mode = "auto",
    factors: Factors = None,
    nodata: Nodata = None,
    regions: Regions = None,
    write_block_max_bytes: BlockBytes = None,
    quiet: Quiet = False,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Show what a rebuild would do, without reading a pixel or writing a byte."""
    import ziggurat
    from ziggurat.details import describe_plan

    options: dict[str, Any] = {"factors": parse_factors(factors), "nodata": parse_nodata(nodata)}
    target, options["regions"] = as_target(path, level, regions, write_block_max_bytes)
    made = ziggurat.plan(target, method=method, mode=mode, **options)
    answer(quiet, as_json, lambda: describe_plan(made), lambda: made)


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
    verbose: Verbose = False,
) -> None:
    """Rebuild the coarser levels of an image from its finest level, whole or only where it changed."""
    import ziggurat

    options: dict[str, Any] = {"factors": parse_factors(factors), "nodata": parse_nodata(nodata)}
    target, options["regions"] = as_target(path, level, regions, write_block_max_bytes)
    report = ziggurat.consolidate(target, method=method, mode=mode, progress=not quiet, resume=resume, **options)
    answer(quiet, as_json, lambda: report.to_dict(), lambda: report)


def verify(
    path: Where,
    level: Levels = None,
    method: Method = "auto",
    mode: Mode = "auto",
    factors: Factors = None,
    nodata: Nodata = None,
    sample: Annotated[
        float | None, typer.Option(metavar="SHARE", help="Compare only this share of the tasks, at random: 0.01.")
    ] = None,
    repair: Annotated[bool, typer.Option("--repair", help="Rewrite what is stale, and nothing else.")] = False,
    quiet: Quiet = False,
    as_json: Json = False,
    verbose: Verbose = False,
) -> int:
    """Recompute the coarser levels and compare; the exit code is 1 when something is stale."""
    import ziggurat

    if sample is not None and not 0 < sample <= 1:
        raise typer.BadParameter(f"--sample {sample:g} is no share: write a number above 0 and at most 1.")
    options: dict[str, Any] = {"factors": parse_factors(factors), "nodata": parse_nodata(nodata)}
    target, _ = as_target(path, level)
    options |= {"sample": sample, "repair": repair, "progress": not quiet}
    check = ziggurat.verify(target, method=method, mode=mode, **options)
    answer(quiet, as_json, check.to_dict, lambda: check)
    return int(check.is_stale)
