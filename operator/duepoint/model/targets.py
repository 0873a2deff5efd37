"""The fields that a Schedule and a ScheduleSet share: targets, payload and policies."""

from __future__ import annotations

import functools
import importlib.resources
from typing import Annotated, ClassVar, Final

import msgspec

from duepoint.model import schemas
from duepoint.model.schemas import ANY, RULES, Json, Shape
from duepoint.model.vocabulary import (
    Fields,
    Int32,
    Int64,
    Keywords,
    Rule,
    TimeZone,
    any_json,
    choices,
    lacks,
    matches,
    needs,
    one_of,
    within,
)
from duepoint.model.webhook import SecretRefFields, WebhookFields

PAYLOAD_BYTES: Final = 64 * 1024
#: Most entries that a stream in Duepoint's own Redis keeps.
OWN_STREAM_LENGTH: Final = 1_000_000


class DstFields(Fields):
    """What happens to fixed times of day when the clocks change.

    Expressions with a wildcard hour or minute keep their real cadence.
    """

    gap: Annotated[
        str | None,
        choices("RunOnce", "Skip", default="RunOnce"),
        "A local time that does not exist (spring) - RunOnce runs at the first instant after the "
        "gap, Skip does not run.",
    ] = None
    overlap: Annotated[
        str | None,
        choices("First", "Second", "Both", default="First"),
        "A local time that exists twice (autumn) - which of the two instants runs.",
    ] = None


class StreamFields(Fields):
    """Target: an entry appended (XADD) to a Redis stream for each slot."""

    name: Annotated[
        str,
        Keywords(minLength=1, maxLength=200),
        matches(
            r"^[A-Za-z0-9]([A-Za-z0-9._/:-]*[A-Za-z0-9])?$",
            "write letters, digits and . _ - / : between them, such as ticks or orders:nightly; "
            "braces and blanks would change the key's place",
        ),
        "Name of the stream. In Duepoint's own Redis its key is {prefix}stream:{namespace}:{name}; "
        "in another one the name itself is the key.",
    ]
    max_length: Annotated[
        Int64 | None,
        within(1),
        "Older entries beyond about this many are trimmed away. unset = never trimmed in another "
        "Redis; 10000 in Duepoint's own one, which keeps at most 1000000 and bounds the bytes of "
        "all streams of a namespace.",
    ] = None
    connection_secret_ref: Annotated[
        SecretRefFields | None,
        "A Secret of this namespace that holds the connection to another Redis: url (redis:// or "
        "rediss://) and, as needed, username, password, ca.crt, tls.crt, tls.key. unset = "
        "Duepoint's own Redis, if the installation has streams there; if it has none, name another "
        "one here.",
    ] = None

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel=f"!has(self.maxLength) || has(self.connectionSecretRef)"
            f" || self.maxLength <= {OWN_STREAM_LENGTH}",
            message=f"write {OWN_STREAM_LENGTH} or less, the most that Duepoint's own Redis keeps "
            "of a stream, or name another Redis in connectionSecretRef",
            holds=lambda stream: (
                "connectionSecretRef" in stream or stream.get("maxLength", 0) <= OWN_STREAM_LENGTH
            ),
            path="maxLength",
        ),
    )


class KafkaFields(Fields):
    """Target: a record produced to a Kafka topic for each slot; its key is the Schedule's uid."""

    topic: Annotated[
        str,
        Keywords(minLength=1, maxLength=249),
        matches(
            r"^[A-Za-z0-9._-]+$",
            "write letters, digits and . _ - as Kafka allows in a topic, such as ticks or "
            "orders.nightly",
        ),
        lacks(r"^[.][.]?$", "write a name beside the dots, as Kafka allows in a topic"),
        "Name of the topic.",
    ]
    connection_secret_ref: Annotated[
        SecretRefFields,
        "A Secret of this namespace that holds the connection: bootstrap.servers (host:port, "
        "separated by commas) and, as needed, security.protocol, sasl.mechanism, username, "
        "password, ca.crt, tls.crt, tls.key.",
    ]


class TargetFields(Fields, kw_only=True):
    """The kinds of target beside a Job. Keyword-only, so that they follow a spec's own fields."""

    webhook: WebhookFields | None = None
    stream: StreamFields | None = None
    kafka: KafkaFields | None = None


