"""JSON Schemas of which the OpenAPI document is made: those of Structs of the model, and pieces."""

from __future__ import annotations

from typing import Any, Final

from duepoint.model import schemas
from duepoint.model.vocabulary import Fields

Json = dict[str, Any]

TEXT: Final[Json] = {"type": "string"}
TIME: Final[Json] = {"type": "string", "format": "date-time"}
TIME_OR_NULL: Final[Json] = {"type": ["string", "null"], "format": "date-time"}
COUNT: Final[Json] = {"type": "integer", "minimum": 0}


def of(kind: type[Fields]) -> Json:
    """The schema of a Struct; null is absent, as in the objects of Kubernetes."""
    return schemas.plain(schemas.of(kind))


def about(schema: Json, description: str) -> Json:
    """The schema with what it is for."""
    return {**schema, "description": description}


def object_of(properties: Json, *required: str, closed: bool = False) -> Json:
    """An object; ``closed``: it may have no other fields."""
    schema: Json = {"type": "object", "properties": properties}
    if required:
        schema["required"] = list(required)
    if closed:
        schema["additionalProperties"] = False
    return schema


def page_of(name: str) -> Json:
    """A page of items, whose schema has this name."""
    return object_of(
        {
            "items": {"type": "array", "items": {"$ref": f"#/components/schemas/{name}"}},
            "next": about(TEXT, "the cursor of the next page; empty at the end"),
        },
        "items",
        "next",
    )
