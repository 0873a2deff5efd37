"""Limits for the CRD that Kubernetes enforces on a Job's template in code, not in its OpenAPI.

A Job's API server refuses all of this, and so does CronJob at apply; without these the mistake
would show only after the dry run, as `Stalled`. It has only limits that are unchanged since
`batch/v1` and can only be loosened by a new kind of value, not those that depend on a feature.
Source: `pkg/apis/batch/validation` and `pkg/apis/core/validation` of Kubernetes v1.36.

The other way round it loosens lists that batch/v1 takes with entries of the same key, or without
one: they are replaced as a whole.

Rules between fields are in ``duepoint.model.targets``.
"""

from __future__ import annotations

from typing import Any

JsonSchema = dict[str, Any]

# A quantity is a text or a plain number; the pattern limits texts, the minimum numbers.
QUANTITY = {
    "pattern": r"^[+]?([0-9]+([.][0-9]*)?|[.][0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$",
    "minimum": 0,
}
_NAME = {"pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "maxLength": 63}

_NOT_NEGATIVE = {"minimum": 0}
_PORT = {"minimum": 1, "maximum": 65_535}
_WEIGHT = {"minimum": 1, "maximum": 100}
_MODE = {"minimum": 0, "maximum": 0o777}
_PROBE = dict.fromkeys(
    (
        "failureThreshold",
        "initialDelaySeconds",
        "periodSeconds",
        "successThreshold",
        "timeoutSeconds",
    ),
    _NOT_NEGATIVE,
)

# Of the JobSpec itself.
_JOB = dict.fromkeys(
    (
        "activeDeadlineSeconds",
        "backoffLimit",
        "backoffLimitPerIndex",
        "completions",
        "maxFailedIndexes",
        "parallelism",
        "ttlSecondsAfterFinished",
    ),
    _NOT_NEGATIVE,
)

# Of any field of that name, anywhere in the Pod's spec.
_POD = {
    **_PROBE,
    "activeDeadlineSeconds": {"minimum": 1},
    "containerPort": _PORT,
    "hostPort": {**_PORT, "minimum": 0},
    "weight": _WEIGHT,
    "runAsGroup": _NOT_NEGATIVE,
    "runAsUser": _NOT_NEGATIVE,
    "fsGroup": _NOT_NEGATIVE,
    "defaultMode": _MODE,
    "mode": _MODE,
}
_CONTAINERS = ("containers", "initContainers")
# Lists whose entries may repeat their key: the API server merges by it and does not insist on it.
_REPEATING = ("env", "hostAliases", "imagePullSecrets")


def limited(job_spec: JsonSchema) -> JsonSchema:
    """Add the limits to a JobSpec in place, and return it."""
    for name, limit in _JOB.items():
        job_spec["properties"][name].update(limit)
    pod = job_spec["properties"]["template"]["properties"]["spec"]
    _limit_below(pod)
    for name in _CONTAINERS:
        _limit_containers(pod["properties"][name])
    pod["properties"]["containers"]["minItems"] = 1
    secret = pod["properties"]["imagePullSecrets"]["items"]
    del secret["required"]
    secret["properties"]["name"]["nullable"] = True
    return job_spec


def _limit_below(schema: JsonSchema) -> None:
    for name, field in schema.get("properties", {}).items():
        if field.get("type") == "integer":
            field.update(_POD.get(name, {}))
        if name in _REPEATING:
            field["x-kubernetes-list-type"] = "atomic"
            field.pop("x-kubernetes-list-map-keys", None)
        _limit_below(field)
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            _limit_below(schema[key])
    if _is_quantity(schema):
        schema.update(QUANTITY)


def _is_quantity(schema: JsonSchema) -> bool:
    """Whether a field is a quantity: in the pruned schema only quantities have no type."""
    return "type" not in schema and "x-kubernetes-int-or-string" not in schema


def _limit_containers(containers: JsonSchema) -> None:
    container = containers["items"]
    container["required"] = ["image", "name"]
    image = container["properties"]["image"]
    image.pop("nullable")
    image["minLength"] = 1
    container["properties"]["name"].update(_NAME)
