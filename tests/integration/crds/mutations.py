"""Manifests as people and generators write them, sound and damaged, as texts.

Each case is one file: a CronJob or an object of ours in which one thing was changed. A value is
any scalar that YAML knows, in any field that the object has or could have; an entry of a list is
there twice; something is missing, null, or stands in another place; a key is there twice; the text
is JSON with numbers in other notations. Names are kept, because answers are matched by them.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

import yaml

from duepoint.cli.check import structure
from tests.integration.crds.manifests import VERSION

#: Scalars and small collections as they stand in a YAML text.
VALUES = (
    "~", "null", "Null", "NULL", '""', "''", "yes", "Yes", "YES", "no", "on", "On", "OFF", "off",
    "y", "Y", "n", "N", "true", "True", "TRUE", "false", "False", "tRUE", "0", "-0", "+0", "1",
    "+1", "-1", "5", "07", "08", "0o7", "0x1F", "0X1f", "0b101", "1_000", "_1", "1e3", "1E3",
    "1e+3", "1.0", "1.", "-.5", "1.5", "1e-3", "1e400", "12e03", ".inf", "-.Inf", ".nan",
    "2147483647", "2147483648", "4294967296", "9223372036854775807", "9223372036854775808",
    "1e18", "1e19", "123456789012345678901234567890", "2026-01-01", "2026-01-01T00:00:00Z",
    "2026-01-01 00:00:00", "12:30", "12:30:45", "190:20:30", "1:2", "text", "'5'", '"5"', '"true"',
    "'null'", "=", "<<", "-", "a: b", "!!str 5", "!!int '5'", "!!float 5", "!!bool 'yes'",
    "!!null ''", "!!binary aGk=", "!custom 5", "[]", "{}", "[1]", "[a]", "[null]", "[{}]",
    "{a: b}", "{a: 1}", "{a: null}", "{1: a}", "{true: a}", "{~: a}", "{name: a}", "[{name: a}]",
    "[{name: a}, {name: a}]", '"a b"', '"a\\nb"', "100m", "1Gi", "64Mi", "1k", "a", "A", "a_b",
    "Never", "Always", "OnFailure", "Allow", "Forbid", "Replace", "'*/5 * * * *'", "'@daily'",
    "@daily", "*/5 * * * *", "Europe/Rome", "Etc/UTC", "UTC", "30s", "1h30m", "\u00e9", "&a 5",
)  # fmt: skip
#: Numbers in JSON.
NUMBERS = ("1e0", "1.0", "3E0", "10e-1", "0.5", "-0", "-0.0", "1e2", "1e400", "1e19", "5")

_POD: dict[str, Any] = {
    "restartPolicy": "OnFailure",
    "serviceAccountName": "default",
    "automountServiceAccountToken": False,
    "terminationGracePeriodSeconds": 30,
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "imagePullSecrets": [{"name": "registry"}],
    "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["a.example", "b.example"]}],
    "tolerations": [{"key": "batch", "operator": "Exists", "effect": "NoSchedule"}],
    "securityContext": {"runAsNonRoot": True, "runAsUser": 1000, "fsGroup": 2000},
    "topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "topologyKey": "zone",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": {"app": "report"}},
        }
    ],
    "volumes": [
        {"name": "work", "emptyDir": {"sizeLimit": "1Gi"}},
        {"name": "conf", "configMap": {"name": "conf", "defaultMode": 420}},
    ],
    "initContainers": [{"name": "first", "image": "busybox", "command": ["true"]}],
    "containers": [
        {
            "name": "main",
            "image": "busybox:1.37",
            "imagePullPolicy": "IfNotPresent",
            "command": ["sh", "-c"],
            "args": ["date; sleep 1"],
            "env": [
                {"name": "A", "value": "1"},
                {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
            ],
            "envFrom": [{"configMapRef": {"name": "conf"}}],
            "ports": [{"containerPort": 8080, "protocol": "TCP", "name": "http"}],
            "resources": {
                "requests": {"cpu": "100m", "memory": "64Mi"},
                "limits": {"cpu": 1, "memory": "128Mi"},
            },
            "volumeMounts": [
                {"name": "work", "mountPath": "/work"},
                {"name": "conf", "mountPath": "/conf", "readOnly": True},
            ],
            "securityContext": {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
            },
            "livenessProbe": {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 10},
        }
    ],
}
_JOB: dict[str, Any] = {
    "metadata": {"labels": {"app": "report"}, "annotations": {"example.com/team": "a"}},
    "spec": {
        "backoffLimit": 3,
        "activeDeadlineSeconds": 600,
        "ttlSecondsAfterFinished": 3600,
        "parallelism": 1,
        "completions": 1,
        "template": {"metadata": {"labels": {"app": "report"}}, "spec": _POD},
    },
}
_SMALL_JOB = {
    "spec": {
        "template": {
            "spec": {
                "restartPolicy": "Never",
                "containers": [{"name": "main", "image": "busybox"}],
            }
        }
    }
}
_CRONJOB = {
    "schedule": "*/5 * * * *",
    "timeZone": "Europe/Rome",
    "concurrencyPolicy": "Forbid",
    "suspend": False,
    "startingDeadlineSeconds": 200,
    "successfulJobsHistoryLimit": 3,
    "failedJobsHistoryLimit": 1,
    "jobTemplate": _JOB,
}
_WEBHOOK = {
    "url": "https://hooks.example.com/x",
    "method": "POST",
    "timeoutSeconds": 10,
    "headers": [{"name": "X-A", "value": "1"}],
    "body": "hello",
    "retry": {"maxAttempts": 3},
}
#: Kind -> specs to begin with.
BASES: dict[str, list[dict[str, Any]]] = {
    "CronJob": [_CRONJOB, {"schedule": "0 2 * * *", "jobTemplate": _SMALL_JOB}],
    "Schedule": [
        _CRONJOB,
        {"schedule": "0 2 * * *", "jitter": "30s", "jobTemplate": _SMALL_JOB},
        {"schedule": "@every 15m", "startTime": "2026-01-01T00:00:00Z", "webhook": _WEBHOOK},
        {"schedules": ["0 2 * * *", "0 3 * * 1-5"], "stream": {"name": "ticks"}},
    ],
    "ScheduleSet": [{"webhook": _WEBHOOK}, {"stream": {"name": "ticks"}}],
    "ScheduleRun": [
        {"scheduleName": "nightly", "trigger": {}},
        {
            "scheduleName": "nightly",
            "backfill": {"from": "2026-01-01T00:00:00Z", "to": "2026-01-02T00:00:00Z"},
        },
    ],
}
_WEIGHTS = {"CronJob": 5, "Schedule": 4, "ScheduleSet": 1, "ScheduleRun": 1}
_MARK = "value-to-be-put-in"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One file.

    Attributes:
        change: what was done to it, for the message of a failing test.
    """

    name: str
    kind: str
    text: str
    change: str


