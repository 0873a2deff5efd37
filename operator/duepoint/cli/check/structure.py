"""Checks a spec against the schema of its CRD: types, limits, required and unknown fields.

Spec and schema are walked together; each message has the field, its value, and what to write
instead. The schema comes from ``duepoint.model``, which also generates the CRDs, so ``kubectl
apply`` would refuse the same problems. The engine checks expressions and zones, because its
messages say more.

Null means absent wherever it is allowed. A field of a Job's template that the schema does not have
is a problem if it resembles a known one; else only a note, because a newer Kubernetes may have it.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from duepoint import errors
from duepoint.cli import instants, options
from duepoint.cli.check.manifests import Problem
from duepoint.expressions import durations
from duepoint.model import checks as limits
from duepoint.model import schemas as model
from duepoint.model import vocabulary
from duepoint.model.kinds import KINDS

_WORDS = {
    "string": "a text",
    "boolean": "true or false",
    "object": "a mapping",
    "array": "a list",
    "integer": "a whole number",
    "number": "a number",
}
#: What to add to the expected type, by the type and by whether the value is a text.
_QUOTES = {
    ("string", False): ", in quotes",
    ("integer", True): ", without quotes",
    ("boolean", True): ", without quotes",
}
_NUMBER_OR_TEXT = ("integer", "string")

_TEXT = {"type": "string", "nullable": True}
_TEXTS = {"type": "object", "nullable": True, "additionalProperties": _TEXT}
_TIME = {**_TEXT, "format": "date-time"}
_NUMBER = {"type": "integer", "nullable": True, "format": "int64"}

#: Fields of every object's metadata, in v1, and their schemas; ``checks`` validates the names.
METADATA: dict[str, Any] = {
    "annotations": _TEXTS,
    "creationTimestamp": _TIME,
    "deletionGracePeriodSeconds": _NUMBER,
    "deletionTimestamp": _TIME,
    "finalizers": {"type": "array", "nullable": True, "items": {"type": "string"}},
    "generateName": _TEXT,
    "generation": _NUMBER,
    "labels": _TEXTS,
    "managedFields": {"type": "array", "nullable": True},
    "name": {},
    "namespace": {},
    "ownerReferences": {
        "type": "array",
        "nullable": True,
        "items": {
            "type": "object",
            "required": ["apiVersion", "kind", "name", "uid"],
            "properties": {
                "apiVersion": {"type": "string"},
                "blockOwnerDeletion": {"type": "boolean", "nullable": True},
                "controller": {"type": "boolean", "nullable": True},
                "kind": {"type": "string"},
                "name": {"type": "string"},
                "uid": {"type": "string"},
            },
        },
    },
    "resourceVersion": _TEXT,
    "selfLink": _TEXT,
    "uid": _TEXT,
}

#: The version of Kubernetes whose Jobs the schema describes.
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
    """Return the schema of the spec for each kind."""
    return {kind: model.of(fields) for kind, fields in KINDS.items()}


def problems(kind: str, spec: Any) -> Iterator[Problem]:  # noqa: ANN401 - any JSON
    """Yield all problems of a spec by the schema of its kind."""
    yield from _walked(schemas()[kind], spec, "spec")


def problems_of_metadata(metadata: dict[str, Any]) -> Iterator[Problem]:
    """Yield unknown fields of an object's metadata, and values of a wrong type."""
    yield from _walked({"type": "object", "properties": METADATA}, metadata, "metadata")


#: Fields of other schedulers, our field for the same purpose, and how to write it.
_ELSEWHERE = {
    "at": ("schedule", 'write schedule: "@at 2026-12-24T18:00:00Z"'),
    "every": ("schedule", 'write schedule: "@every 15m"'),
    "interval": ("schedule", 'write schedule: "@every 15m"'),
    "cron": ("schedule", 'write schedule: "0 9 * * 1-5"'),
    "expression": ("schedule", 'write schedule: "0 9 * * 1-5"'),
    "tz": ("timeZone", "write timeZone: Europe/Rome"),
    "timeout": ("timeoutSeconds", "write whole seconds, such as timeoutSeconds: 10"),
}


def _nearest(name: str, known: Iterable[str]) -> tuple[str, str]:
    """Return the field that an unknown name probably means, and a hint; both may be empty."""
    field, hint = _ELSEWHERE.get(name.lower(), ("", ""))
    if field in known:
        return field, hint
    field = options.nearest(name, known)
    return field, f"did you mean {field}?" if field else ""


def _as_meant(value: dict[str, Any], schema: Any) -> dict[str, Any]:  # noqa: ANN401 - a schema
    """Return the object without nulls, with misspelt fields under the names that they mean.

    One typing mistake then leads to one message, without another for the missing field.
    """
    known = schema.get("properties", {})
    made = {name: each for name, each in value.items() if each is not None}
    for name, each in value.items():
        if known and name not in known:
            made.setdefault(_nearest(name, known)[0] or name, each)
    return made


