"""The annotations of the model's fields: descriptions, keywords, rules and common types.

A field is ``Annotated`` with a text for people, with keywords of JSON Schema (``Keywords``), and
with rules of the CRD (``Rule``), each in CEL for the API server and as a function for Python. An
optional field is ``None`` if it is left out or null; ``msgspec.Raw`` is any JSON.
"""

from __future__ import annotations

import datetime as dt
import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import msgspec

from duepoint import errors


class Keywords:
    """Keywords of JSON Schema and Kubernetes' additions, for the annotated field."""

    def __init__(self, **keywords: Any) -> None:  # noqa: ANN401 - a keyword's value
        self.given = keywords


@dataclass(frozen=True, eq=False, kw_only=True)
class Rule:
    """One rule of a CRD.

    Attributes:
        cel: the expression that the API server checks.
        holds: the same check in Python, for a text or an object's fields; always true for a rule
            that only an edit can break. In an annotation, a lambda sees no name of its module.
        path: the field of an object that the rule concerns; empty = the object.
        pattern: the pattern that ``holds`` searches for, if the rule is one pattern.
        optional_old: also check at creation, when there is no ``oldSelf``.
        shown: formats a refused text for the message.
        engine: what the reader of specs checks itself, with a better message. Without a ``cel``
            there are many rules, and ``tools.jobschema`` generates them.
    """

    cel: str = ""
    message: str = ""
    holds: Callable[[Any], bool] = lambda _: True
    path: str = ""
    pattern: str = ""
    optional_old: bool = False
    shown: Callable[[str], str] = errors.quoted
    engine: str = ""


class Fields(msgspec.Struct, rename="camel"):
    """Base of the model's objects: fields as users write them, and the rules between them."""

    RULES: ClassVar[tuple[Rule, ...]] = ()


# -- rules ---------------------------------------------------------------------------------------


def matches(
    pattern: str,
    message: str,
    *,
    shown: Callable[[str], str] = errors.quoted,
    engine: str = "",
) -> Rule:
    """Require this pattern in a text; it must mean the same to RE2 and to ``re``."""
    quote = '"' if "'" in pattern else "'"
    return Rule(
        cel=f"self.matches(r{quote}{pattern}{quote})",
        message=message,
        holds=lambda text: compiled(pattern).search(text) is not None,
        pattern=pattern,
        shown=shown,
        engine=engine,
    )


def lacks(pattern: str, message: str, *, shown: Callable[[str], str] = errors.quoted) -> Rule:
    """Forbid this pattern in a text."""
    return Rule(
        cel=f"!self.matches(r'{pattern}')",
        message=message,
        holds=lambda text: compiled(pattern).search(text) is None,
        shown=shown,
    )


def one_of(place: str = "", **fields: str) -> Rule:
    """Require exactly one of these fields in an object; each with words for it, or an empty text.

    Args:
        place: the text before the names in the message, such as ``spec.``.
    """
    given = [f"has(self.{name})" for name in fields]
    cel = f"[{', '.join(given)}].filter(written, written).size() == 1"
    *others, last = (
        f"{place}{name}" + f" ({words})" * bool(words) for name, words in fields.items()
    )
    return Rule(
        cel=" != ".join(given) if len(given) == 2 else cel,
        message=f"write exactly one of {', '.join(others)} and {last}",
        holds=lambda written: sum(name in written for name in fields) == 1,
    )


def needs(name: str, other: str, *values: str) -> Rule:
    """Allow a field only beside these values of another one, or beside any."""
    cel, wanted = f"!has(self.{name}) || has(self.{other})", other
    if values:
        cel += f" && self.{other} in {list(values)}"
        wanted += f": {' or '.join(values)}"
    return Rule(
        cel=cel,
        message=f"{name} means nothing here: write {wanted} beside it, or take it out",
        holds=lambda fields: (
            name not in fields or (fields.get(other) in values if values else other in fields)
        ),
        path=name,
    )


def before(first: str, last: str, message: str, *, are_required: bool = False) -> Rule:
    """Require two instants in this order; other rules refuse values that are not instants."""
    cel = f"self.{first} < self.{last}"
    optional = f"!has(self.{first}) || !has(self.{last}) || {cel}"

    def holds(fields: Mapping[str, Any]) -> bool:
        ends = [_instant(fields.get(name)) for name in (first, last)]
        return ends[0] is None or ends[1] is None or ends[0] < ends[1]

    return Rule(cel=cel if are_required else optional, message=message, holds=holds, path=last)


