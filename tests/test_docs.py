"""What the documentation shows is run: Python blocks, docstring examples."""

import doctest
import importlib
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import ziggurat

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
MODULES = [module.name for module in pkgutil.walk_packages(ziggurat.__path__, "ziggurat.")]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def script(page: Path) -> str:
    """Return the Python blocks of a page as one script, each line where the page has it."""
    text, lines = page.read_text(encoding="utf-8"), []
    blocks = list(BLOCK.finditer(text))
    assert len(blocks) == len(re.findall(r"^\s*```\s*py", text, re.MULTILINE)), "a Python block is not seen as one"
    for block in blocks:
        lines += [""] * (text.count("\n", 0, block.start(1)) - len(lines)) + block[1].splitlines()
    return "\n".join(lines)


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_page(page: Path, tmp_path: Path) -> None:
    # In a process of its own: what a page configures ends with it.
    path = tmp_path / f"{page.stem}.py"
    path.write_text(script(page), encoding="utf-8")
    command = [sys.executable, "-W", "error", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr


def test_readme_has_an_example() -> None:
    assert BLOCK.search(PAGES[0].read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name: str) -> None:
    results = doctest.testmod(importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert results.failed == 0, "the examples that failed are printed above"
