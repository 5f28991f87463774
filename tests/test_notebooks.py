"""The notebooks: each runs from top to bottom in a kernel of its own, and is kept without what it printed."""

from itertools import pairwise
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))


def name(path: Path) -> str:
    return path.stem


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name)
def test_runs(path: Path, tmp_path: Path) -> None:
    book = nbformat.read(path, as_version=4)
    NotebookClient(book, timeout=240, resources={"metadata": {"path": str(tmp_path)}}).execute()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name)
def test_is_kept_without_outputs(path: Path) -> None:
    book = nbformat.read(path, as_version=4)
    nbformat.validate(book)
    cells = [cell for cell in book.cells if cell.cell_type == "code"]
    assert len(cells) > 3
    for cell in cells:
        assert not cell.outputs, "clear the outputs before committing: jupyter nbconvert --clear-output --inplace"
        assert cell.execution_count is None


def test_each_leads_to_the_next() -> None:
    for path, following in pairwise(NOTEBOOKS):
        last = nbformat.read(path, as_version=4).cells[-1].source
        assert f"]({following.name})" in last, f"the last cell of {path.name} does not link to {following.name}"
