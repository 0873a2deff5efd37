"""Objects that must not get past `kubectl apply`, each with its field and what the user is told.

One mistake is one message: an answer with a second cause fails the test as well. The table is
grouped as a reader would look for a field. Names of cases are what is wrong, in words.
"""

from __future__ import annotations

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
    id: str


def _name(words: str) -> str:
    return "bad-" + words.lower().replace(" ", "-")


def _spec(words: str, field: str, says: str, **fields: Any) -> Rejected:
    thing = a_schedule(_name(words), **fields)
    return Rejected(thing=thing, field=field, says=says, id=words)


def _text(words: str, expression: str, says: str) -> Rejected:
    return _spec(words, "spec.schedule", says, schedule=expression)


def _hook(words: str, field: str, says: str, **fields: Any) -> Rejected:
    at = f"spec.webhook.{field}" if field else "spec.webhook"
    return _spec(words, at, says, webhook=a_webhook(**fields))


def _url(words: str, url: str, says: str) -> Rejected:
    return _hook(words, "url", says, url=url)


def _header(words: str, field: str, says: str, **header: Any) -> Rejected:
    at = f"headers[0].{field}" if field else "headers[0]"
    return _hook(words, at, says, headers=[header])


def _pod(words: str, field: str, says: str, **pod: Any) -> Rejected:
    at = "spec.jobTemplate.spec.template.spec" + (f".{field}" if field else "")
    return _spec(words, at, says, jobTemplate=a_job(**pod))


def _main(**fields: Any) -> dict[str, Any]:
    """The fields of a Pod with one container."""
    return {"containers": [{**MAIN, **fields}]}


def _job(words: str, field: str, says: str, **fields: Any) -> Rejected:
    template = {"spec": {**JOB["spec"], **fields}}
    return _spec(words, f"spec.jobTemplate.spec.{field}", says, jobTemplate=template)


def _run(words: str, field: str, says: str, **fields: Any) -> Rejected:
    thing = a_schedule_run(_name(words), **fields)
    return Rejected(thing=thing, field=field, says=says, id=words)


