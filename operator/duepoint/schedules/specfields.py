"""How the specs of a Schedule and of a ScheduleSet are read, as far as they are alike.

The fields, their limits and the rules between them stand in ``duepoint.model``. What is wrong is
reported to ``SpecFindings``, and each reader answers with a harmless value, so that one look finds
every error. Null means absent everywhere. Pure.
"""

from __future__ import annotations

import datetime as dt
import functools
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import msgspec

from duepoint import errors
from duepoint.expressions import durations
from duepoint.model import checks, vocabulary
from duepoint.model import targets as modeltargets
from duepoint.model import webhook as modelwebhook
from duepoint.schedules import actions, nesting, targetspec
from duepoint.schedules import rule as rules
from duepoint.schedules.conditions import Reason

T = TypeVar("T")
FieldsT = TypeVar("FieldsT", bound=vocabulary.Fields)

#: Reasons of errors in a part of the spec; any other has ``INVALID_SCHEDULE``.
_REASONS = {
    "spec.webhook": Reason.INVALID_WEBHOOK,
    "spec.jobTemplate": Reason.INVALID_JOB_TEMPLATE,
}


class PolicyFields(Protocol):
    """What a Schedule, the defaults of a set and a member say in the same words."""

    starting_deadline_seconds: int | None
    catch_up_policy: str | None
    catch_up_limit: int | None
    concurrency_policy: str | None


class TargetFields(Protocol):
    """The targets of a spec, of which one is there."""

    job_template: msgspec.Raw
    webhook: modelwebhook.WebhookFields | None
    stream: modeltargets.StreamFields | None
    kafka: modeltargets.KafkaFields | None


@dataclass(slots=True)
class SpecFindings:
    """Errors gathered while the rest of the spec is still looked at."""

    errors: list[errors.FieldError] = field(default_factory=list)

    def add(self, reason: Reason, path: str, message: str) -> None:
        """Report what the model does not know of; a field that it refused says enough."""
        if all(each.path != path for each in self.errors):
            self.errors.append(errors.FieldError(reason=reason, path=path, message=message))

    def check(self, fields: vocabulary.Fields, path: str = "spec") -> None:
        """Report what the model has against the fields."""
        for where, message in checks.problems(fields, path):
            part = ".".join(re.split(r"[.\[]", where)[:2])
            reason = _REASONS.get(part, Reason.INVALID_SCHEDULE)
            self.errors.append(errors.FieldError(reason=reason, path=where, message=message))

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
        where, message = checks.of_decoder(error)
        raise _wrong(f"spec{where}", message) from None


def _wrong(path: str, message: str) -> errors.InvalidSpec:
    return errors.InvalidSpec(
        (errors.FieldError(reason=Reason.INVALID_SCHEDULE, path=path, message=message),)
    )


def policy(fields: PolicyFields, usual: rules.Policy) -> rules.Policy:
    """What becomes of a slot that is late, missed or busy; what is not said is as usual."""
    said = {
        "deadline_seconds": fields.starting_deadline_seconds,
        "catch_up": fields.catch_up_policy,
        "catch_up_limit": fields.catch_up_limit,
        "concurrency": fields.concurrency_policy or None,  # an empty text, as in CronJob
    }
    given = {name: value for name, value in said.items() if value is not None}
    return msgspec.structs.replace(usual, **given)


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
    given = text if vocabulary.is_given(text) else actions.NO_PAYLOAD
    if len(given) > limit_bytes:
        findings.add(
            Reason.PAYLOAD_TOO_LARGE,
            "spec.payload",
            f"has {len(given)} bytes; at most {limit_bytes} are handed on, so put a "
            "reference to larger data in it",
        )
    return given


def target(fields: TargetFields, findings: SpecFindings) -> actions.Target | None:
    """The one target; None where there is none, or where a template is no template."""
    if vocabulary.is_given(fields.job_template):
        return targetspec.job(fields.job_template, findings.of(Reason.INVALID_JOB_TEMPLATE))
    if fields.webhook is not None:
        return targetspec.webhook(fields.webhook, findings.of(Reason.INVALID_WEBHOOK))
    if fields.kafka is not None:
        return targetspec.kafka(fields.kafka)
    return None if fields.stream is None else targetspec.stream(fields.stream)