def cases(rng: Random, count: int) -> Iterator[Case]:
    """So many, each with a name of its own."""
    kinds, weights = list(_WEIGHTS), list(_WEIGHTS.values())
    for number in range(count):
        [kind] = rng.choices(kinds, weights)
        name = f"c{number:06}"
        thing = {
            "apiVersion": "batch/v1" if kind == "CronJob" else VERSION,
            "kind": kind,
            "metadata": {"name": name, "labels": {"a": "b"}, "annotations": {"c": "d"}},
            "spec": copy.deepcopy(rng.choice(BASES[kind])),
        }
        [change] = rng.choices(
            (_value, _known_field, _twice, _moved, _left_out, _key_twice, _numbers),
            (40, 25, 12, 8, 5, 3, 7),
        )
        text, what = change(rng, kind, thing)
        yield Case(name=name, kind=kind, text=text, change=f"{kind}: {what}")


def _written(thing: object) -> str:
    return yaml.safe_dump(thing, sort_keys=False)


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    keys: Any = value if isinstance(value, dict) else ()
    if isinstance(value, list):
        keys = range(len(value))
    for key in keys:
        yield (*path, key)
        yield from _places(value[key], (*path, key))


def _changeable(thing: dict[str, Any]) -> list[tuple[Any, ...]]:
    kept = {("apiVersion",), ("kind",), ("metadata",), ("metadata", "name")}
    return [path for path in _places(thing) if path not in kept]