EXPRESSIONS = [
    _text("empty expression", "", COUNT),
    _text("only blanks", "   ", COUNT),
    _text("four fields", "* * * *", COUNT),
    _text("eight fields", "0 0 * * * * 2026 x", COUNT),
    _text("a word", "nightly", COUNT),
    _text("a no-break space", "0\u00a02 * * *", "no-break spaces"),
    _text("full width digits", "\uff10 2 * * *", "only plain ASCII"),
    _text("a right to left mark", "0 2 * * \u200f*", "only plain ASCII"),
    _text("201 characters", "0 0 * * " + "1," * 96 + "1", "may not be more than 200"),
    _text("minute 60", "60 * * * *", 'minute "60": write * or 0-59'),
    _text("hour 24", "0 24 * * *", 'hour "24": write * or 0-23'),
    _text("day of month 0", "0 0 0 * *", 'day-of-month "0": write * or ? or 1-31'),
    _text("day of month 32", "0 0 32 * *", 'day-of-month "32": write'),
    _text("month 13", "0 0 1 13 *", 'month "13": write * or 1-12 or JAN-DEC'),
    _text("month of four letters", "0 0 1 sept *", 'month "sept": write'),
    _text("day of week 8", "0 0 * * 8", 'day-of-week "8": write * or ? or 0-7 or SUN-SAT'),
    _text("unknown day", "0 0 * * mon-xyz", 'day-of-week "mon-xyz": write'),
    _text("second 60", "60 0 2 * * *", 'seconds (first of 6 or 7 fields) "60": write'),
    _text("year of two digits", "0 0 2 * * * 26", 'year (last of 7 fields) "26": write'),
    _text("year 2100", "0 0 2 * * * 2100", 'year (last of 7 fields) "2100": write'),
    _text("minute 60 of six fields", "0 60 2 * * *", 'minute "60": write'),
    _text("hour 24 of seven fields", "0 0 24 * * * 2026", 'hour "24": write'),
    _text("day of week 8 of seven fields", " 0 0 2 *\n* 8 2026", 'day-of-week "8": write'),
    _text("step of zero", "5,*/0 * * * *", '"*/0": a step of zero never moves'),
    _text("negative step", "*/-1 * * * *", 'minute "*/-1": write'),
    _text("step without a number", "*/ * * * *", 'minute "*/": write'),
    _text("step larger than its field", "0 */25 * * *", "a step from 1 to 24"),
    _text("range downward", "5-3 * * * *", '"5-3": a range of numbers runs upward'),
    _text("range of hours downward", "0 1-2,22-6 * * *", '"22-6": a range of numbers'),
    _text("hash range downward", "H(30-10) * * * *", "a range of numbers runs upward"),
    _text("double dash", "5--5 * * * *", 'minute "5--5": write'),
    _text("range from a star", "*-5 * * * *", 'minute "*-5": write'),
    _text("list without an entry", ", * * * *", 'minute ",": write'),
    _text("random field", "R * * * *", 'minute "R": write'),
    _text("last day among minutes", "L * * * *", 'minute "L": write'),
    _text("last day of week without a day", "0 0 * * L", 'day-of-week "L": write'),
    _text("sixth monday", "0 0 * * 1#6", 'day-of-week "1#6": write'),
    _text("weekday nearest to 32", "0 0 32W * *", 'day-of-month "32W": write'),
    _text("zone prefix", "TZ=Europe/Rome 0 2 * * *", "write the zone into spec.timeZone"),
    _text("cron zone prefix", "CRON_TZ=UTC 0 2 * * *", "write the zone into spec.timeZone"),
    _text("unknown macro", "@fortnightly", "no such macro"),
    _text("macro in capitals", "@Daily", "in lower case"),
    _text("macro with a tail", "@daily 5", "no such macro"),
    _text("every without a period", "@every", "after @every write a positive duration"),
    _text("every nothing", "@every 0s", "the shortest period is 100 ms"),
    _text("every 50 ms", "@every 50ms", "the shortest period is 100 ms"),
    _text("every negative period", "@every -5m", "after @every write a positive duration"),
    _text("every nanosecond", "@every 1ns", "of the units d, h, m, s and ms"),
    _text("every bare number", "@every 90", "after @every write a positive duration"),
    _text("every week", "@every 1w", "of the units d, h, m, s and ms"),
    _text("at without a zone", "@at 2026-12-24T18:00:00", "with its zone"),
    _text("at without a time", "@at", "after @at write an RFC 3339 time"),
    _text("at a date", "@at 2026-12-24", "after @at write an RFC 3339 time"),
    _text("at month 13", "@at 2026-13-24T18:00:00Z", "after @at write an RFC 3339 time"),
    _text("at a leap second", "@at 2026-12-31T23:59:60Z", "after @at write an RFC 3339 time"),
    _text("at year 10000", "@at 10000-01-01T00:00:00Z", "after @at write an RFC 3339 time"),
    _spec("expression as a number", "spec.schedule", "must be of type string", schedule=5),
    _spec(
        "second of several expressions",
        "spec.schedules[1]",
        'hour "25": write * or 0-23',
        schedule=ABSENT,
        schedules=["0 1 * * *", "0 25 * * *"],
    ),
    _spec(
        "33 expressions",
        "spec.schedules",
        "must have at most 32 items",
        schedule=ABSENT,
        schedules=[f"{minute} * * * *" for minute in range(33)],
    ),
    _spec(
        "10000 expressions",
        "spec.schedules",
        "must have at most 32 items",
        schedule=ABSENT,
        schedules=["0 0 * * *"] * 10_000,
    ),
    _spec(
        "empty list of expressions",
        "spec.schedules",
        "should have at least 1 items",
        schedule=ABSENT,
        schedules=[],
    ),
    _spec(
        "neither schedule nor schedules",
        "spec",
        "exactly one of spec.schedule",
        schedule=ABSENT,
    ),
    _spec(
        "both schedule and schedules",
        "spec",
        "exactly one of spec.schedule",
        schedules=["0 0 * * *"],
    ),
]

