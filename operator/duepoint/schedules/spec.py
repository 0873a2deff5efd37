"""A Schedule object's spec -> a frozen ScheduleSpec, or every field error at once.

The CRD refuses most bad specs at apply. What arrives here may still be wrong: an object stored
under an older schema, an impossible date, a zone that only our data lack, something this version
does not do yet. Each error names the field as the user wrote it, the value and what to write
instead. Null means absent everywhere. Pure; the only entry is ``parse``.
"""

from __future__ import annotations

import datetime as dt
import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from duepoint import errors, expressions
from duepoint.expressions import durations, timezones
from duepoint.expressions.expression import LAST_US
from duepoint.schedules import actions, nesting, slots, targetspec
from duepoint.schedules import definition as definitions
from duepoint.schedules import rule as rules
from duepoint.schedules.conditions import Reason

PAYLOAD_LIMIT_BYTES = 64 * 1024
_MAX_SCHEDULES = 32
_MOST_CAUGHT_UP = 10_000
_MOST_AT_ONCE = 10_000

T = TypeVar("T")


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


class _Dst(msgspec.Struct, rename="camel"):
    gap: str | None = None
    overlap: str | None = None


class _Spec(msgspec.Struct, rename="camel"):
    """The fields as the API server sends them."""

    schedule: str | None = None
    schedules: tuple[str, ...] | None = None
    time_zone: str | None = None
    dst: _Dst | None = None
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
    payload: msgspec.Raw = msgspec.Raw()
    job_template: msgspec.Raw = msgspec.Raw()
    successful_jobs_history_limit: int | None = None
    failed_jobs_history_limit: int | None = None
    webhook: targetspec.WebhookFields | None = None
    stream: targetspec.StreamFields | None = None
    kafka: targetspec.KafkaFields | None = None


class _History(msgspec.Struct, rename="camel"):
    """What finished Jobs are kept by, of a spec that may be wrong otherwise."""

    successful_jobs_history_limit: int | None = None
    failed_jobs_history_limit: int | None = None


_decoder = msgspec.json.Decoder(_Spec)
_history_decoder = msgspec.json.Decoder(_History)
#: Longer texts are not kept: some megabytes of memory, at most.
_SHAPE_LIMIT = 4_096
_NULL = b"null"


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


def _is_given(text: msgspec.Raw) -> bool:
    return bool(text) and bytes(text) != _NULL


@dataclass(slots=True)
class _Findings:
    """Errors gathered while the rest of the spec is still looked at."""

    errors: list[errors.FieldError] = field(default_factory=list)

    def add(self, reason: Reason, path: str, message: str) -> None:
        self.errors.append(errors.FieldError(reason=reason, path=path, message=message))

    def of(self, reason: Reason) -> targetspec.Report:
        """A function that adds errors with this reason."""
        return functools.partial(self.add, reason)

    def collect(self, path: str, make: Callable[[], T], otherwise: T) -> T:
        """The made value, or ``otherwise`` with its ValueError noted under the path."""
        try:
            return make()
        except ValueError as error:
            self.add(Reason.INVALID_SCHEDULE, path, str(error))
            return otherwise


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
    findings = _Findings(list(shape.errors))
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
    fields = _decode(raw)
    findings = _Findings()
    action = _action(fields, findings)
    rule = rules.Rule(
        timing=_timing(fields, findings),
        policy=_policy(fields, findings),
        whole_seconds=_is_given(fields.job_template),
    )
    blob = b"" if action is None else actions.encode(action)
    return _Shape(rule, action, blob, fields.suspend_reason or "", tuple(findings.errors))


def _decode(raw: bytes) -> _Spec:
    if field_ := nesting.too_deep(raw):
        message = f"is nested deeper than {nesting.DEEPEST} levels; write it flatter"
        path = f"spec.{field_}"
        raise errors.InvalidSpec(
            (errors.FieldError(reason=Reason.INVALID_SCHEDULE, path=path, message=message),)
        )
    try:
        return _decoder.decode(raw)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$")
        path = "spec" + where.rstrip("`")
        raise errors.InvalidSpec(
            (errors.FieldError(reason=Reason.INVALID_SCHEDULE, path=path, message=what),)
        ) from None


# -- when ------------------------------------------------------------------------------------


def _timing(fields: _Spec, findings: _Findings) -> rules.Timing:
    dst = fields.dst or _Dst()
    start_us, end_us = _instant(fields.start_time), _instant(fields.end_time)
    if start_us is not None and end_us is not None and end_us <= start_us:
        findings.add(
            Reason.INVALID_SCHEDULE,
            "spec.endTime",
            f"{fields.end_time} is not after startTime; write a later time",
        )
    return rules.Timing(
        schedules=_expressions(fields, findings),
        time_zone=rules.DEFAULT_ZONE if fields.time_zone is None else fields.time_zone,
        gap=_choice(dst.gap, ("RunOnce", "Skip"), "spec.dst.gap", findings),
        overlap=_choice(dst.overlap, ("First", "Second", "Both"), "spec.dst.overlap", findings),
        jitter_ms=_jitter_ms(fields.jitter, findings),
        start_us=_reachable(start_us, "spec.startTime", findings),
        end_us=end_us,
        suspend=bool(fields.suspend),
        suspend_until_us=_reachable(_instant(fields.suspend_until), "spec.suspendUntil", findings),
        max_runs=_at_least(fields.max_runs, 1, "spec.maxRuns", findings),
        zone_data=_zone_data(fields.time_zone),
    )


