"""What was read into a Struct of the model against the limits and rules of its fields.

The API server has checked the same with the CRD, but that may be older or newer than the program,
and there is none where schedules run without a cluster. Every problem is told, with the field, its
value and what to write instead.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from duepoint import errors
from duepoint.model import schemas
from duepoint.model.vocabulary import Fields, given, names


class FieldProblem(NamedTuple):
    """A field, such as ``spec.jitter``, and what is wrong with it."""

    path: str
    message: str


#: What is wrong with a value, by the keyword of its schema and what that allows.
WORDS: Final[Mapping[str, Callable[[Any, Any], str]]] = {
    "enum": lambda value, words: f"{errors.quoted(value)}: write {listed(words)}",
    "minimum": lambda value, least: f"{value} is out of range; write {least} or more",
    "maximum": lambda value, most: f"{value} is out of range; write {most} or less",
    "minLength": lambda *_: "is empty; write a text or leave the field out",
    "maxLength": lambda text, most: f"has {len(text)} characters; at most {most} are taken",
    "minItems": lambda *_: "is empty; write an entry or leave the field out",
    "maxItems": lambda items, most: f"has {len(items)} entries; at most {most} are taken",
}

#: Limits of a number by its format.
SIZES: Final[Mapping[str, schemas.Json]] = {
    "int32": {"minimum": -(1 << 31), "maximum": (1 << 31) - 1},
    "int64": {"minimum": -(1 << 63), "maximum": (1 << 63) - 1},
}
#: Whether a value is refused by a keyword.
_REFUSES: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "enum": lambda value, words: value not in words,
    "minimum": lambda value, least: value < least,
    "maximum": lambda value, most: value > most,
    "minLength": lambda text, least: len(text) < least,
    "maxLength": lambda text, most: len(text) > most,
    "minItems": lambda items, least: len(items) < least,
    "maxItems": lambda items, most: len(items) > most,
}
_KEYWORDS: Final[Mapping[type, tuple[str, ...]]] = {
    str: ("enum", "minLength", "maxLength"),
    int: ("minimum", "maximum"),
    tuple: ("minItems", "maxItems"),
}


def problems(fields: Fields, path: str) -> Iterator[FieldProblem]:
    """All that is wrong with the fields, with those below them, and with what goes together."""
    schema = _schema(type(fields))
    for attribute, name in names(type(fields)):
        value = getattr(fields, attribute)
        if value is not None:
            yield from _of_value(value, schema["properties"][name], f"{path}.{name}")
    if rules := schema.get(schemas.RULES):
        there = given(fields)
        for rule in rules:
            if not rule.holds(there):
                yield FieldProblem(f"{path}.{rule.path}".rstrip("."), rule.message)


def trouble_of(value: object, schema: schemas.Json) -> str:
    """What is wrong with a text, a number or the length of a list; empty if nothing is."""
    rules = schema.get(schemas.RULES, ())
    if any(rule.engine and not rule.cel for rule in rules):
        return ""
    schema = SIZES.get(schema.get("format", ""), {}) | schema
    for keyword in _KEYWORDS.get(type(value), ()):
        if keyword in schema and _REFUSES[keyword](value, schema[keyword]):
            return WORDS[keyword](value, schema[keyword])
    if isinstance(value, (str, int)):
        for rule in rules:
            if not rule.holds(value):
                return f"{rule.shown(str(value))}: {rule.message}"
    return ""


#: Types of the decoder, as a user would say them.
TYPES: Final[Mapping[str, str]] = {
    "str": "a text",
    "bool": "true or false",
    "object": "a mapping",
    "array": "a list",
    "int": "a whole number",
    "float": "a number",
}
_TYPE = re.compile(r"Expected `(\w+)[^`]*`, got `(\w+)`")
_MISSING = re.compile(r"Object missing required field `(\w+)`")


def of_decoder(error: msgspec.ValidationError) -> FieldProblem:
    """What msgspec found, with the path below the text that was read."""
    what, _, where = str(error).partition(" - at `$")
    path = where.rstrip("`")
    if missing := _MISSING.match(what):
        return FieldProblem(f"{path}.{missing[1]}", "is missing")
    if kinds := _TYPE.match(what):
        wanted, found = (TYPES.get(kind, kind) for kind in kinds.groups())
        return FieldProblem(path, f"is {found}, which is of the wrong type; write {wanted}")
    if "RFC3339" in what:
        return FieldProblem(path, f"is no time; write {TIME}")
    return FieldProblem(path, what)


#: How a time is written.
TIME: Final = "RFC 3339 with its zone, such as 2026-12-24T18:00:00Z"


def listed(words: tuple[str, ...]) -> str:
    """The words to choose from, as a sentence names them."""
    *others, last = [word for word in words if word]
    return f"{', '.join(others)} or {last}" if others else last


@functools.cache
def _schema(kind: type[Fields]) -> schemas.Json:
    return schemas.of(kind, with_shapes=False)


def _of_value(value: object, schema: schemas.Json, path: str) -> Iterator[FieldProblem]:
    if isinstance(value, Fields):
        yield from problems(value, path)
        return
    if trouble := trouble_of(value, schema):
        yield FieldProblem(path, trouble)
    for index, item in enumerate(value if isinstance(value, tuple) else ()):
        yield from _of_value(item, schema["items"], f"{path}[{index}]")