@functools.cache
def compiled(pattern: str) -> re.Pattern[str]:
    """Compile a pattern of RE2 with ``re``: ``$`` is the very end, ``[[]`` not a nested set."""
    spelled = pattern.replace("[[]", r"\[").replace("[]]", r"\]")
    return re.compile(re.sub(r"\$(?=$|\))", r"\\Z", spelled), re.ASCII)


def _instant(value: object) -> dt.datetime | None:
    if value is None:  # the usual case; an exception costs as much as all other rules
        return None
    try:
        instant = value if isinstance(value, dt.datetime) else msgspec.convert(value, dt.datetime)
    except (msgspec.ValidationError, ValueError):
        return None
    return instant if instant.tzinfo else instant.replace(tzinfo=dt.UTC)


def mapping(value: object) -> Mapping[str, Any]:
    """Return the fields of a mapping, a Struct or raw JSON; empty for any other value."""
    if isinstance(value, msgspec.Raw):
        value = msgspec.json.decode(value)
    if isinstance(value, msgspec.Struct):
        return given(value)
    return value if isinstance(value, Mapping) else {}


def given(fields: msgspec.Struct) -> dict[str, Any]:
    """Return the fields that are set and not null, by the names that users write."""
    return {
        name: value
        for attribute, name in names(type(fields))
        if is_given(value := getattr(fields, attribute))
    }


@functools.cache
def names(kind: type[msgspec.Struct]) -> tuple[tuple[str, str], ...]:
    """Return each field as an attribute and as users write it."""
    return tuple((field.name, field.encode_name) for field in msgspec.structs.fields(kind))


def is_given(value: object) -> bool:
    """Whether a field is set and not null."""
    if value is None:
        return False
    return not isinstance(value, msgspec.Raw) or bytes(value) not in (b"", b"null")


# -- types ---------------------------------------------------------------------------------------


def choices(*words: str, default: str | None = None) -> Keywords:
    """Require one of these words; an empty one stands for the default, as in CronJob."""
    return Keywords(enum=words) if default is None else Keywords(enum=words, default=default)


def within(least: int, most: int | None = None) -> Keywords:
    """Require a number from ``least`` to ``most``."""
    return Keywords(minimum=least) if most is None else Keywords(minimum=least, maximum=most)


def any_json(most_bytes: int) -> Keywords:
    """Refuse JSON that is certainly longer than ``most_bytes``.

    No rule can measure arbitrary JSON. Beyond these counts it is longer, however it is written.
    """
    return Keywords(
        maxLength=most_bytes - 2, maxItems=most_bytes // 2 - 1, maxProperties=most_bytes // 5
    )


#: A list that server-side apply replaces as a whole.
ATOMIC = Keywords(**{"x-kubernetes-list-type": "atomic"})


def keyed_by(name: str) -> Keywords:
    """Mark a list whose entries have this field as their key."""
    return Keywords(**{"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [name]})


Int32 = Annotated[int, Keywords(format="int32")]
Int64 = Annotated[int, Keywords(format="int64")]
#: An instant as text; ``dt.datetime`` has the same schema.
Time = Annotated[str, Keywords(format="date-time")]
Duration = Annotated[
    str,
    Keywords(maxLength=32),
    matches(
        r"^([0-9]+([.][0-9]+)?(ms|s|m|h|d))+$",
        "write a duration of the units d, h, m, s and ms without a sign, such as 30s, 5m or 1h30m",
        engine="duration",
    ),
]
Expression = Annotated[str, Keywords(maxLength=200), Rule(engine="expression")]
TimeZone = Annotated[str, Keywords(maxLength=64), Rule(engine="timeZone")]
ObjectName = Annotated[
    str,
    Keywords(minLength=1, maxLength=253),
    matches(
        r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$",
        "write the name of an object in this namespace, lower-case letters, digits, - and . only; "
        "there is no namespace part",
    ),
]
DataKey = Annotated[
    str,
    Keywords(minLength=1, maxLength=253),
    matches(
        r"^[-._a-zA-Z0-9]+$",
        "write the key inside the object's data, letters, digits, -, _ and . only",
    ),
]
