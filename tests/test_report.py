"""The records that a rebuild hands out."""

import json
import math
from dataclasses import FrozenInstanceError, replace

import pytest

from ziggurat.report import LevelReport, Progress, Report
from ziggurat.text import format_bytes

LEVELS = (
    LevelReport("1", (3, 705, 705), n_units=27, n_units_total=27, bytes_written=1_491_075),
    LevelReport("2", (3, 352, 352), n_units=2, n_units_total=12, bytes_written=371_712),
)
REPORT = Report("retina.zarr", "mean", "numpy", "6 MB to read", LEVELS, 1, 5_972_763, 9_000_000, 1.5)


def test_totals_are_sums_over_levels() -> None:
    assert (REPORT.n_units, REPORT.bytes_written) == (29, 1_862_787)
    empty = replace(REPORT, levels=())
    assert (empty.n_units, empty.bytes_written) == (0, 0)


def test_records_are_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        REPORT.mode = "dask"  # type: ignore[misc]


def test_to_dict_survives_json() -> None:
    data = json.loads(json.dumps(REPORT.to_dict()))
    assert data["levels"][1] == {
        "name": "2",
        "shape": [3, 352, 352],
        "n_units": 2,
        "n_units_total": 12,
        "bytes_written": 371_712,
        "write_s": 0.0,
        "n_gets": 0,
        "n_sets": 0,
        "bytes_per_s": 0.0,
    }
    assert (data["n_units"], data["bytes_written"], data["elapsed_s"]) == (29, 1_862_787, 1.5)


def test_text_is_a_plain_aligned_table() -> None:
    heading, *table, totals = str(REPORT).splitlines()
    assert heading == "retina.zarr: mean on numpy (6 MB to read)"
    assert [line.split() for line in table[1:]] == [
        ["1", "3", "x", "705", "x", "705", "27", "of", "27", "1.4", "MiB"],
        ["2", "3", "x", "352", "x", "352", "2", "of", "12", "363.0", "KiB"],
    ]
    assert len({len(line) for line in table}) == 1
    assert totals == "1 task, read 5.7 MiB, wrote 1.8 MiB in 1.50 s, at most 8.6 MiB per task"
    assert str(REPORT).isascii()


def test_text_without_levels() -> None:
    assert len(str(replace(REPORT, levels=())).splitlines()) == 3


def test_html_escapes_what_it_was_given() -> None:
    evil = replace(REPORT, where="<script>x</script>", levels=(replace(LEVELS[0], name='"><b>'),))
    html = evil._repr_html_()
    assert "<script" not in html and "<b>" not in html
    assert "&lt;script&gt;" in html and "&quot;&gt;&lt;b&gt;" in html
    assert html.count("<tr>") == 2


def test_html_fixes_no_colour() -> None:
    html = REPORT._repr_html_()
    assert "#" not in html and "background" not in html and html.count("color:") == html.count("color:inherit")


@pytest.mark.parametrize(
    ("n_bytes", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (2**20 - 1, "1.0 MiB"),
        (2**30 * 1.5, "1.5 GiB"),
        (2**70, "1024.0 EiB"),
    ],
)
def test_format_bytes(n_bytes: float, text: str) -> None:
    assert format_bytes(n_bytes) == text


def test_progress_before_during_and_after() -> None:
    start = Progress(level=1, n_units=0, n_units_total=10, bytes_done=0, elapsed_s=0.0)
    assert (start.fraction, start.bytes_per_s, start.remaining_s) == (0.0, 0.0, math.inf)
    part = replace(start, n_units=2, bytes_done=600, elapsed_s=3.0)
    assert (part.fraction, part.bytes_per_s, part.remaining_s) == (0.2, 200.0, 12.0)
    end = replace(part, n_units=10, elapsed_s=15.0)
    assert (end.fraction, end.remaining_s) == (1.0, 0.0)


def test_progress_of_nothing_is_complete() -> None:
    nothing = Progress(level=1, n_units=0, n_units_total=0, bytes_done=0, elapsed_s=0.1)
    assert (nothing.fraction, nothing.remaining_s) == (1.0, 0.0)