def _below(path: str, name: str) -> str:
    """Return the path of a field; a long name is cut off, so that the message stays short."""
    return f"{path}.{name if len(name) <= 64 else f'{name[:63]}…'}"


# -- spec and schema together --------------------------------------------------------------------


_KINDS: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
    "integer": (int,),
    "number": (int, float),
}
_LIMITS: dict[type, tuple[str, ...]] = {
    str: ("enum", "minLength", "maxLength"),
    list: ("minItems", "maxItems"),
    int: ("minimum", "maximum"),
    float: ("minimum", "maximum"),
}


def _walked(schema: Schema, value: Any, path: str) -> Iterator[Problem]:  # noqa: ANN401
    types = _types(schema)
    if value is None and (schema.get("nullable") or types in ((), _NUMBER_OR_TEXT)):
        return
    if types and not any(_is_a(value, name) for name in types):
        yield Problem(path, _wrong_type(schema, value, path))
        return
    found: list[Problem] = []
    if isinstance(value, dict):
        yield from _fields(schema, value, path)
    elif isinstance(value, list):
        yield from _items(schema, value, path)
    if trouble := _trouble(schema, value):
        found.append(Problem(path, trouble))
    # Check the rules even if fields are wrong, but not if the value itself exceeds a limit.
    yield from found or _rules(schema, value, path)


def _types(schema: Schema) -> tuple[str, ...]:
    if schema.get(model.INT_OR_STRING):
        return _NUMBER_OR_TEXT
    return (schema["type"],) if "type" in schema else ()


def _is_a(value: object, name: str) -> bool:
    return isinstance(value, _KINDS[name]) and (name == "boolean") >= isinstance(value, bool)


def _fields(schema: Schema, value: dict[str, Any], path: str) -> Iterator[Problem]:
    """Yield problems of the fields in the order of the manifest, then missing fields."""
    known = schema.get("properties", {})
    others = schema.get("additionalProperties")
    for name, each in value.items():
        if name in known:
            yield from _walked(known[name], each, _below(path, name))
        elif isinstance(others, dict):
            yield from _walked(others, each, _below(path, name))
        elif known:
            yield from _unknown(schema, name, _below(path, name))
            meant, _ = _nearest(name, known)
            if meant and meant not in value and isinstance(each, (dict, list)):
                yield from _walked(known[meant], each, _below(path, name))
    meant_as = _as_meant(value, schema)
    for name in schema.get("required", ()):
        if name not in value and name not in meant_as:
            yield Problem(f"{path}.{name}", f"is missing; write {_expected(known.get(name, {}))}")


def _items(schema: Schema, value: list[Any], path: str) -> Iterator[Problem]:
    """Yield problems of the items up to the longest allowed list; keys must be unique."""
    for index, item in enumerate(value[: schema.get("maxItems")]):
        yield from _walked(schema.get("items", {}), item, f"{path}[{index}]")
    seen = set()
    keys = schema.get("x-kubernetes-list-map-keys", ())
    for index, item in enumerate(value if keys else ()):
        if not isinstance(item, dict):
            continue
        key = tuple(str(item.get(name)) for name in keys)
        if key in seen:
            named = " and ".join(f"{name} {errors.quoted(item.get(name))}" for name in keys)
            yield Problem(f"{path}[{index}]", f"the {named} is there twice")
        seen.add(key)


def _trouble(schema: Schema, value: Any) -> str:  # noqa: ANN401 - any JSON
    """Return which limit of the schema a value violates; empty if none."""
    known = {**limits.SIZES.get(_format(schema), {}), **schema}
    for keyword in _LIMITS.get(type(value), ()):
        if keyword in known and limits.REFUSES[keyword](value, known[keyword]):
            words = limits.WORDS[keyword](value, known[keyword])
            near = options.nearest(value, filter(None, known["enum"])) if keyword == "enum" else ""
            return f"{words}; did you mean {near}?" if near else words
    if isinstance(value, dict) and len(value) > known.get("maxProperties", len(value)):
        return limits.WORDS["maxItems"](value, known["maxProperties"])
    if not isinstance(value, str):
        return ""
    if _format(schema) == "date-time" and not _is_time(value):
        return f"{errors.quoted(value)} is no time; write {limits.TIME}"
    pattern = schema.get("pattern", "")
    if pattern and not vocabulary.compiled(pattern).search(value):
        return f"{errors.quoted(value)}: {PATTERNS[pattern]}"
    return ""


def _format(schema: Schema) -> str:
    return "int64" if schema.get(model.INT_OR_STRING) else str(schema.get("format", ""))


