"""YAML text to plain values, as kubectl reads it, whatever the text holds.

Built on libyaml's events and not on a loader: a loader keeps the last of two equal keys, makes
dates of times, runs out of stack on deep nesting, and lets a short text of aliases become billions
of values. Values are what JSON has: mappings with text keys, lists, texts, numbers, booleans,
null; as in YAML 1.1, ``yes``, ``no``, ``on`` and ``off`` are booleans.

Invariant: no input raises anything, and what comes out of one document is at most ``LARGEST``
values in ``DEEPEST`` levels, aliases counted as often as they are used.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from duepoint import errors

#: Values in one document: 10,000 Schedules with a hundred fields each.
LARGEST = 1_000_000
#: Levels of one document; a Pod's template takes about a dozen.
DEEPEST = 100

_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_TRUE = frozenset({"true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"})
_FALSE = frozenset({"false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF"})
_WHOLE = re.compile(r"[-+]?(?:0b[01_]+|0o?[0-7_]+|0x[0-9a-fA-F_]+|0|[1-9][0-9_]*)", re.ASCII)
_BROKEN = re.compile(r"[-+]?(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?", re.ASCII)
_NO_NUMBER = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)", re.ASCII)

_BORDER = re.compile(r"^---(?=\s|\Z)", re.MULTILINE)
_DIRECTIVE = re.compile(r"^%.*$", re.MULTILINE)

_PREFIX = "tag:yaml.org,2002:"
_MERGE = object()


class InvalidText(errors.DuepointError):
    """The text is no YAML that kubectl would take; the message names the line."""


@dataclass(frozen=True, slots=True)
class Document:
    """One document of a stream.

    Attributes:
        line: where it begins, from 1.
    """

    line: int
    value: Any


@dataclass(slots=True)
class _Open:
    """A mapping or list whose end has not been seen yet."""

    anchor: str | None
    line: int
    items: list[Any] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    is_mapping: bool = False
    size: int = 1


def documents(data: bytes) -> Iterator[Document | InvalidText]:
    """Each document, in order; empty ones are left out.

    A document that cannot be read stands in its place as the reason, and those after it are read
    all the same: ``---`` at the start of a line is a border whatever stands before it.
    """
    try:
        text = _decoded(data)
    except UnicodeError:
        yield InvalidText("is no text in UTF-8")
        return
    line = 0
    for piece in _BORDER.split(text):
        try:
            yield from _documents_of(piece, line)
        except InvalidText as error:
            yield error
        line += piece.count("\n")


def _documents_of(piece: str, line: int) -> Iterator[Document]:
    builder = _Builder(line)
    # A directive belongs to the border after it, which is cut off here.
    text = _DIRECTIVE.sub(lambda found: "#" + found.group(), piece)
    try:
        for event in yaml.parse(text, Loader=_Events):
            done = builder.take(event)
            if done is not None and done.value is not None:
                yield done
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        if mark is None:
            raise InvalidText(str(error.problem)) from None
        problem = _hint(text, mark, error.problem or "") or error.problem or error.context
        raise InvalidText(
            f"line {line + mark.line + 1}, column {mark.column + 1}: {problem}"
        ) from None
    except yaml.YAMLError as error:
        raise InvalidText(f"is no text in UTF-8: {_first_line(error)}") from None


def _decoded(data: bytes) -> str:
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16")
    return data.decode("utf-8-sig")


def _hint(text: str, mark: Any, problem: str) -> str:  # noqa: ANN401 - yaml's marks
    """What libyaml says in words that only its authors understand."""
    if "alphabetic or numeric character" in problem:
        return 'a text that begins with * or & needs quotes, such as "*/5 * * * *"'
    lines = text.splitlines()
    line = lines[mark.line] if mark.line < len(lines) else ""
    character = line[mark.column : mark.column + 1]
    if character == "\t":
        return "a tab; YAML is indented with blanks"
    if character in "@%`" and character:
        return f'a text cannot begin with {character}; put it into quotes, such as "@daily"'
    return ""


_Events: Any = getattr(yaml, "CLoader", yaml.Loader)


class _Builder:
    """Puts one document after the other together from events."""

    def __init__(self, line: int) -> None:
        self._before = line
        self._open: list[_Open] = []
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._used = 0
        self._line = 1

    def take(self, event: Any) -> Document | None:  # noqa: ANN401 - yaml's events
        line = self._before + event.start_mark.line + 1
        match event:
            case yaml.DocumentStartEvent():
                self._open, self._anchors, self._used, self._line = [], {}, 0, line
            case yaml.ScalarEvent():
                return self._add(_scalar(event, line), event.anchor, 1, line)
            case yaml.AliasEvent():
                if event.anchor not in self._anchors:
                    raise InvalidText(f"line {line}: *{event.anchor} is not defined before it")
                value, size = self._anchors[event.anchor]
                return self._add(value, None, size, line)
            case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                if len(self._open) >= DEEPEST:
                    raise InvalidText(f"line {line}: is nested deeper than {DEEPEST} levels")
                is_mapping = isinstance(event, yaml.MappingStartEvent)
                _check_tag(event.tag, line)
                self._open.append(_Open(event.anchor, line, is_mapping=is_mapping))
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                ended = self._open.pop()
                value = _mapping(ended) if ended.is_mapping else ended.items
                return self._add(value, ended.anchor, ended.size, ended.line)
        return None

    def _add(self, value: Any, anchor: str | None, size: int, line: int) -> Document | None:  # noqa: ANN401 - any value
        self._used += size if self._open else 0
        if self._used > LARGEST:
            raise InvalidText(f"line {line}: has more than {LARGEST} values, aliases included")
        if anchor is not None:
            self._anchors[anchor] = (value, size)
        if not self._open:
            return Document(self._line, value)
        self._open[-1].items.append(value)
        self._open[-1].lines.append(line)
        self._open[-1].size += size
        return None


def _mapping(ended: _Open) -> dict[str, Any]:
    made: dict[str, Any] = {}
    merged: list[Any] = []
    for index in range(0, len(ended.items), 2):
        key, value, line = ended.items[index], ended.items[index + 1], ended.lines[index]
        if key is _MERGE:
            merged += value if isinstance(value, list) else [value]
            continue
        name = _key(key, line)
        if name in made:
            raise InvalidText(f"line {line}: the key {errors.quoted(name)} is there twice")
        made[name] = value
    for each in merged:
        if not isinstance(each, dict):
            raise InvalidText(f"line {ended.line}: << takes a mapping, or a list of them")
        made = {**each, **made}
    return made


def _key(key: Any, line: int) -> str:  # noqa: ANN401 - any value
    match key:
        case str():
            return key
        case bool():
            return "true" if key else "false"
        case int() | float():
            return str(key)
        case None:
            return "null"
    raise InvalidText(f"line {line}: a mapping's key must be a text")


def _scalar(event: Any, line: int) -> Any:  # noqa: ANN401 - yaml's events, any value
    text: str = event.value
    if event.tag and event.tag != "!":
        return _tagged(event.tag.removeprefix(_PREFIX), text, line)
    return _plain(text, line) if event.implicit[0] else text


def _tagged(tag: str, text: str, line: int) -> Any:  # noqa: ANN401 - any value
    if tag in ("str", "binary"):
        return text
    if tag in ("int", "float", "bool", "null"):
        return _plain(text, line)
    raise InvalidText(f"line {line}: the tag {errors.quoted(tag)} means nothing in a manifest")


def _plain(text: str, line: int) -> Any:  # noqa: ANN401, PLR0911 - any value; a list of forms
    if text in _NULLS:
        return None
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    if text == "<<":
        return _MERGE
    if len(text) > 40:  # longer than any number that means something
        return text
    if _WHOLE.fullmatch(text):
        return _whole(text)
    if _BROKEN.fullmatch(text):
        return float(text.replace("_", ""))
    if _NO_NUMBER.fullmatch(text):
        raise InvalidText(f"line {line}: {text} is no number in JSON")
    return text


def _whole(text: str) -> int | str:
    digits = text.lstrip("+-").replace("_", "")
    is_octal = len(digits) > 1 and digits[0] == "0" and digits[1].isdecimal()
    try:
        number = int(digits, 8) if is_octal else int(digits, 0)
    except ValueError:  # such as 0x_ or a lone underscore
        return text
    return -number if text[0] == "-" else number


def _check_tag(tag: str | None, line: int) -> None:
    """A mapping or list may call itself what it is, and nothing else."""
    if tag and tag not in ("!", f"{_PREFIX}map", f"{_PREFIX}seq"):
        raise InvalidText(f"line {line}: the tag {errors.quoted(tag)} means nothing in a manifest")


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0]
