"""The documentation as a site: it is built strictly, from what the code says, and its links and figures hold."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from html import unescape
from pathlib import Path
from types import ModuleType

import pytest
import typer

import ziggurat
from ziggurat import options
from ziggurat.cli import app
from ziggurat.config import Config, describe, read_config
from ziggurat.kernels import METHODS

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
READABLE = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]


def script(name: str) -> ModuleType:
    """Import a script that lies among the pages."""
    spec = importlib.util.spec_from_file_location(f"docs_{name}", DOCS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def text_of(page: Path) -> str:
    return unescape(re.sub(r"<[^>]+>", "", page.read_text(encoding="utf-8")))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(place)]
    # What cannot be had from elsewhere must not be asked for.
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1", "HTTPS_PROXY": "http://127.0.0.1:9", "NO_COLOR": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return place


def test_every_page_is_in_the_navigation(site: Path) -> None:
    home = (site / "index.html").read_text(encoding="utf-8")
    for page in DOCS.rglob("*.md"):
        name = page.relative_to(DOCS).with_suffix("").as_posix()
        assert name == "index" or f'href="{name}/"' in home, name


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert not re.findall(r'<(?:script|img|iframe)[^>]+src="(?:https?:)?//', text), page
        assert not re.findall(r'<link[^>]+rel="(?:stylesheet|preconnect)"[^>]+href="(?:https?:)?//', text), page


def test_the_reference_has_every_public_name_setting_command_option_and_method(site: Path) -> None:
    api, configuration, cli, methods = (
        text_of(site / "reference" / name / "index.html") for name in ("api", "configuration", "cli", "methods")
    )
    lacking = [name for name in ziggurat.__all__ if not re.search(rf"\b{name}\b", api)]
    assert not lacking, "docs/reference/api.md lists what is public"
    assert not [key for key, _, _ in describe(Config()) if key not in configuration]
    assert (
        "<!--" not in (site / "reference" / "cli" / "index.html").read_text(encoding="utf-8").partition("<article")[2]
    )
    for name, command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
        assert f"ziggurat {name}" in cli
        assert not [p.name for p in command.params if max(p.opts, key=len) not in cli and p.param_type_name == "option"]
    assert not [name for name in METHODS if not re.search(rf"\b{name}\b", methods)]
    assert set(options.METHODS) == {"auto", *METHODS}


def test_a_setting_says_what_it_may_be() -> None:
    rows = script("generate").settings().splitlines()
    assert "| `dask.max_tasks` | integer ≥ 1 | `10000` |" in "\n".join(rows)
    assert any(row.startswith("| `io_retry.backoff.max_delay_s` | number ≥ 0 | `10.0` |") for row in rows)


def test_configuration_files_that_are_shown_are_accepted(tmp_path: Path) -> None:
    shown = re.findall(
        r"^```json\n(.*?)^```$", (DOCS / "reference/configuration.md").read_text(), re.MULTILINE | re.DOTALL
    )
    assert shown
    for k, text in enumerate(shown):
        path = tmp_path / f"{k}.json"
        path.write_text(text)
        assert read_config(path).model_dump(exclude_unset=True).keys() == json.loads(text).keys()


@pytest.mark.parametrize("page", READABLE, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for link in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        assert link.startswith("https://") or (page.parent / link).exists(), link
    # Notebooks are named, not linked: they lie outside of the site.
    for name in re.findall(r"`((?:notebooks|examples|benchmarks)/[\w./]+)`", text):
        assert (ROOT / name).exists(), name


def test_the_figures_are_those_that_were_measured() -> None:
    found = json.loads((ROOT / "benchmarks" / "results" / "run.json").read_text(encoding="utf-8"))
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert readme == script("figures").with_table(readme, found), "run: python docs/figures.py"
    pixels = {row["pixels"] for row in found["rows"] if "pixels" in row}
    assert pixels == {"equal"}, "the README says that the pixels are equal"


def test_the_picture_is_small_and_can_be_drawn_again(tmp_path: Path) -> None:
    kept = DOCS / "pictures" / "pyramid.png"
    script("picture").draw(tmp_path / "pyramid.png")
    assert all(1000 < path.stat().st_size < 100_000 for path in (kept, tmp_path / "pyramid.png"))
