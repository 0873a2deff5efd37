"""The manifests of files and folders, read again when they change.

``look`` compares what the file system says of each file (time, size, inode) with the last look and
reads what has changed. A change counts once two looks in turn have seen the same, so that a file
which an editor is still writing, or is about to put in place, is not read half and not taken for
deleted. A file that cannot be read, or an object that is wrong, is a ``Wrong`` with its place;
everything else of the file and of the other files goes on.
"""

from __future__ import annotations

import base64
import binascii
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from duepoint import errors
from duepoint.cli import options
from duepoint.cli.check import checks, manifests
from duepoint.cli.check.manifests import Manifest

#: Files and folders that are looked through several times a second.
MOST_ENTRIES = 5_000
#: Kinds beside ours that a webhook or a connection may refer to.
_DATA_KINDS = ("Secret", "ConfigMap")
#: Ours that the services of this process watch.
_RUN_KINDS = ("Schedule", "ScheduleRun")

#: Kind, namespace, name.
ObjectName = tuple[str, str, str]
_Signature = tuple[int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalObject:
    """An object of a manifest, as it is to be stored.

    Attributes:
        where: file, document and object, for messages.
        document: with ``metadata.namespace``.
    """

    where: str
    file: str
    document: dict[str, Any]

    @property
    def key(self) -> ObjectName:
        metadata = self.document["metadata"]
        return self.document["kind"], metadata["namespace"], metadata["name"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrong:
    """Something of a file that is not used.

    Attributes:
        where: file, document and object.
        field: the field as a user would write it; empty for the whole.
        message: the value and what to write.
        is_note: nothing is wrong with it.
        former: objects that go on as they were before.
    """

    where: str
    file: str
    field: str
    message: str
    is_note: bool = False
    former: tuple[ObjectName, ...] = ()

    def __str__(self) -> str:
        place = f"{self.where}: {self.field}" if self.field else self.where
        text = f"{place}: {self.message}"
        return f"{text} (until then the former version runs)" if self.former else text


@dataclass(frozen=True, slots=True)
class FileContent:
    """What one file says now."""

    objects: tuple[LocalObject, ...]
    wrong: tuple[Wrong, ...]


class ManifestFiles:
    """Files and folders that were named on the command line.

    Args:
        names: files, folders (looked through with their folders), or what can be read once only:
            ``-`` and pipes.
        namespace: of objects that name none.
        now_us: creation time of the objects, for what depends on it.

    Attributes:
        contents: by file, what it says; an object that is wrong now stays as it was.
    """

    def __init__(self, names: Iterable[str], *, namespace: str, now_us: Callable[[], int]) -> None:
        self._names = tuple(names)
        self._once: set[str] = set()
        self._namespace = namespace
        self._now_us = now_us
        self._seen: dict[str, _Signature] = {}
        self._read: dict[str, _Signature] = {}
        self.contents: dict[str, FileContent] = {}

    def start(self) -> None:
        """Read everything; raises errors.InvalidSetting for a name that leads nowhere."""
        for name in self._names:
            if name != "-" and not Path(name).exists():
                message = f"{errors.quoted(name)}: there is no such file or folder"
                raise errors.InvalidSetting("--filename", message)
        self._once = {name for name in self._names if name == "-" or _is_pipe(name)}
        self._seen = self._signatures()
        for name in sorted(self._once):
            self.contents[name] = self._content(name)
        self._take(self._seen)

    def look(self) -> list[str]:
        """Files that changed, appeared or went since the last look that found any."""
        now = self._signatures()
        before, self._seen = self._seen, now
        if now != before or now == self._read:
            return []
        return self._take(now)

    def objects(self) -> tuple[dict[ObjectName, LocalObject], list[Wrong]]:
        """All objects by name; of those that two places define, the first one, and a message."""
        found: dict[ObjectName, LocalObject] = {}
        twice: list[Wrong] = []
        for file in sorted(self.contents):
            for each in self.contents[file].objects:
                first = found.setdefault(each.key, each)
                if first is not each:
                    message = f"is defined by {first.where} already; that one is used"
                    twice.append(
                        Wrong(where=each.where, file=file, field="metadata.name", message=message)
                    )
        return found, twice

    # -- files -----------------------------------------------------------------------------

    def _take(self, now: dict[str, _Signature]) -> list[str]:
        changed = [
            file
            for file in sorted(now.keys() | self._read.keys())
            if now.get(file) != self._read.get(file)
        ]
        for file in changed:
            if file in now:
                self.contents[file] = self._content(file)
            else:
                self.contents.pop(file, None)
        self._read = now
        return changed

    def _signatures(self) -> dict[str, _Signature]:
        return dict(self._walked())

    def _walked(self) -> Iterator[tuple[str, _Signature]]:
        for name in self._names:
            if name in self._once:
                continue
            below = options.files_below(name, MOST_ENTRIES) if Path(name).is_dir() else [name]
            for file in below:
                try:
                    found = os.stat(file)  # noqa: PTH116 - thousands of them, several times a second
                except OSError:
                    continue
                if file != name and not stat.S_ISREG(found.st_mode):
                    continue  # a pipe would be read for ever
                yield file, (found.st_mtime_ns, found.st_size, found.st_ino)

    # -- contents ----------------------------------------------------------------------------

    def _content(self, file: str) -> FileContent:
        objects: list[LocalObject] = []
        wrong: list[tuple[Wrong, ObjectName | None]] = []
        is_readable = True
        for manifest in manifests.read(file):
            is_readable = is_readable and not manifest.trouble
            for found in self._judged(manifest):
                if isinstance(found, LocalObject):
                    objects.append(found)
                    continue
                wrong.append((found, None if manifest.trouble else self._key_of(manifest)))
        # What the file defined before goes on where it is wrong now, as after a refused kubectl
        # apply; of a text that cannot be read it is not known which objects are gone.
        known = {each.key for each in objects}
        wrong_keys = {key for _, key in wrong}
        before = self.contents.get(file, FileContent((), ())).objects
        kept = [
            each
            for each in before
            if each.key not in known and (not is_readable or each.key in wrong_keys)
        ]
        former = tuple(each.key for each in kept)
        marked = (
            found
            if found.is_note
            else replace(found, former=tuple(each for each in former if key in (None, each)))
            for found, key in wrong
        )
        return FileContent((*objects, *kept), tuple(marked))

    def _key_of(self, manifest: Manifest) -> ObjectName:
        namespace, slash, name = manifest.name.partition("/")
        kind = "Schedule" if manifest.kind == checks.CRONJOB else manifest.kind
        return (kind, namespace, name) if slash else (kind, self._namespace, namespace)

    def _judged(self, manifest: Manifest) -> Iterator[LocalObject | Wrong]:
        def wrong(field: str, message: str, *, is_note: bool = False) -> Wrong:
            return Wrong(
                where=manifest.where,
                file=manifest.file,
                field=field,
                message=message,
                is_note=is_note,
            )

        checked = checks.check(
            manifest, namespace=self._namespace, created_us=self._now_us(), newer_kubernetes=True
        )
        if checked is None:
            yield from self._of_other_kind(manifest, wrong)
            return
        yield from (
            wrong(each.path, each.message, is_note=each.is_note) for each in checked.problems
        )
        if not checked.is_valid:
            return
        if not manifest.content["metadata"].get("name"):
            yield wrong("metadata.name", "is missing; a manifest that is watched needs a name")
            return
        document = dict(manifest.content)
        if manifest.kind == checks.CRONJOB:
            document |= {"apiVersion": manifests.API_VERSION, "kind": "Schedule"}
            message = "runs as the Schedule that it becomes; duepoint validate lists differences"
            yield wrong("", message, is_note=True)
        if document["kind"] not in _RUN_KINDS:
            yield wrong("kind", f"{document['kind']} does not run without a cluster", is_note=True)
            return
        yield self._object(manifest, document)

    def _of_other_kind(
        self, manifest: Manifest, wrong: Callable[..., Wrong]
    ) -> Iterator[LocalObject | Wrong]:
        if manifest.kind not in _DATA_KINDS:
            yield wrong("kind", f"{manifest.kind} is passed over: not needed here", is_note=True)
            return
        content = manifest.content
        metadata = content.get("metadata")
        if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
            yield wrong("metadata.name", "is missing; write a name")
            return
        problems = list(_wrong_data(content, is_secret=manifest.kind == "Secret"))
        yield from (wrong(*problem) for problem in problems)
        if not problems:
            yield self._object(manifest, _with_encoded_strings(content))

    def _object(self, manifest: Manifest, document: dict[str, Any]) -> LocalObject:
        metadata = {**document["metadata"]}
        metadata["namespace"] = metadata.get("namespace") or self._namespace
        for key in ("uid", "resourceVersion", "generation", "creationTimestamp"):
            metadata.pop(key, None)  # of an object that was read from a cluster
        kept = {key: value for key, value in document.items() if key != "status"}
        return LocalObject(
            where=manifest.where, file=manifest.file, document={**kept, "metadata": metadata}
        )


def _is_pipe(name: str) -> bool:
    return not Path(name).is_file() and not Path(name).is_dir()


def _wrong_data(content: dict[str, Any], *, is_secret: bool) -> Iterator[tuple[str, str]]:
    for field in ("data", "stringData", "binaryData"):
        values = content.get(field)
        if values is None:
            continue
        if not isinstance(values, dict):
            yield field, "is no mapping; write keys with texts"
            continue
        is_encoded = field == "binaryData" or (is_secret and field == "data")
        for key, text in values.items():
            if not isinstance(text, str):
                yield f"{field}.{key}", f"is no text; write {field}.{key} in quotes"
            elif is_encoded and not _is_base64(text):
                yield f"{field}.{key}", "is no base64; write it below stringData as it is"


def _is_base64(text: str) -> bool:
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return False
    return True


def _with_encoded_strings(content: dict[str, Any]) -> dict[str, Any]:
    """A Secret as the API server stores it."""
    strings = content.get("stringData") or {}
    encoded = {key: base64.b64encode(text.encode()).decode() for key, text in strings.items()}
    kept = {key: value for key, value in content.items() if key != "stringData"}
    return {**kept, "data": {**(content.get("data") or {}), **encoded}}
