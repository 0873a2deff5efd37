"""What is asked about members of a set, and what is answered, as frozen values.

Instants are microseconds since the epoch. A *tag* is the version of a member: eight hexadecimal
digits, another one after each accepted change.
"""

from __future__ import annotations

import enum

import msgspec

from duepoint.runs import run
from duepoint.schedules import definition as definitions
from duepoint.schedules import rule as rules


class Outcome(enum.StrEnum):
    """What became of a write or a removal of one member."""

    CREATED = "created"
    REPLACED = "replaced"
    UNCHANGED = "unchanged"  # what stands there says the same; its tag stays
    REMOVED = "removed"
    ABSENT = "absent"  # nothing to remove
    PRECONDITION = "precondition"  # the condition of the row does not hold
    COLLISION = "collision"  # another member has the same 64-bit id: this id cannot be used
    DELETING = "deleting"  # the set's members are being removed
    MANAGED = "managed"  # members follow rows and the caller does not, or the other way round
    GONE = "gone"  # the index does not know the set (any more)


class IfMatch(msgspec.Struct, frozen=True):
    """Only where the member stands there with this tag."""

    tag: str


class IfAbsent(msgspec.Struct, frozen=True):
    """Only where no such member stands there."""


class MemberWrite(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One member to be stored.

    Attributes:
        id: printable ASCII without a slash, at most 128 characters.
        rule: the set's defaults and the member's own fields, merged; suspended where its timing
            says so. Members that share a rule should share the object, too: that is fast.
        at_us: the instant of a member that fires once; its rule then has ``rules.ONCE`` in place
            of expressions. None of any other.
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
        tag: of what stands there now; empty where nothing does, or where it is not known.
        due_us: when it fires next, where that was worked out by this write.
        has_ended: no slot of it is left; a one-off may be gone, too.
    """

    id: str
    outcome: Outcome
    tag: str = ""
    due_us: int | None = None
    has_ended: bool = False


class StoredMember(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One member as it stands in the queue.

    Attributes:
        uid: of this life of the id: removed and created again, it has another one.
        rule, at_us, payload: as in ``MemberWrite``.
        state: ARMED, SUSPENDED, or COMPLETED where no slot is left.
        due_us: when it fires next; None where it never does, or while a worker holds it.
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
    """Some members, and where to go on; an empty cursor is the end."""

    members: list[StoredMember]
    cursor: str


class OpenPoint(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A slot of a member that has begun and has not ended.

    Attributes:
        attempt: how many attempts were made so far.
        since_us: when the first one was made; 0 = not known.
        due_us: when it is tried again; None while a worker holds it.
    """

    id: str
    slot_us: int
    attempt: int
    since_us: int
    last_error: str
    due_us: int | None

    @property
    def claimed(self) -> bool:
        return self.due_us is None


class MemberCounts(msgspec.Struct, frozen=True, kw_only=True):
    """What a set holds.

    Attributes:
        armed: points that wait for their due, retries and other occurrences among them.
        in_flight: points that workers hold now.
        next_due_us: the earliest of the dues; None where nothing waits.
        oldest_overdue_us: the same where that has come.
        shards_without: shards that do not know the set: their server was emptied, or they are new.
        ended: how slots of its members have ended, as far as the shards know.
    """

    members: int
    armed: int
    in_flight: int
    next_due_us: int | None
    oldest_overdue_us: int | None
    shards_without: int = 0
    ended: run.SetTally = run.NONE_ENDED