ZONES = [
    _spec("empty zone", "spec.timeZone", "null or no field is Etc/UTC", timeZone=""),
    _spec("machine zone", "spec.timeZone", "another zone on each machine", timeZone="Local"),
    _spec("localtime", "spec.timeZone", "another zone on each machine", timeZone="localtime"),
    _spec("factory zone", "spec.timeZone", "another zone on each machine", timeZone="Factory"),
    _spec(
        "posix zone",
        "spec.timeZone",
        "another zone on each machine",
        timeZone="posix/Europe/Rome",
    ),
    _spec(
        "zone that climbs",
        "spec.timeZone",
        "write an IANA time zone name",
        timeZone="../../etc/passwd",
    ),
    _spec(
        "zone as a path",
        "spec.timeZone",
        "write an IANA time zone name",
        timeZone="/usr/share/zoneinfo/UTC",
    ),
    _spec("zone with a blank", "spec.timeZone", "IANA time zone name", timeZone="Etc/UTC "),
    _spec("zone as an offset", "spec.timeZone", "IANA time zone name", timeZone="UTC+25:00"),
    _spec(
        "unknown zone",
        "spec.timeZone",
        "no such time zone: write an IANA",
        timeZone="Europe/Atlantis",
    ),
    _spec("zone in small letters", "spec.timeZone", "with its capitals", timeZone="europe/rome"),
    _spec("unknown gap", "spec.dst.gap", "write RunOnce or Skip", dst={"gap": "Never"}),
    _spec("unknown overlap", "spec.dst.overlap", "First, Second or Both", dst={"overlap": "Third"}),
]

TIMES = [
    _spec("jitter without a unit", "spec.jitter", "such as 30s", jitter="30"),
    _spec("negative jitter", "spec.jitter", "without a sign", jitter="-30s"),
    _spec("jitter as a number", "spec.jitter", "must be of type string", jitter=30),
    _spec("start without a zone", "spec.startTime", "date-time", startTime="2026-12-24T12:00:00"),
    _spec("start as a date", "spec.startTime", "date-time", startTime="2026-12-24"),
    _spec(
        "end before start",
        "spec.endTime",
        "write an endTime after startTime",
        startTime=EVENING,
        endTime=NOON,
    ),
    _spec(
        "end at start",
        "spec.endTime",
        "write an endTime after startTime",
        startTime=NOON,
        endTime=NOON,
    ),
    _spec("no runs", "spec.maxRuns", "greater than or equal to 1", maxRuns=0),
    _spec("suspend as text", "spec.suspend", "must be of type boolean", suspend="yes"),
    _spec(
        "long suspend reason",
        "spec.suspendReason",
        "may not be more than 256",
        suspendReason="x" * 257,
    ),
]

POLICIES = [
    _spec(
        "negative deadline",
        "spec.startingDeadlineSeconds",
        "greater than or equal to 0",
        startingDeadlineSeconds=-1,
    ),
    _spec(
        "deadline with a fraction",
        "spec.startingDeadlineSeconds",
        "must be of type integer",
        startingDeadlineSeconds=1.5,
    ),
    _spec(
        "deadline as text",
        "spec.startingDeadlineSeconds",
        "must be of type integer",
        startingDeadlineSeconds="600",
    ),
    _spec(
        "unknown catch up policy",
        "spec.catchUpPolicy",
        "write Latest, All or None",
        catchUpPolicy="Newest",
    ),
    _spec(
        "catch up limit beside Latest",
        "spec.catchUpLimit",
        "write catchUpPolicy: All beside it",
        catchUpLimit=5,
    ),
    _spec(
        "catch up limit of zero",
        "spec.catchUpLimit",
        "greater than or equal to 1",
        catchUpPolicy="All",
        catchUpLimit=0,
    ),
    _spec(
        "catch up limit of 10001",
        "spec.catchUpLimit",
        "less than or equal to 10000",
        catchUpPolicy="All",
        catchUpLimit=10_001,
    ),
    _spec(
        "unknown concurrency policy",
        "spec.concurrencyPolicy",
        "write Allow, Forbid, Replace or Queue",
        concurrencyPolicy="forbid",
    ),
    _spec(
        "maximal concurrency beside Allow",
        "spec.maxConcurrency",
        "write concurrencyPolicy: Forbid or Queue beside it",
        maxConcurrency=2,
    ),
    _spec(
        "maximal concurrency beside Replace",
        "spec.maxConcurrency",
        "write concurrencyPolicy: Forbid or Queue beside it",
        concurrencyPolicy="Replace",
        maxConcurrency=2,
    ),
    _spec(
        "maximal concurrency of zero",
        "spec.maxConcurrency",
        "greater than or equal to 1",
        concurrencyPolicy="Forbid",
        maxConcurrency=0,
    ),
    _spec(
        "queue limit beside Forbid",
        "spec.queueLimit",
        "write concurrencyPolicy: Queue beside it",
        concurrencyPolicy="Forbid",
        queueLimit=1,
    ),
    _spec(
        "negative history",
        "spec.failedJobsHistoryLimit",
        "greater than or equal to 0",
        failedJobsHistoryLimit=-1,
    ),
    _spec(
        "history of 2 to the 31",
        "spec.successfulJobsHistoryLimit",
        "less than or equal to 2147483647",
        successfulJobsHistoryLimit=2**31,
    ),
]

