"""Turns members into records: ids, versions, dues and bytes of many rows at a time. Pure.

Parts that many rows share are computed once: the expression of a rule and its next slot, which
later writes take from ``KnownRules`` while they are valid; the digest of set and rule; the seconds
of the creation. Each row then needs only one hash, a few random bytes and one join; a bulk write of
tens of thousands of rows a second depends on that.
"""

from __future__ import annotations

import hashlib
import os
from typing import NamedTuple

import msgspec

from duepoint.delayqueue import keys
from duepoint.delayqueue.definitions import codec, putting
from duepoint.delayqueue.members import values
from duepoint.schedules import definition as definitions
from duepoint.schedules import points, slots
from duepoint.schedules import rule as rules

_VERSION_LENGTH, _UID_LENGTH = 4, 16
_FINGERPRINT = slice(_VERSION_LENGTH, _VERSION_LENGTH + definitions.FINGERPRINT_LENGTH)
_UID = slice(_FINGERPRINT.stop, _FINGERPRINT.stop + _UID_LENGTH)
_RANDOM_LENGTH = _UID.stop
_MOST_RULES = 16_384
_ALWAYS_US = 1 << 62
SECOND_US = 1_000_000


class Shared(NamedTuple):
    """The parts that rows with one rule share.

    Attributes:
        inline: the text of the rule if the record itself has it.
        text: the text of the rule if the kind has it.
        due_us: the next due, if it does not depend on the member; see ``is_alike``.
        is_exact: its members fire once each, armed and due at their very instants.
        since_us, until_us: state and due are valid for writes from the former on, before the
            latter.
    """

    rule: rules.Rule
    inline: bytes
    text: bytes
    state: definitions.State
    due_us: int | None
    is_alike: bool
    is_exact: bool
    since_us: int
    until_us: int


class Row(putting.Row, frozen=True, gc=False):
    """A row of a write, to be sent to its shard."""

    name: bytes
    write: values.MemberWrite
    shared: Shared
    kind: putting.Kind


class MemberFacts(msgspec.Struct, frozen=True, gc=False):
    """The facts of a record beside name, rule and payload.

    Attributes:
        identity: timing version, fingerprint and uid, as the record has them.
    """

    identity: bytes
    created_us: int
    not_before_us: int
    state: definitions.State

    @property
    def fingerprint(self) -> bytes:
        return self.identity[_FINGERPRINT]

    @property
    def tag(self) -> str:
        """The version tag of the HTTP API."""
        return self.identity[_FINGERPRINT].hex()

    @property
    def uid(self) -> bytes:
        return self.identity[_UID]

    def with_uid(self, uid: bytes) -> MemberFacts:
        """Return the same facts with another uid, as after a removal and creation."""
        return msgspec.structs.replace(self, identity=self.identity[: _UID.start] + uid)


class Ids:
    """The ids of a set's members, in an index with this many buckets of a population."""

    def __init__(self, owner: points.SetIdentity, buckets: int) -> None:
        self._buckets = buckets
        self._begun = hashlib.sha256(f"{owner.uid}/".encode())
        self._own, self._of_set = points.member_bits(owner.uid, owner.spread)

    def of(self, name: bytes) -> tuple[points.ScheduleId, int, int]:
        """Return ``points.member_id``, its last 16 bits and its bucket (``keys.place_of``)."""
        hashed = self._begun.copy()
        hashed.update(name)
        digest = hashed.digest()
        low = int.from_bytes(digest[6:8]) & self._own | self._of_set
        member_id = points.ScheduleId(digest[:6] + low.to_bytes(2))
        return member_id, low, keys.place_of(member_id, self._buckets)


