"""Benchmarks: that they start, and that what they left can be composed. Nothing here is timed."""

import json
import math
import re
import runpy
import shlex
import sys
from argparse import Namespace
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
import zarr
from benchmarks import images, pieces, record, regions, results, tables
from benchmarks.collect import parsed

import ziggurat as zg
from clusters import forking

HERE = Path(results.__file__).parent
KEPT = sorted((HERE / "results").glob("*.json"))
RUNS = sorted({*(piece.module for piece in pieces.PIECES.values()), "results", "collect", "__main__"})


def row(contender: str, *wall_s: float, **more: Any) -> dict[str, Any]:
    labels = {"image": "planes", "contender": contender}
    return {"labels": labels, "runs": [{"wall_s": s} for s in wall_s], "error": None, **more}


@pytest.fixture(scope="module")
def composed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compose what is made of the records that are committed, once: it draws all charts."""
    place = tmp_path_factory.mktemp("composed")
    results.compose(HERE / "results", place)
    return place


def _helped(name: str, answer: Path) -> None:
    """Do what ``python -m name --help`` does, in a process of its own."""
    sys.argv = [name, "--help"]
    with answer.open("w") as file, redirect_stdout(file):
        runpy.run_module(name, run_name="__main__", alter_sys=True)


@pytest.mark.parametrize("module", RUNS)
def test_every_benchmark_says_how_it_is_run(module: str, tmp_path: Path) -> None:
    name = "benchmarks" if module == "__main__" else f"benchmarks.{module}"
    process = forking().Process(target=_helped, args=(name, tmp_path / "answer"))
    process.start()
    process.join(120)
    assert process.exitcode == 0
    assert (tmp_path / "answer").read_text().startswith(f"usage: python -m {name}")


def test_what_is_committed_is_what_composing_makes_of_the_records(composed: Path) -> None:
    assert (composed / "RESULTS.md").read_text() == (HERE / "RESULTS.md").read_text(), "python -m benchmarks.results"
    drawn = {path.name for path in (composed / "charts").iterdir()}
    assert drawn == {path.name for path in (HERE / "charts").iterdir()}
    assert all(path.stat().st_size < 40_000 for path in (HERE / "charts").iterdir())


def test_every_piece_is_a_section_that_has_figures_or_says_that_it_has_none(composed: Path) -> None:
    sections = re.split(r"^## ", (composed / "RESULTS.md").read_text(), flags=re.MULTILINE)[1:]
    assert [re.split(r"\W", section)[0] for section in sections] == list(pieces.PIECES)
    for name, section in zip(pieces.PIECES, sections, strict=True):
        assert ("Missing: not measured" in section) != (HERE / "results" / f"{name}.json").exists()


@pytest.mark.parametrize("file", KEPT, ids=lambda path: path.stem)
def test_records_belong_to_a_piece_and_are_small(file: Path) -> None:
    assert file.stem in pieces.PIECES
    assert file.stat().st_size < 100_000
    assert json.loads(file.read_text())["versions"]["zarr"]


def test_a_run_that_was_stopped_leaves_its_rows_and_says_that_there_are_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record, "RESULTS", tmp_path / "results")
    options = Namespace(name="sparse", seconds=1e9)
    begun = record.Record("sparse", options, ["--repeat", "1"])
    results.compose(tmp_path / "results", tmp_path)
    assert "Missing: what is not shown" in (tmp_path / "RESULTS.md").read_text()
    begun.add({"image": "small", "contender": "ours"}, [{"wall_s": 0.25, "growth_bytes": 2**20}])
    results.compose(tmp_path / "results", tmp_path)
    text = (tmp_path / "RESULTS.md").read_text()
    assert "| small | ours      | 0.25    | 1           |" in text
    assert "Missing: what is not shown" in text and "python -m benchmarks.sparse --repeat 1" in text
    begun.close()
    results.compose(tmp_path / "results", tmp_path)
    assert "Missing: what is not shown" not in (tmp_path / "RESULTS.md").read_text()


def test_cases_that_the_time_does_not_suffice_for_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "RESULTS", tmp_path)
    late = record.Record("sparse", Namespace(name="sparse", seconds=0.0), [])
    assert list(late.within(["planes", "cubes"])) == []
    late.close()
    missing = json.loads((tmp_path / "sparse.json").read_text())["missing"]
    assert missing == ["planes: the time was up", "cubes: the time was up"]


def test_ratios_are_medians_of_the_rounds_and_errors_are_shown() -> None:
    rows = [
        row("ours", 1.0, 2.0, 4.0),
        row("slow", 2.0, 6.0, 16.0),
        row("floor", 0.5, 0.5, 4.0),
        row("broken", error="KeyError: 'z'"),
    ]
    head, _, *lines = (
        [cell.strip() for cell in line.strip("|").split("|")] for line in tables.table(rows).splitlines()
    )
    assert head == ["image", "contender", "wall, s", "times ours", "spread", "failed with"]
    assert lines == [
        ["planes", "ours", "2", "-", "150%", "-"],
        ["planes", "slow", "6", "3.00", "233%", "-"],
        ["planes", "floor", "0.5", "1 / 2.00", "700%", "-"],
        ["planes", "broken", "-", "-", "-", "KeyError: 'z'"],
    ]


def test_rows_of_other_cases_are_not_compared_and_any_of_ours_will_do() -> None:
    planes, cubes = ([row("ours, new image", s), row("theirs", 6.0)] for s in (2.0, 3.0))
    for other in cubes:
        other["labels"] = {**other["labels"], "image": "cubes"}
    ratios = [tables.times_ours(found, planes + cubes) for found in planes + cubes]
    assert ratios == [1.0, 3.0, 1.0, 2.0]


def test_printed_tables_become_rows_and_the_rest_stays_text() -> None:
    text = """20 ms per request, 2 threads