TARGETS = [
    _spec("no target", "spec", "exactly one target", stream=ABSENT),
    _spec("two targets", "spec", "exactly one target", stream=STREAM, webhook=WEBHOOK),
    _spec(
        "three targets",
        "spec",
        "exactly one target",
        stream=STREAM,
        webhook=WEBHOOK,
        jobTemplate=JOB,
    ),
    _spec("all targets null", "spec", "exactly one target", stream=None, webhook=None),
    _spec("stream without a name", "spec.stream.name", "Required value", stream={}),
    _spec("stream with braces", "spec.stream.name", "braces", stream={"name": "a{b}c"}),
    _spec("stream with a blank", "spec.stream.name", "write letters", stream={"name": "a b"}),
    _spec(
        "stream of length zero",
        "spec.stream.maxLength",
        "greater than or equal to 1",
        stream={"name": "ticks", "maxLength": 0},
    ),
    _spec(
        "stream secret in another namespace",
        "",
        'unknown field "spec.stream.connectionSecretRef.namespace"',
        stream={"name": "ticks", "connectionSecretRef": {"name": "redis", "namespace": "other"}},
    ),
    _spec(
        "kafka without a topic",
        "spec.kafka.topic",
        "Required value",
        stream=ABSENT,
        kafka={"connectionSecretRef": {"name": "brokers"}},
    ),
    _spec(
        "kafka without a connection",
        "spec.kafka.connectionSecretRef",
        "Required value",
        stream=ABSENT,
        kafka={"topic": "ticks"},
    ),
    _spec(
        "kafka with a blank",
        "spec.kafka.topic",
        "as Kafka allows",
        stream=ABSENT,
        kafka={"topic": "a b", "connectionSecretRef": {"name": "brokers"}},
    ),
    _spec(
        "kafka beside a stream",
        "spec",
        "exactly one target",
        stream=STREAM,
        kafka={"topic": "ticks", "connectionSecretRef": {"name": "brokers"}},
    ),
    _spec("misspelt field", "", 'unknown field "spec.timezone"', timezone="Europe/Rome"),
]

