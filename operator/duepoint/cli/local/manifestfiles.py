"""Manifests in files and folders, read again when they change.

Each call of ``look`` compares the time, size and inode of all files with those of the last call,
and reads the files that have changed. A change counts only after two calls in a row have seen it.
So a file that an editor is still writing or replacing is neither read half nor taken for deleted.
A file that cannot be read, or an object that is wrong, has its problems; the rest of the file and
the other files are used.
"""

from __future__ import annotations

import base64
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from duepoint import errors
from duepoint.cli import instants, options
from duepoint.cli.check import checks, manifests
from duepoint.cli.check.manifests import Manifest
from duepoint.model.checks import Problem, note

#: Other kinds that a webhook or a connection may refer to.
_DATA_KINDS = ("Secret", "ConfigMap")
#: Fields of metadata that the API server sets, in case a manifest was exported from a cluster.
_OF_THE_SERVER = ("uid", "resourceVersion", "generation", "creationTimestamp")

#: Kind, namespace, name.
ObjectName = tuple[str, str, str]
_Signature = tuple[int, int, int]


class LocalObject(NamedTuple):
    """An object of a manifest.

    Attributes:
        where: file, document and object, for messages.
        problems: what is wrong with it, and notes.
        document: the object as it is stored; None if it is not used.
    """

    where: str
    file: str
    problems: tuple[Problem, ...]
    document: dict[str, Any] | None = None

    @property
    def key(self) -> ObjectName:
        assert self.document is not None  # noqa: S101 - only such are asked
        metadata = self.document["metadata"]
        return self.document["kind"], metadata["namespace"], metadata["name"]


class ManifestFiles:
    """The files and folders named on the command line.

    Args:
        names: files, folders (with their subfolders), or ``-`` and pipes, which can be read only
            once.
        namespace: the namespace of objects without one.

    Attributes:
        contents: the objects of each file as it is now.
    """

    def __init__(self, names: Iterable[str], *, namespace: str) -> None:
        self._names = tuple(names)
        self._namespace = namespace
        self._seen: dict[str, _Signature] = {}
        self._read: dict[str, _Signature] = {}
        self.contents: dict[str, list[LocalObject]] = {}

    def start(self) -> None:
        """Read everything; raises errors.InvalidSetting for a name that does not exist."""
        for name in self._names:
            path = Path(name)
            if name != "-" and not path.exists():
                message = f"{errors.quoted(name)}: there is no such file or folder"
                raise errors.InvalidSetting("--filename", message)
            if not path.is_file() and not path.is_dir():
                self.contents[name] = self._content(name)
        self._seen = dict(self._walked())
        self.read_changes()

    def read_changes(self) -> set[str]:
        """Read changed files again; return those that changed, appeared or were deleted."""
        before, self._seen = self._seen, dict(self._walked())
        if self._seen != before:
            return set()
        changed = {file for file, _ in self._seen.items() ^ self._read.items()}
        self._read = self._seen
        for file in changed:
            self.contents.pop(file, None)
            if file in self._seen:
                self.contents[file] = self._content(file)
        return changed

    def _walked(self) -> Iterator[tuple[str, _Signature]]:
        for name in self._names:
            below = options.files_below(name) if Path(name).is_dir() else [name]
            for file in below:
                try:
                    found = os.stat(file)  # noqa: PTH116 - thousands of them, several times a second
                except OSError:
                    continue
                if stat.S_ISREG(found.st_mode):  # reading a pipe could block for ever
                    yield file, (found.st_mtime_ns, found.st_size, found.st_ino)

    def _content(self, file: str) -> list[LocalObject]:
        return [self._judged(manifest) for manifest in manifests.read(file)]

    def _judged(self, manifest: Manifest) -> LocalObject:
        checked = checks.check(manifest, namespace=self._namespace, created_us=instants.now_us())
        kind = manifest.kind
        if checked is not None:
            problems = list(checked.problems)
        elif kind in _DATA_KINDS:
            problems = list(_wrong_data(manifest.content))
        else:
            problems = [note("kind", f"{kind} is passed over: not needed here")]
        is_used = all(each.is_note for each in problems) and (checked or kind in _DATA_KINDS)
        if is_used and not manifest.content["metadata"].get("name"):
            problems.append(Problem("metadata.name", "is missing; a manifest here needs a name"))
            is_used = False
        if is_used and kind == "ScheduleSet":
            problems.append(note("kind", f"{kind} does not run without a cluster"))
            is_used = False
        if is_used and kind == checks.CRONJOB:
            message = "runs as the Schedule that it becomes; duepoint validate lists differences"
            problems.append(note("", message))
        document = self._stored(manifest) if is_used else None
        return LocalObject(manifest.where, manifest.file, tuple(problems), document)

    def _stored(self, manifest: Manifest) -> dict[str, Any]:
        """Return the object as the API server stores it."""
        document = {key: value for key, value in manifest.content.items() if key != "status"}
        given = document["metadata"]
        metadata = {key: value for key, value in given.items() if key not in _OF_THE_SERVER}
        document["metadata"] = metadata | {"namespace": given.get("namespace") or self._namespace}
        if manifest.kind == checks.CRONJOB:
            document |= {"apiVersion": manifests.API_VERSION, "kind": "Schedule"}
        if manifest.kind == "Secret":
            strings = document.pop("stringData", None) or {}
            encoded = {
                key: base64.b64encode(text.encode()).decode() for key, text in strings.items()
            }
            document["data"] = {**(document.get("data") or {}), **encoded}
        return document


def _wrong_data(content: dict[str, Any]) -> Iterator[Problem]:
    """Yield what the API server would refuse in a Secret or ConfigMap."""
    metadata = content.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
        yield Problem("metadata.name", "is missing; write a name")
    for field in ("data", "stringData", "binaryData"):
        values = content.get(field) or {}
        if not isinstance(values, dict):
            yield Problem(field, "is not a mapping; write keys with texts")
            continue
        is_encoded = field == "binaryData" or (field == "data" and content["kind"] == "Secret")
        for key, text in values.items():
            try:
                base64.b64decode(text if is_encoded else "", validate=True)
                text.encode()
            except (ValueError, TypeError, AttributeError):
                message = "is not text in base64; write it below stringData" if is_encoded else ""
                yield Problem(f"{field}.{key}", message or "is not text; write it in quotes")
