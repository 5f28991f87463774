"""Composes `benchmarks/RESULTS.md` and the charts of what the benchmarks left: `python -m benchmarks.results`."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import charts
from benchmarks.pieces import PIECES
from benchmarks.record import RESULTS
from benchmarks.tables import table

HERE = Path(__file__).parent
HEAD = """\
# What was measured

Written by `python -m benchmarks.results` out of `benchmarks/results/*.json`, which hold every single run.

How to read it:

- Figures are medians over the repeats; "times ours" is the median of the ratios within each round, in which contenders
  took turns. "4.52" is more than four times what ours takes, "1 / 2.70" is where ours takes 2.7 times as long; of GB/s
  more is faster. Ratios hold; seconds are of this machine.
- "spread" is (largest - smallest) / median over the repeats: a difference below that is noise and says nothing. Wall
  times suffer most from other work on the machine, CPU seconds least; "load" tells how busy it was at the start (an
  idle one has 0, and every busy core adds 1). Where there is no spread, there was one run.
- growth is the peak of resident memory above what the warm-up left, of one run more, with
  `MALLOC_MMAP_THRESHOLD_=131072`; the timed runs have malloc as it comes.
- What could not do a case is shown with its error. What was not run is said to be missing.

"""


def main(arguments: Sequence[str]) -> None:
    """Write the document and the charts."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.results", description=__doc__)
    parser.add_argument("--into", type=Path, default=HERE, help="directory of RESULTS.md and charts/")
    into = parser.parse_args(arguments).into
    compose(RESULTS, into)
    print(f"wrote {into / 'RESULTS.md'}")


def compose(results: Path, into: Path) -> None:
    """Write `RESULTS.md` and `charts/*.svg` below `into` from the records below `results`."""
    (into / "charts").mkdir(parents=True, exist_ok=True)
    sections = [_section(piece, results / f"{piece}.json", into) for piece in PIECES]
    (into / "RESULTS.md").write_text(HEAD + "\n".join(sections), encoding="utf-8")


def _section(piece: str, file: Path, into: Path) -> str:
    chart = into / "charts" / f"{piece}.svg"
    chart.unlink(missing_ok=True)
    if not file.exists():
        return f"## {piece}\n\nMissing: not measured. `python -m benchmarks --only {piece}` does.\n"
    found = json.loads(file.read_text(encoding="utf-8"))
    title, _, about = found["about"].partition("\n")
    parts = [f"## {piece}: {title.partition(': `')[0].rstrip('.')}", about.strip(), _provenance(found)]
    if found["rows"]:
        parts.append(table(found["rows"]))
    if found.get("text"):
        parts.append(f"```text\n{found['text'].strip()}\n```")
    only = found.get("chart", {})
    if charts.draw([row for row in found["rows"] if only.items() <= row["labels"].items()], chart):
        parts.append(f"![{' '.join(['Bars of the table above', *only.values()])}](charts/{chart.name})")
    parts += [f"- Missing: {what}." for what in found["missing"]]
    return "\n\n".join(part for part in parts if part) + "\n"


def _provenance(found: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    return f"```sh\n{found['command']}\n```\n\n{found['conditions']}; {found['machine']}; {versions}."


if __name__ == "__main__":
    main(sys.argv[1:])
