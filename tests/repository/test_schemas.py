"""Nothing in the examples is marked by the schema for editors."""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path

import jsonschema
import pytest
import yaml

from tools.jobschema import editors

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = ROOT / "docs" / "schemas" / "duepoint.json"
EXAMPLES = sorted(ROOT.glob("examples/*/*.yaml"))


@functools.cache
def validator() -> jsonschema.Draft7Validator:
    return jsonschema.Draft7Validator(json.loads(editors.text()))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.parent.name)
def test_an_example_names_the_schema_and_nothing_in_it_is_marked(path: Path) -> None:
    comment = re.match(r"# yaml-language-server: \$schema=(\S+)\n", path.read_text())
    assert comment is not None
    assert (path.parent / comment[1]).resolve() == SCHEMA
    for document in filter(None, yaml.safe_load_all(path.read_text())):
        assert list(validator().iter_errors(json.loads(json.dumps(document)))) == []