def _at(thing: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        thing = thing[key]
    return thing


def _with(thing: dict[str, Any], path: tuple[Any, ...], value: str) -> str:
    _at(thing, path[:-1])[path[-1]] = _MARK
    return _written(thing).replace(_MARK, value)


def _value(rng: Random, _: str, thing: dict[str, Any]) -> tuple[str, str]:
    path, value = rng.choice(_changeable(thing)), rng.choice(VALUES)
    return _with(thing, path, value), f"{path} = {value}"


def _known_field(rng: Random, kind: str, thing: dict[str, Any]) -> tuple[str, str]:
    """A field that the schema has, next to those that are written."""
    schema = structure.schemas()["Schedule" if kind == "CronJob" else kind]["properties"]["spec"]
    place, path = thing["spec"], ("spec",)
    while True:
        fields = schema.get("properties", {})
        deeper = [key for key in fields if isinstance(place.get(key), (dict, list)) and place[key]]
        if not deeper or rng.random() < 0.15:
            break
        key = rng.choice(deeper)
        schema, place, path = fields[key], place[key], (*path, key)
        if isinstance(place, list):
            index = rng.randrange(len(place))
            if not isinstance(place[index], dict):
                return _value(rng, kind, thing)
            schema, place, path = schema["items"], place[index], (*path, index)
    if not fields:
        return _value(rng, kind, thing)
    name, value = rng.choice(sorted(fields)), rng.choice(VALUES)
    return _with(thing, (*path, name), value), f"{(*path, name)} = {value}"


def _twice(rng: Random, kind: str, thing: dict[str, Any]) -> tuple[str, str]:
    lists = [path for path in _changeable(thing) if isinstance(_at(thing, path), list)]
    if not lists:
        return _value(rng, kind, thing)
    path = rng.choice(lists)
    items = _at(thing, path)
    items.append(copy.deepcopy(rng.choice(items)))
    return _written(thing), f"{path} has an entry twice"


def _moved(rng: Random, _: str, thing: dict[str, Any]) -> tuple[str, str]:
    path = rng.choice([path for path in _changeable(thing) if isinstance(path[-1], str)])
    value = _at(thing, path[:-1]).pop(path[-1])
    mappings = [p for p in ((), *_places(thing)) if isinstance(_at(thing, p), dict)]
    to = rng.choice(mappings)
    _at(thing, to).setdefault(path[-1], value)
    return _written(thing), f"{path} moved to {to}"


def _left_out(rng: Random, _: str, thing: dict[str, Any]) -> tuple[str, str]:
    path = rng.choice(_changeable(thing))
    del _at(thing, path[:-1])[path[-1]]
    return _written(thing), f"{path} left out"


def _key_twice(rng: Random, _: str, thing: dict[str, Any]) -> tuple[str, str]:
    path = rng.choice([path for path in _changeable(thing) if isinstance(path[-1], str)])
    parent = _at(thing, path[:-1])
    parent[_MARK] = parent[path[-1]]
    return _written(thing).replace(_MARK, path[-1]), f"the key {path} twice"


def _numbers(rng: Random, kind: str, thing: dict[str, Any]) -> tuple[str, str]:
    paths = [p for p in _changeable(thing) if type(_at(thing, p)) is int]
    if not paths:
        return _value(rng, kind, thing)
    path, value = rng.choice(paths), rng.choice(NUMBERS)
    _at(thing, path[:-1])[path[-1]] = _MARK
    return json.dumps(thing).replace(f'"{_MARK}"', value), f"JSON: {path} = {value}"
