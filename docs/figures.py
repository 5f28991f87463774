"""Puts the figures of benchmarks/RESULTS.md into the README: ``python docs/figures.py``, after the benchmarks ran."""

import re
from pathlib import Path

__all__ = ["table", "with_table"]

ROOT = Path(__file__).parents[1]
MARKS = "<!-- figures: docs/figures.py writes them -->\n", "<!-- end of figures -->\n"
CODEC = "zstd"  # what zarr takes by default


def table(results: str) -> str:
    """Return wall time and memory of a full rebuild, per image, from the results of the benchmarks."""
    version = re.search(r"ngio ([\d.]+\d)", results)
    assert version is not None, "benchmarks/RESULTS.md names no version of ngio"
    rows = [[cell.strip() for cell in line.strip("|\n").split("|")] for line in results.splitlines() if line[:1] == "|"]
    head = rows[0]
    found = {(row[0], row[2]): dict(zip(head, row, strict=True)) for row in rows if row[1] == CODEC}
    size = re.search(r"--size (\d+)(\w+)", results)
    of = f" of {size[1]} {size[2]}" if size else ""
    lines = [f"| full rebuild{of} | Ziggurat | ngio {version[1]} | the codecs alone |", "|---|---|---|---|"]
    for image in dict.fromkeys(image for image, _ in found):
        wall, growth = found[image, "wall, s"], found[image, "growth, MiB"]
        cells = [f"{wall[who]} s, {float(growth[who]):.0f} MiB" for who in ("ours", "ngio", "floor")]
        lines.append(f"| {image} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def with_table(readme: str, results: str) -> str:
    """Return the text of the README with the table of `results` in its place."""
    before, _, rest = readme.partition(MARKS[0])
    _, _, after = rest.partition(MARKS[1])
    return f"{before}{MARKS[0]}{table(results)}{MARKS[1]}{after}"


if __name__ == "__main__":
    page = ROOT / "README.md"
    results = (ROOT / "benchmarks" / "RESULTS.md").read_text(encoding="utf-8")
    page.write_text(with_table(page.read_text(encoding="utf-8"), results), encoding="utf-8")
