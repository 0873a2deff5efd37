"""What Kubernetes says of the fields of a Job, in the jobTemplate: one sentence for each.

`kubectl explain` and editors show it. The whole texts would be half a megabyte, and client-side
apply ends at a quarter of one: so each is cut to its first sentence, and fields further down than
`DEPTH` (those of a probe, of an affinity's terms) have none. The texts are Kubernetes's
(Apache-2.0).
"""

from __future__ import annotations

import re

from tools.jobschema.prune import JOB_SPEC, JsonSchema, reference

#: Steps below `jobTemplate.spec` of the deepest fields that are described.
DEPTH = 5
#: Characters of one description.
LONGEST = 200
_SENTENCE = re.compile(r"(?<=[a-z)\"'`])\. (?=[A-Z])| More info:")


def describe(job_spec: JsonSchema, openapi: JsonSchema) -> None:
    """Write descriptions into a pruned JobSpec, from the OpenAPI document that it came from."""
    schemas: JsonSchema = openapi["components"]["schemas"]
    _describe(job_spec, schemas[JOB_SPEC], schemas, DEPTH)


def first_sentence(text: str) -> str:
    """The first sentence without its full stop, or its beginning."""
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
