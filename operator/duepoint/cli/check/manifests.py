"""Reads manifests from files and standard input: the objects in them, each with its place.

YAML with any number of documents, JSON, and lists (``kind: List``, ``ScheduleList``,
``CronJobList``) are split into single objects. Files are read up to a limit, so that a huge or
endless one leads to a message and does not exhaust memory. A text that cannot be read is a
``Problem`` of the file, like any other.
"""

from __future__ import annotations

import base64
import codecs
import contextlib
import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from duepoint import errors
from duepoint.cli import options
from duepoint.model.vocabulary import mapping
from duepoint.schedules import jsontext

#: The most values in one document: 10,000 Schedules with a hundred fields each.
LARGEST = 1_000_000
#: The most levels in one document; a Pod template has about a dozen.
DEEPEST = 100
#: The most characters in a number; a longer one is read as a text.
_LONGEST_NUMBER = 40

_BORDER = re.compile(r"^---(?=\s|\Z)", re.MULTILINE)
_DIRECTIVE = re.compile(r"^%.*$", re.MULTILINE)
_TAG = "tag:yaml.org,2002:"
#: A template of Helm or a similar tool, outside of quotes.
_UNRENDERED = (
    "{{ ... }} is a template that was never rendered; render it first, such as with helm template"
)
_TEMPLATE = re.compile(r"""^[^'"#\n]*\{\{""", re.MULTILINE)
#: The forms of plain scalars by their tag, with their first characters; tried in this order.
_PLAIN = (
    ("null", r"~|null|Null|NULL", "~nN"),
    ("bool", r"true|True|TRUE|yes|Yes|YES|y|Y|on|On|ON", "tTyYoO"),
    ("bool", r"false|False|FALSE|no|No|NO|n|N|off|Off|OFF", "fFnNoO"),
    ("merge", r"<<", "<"),
    (
        "int",
        r"[-+]?(?:0[bB]_*[01][01_]*|0[oO]?_*[0-7][0-7_]*|0[xX]_*[0-9a-fA-F][0-9a-fA-F_]*|0|[1-9][0-9_]*)",
        "-+0123456789",
    ),
    (
        "float",
        r"[-+]?(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF|nan|NaN|NAN)",
        "-+.0123456789",
    ),
)


class InvalidText(errors.DuepointError):
    """The text is not YAML that kubectl would accept; the message names the line."""


def documents(data: bytes) -> Iterator[Any]:
    """Yield the value of each document, in order, without empty ones.

    A document that cannot be read yields an InvalidText, and those after it are read nevertheless:
    ``---`` at the start of a line always ends a document. JSON, as kubectl prints it, is read by a
    JSON decoder, which is faster. The depth of that decoder depends on the version of Python, so
    the text is first clipped to a depth that is still refused in a spec.
    """
    try:
        if data[:1] == b"{":
            with contextlib.suppress(ValueError):  # read anything else as YAML
                yield from _of_json(jsontext.clipped(data).decode())
                return
        is_wide = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        text = data.decode("utf-16" if is_wide else "utf-8-sig")
    except InvalidText as error:
        yield error
        return
    except UnicodeError:
        yield InvalidText("is not text in UTF-8")
        return
    line = 0
    for piece in _BORDER.split(text):
        try:
            yield from _documents_of(piece, line)
        except InvalidText as error:
            if found := _TEMPLATE.search(piece):
                number = line + piece.count("\n", 0, found.end()) + 1
                yield InvalidText(f"line {number}: {_UNRENDERED}")
            else:
                yield error
        line += piece.count("\n")


