"""Makes the JobSpec of a CRD from the JobSpec that Kubernetes publishes.

In goes the OpenAPI v3 document of `batch/v1` (a server's `/openapi/v3/apis/batch/v1`, or the file
`api/openapi-spec/v3/apis__batch__v1_openapi.json` of the Kubernetes sources); out comes one
structural schema without references. The result is committed as `jobspec.json`, so that
building the CRDs needs no server.

What the copy keeps: types, required fields, and how lists and maps merge under server-side apply.
What it leaves out: descriptions but for their first sentences (`describe`), because client-side
apply ends at a quarter of a megabyte; defaults (the Job's own API server sets them, and what it
sets must not appear as drift in a Schedule); enums (a newer Kubernetes may know more values).
What it adds: every optional field may be null, as in CronJob, and every object keeps the fields
it does not know, so that a template written for a newer Kubernetes passes through untouched.
"""

from __future__ import annotations

import re
from typing import Any

JsonSchema = dict[str, Any]

JOB_SPEC = "io.k8s.api.batch.v1.JobSpec"
OBJECT_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
INT_OR_STRING = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"

# Formats the API server checks; others (byte, double) mean nothing inside a template.
KEPT_FORMATS = frozenset({"int32", "int64", "date-time"})
#: Steps below `jobTemplate.spec` of the deepest fields that are described.
DEPTH = 5
#: Characters of one description.
LONGEST = 200
_SENTENCE = re.compile(r"(?<=[a-z)\"'`])\. (?=[A-Z])| More info:")


def open_object(properties: JsonSchema, required: list[str] | None = None) -> JsonSchema:
    """Return an object's schema that keeps unknown fields; only required ones refuse null."""
    needed = sorted(required or [])
    schema: JsonSchema = {
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": True,
        "properties": {
            name: field if name in needed else {**field, "nullable": True}
            for name, field in sorted(properties.items())
        },
    }
    return {**schema, "required": needed} if needed else schema


def open_metadata() -> JsonSchema:
    """Return the metadata of a template: labels and annotations are text, the rest is free."""
    texts: JsonSchema = {
        "type": "object",
        "additionalProperties": {"type": "string", "nullable": True},
    }
    return open_object({"labels": texts, "annotations": texts})


def job_spec(openapi: JsonSchema) -> JsonSchema:
    """Return the structural schema of JobSpec, from an OpenAPI v3 document of `batch/v1`."""
    schemas: JsonSchema = openapi["components"]["schemas"]
    pruned = _named(JOB_SPEC, schemas)
    # PodTemplateSpec calls its spec optional; a Job without containers is refused all the same.
    pruned["properties"]["template"]["required"] = ["spec"]
    pruned["properties"]["template"]["properties"]["spec"].pop("nullable")
    return pruned


def _named(name: str, schemas: JsonSchema) -> JsonSchema:
    if name == OBJECT_META:
        return open_metadata()
    if name == QUANTITY:
        # "0.5" and 0.5 are both quantities; int-or-string would refuse the latter.
        return {"x-kubernetes-preserve-unknown-fields": True}
    if name == INT_OR_STRING:
        return {"x-kubernetes-int-or-string": True}
    return _structural(schemas[name], schemas)


def _structural(node: JsonSchema, schemas: JsonSchema) -> JsonSchema:
    pointed = reference(node)
    if pointed is not None:
        return _named(pointed, schemas)
    if node["type"] == "array":
        return _array(node, schemas)
    if node["type"] == "object":
        return _object(node, schemas)
    kept = {"type": node["type"]}
    if node.get("format") in KEPT_FORMATS:
        kept["format"] = node["format"]
    return kept


def reference(node: JsonSchema) -> str | None:
    """Return the schema a node refers to; a field with a default wraps it in allOf."""
    pointer = node.get("$ref") or next((part["$ref"] for part in node.get("allOf", [])), None)
    return pointer.rsplit("/", 1)[1] if pointer else None


def _object(node: JsonSchema, schemas: JsonSchema) -> JsonSchema:
    if "additionalProperties" in node:
        values = _structural(node["additionalProperties"], schemas)
        pruned: JsonSchema = {
            "type": "object",
            "additionalProperties": {**values, "nullable": True},
        }
    else:
        fields = {
            name: _structural(field, schemas) for name, field in node.get("properties", {}).items()
        }
        pruned = open_object(fields, node.get("required"))
    if "x-kubernetes-map-type" in node:
        pruned["x-kubernetes-map-type"] = node["x-kubernetes-map-type"]
    return pruned


def _array(node: JsonSchema, schemas: JsonSchema) -> JsonSchema:
    items = _structural(node["items"], schemas)
    pruned: JsonSchema = {"type": "array", "items": items}
    keys = node.get("x-kubernetes-list-map-keys", [])
    if "protocol" in keys:
        # Its key has a default in Kubernetes and would have to be required here: a CronJob that
        # leaves the protocol of a port out would not port. The list is replaced as a whole.
        return {**pruned, "x-kubernetes-list-type": "atomic"}
    if "x-kubernetes-list-type" in node:
        pruned["x-kubernetes-list-type"] = node["x-kubernetes-list-type"]
    if keys:
        pruned["x-kubernetes-list-map-keys"] = keys
        items["required"] = sorted({*items.get("required", []), *keys})
        for key in keys:
            items["properties"][key].pop("nullable", None)
    return pruned


def describe(job_spec: JsonSchema, openapi: JsonSchema) -> None:
    """Write descriptions into a pruned JobSpec, from the OpenAPI document that it came from."""
    schemas: JsonSchema = openapi["components"]["schemas"]
    _describe(job_spec, schemas[JOB_SPEC], schemas, DEPTH)


def first_sentence(text: str) -> str:
    """Return the first sentence without its full stop, cut if it is long."""
    sentence = _SENTENCE.split(" ".join(text.split()), maxsplit=1)[0].strip().rstrip(".")
    return sentence if len(sentence) <= LONGEST else sentence[: LONGEST - 1].rstrip() + "…"


def _describe(pruned: JsonSchema, node: JsonSchema, schemas: JsonSchema, depth: int) -> None:
    pointed = reference(node)
    if pointed is not None:
        node = schemas[pointed]
    if "items" in pruned:
        _describe(pruned["items"], node["items"], schemas, depth)
    for name, field in pruned.get("properties", {}).items() if depth else ():
        source = node.get("properties", {}).get(name, {})
        if text := source.get("description"):
            field["description"] = first_sentence(text)
        _describe(field, source, schemas, depth - 1)
