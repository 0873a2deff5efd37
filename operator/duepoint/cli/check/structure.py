"""Checks an object against the schema of its kind: types, limits, required and unknown fields.

Object and schema are walked together; each message has the field, its value, and what to write
instead. The schema comes from ``duepoint.model``, which also generates the CRDs, so ``kubectl
apply`` would refuse the same problems. The engine checks expressions, zones and durations, because
its messages say more.

Null means absent wherever it is allowed. A field of a Job's template that the schema does not have
is a problem if it resembles a known one; else only a note, because a newer Kubernetes may have it.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Annotated, Any

from duepoint import errors
from duepoint.cli import instants, options
from duepoint.model import checks, vocabulary
from duepoint.model import schemas as model
from duepoint.model.checks import KINDS, Problem
from duepoint.model.vocabulary import Fields, Int64, Rule, Time, matches

#: What to add to the expected type, by this type and that of the value.
_HOW = {
    ("string", bool): ", in quotes",
    ("string", int): ", in quotes",
    ("string", float): ", in quotes",
    ("integer", str): ", without quotes",
    ("boolean", str): ", without quotes",
    ("object", list): ", without dashes before its fields",
}
_NUMBER_OR_TEXT = ("integer", "string")

#: The version of Kubernetes whose Jobs the schema describes.
KUBERNETES = "1.36"

#: What to write for the patterns of the schema.
PATTERNS = {
    "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$": "write lower-case letters and digits, with - between them",
    "^[+]?([0-9]+([.][0-9]*)?|[.][0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$": (
        "write a quantity such as 500m, 0.5, 64Mi or 1G"
    ),
}

Schema = model.Json


# -- the object around the spec, by ValidateObjectMeta ---------------------------------------------


DNS_NAME = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
LETTERS = "at most 63 letters, digits, -, _ and ., the first and the last a letter or digit"
_WORD = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
QUALIFIED_NAME = re.compile(rf"((?=[^/]{{1,253}}/){DNS_NAME}/)?{_WORD}")
LABEL_VALUE = re.compile(f"({_WORD})?")


class _Owner(Fields, kw_only=True):
    api_version: str
    block_owner_deletion: bool | None = None
    controller: bool | None = None
    kind: str
    name: str
    uid: str


_Finalizer = Annotated[
    str,
    matches(f"^{QUALIFIED_NAME.pattern}$", f"write {LETTERS}, such as example.com/cleanup"),
]


class MetadataFields(Fields):
    """Fields of every object's metadata, in v1; ``checks`` validates names and labels."""

    annotations: dict[str, str | None] | None = None
    creation_timestamp: Time | None = None
    deletion_grace_period_seconds: Int64 | None = None
    deletion_timestamp: Time | None = None
    finalizers: Annotated[
        tuple[_Finalizer, ...] | None,
        Rule(
            holds=lambda names: not {"orphan", "foregroundDeletion"}.issubset(names),
            message="orphan and foregroundDeletion exclude each other; write one of them",
        ),
    ] = None
    generate_name: Annotated[
        str | None,
        matches(
            r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?\.)*([a-z0-9][-a-z0-9]*)?$",
            "write lower-case letters, digits, - and .",
        ),
    ] = None
    generation: Int64 | None = None
    labels: dict[str, str | None] | None = None
    managed_fields: tuple[Any, ...] | None = None
    name: Any = None
    namespace: Annotated[
        str | None,
        matches(r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$", "write lower-case letters, digits and -"),
    ] = None
    owner_references: tuple[_Owner, ...] | None = None
    resource_version: str | None = None
    self_link: str | None = None
    uid: str | None = None


@functools.cache
def schemas() -> dict[str, Any]:
    """Return the schema of the objects of each kind."""
    metadata = {**model.of(MetadataFields), "title": "a mapping with a name"}
    around: Schema = {"apiVersion": {}, "kind": {}, "status": {}}
    return {
        kind: model.object_of(
            around | {"metadata": metadata, "spec": model.of(fields)}, "metadata", "spec"
        )
        for kind, fields in KINDS.items()
    }


#: By ``Rule.engine``: reads a text as the engine does; raises ValueError or InvalidExpression.
Readers = Mapping[str, Callable[[str], object]]


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


def _below(path: str, name: str) -> str:
    """Return the path of a field; a long name is cut off, so that the message stays short."""
    short = name if len(name) <= 64 else f"{name[:63]}…"
    return f"{path}.{short}" if path else short


# -- object and schema together --------------------------------------------------------------------


_KINDS: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
    "integer": (int,),
    "number": (int, float),
}