def _zone_data(zone: str | None) -> str:
    try:
        return "" if zone is None else timezones.data_of(zone)
    except errors.InvalidExpression:
        return ""  # each expression in it is refused for that


def _expressions(fields: _Spec, findings: _Findings) -> tuple[str, ...]:
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


def _jitter_ms(text: str | None, findings: _Findings) -> int:
    if text is None:
        return 0
    return findings.collect("spec.jitter", lambda: durations.parse_duration_us(text) // 1000, 0)


def _instant(time: dt.datetime | None) -> int | None:
    if time is None:
        return None
    aware = time if time.tzinfo else time.replace(tzinfo=dt.UTC)
    epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    return (aware - epoch) // dt.timedelta(microseconds=1)


def _reachable(instant_us: int | None, path: str, findings: _Findings) -> int | None:
    """The instant, when the queue has slots after it; a far end does no harm."""
    if instant_us is not None and instant_us > LAST_US:
        findings.add(Reason.OUT_OF_RANGE, path, "lies beyond the year 2112; write a nearer time")
    return instant_us


def _choice(value: str | None, known: tuple[str, ...], path: str, findings: _Findings) -> str:
    if value is None or value in known:
        return value or known[0]
    findings.add(
        Reason.INVALID_SCHEDULE,
        path,
        f"{errors.quoted(value)} is unknown; write one of {', '.join(known)}",
    )
    return known[0]


def _check_slots(rule: rules.Rule, findings: _Findings, *, identity: str, created_us: int) -> None:
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


def _policy(fields: _Spec, findings: _Findings) -> rules.Policy:
    defaults = rules.Policy()
    return rules.Policy(
        deadline_seconds=_at_least(
            fields.starting_deadline_seconds, 0, "spec.startingDeadlineSeconds", findings
        ),
        catch_up=_choice(
            fields.catch_up_policy, ("Latest", "All", "None"), "spec.catchUpPolicy", findings
        ),
        catch_up_limit=_at_most(
            _at_least(fields.catch_up_limit, 1, "spec.catchUpLimit", findings),
            _MOST_CAUGHT_UP,
            "spec.catchUpLimit",
            findings,
        )
        or defaults.catch_up_limit,
        concurrency=_choice(
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
    value: int | None, fields: _Spec, policies: tuple[str, ...], path: str, findings: _Findings
) -> int:
    """A number of runs or slots that means something beside these concurrency policies alone."""
    if value is None:
        return 1
    if fields.concurrency_policy not in policies:
        message = f"means nothing here: write concurrencyPolicy: {' or '.join(policies)} beside it"
        findings.add(Reason.INVALID_SCHEDULE, path, f"{message}, or take it out")
    checked = _at_most(_at_least(value, 1, path, findings), _MOST_AT_ONCE, path, findings)
    return checked or 1


def _limit(value: int | None, which: str, default: int, findings: _Findings) -> int:
    checked = _at_least(value, 0, f"spec.{which}JobsHistoryLimit", findings)
    return default if checked is None else checked


def _at_least(value: int | None, least: int, path: str, findings: _Findings) -> int | None:
    if value is not None and value < least:
        findings.add(Reason.INVALID_SCHEDULE, path, f"{value} is too small; write {least} or more")
    return value


def _at_most(value: int | None, most: int, path: str, findings: _Findings) -> int | None:
    if value is not None and value > most:
        findings.add(Reason.INVALID_SCHEDULE, path, f"{value} is too large; write {most} or less")
    return value


# -- what ------------------------------------------------------------------------------------


def _action(fields: _Spec, findings: _Findings) -> actions.Action | None:
    payload = fields.payload if _is_given(fields.payload) else actions.NO_PAYLOAD
    if len(payload) > PAYLOAD_LIMIT_BYTES:
        findings.add(
            Reason.PAYLOAD_TOO_LARGE,
            "spec.payload",
            f"has {len(payload)} bytes; at most {PAYLOAD_LIMIT_BYTES} are handed on, so put a "
            "reference to larger data in it",
        )
    target = _target(fields, findings)
    return None if target is None else actions.Action(target=target, payload=payload)


def _target(fields: _Spec, findings: _Findings) -> actions.Target | None:
    job = _is_given(fields.job_template)
    others = (fields.webhook, fields.stream, fields.kafka)
    if [job, *(other is not None for other in others)].count(True) != 1:
        findings.add(
            Reason.INVALID_SCHEDULE,
            "spec",
            "write exactly one target: jobTemplate, webhook, stream or kafka",
        )
        return None
    if job:
        return targetspec.job(fields.job_template, findings.of(Reason.INVALID_JOB_TEMPLATE))
    if fields.webhook is not None:
        return targetspec.webhook(fields.webhook, findings.of(Reason.INVALID_WEBHOOK))
    report = findings.of(Reason.INVALID_SCHEDULE)
    if fields.kafka is not None:
        return targetspec.kafka(fields.kafka, report)
    return None if fields.stream is None else targetspec.stream(fields.stream, report)
