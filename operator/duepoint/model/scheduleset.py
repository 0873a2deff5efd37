"""``spec`` of a ScheduleSet; the fields of its target are a Schedule's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final

import msgspec

from duepoint.model import member, schemas, targets
from duepoint.model.schemas import Shape
from duepoint.model.vocabulary import (
    DataKey,
    Duration,
    Fields,
    Int32,
    Keywords,
    ObjectName,
    Rule,
    any_json,
    choices,
    keyed_by,
    mapping,
    needs,
    one_of,
    within,
)

#: Most rows of ``spec.rows``, inline or in a ConfigMap.
MOST_ROWS: Final = 10_000
MOST_MEMBERS: Final = 100_000_000
#: The same limit as for a member's own payload.
MOST_PAYLOAD_BYTES: Final = member.MOST_PAYLOAD_BYTES

_Row = Annotated[msgspec.Raw, Shape(lambda: schemas.of(member.MemberRowFields))]


def _keeps_jobs_for_a_time(spec: Mapping[str, Any]) -> bool:
    job = mapping(mapping(spec.get("jobTemplate")).get("spec"))
    return "jobTemplate" not in spec or job.get("ttlSecondsAfterFinished") is not None


def _starts_jobs_beside_others(spec: Mapping[str, Any]) -> bool:
    """Whether Jobs are without Forbid: the queue does not track when a member's Jobs end."""
    policy = mapping(spec.get("defaults")).get("concurrencyPolicy")
    return "jobTemplate" not in spec or policy != "Forbid"


class DefaultsFields(Fields):
    """Values for the fields that a member leaves out.

    A member takes them over when it is written; an edit applies to members written afterwards.
    unset = the defaults below.
    """

    time_zone: targets.TimeZoneName | None = None
    dst: targets.Dst | None = None
    jitter: Annotated[
        Duration | None,
        "Largest delay added to each slot, such as 30s. A slot has the same delay on every "
        "replica; it is never early and never past the next slot. unset = 0.",
    ] = None
    starting_deadline_seconds: targets.StartingDeadline | None = None
    catch_up_policy: Annotated[
        str | None,
        choices("Latest", "All", "None"),
        "Which of several overdue slots of a member run after an outage - the newest, all of them "
        "oldest first, or none that is more than 10 s late. unset = Latest.",
    ] = None
    catch_up_limit: targets.CatchUpLimit | None = None
    concurrency_policy: Annotated[
        str | None,
        choices("", "Allow", "Forbid"),
        "What a due slot does while a former run of the same member is active - Allow starts it "
        "too, Forbid skips it. An empty text is Allow. unset = Allow.",
    ] = None

    RULES: ClassVar[tuple[Rule, ...]] = (needs("catchUpLimit", "catchUpPolicy", "All"),)


class LimitsFields(Fields):
    """How much the set may hold and take. unset = the limits below."""

    members: Annotated[
        Int32 | None,
        within(1, MOST_MEMBERS),
        "How many members it may have; further ones are refused. It decides at creation how the "
        "set is laid out in Redis, so begin with what you expect. unset = 1000000.",
    ] = None
    payload_bytes: Annotated[
        Int32 | None,
        within(0, MOST_PAYLOAD_BYTES),
        "The largest payload of a member, in bytes of JSON. unset = 4096.",
    ] = None
    changes_per_second: Annotated[
        Int32 | None,
        within(1, 100_000),
        "How many members may be written or removed in a second through all replicas of the HTTP "
        "API. unset = 5000.",
    ] = None


class RetentionFields(Fields):
    """How long members that have ended stay readable. unset = they are removed at once."""

    ended_seconds: Annotated[
        Int32 | None,
        within(0, 2_592_000),
        "How many seconds a one-off stays readable after its run has ended, at most 30 days. "
        "unset = 0.",
    ] = None


class ConfigMapRefFields(Fields):
    """A ConfigMap of this namespace with one member as JSON on each line (NDJSON), up to 10000.

    Exactly one of configMapRef and inline. unset = inline.
    """

    name: Annotated[ObjectName, "Name of the ConfigMap, in this namespace."]
    key: Annotated[
        DataKey | None,
        "The only key of the ConfigMap that is read. unset = all of them, in the order of their "
        "names.",
    ] = None


class RowsFields(Fields):
    config_map_ref: ConfigMapRefFields | None = None
    inline: Annotated[
        tuple[_Row, ...] | None,
        Keywords(maxItems=MOST_ROWS),
        keyed_by("id"),
        "Up to 10000 members. Exactly one of configMapRef and inline. unset = configMapRef.",
    ] = None

    RULES: ClassVar[tuple[Rule, ...]] = (
        one_of("rows.", configMapRef="a ConfigMap of this namespace", inline="a list of members"),
    )


class _TargetFields(targets.TargetFields, kw_only=True):
    kafka: Annotated[
        targets.KafkaFields | None,
        "Target: a record produced to a Kafka topic for each slot of a member.",
    ] = None


class SetFields(_TargetFields):
    """What the members fire, their defaults, and how much the set may hold."""

    suspend: Annotated[
        bool | None,
        Keywords(default=False),
        "Hold all members. Changes are still accepted; what is overdue when it ends is judged by "
        "catch-up and deadline.",
    ] = None
    suspend_reason: targets.SuspendReason | None = None
    defaults: DefaultsFields | None = None
    limits: LimitsFields | None = None
    retention: RetentionFields | None = None
    rows: Annotated[
        RowsFields | None,
        "Members kept in Git or in a ConfigMap; the set is kept equal to these rows, and the HTTP "
        "API refuses to change it. unset = members are changed through the HTTP API.",
    ] = None
    payload: Annotated[
        msgspec.Raw,
        any_json(MOST_PAYLOAD_BYTES),
        "Any JSON up to limits.payloadBytes, handed on for members that have no payload of their "
        "own. unset = null.",
    ] = msgspec.Raw()
    job_template: Annotated[
        targets.JobTemplate,
        "Target: a Job for each slot of a member, as in CronJob. ttlSecondsAfterFinished is "
        "required.",
    ] = msgspec.Raw()

    RULES: ClassVar[tuple[Rule, ...]] = (
        targets.ONE_TARGET,
        Rule(
            cel="!has(self.jobTemplate) || has(self.jobTemplate.spec.ttlSecondsAfterFinished)",
            message="write ttlSecondsAfterFinished, such as 3600: the Jobs of members have no "
            "history limits",
            holds=_keeps_jobs_for_a_time,
            path="jobTemplate.spec",
        ),
        Rule(
            cel="!has(self.jobTemplate) || !has(self.defaults) || "
            "!has(self.defaults.concurrencyPolicy) || self.defaults.concurrencyPolicy != 'Forbid'",
            message="defaults.concurrencyPolicy: Forbid cannot hold for the Jobs of members, "
            "because the queue does not track when they end: write Allow, or make a Schedule of "
            "what must not overlap",
            holds=_starts_jobs_beside_others,
            path="defaults",
        ),
        Rule(
            cel="!oldSelf.hasValue() || has(self.jobTemplate) == has(oldSelf.value().jobTemplate)",
            message="a set with a jobTemplate keeps one, and a set without one gets none, because "
            "the slots of Jobs are whole seconds: create another set and move its members",
            optional_old=True,
        ),
    )