class Walk(checks.Walk):
    """Walks JSON; checks also types, unknown and missing fields, and texts for the engine."""

    def __init__(self, readers: Readers) -> None:
        super().__init__()
        self.readers = readers

    def check(self, schema: Schema, value: Any, path: str) -> None:  # noqa: ANN401
        types = _types(schema)
        if value is None and (schema.get("nullable") or types in ((), _NUMBER_OR_TEXT)):
            return
        if types and not any(type(value) in _KINDS[name] for name in types):
            self.found.append(Problem(path, _wrong_type(schema, value, path)))
            return
        super().check(schema, value, path)
        keys = schema.get("x-kubernetes-list-map-keys", ())
        self.found += _repeated(keys, value, path) if keys else ()

    def check_fields(self, schema: Schema, value: dict[str, Any], path: str) -> dict[str, Any]:
        """Check the fields in the order of the manifest, then that none is missing.

        Misspelt fields count as those that they mean, so that a typing mistake is one message.
        """
        known = schema.get("properties", {})
        there = {name: each for name, each in value.items() if each is not None}
        for name, each in value.items():
            where = _below(path, name)
            field = known.get(name, schema.get("additionalProperties"))
            if field is None and known:
                meant, near = _nearest(name, known)
                self.found += _unknown(schema, name, where, meant, near)
                there.setdefault(meant, each)
                if meant not in value and isinstance(each, (dict, list)):
                    field = known.get(meant)
            if field is not None:
                self.check(field, each, where)
        for name in schema.get("required", ()):
            # The API server takes null for a number or text as none; other nulls were named above.
            is_named = name in value and _types(known.get(name, {})) != _NUMBER_OR_TEXT
            if name not in there and not is_named:
                message = f"is missing; write {_expected(known.get(name, {}))}"
                self.found.append(Problem(_below(path, name), message))
        return there

    def trouble(self, schema: Schema, value: Any) -> str:  # noqa: ANN401 - any JSON
        words = super().trouble(schema, value)
        if not isinstance(value, str):
            return words
        if words:
            near = options.nearest(value, filter(None, schema.get("enum", ())))
            return f"{words}; did you mean {near}?" if near else words
        if schema.get("format") == "date-time":
            try:
                instants.strict_us(value)
            except ValueError:
                return f"{errors.quoted(value)} is not a time; write {checks.TIME}"
        pattern = schema.get("pattern", "")
        if pattern and not vocabulary.compiled(pattern).search(value):
            return f"{errors.quoted(value)}: {PATTERNS[pattern]}"
        return ""

    def check_rules(self, schema: Schema, value: Any, path: str) -> None:  # noqa: ANN401
        for rule in schema[model.RULES]:
            try:
                self.readers.get(rule.engine, str)(value)
            except (ValueError, errors.InvalidExpression) as error:
                self.found.append(Problem(path, str(error)))
        super().check_rules(schema, value, path)

    def shown(self, _: Rule, value: Any) -> str:  # noqa: ANN401 - any JSON
        # Whole, also a URL, because only the author of the file sees it.
        return f"{_shown(value)}: " if isinstance(value, (str, int)) else ""


def _types(schema: Schema) -> tuple[str, ...]:
    if schema.get(model.INT_OR_STRING):
        return _NUMBER_OR_TEXT
    return (schema["type"],) if "type" in schema else ()


