"""Draws how far a rebuild is: a bar in a terminal, one line of text in a notebook, a line now and then in a log."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import Any

from ziggurat.events import Finished, OnProgress, Progress
from ziggurat.text import format_bytes

__all__ = ["progress_texts", "shown"]

LONG_S = 10.0
"""A run that takes longer shows a bar on a terminal unasked."""

EVERY_S = 0.2
"""A notebook gets a new text no more often."""

LOG_EVERY_S = 30.0
"""A file or a pipe gets a new line no more often."""


@contextmanager
def shown(progress: OnProgress) -> Iterator[Callable[[Progress], None]]:
    """Yield what is to be called with each event."""
    with ExitStack() as stack:
        if callable(progress):
            yield progress
        elif progress and (display := _notebook()) is not None:
            yield _Line(display)
        elif progress is not False and sys.stderr is not None and sys.stderr.isatty():
            yield _Bar(stack, 0.0 if progress else LONG_S)
        elif progress and sys.stderr is not None:
            yield _Log()
        else:
            yield _ignore


def progress_texts(record: Progress) -> list[str]:
    """Return level, units, speed and time left, for people."""
    units = f"{record.n_units:,}/{record.n_units_total:,} units"
    left = f"{timedelta(seconds=round(record.remaining_s))} left" if record.n_units else ""
    return [f"level {record.level}", units, f"{format_bytes(record.bytes_per_s)}/s", left]


class _Bar:
    """A bar on stderr that begins with the first event after some seconds; `stack` takes it away."""

    def __init__(self, stack: ExitStack, after_s: float) -> None:
        self.stack = stack
        self.after_s = after_s
        self.bar: Any = None

    def __call__(self, record: Progress) -> None:
        if self.bar is None:
            if record.elapsed_s < self.after_s or isinstance(record, Finished):
                return
            self._begin()
        self.bar.update(0, completed=record.n_units, total=record.n_units_total, texts=progress_texts(record))

    def _begin(self) -> None:
        from rich import progress
        from rich.console import Console
        from rich.errors import LiveError

        level, *others = (progress.TextColumn(f"{{task.fields[texts][{i}]}}") for i in range(4))
        console = Console(stderr=True, force_jupyter=False)
        self.bar = progress.Progress(level, progress.BarColumn(), *others, console=console, transient=True)
        self.bar.add_task("", total=None, texts=[""] * 4)
        try:
            self.stack.enter_context(self.bar)
        except LiveError:
            # The terminal has another bar, of the caller or of another thread: this one is not drawn.
            self.bar.disable = True


class _Log:
    """Lines on a stderr that is no terminal: few, whatever the number of tasks, and none for what is short."""

    def __init__(self) -> None:
        self.told_s = 0.0

    def __call__(self, record: Progress) -> None:
        if record.elapsed_s - self.told_s >= LOG_EVERY_S:
            self.told_s = record.elapsed_s
            print(f"{record.fraction:.0%}", *progress_texts(record), sep="  ", file=sys.stderr, flush=True)


class _Line:
    """One line of text below a notebook's cell, drawn anew; without widgets, which are not everywhere installed."""

    def __init__(self, display: Callable[..., Any]) -> None:
        self.handle = display({"text/plain": ""}, raw=True, display_id=True)
        self.drawn_s = 0.0

    def __call__(self, record: Progress) -> None:
        now = time.monotonic()
        if now - self.drawn_s >= EVERY_S or isinstance(record, Finished):
            self.drawn_s = now
            filled = round(20 * record.fraction)
            text = "  ".join([f"[{'#' * filled}{'.' * (20 - filled)}]", *progress_texts(record)])
            self.handle.update({"text/plain": text}, raw=True)


def _notebook() -> Callable[..., Any] | None:
    """Return IPython's `display`, where this runs in a notebook."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if type(shell).__name__ != "ZMQInteractiveShell":
        return None
    display: Callable[..., Any] = sys.modules["IPython.display"].display
    return display


def _ignore(record: Progress) -> None:
    """Show nothing."""
