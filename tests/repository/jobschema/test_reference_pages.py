"""The reference pages name every field of the schema, and no field that does not exist."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tools.jobschema import expand

REFERENCE = Path(__file__).resolve().parents[3] / "docs" / "reference"
PAGES = [
    ("schedules", "schedule.md"),
    ("scheduleruns", "schedulerun.md"),
    ("schedulesets", "scheduleset.md"),
]


# Described elsewhere: by Kubernetes, and the targets of a set on the page of a Schedule.
FOREIGN = {
    "schedules": ("spec.jobTemplate.spec", "status.conditions", "status.active"),
    "scheduleruns": ("status.conditions",),
    "schedulesets": (
        "spec.jobTemplate",
        "spec.webhook",
        "spec.stream",
        "spec.kafka",
        "status.conditions",
    ),
}


def _paths(schema: dict[str, Any], foreign: tuple[str, ...], prefix: str = "") -> Iterator[str]:
    for name, field in schema.get("properties", {}).items():
        path = f"{prefix}.{name}".lstrip(".")
        yield path
        if path not in foreign:
            yield from _paths(field, foreign, path)
            yield from _paths(field.get("items", {}), foreign, f"{path}[]")


_documents = functools.cache(expand.custom_resource_definitions)


def _schema(plural: str) -> dict[str, Any]:
    document = _documents()[f"duepoint.dev_{plural}.yaml"]
    properties = document["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    return {"properties": {name: properties[name] for name in ("spec", "status")}}


@pytest.mark.parametrize(("plural", "page"), PAGES)
def test_every_field_has_a_place_on_its_page(plural: str, page: str) -> None:
    text = (REFERENCE / page).read_text()
    whole = set(_paths(_schema(plural), FOREIGN[plural]))
    rows = [line for line in text.splitlines() if line.startswith("|")]
    told = "\n".join(rows)
    missing = []
    for path in whole - {"spec", "status"}:
        parent, _, leaf = path.rpartition(".")
        # Either in full, or by its name in the row of its parent; a parent stands for its children.
        in_full = f"`{path}`" in told or f"`{path}." in told or f"`{path}[]" in told
        beside = any(f"`{parent.rstrip('[]')}`" in row and f"`{leaf}`" in row for row in rows)
        pair = leaf in ("name", "key") and ("Ref" in parent)
        if not (in_full or beside or pair):
            missing.append(path)
    assert sorted(missing) == []


@pytest.mark.parametrize(("plural", "page"), PAGES)
def test_every_field_on_a_page_exists(plural: str, page: str) -> None:
    rows = [line for line in (REFERENCE / page).read_text().splitlines() if line.startswith("|")]
    named = set(re.findall(r"`((?:spec|status)\.[\w.\[\]]+)`", "\n".join(rows)))
    known = set(_paths(_schema(plural), FOREIGN[plural]))
    assert named - known == set()


def test_the_targets_of_a_set_have_the_fields_of_a_schedules() -> None:
    schedule, of_set = (
        _schema(plural)["properties"]["spec"] for plural in ("schedules", "schedulesets")
    )
    for target in ("jobTemplate", "webhook", "stream", "kafka"):
        paths = [set(_paths(spec["properties"][target], ())) for spec in (schedule, of_set)]
        assert paths[0] == paths[1]
