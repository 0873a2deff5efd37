"""Reads a member of a ScheduleSet from JSON: returns a row to store, or why it is refused.

The HTTP API, the rows of a set and files of ``duepoint set import`` share this form. The set's
defaults fill the fields that a member leaves out. A member that was read from the API can be
written back unchanged: fields that only an answer has are ignored. A ``RowReader`` belongs to one
version of a set's settings; members with equal fields share one rule object from its cache. Pure.
"""

from __future__ import annotations

import datetime as dt
import itertools
import re
import secrets
from typing import Final, NamedTuple

import msgspec

from duepoint import errors, shares
from duepoint.expressions import durations, timezones
from duepoint.expressions.expression import FIRST_US, LAST_US, SECOND_US
from duepoint.model import checks
from duepoint.model import member as model
from duepoint.schedules import jsontext, policies, slots, specfields
from duepoint.schedules import rule as rules
from duepoint.schedules.sets import setspec

#: The largest row; a larger one is refused without being parsed.
MOST_ROW_BYTES = 64 * 1024


_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_LENGTH = 26
_RANDOM_BITS = 80


def new(now_us: int) -> str:
    """Return a new id for a member: a ULID of an instant, in microseconds since the epoch."""
    milliseconds = now_us // 1_000 & (1 << 48) - 1
    value = milliseconds << _RANDOM_BITS | secrets.randbits(_RANDOM_BITS)
    return "".join(_ALPHABET[value >> 5 * place & 31] for place in range(_LENGTH - 1, -1, -1))


# -- members ---------------------------------------------------------------------------------------

_LONGEST_JITTER: Final = 32
#: The largest row without its payload; a larger one is refused before its fields are read.
_FIELDS_BYTES: Final = 4_096

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:~@-]{0,127}")
_TAG = re.compile(r"[0-9a-f]{8}")
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)
#: Memory of a rule that only one member has, roughly.
_RULE_BYTES = 2_560
_MOST_BYTES = 4_096 * _RULE_BYTES
_NULL = b"null"


class RowError(NamedTuple):
    """Why a row is refused.

    Attributes:
        code: the code of the problem in the HTTP API.
        field: the field as users write it, such as ``dst.gap``; empty = the whole row.
    """

    code: str
    field: str
    detail: str
    id: str = ""


class ReadMember(msgspec.Struct, frozen=True, gc=False):
    """A member as read from JSON, checked and ready to be stored.

    Attributes:
        at_us: the instant of a member that fires once; its rule then has ``rules.ONCE``.
        payload: JSON text; empty = the set's.
        if_match: store it only if the member has this tag; empty = in any case.
        if_absent: store it only if there is no such member.
    """

    id: str
    rule: rules.Rule
    at_us: int | None
    payload: bytes
    if_match: str = ""
    if_absent: bool = False


_decoder = msgspec.json.Decoder(model.WrittenFields)


def is_id(text: str) -> bool:
    """Whether a text is a valid id of a member."""
    return _ID.fullmatch(text) is not None


def is_tag(text: str) -> bool:
    return _TAG.fullmatch(text) is not None


class _Refused(Exception):
    def __init__(self, field: str, detail: str, code: str = "InvalidField") -> None:
        super().__init__(detail)
        self.code, self.field, self.detail = code, field, detail

    def error(self, named: str | None = None) -> RowError:
        """Return why the row is refused, with the id in it if that is valid."""
        shown = named if named is not None and is_id(named) else ""
        return RowError(self.code, self.field, self.detail, shown)


#: A cache of rules, by namespace, reader and the fields of rows.
KeptRules = shares.BytesCache[tuple[object, ...], rules.Rule]


#: Numbers the readers, so that they do not share entries of a cache.
_numbers = itertools.count()


