"""What a benchmark found, in `benchmarks/results/NAME.json`: rows of labels, each with the figures of its runs.

A record is saved after every row, so that what was stopped half-way leaves what it has, and says what is missing.
"""

import ast
import importlib.metadata
import json
import os
import platform
import shlex
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).with_name("results")
PACKAGES = ("ziggurat", "zarr", "numcodecs", "dask", "numpy", "numba")


def parser_of(module: str, doc: str | None, *, size: str | None = None, repeat: int = 3) -> ArgumentParser:
    """Begin the command line of a benchmark with the options that all of them share."""
    from dask.utils import parse_bytes

    parser = ArgumentParser(prog=f"python -m benchmarks.{module}", description=doc)
    if size is not None:
        parser.add_argument("--size", type=parse_bytes, default=size, help=f"of level 0, {size} by default")
    parser.add_argument("--repeat", type=int, default=repeat, metavar="N", help=f"rounds, {repeat} by default")
    parser.add_argument("--seconds", type=float, default=1e9, metavar="S", help="begin nothing new after that long")
    parser.add_argument("--directory", type=Path, help="where the temporary images go")
    parser.add_argument("--name", default=module, help="of the file below benchmarks/results/")
    return parser


class Record:
    """The rows of one benchmark, saved whenever one is added.

    Parameters
    ----------
    module
        The name of the benchmark's module; its docstring says what the figures are.
    options
        What `parser_of` parsed.
    arguments
        The command line that it was parsed from.
    versions
        Packages to name beside `PACKAGES`.
    """

    def __init__(self, module: str, options: Namespace, arguments: Sequence[str], versions: Sequence[str] = ()) -> None:
        self._path = RESULTS / f"{options.name}.json"
        self._load = os.getloadavg()[0]
        self._begin = time.monotonic()
        self._until = self._begin + options.seconds
        self.content: dict[str, Any] = {
            "about": about(module),
            "command": shlex.join(["python", "-m", f"benchmarks.{module}", *arguments]),
            "machine": machine(),
            "versions": {"Python": platform.python_version(), **_versions([*PACKAGES, *versions])},
            "conditions": "",
            "missing": ["what is not shown: the run did not come to its end"],
            "rows": [],
        }
        self._missing: list[str] = []
        self.save()  # Else a run that fails would leave the figures of the one before it.

    def within[T](self, cases: Iterable[T], name: Callable[[T], str] = str) -> Iterator[T]:
        """Go through the cases while there is time; the names of the others are kept as missing."""
        for case in cases:
            if time.monotonic() < self._until:
                yield case
            else:
                self._missing.append(f"{name(case)}: the time was up")

    def add(self, labels: Mapping[str, str], runs: Sequence[Mapping[str, Any]], **more: Any) -> None:
        """Keep a row: one mapping of quantities to numbers per repeat; `error` instead, where there are none."""
        self.content["rows"].append({"labels": dict(labels), "runs": [dict(run) for run in runs], **more})
        print(", ".join(labels.values()), more.get("error") or dict(runs[-1]), file=sys.stderr, flush=True)
        self.save()

    def save(self) -> None:
        """Write the file, in one line per row."""
        took_s = time.monotonic() - self._begin
        self.content["conditions"] = f"{time.strftime('%Y-%m-%d')}, {took_s:.0f} s, load {self._load:.1f} at the start"
        lines = [f'"{key}": {json.dumps(value)}' for key, value in self.content.items() if key != "rows"]
        rows = ",\n".join(json.dumps(_rounded(row), allow_nan=False) for row in self.content["rows"])
        self._path.parent.mkdir(exist_ok=True)
        self._path.write_text("{" + ",\n".join(lines) + f',\n"rows": [\n{rows}\n]}}\n', encoding="utf-8")

    def close(self) -> None:
        """Say that all that was asked for is there, but for what the time did not suffice for."""
        self.content["missing"] = self._missing
        self.save()


def about(module: str) -> str:
    """Return the docstring of a benchmark, without importing what it needs."""
    return ast.get_docstring(ast.parse(Path(__file__).with_name(f"{module}.py").read_text(encoding="utf-8"))) or ""


def machine() -> str:
    """Cores, processor, memory."""
    listed = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    models = [line.partition(":")[2].strip() for line in listed if line.startswith("model name")]
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    model = models[0] if models else platform.machine()
    return f"{os.cpu_count()} cores, {model}, {memory_bytes / 2**30:.0f} GiB, {platform.system()}"


def _versions(packages: Iterable[str]) -> dict[str, str]:
    found = {}
    for package in packages:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list) else value
