"""The JSON Schema for editors, from the model; `python -m tools.jobschema.editors` prints it.

An editor with a YAML language server completes fields, shows descriptions and choices, and marks
unknown fields. The schema chooses by `kind`, so that one line at the top of a file serves all
of its documents, those of other kinds included:

    # yaml-language-server: $schema=docs/schemas/duepoint.json

`make demo`, `make up`, `make docs` and `make generate` write that file, which Git ignores.

It checks structure only: of the CRDs' rules it has patterns and choices, because JSON Schema cannot
express the others. `duepoint validate` checks everything.
"""

from __future__ import annotations

import json
import sys

from duepoint.model import schemas
from duepoint.model.checks import KINDS
from tools.jobschema import prune

DRAFT = "http://json-schema.org/draft-07/schema#"
API_VERSION = "duepoint.dev/v1alpha1"


def text() -> str:
    """Return the schema of all kinds; documents of other kinds pass."""
    kinds = {kind: _of_kind(kind, schemas.of(fields)) for kind, fields in KINDS.items()}
    whole = {
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
                "then": schema,
            }
            for kind, schema in kinds.items()
        ],
    }
    return json.dumps(whole, indent=1) + "\n"


def _of_kind(kind: str, spec: prune.JsonSchema) -> prune.JsonSchema:
    return {
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


if __name__ == "__main__":
    sys.stdout.write(text())
