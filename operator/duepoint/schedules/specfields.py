"""Fields that the specs of a Schedule and a ScheduleSet share, and how errors in them are found.

Each check reports to ``SpecFindings`` and answers with a harmless value, so that one look finds
every error. The wording is the same for both kinds. Null means absent everywhere. Pure.
"""

from __future__ import annotations

import datetime as dt
import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from duepoint import errors
from duepoint.expressions import durations
from duepoint.schedules import actions, nesting, targetspec
from duepoint.schedules.conditions import Reason

GAPS = ("RunOnce", "Skip")
OVERLAPS = ("First", "Second", "Both")
CATCH_UP_POLICIES = ("Latest", "All", "None")
MOST_CAUGHT_UP = 10_000

_NULL = b"null"

T = TypeVar("T")


class DstFields(msgspec.Struct, rename="camel"):
    """``dst`` as it is written."""

    gap: str | None = None
    overlap: str | None = None


class TargetFields(msgspec.Struct, rename="camel"):
    """The target and the payload as they are written; exactly one target is there."""

    payload: msgspec.Raw = msgspec.Raw()
    job_template: msgspec.Raw = msgspec.Raw()
    webhook: targetspec.WebhookFields | None = None
    stream: targetspec.StreamFields | None = None
    kafka: targetspec.KafkaFields | None = None


FieldsT = TypeVar("FieldsT", bound=TargetFields)


@dataclass(slots=True)
class SpecFindings:
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


def decode(decoder: msgspec.json.Decoder[FieldsT], raw: bytes) -> FieldsT:
    """The fields of a spec by its JSON text.

    Raises:
        errors.InvalidSpec: where a field has another type than the kind's, or is nested too deeply.
    """
    if too_deep := nesting.too_deep(raw):
        message = f"is nested deeper than {nesting.DEEPEST} levels; write it flatter"
        raise _wrong(f"spec.{too_deep}", message)
    try:
        return decoder.decode(raw)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$")
        raise _wrong("spec" + where.rstrip("`"), what) from None


def _wrong(path: str, message: str) -> errors.InvalidSpec:
    return errors.InvalidSpec(
        (errors.FieldError(reason=Reason.INVALID_SCHEDULE, path=path, message=message),)
    )


def is_given(text: msgspec.Raw) -> bool:
    """Whether a field that is kept as text is there and not null."""
    return bool(text) and bytes(text) != _NULL


def choice(value: str | None, known: tuple[str, ...], path: str, findings: SpecFindings) -> str:
    """The value, or the first known one where there is none or an unknown one."""
    if value is None or value in known:
        return value or known[0]
    findings.add(
        Reason.INVALID_SCHEDULE,
        path,
        f"{errors.quoted(value)} is unknown; write one of {', '.join(known)}",
    )
    return known[0]


def at_least(value: int | None, least: int, path: str, findings: SpecFindings) -> int | None:
    if value is not None and value < least:
        findings.add(Reason.INVALID_SCHEDULE, path, f"{value} is too small; write {least} or more")
    return value


def at_most(value: int | None, most: int, path: str, findings: SpecFindings) -> int | None:
    if value is not None and value > most:
        findings.add(Reason.INVALID_SCHEDULE, path, f"{value} is too large; write {most} or less")
    return value


def jitter_ms(text: str | None, path: str, findings: SpecFindings) -> int:
    if text is None:
        return 0
    return findings.collect(path, lambda: durations.parse_duration_us(text) // 1000, 0)


def instant(time: dt.datetime | None) -> int | None:
    """Microseconds since the epoch; a time without a zone is UTC."""
    if time is None:
        return None
    aware = time if time.tzinfo else time.replace(tzinfo=dt.UTC)
    epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    return (aware - epoch) // dt.timedelta(microseconds=1)


def payload(text: msgspec.Raw, limit_bytes: int, findings: SpecFindings) -> msgspec.Raw:
    """The payload of every run, as JSON text; ``NO_PAYLOAD`` where there is none."""
    given = text if is_given(text) else actions.NO_PAYLOAD
    if len(given) > limit_bytes:
        findings.add(
            Reason.PAYLOAD_TOO_LARGE,
            "spec.payload",
            f"has {len(given)} bytes; at most {limit_bytes} are handed on, so put a "
            "reference to larger data in it",
        )
    return given


def target(fields: TargetFields, findings: SpecFindings) -> actions.Target | None:
    """The one target; None where there is not exactly one, or where a template is no template."""
    job = is_given(fields.job_template)
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
