"""Parses the spec of a ScheduleSet object into a SetSpec, or reports all field errors at once.

The fields of the target are a Schedule's, with the same checks in the same words. The defaults fill
the fields that a member leaves out when it is written. The settings are stored in the queue beside
the set, so that the HTTP API and the workers need no API server. Fields may therefore be added with
a default, never renamed or given another meaning. Pure; the only entry is ``parse``.
"""

from __future__ import annotations

import math

import msgspec

from duepoint import errors
from duepoint.expressions import timezones
from duepoint.model import scheduleset as model
from duepoint.schedules import actions, specfields
from duepoint.schedules import rule as rules
from duepoint.schedules.specfields import SpecFindings

#: The most members in one population of a shard; with more its buckets would grow large.
_POPULATION = 98_000
_MOST_SPREAD = 10


class SetLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a set.

    Attributes:
        members: the most members it may have.
        payload_bytes: the largest payload of a member, in bytes of JSON.
        changes_per_second: the most members that may be written or removed in a second.
    """

    members: int = 1_000_000
    payload_bytes: int = 4_096
    changes_per_second: int = 5_000


class SetSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a spec, besides its target, that is stored in the queue.

    Attributes:
        defaults: the rule of a member that sets nothing but its time (``rules.ONCE``
            stands for that); its history limits do not apply to members.
        retention_seconds: how long an ended one-off stays readable; 0 = it is removed at once.
    """

    defaults: rules.Rule = rules.Rule(timing=rules.Timing(schedules=rules.ONCE))
    limits: SetLimits = SetLimits()
    retention_seconds: int = 0


class SetSpec(msgspec.Struct, frozen=True, kw_only=True):
    """An accepted spec.

    Attributes:
        created_us: metadata.creationTimestamp, in microseconds since the epoch.
        action: the target, with the payload of members that have none of their own.
        blob: the action as it is stored.
        suspend_reason: why the author suspended it; may be empty.
        rows: where the members come from; None = they are changed through the HTTP API. See
            ``without_texts`` for inline ones.
    """

    namespace: str
    name: str
    uid: str
    generation: int
    created_us: int
    action: actions.Action
    blob: bytes
    settings: SetSettings
    suspend: bool = False
    suspend_reason: str = ""
    rows: model.RowsFields | None = None

    @property
    def identity(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def is_managed(self) -> bool:
        """Whether its members are kept equal to rows, so that nothing else may change them."""
        return self.rows is not None

    def without_texts(self) -> SetSpec:
        """Return the same without its rows, its template and its headers, which may be large."""
        target = self.action.target
        if isinstance(target, actions.JobAction):
            target = actions.JobAction()
        elif isinstance(target, actions.WebhookAction):
            target = msgspec.structs.replace(target, headers=())
        rows = self.rows and msgspec.structs.replace(self.rows, inline=())
        return msgspec.structs.replace(
            self, action=actions.Action(target=target), blob=b"", rows=rows
        )


def spread(members: int) -> int:
    """Return how many bits of an id, 0 to 10, spread a set of this size within a shard.

    A set keeps its first spread, because a different one would move every member.
    """
    if members <= _POPULATION:
        return 0
    return min(math.ceil(math.log2(members / _POPULATION)), _MOST_SPREAD)


# -- the object's fields -------------------------------------------------------------------------


_decoder = msgspec.json.Decoder(model.SetFields)


def parse(
    raw: bytes, *, namespace: str, name: str, uid: str, generation: int, created_us: int
) -> SetSpec:
    """Return the spec in the JSON text of ``.spec``.

    Raises:
        errors.InvalidSpec: with every error found, in field order.
    """
    fields = specfields.decode(_decoder, raw)
    findings = SpecFindings()
    findings.check(fields)
    limits = _limits(fields.limits or model.LimitsFields())
    payload = specfields.payload(fields.payload, limits.payload_bytes, findings)
    target = specfields.target(fields, findings)
    retention = fields.retention or model.RetentionFields()
    settings = SetSettings(
        defaults=_defaults(
            fields.defaults or model.DefaultsFields(),
            findings,
            whole_seconds=isinstance(target, actions.JobAction),
        ),
        limits=limits,
        retention_seconds=retention.ended_seconds or 0,
    )
    if fields.rows is not None:
        _check_rows(fields.rows, limits, findings)
    if findings.errors or target is None:
        raise errors.InvalidSpec(tuple(findings.errors))
    action = actions.Action(target=target, payload=payload)
    return SetSpec(
        namespace=namespace,
        name=name,
        uid=uid,
        generation=generation,
        created_us=created_us,
        action=action,
        blob=actions.encode(action),
        settings=settings,
        suspend=bool(fields.suspend),
        suspend_reason=fields.suspend_reason or "",
        rows=fields.rows,
    )


class _RowsAlone(msgspec.Struct):
    rows: model.RowsFields | None = None


_rows_decoder = msgspec.json.Decoder(_RowsAlone)


def inline_rows(raw: bytes) -> tuple[msgspec.Raw, ...]:
    """Return the rows in the JSON text of an accepted ``.spec``; raises msgspec errors."""
    fields = _rows_decoder.decode(raw).rows
    return () if fields is None else fields.inline or ()


def _defaults(
    fields: model.DefaultsFields, findings: SpecFindings, *, whole_seconds: bool
) -> rules.Rule:
    if fields.time_zone is not None:
        try:
            timezones.data_of(fields.time_zone)
        except errors.InvalidExpression as error:
            findings.add("spec.defaults.timeZone", str(error))
    usual = SetSettings().defaults
    return rules.Rule(
        timing=specfields.timing(fields, usual.timing, "spec.defaults", findings),
        policy=specfields.policy(fields, usual.policy),
        whole_seconds=whole_seconds,
    )


def _limits(fields: model.LimitsFields) -> SetLimits:
    values = msgspec.structs.asdict(fields)
    return SetLimits(**{name: value for name, value in values.items() if value is not None})


def _check_rows(fields: model.RowsFields, limits: SetLimits, findings: SpecFindings) -> None:
    count = len(fields.inline or ())
    if count > (most := min(model.MOST_ROWS, limits.members)):
        message = f"has {count} rows; write at most {most}, or change members through the HTTP API"
        findings.add("spec.rows.inline", message)
