"""What was measured, as a table and as a document."""

import importlib.metadata
import os
import platform
import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.images import N_COARSER, Geometry
from benchmarks.measure import Cost

MIB = 2**20
PACKAGES = ("ziggurat", "zarr", "numcodecs", "dask", "numpy", "numba", "ngio")
QUANTITIES: dict[str, Callable[[Cost], float]] = {
    "wall, s": lambda cost: cost["wall_s"],
    "CPU, s": lambda cost: cost["cpu_s"],
    "growth, MiB": lambda cost: cost["growth_bytes"] / MIB,
}
COLUMNS = ("image", "codec", "quantity", "ours", "ngio", "floor", "ours/ngio", "ours/floor", "spread")
NOTHING = "-"
DOCUMENT = """\
# Full rebuild of three coarser levels

    {command}

- Machine: {machine}.
- Versions: {versions}.
- Images: uint16, {sizes}; blosc-lz4 at level 5 with byte shuffle, zstd at level 1.
- Every run is a fresh process, warmed up on a small image (192 MiB or less); contenders take turns; medians of
  {n_repeats}.
- ours is `consolidate(method="linear", mode="dask")`, ngio is `Image.consolidate("linear", mode="dask")`, both on 2
  dask threads with write blocks of at most 8 MiB. floor is the codecs alone on 2 threads: level 0 decoded, as many
  objects as the coarser levels have encoded and written, without zarr and without a kernel.
- growth is the peak of resident memory above what the warm-up left, of one run more, with
  `MALLOC_MMAP_THRESHOLD_=131072`; the timed runs have malloc as it comes.
- The source is in the page cache; nothing is synced to disk while the clock runs.
- Noise: spread is (max - min) / median over the repeats, of the contender where it is worst. A difference smaller than
  that says nothing. Wall times suffer most from other work on the machine, CPU seconds least. The floor encodes slices
  of level 0, which compress about as well as real coarser levels do: the rows "written" tell.

{table}

Pixels of all coarser levels, ours against ngio's, every repeat:

{equalities}
"""


@dataclass
class Case:
    """One image and every run on it, by contender."""

    geometry: Geometry
    codec: str
    costs: dict[str, list[Cost]] = field(default_factory=dict)
    written_bytes: dict[str, int] = field(default_factory=dict)
    digests: dict[str, set[tuple[str, ...]]] = field(default_factory=dict)
    growth_bytes: dict[str, int] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """Geometry and codec."""
        return f"{self.geometry.name}, {self.codec}"

    @property
    def equality(self) -> str:
        """Whether every run of ours and of ngio left the same pixels at every coarser level."""
        if self.digests.keys() != {"ours", "ngio"}:
            return "not compared"
        different = [k + 1 for k in range(N_COARSER) if len({d[k] for runs in self.digests.values() for d in runs}) > 1]
        return f"DIFFERENT at levels {different}" if different else "equal"


def table(cases: Iterable[Case]) -> str:
    """Make a table in Markdown that lines up on a terminal: medians, ratios and spread."""
    rows = [COLUMNS, *(row for case in cases for row in _rows(case))]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["| " + " | ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) + " |" for row in rows]
    lines.insert(1, "|" + "|".join("-" * (w + 2) for w in widths) + "|")
    return "\n".join(lines)


def equalities(cases: Iterable[Case]) -> str:
    """One line per case: whether ours and ngio agree."""
    return "\n".join(f"- {case.title}: {case.equality}" for case in cases)


def document(cases: list[Case], command: str, n_repeats: int) -> str:
    """Make the text of RESULTS.md."""
    sizes = dict.fromkeys(f"{case.geometry.name} {case.geometry.shape}" for case in cases)
    return DOCUMENT.format(
        command=command,
        machine=_machine(),
        versions=_versions(),
        sizes=", ".join(sizes),
        n_repeats=n_repeats,
        table=table(cases),
        equalities=equalities(cases),
    )


def _rows(case: Case) -> Iterable[tuple[str, ...]]:
    for quantity, value in QUANTITIES.items():
        runs = {name: [value(cost) for cost in costs] for name, costs in case.costs.items()}
        medians = {name: statistics.median(values) for name, values in runs.items()}
        spread = max((max(v) - min(v)) / medians[name] if medians[name] else 0.0 for name, v in runs.items())
        yield _row(case, quantity, medians, f"{spread:.0%}")
    yield _row(case, "written, MiB", {name: n / MIB for name, n in case.written_bytes.items()}, NOTHING)


def _row(case: Case, quantity: str, values: dict[str, float], spread: str) -> tuple[str, ...]:
    cells = [f"{values[name]:.2f}" if name in values else NOTHING for name in ("ours", "ngio", "floor")]
    ratios = [_ratio(values, "ngio"), _ratio(values, "floor")]
    return (case.geometry.name, case.codec, quantity, *cells, *ratios, spread)


def _ratio(values: dict[str, float], other: str) -> str:
    if "ours" in values and values.get(other):
        return f"{values['ours'] / values[other]:.2f}"
    return NOTHING


def _machine() -> str:
    cpu = next(line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name"))
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return f"{os.cpu_count()} cores, {cpu.split(':')[1].strip()}, {memory_bytes / 2**30:.0f} GiB, {platform.system()}"


def _versions() -> str:
    return ", ".join([f"Python {platform.python_version()}", *(f"{name} {_version(name)}" for name in PACKAGES)])


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
