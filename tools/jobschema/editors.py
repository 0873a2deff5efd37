"""JSON Schemas for editors, from the model: `docs/schemas/*.json`.

An editor with a YAML language server completes fields, shows descriptions and choices, and marks
unknown fields. `duepoint.json` chooses by `kind`, so that one line at the top of a file serves all
of its documents, those of other kinds included:

    # yaml-language-server: $schema=docs/schemas/duepoint.json

Structure is all that they hold: of the CRDs' rules only patterns and choices become part of them,
because the others have no form in JSON Schema. `duepoint validate` checks everything.
"""

from __future__ import annotations

import json

from duepoint.model import schemas
from duepoint.model.checks import KINDS
from tools.jobschema import prune

DRAFT = "http://json-schema.org/draft-07/schema#"
API_VERSION = "duepoint.dev/v1alpha1"


def texts() -> dict[str, str]:
    """File name -> its text."""
    documents: dict[str, prune.JsonSchema] = {}
    for kind, fields in KINDS.items():
        documents[kind] = _of_kind(kind, schemas.of(fields))
    files = {f"{kind.lower()}.json": schema for kind, schema in documents.items()}
    files["duepoint.json"] = _by_kind(documents)
    return {name: json.dumps(schema, indent=1) + "\n" for name, schema in files.items()}


def _by_kind(kinds: dict[str, prune.JsonSchema]) -> prune.JsonSchema:
    return {
        "$schema": DRAFT,
        "title": "Objects of Duepoint; documents of other kinds pass",
        "allOf": [
            {
                "if": {
                    "properties": {
                        "kind": {"const": kind},
                        "apiVersion": {"pattern": r"^duepoint\.dev/"},
                    },
                    "required": ["kind", "apiVersion"],
                },
                "then": {"$ref": f"{kind.lower()}.json"},
            }
            for kind in kinds
        ],
    }


def _of_kind(kind: str, spec: prune.JsonSchema) -> prune.JsonSchema:
    return {
        "$schema": DRAFT,
        "title": kind,
        "type": "object",
        "required": ["apiVersion", "kind", "metadata", "spec"],
        "properties": {
            "apiVersion": {"const": API_VERSION},
            "kind": {"const": kind},
            "metadata": {"type": "object"},
            "spec": schemas.plain(spec, closed=True),
            "status": {"type": "object", "description": "Only the operator writes it."},
        },
        "additionalProperties": False,
    }
