"""A manifest's spec against the schema of its CRD: types, limits, required and unknown fields.

The schema is the one that the API server has, without descriptions (``schema.json``, written by
``python -m tools.jobschema``), so what is told here is what ``kubectl apply`` would refuse. Null
means absent wherever it may be. A field of a Job's template that the schema lacks passes the API
server when the Schedule is applied and fails the operator's dry run: it is a problem here, marked
as one that a newer Kubernetes may not have.
"""

from __future__ import annotations

import difflib
import functools
import importlib.resources
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from duepoint import errors
from duepoint.cli import instants
from duepoint.cli.check import rules
from duepoint.cli.check.manifests import Problem

_KINDS: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
}
_WORDS = {str: "a text", bool: "true or false", dict: "a mapping", list: "a list"}
_SIZES = {"int32": 1 << 31, "int64": 1 << 63}

#: Fields of every object's metadata, in v1.
METADATA = (
    "annotations", "creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp",
    "finalizers", "generateName", "generation", "labels", "managedFields", "name", "namespace",
    "ownerReferences", "resourceVersion", "selfLink", "uid",
)  # fmt: skip

#: The Kubernetes whose Jobs the schema describes.
KUBERNETES = "1.36"

#: What to write for the patterns of the schema.
PATTERNS = {
    "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$": "write lower-case letters and digits, with - between them",
    "^[+]?([0-9]+([.][0-9]*)?|[.][0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$": (
        "write a quantity such as 500m, 0.5, 64Mi or 1G"
    ),
}

Schema = Mapping[str, Any]


@functools.cache
def schemas() -> dict[str, Any]:
    """Kind -> schema of its spec."""
    packaged = importlib.resources.files("duepoint.cli").joinpath("schema.json")
    loaded: dict[str, Any] = json.loads(packaged.read_text("ascii"))
    return loaded


def problems(kind: str, spec: Any) -> Iterator[Problem]:  # noqa: ANN401 - any JSON
    """Everything that the schema of the kind has against the spec, in the spec's order."""
    yield from _problems(spec, schemas()[kind], "spec")


def nearest(word: str, known: Iterable[str]) -> str:
    """The known word that was most probably meant, or nothing."""
    by_lower = {each.lower(): each for each in known}
    if word.lower() in by_lower:
        return by_lower[word.lower()]
    near = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.75)
    return by_lower[near[0]] if near else ""


def _problems(value: Any, schema: Schema, path: str) -> Iterator[Problem]:  # noqa: ANN401 - any JSON
    if value is None:
        if not schema.get("nullable") and "type" in schema:
            yield Problem(path=path, message=f"is null; write {_wanted(schema)}")
        return
    wrong = _wrong_type(value, schema)
    if wrong:
        yield Problem(path=path, message=wrong)
        return
    found = list(_of_this(value, schema, path)) + list(_of_parts(value, schema, path))
    yield from found
    # Rules of an object still hold where one of its fields is wrong; those of a text do not.
    if "properties" in schema or all(problem.is_note for problem in found):
        yield from _of_rules(value, schema, path)


def _wrong_type(value: Any, schema: Schema) -> str:  # noqa: ANN401 - any JSON
    if schema.get("x-kubernetes-int-or-string"):
        fits = isinstance(value, (int, str)) and not isinstance(value, bool)
        return "" if fits else f"{_shown(value)} is neither a number nor a text"
    wanted = schema.get("type")
    if wanted is None:
        return ""
    if wanted in ("integer", "number"):
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if is_number and (wanted == "number" or value == int(value)):
            return ""
    elif isinstance(value, _KINDS[wanted]):
        return ""
    hint = ", in quotes" if wanted == "string" and not isinstance(value, (dict, list)) else ""
    hint = (
        ", without quotes" if wanted in ("integer", "boolean") and isinstance(value, str) else hint
    )
    return f"{_shown(value)} is of the wrong type; write {_wanted(schema)}{hint}"


def _wanted(schema: Schema) -> str:
    wanted = schema.get("type")
    if wanted in ("integer", "number"):
        return "a whole number" if wanted == "integer" else "a number"
    return _WORDS[_KINDS[str(wanted)][0]] if wanted in _KINDS else "a value"


def _shown(value: Any) -> str:  # noqa: ANN401 - any JSON
    if isinstance(value, (dict, list)):
        return _WORDS[type(value)]
    return errors.quoted(value if isinstance(value, str) else json.dumps(value))


def _of_this(value: Any, schema: Schema, path: str) -> Iterator[Problem]:  # noqa: ANN401 - any JSON
    """Limits of the value itself."""
    if isinstance(value, str):
        yield from _of_text(value, schema, path)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield from _of_number(value, schema, path)
    elif isinstance(value, list):
        yield from _of_list(value, schema, path)


