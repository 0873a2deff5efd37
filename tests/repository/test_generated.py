"""What is written from sources is what the sources give today."""

from __future__ import annotations

import json

from tools import chartdoc, generate
from tools.release import versions


def test_what_is_made_of_sources_is_current() -> None:
    """What Helm makes is compared in tests/integration, where there is Helm."""
    stale = [str(path) for path, text in generate.wanted() if path.read_text() != text]
    assert stale == [], "make generate"


def test_package_and_chart_have_one_version() -> None:
    assert versions.differing() == []


def test_the_schema_of_the_chart_has_every_value_and_takes_no_misspelt_one() -> None:
    schema = json.loads((chartdoc.CHART / "values.schema.json").read_text())

    def opened(part: dict, path: str):
        if "properties" in part and part.get("additionalProperties") is not False:
            yield path
        for key, below in part.get("properties", {}).items():
            yield from opened(below, f"{path}.{key}")

    def described(path: str) -> bool:
        part = schema
        for name in path.split("."):
            part = part.get("properties", {}).get(name)
            if part is None or "properties" not in part:
                return part is not None
        return True

    assert list(opened(schema, "")) == []
    rows = chartdoc.rows(chartdoc.VALUES.read_text())
    assert [row.path for row in rows if not described(row.path)] == []
