"""An object's metadata against the rules of the API server: names, labels, annotations, finalizers.

structure.py checks types and unknown fields, this module the values, by the rules of
``k8s.io/apimachinery`` (``ValidateObjectMeta``, ``IsQualifiedName``, ``IsValidLabelValue``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from duepoint import errors
from duepoint.cli.check import structure
from duepoint.cli.check.manifests import Problem

_DNS_NAME = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_WORD = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_NAME = re.compile(_DNS_NAME)
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LABEL_VALUE = re.compile(f"({_WORD})?")
_QUALIFIED_NAME = re.compile(rf"((?=[^/]{{1,253}}/){_DNS_NAME}/)?{_WORD}")

#: A Job's name carries eleven more characters for its slot and ends at 63.
_LONGEST_NAME = (
    52,
    "because each Job's name carries 11 more for its slot and ends at 63",
)
#: Of kinds whose objects create no Jobs under their own name.
_LONGEST_NAMES = {"ScheduleSet": (63, "because the name is the value of a label")}
#: Keys and values of all annotations together.
_MOST_ANNOTATION_BYTES = 256 * 1024

_LETTERS = "at most 63 letters, digits, -, _ and ., the first and the last a letter or digit"


def problems(kind: str, metadata: dict[str, Any]) -> Iterator[Problem]:
    """What the API server would refuse of the metadata of an object of this kind."""
    yield from structure.problems_of_metadata(metadata)
    prefix, namespace = metadata.get("generateName"), metadata.get("namespace")
    if wrong := _wrong_name(kind, metadata.get("name"), prefix):
        yield Problem("metadata.name", wrong)
    if isinstance(prefix, str) and not _NAME.fullmatch(f"{prefix}a"):
        message = f"{errors.quoted(prefix)}: write lower-case letters, digits, - and ."
        yield Problem("metadata.generateName", message)
    if namespace not in (None, "") and not (
        isinstance(namespace, str) and _NAMESPACE.fullmatch(namespace)
    ):
        message = f"{errors.quoted(namespace)}: write lower-case letters, digits and -"
        yield Problem("metadata.namespace", message)
    yield from labels_and_annotations(metadata, "metadata")
    yield from _of_finalizers(metadata.get("finalizers"))


def labels_and_annotations(metadata: dict[str, Any], path: str) -> Iterator[Problem]:
    """Wrong keys and values of the metadata at this path, an object's or a template's."""
    labels = metadata.get("labels")
    for key, value in labels.items() if isinstance(labels, dict) else ():
        yield from _of_key(key, f"{path}.labels", is_wrong=not _QUALIFIED_NAME.fullmatch(key))
        if isinstance(value, str) and not _LABEL_VALUE.fullmatch(value):
            message = f"{errors.quoted(value)} is no value of a label; write {_LETTERS}"
            yield Problem(f"{path}.labels.{key[:64]}", message)
    annotations = metadata.get("annotations")
    if not isinstance(annotations, dict):
        return
    for key in annotations:
        # The API server takes capitals in the prefix of an annotation.
        is_wrong = not _QUALIFIED_NAME.fullmatch(key.lower())
        yield from _of_key(key, f"{path}.annotations", is_wrong=is_wrong)
    texts = (text for pair in annotations.items() for text in pair if isinstance(text, str))
    if (
        size := sum(len(text.encode("utf-8", "replace")) for text in texts)
    ) > _MOST_ANNOTATION_BYTES:
        message = f"have {size} bytes in all; at most {_MOST_ANNOTATION_BYTES} are taken"
        yield Problem(f"{path}.annotations", message)


def _of_key(key: str, path: str, *, is_wrong: bool) -> Iterator[Problem]:
    if is_wrong:
        message = f"the key {errors.quoted(key)} is no qualified name; write {_LETTERS}, such as "
        yield Problem(path, f"{message}app or example.com/app")


def _of_finalizers(finalizers: Any) -> Iterator[Problem]:  # noqa: ANN401 - any JSON
    listed = finalizers if isinstance(finalizers, list) else []
    for index, name in enumerate(listed):
        if isinstance(name, str) and not _QUALIFIED_NAME.fullmatch(name):
            message = f"{errors.quoted(name)} is no qualified name; write {_LETTERS}, such as "
            yield Problem(f"metadata.finalizers[{index}]", f"{message}example.com/cleanup")
    if "orphan" in listed and "foregroundDeletion" in listed:
        message = "orphan and foregroundDeletion exclude each other; write one of them"
        yield Problem("metadata.finalizers", message)


def _wrong_name(kind: str, name: Any, prefix: Any) -> str:  # noqa: ANN401 - any JSON
    if name in (None, ""):
        return "" if isinstance(prefix, str) and prefix else "is missing; write a name"
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        return f"{errors.quoted(name)}: write lower-case letters, digits, - and ."
    longest, why = _LONGEST_NAMES.get(kind, _LONGEST_NAME)
    if len(name) > longest:
        return f"has {len(name)} characters; write at most {longest}, {why}"
    return ""
