"""Nothing in the examples is marked by the schemas for editors."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import referencing
import yaml

ROOT = Path(__file__).resolve().parents[2]
SCHEMAS = ROOT / "docs" / "schemas"
EXAMPLES = sorted(ROOT.glob("examples/*/*.yaml"))


def schemas(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """This schema and every one below it."""
    yield node
    below = [*node.get("properties", {}).values()]
    below += [node[key] for key in ("items", "additionalProperties") if key in node]
    for schema in below:
        yield from schemas(schema)


@functools.cache
def validator() -> jsonschema.Draft7Validator:
    def retrieved(name: str) -> referencing.Resource[Any]:
        return referencing.Resource.from_contents(json.loads((SCHEMAS / name).read_text()))

    whole = json.loads((SCHEMAS / "duepoint.json").read_text())
    return jsonschema.Draft7Validator(whole, registry=referencing.Registry(retrieve=retrieved))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.parent.name)
def test_an_example_names_the_schema_and_nothing_in_it_is_marked(path: Path) -> None:
    comment = re.match(r"# yaml-language-server: \$schema=(\S+)\n", path.read_text())
    assert comment is not None
    assert (path.parent / comment[1]).resolve() == SCHEMAS / "duepoint.json"
    for document in filter(None, yaml.safe_load_all(path.read_text())):
        assert list(validator().iter_errors(json.loads(json.dumps(document)))) == []
