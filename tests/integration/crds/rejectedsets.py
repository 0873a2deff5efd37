"""ScheduleSets that must not get past `kubectl apply`, each with its field and what the user reads.

The targets are a Schedule's and have its tables; here is one case of each, so that a target that is
left out of this CRD shows. One mistake is one message.
"""

from __future__ import annotations

from typing import Any

from tests.integration.crds.manifests import (
    ABSENT,
    JOB,
    STREAM,
    WEBHOOK,
    a_schedule_set,
    a_webhook,
)
from tests.integration.crds.rejected import Rejected

AT = "2026-12-24T18:00:00Z"


def _set(words: str, field: str, says: str, **fields: Any) -> Rejected:
    thing = a_schedule_set("bad-" + words.lower().replace(" ", "-"), **fields)
    return Rejected(thing=thing, field=field, says=says, id=words)


def _default(words: str, field: str, says: str, **fields: Any) -> Rejected:
    return _set(words, f"spec.defaults.{field}", says, defaults=fields)


def _limit(words: str, field: str, says: str, value: Any) -> Rejected:
    return _set(words, f"spec.limits.{field}", says, limits={field: value})


def _row(words: str, field: str, says: str, **row: Any) -> Rejected:
    at = "spec.rows.inline[0]" + (f".{field}" if field else "")
    given = {"id": "one", "schedule": "0 2 * * *", **row}
    shown = {name: value for name, value in given.items() if value is not ABSENT}
    return _set(words, at, says, rows={"inline": [shown]})


TARGETS = [
    _set("set without a target", "spec", "write exactly one target", stream=ABSENT),
    _set(
        "set with two targets", "spec", "write exactly one target", stream=STREAM, webhook=WEBHOOK
    ),
    _set(
        "set with Jobs that stay",
        "spec.jobTemplate.spec",
        "write ttlSecondsAfterFinished, such as 3600",
        jobTemplate=JOB,
    ),
    _set(
        "set with Jobs that must not overlap",
        "spec.defaults",
        "write Allow, or make a Schedule",
        jobTemplate={**JOB, "spec": {**JOB["spec"], "ttlSecondsAfterFinished": 600}},
        defaults={"concurrencyPolicy": "Forbid"},
    ),
    _set(
        "set with a Job that restarts",
        "spec.jobTemplate.spec.template.spec",
        "write restartPolicy: Never",
        jobTemplate={
            "spec": {
                "ttlSecondsAfterFinished": 600,
                "template": {"spec": {"containers": [{"name": "main", "image": "busybox"}]}},
            }
        },
    ),
    _set(
        "set with an FTP address",
        "spec.webhook.url",
        "write http:// or https://",
        webhook=a_webhook(url="ftp://example.com"),
    ),
    _set(
        "set with a stream of another namespace",
        "spec.stream.name",
        "write letters, digits",
        stream={"name": "{other}"},
    ),
    _set(
        "set with a topic and no brokers",
        "spec.kafka.connectionSecretRef",
        "Required value",
        kafka={"topic": "ticks"},
    ),
    _set("set with a text of more than 16 KiB", "spec.payload", "Too long", payload="x" * 16383),
    _set("set with a list of more than 16 KiB", "spec.payload", "Too many", payload=[0] * 8192),
    _set(
        "set with a mapping of more than 16 KiB",
        "spec.payload",
        "Too many",
        payload={f"{number}": 0 for number in range(3277)},
    ),
    _set("set with a schedule", "", 'unknown field "spec.schedule"', schedule="0 2 * * *"),
]

DEFAULTS = [
    _default(
        "default zone that is none", "timeZone", "no such time zone", timeZone="Europe/Atlantis"
    ),
    _default("default zone of the machine", "timeZone", "means another zone", timeZone="localtime"),
    _default("default gap unknown", "dst.gap", "write RunOnce or Skip", dst={"gap": "Twice"}),
    _default("default overlap unknown", "dst.overlap", "write First", dst={"overlap": "None"}),
    _default("default jitter without a unit", "jitter", "write a duration", jitter="30"),
    _default(
        "default deadline negative",
        "startingDeadlineSeconds",
        "greater than or equal to 0",
        startingDeadlineSeconds=-1,
    ),
    _default(
        "default catch up unknown",
        "catchUpPolicy",
        "write Latest, All or None",
        catchUpPolicy="Some",
    ),
    _default("default catch up limit alone", "catchUpLimit", "means nothing here", catchUpLimit=5),
    _default(
        "default catch up limit of zero",
        "catchUpLimit",
        "greater than or equal to 1",
        catchUpPolicy="All",
        catchUpLimit=0,
    ),
    _default(
        "default policy that members have not",
        "concurrencyPolicy",
        "write Allow or Forbid",
        concurrencyPolicy="Replace",
    ),
    _set(
        "default that is none",
        "",
        'unknown field "spec.defaults.schedule"',
        defaults={"schedule": "0 2 * * *"},
    ),
]

