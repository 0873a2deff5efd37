"""Parses the spec of a Schedule object into a ScheduleSpec, or reports all field errors at once.

The CRD refuses most bad specs at apply. A spec that arrives here may still be wrong: stored under
an older schema, with an impossible date, with a zone that only our data lack, or with something
this version does not do yet. Each error names the field as the user wrote it, the value, and what
to write instead. Null means absent everywhere. Pure; the only entry is ``parse``.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import msgspec

from duepoint import errors, expressions
from duepoint.expressions import timezones
from duepoint.expressions.expression import LAST_US
from duepoint.model import targets
from duepoint.model.schedule import ScheduleFields
from duepoint.model.vocabulary import is_given
from duepoint.schedules import actions, slots, specfields
from duepoint.schedules import definition as definitions
from duepoint.schedules import rule as rules
from duepoint.schedules.specfields import SpecFindings

PAYLOAD_LIMIT_BYTES = targets.PAYLOAD_BYTES


class ScheduleSpec(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An accepted spec.

    Attributes:
        created_us: metadata.creationTimestamp.
        blob: the action as it is stored.
        suspend_reason: why the author suspended it; may be empty.
        fingerprint: a hash of everything that goes into its definition.
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


_decoder = msgspec.json.Decoder(ScheduleFields)
#: Longer texts are not cached, so that the cache takes a few megabytes at most.
_SHAPE_LIMIT = 4_096


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
    """Return the spec in the JSON text of ``.spec``.

    Raises:
        errors.InvalidSpec: with every error found, in field order.
    """
    shape = _shape(raw) if len(raw) <= _SHAPE_LIMIT else _shape.__wrapped__(raw)
    findings = SpecFindings(list(shape.errors))
    if not findings.errors:
        identity = f"{namespace}/{name}"
        _check_slots(shape.rule, findings, identity=identity, created_us=created_us)
    if findings.errors or shape.action is None:
        raise errors.InvalidSpec(tuple(findings.errors))
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


@dataclass(frozen=True, slots=True)
class _Shape:
    """A parsed spec text and its errors, shared by all schedules with the same text."""

    rule: rules.Rule
    action: actions.Action | None
    blob: bytes
    suspend_reason: str
    errors: tuple[errors.FieldError, ...]


@functools.lru_cache(maxsize=2_048)
def _shape(raw: bytes) -> _Shape:
    """Parse a spec text; cached, because many schedules are made from one template."""
    fields = specfields.decode(_decoder, raw)
    findings = SpecFindings()
    findings.check(fields)
    action = _action(fields, findings)
    rule = rules.Rule(
        timing=_timing(fields, findings),
        policy=specfields.policy(fields, rules.Policy()),
        whole_seconds=is_given(fields.job_template),
    )
    blob = b"" if action is None else actions.encode(action)
    return _Shape(rule, action, blob, fields.suspend_reason or "", tuple(findings.errors))


# -- when ------------------------------------------------------------------------------------


def _timing(fields: ScheduleFields, findings: SpecFindings) -> rules.Timing:
    texts = fields.schedules or () if fields.schedule is None else (fields.schedule,)
    made = rules.Timing(
        # Stripped, so that adding a line end to a text does not count as a change of its times.
        schedules=tuple(text.strip(expressions.WHITE) for text in texts),
        start_us=_reachable(specfields.instant(fields.start_time), "spec.startTime", findings),
        end_us=specfields.instant(fields.end_time),
        suspend=bool(fields.suspend),
        suspend_until_us=_reachable(
            specfields.instant(fields.suspend_until), "spec.suspendUntil", findings
        ),
        max_runs=fields.max_runs,
        zone_data=_zone_data(fields.time_zone),
    )
    return specfields.timing(fields, made, "spec", findings)


def _zone_data(zone: str | None) -> str:
    try:
        return "" if zone is None else timezones.data_of(zone)
    except errors.InvalidExpression:
        return ""  # the check of each expression reports the bad zone


def _reachable(instant_us: int | None, path: str, findings: SpecFindings) -> int | None:
    """Return the instant, with a finding if it lies beyond the last slot of the queue."""
    if instant_us is not None and instant_us > LAST_US:
        findings.add(path, "lies beyond the year 2112; write a nearer time")
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
            if error.field == "timeZone":
                path = "spec.timeZone"
            findings.add(path, str(error))
            if path == "spec.timeZone":
                return


# -- what ------------------------------------------------------------------------------------


def _action(fields: ScheduleFields, findings: SpecFindings) -> actions.Action | None:
    payload = specfields.payload(fields.payload, PAYLOAD_LIMIT_BYTES, findings)
    target = specfields.target(fields, findings)
    return None if target is None else actions.Action(target=target, payload=payload)
