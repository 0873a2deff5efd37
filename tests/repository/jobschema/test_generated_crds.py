"""The generated files are fresh, and the JobSpec in them keeps what it promises."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tools.jobschema import __main__ as jobschema
from tools.jobschema import descriptions, expand, prune


def test_crds_and_chart_are_what_their_sources_give() -> None:
    stale = [
        str(path.relative_to(jobschema.ROOT))
        for path, text in jobschema.wanted_files().items()
        if path.read_text() != text
    ]
    assert stale == [], "run python -m tools.jobschema"


@pytest.fixture(scope="module")
def job_spec() -> dict[str, Any]:
    return json.loads((expand.HERE / "jobspec.json").read_text())


def test_the_job_spec_has_neither_defaults_nor_enums(job_spec: dict[str, Any]) -> None:
    kept = {key for node in _schemas(job_spec) for key in node}
    assert kept.isdisjoint({"default", "enum", "$ref", "allOf", "oneOf"})


def test_fields_of_a_template_that_people_write_are_described_in_a_sentence(
    job_spec: dict[str, Any],
) -> None:
    pod = job_spec["properties"]["template"]["properties"]["spec"]["properties"]
    container = pod["containers"]["items"]["properties"]
    for fields in (job_spec["properties"], pod, container):
        assert [name for name, field in fields.items() if "description" not in field] == []
    texts = [field["description"] for _, field in _fields(job_spec) if "description" in field]
    assert len(texts) > 400
    assert max(map(len, texts)) <= descriptions.LONGEST
    assert container["image"]["description"] == "Container image name"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("Image name. More info: https://x.", "Image name"),
        ("One, e.g. two or a.b. Defaults to 1.", "One, e.g. two or a.b"),
        ("word " * 100, ("word " * 40)[:199].rstrip() + "…"),
    ],
)
def test_a_description_is_the_first_sentence(text: str, sentence: str) -> None:
    assert descriptions.first_sentence(text) == sentence


@pytest.mark.parametrize("plural", ["schedules", "scheduleruns", "schedulesets"])
def test_a_field_with_a_few_values_lists_them_where_explain_shows_it(plural: str) -> None:
    listed = 0
    for name, field in _fields(_spec_of(plural)):
        for rule in field.get("x-kubernetes-validations", []):
            if re.fullmatch(r"self in \[('\w*'(, )?)+\]", rule["rule"]):
                words = ", ".join(word for word in re.findall(r"'(\w+)'", rule["rule"]))
                assert f"One of {words}." in field["description"], name
                listed += 1
    assert listed > 0


def test_every_optional_field_of_a_template_may_be_null(job_spec: dict[str, Any]) -> None:
    fields = [
        (name, name in node.get("required", []), field.get("nullable", False))
        for node in _schemas(job_spec)
        for name, field in node.get("properties", {}).items()
    ]
    assert len(fields) > 100
    assert [name for name, required, nullable in fields if required == nullable] == []


def test_every_object_of_a_template_keeps_fields_it_does_not_know(job_spec: dict[str, Any]) -> None:
    objects = [node for node in _schemas(job_spec) if "properties" in node]
    assert objects
    assert all(node["x-kubernetes-preserve-unknown-fields"] is True for node in objects)


def test_the_keys_of_merged_lists_are_required(job_spec: dict[str, Any]) -> None:
    merged = [node for node in _schemas(job_spec) if "x-kubernetes-list-map-keys" in node]
    assert merged
    for node in merged:
        assert set(node["x-kubernetes-list-map-keys"]) <= set(node["items"]["required"])


def test_a_port_may_leave_its_protocol_out(job_spec: dict[str, Any]) -> None:
    pod = job_spec["properties"]["template"]["properties"]["spec"]
    ports = pod["properties"]["containers"]["items"]["properties"]["ports"]
    assert ports["x-kubernetes-list-type"] == "atomic"
    assert ports["items"]["required"] == ["containerPort"]


def test_a_quantity_may_be_a_fraction() -> None:
    schemas = {prune.QUANTITY: {"oneOf": [{"type": "string"}, {"type": "number"}]}}
    pointer = {"$ref": f"#/components/schemas/{prune.QUANTITY}"}
    spec = {"type": "object", "properties": {"template": _template(), "cpu": pointer}}
    openapi = {"components": {"schemas": {prune.JOB_SPEC: spec, **schemas}}}
    assert prune.job_spec(openapi)["properties"]["cpu"] == {
        "x-kubernetes-preserve-unknown-fields": True,
        "nullable": True,
    }


def test_only_the_documented_fields_have_defaults() -> None:
    spec = _spec_of("schedules")
    defaults = {name: field["default"] for name, field in _fields(spec) if "default" in field}
    assert defaults == {
        "timeZone": "Etc/UTC",
        "dst": {},
        "gap": "RunOnce",
        "overlap": "First",
        "suspend": False,
        "catchUpPolicy": "Latest",
        "concurrencyPolicy": "Allow",
        "successfulJobsHistoryLimit": 3,
        "failedJobsHistoryLimit": 1,
        "method": "POST",
    }


@pytest.mark.parametrize("plural", ["schedules", "scheduleruns", "schedulesets"])
def test_every_rule_says_what_to_write(plural: str) -> None:
    rules = [
        rule
        for node in _schemas(_spec_of(plural))
        for rule in node.get("x-kubernetes-validations", [])
    ]
    assert rules
    assert [rule for rule in rules if len(rule["message"]) <= 15] == []


@pytest.mark.parametrize("plural", ["schedules", "scheduleruns", "schedulesets"])
def test_every_field_we_own_is_described(plural: str) -> None:
    own = dict(_spec_of(plural))
    if plural != "scheduleruns":
        own["properties"]["jobTemplate"]["properties"].pop("spec")
    undescribed = [name for name, field in _fields(own) if "description" not in field]
    assert undescribed == []


def test_a_set_has_defaults_only_where_a_schedule_has_them() -> None:
    spec = _spec_of("schedulesets")
    defaults = {name: field["default"] for name, field in _fields(spec) if "default" in field}
    assert defaults == {
        "dst": {},
        "gap": "RunOnce",
        "overlap": "First",
        "suspend": False,
        "method": "POST",
    }


@pytest.mark.parametrize("plural", ["schedules", "schedulesets"])
def test_optional_fields_without_a_default_say_what_unset_means(plural: str) -> None:
    spec = _spec_of(plural)
    spec["properties"]["jobTemplate"]["properties"].pop("spec")
    choices = {"schedule", "schedules", "url", "service", "jobTemplate", "webhook", "stream",
               "kafka",
               "bearer", "basic", "serviceAccountToken", "configMap", "secret", "value",
               "valueFrom", "caRef", "metadata"}  # fmt: skip
    silent = [
        name
        for node in _schemas(spec)
        for name, field in node.get("properties", {}).items()
        if name not in {*node.get("required", []), *choices}
        and "default" not in field
        and "unset" not in field["description"]
    ]
    assert silent == []


def _spec_of(plural: str) -> dict[str, Any]:
    return json.loads(_spec_texts()[f"duepoint.dev_{plural}.yaml"])


@functools.cache
def _spec_texts() -> dict[str, str]:
    schemas = {
        name: document["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        for name, document in expand.custom_resource_definitions().items()
    }
    return {name: json.dumps(schema["properties"]["spec"]) for name, schema in schemas.items()}


def _schemas(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """This schema and every one below it."""
    yield node
    below = [*node.get("properties", {}).values()]
    below += [node[key] for key in ("items", "additionalProperties") if key in node]
    for schema in below:
        yield from _schemas(schema)


def _fields(node: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for schema in _schemas(node):
        yield from schema.get("properties", {}).items()


def _template() -> dict[str, Any]:
    return {"type": "object", "properties": {"spec": {"type": "object", "properties": {}}}}
