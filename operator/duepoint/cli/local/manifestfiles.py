"""Manifests in files and folders, read again when they change.

Each call of ``look`` compares the time, size and inode of all files with those of the last call,
and reads the files that have changed. A change counts only after two calls in a row have seen it.
So a file that an editor is still writing or replacing is neither read half nor taken for deleted.
A file that cannot be read, or an object that is wrong, becomes a ``Wrong`` with its place; the rest
of the file and the other files are used.
"""

from __future__ import annotations

import base64
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from duepoint import errors
from duepoint.cli import options
from duepoint.cli.check import checks, manifests
from duepoint.cli.check.manifests import Manifest, Problem

#: The most files and folders, because they are checked several times a second.
MOST_ENTRIES = 5_000
#: Other kinds that a webhook or a connection may refer to.
_DATA_KINDS = ("Secret", "ConfigMap")
#: Our kinds that the services of this process watch.
_RUN_KINDS = ("Schedule", "ScheduleRun")

#: Kind, namespace, name.
ObjectName = tuple[str, str, str]
_Signature = tuple[int, int, int]


class LocalObject(NamedTuple):
    """An object of a manifest, ready to be stored.

    Attributes:
        where: file, document and object, for messages.
        document: the object, with ``metadata.namespace``.
    """

    where: str
    file: str
    document: dict[str, Any]

    @property
    def key(self) -> ObjectName:
        metadata = self.document["metadata"]
        return self.document["kind"], metadata["namespace"], metadata["name"]


class Wrong(NamedTuple):
    """A part of a file that is not used.

    Attributes:
        where: file, document and object.
        field: the field as users write it; empty for the whole object.
        message: the value and what to write instead.
        is_note: this is a note; nothing is wrong.
    """

    where: str
    file: str
    field: str
    message: str
    is_note: bool = False

    def __str__(self) -> str:
        place = f"{self.where}: {self.field}" if self.field else self.where
        return f"{place}: {self.message}"


