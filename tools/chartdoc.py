"""The table of values in charts/duepoint/README.md, made from charts/duepoint/values.yaml.

The meaning of a value is the comment directly above it; a value without one is described by its
parents' comments and its name.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path

import yaml

CHART = Path(__file__).resolve().parent.parent / "charts" / "duepoint"
VALUES = CHART / "values.yaml"
PAGE = CHART / "README.md"
BEGIN = "<!-- values: written by `make generate` from values.yaml -->\n"
END = "<!-- end of values -->\n"


@dataclasses.dataclass(frozen=True, slots=True)
class Value:
    """One row: a value, or a group of values if it has no default of its own."""

    path: str
    default: str
    meaning: str


def rows(text: str) -> Iterator[Value]:
    """Yield every value of a values.yaml in order, commented groups before their values."""
    document = yaml.compose(text, Loader=yaml.SafeLoader)
    assert isinstance(document, yaml.MappingNode)
    yield from _of(document, "", text.splitlines())


def _of(mapping: yaml.MappingNode, prefix: str, lines: list[str]) -> Iterator[Value]:
    for key, value in mapping.value:
        path = f"{prefix}{key.value}"
        meaning = _comment_above(key.start_mark.line, key.start_mark.column, lines)
        if isinstance(value, yaml.MappingNode) and value.value and not value.flow_style:
            if meaning:
                yield Value(path, "", meaning)
            yield from _of(value, f"{path}.", lines)
        else:
            yield Value(path, json.dumps(_plain(value)), meaning)


def _plain(node: yaml.Node) -> object:
    loader = yaml.SafeLoader("")
    return loader.construct_document(node)


def _comment_above(line: int, column: int, lines: list[str]) -> str:
    """Return the comment lines directly above a key, at its own indentation, as one text."""
    found: list[str] = []
    while line > 0 and lines[line - 1].startswith(" " * column + "#"):
        line -= 1
        found.insert(0, lines[line].strip().removeprefix("#"))
    if line == 0:  # the comment at the top describes the file
        return ""
    examples = [each for each in found if each.startswith("   ")]
    told = " ".join(each.strip() for each in found if each not in examples)
    shown = "; ".join(f"`{' '.join(each.split())}`" for each in examples)
    return f"{told} {shown}".strip()


def table(text: str) -> str:
    """Return the values as a Markdown table."""
    lines = ["| value | default | meaning |", "|---|---|---|"]
    for row in rows(text):
        default = f"`{row.default}`" if row.default else ""
        meaning = row.meaning.replace("|", "\\|")
        lines.append(f"| `{row.path}` | {default.replace('|', chr(92) + '|')} | {meaning} |")
    return "\n".join(lines) + "\n"


def page() -> str:
    """Return the README with a current table of values."""
    head, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n{table(VALUES.read_text())}\n{END}{tail}"
