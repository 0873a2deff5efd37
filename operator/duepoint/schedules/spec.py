"""A Schedule object's spec -> a frozen ScheduleSpec, or every field error at once.

The CRD refuses most bad specs at apply. What arrives here may still be wrong: an object stored
under an older schema, an impossible date, a zone that only our data lack, something this version
does not do yet. Each error names the field as the user wrote it, the value and what to write
instead. Null means absent everywhere. Pure; the only entry is ``parse``.
"""

from __future__ import annotations

import datetime as dt
import functools
from dataclasses import dataclass

import msgspec

from duepoint import errors, expressions
from duepoint.expressions import timezones
from duepoint.expressions.expression import LAST_US
from duepoint.schedules import actions, slots, specfields
from duepoint.schedules import definition as definitions
from duepoint.schedules import rule as rules
from duepoint.schedules.conditions import Reason
from duepoint.schedules.specfields import SpecFindings

PAYLOAD_LIMIT_BYTES = 64 * 1024
_MAX_SCHEDULES = 32
_MOST_AT_ONCE = 10_000


class ScheduleSpec(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An accepted spec.

    Attributes:
        created_us: metadata.creationTimestamp.
        blob: the action as it is stored.
        suspend_reason: what the author says about a suspension; empty = nothing.
        fingerprint: of all that a definition of it is made from.
    """

    namespace: str
    name: str
    uid: str
    generation: int
    created_us: int
    rule: rules.Rule
    action: actions.Action
    blob: bytes
    suspend_reason: str = ""
    fingerprint: bytes = definitions.NO_FINGERPRINT

    @property
    def identity(self) -> str:
        return f"{self.namespace}/{self.name}"


class _Spec(specfields.TargetFields, rename="camel"):
    """The fields as the API server sends them."""

    schedule: str | None = None
    schedules: tuple[str, ...] | None = None
    time_zone: str | None = None
    dst: specfields.DstFields | None = None
    jitter: str | None = None
    start_time: dt.datetime | None = None
    end_time: dt.datetime | None = None
    max_runs: int | None = None
    suspend: bool | None = None
    suspend_until: dt.datetime | None = None
    suspend_reason: str | None = None
    starting_deadline_seconds: int | None = None
    catch_up_policy: str | None = None
    catch_up_limit: int | None = None
    concurrency_policy: str | None = None
    max_concurrency: int | None = None
    queue_limit: int | None = None
    successful_jobs_history_limit: int | None = None
    failed_jobs_history_limit: int | None = None


class _History(msgspec.Struct, rename="camel"):
    """What finished Jobs are kept by, of a spec that may be wrong otherwise."""

    successful_jobs_history_limit: int | None = None
    failed_jobs_history_limit: int | None = None


_decoder = msgspec.json.Decoder(_Spec)
_history_decoder = msgspec.json.Decoder(_History)
#: Longer texts are not kept: some megabytes of memory, at most.
_SHAPE_LIMIT = 4_096


def history_limits(text: bytes) -> rules.Policy | None:
    """How many finished Jobs a refused spec keeps, by its JSON text; None where it does not say."""
    try:
        read = _history_decoder.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None
    defaults = rules.Policy()
    succeeded, failed = read.successful_jobs_history_limit, read.failed_jobs_history_limit
    return rules.Policy(
        successful_limit=defaults.successful_limit if succeeded is None else max(succeeded, 0),
        failed_limit=defaults.failed_limit if failed is None else max(failed, 0),
    )


def parse(
    raw: bytes,
    *,
    namespace: str,
    name: str,
    uid: str,
    generation: int,
    created_us: int,
    fingerprint: bytes = definitions.NO_FINGERPRINT,
) -> ScheduleSpec:
    """The spec behind the JSON text of ``.spec``.

    Raises:
        errors.InvalidSpec: with every error found, in field order.
    """
    shape = _shape(raw) if len(raw) <= _SHAPE_LIMIT else _shape.__wrapped__(raw)
    if not shape.has_sound_slots:
        _check(shape, identity=f"{namespace}/{name}", created_us=created_us)
    assert shape.action is not None  # noqa: S101 - or the check has raised
    return ScheduleSpec(
        namespace=namespace,
        name=name,
        uid=uid,
        generation=generation,
        created_us=created_us,
        rule=shape.rule,
        action=shape.action,
        blob=shape.blob,
        suspend_reason=shape.suspend_reason,
        fingerprint=fingerprint,
    )


def _check(shape: _Shape, *, identity: str, created_us: int) -> None:
    """Raise what is wrong with the spec; mark the shape where it is right for every schedule."""
    findings = SpecFindings(list(shape.errors))
    if not findings.errors:
        _check_slots(shape.rule, findings, identity=identity, created_us=created_us)
        are_sound = not findings.errors and shape.action is not None
        shape.has_sound_slots = are_sound and slots.are_shared(shape.rule.timing)
    if findings.errors or shape.action is None:
        raise errors.InvalidSpec(tuple(findings.errors))


@dataclass(slots=True)
class _Shape:
    """What a text says, for every schedule with this spec; with the errors of a wrong one.

    Attributes:
        has_sound_slots: they were found in order for one schedule, and all have the same.
    """

    rule: rules.Rule
    action: actions.Action | None
    blob: bytes
    suspend_reason: str
    errors: tuple[errors.FieldError, ...]
    has_sound_slots: bool = False


@functools.lru_cache(maxsize=2_048)
def _shape(raw: bytes) -> _Shape:
    """Kept, because many schedules are made from one template and look the same."""
    fields = specfields.decode(_decoder, raw)
    findings = SpecFindings()
    action = _action(fields, findings)
    rule = rules.Rule(
        timing=_timing(fields, findings),
        policy=_policy(fields, findings),
        whole_seconds=specfields.is_given(fields.job_template),
    )
    blob = b"" if action is None else actions.encode(action)
    return _Shape(rule, action, blob, fields.suspend_reason or "", tuple(findings.errors))


# -- when ------------------------------------------------------------------------------------


def _timing(fields: _Spec, findings: SpecFindings) -> rules.Timing:
    dst = fields.dst or specfields.DstFields()
    start_us, end_us = specfields.instant(fields.start_time), specfields.instant(fields.end_time)
    if start_us is not None and end_us is not None and end_us <= start_us:
        findings.add(
            Reason.INVALID_SCHEDULE,
            "spec.endTime",
            f"{fields.end_time} is not after startTime; write a later time",
        )
    return rules.Timing(
        schedules=_expressions(fields, findings),
        time_zone=rules.DEFAULT_ZONE if fields.time_zone is None else fields.time_zone,
        gap=specfields.choice(dst.gap, specfields.GAPS, "spec.dst.gap", findings),
        overlap=specfields.choice(dst.overlap, specfields.OVERLAPS, "spec.dst.overlap", findings),
        jitter_ms=specfields.jitter_ms(fields.jitter, "spec.jitter", findings),
        start_us=_reachable(start_us, "spec.startTime", findings),
        end_us=end_us,
        suspend=bool(fields.suspend),
        suspend_until_us=_reachable(
            specfields.instant(fields.suspend_until), "spec.suspendUntil", findings
        ),
        max_runs=specfields.at_least(fields.max_runs, 1, "spec.maxRuns", findings),
        zone_data=_zone_data(fields.time_zone),
    )


def _zone_data(zone: str | None) -> str:
    try:
        return "" if zone is None else timezones.data_of(zone)
    except errors.InvalidExpression:
        return ""  # each expression in it is refused for that


def _expressions(fields: _Spec, findings: SpecFindings) -> tuple[str, ...]:
    if (fields.schedule is None) == (fields.schedules is None):
        findings.add(Reason.INVALID_SCHEDULE, "spec", "write exactly one of schedule and schedules")
        return ()
    texts = fields.schedules if fields.schedule is None else (fields.schedule,)
    if not texts or len(texts) > _MAX_SCHEDULES:
        count = len(texts or ())
        findings.add(
            Reason.INVALID_SCHEDULE,
            "spec.schedules",
            f"has {count} entries; write 1 to {_MAX_SCHEDULES}",
        )
        return ()
    # A line end behind the text says nothing of its times, so that adding one is no edit of them.
    return tuple(text.strip(expressions.WHITE) for text in texts)


def _reachable(instant_us: int | None, path: str, findings: SpecFindings) -> int | None:
    """The instant, when the queue has slots after it; a far end does no harm."""
    if instant_us is not None and instant_us > LAST_US:
        findings.add(Reason.OUT_OF_RANGE, path, "lies beyond the year 2112; write a nearer time")
    return instant_us


def _check_slots(
    rule: rules.Rule, findings: SpecFindings, *, identity: str, created_us: int
) -> None:
    """Compile each expression by itself, so that the error names the entry."""
    several = len(rule.timing.schedules) > 1
    for index, text in enumerate(rule.timing.schedules):
        path = f"spec.schedules[{index}]" if several else "spec.schedule"
        try:
            slots.check(text, rule, identity=identity, created_us=created_us)
        except errors.InvalidExpression as error:
            if error.reason == Reason.UNKNOWN_TIME_ZONE:
                path = "spec.timeZone"
            findings.add(Reason(error.reason), path, str(error))
            if path == "spec.timeZone":
                return


# -- late, missed, busy ----------------------------------------------------------------------


def _policy(fields: _Spec, findings: SpecFindings) -> rules.Policy:
    defaults = rules.Policy()
    return rules.Policy(
        deadline_seconds=specfields.at_least(
            fields.starting_deadline_seconds, 0, "spec.startingDeadlineSeconds", findings
        ),
        catch_up=specfields.choice(
            fields.catch_up_policy, specfields.CATCH_UP_POLICIES, "spec.catchUpPolicy", findings
        ),
        catch_up_limit=specfields.at_most(
            specfields.at_least(fields.catch_up_limit, 1, "spec.catchUpLimit", findings),
            specfields.MOST_CAUGHT_UP,
            "spec.catchUpLimit",
            findings,
        )
        or defaults.catch_up_limit,
        concurrency=specfields.choice(
            fields.concurrency_policy or None,  # an empty text is the default, as in CronJob
            ("Allow", "Forbid", "Replace", "Queue"),
            "spec.concurrencyPolicy",
            findings,
        ),
        max_concurrency=_only_with(
            fields.max_concurrency, fields, ("Forbid", "Queue"), "spec.maxConcurrency", findings
        ),
        queue_limit=_only_with(fields.queue_limit, fields, ("Queue",), "spec.queueLimit", findings),
        successful_limit=_limit(
            fields.successful_jobs_history_limit, "successful", defaults.successful_limit, findings
        ),
        failed_limit=_limit(
            fields.failed_jobs_history_limit, "failed", defaults.failed_limit, findings
        ),
    )


def _only_with(
    value: int | None, fields: _Spec, policies: tuple[str, ...], path: str, findings: SpecFindings
) -> int:
    """A number of runs or slots that means something beside these concurrency policies alone."""
    if value is None:
        return 1
    if fields.concurrency_policy not in policies:
        message = f"means nothing here: write concurrencyPolicy: {' or '.join(policies)} beside it"
        findings.add(Reason.INVALID_SCHEDULE, path, f"{message}, or take it out")
    checked = specfields.at_most(
        specfields.at_least(value, 1, path, findings), _MOST_AT_ONCE, path, findings
    )
    return checked or 1


def _limit(value: int | None, which: str, default: int, findings: SpecFindings) -> int:
    checked = specfields.at_least(value, 0, f"spec.{which}JobsHistoryLimit", findings)
    return default if checked is None else checked


# -- what ------------------------------------------------------------------------------------


def _action(fields: _Spec, findings: SpecFindings) -> actions.Action | None:
    payload = specfields.payload(fields.payload, PAYLOAD_LIMIT_BYTES, findings)
    target = specfields.target(fields, findings)
    return None if target is None else actions.Action(target=target, payload=payload)