JOBS = [
    _spec("job without a spec", "spec.jobTemplate.spec", "Required value", jobTemplate={}),
    _spec(
        "job without a template",
        "spec.jobTemplate.spec.template",
        "Required value",
        jobTemplate={"spec": {}},
    ),
    _spec(
        "template without a spec",
        "spec.jobTemplate.spec.template.spec",
        "Required value",
        jobTemplate={"spec": {"template": {}}},
    ),
    _pod("pod without containers", "containers", "Required value", containers=ABSENT),
    _pod("pod with an empty list of containers", "containers", "at least 1", containers=[]),
    _pod(
        "container without a name",
        "containers[0].name",
        "Required value",
        containers=[{"image": "busybox"}],
    ),
    _pod(
        "container without an image",
        "containers[0].image",
        "Required value",
        containers=[{"name": "main"}],
    ),
    _pod("container with an empty image", "containers[0].image", "at least 1", **_main(image="")),
    _pod("container in capitals", "containers[0].name", "should match", **_main(name="Main")),
    _pod(
        "init container without an image",
        "initContainers[0].image",
        "Required value",
        initContainers=[{"name": "first"}],
    ),
    _pod(
        "quantity with an unknown unit",
        "containers[0].resources.limits.memory",
        "should match",
        **_main(resources={"limits": {"memory": "1Gx"}}),
    ),
    _pod(
        "negative quantity",
        "containers[0].resources.requests.cpu",
        "should match",
        **_main(resources={"requests": {"cpu": "-1"}}),
    ),
    _pod(
        "negative quantity as a number",
        "containers[0].resources.requests.cpu",
        "greater than or equal to 0",
        **_main(resources={"requests": {"cpu": -0.5}}),
    ),
    _pod(
        "container port 0",
        "containers[0].ports[0].containerPort",
        "greater than or equal to 1",
        **_main(ports=[{"containerPort": 0}]),
    ),
    _pod(
        "two containers of one name",
        "containers[1]",
        "Duplicate value",
        containers=[MAIN, MAIN],
    ),
    _pod(
        "command as text",
        "containers[0].command",
        "must be of type array",
        **_main(command="sleep 5"),
    ),
    _pod("pod that restarts always", "", "restartPolicy: Never", restartPolicy="Always"),
    _pod("pod without a restart policy", "", "restartPolicy: Never", restartPolicy=ABSENT),
    _job("selector", "selector", "each Job gets one of its own", selector={"matchLabels": {}}),
    _job("manual selector", "manualSelector", "take manualSelector out", manualSelector=True),
    _job("negative parallelism", "parallelism", "greater than or equal to 0", parallelism=-1),
    _job("negative completions", "completions", "greater than or equal to 0", completions=-1),
    _job("negative backoff limit", "backoffLimit", "greater than or equal to 0", backoffLimit=-1),
    _job(
        "negative deadline of a job",
        "activeDeadlineSeconds",
        "or equal to 0",
        activeDeadlineSeconds=-1,
    ),
    _job(
        "negative life of a job",
        "ttlSecondsAfterFinished",
        "or equal to 0",
        ttlSecondsAfterFinished=-1,
    ),
    _job(
        "indexed without completions", "completions", "write completions", completionMode="Indexed"
    ),
    _job(
        "limit per index of no index",
        "backoffLimitPerIndex",
        "write completionMode: Indexed",
        backoffLimitPerIndex=1,
    ),
    _job(
        "failed indexes without a limit",
        "maxFailedIndexes",
        "write backoffLimitPerIndex",
        maxFailedIndexes=1,
    ),
    _spec(
        "backoff limit as text",
        "spec.jobTemplate.spec.backoffLimit",
        "must be of type integer",
        jobTemplate={"spec": {**JOB["spec"], "backoffLimit": "3"}},
    ),
    _spec(
        "label as a number",
        "spec.jobTemplate.metadata.labels.tier",
        "must be of type string",
        jobTemplate={**JOB, "metadata": {"labels": {"tier": 1}}},
    ),
]

