"""Puts figures of benchmarks/results/run.json into the README: ``python docs/figures.py``, after the benchmarks ran."""

import json
from pathlib import Path
from statistics import median
from typing import Any

__all__ = ["table", "with_table"]

ROOT = Path(__file__).parents[1]
MARKS = "<!-- figures: docs/figures.py writes them -->\n", "<!-- end of figures -->\n"
CODEC = "blosc-lz4"


def table(found: dict[str, Any]) -> str:
    """Return wall time and memory of a full rebuild, per image, from the record of the benchmark."""
    rows = [row for row in found["rows"] if row["labels"]["codec"] == CODEC]
    runs = {(row["labels"]["image"], row["labels"]["contender"]): row["runs"] for row in rows}
    images = list(dict.fromkeys(image for image, _ in runs))
    version, size_mib = found["versions"]["ngio"], int(images[0].split()[1])
    size = f"{size_mib // 1024} GiB" if size_mib % 1024 == 0 else f"{size_mib} MiB"
    lines = [f"| full rebuild of {size} | Ziggurat | ngio {version} | the codecs alone |", "|---|---|---|---|"]
    for image in images:
        cells = [_cell(runs[image, who]) for who in ("ours", "ngio", "floor")]
        lines.append(f"| {image.split()[0]} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _cell(runs: list[dict[str, float]]) -> str:
    wall_s, growth = (median(run[key] for run in runs) for key in ("wall_s", "growth_bytes"))
    return f"{wall_s:.2f} s, {growth / 2**20:.0f} MiB"


def with_table(readme: str, found: dict[str, Any]) -> str:
    """Return the text of the README with the table of what was `found` in its place."""
    before, _, rest = readme.partition(MARKS[0])
    _, _, after = rest.partition(MARKS[1])
    return f"{before}{MARKS[0]}{table(found)}{MARKS[1]}{after}"


if __name__ == "__main__":
    page = ROOT / "README.md"
    record = json.loads((ROOT / "benchmarks" / "results" / "run.json").read_text(encoding="utf-8"))
    page.write_text(with_table(page.read_text(encoding="utf-8"), record), encoding="utf-8")
