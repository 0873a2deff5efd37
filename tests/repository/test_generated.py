"""What is written from sources is what the sources give today."""

from __future__ import annotations

import json

import pytest

from tools import chartdoc, httpapidoc, settingsdoc, syncclient
from tools.jobschema import __main__ as jobschema
from tools.release import versions
from tools.up import installation

WRITTEN = {
    "chartdoc": lambda text: chartdoc.page(text, chartdoc.VALUES.read_text()),
    "settingsdoc": lambda _: settingsdoc.page(),
    "httpapidoc": httpapidoc.page,
}


@pytest.mark.parametrize(
    "module", [chartdoc, settingsdoc, httpapidoc], ids=lambda each: each.__name__
)
def test_the_tables_of_a_page_are_current(module) -> None:
    name = module.__name__.removeprefix("tools.")
    text = module.PAGE.read_text()
    assert text == WRITTEN[name](text), f"run python -m tools.{name}"


def test_the_blocking_client_is_what_the_asynchronous_one_gives() -> None:
    assert syncclient.TARGET.read_text() == syncclient.generated(syncclient.SOURCE.read_text())


def test_crds_their_copy_in_the_chart_and_the_editors_schemas_are_current() -> None:
    stale = [
        str(path.relative_to(jobschema.ROOT))
        for path, text in jobschema.wanted_files().items()
        if path.read_text() != text
    ]
    assert stale == [], "run python -m tools.jobschema"


def test_the_rendered_chart_of_make_up_is_of_the_chart_of_today() -> None:
    """Its content is compared where there is Helm: tests/integration/test_up_rendered.py."""
    mark, _, _ = installation.RENDERED.read_text().partition("\n")
    assert mark == installation.mark_of_today(), "make generate"


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