WEBHOOKS = [
    _hook("neither url nor service", "", "exactly one of webhook.url", url=ABSENT),
    _hook("both url and service", "", "exactly one of webhook.url", service={"name": "billing"}),
    _url("url without a scheme", "hooks.example.com/x", "write http:// or https://"),
    _url("file url", "file:///etc/passwd", "write http:// or https://"),
    _url("gopher url", "gopher://example.com/", "write http:// or https://"),
    _url(
        "url with a password",
        "https://user:secret@example.com/",
        "write a user and password into webhook.auth",
    ),
    _url("url with a fragment", "https://example.com/x#part", "a fragment is never sent"),
    _url("url with a blank", "https://example.com/a b", "without blanks"),
    _url("url with a backslash host", "https://example.com\\@evil.example/", "write http://"),
    _url("url with a line break", "https://example.com/\r\nX: y", "without blanks"),
    _url("url with port 0", "https://example.com:0/", "write http:// or https://"),
    _url("url with port 65536", "https://example.com:65536/", "write a port from 1 to 65535"),
    _url("url with an umlaut", "https://m\u00fcller.example/", "xn--"),
    _url("url with a long host", "https://" + "a" * 254 + "/", "at most 253 characters"),
    _url("empty url", "", "write http:// or https://"),
    _hook(
        "service without a name",
        "service.name",
        "Required value",
        url=ABSENT,
        service={"port": 80},
    ),
    _hook(
        "service of another namespace",
        "service.name",
        "bare name of a Service in this namespace",
        url=ABSENT,
        service={"name": "billing.other.svc", "port": 80},
    ),
    _hook(
        "service port 0",
        "service.port",
        "write a port from 1 to 65535",
        url=ABSENT,
        service={"name": "billing", "port": 0},
    ),
    _hook(
        "service path without a slash",
        "service.path",
        "begins with /",
        url=ABSENT,
        service={"name": "billing", "port": 80, "path": "hooks"},
    ),
    _hook(
        "service scheme in capitals",
        "service.scheme",
        "write http or https",
        url=ABSENT,
        service={"name": "billing", "port": 80, "scheme": "HTTPS"},
    ),
    _hook("unknown method", "method", "write POST, PUT, PATCH, GET or DELETE", method="FETCH"),
    _hook("unknown format", "format", "write Standard, CloudEventsBinary", format="Json"),
    _hook("timeout of zero", "timeoutSeconds", "greater than or equal to 1", timeoutSeconds=0),
    _hook("timeout of an hour", "timeoutSeconds", "less than or equal to 300", timeoutSeconds=3600),
    _hook("success as a number", "success[0]", "must be of type string", success=[200]),
    _hook("success as a word", "success[0]", 'write a status code as text, "204"', success=["ok"]),
    _hook("success downward", "success[0]", "runs upward", success=["299-200"]),
    _hook("no success at all", "success", "should have at least 1 items", success=[]),
    _hook("retry on timeouts", "retry.retryOn[0]", 'or "network"', retry={"retryOn": ["timeout"]}),
    _hook(
        "no attempts",
        "retry.maxAttempts",
        "greater than or equal to 1",
        retry={"maxAttempts": 0},
    ),
    _hook(
        "backoff as a number",
        "retry.initialBackoff",
        "must be of type string",
        retry={"initialBackoff": 5},
    ),
    _hook("age in weeks", "retry.maxAge", "of the units d, h, m, s", retry={"maxAge": "1w"}),
]

HEADERS = [
    _header("header host", "name", "are set by the delivery itself", name="Host", value="x"),
    _header("header length", "name", "take this header out", name="content-length", value="5"),
    _header("header webhook id", "name", "webhook-*", name="Webhook-Id", value="msg_1"),
    _header("header with a colon", "name", "without a colon", name="X-A:", value="5"),
    _header("header name with a break", "name", "write a header name", name="X\r\nY", value="5"),
    _header("header value with a break", "value", "in one line", name="X-A", value="5\r\nX-B: 6"),
    _header("header without a value", "", "exactly one of value", name="X-A"),
    _header(
        "header with both values",
        "",
        "exactly one of value",
        name="X-A",
        value="5",
        valueFrom={"secretKeyRef": SECRET_KEY},
    ),
    _header(
        "credential in plain sight",
        "value",
        "valueFrom.secretKeyRef",
        name="Authorization",
        value="Bearer abc",
    ),
    _header(
        "header from a whole secret",
        "valueFrom.secretKeyRef.key",
        "Required value",
        name="X-A",
        valueFrom={"secretKeyRef": {"name": "billing"}},
    ),
    _hook(
        "header twice",
        "headers[1]",
        "Duplicate value",
        headers=[{"name": "X-A", "value": "1"}, {"name": "X-A", "value": "2"}],
    ),
    _hook(
        "100 headers",
        "headers",
        "must have at most 32 items",
        headers=[{"name": f"X-{number}", "value": "1"} for number in range(100)],
    ),
]

