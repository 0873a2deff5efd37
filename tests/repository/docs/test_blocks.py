"""Manifests and values in the blocks of the pages are valid."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from click.testing import CliRunner

from duepoint import cli
from tests.support import pageblocks

ROOT = Path(__file__).resolve().parents[3]
VALUES = json.loads((ROOT / "charts/duepoint/values.schema.json").read_text())
DEFAULTS = yaml.safe_load((ROOT / "charts/duepoint/values.yaml").read_text())
#: Name of the page, and the document, of each YAML document in a block.
DOCUMENTS = [
    (page.stem, document)
    for page, text in pageblocks.fenced("yaml")
    for document in yaml.load_all(text, Loader=yaml.CSafeLoader)
    if isinstance(document, dict)
]
MANIFESTS = [
    pytest.param(document, id=f"{page}: {document['kind']}")
    for page, document in DOCUMENTS
    if str(document.get("apiVersion")).startswith("duepoint.dev/")
]
#: Values of the chart.
CHOSEN = [
    pytest.param(document, id=f"{page}: {' '.join(document)}")
    for page, document in DOCUMENTS
    if "kind" not in document and document.keys() <= VALUES["properties"].keys()
]


@pytest.mark.parametrize("document", MANIFESTS)
def test_a_manifest_is_valid(document: dict[str, Any]) -> None:
    shown = CliRunner().invoke(cli.commands, ["validate", "-"], input=json.dumps(document))
    assert shown.exit_code == 0, shown.output


@pytest.mark.parametrize("values", CHOSEN)
def test_values_are_ones_that_the_chart_has(values: dict[str, Any]) -> None:
    jsonschema.Draft7Validator(VALUES).validate(_laid_over(DEFAULTS, values))


def _laid_over(defaults: Any, values: Any) -> Any:
    """What Helm makes of the chart's values and these."""
    if not isinstance(defaults, dict) or not isinstance(values, dict):
        return values
    return defaults | {name: _laid_over(defaults.get(name), each) for name, each in values.items()}
