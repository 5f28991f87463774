"""The command line: ``ziggurat info | build | plan | consolidate | verify | preview | view | demo``."""

import os
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ziggurat import cli_images, cli_preview, cli_rebuild, cli_view
from ziggurat.errors import ZigguratError
from ziggurat.options import log_to_stderr

__all__ = ["app", "main"]


_REMEDIES = (
    (
        r"\blevels=\[\.\.\.\] with the arrays' paths opens them",
        "--level with each array's name, finest first, opens them",
    ),
    (r"\b(overwrite|resume|repair)=True\b", r"--\1"),
    (r"\b(mode|version)='([\w.]+)'", r"--\1 \2"),
    (r"\b(axes|scale|version|factors)=(?![\w\[('])", r"--\1"),
)
"""What messages call the way out, and what the command line calls it."""


class _Interrupted(Exception):
    """Ctrl-C; typer keeps of it no more than an exit code, and how far the work came is worth telling."""


class _Verbs(TyperGroup):
    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as interrupt:
            raise _Interrupted(*getattr(interrupt, "__notes__", ())) from interrupt


app = typer.Typer(
    name="ziggurat",
    cls=_Verbs,
    help="Rebuild the coarser levels of a multiscale zarr image from its finest level.",
    epilog="Begin with: ziggurat demo\n\n`ziggurat VERB --help` shows examples of each verb.",
)


def _add(verb: Callable[..., Any], *examples: str) -> None:
    lines = [f"ziggurat {verb.__name__} {example}".strip() for example in examples]
    app.command(epilog="\n\n".join(["Examples:", *lines]))(verb)


_add(cli_images.info, "image.zarr", "plate.zarr --json", "group.zarr --level 0 --level 1")
_add(
    cli_images.build,
    "pixels.npy image.zarr --axes cyx --scale 1,0.5,0.5 --unit micrometer",
    "image.zarr copy.zarr --chunks 1x256x256 --shards 1x1024x1024",
    "cells.npy cells --labels-of image.zarr",
)
_add(cli_rebuild.plan, "image.zarr", "image.zarr --mode dask --regions changed", "image.zarr --json")
_add(
    cli_rebuild.consolidate,
    "image.zarr",
    "image.zarr --regions changed",
    "image.zarr --mode dask --resume",
    "group.zarr --level 0 --level 1 --method max",
)
_add(cli_rebuild.verify, "image.zarr", "image.zarr --sample 0.01", "image.zarr --repair")
_add(
    cli_preview.preview,
    "image.zarr -o image.png",
    "image.zarr --where y=10:40,x=20:50 --dark",
    "image.zarr --regions stale",
)
_add(cli_view.view, "image.zarr", "image.zarr --port 8000 --no-browser")
_add(cli_images.config, "", "--json", "--schema")
_add(cli_images.demo, "", "elsewhere")


@app.callback(invoke_without_command=True)
def _options(
    context: typer.Context,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="As the option of each verb.", callback=log_to_stderr)
    ] = False,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        from importlib.metadata import version as version_of

        typer.echo(version_of("ziggurat"))
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())


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
    with ExitStack() as at_end:
        return _run(arguments, SimpleNamespace(verbose=False, at_end=at_end))


def _run(arguments: Sequence[str] | None, state: SimpleNamespace) -> int:
    try:
        code = typer.main.get_command(app).main(arguments, prog_name="ziggurat", standalone_mode=False, obj=state)
        sys.stdout.flush()
    except (_Interrupted, KeyboardInterrupt) as interrupt:
        told = _as_options("; ".join(map(str, interrupt.args))) or "nothing was begun"
        print(f"ziggurat: interrupted; {told}", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # What read our output has enough of it: no error, and nothing may be flushed into it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if state.verbose:
            traceback.print_exception(error)
        print(f"ziggurat: {_one_line(error)}", file=sys.stderr)
        return 1
    return int(code or 0)


def _one_line(error: Exception) -> str:
    # What the command line itself refuses carries its text in format_message, not in str().
    usage = getattr(error, "format_message", None)
    if usage is not None:
        verb = getattr(getattr(error, "ctx", None), "command_path", "ziggurat")
        text = f"{usage()} See `{verb} --help`."
    elif isinstance(error, (ZigguratError, OSError, ImportError)):
        text = str(error)
    else:
        text = f"{type(error).__name__}: {error}. Run it with -v to see where it comes from."
    return _as_options("; ".join([text, *getattr(error, "__notes__", ())]))


def _as_options(text: str) -> str:
    """Return a message on one line, with the remedies that it names in Python as options of the command line."""
    for python, option in _REMEDIES:
        text = re.sub(python, option, text)
    return " ".join(text.split())


if __name__ == "__main__":
    sys.exit(main())
