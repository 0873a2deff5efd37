"""The table of values in the chart's README, and the schema of the values."""

from __future__ import annotations

import json

import yaml

from tools import chartdoc


def test_the_readme_lists_the_values_as_they_are() -> None:
    readme = chartdoc.PAGE.read_text()
    assert chartdoc.page(readme, chartdoc.VALUES.read_text()) == readme, (
        "run python -m tools.chartdoc"
    )


def test_a_meaning_is_the_comment_above_and_examples_keep_their_form() -> None:
    text = (
        "# the file\n\n# A port.\n#   8080  the usual one\nport: 8080\n"
        "group:\n  # On?\n  enabled: false\n"
    )
    assert list(chartdoc.rows(text)) == [
        chartdoc.Value("port", "8080", "A port. `8080 the usual one`"),
        chartdoc.Value("group.enabled", "false", "On?"),
    ]


def _closed(schema: dict, path: str):
    """Objects of the schema with named properties that would take a misspelt one."""
    if "properties" in schema and schema.get("additionalProperties") is not False:
        yield path
    for key, below in schema.get("properties", {}).items():
        yield from _closed(below, f"{path}.{key}")


def test_the_schema_is_closed_and_has_every_value() -> None:
    schema = json.loads((chartdoc.CHART / "values.schema.json").read_text())
    assert list(_closed(schema, "")) == []
    values = yaml.load(chartdoc.VALUES.read_text(), Loader=yaml.CSafeLoader)
    missing = []

    def walk(value: object, below: dict, path: str) -> None:
        if isinstance(value, dict) and "properties" in below:
            for key, each in value.items():
                if key in below["properties"]:
                    walk(each, below["properties"][key], f"{path}.{key}")
                else:
                    missing.append(f"{path}.{key}")

    walk(values, schema, "")
    assert missing == []


def test_a_section_that_is_left_empty_is_refused_by_name() -> None:
    """Helm takes a section with nothing below it for null, and so for none at all."""
    schema = json.loads((chartdoc.CHART / "values.schema.json").read_text())
    values = yaml.load(chartdoc.VALUES.read_text(), Loader=yaml.CSafeLoader)
    optional = []

    def walk(value: dict, below: dict, path: str) -> None:
        for key, each in value.items():
            inner = below["properties"][key]
            if isinstance(each, dict) and "properties" in inner:
                if key not in below.get("required", ()):
                    optional.append(f"{path}{key}")
                walk(each, inner, f"{path}{key}.")

    walk(values, schema, "")
    assert optional == [
        "metrics.prometheusRule",
        "metrics.dashboard",
        "metrics.kubeStateMetrics",
        "api.podDisruptionBudget",
    ]
