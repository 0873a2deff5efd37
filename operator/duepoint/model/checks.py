"""Checks the values in a Struct of the model against the limits and rules of its fields.

The API server has checked the same with the CRD. But the CRD may be older or newer than the
program, and without a cluster there is none. The checks report every problem, with the field, its
value and what to write instead.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from duepoint import errors
from duepoint.model import schemas
from duepoint.model.vocabulary import Fields, Rule, is_given, names


class FieldProblem(NamedTuple):
    """A field, such as ``spec.jitter``, and what is wrong with it."""

    path: str
    message: str


#: Messages by keyword of the schema; called with the value and the keyword's limit.
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
#: Whether a keyword refuses a value.
REFUSES: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
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
#: Returns what is wrong with a value; empty if nothing is.
_Test = Callable[[Any], str]


class _Tests(NamedTuple):
    """The tests of a value by its type, and those of the items of a list."""

    by_type: Mapping[type, tuple[_Test, ...]]
    items: _Tests | None


def problems(fields: Fields, path: str, kind: type[Fields] | None = None) -> list[FieldProblem]:
    """Return all problems of the fields, of nested fields, and of their combinations.

    Args:
        kind: check only the fields of this base class.
    """
    found: list[FieldProblem] = []
    _check(fields, path, kind or type(fields), found)
    return found


def _check(fields: Fields, path: str, kind: type[Fields], found: list[FieldProblem]) -> None:
    there = {}
    for attribute, name, tests in _fields(kind):
        value = getattr(fields, attribute)
        if value is not None and is_given(value):
            there[name] = value
            if tests.by_type or isinstance(value, (Fields, tuple)):
                _check_value(value, tests, f"{path}.{name}", found)
    found += [
        FieldProblem(f"{path}.{rule.path}".rstrip("."), rule.message)
        for rule in kind.RULES
        if not rule.holds(there)
    ]


def _check_value(value: object, tests: _Tests, path: str, found: list[FieldProblem]) -> None:
    if isinstance(value, Fields):
        _check(value, path, type(value), found)
        return
    for test in tests.by_type.get(type(value), ()):
        if trouble := test(value):
            found.append(FieldProblem(path, trouble))
            break
    if tests.items is not None and isinstance(value, tuple):
        for index, item in enumerate(value):
            _check_value(item, tests.items, f"{path}[{index}]", found)


#: The decoder's types, in words for users.
TYPES: Final[Mapping[str, str]] = {
    "str": "a text",
    "bool": "true or false",
    "object": "a mapping",
    "array": "a list",
    "int": "a whole number",
    "float": "a number",
}
MISSING: Final = "is missing"
_TYPE = re.compile(r"Expected `(\w+)[^`]*`, got `(\w+)`")
_MISSING = re.compile(r"Object missing required field `(\w+)`")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)


def of_decoder(error: msgspec.ValidationError) -> FieldProblem:
    """Return the problem that msgspec found, with its path within the decoded text."""
    what, _, where = str(error).partition(" - at `$")
    path = where.rstrip("`")
    if unknown := _UNKNOWN.match(what):
        path = f"{path}.{unknown[1]}"[:120]
        return FieldProblem(path, f"{errors.quoted(path.lstrip('.'))} is no field here")
    if missing := _MISSING.match(what):
        return FieldProblem(f"{path}.{missing[1]}", MISSING)
    if kinds := _TYPE.match(what):
        wanted, found = (TYPES.get(kind, kind) for kind in kinds.groups())
        return FieldProblem(path, f"is {found}, which is of the wrong type; write {wanted}")
    if "RFC3339" in what:
        return FieldProblem(path, f"is no time; write {TIME}")
    return FieldProblem(path, what)


#: The format of a time, in words.
TIME: Final = "RFC 3339 with its zone, such as 2026-12-24T18:00:00Z"


def listed(words: tuple[str, ...]) -> str:
    """Return the words to choose from, joined for a sentence."""
    *others, last = [word for word in words if word]
    return f"{', '.join(others)} or {last}" if others else last


@functools.cache
def _fields(kind: type[Fields]) -> tuple[tuple[str, str, _Tests], ...]:
    """Return each field as an attribute, as users write it, and its tests."""
    schema = schemas.of(kind, with_shapes=False)["properties"]
    return tuple((attribute, name, _tests(schema[name])) for attribute, name in names(kind))


def _tests(schema: schemas.Json) -> _Tests:
    rules = schema.get(schemas.RULES, ())
    if any(rule.engine and not rule.cel for rule in rules):
        return _Tests({}, None)
    limits = SIZES.get(schema.get("format", ""), {}) | schema
    of_rules = tuple(_of_rule(rule) for rule in rules if not rule.engine)
    by_type = {
        kind: (
            *(_of_limit(keyword, limits[keyword]) for keyword in keywords if keyword in limits),
            *(() if kind is tuple else of_rules),
        )
        for kind, keywords in _KEYWORDS.items()
    }
    by_type = {kind: tests for kind, tests in by_type.items() if tests}
    return _Tests(by_type, _tests(schema["items"]) if "items" in schema else None)


def _of_limit(keyword: str, limit: Any) -> _Test:  # noqa: ANN401 - of any keyword
    refuses, words = REFUSES[keyword], WORDS[keyword]
    return lambda value: words(value, limit) if refuses(value, limit) else ""


def _of_rule(rule: Rule) -> _Test:
    holds = rule.holds
    return lambda value: "" if holds(value) else f"{rule.shown(str(value))}: {rule.message}"
