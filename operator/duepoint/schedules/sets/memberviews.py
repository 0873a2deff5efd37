"""Members of ScheduleSets as answers show them, in the form that can be written again.

A field is there where its value, or the set's default for it, is not the usual one: so what is read
from a set and written to the same set says the same. Pure.
"""

from __future__ import annotations

import datetime as dt
import functools
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from duepoint.expressions import durations
from duepoint.schedules import rule as rules
from duepoint.schedules.sets import setspec

_EPOCH = dt.date(1970, 1, 1)
_SECOND_US, _DAY_SECONDS = 1_000_000, 86_400
_TWO_DIGITS = tuple(f"{number:02}" for number in range(60))


class Readable(Protocol):
    """A stored member, as far as it is shown; instants in microseconds since the epoch."""

    @property
    def id(self) -> str: ...
    @property
    def tag(self) -> str: ...
    @property
    def uid(self) -> str: ...
    @property
    def rule(self) -> rules.Rule: ...
    @property
    def at_us(self) -> int | None: ...
    @property
    def payload(self) -> bytes: ...
    @property
    def created_us(self) -> int: ...
    @property
    def due_us(self) -> int | None: ...
    @property
    def claimed(self) -> bool: ...


class MemberFields(msgspec.Struct, rename="camel", omit_defaults=True):
    """The fields of a member that may be written again."""

    id: str
    schedule: str | None = None
    at: str | None = None
    time_zone: str | None = None
    dst: dict[str, str] | None = None
    jitter: str | None = None
    starting_deadline_seconds: int | None = None
    catch_up_policy: str | None = None
    catch_up_limit: int | None = None
    concurrency_policy: str | None = None
    suspend: bool = False
    payload: msgspec.Raw | None = None


class StoredView(MemberFields, rename="camel", kw_only=True):
    """A member as an answer has it."""

    etag: str
    uid: str
    state: str
    created_time: str
    next_due_time: str | msgspec.Raw
    claimed: bool


_NOTHING = msgspec.Raw(b"null")
_MOST_RULES = 4_096


def shown(member: Readable, state: str, settings: setspec.SetSettings) -> StoredView:
    """A member as JSON shows it."""
    due_us = member.due_us
    return StoredView(
        **fields_of(member.id, member.rule, member.at_us, member.payload, settings),
        etag=member.tag,
        uid=member.uid,
        state=state,
        created_time=instant_text(member.created_us),
        next_due_time=_NOTHING if due_us is None else instant_text(due_us),
        claimed=member.claimed,
    )


def own(member: Readable, settings: setspec.SetSettings) -> bytes:
    """What may be written again, as the body of a request: to this a merge patch applies."""
    fields = fields_of(member.id, member.rule, member.at_us, member.payload, settings)
    return msgspec.json.encode(MemberFields(**fields))


def fields_of(
    id_: str, rule: rules.Rule, at_us: int | None, payload: bytes, settings: setspec.SetSettings
) -> dict[str, Any]:
    """The ``MemberFields`` of a member, which is stored or being written."""
    fields = {"id": id_, **_known_fields(rule, settings.defaults)}
    if at_us is not None:
        fields["at"] = instant_text(at_us)
    if payload:
        fields["payload"] = msgspec.Raw(payload)
    return fields


#: What members with the same rule object show alike, as long as their set has these defaults.
_known: dict[int, tuple[rules.Rule, setspec.MemberDefaults, dict[str, Any]]] = {}


def _known_fields(rule: rules.Rule, defaults: setspec.MemberDefaults) -> dict[str, Any]:
    """As ``_fields_of``; readers of rows and of records hand out one object for equal rules."""
    known = _known.get(id(rule))
    if known is not None and known[0] is rule and known[1] is defaults:
        return known[2]
    fields = _fields_of(rule, defaults)
    if len(_known) >= _MOST_RULES:
        _known.clear()
    _known[id(rule)] = rule, defaults, fields
    return fields


def _fields_of(rule: rules.Rule, defaults: setspec.MemberDefaults) -> dict[str, Any]:
    """A field is there where it, or the set's default for it, is not the usual one."""
    timing, policy = rule.timing, rule.policy
    usual, usual_policy = setspec.MemberDefaults(), rules.Policy()

    def odd(value: object, default: object, common: object) -> bool:
        return value != common or default != common

    fields: dict[str, Any] = {}
    if timing.schedules != rules.ONCE:
        fields["schedule"] = timing.schedules[0]
    if odd(timing.time_zone, defaults.time_zone, usual.time_zone):
        fields["time_zone"] = timing.time_zone
    pairs = (
        ("gap", timing.gap, defaults.gap, usual.gap),
        ("overlap", timing.overlap, defaults.overlap, usual.overlap),
    )
    if dst := {
        name: value for name, value, default, common in pairs if odd(value, default, common)
    }:
        fields["dst"] = dst
    if odd(timing.jitter_ms, defaults.jitter_ms, 0):
        fields["jitter"] = durations.format_duration(timing.jitter_ms * 1_000)
    if policy.deadline_seconds is not None:
        fields["starting_deadline_seconds"] = policy.deadline_seconds
    names: tuple[tuple[str, Callable[[rules.Policy], object]], ...] = (
        ("catch_up_policy", lambda one: one.catch_up),
        ("catch_up_limit", lambda one: one.catch_up_limit),
        ("concurrency_policy", lambda one: one.concurrency),
    )
    for name, of in names:
        if odd(of(policy), of(defaults.policy), of(usual_policy)):
            fields[name] = of(policy)
    if timing.suspend:
        fields["suspend"] = True
    return fields


def instant_text(instant_us: int) -> str:
    """RFC 3339 in UTC, with as many digits as it needs."""
    seconds, fraction = divmod(instant_us, _SECOND_US)
    day, second = divmod(seconds, _DAY_SECONDS)
    minute = second // 60
    hours, minutes = _TWO_DIGITS[minute // 60], _TWO_DIGITS[minute % 60]
    digits = f".{fraction:06}".rstrip("0") if fraction else ""
    return f"{_date_text(day)}T{hours}:{minutes}:{_TWO_DIGITS[second % 60]}{digits}Z"


@functools.lru_cache(maxsize=1_024)
def _date_text(day: int) -> str:
    """The date so many days after 1970-01-01."""
    return (_EPOCH + dt.timedelta(days=day)).isoformat()