def _is_time(text: str) -> bool:
    try:
        instants.strict_us(text)
    except ValueError:
        return False
    return True


def _rules(schema: Schema, value: Any, path: str) -> Iterator[Problem]:  # noqa: ANN401
    # Rules read one level deep, except for headers, which have no nullable names.
    plain: Any = _as_meant(value, schema) if isinstance(value, dict) else value
    for rule in schema.get(model.RULES, ()):
        try:
            holds = rule.holds(plain)
            if rule.engine == "duration":
                durations.parse_duration_us(plain)
        except ValueError as error:
            yield Problem(path, str(error))
        except (TypeError, AttributeError):
            continue  # a part has a wrong type, which is a problem of its own
        if not holds:
            is_plain = isinstance(value, (str, int))
            message = f"{_shown(value)}: {rule.message}" if is_plain else rule.message
            yield Problem(f"{path}.{rule.path}" if rule.path else path, message)


# -- words ---------------------------------------------------------------------------------------


#: The field that a text probably means if it takes the place of a mapping.
_FIRST_FIELD = {
    "webhook": "url",
    "stream": "name",
    "service": "name",
    "kafka": "topic",
    "secretKeyRef": "name",
}


def _wrong_type(schema: Schema, value: Any, path: str) -> str:  # noqa: ANN401 - any JSON
    types, words = _types(schema), _expected(schema)
    field = re.sub(r"\[\d+\]$", "", path.rpartition(".")[2])
    if value is None:
        return f"is null; write {words}"
    if isinstance(value, list) and field == "schedule":
        return "a list is of the wrong type; write one text, or the list as schedules"
    if types == _NUMBER_OR_TEXT:
        return f"{_shown(value)} is neither a number nor a text"
    if pattern := schema.get("pattern", ""):
        return f"{_shown(value)} is of the wrong type; {PATTERNS[pattern]}"
    is_plain = not isinstance(value, (dict, list))
    quotes = _QUOTES.get((types[0], isinstance(value, str)), "") if is_plain else ""
    write = _example(field, value) or f"{words}{quotes}"
    return f"{_shown(value)} is of the wrong type; write {write}"


def _example(field: str, value: Any) -> str:  # noqa: ANN401 - any JSON
    """Return what to write instead of a common wrong value; empty if there is no example."""
    if field == "jitter":
        return "a duration such as 30s or 5m"
    if not isinstance(value, str):
        return ""
    if name := _FIRST_FIELD.get(field):
        return f"a mapping: {{{name}: {_shown(value)}}}"
    return f"a list: [sh, -c, {_shown(value)}]" if field == "command" else ""


def _expected(schema: Schema) -> str:
    """Return the words for the expected type."""
    types = _types(schema)
    return _WORDS[types[0]] if types else "a value"


def _shown(value: Any) -> str:  # noqa: ANN401 - any JSON
    if isinstance(value, (dict, list)):
        return _WORDS["object" if isinstance(value, dict) else "array"]
    return (
        errors.quoted(value) if isinstance(value, str) else errors.quoted(json.dumps(value))[1:-1]
    )


#: The paths of a Job's spec in a Schedule, and of its Pod's spec.
JOB = "spec.jobTemplate.spec"
POD = f"{JOB}.template.spec"


def _elsewhere(name: str, path: str) -> str:
    """Return where a misplaced field of a Job or Pod belongs; empty for other fields."""
    job = schemas()["Schedule"]["properties"]["jobTemplate"]["properties"]["spec"]["properties"]
    pod = job["template"]["properties"]["spec"]["properties"]
    for whole, known in ((JOB, job), (POD, pod)):
        if name in known and path in (f"spec.{name}", f"{JOB}.{name}", f"{POD}.{name}"):
            return f"it belongs into {whole}"
    return ""


def _unknown(schema: Schema, name: str, path: str) -> Iterator[Problem]:
    """Yield the problem of a field that the schema does not have, except fields of metadata."""
    if name in METADATA and path.removesuffix(f".{name}").endswith(".metadata"):
        return
    meant, near = _nearest(name, schema["properties"])
    names = ", ".join(sorted(schema["properties"]))
    hint = f"known here: {names}" if len(names) < 120 else ""
    place = _elsewhere(name, path)
    hint = near or place or hint
    if not schema.get("x-kubernetes-preserve-unknown-fields"):
        message = f"is unknown; {hint}" if hint else "is unknown"
        yield Problem(path, message, is_misspelt=bool(meant))
    elif path.startswith(JOB):
        message = f"is no field of a Job in Kubernetes {KUBERNETES}"
        message = f"{message}; {hint}" if hint else message
        is_note = not (meant or place)
        yield Problem(path, message, is_note=is_note, is_misspelt=bool(meant))
    elif meant:
        yield Problem(path, f"is unknown; {near}")