#: The field of each kind of target.
KINDS: Final = ("jobTemplate", *TargetFields.__struct_encode_fields__)
ONE_TARGET: Final = one_of("spec.", **dict.fromkeys(KINDS, ""))


@functools.cache
def job_spec() -> Json:
    """Return the schema of Kubernetes' JobSpec with our rules; see ``tools.jobschema.prune``."""
    packaged = importlib.resources.files("duepoint.model").joinpath("jobspec.json")
    schema: Json = msgspec.json.decode(packaged.read_bytes())
    schema[RULES] = list(_JOB_RULES)
    schema["properties"]["template"]["properties"]["spec"][RULES] = [_RESTART_POLICY]
    return schema


class _TemplateMetadata(Fields):
    labels: Annotated[
        dict[str, str | None] | None, "Labels of each Job. unset = none but Duepoint's own."
    ] = None
    annotations: Annotated[
        dict[str, str | None] | None, "Annotations of each Job. unset = none but Duepoint's own."
    ] = None


class _TemplateFields(Fields, kw_only=True):
    metadata: Annotated[
        _TemplateMetadata | None,
        Keywords(**{ANY: True}),
        "Labels and annotations of the Jobs. Anything else is ignored, as CronJob does.",
    ] = None
    spec: Annotated[msgspec.Raw, Shape(job_spec)]


#: Rules against a selector: any that matches would be the same for all Jobs of a Schedule.
SELECTOR_RULES: Final = (
    Rule(
        cel="!has(self.manualSelector) || !self.manualSelector",
        message="take manualSelector out: each Job gets a selector of its own, and one that is "
        "written would be the same for all",
        holds=lambda job: job.get("manualSelector") is not True,
        path="manualSelector",
    ),
    Rule(
        cel="!has(self.selector)",
        message="take the selector out: each Job gets one of its own",
        holds=lambda job: "selector" not in job,
        path="selector",
    ),
)
_JOB_RULES = (
    *SELECTOR_RULES,
    Rule(
        cel="!has(self.completionMode) || self.completionMode != 'Indexed'"
        " || has(self.completions)",
        message="write completions beside completionMode: Indexed",
        holds=lambda job: job.get("completionMode") != "Indexed" or "completions" in job,
        path="completions",
    ),
    needs("backoffLimitPerIndex", "completionMode", "Indexed"),
    needs("maxFailedIndexes", "backoffLimitPerIndex"),
)
_RESTART_POLICY = Rule(
    cel="has(self.restartPolicy) && self.restartPolicy in ['Never', 'OnFailure']",
    message="write restartPolicy: Never or restartPolicy: OnFailure; a Job's Pods may not "
    "restart always",
    holds=lambda pod: pod.get("restartPolicy") in ("Never", "OnFailure"),
)

SuspendReason = Annotated[
    str,
    Keywords(maxLength=256),
    "Why it is suspended, such as an incident number. unset = none.",
]
StartingDeadline = Annotated[
    Int64,
    within(0),
    "A slot that cannot start within this many seconds after its time (with jitter) is "
    "missed. 0 = only on time, with 1 s of grace. unset = no limit for catching up, and 24 h "
    "for retrying a Job's creation, an entry or a record.",
]
CatchUpLimit = Annotated[
    Int32,
    within(1, 10_000),
    "With catchUpPolicy: All, the newest this many overdue slots run and the rest are missed. "
    "unset = 100.",
]
TimeZoneName = Annotated[
    TimeZone,
    "IANA name of the time zone of the expressions, such as Europe/Rome. Never the "
    "machine's own zone. unset = Etc/UTC.",
]
Dst = Annotated[DstFields, Keywords(default={})]
JobTemplate = Annotated[
    msgspec.Raw,
    Shape(lambda: schemas.of(_TemplateFields)),
    "Target: a Job for each slot, as in CronJob; Jobs are deleted with their Schedule.",
]
Payload = Annotated[
    msgspec.Raw,
    any_json(PAYLOAD_BYTES),
    "Any JSON up to 64 KiB, handed to every target - as an environment variable and annotation of "
    "a Job's Pods, in the body of a webhook, as a field of a stream entry. unset = null.",
]