class ManifestFiles:
    """The files and folders named on the command line.

    Args:
        names: files, folders (with their subfolders), or ``-`` and pipes, which can be read only
            once.
        namespace: the namespace of objects without one.
        now_us: the creation time of the objects, on which slots may depend.

    Attributes:
        contents: by file, the objects that it defines now and its mistakes.
    """

    def __init__(self, names: Iterable[str], *, namespace: str, now_us: Callable[[], int]) -> None:
        self._names = tuple(names)
        self._namespace = namespace
        self._now_us = now_us
        self._seen: dict[str, _Signature] = {}
        self._read: dict[str, _Signature] = {}
        self.contents: dict[str, list[LocalObject | Wrong]] = {}

    def start(self) -> None:
        """Read everything; raises errors.InvalidSetting for a name that does not exist."""
        for name in self._names:
            path = Path(name)
            if name != "-" and not path.exists():
                message = f"{errors.quoted(name)}: there is no such file or folder"
                raise errors.InvalidSetting("--filename", message)
            if not path.is_file() and not path.is_dir():
                self.contents[name] = list(self._content(name))
        self._names = tuple(name for name in self._names if name not in self.contents)
        self._seen = dict(self._walked())
        self.look()

    def look(self) -> set[str]:
        """Read changed files again; return those that changed, appeared or were deleted."""
        before, self._seen = self._seen, dict(self._walked())
        if self._seen != before:
            return set()
        changed = {file for file, _ in self._seen.items() ^ self._read.items()}
        self._read = self._seen
        for file in changed:
            self.contents.pop(file, None)
            if file in self._seen:
                self.contents[file] = list(self._content(file))
        return changed

    def objects(self) -> tuple[dict[ObjectName, LocalObject], list[Wrong]]:
        """Return all objects by name, and all mistakes; the first definition of a name counts."""
        found: dict[ObjectName, LocalObject] = {}
        wrong: list[Wrong] = []
        for file in sorted(self.contents):
            for each in self.contents[file]:
                if isinstance(each, Wrong):
                    wrong.append(each)
                elif (first := found.setdefault(each.key, each)) is not each:
                    message = f"is defined by {first.where} already; that one is used"
                    wrong.append(Wrong(each.where, file, "metadata.name", message))
        return found, wrong

    def _walked(self) -> Iterator[tuple[str, _Signature]]:
        for name in self._names:
            below = options.files_below(name, MOST_ENTRIES) if Path(name).is_dir() else [name]
            for file in below:
                try:
                    found = os.stat(file)  # noqa: PTH116 - thousands of them, several times a second
                except OSError:
                    continue
                if stat.S_ISREG(found.st_mode):  # reading a pipe could block for ever
                    yield file, (found.st_mtime_ns, found.st_size, found.st_ino)

    # -- contents ----------------------------------------------------------------------------

    def _content(self, file: str) -> Iterator[LocalObject | Wrong]:
        for manifest in manifests.read(file):
            yield from self._judged(manifest)

    def _judged(self, manifest: Manifest) -> Iterator[LocalObject | Wrong]:
        def wrong(field: str, message: str, *, is_note: bool = False) -> Wrong:
            return Wrong(manifest.where, manifest.file, field, message, is_note)

        checked = checks.check(
            manifest, namespace=self._namespace, created_us=self._now_us(), newer_kubernetes=True
        )
        content, kind = manifest.content, manifest.kind
        if checked is not None:
            problems = list(checked.problems)
        elif kind in _DATA_KINDS:
            problems = list(_wrong_data(content))
        else:
            yield wrong("kind", f"{kind} is passed over: not needed here", is_note=True)
            return
        yield from (wrong(each.path, each.message, is_note=each.is_note) for each in problems)
        if not all(each.is_note for each in problems):
            return
        if not content["metadata"].get("name"):
            yield wrong("metadata.name", "is missing; a manifest that is watched needs a name")
            return
        document = {key: value for key, value in content.items() if key != "status"}
        if kind == checks.CRONJOB:
            document |= {"apiVersion": manifests.API_VERSION, "kind": "Schedule"}
            message = "runs as the Schedule that it becomes; duepoint validate lists differences"
            yield wrong("", message, is_note=True)
        elif kind in _DATA_KINDS:
            document = _with_encoded_strings(document)
        elif kind not in _RUN_KINDS:
            yield wrong("kind", f"{kind} does not run without a cluster", is_note=True)
            return
        metadata = {**content["metadata"]}
        metadata["namespace"] = metadata.get("namespace") or self._namespace
        for key in ("uid", "resourceVersion", "generation", "creationTimestamp"):
            metadata.pop(key, None)  # in case the manifest was exported from a cluster
        yield LocalObject(manifest.where, manifest.file, {**document, "metadata": metadata})


def _wrong_data(content: dict[str, Any]) -> Iterator[Problem]:
    """Yield what the API server would refuse in a Secret or ConfigMap."""
    metadata = content.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
        yield Problem("metadata.name", "is missing; write a name")
    for field in ("data", "stringData", "binaryData"):
        values = content.get(field) or {}
        if not isinstance(values, dict):
            yield Problem(field, "is no mapping; write keys with texts")
            continue
        is_encoded = field == "binaryData" or (field == "data" and content["kind"] == "Secret")
        for key, text in values.items():
            if not isinstance(text, str):
                message = f"is no text; write {field}.{key} in quotes"
                yield Problem(f"{field}.{key}", message)
            elif is_encoded and not _is_base64(text):
                message = "is no base64; write it below stringData as it is"
                yield Problem(f"{field}.{key}", message)


def _is_base64(text: str) -> bool:
    try:
        base64.b64decode(text, validate=True)
    except ValueError:
        return False
    return True


def _with_encoded_strings(content: dict[str, Any]) -> dict[str, Any]:
    """Return a Secret as the API server stores it, with ``stringData`` encoded into ``data``."""
    strings = content.pop("stringData", None) or {}
    encoded = {key: base64.b64encode(text.encode()).decode() for key, text in strings.items()}
    return {**content, "data": {**(content.get("data") or {}), **encoded}}
