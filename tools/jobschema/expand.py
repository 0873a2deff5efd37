"""Hand-written CRD sources -> complete CustomResourceDefinitions.

In go the YAML files of `sources/` and the pruned JobSpec of `jobspec.json`; out come plain
documents, the same every time. Three markers are replaced: `$use` by a named piece, `$rules` by
CEL rules put together in Python, `$jobSpec` by the JobSpec.

The invariant kept here so that no author has to remember it: below `spec` every field that is not
required is nullable, because null means absent everywhere (a CronJob with nulls must port, and
server-side apply refuses null where it is not nullable).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from duepoint.expressions import timezones
from tools.jobschema import expression_rules, limits, prune

HERE = Path(__file__).parent
SOURCES = HERE / "sources"
PIECES = (
    "fragments",
    "targets",
    "webhook",
    "schedule_spec",
    "schedule_status",
    "scheduleset_spec",
    "scheduleset_status",
)

# The zones are listed, those of the tzdata package that the engine reads, so that both have the
# same ones. CEL's own zones are the API server's, and asking for one that it lacks is an error,
# which reads "evaluating rule" and ignores our message (tried on kube-apiserver v1.36).
_MACHINE_ZONES = "['Local', 'localtime', 'posixrules', 'Factory']"


def time_zone_rules() -> list[prune.JsonSchema]:
    """A zone's name is one of the shipped IANA database, letter for letter."""
    of_the_machine = f"self in {_MACHINE_ZONES} || self.matches(r'^(posix|right)/')"
    listed = ", ".join(f"'{name}'" for name in sorted(timezones.known_names()))
    write = "write an IANA time zone name, such as Europe/Rome, America/New_York or Etc/UTC"
    return [
        {
            "rule": f"!({of_the_machine})",
            "message": f"this name means another zone on each machine: {write}",
        },
        {
            "rule": f"{of_the_machine} || self in [{listed}]",
            "message": f"no such time zone: {write}, with its capitals; "
            "null or no field is Etc/UTC",
        },
    ]


class Compact(dict[str, Any]):
    """A part of a document that is not for readers and is written without line per field."""


#: libyaml's, ten times as fast, where PyYAML was built with it.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def custom_resource_definitions() -> dict[str, prune.JsonSchema]:
    """Name of the file below `crds/` -> its document."""
    pieces = {name: piece for source in PIECES for name, piece in _load(source).items()}
    documents = {}
    for source in ("schedule", "schedulerun", "scheduleset"):
        document = _expanded(_load(source), pieces)
        for version in document["spec"]["versions"]:
            properties = version["schema"]["openAPIV3Schema"]["properties"]
            properties["spec"] = _with_nullable_fields(properties["spec"])
        plural = document["spec"]["names"]["plural"]
        documents[f"duepoint.dev_{plural}.yaml"] = document
    return documents


def job_spec_schema() -> prune.JsonSchema:
    """The committed JobSpec with the limits that its OpenAPI does not tell."""
    return limits.limited(json.loads((HERE / "jobspec.json").read_text()))


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
        return time_zone_rules()
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
        choices = inner.pop("enum")
        inner["x-kubernetes-validations"] = [_one_of(choices)]
        # `kubectl explain` lists an enum's values, and knows nothing of rules
        words = ", ".join(choice for choice in choices if choice)
        inner["description"] = f"{inner['description'].rstrip('.')}. One of {words}."
    return {**inner, "nullable": True}


def _one_of(choices: list[str]) -> prune.JsonSchema:
    """An enum that lets null through: the API server's own never does, also where null is one of
    its values (tried on v1.36); and where it fails no rule is checked any more.
    """
    listed = ", ".join(f"'{choice}'" for choice in choices)
    words = [choice for choice in choices if choice]
    return {
        "rule": f"self in [{listed}]",
        "message": f"write {', '.join(words[:-1])} or {words[-1]}",
    }
