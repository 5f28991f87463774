"""Where a bar is drawn, and where nothing is."""

import contextlib
import os
import subprocess
import sys

import pytest

import ziggurat as zg
from clusters import make_image, opened
from ziggurat import display
from ziggurat.events import Finished, Progress, Started
from ziggurat.verification import Verification

HALF = Progress(level=1, n_units=8, n_units_total=16, bytes_done=2**20, elapsed_s=1.0)

REBUILD = """
import sys
import ziggurat as zg
from ziggurat import display
display.LONG_S = float(sys.argv[2])
pyramid = zg.open_pyramid(sys.argv[1], levels=["0", "1", "2"])
zg.consolidate(pyramid, progress={"None": None, "True": True, "False": False}[sys.argv[3]])
"""


def drawn(where, long_s, progress):
    """Return what a rebuild in another process writes to its terminal."""
    reader, terminal = os.openpty()
    command = [sys.executable, "-W", "error", "-c", REBUILD, str(where), str(long_s), str(progress)]
    with subprocess.Popen(command, stderr=terminal, env={**os.environ, "TERM": "xterm", "COLUMNS": "100"}) as process:
        os.close(terminal)
        parts = []
        with contextlib.suppress(OSError):  # how Linux tells that the other end is closed
            while part := os.read(reader, 2**16):
                parts.append(part)
    os.close(reader)
    assert process.returncode == 0
    return b"".join(parts).decode()


@pytest.mark.skipif(os.name == "nt", reason="Windows has no pseudo-terminals")
@pytest.mark.parametrize(
    ("long_s", "progress", "is_drawn"),
    [(0, None, True), (60, None, False), (60, True, True), (0, False, False)],
)
def test_on_a_terminal(tmp_path, long_s, progress, is_drawn):
    make_image(tmp_path / "image")
    text = drawn(tmp_path / "image", long_s, progress)
    assert ("20/20 units" in text) == is_drawn
    assert is_drawn or text == ""


def test_off_a_terminal_nothing_is_drawn(tmp_path, capsys, monkeypatch):
    make_image(tmp_path / "image")
    monkeypatch.setattr(display, "LONG_S", 0.0)
    zg.consolidate(opened(tmp_path / "image"))
    assert capsys.readouterr() == ("", "")


def test_a_log_gets_few_lines(capsys):
    with display.shown(True) as show:
        for k in range(700):
            show(Progress(level=1, n_units=k, n_units_total=700, bytes_done=k, elapsed_s=k / 10))
    assert capsys.readouterr().err.splitlines() == [
        "43%  level 1  300/700 units  10 B/s  0:00:40 left",
        "86%  level 1  600/700 units  10 B/s  0:00:10 left",
    ]


def test_a_second_bar_is_no_error(monkeypatch):
    from rich.console import Console
    from rich.errors import LiveError

    asked = []

    def refuse(*_, **__):
        asked.append(1)
        raise LiveError("Only one live display may be active at once")

    monkeypatch.setattr(Console, "set_live", refuse)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with display.shown(True) as show:
        show(HALF)
        show(HALF)
    assert asked == [1]


def test_a_callable_gets_everything():
    seen = []
    with display.shown(seen.append) as show:
        show(HALF)
    assert seen == [HALF]


def test_one_line_in_a_notebook(tmp_path):
    import nbformat
    from nbclient import NotebookClient

    make_image(tmp_path / "image")
    code = f"""
import ziggurat as zg
pyramid = zg.open_pyramid({str(tmp_path / "image")!r}, levels=["0", "1", "2"])
zg.consolidate(pyramid{{}})
None
"""
    cells = [nbformat.v4.new_code_cell(code.format(given)) for given in (", progress=True", "")]
    book = nbformat.v4.new_notebook(cells=cells)
    NotebookClient(book, timeout=60, resources={"metadata": {"path": str(tmp_path)}}).execute()
    (output,) = book.cells[0].outputs
    assert output["data"]["text/plain"].startswith("[####################]  level 2  20/20 units")
    assert book.cells[1].outputs == []


def test_a_notebook_is_not_flooded():
    texts = []

    class Handle:
        def update(self, data, raw):
            texts.append(data["text/plain"])

    line = display._Line(lambda *_, **__: Handle())
    line(Started(1, 0, 16, 0, 0.0, 1))
    for _ in range(100):
        line(HALF)
    line(Finished(1, 16, 16, 2**20, 2.0, Verification("here", "mean", (), repaired=False)))
    assert 2 <= len(texts) < 10
    assert "16/16 units" in texts[-1]
