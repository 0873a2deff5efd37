"""What an API server does to documents: selectors, JSON Patch, merge patch.

As much of each as Duepoint uses. Pure, but for the document that a patch changes in place.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, TypeVar

DocumentT = TypeVar("DocumentT")


def copied(document: DocumentT) -> DocumentT:
    """A deep copy; of JSON it takes a tenth of the time of ``copy.deepcopy``."""
    copy_: DocumentT = _copied(document)
    return copy_


def _copied(value: Any) -> Any:  # noqa: ANN401 - any JSON
    kind = type(value)
    if kind is dict:
        return {key: _copied(each) for key, each in value.items()}
    if kind is list:
        return [_copied(each) for each in value]
    return value if value is None or kind in _ATOMS else copy.deepcopy(value)


_ATOMS = frozenset({str, int, float, bool})


def has_labels(document: Mapping[str, Any], selector: str) -> bool:
    """Whether an object has the labels of a selector made of equalities and bare keys."""
    labels = document["metadata"].get("labels") or {}
    wanted = [part.partition("=") for part in selector.split(",") if part]
    return all(
        labels.get(key) == text.removeprefix("=") if sign else key in labels
        for key, sign, text in wanted
    )


def has_fields(document: Mapping[str, Any], wanted: Mapping[str, str]) -> bool:
    """Whether each path, such as ``metadata.name``, leads to this text."""
    return all(_at(document, path) == text for path, text in wanted.items())


def _at(document: Mapping[str, Any], path: str) -> object:
    found: Any = document
    for part in path.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def apply_operation(document: dict[str, Any], operation: Mapping[str, Any]) -> bool:
    """One operation of RFC 6902 on objects; False where it does not apply."""
    *parents, last = (
        part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]
    )
    place = document
    for part in parents:
        place = place.get(part, {})
    match operation["op"]:
        case "test":
            return bool(last in place and place[last] == operation["value"])
        case "add":
            place[last] = operation["value"]
            return True
        case "remove":
            return place.pop(last, None) is not None
    return False


def merge(document: dict[str, Any], patch: Mapping[str, Any]) -> None:
    """RFC 7386."""
    for key, value in patch.items():
        if value is None:
            document.pop(key, None)
        elif isinstance(value, Mapping):
            inner = document.setdefault(key, {})
            merge(inner, value)
        else:
            document[key] = value
