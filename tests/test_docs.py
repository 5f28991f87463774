"""What the documentation shows is run: Python blocks, docstring examples."""

import ast
import doctest
import importlib
import os
import pkgutil
import re
import runpy
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

import ziggurat
from clusters import forking
from gcs import gcs
from s3 import s3

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


@pytest.fixture(scope="module")
def buckets() -> Iterator[dict[str, str]]:
    """Run an S3 server and Google's; return the environment in which clients find them, and look nowhere else."""
    with s3() as server, gcs() as google:
        yield {
            "AWS_ENDPOINT_URL": server.url,
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
            "AWS_EC2_METADATA_DISABLED": "true",
            "STORAGE_EMULATOR_HOST": google.url,
            "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",
            "NO_GCE_CHECK": "true",
            "GOOGLE_APPLICATION_CREDENTIALS": "",
            "NO_PROXY": "127.0.0.1",
        }


def run(path: Path, environment: dict[str, str]) -> None:
    """Run a script as `python -W error` does, in this process, which is there for nothing else."""
    said = os.open(path.with_suffix(".txt"), os.O_WRONLY | os.O_CREAT)
    os.dup2(said, 1)
    os.dup2(said, 2)
    os.environ.update(environment)
    os.chdir(path.parent)
    sys.argv = [str(path)]
    warnings.resetwarnings()
    warnings.simplefilter("error")
    runpy.run_path(str(path), run_name="__main__")


@pytest.mark.parametrize("page", PAGES[1:], ids=relative)
def test_page(page: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    # In a process of its own: what a page configures ends with it. It is forked from one that has imported what pages
    # need, which takes most of them longer than all that they do.
    text = script(page)
    path = tmp_path / f"{page.stem}.py"
    path.write_text(text, encoding="utf-8")
    environment = request.getfixturevalue("buckets") if "s3://" in text else {}
    process = forking().Process(target=run, args=(path, environment))
    process.start()
    process.join(240)
    process.kill()
    process.join()
    assert process.exitcode == 0, path.with_suffix(".txt").read_text(encoding="utf-8")


def test_the_first_page_alone(tmp_path: Path) -> None:
    """As its readers run it: nothing that it imports warns."""
    path = tmp_path / "page.py"
    path.write_text(script(PAGES[0]), encoding="utf-8")
    command = [sys.executable, "-W", "error", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_what_takes_a_cluster_to_run_can_be_read(page: Path) -> None:
    for text in re.findall(r"^```text\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
        assert "import ziggurat" not in text or ast.parse(text).body


def test_readme_has_an_example() -> None:
    assert BLOCK.search(PAGES[0].read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name: str) -> None:
    results = doctest.testmod(importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert results.failed == 0, "the examples that failed are printed above"
