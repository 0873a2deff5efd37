"""The JSON Schemas for editors take every example, and mark what an editor should mark."""

from __future__ import annotations

import copy
import functools
import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import referencing
import yaml

ROOT = Path(__file__).resolve().parents[3]
SCHEMAS = ROOT / "docs" / "schemas"
EXAMPLES = sorted(ROOT.glob("examples/*/*.yaml"))
COMMENT = re.compile(r"# yaml-language-server: \$schema=(\S+)\n")


@functools.cache
def _validator() -> jsonschema.Draft7Validator:
    def read(name: str) -> referencing.Resource[Any]:
        return referencing.Resource.from_contents(json.loads((SCHEMAS / name).read_text()))

    whole = json.loads((SCHEMAS / "duepoint.json").read_text())
    return jsonschema.Draft7Validator(whole, registry=referencing.Registry(retrieve=read))


def _marks(document: dict[str, Any]) -> list[str]:
    return [error.json_path for error in _validator().iter_errors(document)]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.parent.name)
def test_an_example_names_its_schema_and_nothing_in_it_is_marked(path: Path) -> None:
    comment = COMMENT.match(path.read_text())
    assert comment is not None
    assert (path.parent / comment[1]).resolve() == SCHEMAS / "duepoint.json"
    documents = [each for each in yaml.safe_load_all(path.read_text()) if each]
    assert documents
    assert [mark for each in documents for mark in _marks(json.loads(json.dumps(each)))] == []


def test_every_kind_has_an_example_or_a_schema_of_its_own() -> None:
    names = {path.name for path in SCHEMAS.iterdir()}
    assert names == {"duepoint.json", "schedule.json", "schedulerun.json", "scheduleset.json"}
    kinds = {each["kind"] for path in EXAMPLES for each in yaml.safe_load_all(path.read_text())}
    assert {"Schedule", "ScheduleSet"} <= kinds


SCHEDULE: dict[str, Any] = {
    "apiVersion": "duepoint.dev/v1alpha1",
    "kind": "Schedule",
    "metadata": {"name": "report"},
    "spec": {"schedule": "@daily", "webhook": {"url": "https://[::1]:8443/x"}},
}


JOB_OF_TOMORROW = {
    "spec": {
        "template": {
            "spec": {"containers": [{"name": "main", "image": "x", "newField": 1}], "newField": 2}
        }
    }
}


def _changed(path: str, value: object) -> dict[str, Any]:
    made = copy.deepcopy(SCHEDULE)
    *above, last = path.split(".")
    place = made
    for name in above:
        place = place.setdefault(name, {})
    place[last] = value
    return made


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("spec.timezone", "Europe/Rome"),
        ("spec.catchUpPolicy", "Newest"),
        ("spec.dst.gap", "Never"),
        ("spec.webhook.method", "FETCH"),
        ("spec.webhook.url", "ftp://x"),
        ("spec.webhook.timeoutSeconds", 301),
        ("spec.webhook.timeoutSeconds", "10"),
        ("spec.jitter", "five minutes"),
        ("specs", {}),
        ("apiVersion", "duepoint.dev/v1"),
    ],
)
def test_what_is_wrong_is_marked(path: str, value: object) -> None:
    assert _marks(SCHEDULE) == []
    assert _marks(_changed(path, value)) != []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("spec.dst.gap", None),
        ("spec.catchUpPolicy", "All"),
        ("spec.jitter", "5m"),
        ("spec.jobTemplate", JOB_OF_TOMORROW),
    ],
)
def test_null_and_fields_of_a_newer_kubernetes_are_not_marked(path: str, value: object) -> None:
    assert _marks(_changed(path, value)) == []


def test_a_document_of_another_kind_is_not_marked() -> None:
    assert _marks({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"}}) == []