class RowReader:
    """Reads members of a set with these settings.

    Args:
        kept: a cache of rules to share with other readers; None = one of its own.
        namespace: the namespace whose share of the cache it uses.
    """

    def __init__(
        self, settings: setspec.SetSettings, kept: KeptRules | None = None, namespace: str = ""
    ) -> None:
        self.settings = settings
        self._most_payload_bytes = settings.limits.payload_bytes
        self.most_row_bytes = settings.limits.payload_bytes + _FIELDS_BYTES
        self._rules = KeptRules(_MOST_BYTES) if kept is None else kept
        self._namespace = namespace
        self._number = next(_numbers)

    def row(self, text: bytes | msgspec.Raw, *, now_us: int) -> ReadMember | RowError:
        """Return the row of one line of NDJSON or one element of a list, which must have an id."""
        return self._read(text, None, now_us, is_row=True)

    def body(self, text: bytes, *, id_: str, now_us: int) -> ReadMember | RowError:
        """Read the body of a request for one member, whose id comes from the URL or the server."""
        return self._read(text, id_, now_us, is_row=False)

    def _read(
        self, text: bytes | msgspec.Raw, id_: str | None, now_us: int, *, is_row: bool
    ) -> ReadMember | RowError:
        raw = bytes(text)
        if is_row and len(raw) > self.most_row_bytes:
            message = f"has {len(raw)} bytes; a row of this set has at most {self.most_row_bytes}"
            return RowError("PayloadTooLarge", "", message)
        if (problem := jsontext.problem(raw)) is not None:
            return RowError("BadRequest", "", f"the JSON {problem}")
        try:
            member = _decoded(raw)
        except _Refused as refused:
            return refused.error()
        try:
            return self._row(member, id_, now_us, is_row=is_row)
        except _Refused as refused:
            return refused.error(member.id)

    def _row(
        self, member: model.WrittenFields, id_: str | None, now_us: int, *, is_row: bool
    ) -> ReadMember:
        named = member.id
        if is_row:
            if named is None:
                raise _Refused("id", "is missing; write the id of the member")
            id_ = named
        elif named is not None and named != id_:
            message = f"{errors.quoted(named)} is not the id of the URL; leave it out"
            raise _Refused("id", message)
        assert id_ is not None  # noqa: S101 - for the type checker
        if not is_id(id_):
            raise _Refused("id", wrong_id(id_))
        if_match, if_absent = _conditions(member, is_row=is_row)
        at_us = self._at_us(member, now_us, is_row=is_row)
        rule = self._rule(member, now_us, once=at_us is not None)
        if (
            at_us is not None
            and at_us < now_us
            and not member.suspend
            and policies.had_passed(at_us, rule.policy, now_us)
        ):
            message = "is more than a minute ago; set a later time, or a deadline that covers it"
            if rule.policy.catch_up_policy == "None":
                message = "has passed, and catchUpPolicy is None; set a later time, or Latest"
            elif rule.policy.deadline_us is not None:
                message = "is longer ago than startingDeadlineSeconds; set a later time, or more"
            raise _Refused("at" if member.delay is None else "delay", message, "TooLate")
        return ReadMember(id_, rule, at_us, self._payload(member.payload), if_match, if_absent)

    def _payload(self, text: msgspec.Raw) -> bytes:
        payload = bytes(text)
        most = self._most_payload_bytes
        if len(payload) > most:
            message = (
                f"has {len(payload)} bytes; at most {most} are handed on, so put a reference "
                "to larger data in it"
            )
            raise _Refused("payload", message, "PayloadTooLarge")
        return b"" if payload == _NULL else payload

    def _at_us(self, member: model.WrittenFields, now_us: int, *, is_row: bool) -> int | None:
        schedule, at, delay = member.schedule, member.at, member.delay
        given = (schedule is not None) + (at is not None) + (delay is not None)
        if given != 1:
            names = "schedule and at" if is_row else "schedule, at and delay"
            raise _Refused("", f"write exactly one of {names}")
        if delay is not None:
            return self._delayed_us(delay, now_us, is_row=is_row)
        if at is None:
            return None
        at_us = _instant_us(at)
        if self.settings.defaults.whole_seconds and at_us % SECOND_US:
            message = "a jobTemplate needs a whole second; leave the fraction out"
            raise _Refused("at", message)
        return at_us

    def _delayed_us(self, text: str, now_us: int, *, is_row: bool) -> int:
        if is_row:
            message = "counts from a request, and a row may be sent twice; write at"
            raise _Refused("delay", message)
        try:
            at_us = now_us + durations.parse_duration_us(text)
        except ValueError as error:
            raise _Refused("delay", str(error)) from None
        if at_us > LAST_US:
            message = "ends beyond the year 2112; write a shorter one"
            raise _Refused("delay", message)
        if self.settings.defaults.whole_seconds:
            at_us = -(-at_us // SECOND_US) * SECOND_US
        return at_us

    def _rule(self, member: model.WrittenFields, now_us: int, *, once: bool) -> rules.Rule:
        """Return the rule of a member: the same object for the same fields."""
        dst, jitter = member.dst, member.jitter
        if jitter is not None and len(jitter) > _LONGEST_JITTER:
            message = f"has {len(jitter)} characters; write at most {_LONGEST_JITTER}, such as 30s"
            raise _Refused("jitter", message)
        key = (
            self._number,
            # a canonical text, because the cache keeps it
            None if once else _expression_text(member),
            once,
            member.time_zone,
            None if dst is None else (dst.gap, dst.overlap),
            jitter,
            member.starting_deadline_seconds,
            member.catch_up_policy,
            member.catch_up_limit,
            member.concurrency_policy,
            member.suspend,
        )
        found = self._rules.get(self._namespace, key)
        if found is None:
            found = _rule(member, self.settings, now_us, once=once)
            self._rules.put(self._namespace, key, found, _RULE_BYTES)
        return found


def wrong_id(text: str) -> str:
    """Return why a text is not a valid id."""
    return (
        f"{errors.quoted(text)} is not an id; write a letter or digit, then letters, digits and "
        ". _ : ~ @ - only, 128 characters at most"
    )


def _decoded(raw: bytes) -> model.WrittenFields:
    try:
        return _decoder.decode(raw)
    except msgspec.ValidationError as error:
        found = checks.of_decoder(error)
        raise _Refused(found.path.lstrip("."), found.message) from None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise _Refused("", f"is not JSON: {error}"[:200], "BadRequest") from None


def _conditions(member: model.WrittenFields, *, is_row: bool) -> tuple[str, bool]:
    if member.if_match is None and member.if_none_match is None:
        return "", False
    if not is_row:
        name = "ifMatch" if member.if_match is not None else "ifNoneMatch"
        message = f"{name} is a field of bulk rows; send a header"
        raise _Refused(name, message)
    if member.if_match is not None and member.if_none_match is not None:
        raise _Refused("ifNoneMatch", "cannot be used together with ifMatch")
    if member.if_match is not None:
        if not is_tag(member.if_match):
            message = "is not a tag; write the eight hexadecimal digits of an etag"
            raise _Refused("ifMatch", message)
        return member.if_match, False
    if member.if_none_match != "*":
        raise _Refused("ifNoneMatch", 'write "*"')
    return "", True


def _instant_us(given: dt.datetime) -> int:
    if given.tzinfo is None:
        message = "has no offset; write one, such as 2026-12-24T18:00:00Z"
        raise _Refused("at", message)
    at_us = (given - _EPOCH) // _MICROSECOND
    if not FIRST_US <= at_us <= LAST_US:
        message = "lies outside the years 1970 to 2112; write a time within them"
        raise _Refused("at", message)
    return at_us


def _rule(
    member: model.WrittenFields, settings: setspec.SetSettings, now_us: int, *, once: bool
) -> rules.Rule:
    for each in checks.problems(member, "", model.OptionFields):
        raise _Refused(each.path.lstrip("."), each.message)
    defaults, findings = settings.defaults, specfields.SpecFindings()
    timing = specfields.timing(member, defaults.timing, "", findings)
    for problem in findings.errors:
        raise _Refused(problem.path.lstrip("."), problem.message)
    zone_data = _zone_data(timing.time_zone)
    policy = specfields.policy(member, defaults.policy)
    if defaults.whole_seconds and policy.concurrency_policy != rules.Policy().concurrency_policy:
        message = (
            f"{policy.concurrency_policy} cannot hold for the Jobs of members, because the queue "
            "does not track when they end: write Allow, or make a Schedule of what must not overlap"
        )
        raise _Refused("concurrencyPolicy", message)
    timing = msgspec.structs.replace(
        timing,
        schedules=rules.ONCE if once else (_expression_text(member),),
        suspend=bool(member.suspend),
        zone_data="" if once else zone_data,
    )
    rule = msgspec.structs.replace(defaults, timing=timing, policy=policy)
    if not once:
        _check_expression(rule, now_us)
    return rule


def _zone_data(zone: str) -> str:
    try:
        return "" if zone == rules.DEFAULT_ZONE else timezones.data_of(zone)
    except errors.InvalidExpression as error:
        raise _Refused("timeZone", str(error), "InvalidSchedule") from None


def _expression_text(member: model.WrittenFields) -> str:
    text = (member.schedule or "").strip()
    if len(text) > model.LONGEST_EXPRESSION:
        message = f"has {len(text)} characters; write at most {model.LONGEST_EXPRESSION}"
        raise _Refused("schedule", message, "InvalidSchedule")
    return text


def _check_expression(rule: rules.Rule, now_us: int) -> None:
    try:
        slots.check(rule.timing.schedules[0], rule, identity="member", created_us=now_us)
    except errors.InvalidExpression as error:
        field = "timeZone" if error.field == "timeZone" else "schedule"
        raise _Refused(field, str(error), "InvalidSchedule") from None
