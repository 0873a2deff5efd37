"""Requests about members of a set, and their answers, as frozen values.

Instants are microseconds since the epoch. A *tag* is the version of a member: eight hexadecimal
digits, different after each accepted change.
"""

from __future__ import annotations

import enum

import msgspec

from duepoint.runs import run
from duepoint.schedules import definition as definitions
from duepoint.schedules import rule as rules


class Outcome(enum.StrEnum):
    """The result of a write or a removal of one member."""

    CREATED = "created"
    REPLACED = "replaced"
    UNCHANGED = "unchanged"  # the stored member is the same; its tag stays
    REMOVED = "removed"
    ABSENT = "absent"  # nothing to remove
    PRECONDITION = "precondition"  # the condition of the row does not hold
    COLLISION = "collision"  # another member has the same 64-bit id: this id cannot be used
    DELETING = "deleting"  # the set's members are being removed
    MANAGED = "managed"  # rows manage the members and the caller is not their source, or vice versa
    GONE = "gone"  # the index does not know the set (any more)


class IfMatch(msgspec.Struct, frozen=True):
    """The condition that the member is stored with this tag."""

    tag: str


class IfAbsent(msgspec.Struct, frozen=True):
    """The condition that no such member is stored."""


class MemberWrite(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One member to be stored.

    Attributes:
        id: printable ASCII without a slash, at most 128 characters.
        rule: the set's defaults and the member's own fields, merged; suspended if its timing says
            so. Members that share a rule should share the object, too: that is fast.
        at_us: the instant of a member that fires once; its rule then has ``rules.ONCE`` in place
            of expressions. None for any other.
        payload: JSON text in place of the set's payload; empty = the set's.
    """

    id: str
    rule: rules.Rule
    at_us: int | None = None
    payload: bytes = b""
    condition: IfMatch | IfAbsent | None = None


class MemberRemoval(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One member to be removed."""

    id: str
    condition: IfMatch | None = None


class MemberWritten(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The answer to a row.

    Attributes:
        tag: that of the stored member now; empty if there is none, or if unknown.
        due_us: when it fires next, if this write computed that.
        has_ended: no slot of it is left; a one-off may be gone, too.
    """

    id: str
    outcome: Outcome
    tag: str = ""
    due_us: int | None = None
    has_ended: bool = False


class StoredMember(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One member as the queue has stored it.

    Attributes:
        uid: changes when a member is removed and created again.
        rule, at_us, payload: as in ``MemberWrite``.
        state: ARMED, SUSPENDED, or COMPLETED if no slot is left.
        due_us: when it fires next; None if it never does, or while a worker holds it.
        claimed: a worker holds it now.
    """

    id: str
    tag: str
    uid: str
    rule: rules.Rule
    at_us: int | None
    payload: bytes
    state: definitions.State
    created_us: int
    due_us: int | None = None
    claimed: bool = False


class MemberPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some members, and the cursor of the next page; empty = the end."""

    members: list[StoredMember]
    cursor: str


class MemberCounts(msgspec.Struct, frozen=True, kw_only=True):
    """The counts of a set.

    Attributes:
        armed: points that wait for their due, including retries and other occurrences.
        in_flight: points that workers hold now.
        next_due_us: the earliest of the dues; None if nothing waits.
        oldest_overdue_us: that due if it has come; else None.
        shards_without: shards without the set's entry: their server was emptied, or they are new.
        ended: how slots of its members have ended, by the counts of the shards.
    """

    members: int
    armed: int
    in_flight: int
    next_due_us: int | None
    oldest_overdue_us: int | None
    shards_without: int = 0
    ended: run.SetTally = run.NONE_ENDED