def _of_text(text: str, schema: Schema, path: str) -> Iterator[Problem]:
    if len(text) > schema.get("maxLength", len(text)):
        yield Problem(
            path=path,
            message=f"has {len(text)} characters; at most {schema['maxLength']} are taken",
        )
    if len(text) < schema.get("minLength", 0):
        yield Problem(path=path, message="is empty; write a text or leave the field out")
    if schema.get("format") == "date-time":
        try:
            instants.strict_us(text)
        except ValueError:
            yield Problem(
                path=path,
                message=f"{errors.quoted(text)} is no time; write RFC 3339 with its zone, such as "
                "2026-12-24T18:00:00Z",
            )
    if "pattern" in schema and not _pattern(schema["pattern"]).search(text):
        yield Problem(path=path, message=f"{errors.quoted(text)}: {PATTERNS[schema['pattern']]}")
    if text not in schema.get("enum", (text,)):
        yield Problem(
            path=path, message=f"{errors.quoted(text)}: write {' or '.join(schema['enum'])}"
        )


@functools.cache
def _pattern(text: str) -> re.Pattern[str]:
    """The end of a pattern of the schema is the very end of the text."""
    return re.compile(text.removesuffix("$") + r"\Z", re.ASCII)


def _of_number(number: float, schema: Schema, path: str) -> Iterator[Problem]:
    size = _SIZES.get(schema.get("format", ""))
    least = schema.get("minimum", -size if size else number)
    most = schema.get("maximum", size - 1 if size else number)
    if not least <= number <= most:
        side = f"{least} or more" if number < least else f"{most} or less"
        yield Problem(path=path, message=f"{number} is out of range; write {side}")


def _of_list(items: list[Any], schema: Schema, path: str) -> Iterator[Problem]:
    if len(items) > schema.get("maxItems", len(items)):
        yield Problem(
            path=path, message=f"has {len(items)} entries; at most {schema['maxItems']} are taken"
        )
    if len(items) < schema.get("minItems", 0):
        yield Problem(path=path, message="is empty; write an entry or leave the field out")
    keys = schema.get("x-kubernetes-list-map-keys", [])
    seen = set()
    for index, item in enumerate(items):
        if not keys or not isinstance(item, dict):
            continue
        key = tuple(str(item.get(name)) for name in keys)
        if key in seen:
            named = " and ".join(f"{name} {errors.quoted(item.get(name))}" for name in keys)
            yield Problem(path=f"{path}[{index}]", message=f"the {named} is there twice")
        seen.add(key)


def _of_parts(value: Any, schema: Schema, path: str) -> Iterator[Problem]:  # noqa: ANN401 - any JSON
    """Of the fields or items, in the order in which they are written."""
    if isinstance(value, list) and "items" in schema:
        limit = schema.get("maxItems", len(value))
        for index, item in enumerate(value[:limit]):
            yield from _problems(item, schema["items"], f"{path}[{index}]")
    if not isinstance(value, dict):
        return
    known = schema.get("properties", {})
    for name, each in value.items():
        if name in known:
            yield from _problems(each, known[name], f"{path}.{name}")
        elif isinstance(schema.get("additionalProperties"), dict):
            yield from _problems(each, schema["additionalProperties"], f"{path}.{name}")
        elif known:
            yield from _unknown(name, schema, path)
    for name in schema.get("required", ()):
        if name not in value:
            wanted = _wanted(known.get(name, {}))
            yield Problem(path=f"{path}.{name}", message=f"is missing; write {wanted}")


def _unknown(name: str, schema: Schema, path: str) -> Iterator[Problem]:
    if path.endswith(".metadata") and name in METADATA:
        return
    meant = nearest(name, schema["properties"])
    at = f"{path}.{_cut(name)}"
    names = ", ".join(sorted(schema["properties"]))
    hint = f"known here: {names}" if len(names) < 120 else ""
    hint = f"did you mean {meant}?" if meant else hint
    if not schema.get("x-kubernetes-preserve-unknown-fields"):
        yield Problem(path=at, message=f"is unknown; {hint}" if hint else "is unknown")
    elif path.startswith("spec.jobTemplate.spec"):
        message = f"is no field of a Job in Kubernetes {KUBERNETES}"
        message = f"{message}; {hint}" if hint else message
        yield Problem(path=at, message=message, is_of_newer=not meant)
    elif meant:
        yield Problem(path=at, message=f"is unknown; did you mean {meant}?")


def _cut(name: str) -> str:
    """A path's last name; cut, so that a message has an end."""
    return name if len(name) <= 64 else f"{name[:63]}…"


def _of_rules(value: Any, schema: Schema, path: str) -> Iterator[Problem]:  # noqa: ANN401 - any JSON
    plain = _without_nulls(value)
    for rule in schema.get("rules", ()):
        check = rules.check(rule["rule"])
        try:
            holds = check(plain)
        except (TypeError, AttributeError):
            continue  # a part of another type, which has been told already
        if not holds:
            yield Problem(path=path + rule.get("fieldPath", ""), message=_said(value, rule))


def _said(value: Any, rule: Mapping[str, str]) -> str:  # noqa: ANN401 - any JSON
    message = rule["message"]
    if not isinstance(value, (str, int)):
        return message
    meant = nearest(value, rules.words(rule["rule"])) if isinstance(value, str) else ""
    hint = f"; did you mean {meant}?" if meant else ""
    return f"{_shown(value)}: {message}{hint}"


def _without_nulls(value: Any) -> Any:  # noqa: ANN401 - any JSON
    """One level deep is all that rules look at, but for headers, which have no nullable name."""
    if isinstance(value, dict):
        return {name: each for name, each in value.items() if each is not None}
    return value