CREDENTIALS = [
    _hook("auth of no kind", "auth", "exactly one of auth.bearer", auth={}),
    _hook(
        "auth of two kinds",
        "auth",
        "exactly one of auth.bearer",
        auth={
            "bearer": {"secretKeyRef": SECRET_KEY},
            "basic": {"secretRef": {"name": "billing"}},
        },
    ),
    _hook(
        "auth beside its header",
        "headers",
        "take that header out",
        auth={"bearer": {"secretKeyRef": SECRET_KEY}},
        headers=[{"name": "authorization", "valueFrom": {"secretKeyRef": SECRET_KEY}}],
    ),
    _hook(
        "token without an audience",
        "auth.serviceAccountToken.audience",
        "Required value",
        auth={"serviceAccountToken": {"serviceAccountName": "billing"}},
    ),
    _hook(
        "secret with a namespace",
        "auth.basic.secretRef.name",
        "there is no namespace part",
        auth={"basic": {"secretRef": {"name": "other/billing"}}},
    ),
    _hook(
        "signing without keys",
        "signing.secretKeyRefs",
        "should have at least 1 items",
        signing={"secretKeyRefs": []},
    ),
    _hook(
        "authorities from nowhere",
        "tls.caRef",
        "exactly one of caRef.configMap",
        tls={"caRef": {"key": "ca.crt"}},
    ),
    _hook(
        "server name with a port",
        "tls.serverName",
        "write a host name",
        tls={"serverName": "hooks.example.com:443"},
    ),
]

NAMES = [
    Rejected(
        thing=a_schedule("bad-" + "x" * 49),
        field="metadata.name",
        says="write at most 52 characters",
        id="name of 53 characters",
    ),
]

PAYLOADS = [
    _spec("text of more than 64 KiB", "spec.payload", "Too long", payload="x" * 65535),
    _spec("list of more than 64 KiB", "spec.payload", "Too many", payload=[0] * 32768),
    _spec(
        "mapping of more than 64 KiB",
        "spec.payload",
        "Too many",
        payload={f"{number}": 0 for number in range(13108)},
    ),
]

RUNS = [
    _run(
        "run with a text of more than 64 KiB",
        "spec.trigger.payload",
        "Too long",
        trigger={"payload": "x" * 65535},
    ),
    _run(
        "run with a list of more than 64 KiB",
        "spec.trigger.payload",
        "Too many",
        trigger={"payload": [0] * 32768},
    ),
    _run(
        "run with a mapping of more than 64 KiB",
        "spec.trigger.payload",
        "Too many",
        trigger={"payload": {f"{number}": 0 for number in range(13108)}},
    ),
    _run("run of nothing", "spec", "exactly one of spec.trigger", trigger=ABSENT),
    _run(
        "run of both kinds",
        "spec",
        "exactly one of spec.trigger",
        trigger={},
        backfill={"from": NOON, "to": EVENING},
    ),
    _run("run without a schedule", "spec.scheduleName", "Required value", scheduleName=ABSENT),
    _run(
        "run in another namespace",
        "spec.scheduleName",
        "name of a Schedule in this namespace",
        scheduleName="other/nightly",
    ),
    _run("range without an end", "spec.backfill.to", "Required value", backfill={"from": NOON}),
    _run(
        "range that ends first",
        "spec.backfill.to",
        "write a to that is after from",
        backfill={"from": EVENING, "to": NOON},
    ),
    _run(
        "range of too many",
        "spec.backfill.limit",
        "less than or equal to 10000",
        backfill={"from": NOON, "to": EVENING, "limit": 10_001},
    ),
    _run(
        "range in random order",
        "spec.backfill.order",
        "write OldestFirst or NewestFirst",
        backfill={"from": NOON, "to": EVENING, "order": "Random"},
    ),
    _run(
        "unknown policy for a run",
        "spec.trigger.concurrencyPolicy",
        "write Allow, Forbid, Replace or Queue",
        trigger={"concurrencyPolicy": "Wait"},
    ),
    _run(
        "negative time to live",
        "spec.ttlSecondsAfterFinished",
        "greater than or equal to 0",
        ttlSecondsAfterFinished=-1,
    ),
]

ALL = [
    *EXPRESSIONS,
    *ZONES,
    *TIMES,
    *POLICIES,
    *TARGETS,
    *JOBS,
    *WEBHOOKS,
    *HEADERS,
    *CREDENTIALS,
    *NAMES,
    *PAYLOADS,
    *RUNS,
]
