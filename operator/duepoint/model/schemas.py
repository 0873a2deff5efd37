"""Converts Structs of the model to JSON Schema as in a CRD, with rules as ``vocabulary.Rule``.

An optional field is ``nullable``, because null means absent everywhere. The consumers translate
what they need in another form: the CRDs (tools/jobschema), ``duepoint validate`` and the OpenAPI
document, which uses the helpers at the end.
"""

from __future__ import annotations

import datetime as dt
import types
import typing
from collections.abc import Callable
from typing import Any, Final

import msgspec

from duepoint.model.vocabulary import Fields, Keywords, Rule

Json = dict[str, Any]
RULES: Final = "x-kubernetes-validations"
ANY: Final = "x-kubernetes-preserve-unknown-fields"
INT_OR_STRING: Final = "x-kubernetes-int-or-string"

_PLAIN: Final[dict[Any, Json]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number", "format": "double"},
    bool: {"type": "boolean"},
    dt.datetime: {"type": "string", "format": "date-time"},
    msgspec.Raw: {ANY: True},
    Any: {ANY: True},
}


class Shape:
    """Annotation of a field whose schema is not that of its type."""

    def __init__(self, schema: Callable[[], Json]) -> None:
        self.schema = schema


def of(kind: type[Fields], *, with_shapes: bool = True) -> Json:
    """Return the schema of an object.

    Args:
        with_shapes: include the schema of a Job, which takes a megabyte.
    """
    hints = typing.get_type_hints(kind, include_extras=True)
    fields = msgspec.structs.fields(kind)
    made: Json = {"type": "object", "properties": {}}
    if kind.__doc__:
        made["description"] = " ".join(kind.__doc__.split())
    if required := sorted(field.encode_name for field in fields if field.required):
        made["required"] = required
    if kind.__struct_config__.forbid_unknown_fields:
        made["additionalProperties"] = False
    if kind.RULES:
        made[RULES] = list(kind.RULES)
    for field in fields:
        schema = _of(hints[field.name], with_shapes)
        if isinstance(field.default, msgspec.Raw):
            schema["nullable"] = True
        made["properties"][field.encode_name] = schema
    return made


def plain(schema: Json, *, closed: bool = False) -> Json:
    """Return the schema in plain JSON Schema; of the rules only patterns stay.

    Args:
        closed: forbid further fields, except in objects that Kubernetes may know more of.
    """
    made = {key: value for key, value in schema.items() if not key.startswith(("x-", "nullable"))}
    for rule in schema.get(RULES, ()):
        if rule.pattern:
            # RE2 accepts a bracket in brackets, but JavaScript reads it as an empty set
            made["pattern"] = rule.pattern.replace("[[]", r"\[").replace("[]]", r"\]")
    kinds = ["integer", "string"] if schema.get(INT_OR_STRING) else [made.get("type")]
    if kinds != [None]:
        kinds += ["null"] if schema.get("nullable") else []
        made["type"] = kinds if len(kinds) > 1 else kinds[0]
    if schema.get("nullable") and "enum" in made:
        made["enum"] = [*made["enum"], None]
    if "properties" in made:
        fields = made["properties"].items()
        made["properties"] = {name: plain(field, closed=closed) for name, field in fields}
        if closed and not schema.get(ANY):
            made["additionalProperties"] = False
    for part in ("items", "additionalProperties"):
        if isinstance(made.get(part), dict):
            made[part] = plain(made[part], closed=closed)
    return made


def _of(hint: Any, with_shapes: bool) -> Json:  # noqa: ANN401, FBT001 - any annotation
    """Return the schema of a type with its annotations; outer annotations win."""
    if typing.get_origin(hint) is typing.Annotated:
        made = _of(hint.__origin__, with_shapes)
        for each in hint.__metadata__:
            if isinstance(each, str):
                made["description"] = each
            elif isinstance(each, Keywords):
                made |= each.given
            elif isinstance(each, Rule):
                made[RULES] = [*made.get(RULES, ()), each]
            elif isinstance(each, Shape) and with_shapes:
                made = each.schema()
        return made
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        kinds = [each for each in typing.get_args(hint) if each is not type(None)]
        made = _of(kinds[0], with_shapes) if len(kinds) == 1 else {INT_OR_STRING: True}
        return made | {"nullable": True} if type(None) in typing.get_args(hint) else made
    if typing.get_origin(hint) is dict:
        texts = _of(typing.get_args(hint)[1], with_shapes)
        return {"type": "object", "additionalProperties": texts}
    if typing.get_origin(hint) is tuple:
        return {"type": "array", "items": _of(typing.get_args(hint)[0], with_shapes)}
    if isinstance(hint, type) and issubclass(hint, Fields):
        return of(hint, with_shapes=with_shapes)
    return dict(_PLAIN[hint])


TEXT: Final[Json] = {"type": "string"}
TIME: Final[Json] = {"type": "string", "format": "date-time"}


def plain_of(kind: type[Fields]) -> Json:
    """Return the plain schema of a Struct; null means absent, as in Kubernetes objects."""
    return plain(of(kind))


def about(schema: Json, description: str) -> Json:
    """Return the schema with a description."""
    return {**schema, "description": description}


def object_of(properties: Json, *required: str, closed: bool = False) -> Json:
    """Return the schema of an object; ``closed``: it may have no other fields."""
    schema: Json = {"type": "object", "properties": properties}
    if required:
        schema["required"] = list(required)
    if closed:
        schema["additionalProperties"] = False
    return schema