image          contender    wall, s  growth, MiB
small chunks        ours       0.88        1,024
small chunks        ngio      failed: a   b   c
other table      chunks       s
1-D             1000000    2.47
"""
    rows, rest = parsed(text)
    expected = row("ours", 0.88)
    expected["labels"]["image"] = "small chunks"
    expected["runs"][0]["growth_bytes"] = 2**30
    assert rows == [expected]
    assert [line.split()[0] for line in rest.splitlines()] == ["20", "small", "other", "1-D"]


def test_a_table_without_ours_compares_nothing() -> None:
    assert "times ours" not in tables.table([row("theirs", 1.0)])


@pytest.mark.parametrize("piece", pieces.PIECES.values(), ids=list(pieces.PIECES))
def test_a_piece_leaves_the_record_it_is_named_after(piece: pieces.Piece) -> None:
    (name,) = (name for name, other in pieces.PIECES.items() if other is piece)
    for options in map(shlex.split, (piece.options, piece.smoke)):
        named = options[options.index("--name") + 1] if "--name" in options else piece.module
        assert named == name
    assert record.about(piece.module)


SMALL = (
    images.Geometry("planes", (6, 64, 136), (1, 16, 16), None, (1, 2, 2)),
    images.Geometry("cubes", (32, 32, 168), (8, 8, 8), None, (2, 2, 2)),
    images.Geometry("cubes-sharded", (32, 64, 320), (4, 16, 16), (8, 16, 16), (2, 2, 2)),
)


@pytest.mark.parametrize("geometry", images.GEOMETRIES, ids=lambda geometry: geometry.name)
def test_an_image_is_of_any_size(geometry: images.Geometry) -> None:
    size = record.parser_of("regions", None, size="2GiB").parse_args(["--size", "1TiB"]).size
    assert geometry.at_most(size).n_bytes == size == 2**40


@pytest.mark.parametrize("geometry", SMALL, ids=lambda geometry: geometry.name)
def test_an_image_stored_around_regions_is_consistent_there_and_only_there(
    geometry: images.Geometry, tmp_path: Path
) -> None:
    drawn = regions.random_regions(geometry, 2)
    regions.make_consistent(tmp_path / "part", geometry, drawn)
    part: Any = zarr.open_group(tmp_path / "part", mode="r")
    boxes = regions.stored_boxes(geometry, drawn)
    assert all(part["0"][tuple(slice(*ab) for ab in box)].min() > 0 for box in boxes)
    n_stored = sum(math.prod(-(-(b - a) // u) for (a, b), u in zip(box, geometry.unit, strict=True)) for box in boxes)
    assert len(images.objects_of(tmp_path / "part", 0)) == n_stored
    assert n_stored < math.prod(-(-n // u) for n, u in zip(geometry.shape, geometry.unit, strict=True))
    assert not zg.verify(tmp_path / "part", method="linear").is_stale


@pytest.mark.parametrize("geometry", SMALL, ids=lambda geometry: geometry.name)
def test_a_rebuild_of_the_regions_restores_what_is_spoiled_under_them(
    geometry: images.Geometry, tmp_path: Path
) -> None:
    drawn = regions.random_regions(geometry, 3)
    regions.make_consistent(tmp_path / "all", geometry, None)
    right = regions.digest(tmp_path / "all", geometry, drawn)
    regions.spoil(tmp_path / "all", geometry, drawn)
    assert regions.digest(tmp_path / "all", geometry, drawn) != right
    zg.consolidate(tmp_path / "all", method="linear", regions=drawn[:-1])
    assert regions.digest(tmp_path / "all", geometry, drawn) != right
    zg.consolidate(tmp_path / "all", method="linear", regions=drawn)
    assert regions.digest(tmp_path / "all", geometry, drawn) == right
    assert not zg.verify(tmp_path / "all", method="linear").is_stale
