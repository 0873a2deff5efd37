"""Makes CRDs from the Structs of ``duepoint.model`` and the YAML of `sources/`.

The sources contain the parts of a CRD beside the spec: names, columns, and the status, where `$use`
is replaced by a named piece.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from duepoint.expressions import timezones
from duepoint.model import checks, schemas, targets
from duepoint.model.checks import KINDS
from duepoint.model.vocabulary import Rule
from tools.jobschema import expression_rules, prune

SOURCES = Path(__file__).parent / "sources"
PIECES = ("fragments", "schedule_status", "scheduleset_status")

# The zones are listed, those of the tzdata package that the engine reads, so that both have the
# same ones. CEL's own zones are the API server's, and asking for one that it lacks is an error,
# which reads "evaluating rule" and ignores our message (tried on kube-apiserver v1.36).
_MACHINE_ZONES = "['Local', 'localtime', 'posixrules', 'Factory']"


def time_zone_rules() -> list[prune.JsonSchema]:
    """Return the rules that accept exactly the zone names of the shipped IANA database."""
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
    """A part of a document that nobody reads, so it is written without a line per field."""


#: libyaml's, ten times as fast, where PyYAML was built with it.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def custom_resource_definitions() -> dict[str, prune.JsonSchema]:
    """Return kind -> its CRD."""
    pieces = {name: piece for source in PIECES for name, piece in _load(source).items()}
    documents = {}
    for kind, fields in KINDS.items():
        document = _expanded(_load(kind.lower()), pieces)
        (version,) = document["spec"]["versions"]
        whole = version["schema"]["openAPIV3Schema"]["properties"]
        status = whole.pop("status")
        whole |= {"spec": _of_kubernetes(schemas.of(fields)), "status": status}
        documents[kind] = document
    return documents


def _load(source: str) -> prune.JsonSchema:
    loaded: prune.JsonSchema = yaml.load((SOURCES / f"{source}.yaml").read_text(), _LOADER)
    return loaded


def _expanded(node: Any, pieces: prune.JsonSchema) -> Any:  # noqa: ANN401  (any YAML)
    if isinstance(node, list):
        return [_expanded(item, pieces) for item in node]
    if not isinstance(node, dict):
        return node
    piece = _expanded(pieces[node["$use"]], pieces) if "$use" in node else {}
    own = {key: _expanded(value, pieces) for key, value in node.items() if key != "$use"}
    return {**piece, **own}


def _of_kubernetes(schema: schemas.Json) -> schemas.Json:
    """Return a schema of the model in the form that the API server accepts."""
    made = dict(schema)
    if rules := schema.get(schemas.RULES):
        made[schemas.RULES] = [written for rule in rules for written in _rules(rule)]
    if "enum" in made:
        # The API server's own enum never lets null through, also where null is one of its values
        # (tried on v1.36); and where it fails no rule is checked any more.
        choices = made.pop("enum")
        listed = ", ".join(f"'{choice}'" for choice in choices)
        message = f"write {checks.listed(choices)}"
        made[schemas.RULES] = [{"rule": f"self in [{listed}]", "message": message}]
        # `kubectl explain` lists an enum's values, but not those of a rule
        words = ", ".join(choice for choice in choices if choice)
        made["description"] = f"{made['description'].rstrip('.')}. One of {words}."
    if "properties" in made:
        if made.get("additionalProperties") is False:
            del made["additionalProperties"]  # the API server drops unknown fields, with a warning
        made["properties"] = {
            name: _of_kubernetes(field) for name, field in made["properties"].items()
        }
    if "items" in made:
        made["items"] = _of_kubernetes(made["items"])
    if schema is targets.job_spec():
        return Compact(made)
    # readers want the description before the fields
    last = ("properties", "items", "nullable")
    return {key: made[key] for key in sorted(made, key=last.__contains__)}


def _rules(rule: Rule) -> list[prune.JsonSchema]:
    if not rule.cel:
        made_by = {"timeZone": time_zone_rules, "expression": expression_rules.expression_rules}
        return made_by[rule.engine]()
    written: prune.JsonSchema = {"rule": rule.cel, "message": rule.message}
    if rule.path:
        written["fieldPath"] = f".{rule.path}"
    return [written | {"optionalOldSelf": True} if rule.optional_old else written]
