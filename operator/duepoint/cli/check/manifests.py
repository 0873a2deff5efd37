"""Files and standard input to manifests: the objects in them, each with its place.

YAML with any number of documents, JSON, and lists (``kind: List``, ``ScheduleList``,
``CronJobList``) are taken apart to single objects. Files are read as bytes with a limit, so that a
huge or endless one costs a message and not the machine. What cannot be read is a ``Problem`` of
the file, like any other.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from duepoint.cli import options
from duepoint.cli.check import yamltext
from duepoint.schedules import nesting

API_VERSION = "duepoint.dev/v1alpha1"
GROUP = "duepoint.dev/"


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong, or with ``is_note`` something worth knowing.

    Attributes:
        path: the field as a user would write it; empty for the whole object or file.
        is_of_newer: a newer Kubernetes may see it otherwise.
        is_misspelt: an unknown field that means a known one, so that this one is not missing.
    """

    path: str
    message: str
    is_note: bool = False
    is_of_newer: bool = False
    is_misspelt: bool = False

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


def note(path: str, message: str) -> Problem:
    """Something worth knowing."""
    return Problem(path, message, is_note=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """One object of a file.

    Attributes:
        file: as the user named it.
        document: its number in the file, from 1; 0 for an object of a cluster.
        item: where it stands in a list, such as ``items[3]``; else empty.
        content: the object as it was read; any JSON value, not checked yet.
        trouble: why the file, or the rest of it, could not be read; empty where it was.
    """

    file: str
    document: int
    item: str = ""
    content: Any = None
    trouble: str = ""

    @property
    def where(self) -> str:
        """Such as ``jobs.yaml: document 2 (Schedule reports/nightly)``."""
        place = self.file
        if self.document:
            place += f": document {self.document}" + (f", {self.item}" * bool(self.item))
        known = " ".join(part for part in (self.kind, self.name) if part)
        return f"{place} ({known})" if known else place

    @property
    def kind(self) -> str:
        return self._text("kind")

    @property
    def api_version(self) -> str:
        return self._text("apiVersion")

    @property
    def name(self) -> str:
        metadata = self.content.get("metadata") if isinstance(self.content, dict) else None
        if not isinstance(metadata, dict):
            return ""
        parts = [metadata.get(key) for key in ("namespace", "name")]
        return "/".join(part for part in parts if isinstance(part, str) and part)

    def _text(self, key: str) -> str:
        value = self.content.get(key) if isinstance(self.content, dict) else None
        return value if isinstance(value, str) else ""


def read(file: str) -> Iterator[Manifest]:
    """The objects of a file, ``-`` being standard input."""
    shown = "standard input" if file == "-" else file
    try:
        data = options.file_bytes(file)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        why = f"cannot be read: {reason}" if isinstance(error, OSError) else str(error)
        yield Manifest(file=shown, document=0, trouble=why)
        return
    if len(data) > options.LARGEST_FILE:  # the API server takes 1.5 MB for an object
        most = options.LARGEST_FILE >> 20
        message = f"is larger than {most} MiB; split it into several files"
        yield Manifest(file=shown, document=0, trouble=message)
        return
    for number, found in enumerate(_documents(data), start=1):
        if isinstance(found, yamltext.InvalidText):
            yield Manifest(file=shown, document=number, trouble=str(found))
        else:
            yield from _objects(shown, number, found)


def _documents(data: bytes) -> Iterator[Any]:
    """What kubectl prints is read by a reader for JSON, which is quicker; anything else as YAML.

    How deep that reader follows depends on the version of Python; what is left for it does not, and
    is enough for a spec to be refused.
    """
    if data[:1] == b"{":
        try:
            return iter(_of_json(nesting.clipped(data).decode()))
        except yamltext.InvalidText as error:
            return iter([error])
        except ValueError:
            pass
    return yamltext.documents(data)


def _of_json(text: str) -> list[Any]:
    """The objects that stand one behind the other; raises ValueError for anything else."""
    found, rest = [], text
    while rest:
        value, end = _JSON.raw_decode(rest)
        found.append(value)
        rest = rest[end:].lstrip(" \t\r\n")
    return found


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a key is there twice")  # the reader for YAML says which, and where
    return made


def _refuse(word: str) -> Any:  # noqa: ANN401 - json's signature
    raise ValueError(word)


def _number(text: str) -> Any:  # noqa: ANN401 - json's signature
    number = yamltext.whole(float(text), text)
    if number is text:
        raise yamltext.InvalidText(f"the number {text[:40]} is too large")
    return number


_JSON = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_refuse, parse_float=_number)


def _objects(
    file: str,
    document: int,
    value: Any,  # noqa: ANN401 - any value
    item: str = "",
) -> Iterator[Manifest]:
    """The object, or those of a list, of lists in a list, too: kubectl takes them apart as well."""
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
