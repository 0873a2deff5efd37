"""Objects that must not get past `kubectl apply`, each with its field and what the user is told.

One mistake is one message: an answer with a second cause fails the test as well. The table is
grouped as a reader would look for a field.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

from tests.integration.crds.manifests import (
    ABSENT,
    JOB,
    SECRET_KEY,
    STREAM,
    WEBHOOK,
    a_job,
    a_schedule,
    a_schedule_run,
    a_webhook,
)

NOON = "2026-12-24T12:00:00Z"
EVENING = "2026-12-24T18:00:00Z"
COUNT = "write 5 fields"
MAIN = {"name": "main", "image": "busybox"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """A thing, the field that the answer must name, and a part of the message."""

    thing: dict[str, Any]
    field: str
    says: str

    @property
    def id(self) -> str:
        return f"{self.thing['metadata']['name']}: {self.field} {self.says}"


#: Every thing has a name of its own, by which answers of kubectl are told apart.
NUMBERS = itertools.count(100)


def _spec(field: str, says: str, **fields: Any) -> Rejected:
    thing = a_schedule(f"bad-{next(NUMBERS)}", **fields)
    return Rejected(thing=thing, field=field, says=says)


def _text(expression: str, says: str) -> Rejected:
    return _spec("spec.schedule", says, schedule=expression)


def _hook(field: str, says: str, **fields: Any) -> Rejected:
    at = f"spec.webhook.{field}" if field else "spec.webhook"
    return _spec(at, says, webhook=a_webhook(**fields))


def _url(url: str, says: str) -> Rejected:
    return _hook("url", says, url=url)


def _header(field: str, says: str, **header: Any) -> Rejected:
    at = f"headers[0].{field}" if field else "headers[0]"
    return _hook(at, says, headers=[header])


def _pod(field: str, says: str, **pod: Any) -> Rejected:
    at = "spec.jobTemplate.spec.template.spec" + (f".{field}" if field else "")
    return _spec(at, says, jobTemplate=a_job(**pod))


def _main(**fields: Any) -> dict[str, Any]:
    """The fields of a Pod with one container."""
    return {"containers": [{**MAIN, **fields}]}


def _job(field: str, says: str, **fields: Any) -> Rejected:
    template = {"spec": {**JOB["spec"], **fields}}
    return _spec(f"spec.jobTemplate.spec.{field}", says, jobTemplate=template)


def _run(field: str, says: str, **fields: Any) -> Rejected:
    thing = a_schedule_run(f"bad-{next(NUMBERS)}", **fields)
    return Rejected(thing=thing, field=field, says=says)


EXPRESSIONS = [
    _text("", COUNT),
    _text("   ", COUNT),
    _text("* * * *", COUNT),
    _text("0 0 * * * * 2026 x", COUNT),
    _text("nightly", COUNT),
    _text("0\u00a02 * * *", "no-break spaces"),
    _text("\uff10 2 * * *", "only plain ASCII"),
    _text("0 2 * * \u200f*", "only plain ASCII"),
    _text("0 0 * * " + "1," * 96 + "1", "may not be more than 200"),
    _text("60 * * * *", 'minute "60": write * or 0-59'),
    _text("0 24 * * *", 'hour "24": write * or 0-23'),
    _text("0 0 0 * *", 'day-of-month "0": write * or ? or 1-31'),
    _text("0 0 32 * *", 'day-of-month "32": write'),
    _text("0 0 1 13 *", 'month "13": write * or 1-12 or JAN-DEC'),
    _text("0 0 1 sept *", 'month "sept": write'),
    _text("0 0 * * 8", 'day-of-week "8": write * or ? or 0-7 or SUN-SAT'),
    _text("0 0 * * mon-xyz", 'day-of-week "mon-xyz": write'),
    _text("60 0 2 * * *", 'seconds (first of 6 or 7 fields) "60": write'),
    _text("0 0 2 * * * 26", 'year (last of 7 fields) "26": write'),
    _text("0 0 2 * * * 2100", 'year (last of 7 fields) "2100": write'),
    _text("0 60 2 * * *", 'minute "60": write'),
    _text("0 0 24 * * * 2026", 'hour "24": write'),
    _text(" 0 0 2 *\n* 8 2026", 'day-of-week "8": write'),
    _text("5,*/0 * * * *", '"*/0": a step of zero never moves'),
    _text("*/-1 * * * *", 'minute "*/-1": write'),
    _text("*/ * * * *", 'minute "*/": write'),
    _text("0 */25 * * *", "a step from 1 to 24"),
    _text("5-3 * * * *", '"5-3": a range of numbers runs upward'),
    _text("0 1-2,22-6 * * *", '"22-6": a range of numbers'),
    _text("H(30-10) * * * *", "a range of numbers runs upward"),
    _text("5--5 * * * *", 'minute "5--5": write'),
    _text("*-5 * * * *", 'minute "*-5": write'),
    _text(", * * * *", 'minute ",": write'),
    _text("R * * * *", 'minute "R": write'),
    _text("L * * * *", 'minute "L": write'),
    _text("0 0 * * L", 'day-of-week "L": write'),
    _text("0 0 * * 1#6", 'day-of-week "1#6": write'),
    _text("0 0 32W * *", 'day-of-month "32W": write'),
    _text("TZ=Europe/Rome 0 2 * * *", "write the zone into spec.timeZone"),
    _text("CRON_TZ=UTC 0 2 * * *", "write the zone into spec.timeZone"),
    _text("@fortnightly", "no such macro"),
    _text("@Daily", "in lower case"),
    _text("@daily 5", "no such macro"),
    _text("@every", "after @every write a positive duration"),
    _text("@every 0s", "the shortest period is 100 ms"),
    _text("@every 50ms", "the shortest period is 100 ms"),
    _text("@every -5m", "after @every write a positive duration"),
    _text("@every 1ns", "of the units d, h, m, s and ms"),
    _text("@every 90", "after @every write a positive duration"),
    _text("@every 1w", "of the units d, h, m, s and ms"),
    _text("@at 2026-12-24T18:00:00", "with its zone"),
    _text("@at", "after @at write an RFC 3339 time"),
    _text("@at 2026-12-24", "after @at write an RFC 3339 time"),
    _text("@at 2026-13-24T18:00:00Z", "after @at write an RFC 3339 time"),
    _text("@at 2026-12-31T23:59:60Z", "after @at write an RFC 3339 time"),
    _text("@at 10000-01-01T00:00:00Z", "after @at write an RFC 3339 time"),
    _spec("spec.schedule", "must be of type string", schedule=5),
    _spec(
        "spec.schedules[1]",
        'hour "25": write * or 0-23',
        schedule=ABSENT,
        schedules=["0 1 * * *", "0 25 * * *"],
    ),
    _spec(
        "spec.schedules",
        "must have at most 32 items",
        schedule=ABSENT,
        schedules=[f"{minute} * * * *" for minute in range(33)],
    ),
    _spec(
        "spec.schedules",
        "must have at most 32 items",
        schedule=ABSENT,
        schedules=["0 0 * * *"] * 10_000,
    ),
    _spec("spec.schedules", "should have at least 1 items", schedule=ABSENT, schedules=[]),
    _spec("spec", "exactly one of spec.schedule", schedule=ABSENT),
    _spec("spec", "exactly one of spec.schedule", schedules=["0 0 * * *"]),
]

ZONES = [
    _spec("spec.timeZone", "null or no field is Etc/UTC", timeZone=""),
    _spec("spec.timeZone", "another zone on each machine", timeZone="Local"),
    _spec("spec.timeZone", "another zone on each machine", timeZone="localtime"),
    _spec("spec.timeZone", "another zone on each machine", timeZone="Factory"),
    _spec("spec.timeZone", "another zone on each machine", timeZone="posix/Europe/Rome"),
    _spec("spec.timeZone", "write an IANA time zone name", timeZone="../../etc/passwd"),
    _spec("spec.timeZone", "write an IANA time zone name", timeZone="/usr/share/zoneinfo/UTC"),
    _spec("spec.timeZone", "IANA time zone name", timeZone="Etc/UTC "),
    _spec("spec.timeZone", "IANA time zone name", timeZone="UTC+25:00"),
    _spec("spec.timeZone", "no such time zone: write an IANA", timeZone="Europe/Atlantis"),
    _spec("spec.timeZone", "with its capitals", timeZone="europe/rome"),
    _spec("spec.dst.gap", "write RunOnce or Skip", dst={"gap": "Never"}),
    _spec("spec.dst.overlap", "First, Second or Both", dst={"overlap": "Third"}),
]

TIMES = [
    _spec("spec.jitter", "such as 30s", jitter="30"),
    _spec("spec.jitter", "without a sign", jitter="-30s"),
    _spec("spec.jitter", "must be of type string", jitter=30),
    _spec("spec.startTime", "date-time", startTime="2026-12-24T12:00:00"),
    _spec("spec.startTime", "date-time", startTime="2026-12-24"),
    _spec("spec.endTime", "write an endTime after startTime", startTime=EVENING, endTime=NOON),
    _spec("spec.endTime", "write an endTime after startTime", startTime=NOON, endTime=NOON),
    _spec("spec.maxRuns", "greater than or equal to 1", maxRuns=0),
    _spec("spec.suspend", "must be of type boolean", suspend="yes"),
    _spec("spec.suspendReason", "may not be more than 256", suspendReason="x" * 257),
]

POLICIES = [
    _spec("spec.startingDeadlineSeconds", "greater than or equal to 0", startingDeadlineSeconds=-1),
    _spec("spec.startingDeadlineSeconds", "must be of type integer", startingDeadlineSeconds=1.5),
    _spec("spec.startingDeadlineSeconds", "must be of type integer", startingDeadlineSeconds="600"),
    _spec("spec.catchUpPolicy", "write Latest, All or None", catchUpPolicy="Newest"),
    _spec("spec.catchUpLimit", "write catchUpPolicy: All beside it", catchUpLimit=5),
    _spec("spec.catchUpLimit", "greater than or equal to 1", catchUpPolicy="All", catchUpLimit=0),
    _spec(
        "spec.catchUpLimit", "less than or equal to 10000", catchUpPolicy="All", catchUpLimit=10_001
    ),
    _spec(
        "spec.concurrencyPolicy",
        "write Allow, Forbid, Replace or Queue",
        concurrencyPolicy="forbid",
    ),
    _spec(
        "spec.maxConcurrency",
        "write concurrencyPolicy: Forbid or Queue beside it",
        maxConcurrency=2,
    ),
    _spec(
        "spec.maxConcurrency",
        "write concurrencyPolicy: Forbid or Queue beside it",
        concurrencyPolicy="Replace",
        maxConcurrency=2,
    ),
    _spec(
        "spec.maxConcurrency",
        "greater than or equal to 1",
        concurrencyPolicy="Forbid",
        maxConcurrency=0,
    ),
    _spec(
        "spec.queueLimit",
        "write concurrencyPolicy: Queue beside it",
        concurrencyPolicy="Forbid",
        queueLimit=1,
    ),
    _spec("spec.failedJobsHistoryLimit", "greater than or equal to 0", failedJobsHistoryLimit=-1),
    _spec(
        "spec.successfulJobsHistoryLimit",
        "less than or equal to 2147483647",
        successfulJobsHistoryLimit=2**31,
    ),
]

TARGETS = [
    _spec("spec", "exactly one of spec.jobTemplate", stream=ABSENT),
    _spec("spec", "exactly one of spec.jobTemplate", stream=STREAM, webhook=WEBHOOK),
    _spec(
        "spec", "exactly one of spec.jobTemplate", stream=STREAM, webhook=WEBHOOK, jobTemplate=JOB
    ),
    _spec("spec", "exactly one of spec.jobTemplate", stream=None, webhook=None),
    _spec("spec.stream.name", "Required value", stream={}),
    _spec("spec.stream.name", "braces", stream={"name": "a{b}c"}),
    _spec("spec.stream.name", "write letters", stream={"name": "a b"}),
    _spec(
        "spec.stream.maxLength",
        "greater than or equal to 1",
        stream={"name": "ticks", "maxLength": 0},
    ),
    _spec(
        "spec.stream.maxLength",
        "write 1000000 or less",
        stream={"name": "ticks", "maxLength": 1_000_001},
    ),
    _spec(
        "",
        'unknown field "spec.stream.connectionSecretRef.namespace"',
        stream={"name": "ticks", "connectionSecretRef": {"name": "redis", "namespace": "other"}},
    ),
    _spec(
        "spec.kafka.topic",
        "Required value",
        stream=ABSENT,
        kafka={"connectionSecretRef": {"name": "brokers"}},
    ),
    _spec(
        "spec.kafka.connectionSecretRef", "Required value", stream=ABSENT, kafka={"topic": "ticks"}
    ),
    _spec(
        "spec.kafka.topic",
        "as Kafka allows",
        stream=ABSENT,
        kafka={"topic": "a b", "connectionSecretRef": {"name": "brokers"}},
    ),
    _spec(
        "spec",
        "exactly one of spec.jobTemplate",
        stream=STREAM,
        kafka={"topic": "ticks", "connectionSecretRef": {"name": "brokers"}},
    ),
    _spec("", 'unknown field "spec.timezone"', timezone="Europe/Rome"),
]

JOBS = [
    _spec("spec.jobTemplate.spec", "Required value", jobTemplate={}),
    _spec("spec.jobTemplate.spec.template", "Required value", jobTemplate={"spec": {}}),
    _spec(
        "spec.jobTemplate.spec.template.spec",
        "Required value",
        jobTemplate={"spec": {"template": {}}},
    ),
    _pod("containers", "Required value", containers=ABSENT),
    _pod("containers", "at least 1", containers=[]),
    _pod("containers[0].name", "Required value", containers=[{"image": "busybox"}]),
    _pod("containers[0].image", "Required value", containers=[{"name": "main"}]),
    _pod("containers[0].image", "at least 1", **_main(image="")),
    _pod("containers[0].name", "should match", **_main(name="Main")),
    _pod("initContainers[0].image", "Required value", initContainers=[{"name": "first"}]),
    _pod(
        "containers[0].resources.limits.memory",
        "should match",
        **_main(resources={"limits": {"memory": "1Gx"}}),
    ),
    _pod(
        "containers[0].resources.requests.cpu",
        "should match",
        **_main(resources={"requests": {"cpu": "-1"}}),
    ),
    _pod(
        "containers[0].resources.requests.cpu",
        "greater than or equal to 0",
        **_main(resources={"requests": {"cpu": -0.5}}),
    ),
    _pod(
        "containers[0].ports[0].containerPort",
        "greater than or equal to 1",
        **_main(ports=[{"containerPort": 0}]),
    ),
    _pod("containers[1]", "Duplicate value", containers=[MAIN, MAIN]),
    _pod("containers[0].command", "must be of type array", **_main(command="sleep 5")),
    _pod("", "restartPolicy: Never", restartPolicy="Always"),
    _pod("", "restartPolicy: Never", restartPolicy=ABSENT),
    _job("selector", "each Job gets one of its own", selector={"matchLabels": {}}),
    _job("manualSelector", "take manualSelector out", manualSelector=True),
    _job("parallelism", "greater than or equal to 0", parallelism=-1),
    _job("completions", "greater than or equal to 0", completions=-1),
    _job("backoffLimit", "greater than or equal to 0", backoffLimit=-1),
    _job("activeDeadlineSeconds", "or equal to 0", activeDeadlineSeconds=-1),
    _job("ttlSecondsAfterFinished", "or equal to 0", ttlSecondsAfterFinished=-1),
    _job("completions", "write completions", completionMode="Indexed"),
    _job("backoffLimitPerIndex", "write completionMode: Indexed", backoffLimitPerIndex=1),
    _job("maxFailedIndexes", "write backoffLimitPerIndex", maxFailedIndexes=1),
    _spec(
        "spec.jobTemplate.spec.backoffLimit",
        "must be of type integer",
        jobTemplate={"spec": {**JOB["spec"], "backoffLimit": "3"}},
    ),
    _spec(
        "spec.jobTemplate.metadata.labels.tier",
        "must be of type string",
        jobTemplate={**JOB, "metadata": {"labels": {"tier": 1}}},
    ),
]

WEBHOOKS = [
    _hook("", "exactly one of webhook.url", url=ABSENT),
    _hook("", "exactly one of webhook.url", service={"name": "billing"}),
    _url("hooks.example.com/x", "write http:// or https://"),
    _url("file:///etc/passwd", "write http:// or https://"),
    _url("gopher://example.com/", "write http:// or https://"),
    _url("https://user:secret@example.com/", "write a user and password into webhook.auth"),
    _url("https://example.com/x#part", "a fragment is never sent"),
    _url("https://example.com/a b", "without blanks"),
    _url("https://example.com\\@evil.example/", "write http://"),
    _url("https://example.com/\r\nX: y", "without blanks"),
    _url("https://example.com:0/", "write http:// or https://"),
    _url("https://example.com:65536/", "write a port from 1 to 65535"),
    _url("https://m\u00fcller.example/", "xn--"),
    _url("https://" + "a" * 254 + "/", "at most 253 characters"),
    _url("", "write http:// or https://"),
    _hook("service.name", "Required value", url=ABSENT, service={"port": 80}),
    _hook(
        "service.name",
        "bare name of a Service in this namespace",
        url=ABSENT,
        service={"name": "billing.other.svc", "port": 80},
    ),
    _hook(
        "service.port",
        "write a port from 1 to 65535",
        url=ABSENT,
        service={"name": "billing", "port": 0},
    ),
    _hook(
        "service.path",
        "begins with /",
        url=ABSENT,
        service={"name": "billing", "port": 80, "path": "hooks"},
    ),
    _hook(
        "service.scheme",
        "write http or https",
        url=ABSENT,
        service={"name": "billing", "port": 80, "scheme": "HTTPS"},
    ),
    _hook("method", "write POST, PUT, PATCH, GET or DELETE", method="FETCH"),
    _hook("format", "write Standard, CloudEventsBinary", format="Json"),
    _hook("timeoutSeconds", "greater than or equal to 1", timeoutSeconds=0),
    _hook("timeoutSeconds", "less than or equal to 300", timeoutSeconds=3600),
    _hook("success[0]", "must be of type string", success=[200]),
    _hook("success[0]", 'write a status code as text, "204"', success=["ok"]),
    _hook("success[0]", "runs upward", success=["299-200"]),
    _hook("success", "should have at least 1 items", success=[]),
    _hook("retry.retryOn[0]", 'or "network"', retry={"retryOn": ["timeout"]}),
    _hook("retry.maxAttempts", "greater than or equal to 1", retry={"maxAttempts": 0}),
    _hook("retry.initialBackoff", "must be of type string", retry={"initialBackoff": 5}),
    _hook("retry.maxAge", "of the units d, h, m, s", retry={"maxAge": "1w"}),
]

HEADERS = [
    _header("name", "are set by the delivery itself", name="Host", value="x"),
    _header("name", "take this header out", name="content-length", value="5"),
    _header("name", "webhook-*", name="Webhook-Id", value="msg_1"),
    _header("name", "without a colon", name="X-A:", value="5"),
    _header("name", "write a header name", name="X\r\nY", value="5"),
    _header("value", "in one line", name="X-A", value="5\r\nX-B: 6"),
    _header("", "exactly one of value", name="X-A"),
    _header(
        "", "exactly one of value", name="X-A", value="5", valueFrom={"secretKeyRef": SECRET_KEY}
    ),
    _header("value", "valueFrom.secretKeyRef", name="Authorization", value="Bearer abc"),
    _header(
        "valueFrom.secretKeyRef.key",
        "Required value",
        name="X-A",
        valueFrom={"secretKeyRef": {"name": "billing"}},
    ),
    _hook(
        "headers[1]",
        "Duplicate value",
        headers=[{"name": "X-A", "value": "1"}, {"name": "X-A", "value": "2"}],
    ),
    _hook(
        "headers",
        "must have at most 32 items",
        headers=[{"name": f"X-{number}", "value": "1"} for number in range(100)],
    ),
]

CREDENTIALS = [
    _hook("auth", "exactly one of auth.bearer", auth={}),
    _hook(
        "auth",
        "exactly one of auth.bearer",
        auth={"bearer": {"secretKeyRef": SECRET_KEY}, "basic": {"secretRef": {"name": "billing"}}},
    ),
    _hook(
        "headers",
        "take that header out",
        auth={"bearer": {"secretKeyRef": SECRET_KEY}},
        headers=[{"name": "authorization", "valueFrom": {"secretKeyRef": SECRET_KEY}}],
    ),
    _hook(
        "auth.serviceAccountToken.audience",
        "Required value",
        auth={"serviceAccountToken": {"serviceAccountName": "billing"}},
    ),
    _hook(
        "auth.basic.secretRef.name",
        "there is no namespace part",
        auth={"basic": {"secretRef": {"name": "other/billing"}}},
    ),
    _hook("signing.secretKeyRefs", "should have at least 1 items", signing={"secretKeyRefs": []}),
    _hook("tls.caRef", "exactly one of caRef.configMap", tls={"caRef": {"key": "ca.crt"}}),
    _hook("tls.serverName", "write a host name", tls={"serverName": "hooks.example.com:443"}),
]

NAMES = [
    Rejected(
        thing=a_schedule("bad-" + "x" * 49),
        field="metadata.name",
        says="write at most 52 characters",
    )
]

PAYLOADS = [
    _spec("spec.payload", "Too long", payload="x" * 65535),
    _spec("spec.payload", "Too many", payload=[0] * 32768),
    _spec("spec.payload", "Too many", payload={f"{number}": 0 for number in range(13108)}),
]

RUNS = [
    _run("spec.trigger.payload", "Too long", trigger={"payload": "x" * 65535}),
    _run("spec.trigger.payload", "Too many", trigger={"payload": [0] * 32768}),
    _run(
        "spec.trigger.payload",
        "Too many",
        trigger={"payload": {f"{number}": 0 for number in range(13108)}},
    ),
    _run("spec", "exactly one of spec.trigger", trigger=ABSENT),
    _run("spec", "exactly one of spec.trigger", trigger={}, backfill={"from": NOON, "to": EVENING}),
    _run("spec.scheduleName", "Required value", scheduleName=ABSENT),
    _run("spec.scheduleName", "name of an object in this namespace", scheduleName="other/nightly"),
    _run("spec.backfill.to", "Required value", backfill={"from": NOON}),
    _run(
        "spec.backfill.to", "write a to that is after from", backfill={"from": EVENING, "to": NOON}
    ),
    _run(
        "spec.backfill.limit",
        "less than or equal to 10000",
        backfill={"from": NOON, "to": EVENING, "limit": 10_001},
    ),
    _run(
        "spec.backfill.order",
        "write OldestFirst or NewestFirst",
        backfill={"from": NOON, "to": EVENING, "order": "Random"},
    ),
    _run(
        "spec.trigger.concurrencyPolicy",
        "write Allow, Forbid, Replace or Queue",
        trigger={"concurrencyPolicy": "Wait"},
    ),
    _run("spec.ttlSecondsAfterFinished", "greater than or equal to 0", ttlSecondsAfterFinished=-1),
]

ALL = [
    *EXPRESSIONS, *ZONES, *TIMES, *POLICIES, *TARGETS, *JOBS,
    *WEBHOOKS, *HEADERS, *CREDENTIALS, *NAMES, *PAYLOADS, *RUNS,
]  # fmt: skip