def shared_by(rule: rules.Rule, owner: points.SetIdentity, now_us: int) -> Shared:
    """Return the parts that members written now with this rule share."""
    once = rule.timing.schedules == rules.ONCE
    is_inline = not once and rule.is_private
    text = rules.text(rule)
    state, due_us, until_us = definitions.State.ARMED, None, _ALWAYS_US
    is_alike = not once and slots.is_alike(rule.timing)
    if rule.timing.suspend and rule.timing.suspend_until_us is None:
        state, is_alike = definitions.State.SUSPENDED, True
    elif is_alike:
        due_us = _next_due(rule, owner, "", now_us)
        if due_us is None:
            state = definitions.State.COMPLETED
        else:
            until_us = due_us
        if slots.is_anchored(rule.timing):
            until_us = min(until_us, now_us // SECOND_US * SECOND_US + SECOND_US)
    texts = (text, b"") if is_inline else (b"", text)
    is_exact = once and not is_alike and rule.timing.jitter_ms == 0
    return Shared(rule, *texts, state, due_us, is_alike, is_exact, now_us, until_us)


class KnownRules:
    """Caches the shared parts of rows by rule object, from one write to the next."""

    def __init__(self) -> None:
        self._known: dict[int, Shared] = {}

    def shared(self, rule: rules.Rule, owner: points.SetIdentity, now_us: int) -> Shared:
        """Return ``shared_by``, for any set: parts that depend on the owner are not shared."""
        known = self._known.get(id(rule))
        if known is None or known.rule is not rule or not known.since_us <= now_us < known.until_us:
            known = shared_by(rule, owner, now_us)
            if len(self._known) >= _MOST_RULES:
                self._known.clear()
            self._known[id(rule)] = known
        return known


def due_of(
    row: Row, owner: points.SetIdentity, now_us: int, created_us: int
) -> tuple[definitions.State, int | None]:
    """Return the state of a member written now, and its next due."""
    shared, at_us = row.shared, row.write.at_us
    if shared.is_alike and (
        created_us // SECOND_US == now_us // SECOND_US or not slots.is_anchored(shared.rule.timing)
    ):
        return shared.state, shared.due_us
    if at_us is None:
        due_us = _next_due(shared.rule, owner, row.write.id, now_us, created_us)
    elif shared.is_exact:
        return definitions.State.ARMED, at_us
    else:
        due_us = _next_due(rules.at_instant(shared.rule, at_us), owner, row.write.id, at_us - 1)
    return definitions.State.COMPLETED if due_us is None else definitions.State.ARMED, due_us


def _next_due(
    rule: rules.Rule,
    owner: points.SetIdentity,
    name: str,
    now_us: int,
    created_us: int | None = None,
) -> int | None:
    identity = f"{owner.namespace}/{owner.name}/{name}"
    created_us = now_us if created_us is None else created_us
    anchor_us = created_us // SECOND_US * SECOND_US  # a record has whole seconds
    following = slots.for_rule(rule, identity=identity, created_us=anchor_us).next_after(now_us)
    return None if following is None else following.due_us


def new_facts(row: Row, state: definitions.State, now_us: int) -> MemberFacts:
    """Return the facts of a member that did not exist before, with random bytes of its own."""
    created_us, at_us = now_us // SECOND_US * SECOND_US, row.write.at_us
    not_before_us = created_us if at_us is None or at_us > created_us else at_us - 1
    return MemberFacts(os.urandom(_RANDOM_LENGTH), created_us, not_before_us, state)


def record(row: Row, facts: MemberFacts, payload_mac: bytes) -> bytes:
    """Return the record of the row."""
    write = row.write
    return codec.member_record(
        facts.state,
        facts.identity,
        row.kind.digest,
        row.name,
        created_us=facts.created_us,
        not_before_us=facts.not_before_us,
        inline=row.shared.inline,
        once_us=write.at_us,
        payload=write.payload,
        payload_mac=payload_mac,
    )


def is_same(stored: codec.Packed, row: Row) -> bool:
    """Whether the stored record has the same content as the row."""
    write, rule = row.write, (row.kind.digest, row.shared.inline)
    is_same_rule = (stored.kind, stored.inline) == rule
    return is_same_rule and (stored.once_us, stored.payload) == (write.at_us, write.payload)


def is_same_timing(stored: rules.Rule, stored_at_us: int | None, row: Row) -> bool:
    """Whether a change leaves the slots as they are; other zone data do not count as one."""
    if stored_at_us != row.write.at_us or stored.whole_seconds != row.shared.rule.whole_seconds:
        return False
    wanted = row.shared.rule.timing
    return msgspec.structs.replace(stored.timing, zone_data=wanted.zone_data) == wanted


def edited(
    stored: codec.Packed, facts: MemberFacts, *, keeps_timing: bool, now_us: int
) -> MemberFacts:
    """Return the facts of an existing member after a change.

    Args:
        facts: those of a new member.
    """
    created_us = stored.created_us
    if keeps_timing:
        identity = stored.timing_version + facts.fingerprint + codec.packed_uid(stored.uid)
        return MemberFacts(identity, created_us, stored.not_before_us, stored.state)
    not_before_us = min(now_us // SECOND_US * SECOND_US, facts.not_before_us)
    return msgspec.structs.replace(
        facts.with_uid(codec.packed_uid(stored.uid)),
        created_us=created_us,
        not_before_us=not_before_us,
    )