def _repeated(keys: Iterable[str], items: list[Any], path: str) -> Iterator[Problem]:
    """Yield a problem for each entry of a list with the same keys as an earlier one."""
    seen = set()
    for index, item in enumerate(items):
        if not isinstance(item, dict):
            continue
        key = tuple(str(item.get(name)) for name in keys)
        if key in seen:
            named = " and ".join(f"{name} {errors.quoted(item.get(name))}" for name in keys)
            yield Problem(f"{path}[{index}]", f"the {named} is there twice")
        seen.add(key)


# -- words ---------------------------------------------------------------------------------------


#: What to write for a text, which is shown, in place of these fields.
_EXAMPLES = {
    "command": "a list: [sh, -c, {}]",
    "kafka": "a mapping: {{topic: {}}}",
    "secretKeyRef": "a mapping: {{name: {}}}",
    "service": "a mapping: {{name: {}}}",
    "stream": "a mapping: {{name: {}}}",
    "webhook": "a mapping: {{url: {}}}",
}


def _wrong_type(schema: Schema, value: Any, path: str) -> str:  # noqa: ANN401 - any JSON
    field = re.sub(r"\[\d+\]$", "", path.rpartition(".")[2])
    types, words = _types(schema), _expected(schema)
    if field == "jitter":
        return f"{_shown(value)} is of the wrong type; write a duration such as 30s or 5m"
    if value is None:
        return f"is null; write {words}"
    if isinstance(value, list) and field == "schedule":
        return "a list is of the wrong type; write one text, or the list as schedules"
    if types == _NUMBER_OR_TEXT:
        return f"{_shown(value)} is neither a number nor a text"
    if pattern := schema.get("pattern", ""):
        return f"{_shown(value)} is of the wrong type; {PATTERNS[pattern]}"
    write = f"{words}{_HOW.get((types[0], type(value)), '')}"
    if isinstance(value, str) and field in _EXAMPLES:
        write = _EXAMPLES[field].format(_shown(value))
    return f"{_shown(value)} is of the wrong type; write {write}"


def _expected(schema: Schema) -> str:
    """Return the words for the expected type."""
    types = _types(schema)
    return schema.get("title") or (checks.TYPES[types[0]] if types else "a value")


def _shown(value: Any) -> str:  # noqa: ANN401 - any JSON
    if isinstance(value, (dict, list)):
        return checks.TYPES["object" if isinstance(value, dict) else "array"]
    return (
        errors.quoted(value) if isinstance(value, str) else errors.quoted(json.dumps(value))[1:-1]
    )


#: The paths of a Job's spec in a Schedule, and of its Pod's spec.
JOB = "spec.jobTemplate.spec"
POD = f"{JOB}.template.spec"


def _elsewhere(name: str, path: str) -> str:
    """Return where a misplaced field of a Job or Pod belongs; empty for other fields."""
    spec = schemas()["Schedule"]["properties"]["spec"]
    job = spec["properties"]["jobTemplate"]["properties"]["spec"]["properties"]
    pod = job["template"]["properties"]["spec"]["properties"]
    for whole, known in ((JOB, job), (POD, pod)):
        if name in known and path in (f"spec.{name}", f"{JOB}.{name}", f"{POD}.{name}"):
            return f"it belongs into {whole}"
    return ""


def _unknown(schema: Schema, name: str, path: str, meant: str, near: str) -> Iterator[Problem]:
    """Yield the problem of a field that the schema does not have, except fields of metadata."""
    of_metadata = schemas()["Schedule"]["properties"]["metadata"]["properties"]
    if name in of_metadata and path.removesuffix(f".{name}").endswith(".metadata"):
        return
    names = ", ".join(sorted(schema["properties"]))
    place = _elsewhere(name, path)
    hint = near or place or (f"known here: {names}" if len(names) < 120 else "")
    more = f"; {hint}" if hint else ""
    if not schema.get(model.ANY):
        yield Problem(path, f"is unknown{more}", is_misspelt=bool(meant))
    elif path.startswith(JOB):
        message = f"is not a field of a Job in Kubernetes {KUBERNETES}{more}"
        is_note = not (meant or place)
        yield Problem(path, message, is_note=is_note, is_misspelt=bool(meant))
    elif meant:
        yield Problem(path, f"is unknown; {near}")
