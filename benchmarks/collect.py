"""Keeps what a benchmark prints as its record: `python -m benchmarks.collect MODULE [OPTION ...]`."""

import argparse
import re
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from benchmarks.processes import ROOT, stop
from benchmarks.record import Record
from benchmarks.tables import MIB, QUANTITIES

# What a column is called that becomes a quantity, and which.
HEADS = ("wall, s", "CPU, s", "growth, MiB", "requests", "planned")
KEYS = {head: key for key, (head, _) in QUANTITIES.items() if head in HEADS}


def main(arguments: Sequence[str]) -> None:
    """Run `python -m benchmarks.MODULE OPTION ...` and write `benchmarks/results/MODULE.json`."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.collect", description=__doc__)
    parser.add_argument("--seconds", type=float, default=1800.0, metavar="S", help="stop it after that long")
    parser.add_argument("module")
    parser.add_argument("options", nargs=argparse.REMAINDER)
    given = parser.parse_args(arguments)
    options = argparse.Namespace(name=given.module, seconds=given.seconds)
    record = Record(given.module, options, given.options)
    command = [sys.executable, "-m", f"benchmarks.{given.module}", *given.options]
    done = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        text, _ = done.communicate(timeout=given.seconds)
    except subprocess.TimeoutExpired:
        stop(done)
        text, _ = done.communicate()
        record.content["missing"] = [f"what comes after the last line: it was stopped after {given.seconds:.0f} s"]
    else:
        record.content["missing"] = [f"the rest: it failed with {done.returncode}"] if done.returncode else []
    record.content["rows"], record.content["text"] = parsed(text)
    record.save()
    print(text)


def parsed(text: str) -> tuple[list[dict[str, Any]], str]:
    """Return rows of the tables that have columns of `HEADS`, and the lines that are none of theirs.

    Columns lie two spaces apart at least; what is no quantity is a label.
    """
    rows, rest, head = [], [], []
    for line in text.splitlines():
        cells = re.split(r" {2,}", line.strip())
        if any(cell in KEYS for cell in cells):
            head = cells
        elif len(cells) == len(head) and (row := _row(dict(zip(head, cells, strict=True)))):
            rows.append(row)
        else:
            rest.append(line)
            head = head if line.strip() else []
    return rows, "\n".join(rest)


def _row(cells: dict[str, str]) -> dict[str, Any] | None:
    labels = {name: cell for name, cell in cells.items() if name not in KEYS}
    try:  # In the order of `QUANTITIES`: rows are compared by the first.
        run = {key: _number(cells[head], head) for head, key in KEYS.items() if head in cells}
    except ValueError:
        return None
    return {"labels": labels, "runs": [run], "error": None}


def _number(cell: str, head: str) -> float:
    return float(cell.replace(",", "")) * (MIB if head.endswith("MiB") else 1)


if __name__ == "__main__":
    main(sys.argv[1:])
