"""The house: imports point up the list only, and each library has its owners."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import ziggurat

SOURCE = Path(ziggurat.__file__).parent

# Finest grained first: a module imports only what stands before it.
ORDER = [
    *("errors", "text", "boxes", "geometry", "chunkaxis", "chunkgrid", "grid", "layout", "settings", "config"),
    *(
        "_taps",
        "_codes",
        "_jit_calls",
        "_jit_blosc",
        "_jit_chunks",
        "_jit_store",
        "_jit_perform",
        "_jit",
        "_jit_ranks",
        "_jit_taps",
        "_generic",
        "_hot",
        "kernels",
    ),
    *("steps", "peaks", "decodes", "stages", "regions", "dirty", "forest", "gathering", "plan_face", "planning"),
    *("policy", "runtime", "watching", "counted", "remote", "retry", "store"),
    *("rooms", "codecs", "encoded", "encoding", "shards", "files", "storing", "direct", "handle", "sidecar"),
    *("blocks", "orders", "cascade", "climbing", "tasks", "graph", "pulse", "cluster", "engines", "inmemory"),
    *("sources", "virtual", "mosaic", "streaming"),
    *("listing", "validation", "ngff", "geozarr", "metadata", "create", "provenance", "datatree"),
    *("changes", "roi", "tabular", "patches", "pictures", "planes", "faces", "places"),
    *("pyramid", "opening", "tables", "given", "image", "labels"),
    *("events", "report", "verification", "display", "tell", "job", "api", "complete", "building", "trees"),
    *("drawing", "previewing"),
    *("readers", "details", "parsing", "testing", "demo", "serving", "viewing"),
    *("options", "cli_rebuild", "cli_images", "cli_preview", "cli_view", "cli"),
]

OWNERS = {
    "zarr": {
        *(
            "counted",
            "remote",
            "retry",
            "runtime",
            "sidecar",
            "store",
            "storing",
            "codecs",
            "direct",
            "handle",
            "tabular",
            "testing",
            "watching",
            "demo",
        ),
        *("create", "provenance", "image", "labels", "complete", "readers", "serving"),
    },
    "dask": {"engines", "graph", "tabular", "sources", "datatree", "readers"},
    "xarray": {"datatree"},
    "cloudpickle": {"engines", "provenance"},
    "distributed": {"cluster", "pulse"},
    "numba": {
        "_jit",
        "_jit_blosc",
        "_jit_calls",
        "_jit_chunks",
        "_jit_perform",
        "_jit_ranks",
        "_jit_store",
        "_jit_taps",
    },
    "tenacity": {"policy"},
    "filelock": {"changes"},
    "matplotlib": {"drawing"},
    "yaozarrs": {"validation"},
    "pydantic": {"settings", "config", "validation"},
    "typer": {"parsing", "options", "cli_rebuild", "cli_images", "cli_preview", "cli_view", "cli"},
    "rich": {"cli", "display", "details"},
}

PURE = [
    *("errors", "text", "boxes", "geometry", "chunkaxis", "chunkgrid", "grid", "layout"),
    *("steps", "peaks", "decodes", "stages", "regions", "dirty", "forest", "gathering", "plan_face", "planning"),
]


def modules():
    return sorted(path.stem for path in SOURCE.glob("*.py") if path.stem != "__init__")


def imports(name):
    """Return the modules that a module imports when it runs, without those for type checkers alone."""
    tree = ast.parse((SOURCE / f"{name}.py").read_text())
    found = set()
    for node in _running(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


def _running(tree):
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
            continue
        yield node
        yield from _running(node)


def test_every_module_has_its_place():
    assert modules() == sorted(ORDER)


@pytest.mark.parametrize("name", ORDER)
def test_imports_point_up_the_list(name):
    ours = {m.split(".")[1] for m in imports(name) if m.startswith("ziggurat.")} & set(ORDER)
    if name != "cli":
        assert ours <= set(ORDER[: ORDER.index(name)])


@pytest.mark.parametrize("library", OWNERS)
def test_each_library_has_its_owners(library):
    users = {name for name in ORDER if any(m.split(".")[0] == library for m in imports(name))}
    assert users <= OWNERS[library]


@pytest.mark.parametrize("name", PURE)
def test_what_plans_is_pure(name):
    outside = {m.split(".")[0] for m in imports(name)} - {"ziggurat", "numpy"} - set(sys.stdlib_module_names)
    assert not outside


def test_importing_ziggurat_loads_nothing_heavy():
    heavy = ("zarr", "dask", "numba", "xarray", "matplotlib")
    code = f"import sys, ziggurat; print([m for m in {heavy} if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.parametrize("name", ORDER)
def test_files_stay_small(name):
    # stages.py is one piece of arithmetic; splitting it would not make it easier to read.
    assert len((SOURCE / f"{name}.py").read_text().splitlines()) <= 300
