"""A manifest's spec against the schema of its CRD: types, limits, required and unknown fields.

``jsonschema`` walks spec and schema together; this module adds the keywords that Kubernetes has and
JSON Schema lacks, and the words of each message: the field, its value, and what to write instead.
The schema is that of ``duepoint.model``, of which the CRDs are made, so that a problem here is what
``kubectl apply`` would refuse. Rules of expressions and zones are left to the engine, which says
more.

Null means absent wherever it may be. A field of a Job's template that the schema lacks passes the
API server when the Schedule is applied and fails the operator's dry run: such a problem is marked
as one that a newer Kubernetes may not have.
"""

from __future__ import annotations

import difflib
import functools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import jsonschema
from jsonschema import validators

from duepoint import errors
from duepoint.cli import instants
from duepoint.cli.check.manifests import Problem
from duepoint.expressions import durations
from duepoint.model import checks as limits
from duepoint.model import schemas as model
from duepoint.model.kinds import KINDS
from duepoint.model.vocabulary import Rule

_WORDS = {
    "string": "a text",
    "boolean": "true or false",
    "object": "a mapping",
    "array": "a list",
    "integer": "a whole number",
    "number": "a number",
}
#: What to add to the wanted type, by the type and by whether a text was written.
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

#: Fields of every object's metadata, in v1, and their schemas; ``checks`` judges the names.
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

#: The Kubernetes whose Jobs the schema describes.
KUBERNETES = "1.36"

#: What to write for the patterns of the schema.
PATTERNS = {
    "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$": "write lower-case letters and digits, with - between them",
    "^[+]?([0-9]+([.][0-9]*)?|[.][0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$": (
        "write a quantity such as 500m, 0.5, 64Mi or 1G"
    ),
}

_Errors = Iterator[jsonschema.ValidationError]
_wrong = jsonschema.ValidationError


@functools.cache
def schemas() -> dict[str, Any]:
    """Kind -> schema of its spec."""
    return {kind: model.of(fields) for kind, fields in KINDS.items()}


def problems(kind: str, spec: Any) -> Iterator[Problem]:  # noqa: ANN401 - any JSON
    """Everything that the schema of the kind has against the spec."""
    yield from _problems(_validator(kind), spec, "spec")


def problems_of_metadata(metadata: dict[str, Any]) -> Iterator[Problem]:
    """Unknown fields of an object's metadata, and values of a wrong type."""
    yield from _problems(_metadata_validator(), metadata, "metadata")


def _problems(validator: Any, value: Any, root: str) -> Iterator[Problem]:  # noqa: ANN401
    for error in validator.iter_errors(value):
        path = _path(error.absolute_path, root)
        if error.validator == "unknown":
            yield from _unknown(error, path)
        elif words := _MESSAGES.get(error.validator):
            yield Problem(path, words(error))
        else:  # a keyword below writes its message itself
            yield Problem(path, error.message)


def nearest(word: str, known: Iterable[str]) -> str:
    """The known word that was most probably meant, or nothing."""
    by_lower = {each.lower(): each for each in known}
    if word.lower() in by_lower:
        return by_lower[word.lower()]
    near = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.75)
    if not near:  # of a short name two letters in the wrong order are much
        near = [each for each in by_lower if sorted(each) == sorted(word.lower())]
    if not near and len(word) >= _SHORTEST_BEGINNING:
        near = [each for each in by_lower if each.startswith(word.lower())]
    return by_lower[near[0]] if len(near) == 1 else ""


#: So many letters of a name are known as its beginning, as timeout is of timeoutSeconds.
_SHORTEST_BEGINNING = 5
#: Fields of other schedulers, the field that is meant here, and how it is written.
_ELSEWHERE = {
    "at": ("schedule", 'write schedule: "@at 2026-12-24T18:00:00Z"'),
    "every": ("schedule", 'write schedule: "@every 15m"'),
    "interval": ("schedule", 'write schedule: "@every 15m"'),
    "cron": ("schedule", 'write schedule: "0 9 * * 1-5"'),
    "expression": ("schedule", 'write schedule: "0 9 * * 1-5"'),
    "tz": ("timeZone", "write timeZone: Europe/Rome"),
    "timeout": ("timeoutSeconds", "write whole seconds, such as timeoutSeconds: 10"),
}


