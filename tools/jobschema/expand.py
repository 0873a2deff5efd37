"""Hand-written CRD sources -> complete CustomResourceDefinitions.

In go the YAML files of `sources/` and the pruned JobSpec of `jobspec.json`; out come plain
documents, the same every time. Three markers are replaced: `$use` by a named piece, `$rules` by
CEL rules put together in Python, `$jobSpec` by the JobSpec.

The invariant kept here so that nobody has to remember it: below `spec` every field that is not
required is nullable, because null means absent everywhere (a CronJob with nulls must port, and
server-side apply refuses null where it is not nullable).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from tools.jobschema import expression_rules, prune

HERE = Path(__file__).parent
SOURCES = HERE / "sources"
PIECES = ("fragments", "schedule_spec", "webhook", "schedule_status")

# The last rule *errors* on an unknown zone instead of being false. An error takes no notice of
# messageExpression and is not ratcheted, so the message is static and an unchanged zone passes
# unlooked-at: zone data that change under a stored object must not block its status writes.
ZONE_SHAPE = r"^[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*$"
TIME_ZONE_RULES: list[prune.JsonSchema] = [
    {
        "rule": f"self.matches(r'{ZONE_SHAPE}')",
        "message": "write an IANA time zone name, such as Europe/Rome, America/New_York or Etc/UTC",
    },
    {
        "rule": "!(self in ['Local', 'localtime', 'posixrules', 'Factory'])"
        " && !self.matches(r'^(posix|right)/')",
        "message": "this name means another zone on each machine: write an IANA time zone name, "
        "such as Europe/Rome or Etc/UTC",
    },
    {
        "rule": "oldSelf.hasValue() && oldSelf.value() == self"
        f" || !self.matches(r'{ZONE_SHAPE}')"
        " || self in ['Local', 'localtime', 'posixrules', 'Factory']"
        " || timestamp('2026-01-01T00:00:00Z').getFullYear(self) > 0",
        "optionalOldSelf": True,
        "message": "no such time zone: write an IANA time zone name, such as Europe/Rome, "
        "America/New_York or Etc/UTC",
    },
]

RESTART_POLICY_RULE: prune.JsonSchema = {
    "rule": "has(self.restartPolicy) && self.restartPolicy in ['Never', 'OnFailure']",
    "message": "write restartPolicy: Never or restartPolicy: OnFailure; a Job's Pods may not "
    "restart always",
}


class Compact(dict[str, Any]):
    """A part of a document that nobody reads and that is written without line per field."""


#: libyaml's, ten times as fast, where PyYAML was built with it.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def custom_resource_definitions() -> dict[str, prune.JsonSchema]:
    """Name of the file below `crds/` -> its document."""
    pieces = {name: piece for source in PIECES for name, piece in _load(source).items()}
    documents = {}
    for source in ("schedule", "schedulerun"):
        document = _expanded(_load(source), pieces)
        for version in document["spec"]["versions"]:
            properties = version["schema"]["openAPIV3Schema"]["properties"]
            properties["spec"] = _with_nullable_fields(properties["spec"])
        plural = document["spec"]["names"]["plural"]
        documents[f"duepoint.dev_{plural}.yaml"] = document
    return documents


def job_spec_schema() -> prune.JsonSchema:
    """The committed JobSpec with the one rule of CronJob that its schema cannot tell."""
    schema: prune.JsonSchema = json.loads((HERE / "jobspec.json").read_text())
    pod = schema["properties"]["template"]["properties"]["spec"]
    pod["x-kubernetes-validations"] = [RESTART_POLICY_RULE]
    return schema


def _load(source: str) -> prune.JsonSchema:
    loaded: prune.JsonSchema = yaml.load((SOURCES / f"{source}.yaml").read_text(), _LOADER)
    return loaded


def _expanded(node: Any, pieces: prune.JsonSchema) -> Any:  # noqa: ANN401  (any YAML)
    if isinstance(node, list):
        return [_expanded(item, pieces) for item in node]
    if not isinstance(node, dict):
        return node
    if "$rules" in node:
        return _rules(node["$rules"])
    if "$jobSpec" in node:
        return Compact(job_spec_schema())
    piece = _expanded(pieces[node["$use"]], pieces) if "$use" in node else {}
    own = {key: _expanded(value, pieces) for key, value in node.items() if key != "$use"}
    return {**piece, **own}


def _rules(name: str) -> list[prune.JsonSchema]:
    if name == "timeZone":
        return TIME_ZONE_RULES
    if name == "expression":
        return expression_rules.expression_rules()
    msg = f"no rules are called {name}"
    raise KeyError(msg)


def _with_nullable_fields(schema: prune.JsonSchema) -> prune.JsonSchema:
    if isinstance(schema, Compact):
        return schema  # its fields were made nullable when it was pruned
    changed = dict(schema)
    if "properties" in schema:
        required = schema.get("required", [])
        changed["properties"] = {
            name: _nullable(field, optional=name not in required)
            for name, field in schema["properties"].items()
        }
    if "items" in schema:
        changed["items"] = _with_nullable_fields(schema["items"])
    return changed


def _nullable(field: prune.JsonSchema, *, optional: bool) -> prune.JsonSchema:
    inner = _with_nullable_fields(field)
    if not optional:
        return inner
    if "enum" in inner:
        inner["x-kubernetes-validations"] = [_one_of(inner.pop("enum"))]
    return {**inner, "nullable": True}


def _one_of(choices: list[str]) -> prune.JsonSchema:
    """An enum that lets null through: the API server's own never does (tried on v1.36)."""
    listed = ", ".join(f"'{choice}'" for choice in choices)
    return {
        "rule": f"self in [{listed}]",
        "message": f"write {', '.join(choices[:-1])} or {choices[-1]}",
    }
