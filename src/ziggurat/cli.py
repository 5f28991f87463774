"""The command line: ``ziggurat info | build | plan | consolidate | verify | view | demo``."""

import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ziggurat import cli_images, cli_rebuild, cli_view
from ziggurat.errors import ZigguratError
from ziggurat.options import log_to_stderr

__all__ = ["app", "main"]


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


def _examples(*lines: str) -> str:
    return "\n\n".join(["Examples:", *(f"ziggurat {line}" for line in lines)])


app.command(epilog=_examples("info image.zarr", "info plate.zarr --json", "info group.zarr --level 0 --level 1"))(
    cli_images.info
)
app.command(
    epilog=_examples(
        "build pixels.npy image.zarr --axes cyx --scale 1,0.5,0.5 --unit micrometer",
        "build image.zarr copy.zarr --chunks 1x256x256 --shards 1x1024x1024",
        "build cells.npy cells --labels-of image.zarr",
    )
)(cli_images.build)
app.command(
    epilog=_examples("plan image.zarr", "plan image.zarr --mode dask --regions changed", "plan image.zarr --json")
)(cli_rebuild.plan)
app.command(
    epilog=_examples(
        "consolidate image.zarr",
        "consolidate image.zarr --regions changed",
        "consolidate image.zarr --mode dask --resume",
        "consolidate group.zarr --level 0 --level 1 --method max",
    )
)(cli_rebuild.consolidate)
app.command(epilog=_examples("verify image.zarr", "verify image.zarr --sample 0.01", "verify image.zarr --repair"))(
    cli_rebuild.verify
)
app.command(epilog=_examples("view image.zarr", "view image.zarr --port 8000 --no-browser"))(cli_view.view)
app.command(epilog=_examples("config", "config --json", "config --schema"))(cli_images.config)
app.command(epilog=_examples("demo", "demo elsewhere"))(cli_images.demo)


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
        print(f"ziggurat: interrupted; {'; '.join(map(str, interrupt.args)) or 'nothing was begun'}", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # What read our output has enough of it: no error, and nothing may be flushed into it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
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
        verb = getattr(getattr(error, "ctx", None), "command_path", "ziggurat")
        text = f"{usage()} See `{verb} --help`."
    elif isinstance(error, (ZigguratError, OSError, ImportError)):
        text = str(error)
    else:
        text = f"{type(error).__name__}: {error}. Run it with -v to see where it comes from."
    return " ".join("; ".join([text, *getattr(error, "__notes__", ())]).split())


if __name__ == "__main__":
    sys.exit(main())