LIMITS = [
    _limit("limit of no members", "members", "greater than or equal to 1", 0),
    _limit("limit of negative members", "members", "greater than or equal to 1", -1),
    _limit("limit of too many members", "members", "less than or equal to 100000000", 100_000_001),
    _limit("limit of members beyond numbers", "members", "less than or equal to", 2**40),
    _limit("limit of members as text", "members", "must be of type integer", "1000"),
    _limit("limit of large payloads", "payloadBytes", "less than or equal to 16384", 16_385),
    _limit("limit of negative payloads", "payloadBytes", "greater than or equal to 0", -1),
    _limit("limit of no changes", "changesPerSecond", "greater than or equal to 1", 0),
    _limit("limit of many changes", "changesPerSecond", "less than or equal to 100000", 100_001),
    _set(
        "retention of 31 days",
        "spec.retention.endedSeconds",
        "less than or equal to 2592000",
        retention={"endedSeconds": 31 * 86_400},
    ),
    _set(
        "retention below nothing",
        "spec.retention.endedSeconds",
        "greater than or equal to 0",
        retention={"endedSeconds": -1},
    ),
    _set("set suspended as text", "spec.suspend", "must be of type boolean", suspend="no"),
    _set(
        "set with a reason of 257 characters",
        "spec.suspendReason",
        "Too long",
        suspendReason="x" * 257,
    ),
]

ROWS = [
    _set("rows from nowhere", "spec.rows", "write exactly one of rows.configMapRef", rows={}),
    _set(
        "rows from two places",
        "spec.rows",
        "write exactly one of rows.configMapRef",
        rows={"configMapRef": {"name": "rows"}, "inline": []},
    ),
    _set(
        "rows of another namespace",
        "spec.rows.configMapRef.name",
        "there is no namespace part",
        rows={"configMapRef": {"name": "other/rows"}},
    ),
    _set(
        "rows of a key with a slash",
        "spec.rows.configMapRef.key",
        "write the key",
        rows={"configMapRef": {"name": "rows", "key": "a/b"}},
    ),
    _set(
        "rows beyond 10000",
        "spec.rows.inline",
        "Too many",
        rows={"inline": [{"id": f"r{number}", "at": AT} for number in range(10_001)]},
    ),
    _set(
        "rows with an id twice",
        "spec.rows.inline[1]",
        "Duplicate value",
        rows={"inline": [{"id": "one", "at": AT}, {"id": "one", "at": AT}]},
    ),
    _row("row without an id", "id", "Required value", id=ABSENT),
    _row("row with an empty id", "id", "write a letter or digit", id="-"),
    _row("row with a slash in its id", "id", "write a letter or digit", id="a/b"),
    _row("row with a look alike id", "id", "write a letter or digit", id="\u0430bc"),
    _row("row with an id of 129 characters", "id", "Too long", id="x" * 129),
    _row("row that never runs", "", "write exactly one of schedule and at", schedule=ABSENT),
    _row("row that runs twice", "", "write exactly one of schedule and at", at=AT),
    _row("row at noon", "at", "must be of type date-time", schedule=ABSENT, at="noon"),
    _row("row with a long schedule", "schedule", "Too long", schedule="0" * 201),
    _row(
        "row with a policy that members have not",
        "concurrencyPolicy",
        "write Allow or Forbid",
        concurrencyPolicy="Queue",
    ),
    _row("row with a text of more than 16 KiB", "payload", "Too long", payload="x" * 16_383),
    _set(
        "row with a delay",
        "",
        'unknown field "spec.rows.inline[0].delay"',
        rows={"inline": [{"id": "one", "at": AT, "delay": "5m"}]},
    ),
]

NAMES = [
    Rejected(
        thing=a_schedule_set("bad-" + "n" * 60),
        field="metadata.name",
        says="write at most 63 characters",
        id="name of a set of 64 characters",
    ),
]

ALL = [*TARGETS, *DEFAULTS, *LIMITS, *ROWS, *NAMES]