def _meant(name: str, known: Iterable[str]) -> tuple[str, str]:
    """The field that an unknown name most probably means, and the hint; empty where none is."""
    field, hint = _ELSEWHERE.get(name.lower(), ("", ""))
    if field in known:
        return field, hint
    field = nearest(name, known)
    return field, f"did you mean {field}?" if field else ""


def _as_meant(value: dict[str, Any], schema: Any) -> dict[str, Any]:  # noqa: ANN401 - a schema
    """The object without nulls, misspelt fields under the names that they mean.

    So that one typing mistake is one message, and not one more for each field that is missed.
    """
    known = schema.get("properties", {})
    made = {name: each for name, each in value.items() if each is not None}
    for name, each in value.items():
        if known and name not in known:
            made.setdefault(_meant(name, known)[0] or name, each)
    return made


def _path(parts: Iterable[str | int], path: str) -> str:
    """As a user writes it, below ``path``; a name is cut, so that a message has an end."""
    for part in parts:
        if isinstance(part, int):
            path += f"[{part}]"
        else:
            path += f".{part if len(part) <= 64 else f'{part[:63]}…'}"
    return path


# -- the CRD's schema as JSON Schema -------------------------------------------------------------


def _translated(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Null where it is allowed, sizes of numbers, and patterns that end where the text ends."""
    made = dict(schema)
    if schema.get("x-kubernetes-int-or-string"):
        made["type"] = [*_NUMBER_OR_TEXT, "null"]
    elif schema.get("nullable") and "type" in schema:
        made["type"] = [schema["type"], "null"]
    whole = "int64" if schema.get("x-kubernetes-int-or-string") else ""
    made = limits.SIZES.get(schema.get("format", whole), {}) | made
    if "pattern" in schema:
        made["pattern"] = schema["pattern"].removesuffix("$") + r"\Z"
    for part in ("items", "additionalProperties"):
        if isinstance(schema.get(part), dict):
            made[part] = _translated(schema[part])
    if "properties" in schema:
        made["properties"] = {
            name: _translated(each) for name, each in schema["properties"].items()
        }
    return made


@functools.cache
def _validator(kind: str) -> Any:  # noqa: ANN401 - a class made by jsonschema
    return _Validator(_translated(schemas()[kind]), format_checker=_FORMATS)


@functools.cache
def _metadata_validator() -> Any:  # noqa: ANN401 - a class made by jsonschema
    schema = _translated({"type": "object", "properties": METADATA})
    return _Validator(schema, format_checker=_FORMATS)


_FORMATS = jsonschema.FormatChecker(())


@_FORMATS.checks("date-time", raises=ValueError)
def _is_time(value: object) -> bool:
    return not isinstance(value, str) or instants.strict_us(value) is not None


def _fields(validator: Any, known: Any, value: Any, schema: Any) -> _Errors:  # noqa: ANN401
    """The fields in the order in which they are written."""
    others = schema.get("additionalProperties")
    for name, each in value.items() if isinstance(value, dict) else ():
        if name in known:
            yield from validator.descend(each, known[name], path=name)
        elif isinstance(others, dict):
            yield from validator.descend(each, others, path=name)
        elif known:
            yield _wrong(name, validator="unknown", path=(name,))
            meant, _ = _meant(name, known)
            if meant and meant not in value and isinstance(each, (dict, list)):
                yield from validator.descend(each, known[meant], path=name)


def _required(_: Any, names: Any, value: Any, schema: Any) -> _Errors:  # noqa: ANN401
    if not isinstance(value, dict):
        return
    meant = _as_meant(value, schema)
    for name in names:
        if name not in value and name not in meant:
            of_it = schema.get("properties", {}).get(name, {})
            yield _wrong(f"is missing; write {_wanted(of_it)[1]}", path=(name,))


def _items(validator: Any, of_each: Any, value: Any, schema: Any) -> _Errors:  # noqa: ANN401
    """The items, as far as a list may be long."""
    for index, item in enumerate(value if isinstance(value, list) else ()):
        if index == schema.get("maxItems"):
            break
        yield from validator.descend(item, of_each, path=index)


def _keys(_: Any, keys: Any, value: Any, __: Any) -> _Errors:  # noqa: ANN401
    """Items of a list that stands for a mapping have different keys."""
    seen = set()
    for index, item in enumerate(value if isinstance(value, list) else ()):
        if not isinstance(item, dict):
            continue
        key = tuple(str(item.get(name)) for name in keys)
        if key in seen:
            named = " and ".join(f"{name} {errors.quoted(item.get(name))}" for name in keys)
            yield _wrong(f"the {named} is there twice", path=(index,))
        seen.add(key)


def _words(_: Any, words: tuple[str, ...], value: Any, __: Any) -> _Errors:  # noqa: ANN401
    """A text is one of the words; what is no text has a problem with its type."""
    if isinstance(value, str) and value not in words:
        message = limits.WORDS["enum"](value, words)
        meant = nearest(value, filter(None, words))
        yield _wrong(f"{message}; did you mean {meant}?" if meant else message)


def _rules(validator: Any, listed: list[Rule], value: Any, schema: Any) -> _Errors:  # noqa: ANN401
    """Rules of an object still hold where one of its fields is wrong; those of a text do not."""
    others = {name: each for name, each in schema.items() if name != model.RULES}
    if "properties" in schema:
        others = {"type": schema["type"]}
    if value is None or not validator.evolve(schema=others).is_valid(value):
        return
    # Rules look one level deep, but for headers, which have no nullable name.
    plain = value
    if isinstance(value, dict):
        plain = _as_meant(value, schema)
    for rule in listed:
        try:
            holds = rule.holds(plain)
            if rule.engine == "duration":
                durations.parse_duration_us(plain)
        except ValueError as error:
            yield _wrong(str(error))
        except (TypeError, AttributeError):
            continue  # a part has another type and its own problem
        if not holds:
            path = tuple(filter(None, rule.path.split(".")))
            is_plain = isinstance(value, (str, int))
            message = f"{_shown(value)}: {rule.message}" if is_plain else rule.message
            yield _wrong(message, path=path)


_Validator = validators.extend(  # type: ignore[no-untyped-call]
    jsonschema.Draft202012Validator,
    {
        "properties": _fields,
        "additionalProperties": lambda validator, _, value, schema: (
            () if "properties" in schema else _fields(validator, {}, value, schema)
        ),
        "required": _required,
        "items": _items,
        "enum": _words,
        "x-kubernetes-list-map-keys": _keys,
        model.RULES: _rules,
    },
)


# -- words ---------------------------------------------------------------------------------------


#: The field that a text in the place of a mapping is meant for.
_FIRST_FIELD = {
    "webhook": "url",
    "stream": "name",
    "service": "name",
    "kafka": "topic",
    "secretKeyRef": "name",
}


def _wrong_type(error: jsonschema.ValidationError) -> str:
    wanted, words = _wanted(error.schema)
    value = error.instance
    if value is None:
        return f"is null; write {words}"
    if isinstance(value, list) and [*error.path][-1:] == ["schedule"]:
        return "a list is of the wrong type; write one text, or the list as schedules"
    if wanted == _NUMBER_OR_TEXT:
        return f"{_shown(value)} is neither a number nor a text"
    if isinstance(error.schema, dict) and (pattern := error.schema.get("pattern", "")):
        return f"{_shown(value)} is of the wrong type; {_of_pattern(pattern)}"
    is_plain = not isinstance(value, (dict, list))
    quotes = _QUOTES.get((wanted[0], isinstance(value, str)), "") if is_plain else ""
    field = error.path[-1] if error.path else ""
    write = _example(field, value) or f"{words}{quotes}"
    return f"{_shown(value)} is of the wrong type; write {write}"


def _example(field: str | int, value: Any) -> str:  # noqa: ANN401 - any JSON
    """What to write in the place of a value that is often written so; empty if there is none."""
    if field == "jitter":
        return "a duration such as 30s or 5m"
    if not isinstance(value, str):
        return ""
    if name := _FIRST_FIELD.get(str(field)):
        return f"a mapping: {{{name}: {_shown(value)}}}"
    return f"a list: [sh, -c, {_shown(value)}]" if field == "command" else ""


def _wanted(schema: Any) -> tuple[tuple[str, ...], str]:  # noqa: ANN401 - a schema
    """The types besides null, and the words for the first of them."""
    listed = schema.get("type", [])
    types = (listed,) if isinstance(listed, str) else tuple(t for t in listed if t != "null")
    return types, _WORDS[types[0]] if types else "a value"


def _of_pattern(pattern: str) -> str:
    """What to write, by a pattern as the validator has it."""
    return PATTERNS[pattern.removesuffix(r"\Z") + "$"]


def _of_limit(error: jsonschema.ValidationError) -> str:
    return limits.WORDS[str(error.validator)](error.instance, error.validator_value)


_MESSAGES: dict[Any, Callable[[Any], str]] = {
    **dict.fromkeys(limits.WORDS.keys() - {"enum"}, _of_limit),
    "type": _wrong_type,
    "format": lambda error: (
        f"{errors.quoted(error.instance)} is no time; write RFC 3339 with its zone, such as "
        "2026-12-24T18:00:00Z"
    ),
    "pattern": lambda error: (
        f"{errors.quoted(error.instance)}: {_of_pattern(error.validator_value)}"
    ),
}


def _shown(value: Any) -> str:  # noqa: ANN401 - any JSON
    if isinstance(value, (dict, list)):
        return _WORDS["object" if isinstance(value, dict) else "array"]
    return (
        errors.quoted(value) if isinstance(value, str) else errors.quoted(json.dumps(value))[1:-1]
    )


#: Where the spec of a Job stands in a Schedule, and that of its Pod.
JOB = "spec.jobTemplate.spec"
POD = f"{JOB}.template.spec"


def _elsewhere(name: str, path: str) -> str:
    """Where a known field belongs that stands in the wrong place; empty if there is none."""
    job = schemas()["Schedule"]["properties"]["jobTemplate"]["properties"]["spec"]["properties"]
    pod = job["template"]["properties"]["spec"]["properties"]
    for whole, known in ((JOB, job), (POD, pod)):
        if name in known and path in (f"spec.{name}", f"{JOB}.{name}", f"{POD}.{name}"):
            return f"it belongs into {whole}"
    return ""


def _unknown(error: jsonschema.ValidationError, path: str) -> Iterator[Problem]:
    """A field that the schema lacks; fields of metadata are known without it."""
    name, schema = error.message, error.schema
    assert isinstance(schema, dict)  # noqa: S101 - schemas of the CRD are mappings
    if name in METADATA and path.removesuffix(f".{name}").endswith(".metadata"):
        return
    meant, near = _meant(name, schema["properties"])
    names = ", ".join(sorted(schema["properties"]))
    hint = f"known here: {names}" if len(names) < 120 else ""
    hint = near or _elsewhere(name, path) or hint
    if not schema.get("x-kubernetes-preserve-unknown-fields"):
        message = f"is unknown; {hint}" if hint else "is unknown"
        yield Problem(path, message, is_misspelt=bool(meant))
    elif path.startswith(JOB):
        message = f"is no field of a Job in Kubernetes {KUBERNETES}"
        message = f"{message}; {hint}" if hint else message
        yield Problem(path, message, is_of_newer=not meant, is_misspelt=bool(meant))
    elif meant:
        yield Problem(path, f"is unknown; {near}")
