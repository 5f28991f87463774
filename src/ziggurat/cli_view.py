"""The verb that shows an image: ``ziggurat view``."""

import sys
from typing import Annotated

import typer

from ziggurat.options import Json, Levels, Quiet, Verbose, Where, answer

__all__ = ["view"]


def view(
    path: Where,
    level: Levels = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the page; 0 is any that is free.")] = 0,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Print the page's address, and open nothing.")
    ] = False,
    quiet: Quiet = False,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Show an image, its labels on top, on a web page that this computer alone can reach, until Ctrl-C."""
    import ziggurat

    pyramid = ziggurat.open_pyramid(path, levels=level)
    with ziggurat.view(pyramid, port=port, browser=not no_browser) as shown:
        answer(quiet, as_json, lambda: {"url": shown.url}, lambda: f"{shown.url} shows {path}; Ctrl-C ends it")
        sys.stdout.flush()
        try:
            shown.wait()
        except KeyboardInterrupt:
            # Ctrl-C is how it ends, not how it fails.
            return