def _documents_of(piece: str, line: int) -> Iterator[Any]:
    # Comment directives out: the ``---`` that has to follow them was cut off here.
    text = _DIRECTIVE.sub(lambda found: "#" + found.group(), piece)
    try:
        _check(text, line)
        loader = _Loader(text)
        loader.before = line
        while loader.check_data():
            value = loader.get_data()
            if value is not None:
                yield value
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        if mark is None:
            raise InvalidText(str(error.problem)) from None
        problem = _hint(text, mark, error.problem or "") or error.problem or error.context
        if opened := _open_quote(text, mark.line):
            mark, problem = opened, "the quote that is opened here is not closed on its line"
        place = f"line {line + mark.line + 1}, column {mark.column + 1}"
        raise InvalidText(f"{place}: {problem}") from None
    except yaml.YAMLError as error:
        first = (str(error).splitlines() or [""])[0]
        raise InvalidText(f"is not text in UTF-8: {first}") from None


def _open_quote(text: str, line: int) -> Any:  # noqa: ANN401 - a mark of yaml's
    """Return where a quote begins that ends only on this line, or never; None if there is none.

    If a text cannot be read behind such a quote, the missing end is nearly always the cause.
    """
    try:
        for token in yaml.scan(text, Loader=_Base):
            if not isinstance(token, yaml.ScalarToken) or token.style not in ("'", '"'):
                continue
            if token.start_mark.line < line == token.end_mark.line:
                return token.start_mark
    except yaml.MarkedYAMLError as error:
        if "quoted scalar" in (error.context or ""):
            return error.context_mark
    return None


def _hint(text: str, mark: Any, problem: str) -> str:  # noqa: ANN401 - yaml's marks
    """Return a clear text for a message of libyaml; empty if there is none."""
    lines = text.splitlines()
    if "mapping values are not allowed" in problem:  # its text may have begun in the line before
        near = map(_GLUED.match, reversed(lines[max(mark.line - 1, 0) : mark.line + 1]))
        if glued := next(filter(None, near), None):
            return f'a blank is missing behind "{glued["key"]}:", here or in the line before'
        return "there is a second colon in one text; quote it, or check the column of this line"
    for words, hint in _HINTS.items():
        if words in problem:
            return hint
    line = lines[mark.line] if mark.line < len(lines) else ""
    character = line[mark.column : mark.column + 1]
    if character == "\t":
        return "a tab; YAML is indented with blanks"
    if character in "@%`" and character:
        return f'a text cannot begin with {character}; put it into quotes, such as "@daily"'
    return ""


def _check(text: str, before: int) -> None:
    """Refuse documents that are too deep or too large, and aliases without an anchor."""
    sizes: dict[str, int] = {}
    opened: list[tuple[str | None, int]] = []
    used = 0
    event: Any
    for event in yaml.parse(text, Loader=_Base):
        line = f"line {before + event.start_mark.line + 1}"
        anchor = getattr(event, "anchor", None)
        match event:
            case yaml.DocumentStartEvent():
                sizes, used = {}, 0
            case yaml.CollectionStartEvent():
                if len(opened) >= DEEPEST:
                    raise InvalidText(f"{line}: is nested deeper than {DEEPEST} levels")
                opened.append((anchor, used))
            case yaml.CollectionEndEvent():
                anchor, begun = opened.pop()
                used += 1
                sizes |= {anchor: used - begun} if anchor else {}
            case yaml.AliasEvent():
                if anchor not in sizes:
                    raise InvalidText(f"{line}: *{anchor} is not defined before it")
                used += sizes[anchor]
            case yaml.ScalarEvent():
                used += 1
                sizes |= {anchor: 1} if anchor else {}
        if used > LARGEST:
            raise InvalidText(f"{line}: has more than {LARGEST} values, aliases included")


