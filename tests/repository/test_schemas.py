"""The CRDs keep what they promise, and the schemas for editors mark what is wrong."""

from __future__ import annotations

import copy
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

from tools.jobschema import expand

ROOT = Path(__file__).resolve().parents[2]
SCHEMAS = ROOT / "docs" / "schemas"
EXAMPLES = sorted(ROOT.glob("examples/*/*.yaml"))
DEFAULTS = {"dst": {}, "gap": "RunOnce", "overlap": "First", "suspend": False, "method": "POST"}
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


def schemas(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """This schema and every one below it."""
    yield node
    below = [*node.get("properties", {}).values()]
    below += [node[key] for key in ("items", "additionalProperties") if key in node]
    for schema in below:
        yield from schemas(schema)


def fields(node: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [each for schema in schemas(node) for each in schema.get("properties", {}).items()]


_documents = functools.cache(expand.custom_resource_definitions)


def spec_of(plural: str) -> dict[str, Any]:
    (version,) = _documents()[f"duepoint.dev_{plural}.yaml"]["spec"]["versions"]
    return json.loads(json.dumps(version["schema"]["openAPIV3Schema"]["properties"]["spec"]))


def test_a_job_template_takes_what_a_newer_kubernetes_knows() -> None:
    job_spec = json.loads((ROOT / "operator/duepoint/model/jobspec.json").read_text())
    nodes = list(schemas(job_spec))
    assert {key for node in nodes for key in node}.isdisjoint({"default", "enum", "$ref", "oneOf"})
    for node in nodes:
        if "properties" in node:
            assert node["x-kubernetes-preserve-unknown-fields"] is True
        required = node.get("required", [])
        for name, field in node.get("properties", {}).items():
            assert (name in required) != field.get("nullable", False), name
        assert set(node.get("x-kubernetes-list-map-keys", ())) <= set(
            node.get("items", {}).get("required", ())
        )


def test_only_the_documented_fields_have_defaults() -> None:
    for plural, more in (
        ("schedulesets", {}),
        (
            "schedules",
            {
                "timeZone": "Etc/UTC", "catchUpPolicy": "Latest", "concurrencyPolicy": "Allow",
                "successfulJobsHistoryLimit": 3, "failedJobsHistoryLimit": 1,
            },
        ),
    ):  # fmt: skip
        found = {
            name: field["default"] for name, field in fields(spec_of(plural)) if "default" in field
        }
        assert found == DEFAULTS | more


@pytest.mark.parametrize("plural", ["schedules", "scheduleruns", "schedulesets"])
def test_every_field_of_ours_is_described_where_kubectl_explain_shows_it(plural: str) -> None:
    own = spec_of(plural)
    if plural != "scheduleruns":
        own["properties"]["jobTemplate"]["properties"].pop("spec")
    assert [name for name, field in fields(own) if "description" not in field] == []


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


@pytest.mark.parametrize(
    ("path", "value", "is_marked"),
    [
        ("spec.timezone", "Europe/Rome", True),
        ("spec.catchUpPolicy", "Newest", True),
        ("spec.webhook.timeoutSeconds", "10", True),
        ("specs", {}, True),
        ("spec.dst", {"gap": None}, False),
        ("spec.jobTemplate", JOB_OF_TOMORROW, False),
        ("kind", "ConfigMap", False),
    ],
)
def test_what_is_wrong_is_marked_and_nothing_else(
    path: str, value: object, is_marked: bool
) -> None:
    document = copy.deepcopy(SCHEDULE)
    *above, last = path.split(".")
    functools.reduce(lambda place, name: place[name], above, document)[last] = value
    assert bool(list(validator().iter_errors(document))) == is_marked
