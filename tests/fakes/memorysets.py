"""ScheduleSets of the queue in memory: what the operator stores, counts and removes.

Members are rows by id: a test puts them, the operator counts and removes them and keeps them equal
to rows. Nothing is fired here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import messages
from duepoint.delayqueue.inspection.durability import ServerDurability
from duepoint.delayqueue.members import values
from duepoint.delayqueue.members.removal import Removal
from duepoint.schedules import definition as definitions
from duepoint.schedules.sets.setrecord import SetRecord, SetState


@dataclass(slots=True)
class StoredSets:
    """What the servers hold.

    Attributes:
        records: by place; what the HTTP API reads.
        entries: by uid, the state that the shards know.
        blobs: by digest.
        members: by uid of the set, then by id.
        managed: uids of which the shards know that members follow rows.
        without: uids whose entry some shards lack.
        stores: how many records were stored.
    """

    epoch: int = 0
    records: dict[str, SetRecord] = field(default_factory=dict)
    entries: dict[str, SetState] = field(default_factory=dict)
    blobs: dict[str, bytes] = field(default_factory=dict)
    members: dict[str, dict[str, values.MemberWrite]] = field(default_factory=dict)
    managed: set[str] = field(default_factory=set)
    without: set[str] = field(default_factory=set)
    stores: int = 0
    check: Callable[[], None] = lambda: None

    def lose_everything(self) -> None:
        """As FLUSHALL does."""
        self.records.clear()
        self.entries.clear()
        self.blobs.clear()
        self.members.clear()


class MemorySets:
    """``delayqueue.members.sets.Sets`` and ``removal.SetRemovals``."""

    def __init__(self, stored: StoredSets) -> None:
        self._stored = stored

    async def read(self, namespace: str, name: str) -> SetRecord | None:
        self._stored.check()
        return self._stored.records.get(f"{namespace}/{name}")

    find = read

    async def mark_complete(self, epoch: messages.Epoch) -> None:
        self._stored.check()
        self._fence(epoch)

    async def all(self) -> list[SetRecord]:
        self._stored.check()
        return list(self._stored.records.values())

    async def store(self, record: SetRecord, blob: bytes, epoch: messages.Epoch) -> None:
        self._stored.check()
        self._fence(epoch)
        if blob:
            self._stored.blobs[record.target] = blob
        self._stored.entries[record.uid] = record.state
        self._stored.managed.discard(record.uid)
        if record.is_managed:
            self._stored.managed.add(record.uid)
        self._stored.records[record.place] = record
        self._stored.without.discard(record.uid)
        self._stored.stores += 1

    async def step(self, record: SetRecord, epoch: messages.Epoch, *, most: int = 2_000) -> Removal:
        self._stored.check()
        self._fence(epoch)
        members = self._stored.members.get(record.uid, {})
        names = list(members)[:most]
        for name in names:
            del members[name]
        is_done = not members
        if is_done:
            self._stored.entries.pop(record.uid, None)
            if (known := self._stored.records.get(record.place)) and known.uid == record.uid:
                del self._stored.records[record.place]
        return Removal(removed=len(names), left=len(members), is_done=is_done)

    def _fence(self, epoch: messages.Epoch) -> None:
        if epoch < self._stored.epoch:
            raise queue_errors.Fenced("a newer leader has been here")
        self._stored.epoch = epoch


class MemoryMembers:
    """What the operator uses of ``delayqueue.members.members.Members``."""

    def __init__(self, stored: StoredSets) -> None:
        self._stored = stored

    def _of(self, set_: SetRecord) -> dict[str, values.MemberWrite]:
        self._stored.check()
        return self._stored.members.setdefault(set_.uid, {})

    def _is_changed_by_others(self, set_: SetRecord) -> bool:
        return (set_.uid in self._stored.managed) is not set_.is_managed

    async def put(
        self, set_: SetRecord, rows: Sequence[values.MemberWrite]
    ) -> list[values.MemberWritten]:
        members, answers = self._of(set_), []
        for row in rows:
            state = self._stored.entries.get(set_.uid)
            if state is None or state is SetState.DELETING:
                outcome = values.Outcome.GONE if state is None else values.Outcome.DELETING
            elif self._is_changed_by_others(set_):
                outcome = values.Outcome.MANAGED
            elif row.id not in members:
                outcome = values.Outcome.CREATED
            else:
                is_same = members[row.id] == row
                outcome = values.Outcome.UNCHANGED if is_same else values.Outcome.REPLACED
            if outcome in (values.Outcome.CREATED, values.Outcome.REPLACED):
                members[row.id] = row
            answers.append(values.MemberWritten(id=row.id, outcome=outcome))
        return answers

    async def remove(
        self, set_: SetRecord, rows: Sequence[values.MemberRemoval]
    ) -> list[values.MemberWritten]:
        members = self._of(set_)
        answers = []
        for row in rows:
            if self._is_changed_by_others(set_):
                outcome = values.Outcome.MANAGED
            elif members.pop(row.id, None) is None:
                outcome = values.Outcome.ABSENT
            else:
                outcome = values.Outcome.REMOVED
            answers.append(values.MemberWritten(id=row.id, outcome=outcome))
        return answers

    async def page(
        self, set_: SetRecord, cursor: str, *, limit: int, prefix: str = ""
    ) -> values.MemberPage:
        del prefix
        names = sorted(self._of(set_))
        listed = [name for name in names if name > cursor][:limit]
        more = bool(listed) and listed[-1] != names[-1]
        return values.MemberPage(
            members=[_stored(self._of(set_)[name]) for name in listed],
            cursor=listed[-1] if more else "",
        )

    async def counts(self, set_: SetRecord) -> values.MemberCounts:
        return values.MemberCounts(
            members=len(self._of(set_)),
            armed=len(self._of(set_)),
            in_flight=0,
            next_due_us=None,
            oldest_overdue_us=None,
            shards_without=int(set_.uid in self._stored.without),
        )


def _stored(row: values.MemberWrite) -> values.StoredMember:
    return values.StoredMember(
        id=row.id,
        tag="00000000",
        uid=row.id,
        rule=row.rule,
        at_us=row.at_us,
        payload=row.payload,
        state=definitions.State.ARMED,
        created_us=0,
    )


class MemoryDurability:
    """``delayqueue.inspection.durability.DurabilityProbe``."""

    def __init__(self) -> None:
        self.answer = ServerDurability(persistence="aof")

    async def read(self) -> ServerDurability:
        return self.answer