#: Parts of messages of libyaml, and their meaning.
_HINTS = {
    "alphabetic or numeric character": (
        'a text that begins with * or & needs quotes, such as "*/5 * * * *"'
    ),
    "did not find expected key": "this line does not begin in the column of the fields beside it",
}
#: A key whose value follows without a blank, so that both are one text.
_GLUED = re.compile(r"\s*(?:- )?(?P<key>[A-Za-z]\w*):(?=[^\s/])")
_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Base):  # type: ignore[misc]
    """Builds only values that JSON can represent."""

    #: Number of lines of the text before this piece.
    before = 0
    yaml_constructors: dict[str | None, Any] = {}  # noqa: RUF012 - yaml's own registry
    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - yaml's own registry

    def construct_mapping(self, node: Any, deep: bool = True) -> dict[str, Any]:  # noqa: ANN401, FBT001, FBT002 - yaml's signature
        names: set[str] = set()
        for key, _ in node.value:
            if key.tag != f"{_TAG}merge":
                name = self.name_of(key)
                if name in names:
                    why = f"the key {errors.quoted(name)} is there twice"
                    if name == "apiVersion":
                        why += "; another object begins behind a line of three dashes"
                    raise self.refused(key, why)
                names.add(name)
        try:
            self.flatten_mapping(node)
        except yaml.constructor.ConstructorError:
            raise self.refused(node, "<< takes a mapping, or a list of them") from None
        return {
            self.name_of(key): self.construct_object(value, deep=deep) for key, value in node.value
        }

    def name_of(self, node: Any) -> str:  # noqa: ANN401 - yaml's nodes
        """Return a key as a text."""
        key = self.construct_object(node, deep=True)
        if key is None or isinstance(key, (dict, list)):
            raise self.refused(node, "a mapping's key must be a text")
        return str(key).lower() if isinstance(key, bool) else str(key)

    def plain(self, node: Any) -> Any:  # noqa: ANN401 - yaml's nodes, any value
        """Return a scalar by its text, because its tag may not fit."""
        text = node.value
        tag = self.resolve(yaml.ScalarNode, text, (True, False)).removeprefix(_TAG)
        if tag == "null":
            return None
        if tag == "bool":
            return text.lower() in ("true", "yes", "y", "on")
        if tag not in ("int", "float") or len(text) > _LONGEST_NUMBER:
            return text
        if text.lower().lstrip("+-.") in ("inf", "nan"):
            raise self.refused(node, f"{text} is not a number in JSON")
        if tag == "int":
            # libyaml knows only one spelling of each prefix
            known = text.lower().replace("0o", "0", 1)
            return self.construct_yaml_int(yaml.ScalarNode(node.tag, known))
        return whole(self.construct_yaml_float(node), text)

    def binary(self, node: Any) -> str:  # noqa: ANN401 - yaml's nodes
        try:
            return base64.b64decode(node.value, validate=True).decode()
        except ValueError:
            raise self.refused(node, "!!binary takes a text in base64") from None

    def untagged(self, node: Any) -> Any:  # noqa: ANN401 - yaml's nodes
        """Return a value as if it had no tag; a scalar is then a text."""
        if isinstance(node, yaml.MappingNode):
            return self.construct_mapping(node)
        if isinstance(node, yaml.SequenceNode):
            return self.construct_sequence(node, deep=True)
        return node.value

    def refused(self, node: Any, why: str) -> InvalidText:  # noqa: ANN401 - yaml's nodes
        return InvalidText(f"line {self.before + node.start_mark.line + 1}: {why}")


def whole(number: float, text: str) -> int | float | str:
    """Return the number, as an integer if it is one; the text if it is too large for a number."""
    if math.isinf(number):
        return text
    return int(number) if number.is_integer() else number


for _tag, _pattern, _first in _PLAIN:
    _Loader.add_implicit_resolver(
        f"{_TAG}{_tag}", re.compile(rf"(?:{_pattern})\Z", re.ASCII), list(_first)
    )
_Loader.add_implicit_resolver(f"{_TAG}null", re.compile(r"\Z"), [""])
for _tag in ("int", "float", "bool", "null"):
    _Loader.add_constructor(f"{_TAG}{_tag}", _Loader.plain)
_Loader.add_constructor(f"{_TAG}binary", _Loader.binary)
for _tag in ("str", "merge"):
    _Loader.add_constructor(f"{_TAG}{_tag}", _Loader.construct_scalar)
