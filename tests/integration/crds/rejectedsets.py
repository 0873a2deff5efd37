"""ScheduleSets that must not get past `kubectl apply`, each with its field and what the user reads.

The targets are a Schedule's and have its tables; here is one case of each, so that a target that is
left out of this CRD shows. One mistake is one message.
"""

from __future__ import annotations

from typing import Any

from tests.integration.crds.manifests import ABSENT, JOB, STREAM, WEBHOOK, a_schedule_set, a_webhook
from tests.integration.crds.rejected import NUMBERS, Rejected

AT = "2026-12-24T18:00:00Z"


def _set(field: str, says: str, **fields: Any) -> Rejected:
    thing = a_schedule_set(f"bad-{next(NUMBERS)}", **fields)
    return Rejected(thing=thing, field=field, says=says)


def _default(field: str, says: str, **fields: Any) -> Rejected:
    return _set(f"spec.defaults.{field}", says, defaults=fields)


def _limit(field: str, says: str, value: Any) -> Rejected:
    return _set(f"spec.limits.{field}", says, limits={field: value})


def _row(field: str, says: str, **row: Any) -> Rejected:
    at = "spec.rows.inline[0]" + (f".{field}" if field else "")
    given = {"id": "one", "schedule": "0 2 * * *", **row}
    shown = {name: value for name, value in given.items() if value is not ABSENT}
    return _set(at, says, rows={"inline": [shown]})


TARGETS = [
    _set("spec", "write exactly one of spec.jobTemplate", stream=ABSENT),
    _set("spec", "write exactly one of spec.jobTemplate", stream=STREAM, webhook=WEBHOOK),
    _set("spec.jobTemplate.spec", "write ttlSecondsAfterFinished, such as 3600", jobTemplate=JOB),
    _set(
        "spec.defaults",
        "write Allow, or make a Schedule",
        jobTemplate={**JOB, "spec": {**JOB["spec"], "ttlSecondsAfterFinished": 600}},
        defaults={"concurrencyPolicy": "Forbid"},
    ),
    _set(
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
        "spec.webhook.url", "write http:// or https://", webhook=a_webhook(url="ftp://example.com")
    ),
    _set("spec.stream.name", "write letters, digits", stream={"name": "{other}"}),
    _set("spec.kafka.connectionSecretRef", "Required value", kafka={"topic": "ticks"}),
    _set("spec.payload", "Too long", payload="x" * 16383),
    _set("spec.payload", "Too many", payload=[0] * 8192),
    _set("spec.payload", "Too many", payload={f"{number}": 0 for number in range(3277)}),
    _set("", 'unknown field "spec.schedule"', schedule="0 2 * * *"),
]

DEFAULTS = [
    _default("timeZone", "no such time zone", timeZone="Europe/Atlantis"),
    _default("timeZone", "means another zone", timeZone="localtime"),
    _default("dst.gap", "write RunOnce or Skip", dst={"gap": "Twice"}),
    _default("dst.overlap", "write First", dst={"overlap": "None"}),
    _default("jitter", "write a duration", jitter="30"),
    _default("startingDeadlineSeconds", "greater than or equal to 0", startingDeadlineSeconds=-1),
    _default("catchUpPolicy", "write Latest, All or None", catchUpPolicy="Some"),
    _default("catchUpLimit", "means nothing here", catchUpLimit=5),
    _default("catchUpLimit", "greater than or equal to 1", catchUpPolicy="All", catchUpLimit=0),
    _default("concurrencyPolicy", "write Allow or Forbid", concurrencyPolicy="Replace"),
    _set("", 'unknown field "spec.defaults.schedule"', defaults={"schedule": "0 2 * * *"}),
]

LIMITS = [
    _limit("members", "greater than or equal to 1", 0),
    _limit("members", "greater than or equal to 1", -1),
    _limit("members", "less than or equal to 100000000", 100_000_001),
    _limit("members", "less than or equal to", 2**40),
    _limit("members", "must be of type integer", "1000"),
    _limit("payloadBytes", "less than or equal to 16384", 16_385),
    _limit("payloadBytes", "greater than or equal to 0", -1),
    _limit("changesPerSecond", "greater than or equal to 1", 0),
    _limit("changesPerSecond", "less than or equal to 100000", 100_001),
    _set(
        "spec.retention.endedSeconds",
        "less than or equal to 2592000",
        retention={"endedSeconds": 31 * 86_400},
    ),
    _set(
        "spec.retention.endedSeconds", "greater than or equal to 0", retention={"endedSeconds": -1}
    ),
    _set("spec.suspend", "must be of type boolean", suspend="no"),
    _set("spec.suspendReason", "Too long", suspendReason="x" * 257),
]

ROWS = [
    _set("spec.rows", "write exactly one of rows.configMapRef", rows={}),
    _set(
        "spec.rows",
        "write exactly one of rows.configMapRef",
        rows={"configMapRef": {"name": "rows"}, "inline": []},
    ),
    _set(
        "spec.rows.configMapRef.name",
        "there is no namespace part",
        rows={"configMapRef": {"name": "other/rows"}},
    ),
    _set(
        "spec.rows.configMapRef.key",
        "write the key",
        rows={"configMapRef": {"name": "rows", "key": "a/b"}},
    ),
    _set(
        "spec.rows.inline",
        "Too many",
        rows={"inline": [{"id": f"r{number}", "at": AT} for number in range(10_001)]},
    ),
    _set(
        "spec.rows.inline[1]",
        "Duplicate value",
        rows={"inline": [{"id": "one", "at": AT}, {"id": "one", "at": AT}]},
    ),
    _row("id", "Required value", id=ABSENT),
    _row("id", "write a letter or digit", id="-"),
    _row("id", "write a letter or digit", id="a/b"),
    _row("id", "write a letter or digit", id="\u0430bc"),
    _row("id", "Too long", id="x" * 129),
    _row("", "write exactly one of schedule and at", schedule=ABSENT),
    _row("", "write exactly one of schedule and at", at=AT),
    _row("at", "must be of type date-time", schedule=ABSENT, at="noon"),
    _row("schedule", "Too long", schedule="0" * 201),
    _row("concurrencyPolicy", "write Allow or Forbid", concurrencyPolicy="Queue"),
    _row("payload", "Too long", payload="x" * 16_383),
    _set(
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
    )
]

ALL = [*TARGETS, *DEFAULTS, *LIMITS, *ROWS, *NAMES]
