"""What `duepoint validate` needs of the CRDs, as JSON inside the package.

The schema of each kind's spec without what only people and the API server read: descriptions,
defaults, merge strategies. The rules of expressions and zones are left out as well, because the
engine of the package judges those, and says more.
"""

from __future__ import annotations

import json
from typing import Any

from tools.jobschema import expand, expression_rules, prune

_KEPT = frozenset(
    {
        "type", "format", "nullable", "required", "enum", "minimum", "maximum", "minLength",
        "maxLength", "pattern", "minItems", "maxItems", "x-kubernetes-int-or-string",
        "x-kubernetes-preserve-unknown-fields", "x-kubernetes-list-map-keys",
    }
)  # fmt: skip


def text() -> str:
    """The file's text: one member for each kind."""
    schemas = {}
    for document in expand.custom_resource_definitions().values():
        (version,) = document["spec"]["versions"]
        whole = version["schema"]["openAPIV3Schema"]
        schemas[document["spec"]["names"]["kind"]] = _slim(whole["properties"]["spec"])
    return json.dumps(schemas, indent=0, separators=(",", ":"), sort_keys=True) + "\n"


def _slim(schema: prune.JsonSchema) -> prune.JsonSchema:
    slim: dict[str, Any] = {key: value for key, value in schema.items() if key in _KEPT}
    if "properties" in schema:
        slim["properties"] = {name: _slim(each) for name, each in schema["properties"].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            slim[key] = _slim(schema[key])
    rules = schema.get("x-kubernetes-validations", [])
    if rules and rules not in (expression_rules.expression_rules(), expand.time_zone_rules()):
        slim["rules"] = [_rule(rule) for rule in rules if "oldSelf" not in rule["rule"]]
    return slim


def _rule(rule: dict[str, Any]) -> dict[str, Any]:
    return {key: rule[key] for key in ("rule", "message", "fieldPath") if key in rule}
