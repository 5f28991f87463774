"""Writes what the pages say about the code from the code itself, each time they are built; a hook of MkDocs.

A line ``<!-- settings -->``, ``<!-- commands -->`` or ``<!-- results -->`` in a page is replaced by what it names.
"""

import json
import re
from collections.abc import Callable, Iterator
from html import unescape
from pathlib import Path
from typing import Any

import typer
from typer.cli import get_docs_for_click

from ziggurat.cli import app
from ziggurat.config import Config

__all__ = ["commands", "on_page_markdown", "results", "settings"]


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Fill a page in; MkDocs calls this for each."""
    for name, write in PARTS.items():
        markdown = markdown.replace(f"<!-- {name} -->", write()) if f"<!-- {name} -->" in markdown else markdown
    return markdown


def commands() -> str:
    """Return what ``--help`` says about every command."""
    command = typer.main.get_command(app)
    text = get_docs_for_click(obj=command, ctx=typer.Context(command), name="ziggurat")
    # Types look like tags of HTML; the page has a title of its own; the lines of examples are one block.
    text = re.sub(r"<(?:list\[)?([\w|.]+)\]?>(?=`)", r"\1", unescape(text)).partition("\n")[2]
    return re.sub(r"(?:^ziggurat .+\n+)+", _block, text, flags=re.MULTILINE)


def _block(lines: re.Match[str]) -> str:
    return "```sh\n" + re.sub(r"\n+", "\n", lines[0]) + "```\n\n"


def settings() -> str:
    """Return one table per section of the configuration: its keys, what they may be, their defaults and meanings."""
    schema = Config.model_json_schema()
    sections = _resolved(schema["properties"], schema["$defs"])
    return "\n".join(line for name, section in sections.items() for line in _section(name, section))


def _resolved(node: Any, models: dict[str, Any]) -> Any:
    """Return a part of a JSON schema with what it refers to put in place."""
    if isinstance(node, list):
        return [_resolved(part, models) for part in node]
    if not isinstance(node, dict):
        return node
    here = {key: _resolved(value, models) for key, value in node.items() if key != "$ref"}
    return _resolved(models[node["$ref"].rpartition("/")[2]], models) | here if "$ref" in node else here


def _section(name: str, section: dict[str, Any]) -> Iterator[str]:
    yield f"## {name}\n\n{section['description']}\n"
    yield "| key | value | default | meaning |\n|---|---|---|---|"
    for key, field in section["properties"].items():
        yield from _rows(f"{name}.{key}", field)
    yield ""


def _rows(key: str, field: dict[str, Any]) -> Iterator[str]:
    """Yield the row of a setting; one that is a choice of models is followed by the keys of these."""
    strategies = {m["properties"]["strategy"]["const"]: m for m in field.get("anyOf", ()) if "properties" in m}
    meaning = " ".join(field["description"].split())
    if not strategies:
        yield f"| `{key}` | {_kind(field)} | `{json.dumps(field.get('default', []))}` | {meaning} |"
        return
    names = " or ".join(f"`{name}`" for name in strategies)
    yield f"| `{key}` | {names}, or an object with the following keys | `exponential` | {meaning} |"
    meaning = " ".join(f"`{name}`: {' '.join(m['description'].split())}" for name, m in strategies.items())
    yield f"| `{key}.strategy` | {names} | `exponential` | {meaning} |"
    for name, inner in strategies["exponential"]["properties"].items():
        if name != "strategy":
            yield from _rows(f"{key}.{name}", inner)


def _kind(field: dict[str, Any]) -> str:
    """Say in words what a JSON schema allows."""
    if "anyOf" in field:
        return " or ".join(_kind(part) for part in field["anyOf"])
    if field["type"] == "array":
        return f"list of {_kind(field['items'])}"
    words = {"null": "`null`", "string": "text", "boolean": "`true` or `false`"}
    low, high = field.get("minimum"), field.get("maximum")
    bounds = f" {low:g} to {high:g}" if high is not None else f" ≥ {low:g}" if low is not None else ""
    return words.get(field["type"], field["type"]) + bounds


def results() -> str:
    """Return the results of the benchmarks as a part of a page: its headings are no titles."""
    text = (Path(__file__).parents[1] / "benchmarks" / "RESULTS.md").read_text(encoding="utf-8")
    return re.sub(r"^#", "###", text, flags=re.MULTILINE)


PARTS: dict[str, Callable[[], str]] = {"settings": settings, "commands": commands, "results": results}
