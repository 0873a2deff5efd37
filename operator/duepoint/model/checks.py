"""Checks a value against its schema: the limits of each field, and the rules between them.

The API server has checked the same with the CRD. But the CRD may be older or newer than the
program, and without a cluster there is none. The checks report every problem, with the field, its
value and what to write instead.
"""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from duepoint import errors
from duepoint.model import schemas
from duepoint.model.schedule import ScheduleFields
from duepoint.model.schedulerun import RunFields
from duepoint.model.scheduleset import SetFields
from duepoint.model.vocabulary import Fields, Rule, given

#: The kinds of objects, and the Struct of the spec of each.
KINDS: Final[dict[str, type[Fields]]] = {
    "Schedule": ScheduleFields, "ScheduleRun": RunFields, "ScheduleSet": SetFields,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem of a field; with ``is_note`` only a hint that refuses nothing.

    Attributes:
        path: the field as users write it, such as ``spec.jitter``; empty for the whole object.
        is_misspelt: an unknown field that resembles a known one, which then is not missing.
    """

    path: str
    message: str
    is_note: bool = False
    is_misspelt: bool = False

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


def note(path: str, message: str) -> Problem:
    """Return a hint about a field."""
    return Problem(path, message, is_note=True)


#: Keywords of a type: the test that the value, or its length, is beyond the limit; the message.
_TEXT: Final = (
    ("minLength", operator.lt, "is empty; write a text or leave the field out"),
    ("maxLength", operator.gt, "has {} characters; at most {} are taken"),
)
_NUMBER: Final = (
    ("minimum", operator.lt, "{} is out of range; write {} or more"),
    ("maximum", operator.gt, "{} is out of range; write {} or less"),
)
_ITEMS: Final = (
    ("minItems", operator.lt, "is empty; write an entry or leave the field out"),
    ("maxItems", operator.gt, "has {} entries; at most {} are taken"),
)
_FIELDS: Final = (("maxProperties", operator.gt, "has {} entries; at most {} are taken"),)
_LIMITS: Final[Mapping[type, tuple[tuple[str, Callable[[Any, Any], bool], str], ...]]] = {
    str: _TEXT, int: _NUMBER, float: _NUMBER, list: _ITEMS, tuple: _ITEMS, dict: _FIELDS,
}  # fmt: skip
#: Limits of a number by its format.
_SIZES: Final[Mapping[str, schemas.Json]] = {
    "int32": {"minimum": -(1 << 31), "maximum": (1 << 31) - 1},
    "int64": {"minimum": -(1 << 63), "maximum": (1 << 63) - 1},
}


def problems(fields: Fields, path: str, kind: type[Fields] | None = None) -> list[Problem]:
    """Return all problems of the fields, of nested fields, and of their combinations.

    Args:
        kind: check only the fields of this base class.
    """
    walk = Walk()
    walk.check(_schema(kind or type(fields)), fields, path)
    return walk.found


@functools.cache
def _schema(kind: type[Fields]) -> schemas.Json:
    return schemas.of(kind, with_shapes=False)


class Walk:
    """Walks a value and its schema together, and collects the problems.

    The value is a Struct, so its types are right and no field is unknown. ``duepoint validate``
    walks JSON and checks these as well.
    """

    def __init__(self) -> None:
        self.found: list[Problem] = []

    def check(self, schema: schemas.Json, value: Any, path: str) -> None:  # noqa: ANN401
        """Check a value, what is in it, and its rules unless the value itself exceeds a limit."""
        if isinstance(value, Fields):
            value = given(value)
        there = value
        if isinstance(value, dict):
            there = self.check_fields(schema, value, path)
        elif isinstance(value, (list, tuple)):
            for index, item in enumerate(value[: schema.get("maxItems")]):
                self.check(schema.get("items", {}), item, f"{path}[{index}]")
        rules = schema.get(schemas.RULES, ())
        trouble = self.trouble(schema, value)
        if trouble and not any(rule.engine and not rule.cel for rule in rules):
            self.found.append(Problem(path, trouble))
        elif rules:
            self.check_rules(schema, there, path)

    def check_fields(
        self, schema: schemas.Json, value: dict[str, Any], path: str
    ) -> dict[str, Any]:
        """Check each field of an object; return the object for its rules, without nulls."""
        known = schema["properties"]
        for name, each in value.items():
            if name in known:
                self.check(known[name], each, f"{path}.{name}")
        return value

    def trouble(self, schema: schemas.Json, value: Any) -> str:  # noqa: ANN401 - any JSON
        """Return which limit of the schema a value violates; empty if none."""
        kind, limits = type(value), schema
        if kind is str and value not in schema.get("enum", (value,)):
            return f"{errors.quoted(value)}: write {listed(schema['enum'])}"
        if kind is int:
            form = "int64" if schema.get(schemas.INT_OR_STRING) else schema.get("format", "")
            limits = {**_SIZES.get(form, {}), **schema}
        for keyword, is_beyond, words in _LIMITS.get(kind, ()):
            if keyword in limits:
                measured = value if kind in (int, float) else len(value)
                if is_beyond(measured, limits[keyword]):
                    return words.format(measured, limits[keyword])
        return ""

    def check_rules(self, schema: schemas.Json, value: Any, path: str) -> None:  # noqa: ANN401
        """Check the rules of a value whose parts may be wrong themselves."""
        for rule in schema[schemas.RULES]:
            try:
                if rule.engine or rule.holds(value):
                    continue
            except (TypeError, AttributeError):
                continue  # a part has a wrong type, which is a problem of its own
            where = f"{path}.{rule.path}" if rule.path else path
            self.found.append(Problem(where, f"{self.shown(rule, value)}{rule.message}"))

    def shown(self, rule: Rule, value: Any) -> str:  # noqa: ANN401 - any JSON
        """Return how a message begins: with a refused text or number; empty for other values."""
        return f"{rule.shown(str(value))}: " if isinstance(value, (str, int)) else ""


#: The types of JSON Schema and of the decoder, in words for users.
TYPES: Final[Mapping[str, str]] = {
    "string": "a text", "boolean": "true or false", "integer": "a whole number",
    "str": "a text", "bool": "true or false", "int": "a whole number",
    "object": "a mapping", "array": "a list", "number": "a number", "float": "a number",
}  # fmt: skip
MISSING: Final = "is missing"
_TYPE = re.compile(r"Expected `(\w+)[^`]*`, got `(\w+)`")
_MISSING = re.compile(r"Object missing required field `(\w+)`")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)


def of_decoder(error: msgspec.ValidationError) -> Problem:
    """Return the problem that msgspec found, with its path within the decoded text."""
    what, _, where = str(error).partition(" - at `$")
    path = where.rstrip("`")
    if unknown := _UNKNOWN.match(what):
        path = f"{path}.{unknown[1]}"[:120]
        return Problem(path, f"{errors.quoted(path.lstrip('.'))} is not a field here")
    if missing := _MISSING.match(what):
        return Problem(f"{path}.{missing[1]}", MISSING)
    if kinds := _TYPE.match(what):
        wanted, found = (TYPES.get(kind, kind) for kind in kinds.groups())
        return Problem(path, f"is {found}, which is of the wrong type; write {wanted}")
    if "RFC3339" in what:
        return Problem(path, f"is not a time; write {TIME}")
    return Problem(path, what)


#: The format of a time, in words.
TIME: Final = "RFC 3339 with its zone, such as 2026-12-24T18:00:00Z"


def listed(words: tuple[str, ...]) -> str:
    """Return the words to choose from, joined for a sentence."""
    *others, last = [word for word in words if word]
    return f"{', '.join(others)} or {last}" if others else last