_Loader.add_constructor(f"{_TAG}map", _Loader.construct_mapping)
_Loader.add_constructor(
    f"{_TAG}seq", lambda loader, node: loader.construct_sequence(node, deep=True)
)
_Loader.add_constructor(None, _Loader.untagged)


# -- YAML ------------------------------------------------------------------------------------------


API_VERSION = "duepoint.dev/v1alpha1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """One object of a file.

    Attributes:
        file: the name of the file as the user wrote it.
        document: its number in the file, from 1; 0 for an object of a cluster.
        item: its place in a list, such as ``items[3]``; else empty.
        content: the object as it was read; any JSON value, not checked yet.
        trouble: why the file, or the rest of it, could not be read; else empty.
    """

    file: str
    document: int
    item: str = ""
    content: Any = None
    trouble: str = ""

    @property
    def where(self) -> str:
        """Its place, such as ``jobs.yaml: document 2 (Schedule reports/nightly)``."""
        place = self.file
        if self.document:
            place += f": document {self.document}" + (f", {self.item}" * bool(self.item))
        known = " ".join(part for part in (self.kind, self.name) if part)
        return f"{place} ({known})" if known else place

    @property
    def kind(self) -> str:
        return text(mapping(self.content).get("kind"))

    @property
    def api_version(self) -> str:
        return text(mapping(self.content).get("apiVersion"))

    @property
    def name(self) -> str:
        metadata = mapping(mapping(self.content).get("metadata"))
        return "/".join(filter(None, (text(metadata.get(key)) for key in ("namespace", "name"))))


def text(value: Any) -> str:  # noqa: ANN401 - any JSON
    """Return the value if it is a text; else an empty one."""
    return value if isinstance(value, str) else ""


def read(file: str) -> Iterator[Manifest]:
    """Yield the objects of a file, ``-`` for standard input."""
    shown = "standard input" if file == "-" else file
    try:
        data = options.content(shown, file)
    except errors.InvalidSetting as error:
        yield Manifest(file=shown, document=0, trouble=error.reason)
        return
    for number, found in enumerate(documents(data), start=1):
        if isinstance(found, InvalidText):
            yield Manifest(file=shown, document=number, trouble=str(found))
        else:
            yield from _objects(shown, number, found)


def _of_json(text: str) -> list[Any]:
    """Return JSON objects that follow one another; raises ValueError for anything else."""
    found, rest = [], text
    while rest:
        value, end = _JSON.raw_decode(rest)
        found.append(value)
        rest = rest[end:].lstrip(" \t\r\n")
    return found


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a key is there twice")  # reading it as YAML then reports which, and where
    return made


def _number(text: str) -> Any:  # noqa: ANN401 - json's signature
    number = whole(float(text), text)
    if number is text:
        raise InvalidText(f"the number {text[:40]} is too large")
    return number


#: ``int`` refuses NaN and Infinity.
_JSON = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=int, parse_float=_number)


def _objects(
    file: str,
    document: int,
    value: Any,  # noqa: ANN401 - any value
    item: str = "",
) -> Iterator[Manifest]:
    """Yield the object, or those of a list and of lists in a list, as kubectl does."""
    is_list = isinstance(value, dict) and str(value.get("kind", "")).endswith("List")
    if not is_list:
        yield Manifest(file=file, document=document, item=item, content=value)
        return
    place = f"{item}.items" if item else "items"
    items = value.get("items")
    if not isinstance(items, list):
        message = f"{place}: a list has its objects here, each with apiVersion and kind"
        yield Manifest(file=file, document=document, trouble=message)
        return
    kind = str(value["kind"]).removesuffix("List")
    for index, each in enumerate(items):
        if kind and isinstance(each, dict):  # a typed list names kind and version once
            each = {"apiVersion": value.get("apiVersion"), "kind": kind, **each}  # noqa: PLW2901 - the same item, completed
        yield from _objects(file, document, each, f"{place}[{index}]")
