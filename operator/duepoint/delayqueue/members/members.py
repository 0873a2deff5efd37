"""The members of sets: stores, removes and triggers them.

A new row is stored in one round trip (``putting``). If its member exists already, the answer is the
stored record; this module decides, and a second script replaces exactly that record. A lost race is
decided again.

Writing members needs no leader's term: several processes do it concurrently. Most of a row's time
goes into small Python objects, so a row has only three of them: ``rows.Row``, its facts and its
task. They are structs, which take a third of a named tuple's time, and the garbage collector skips
them.

Every method takes the set's record. They raise QueueUnavailable if no server answers, and
WorldChanged if the index changes faster than it can be read.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

import msgspec

from duepoint import errors
from duepoint.delayqueue import index, messages, sharding
from duepoint.delayqueue.definitions import (
    codec,
    kinds,
    lanes,
    occurrences,
    putting,
    reading,
    records,
    signedblobs,
)
from duepoint.delayqueue.members import lookups, pages, rows, values
from duepoint.delayqueue.members.values import Outcome
from duepoint.delayqueue.wire import nodes, scripting
from duepoint.schedules import definition as definitions
from duepoint.schedules import points
from duepoint.schedules.sets import setrecord

#: A tag that no member has, so the condition never holds.
_NO_SUCH_TAG = b"????????"
#: Most writes of one round trip.
_WRITES_TOGETHER = 64
#: Runs of a member that may wait, and of a set and a namespace over all shards: a receiver that
#: does not answer keeps them, each with a payload (of 16 KiB at most: 128 MiB of a namespace).
MOST_OF_A_MEMBER = 100
MOST_OF_A_SET = 4_096
MOST_OF_A_NAMESPACE = 8_192

_ENDED = b"ENDED"
_TROUBLES = {
    b"DELETING": Outcome.DELETING,
    putting.MANAGED: Outcome.MANAGED,
}


class _Task(putting.Task, gc=False):
    """The next request for a member's row.

    Attributes:
        facts: None = only read the stored record.
    """

    facts: rows.MemberFacts | None = None


@dataclass(eq=False)
class _Batch:
    """One call of ``put``: the state that its rows share, and their answers so far."""

    owner: points.SetIdentity
    now_us: int
    answers: list[values.MemberWritten | None]

    def answer(
        self,
        row: rows.Row,
        outcome: Outcome,
        tag: str = "",
        due_us: int | None = None,
        *,
        has_ended: bool = False,
    ) -> None:
        self.answers[row.place] = values.MemberWritten(
            id=row.write.id, outcome=outcome, tag=tag, due_us=due_us, has_ended=has_ended
        )


@dataclass(eq=False)
class Members:
    """Writes, removes and triggers members; ``lookups`` and ``pages`` read them."""

    index: index.Index
    known_kinds: kinds.Kinds
    writer: putting.RowWriter
    lookups: lookups.MemberLookups
    pages: pages.MemberPages
    reader: reading.DefinitionReader
    occurrences: occurrences.Occurrences
    signed_blobs: signedblobs.SignedBlobs
    known_rules: rows.KnownRules = field(default_factory=rows.KnownRules)

    async def put(
        self,
        set_: setrecord.SetRecord,
        wanted: Sequence[values.MemberWrite],
        *,
        safety: nodes.Safety | None = None,
    ) -> list[values.MemberWritten]:
        """Store members; the answers are in the order of the rows.

        Raises NotDurable if they are stored, but less safely than requested.
        """
        now_us = self.index.clock.now_us()
        batch = _Batch(set_.identity, now_us, [None] * len(wanted))
        lane = lanes.Lane(lanes.of_set(set_.identity), by_rows=set_.is_managed)
        decide = functools.partial(self._take, batch)
        for wave in putting.waves(self._rows(wanted, batch)):
            tasks = self._drafted([_first(row, batch) for row in wave], batch)
            for task in await self.writer.write(lane, tasks, decide):
                batch.answer(task.row, Outcome.GONE)
        await self._wait_until_safe(set_, wanted, safety)
        return cast("list[values.MemberWritten]", batch.answers)

    def _rows(self, wanted: Sequence[values.MemberWrite], batch: _Batch) -> list[rows.Row]:
        ids = rows.Ids(batch.owner, self.index.buckets)
        shared_of: dict[int, tuple[rows.Shared, putting.Kind]] = {}
        listed = []
        for place, write in enumerate(wanted):
            rule, at_us = write.rule, write.at_us
            of_rule = shared_of.get(id(rule))
            if of_rule is None:
                shared = self.known_rules.shared(rule, batch.owner, batch.now_us)
                text = kinds.text_of(lanes.of_set(batch.owner), "", shared.text)
                of_rule = shared, putting.Kind(self.signed_blobs.kind_digest(text), text)
                shared_of[id(rule)] = of_rule
            if at_us is not None and not records.is_due(at_us):
                raise errors.Bug(f"{write.id}: an instant of {at_us} us cannot be stored")
            name = write.id.encode()
            id_, low, bucket = ids.of(name)
            listed.append(rows.Row(place, id_, low, bucket, name, write, *of_rule))
        return listed

    def _drafted(self, tasks: list[_Task], batch: _Batch) -> list[_Task]:
        """Return the tasks with their records.

        Takes the rows in their order in memory: sorted by shard they are scattered, and the same
        work takes longer.
        """
        stored = [(task, task.facts) for task in tasks if task.facts is not None]
        signed = [(task.row, facts) for task, facts in stored if task.row.write.payload]
        macs: dict[int, bytes] = {}
        if signed:
            uids = codec.uuid_texts([facts.uid for _, facts in signed])
            listed = (
                (uid, row.write.id, row.write.payload)
                for uid, (row, _) in zip(uids, signed, strict=True)
            )
            proofs = self.signed_blobs.payload_macs(batch.owner.namespace, listed)
            macs = {row.place: mac for (row, _), mac in zip(signed, proofs, strict=True)}
        for task, facts in stored:
            task.record = rows.record(task.row, facts, macs.get(task.row.place, b""))
        return tasks

    async def _take(
        self, batch: _Batch, shard: messages.ShardId, tasks: list[_Task], found: list[bytes]
    ) -> list[_Task]:
        """Answer the tasks of one part, or decide what to send for them next."""
        met: list[tuple[_Task, bytes]] = []
        again: list[_Task] = []
        for task, answer in zip(tasks, found, strict=True):
            if answer == putting.CREATED:
                self._answer_stored(task, Outcome.CREATED, batch)
            elif answer == putting.REPLACED:
                self._answer_stored(task, Outcome.REPLACED, batch)
            elif answer == putting.NOTHING:
                self._retry_absent(task, batch, again)
            elif answer == putting.HELD:
                again.append(self._recounted(task, batch))
            elif answer == _ENDED:
                _answer_ended(task, batch)
            elif (trouble := _TROUBLES.get(answer)) is not None:
                batch.answer(task.row, trouble)
            else:
                met.append((task, answer))
        if met:
            again += await self._follow_ups(shard, met, batch)
        return self._drafted(again, batch) if again else again

    def _answer_stored(self, task: _Task, outcome: Outcome, batch: _Batch) -> None:
        row, stored, due = task.row, task.facts, task.due
        assert stored is not None  # noqa: S101 - for the type checker: it was sent
        if due == putting.KEPT_CHAIN:
            due_us = _due_of_unchanged(row, stored.state, stored.created_us, batch)
        else:
            due_us = int(due) if due else None
        batch.answers[row.place] = values.MemberWritten(
            id=row.write.id,
            outcome=outcome,
            tag=stored.tag,
            due_us=due_us,
            has_ended=stored.state is definitions.State.COMPLETED,
        )

    def _retry_absent(self, task: _Task, batch: _Batch, again: list[_Task]) -> None:
        if isinstance(task.row.write.condition, values.IfMatch):
            batch.answer(task.row, Outcome.PRECONDITION)
        else:  # it was there a moment ago
            again.append(_new(task.row, batch))

    def _recounted(self, task: _Task, batch: _Batch) -> _Task:
        """Return the task that reads a member again, to count its new timing from the present.

        The former timing has run since the call began: slots of both would run twice. Our clock may
        be behind the server's, so the count goes on from the due that has come.
        """
        batch.now_us = max(self.index.clock.now_us(), int(task.due))
        row, rule = task.row, task.row.write.rule
        shared = self.known_rules.shared(rule, batch.owner, batch.now_us)
        return _Task(msgspec.structs.replace(row, shared=shared), row.kind, putting.NO_DUE, b"")

    async def _follow_ups(
        self, shard: messages.ShardId, met: list[tuple[_Task, bytes]], batch: _Batch
    ) -> list[_Task]:
        """Answer rows whose member exists already, or return their next tasks."""
        found: list[tuple[_Task, codec.Packed]] = []
        for task, record in met:
            if (packed := codec.readable(record)) is None:  # of a newer version, or damaged
                batch.answer(task.row, Outcome.COLLISION)
            else:
                found.append((task, packed))
        known = await self.known_kinds.read(shard, {packed.kind for _, packed in found})
        decided = (
            self._follow_up(task, packed, known.get(packed.kind), batch) for task, packed in found
        )
        return [task for task in decided if task is not None]

    def _follow_up(
        self, task: _Task, packed: codec.Packed, kind: kinds.Kind | None, batch: _Batch
    ) -> _Task | None:
        row, tag = task.row, packed.fingerprint.hex()
        condition = row.write.condition
        if packed.name != row.write.id:
            batch.answer(row, Outcome.COLLISION)
            return None
        if isinstance(condition, values.IfAbsent) or (
            isinstance(condition, values.IfMatch) and condition.tag != tag
        ):
            batch.answer(row, Outcome.PRECONDITION, tag)
            return None
        if rows.is_same(packed, row):
            due_us = _due_of_unchanged(row, packed.state, packed.created_us, batch)
            has_ended = packed.state is definitions.State.COMPLETED
            batch.answer(row, Outcome.UNCHANGED, tag, due_us, has_ended=has_ended)
            return None
        # A record whose kind's text is lost counts as one with another timing.
        text = packed.inline or (kind.rule_text if kind is not None else b"")
        keeps = bool(text) and rows.is_same_timing(kinds.parsed_rule(text), packed.once_us, row)
        state, due_us = rows.due_of(row, batch.owner, batch.now_us, packed.created_us)
        fresh = rows.new_facts(row, state, batch.now_us) if task.facts is None else task.facts
        facts = rows.edited(
            packed,
            msgspec.structs.replace(fresh, state=state),
            keeps_timing=keeps,
            now_us=batch.now_us,
        )
        due = putting.KEPT_CHAIN if keeps else _due_text(due_us)
        options = {"counted": True} if due_us is not None and row.write.at_us is None else {}
        return _Task(row, row.kind, due, packed.fingerprint, facts=facts, options=options)

    async def remove(
        self,
        set_: setrecord.SetRecord,
        wanted: Sequence[values.MemberRemoval],
        *,
        safety: nodes.Safety | None = None,
    ) -> list[values.MemberWritten]:
        """Remove members with all their points; the answers are in the order of the rows.

        Raises NotDurable if they are removed, but less safely than requested.
        """
        ids = rows.Ids(set_.identity, self.index.buckets)
        dropped = {
            putting.Row(place, *ids.of(name := row.id.encode())): (name, _expected(row))
            for place, row in enumerate(wanted)
        }
        lane = lanes.Lane(lanes.of_set(set_.identity), by_rows=set_.is_managed)
        answers = await self.writer.drop(lane, dropped)
        await self._wait_until_safe(set_, wanted, safety)
        return list(map(_removed, wanted, answers))

    async def _wait_until_safe(
        self,
        set_: setrecord.SetRecord,
        changed: Sequence[values.MemberWrite | values.MemberRemoval],
        safety: nodes.Safety | None,
    ) -> None:
        """Wait until the writes of these members are safe; raises NotDurable if not in time.

        WAIT and WAITAOF wait for the last write of their own connection, but the members may have
        been written on another one. So this makes a small write after them and waits for that one:
        replicas and files get all writes in their order.
        """
        if safety is None:
            return
        ids = rows.Ids(set_.identity, self.index.buckets)
        lows = {ids.of(row.id.encode())[1] for row in changed}
        newest = self.index.known_layout()
        for layout in filter(None, (newest.former, newest)):
            shards = sharding.own_shards(layout)
            asked = sorted({shards[low & layout.shards - 1] for low in lows})
            writes = [("SET", self.index.shard(shard).confirm, b"", "EX", 60) for shard in asked]
            for first in range(0, len(writes), _WRITES_TOGETHER):
                part = writes[first : first + _WRITES_TOGETHER]
                replies = await self.index.servers.exchange(part, confirmed=True, safety=safety)
                scripting.good(replies, "wait until members are safe")

    async def trigger(
        self, set_: setrecord.SetRecord, name: str, *, run_uid: str, payload: bytes = b""
    ) -> int | None:
        """Make a run due now and return its slot, in microseconds; None if there is no member.

        A trigger is a manual occurrence, like that of a ScheduleRun for a Schedule: due at once,
        with a payload of its own if requested, retried like any slot. Calls with the same run uid
        and slot make one run.

        ``payload`` empty = the member's own. The run may still wait: for its set to be resumed, or
        for a receiver. Raises TooManyWaiting.
        """
        member_id = points.member_id(set_.identity, name)
        known = await self.reader.definition(member_id)
        if known is None or known.name != name or known.owner != set_.identity:
            return None
        slot_us = self.index.clock.now_us()
        if known.rule.whole_seconds:
            slot_us = slot_us // rows.SECOND_US * rows.SECOND_US
        record = messages.OccurrenceRecord(trigger="Manual", run_uid=run_uid)
        if payload:
            signed = records.signed_content(record, known.uid, slot_us, payload)
            signature = self.signed_blobs.digest(known.namespace, signed)
            record = msgspec.structs.replace(record, payload=payload, signature=signature)
        point = points.manual(member_id, slot_us, run_uid, points.PointKind.MANUAL)
        shards = self.index.known_layout().shards
        of_set = max(MOST_OF_A_MEMBER, MOST_OF_A_SET // shards)
        of_namespace = max(MOST_OF_A_MEMBER, MOST_OF_A_NAMESPACE // shards)
        most = MOST_OF_A_MEMBER, of_set, of_namespace
        try:
            await self.occurrences.enqueue(known, point, record, None, most=most)
        except errors.WorldChanged:
            return None  # removed meanwhile
        return slot_us


def _due_of_unchanged(
    row: rows.Row, state: definitions.State, created_us: int, batch: _Batch
) -> int | None:
    """Return the next due of a member whose chain was left alone."""
    if state is not definitions.State.ARMED:
        return None
    return rows.due_of(row, batch.owner, batch.now_us, created_us)[1]


def _answer_ended(task: _Task, batch: _Batch) -> None:
    """Answer a repeated request for an ended one-off as before; store nothing again."""
    is_unwanted = isinstance(task.row.write.condition, values.IfAbsent)
    outcome = Outcome.PRECONDITION if is_unwanted else Outcome.UNCHANGED
    batch.answer(task.row, outcome, has_ended=True)


def _first(row: rows.Row, batch: _Batch) -> _Task:
    """Return the first task of a row: store a new member, or read the one for ``IfMatch``."""
    if isinstance(row.write.condition, values.IfMatch):
        return _Task(row, row.kind, putting.NO_DUE, b"")
    return _new(row, batch)


def _new(row: rows.Row, batch: _Batch) -> _Task:
    kind = row.kind
    if row.shared.is_exact and (at_us := row.write.at_us) is not None:
        facts = rows.new_facts(row, definitions.State.ARMED, batch.now_us)
        return _Task(row, kind, b"%d" % at_us, b"", facts=facts)
    state, due_us = rows.due_of(row, batch.owner, batch.now_us, batch.now_us)
    return _Task(row, kind, _due_text(due_us), b"", facts=rows.new_facts(row, state, batch.now_us))


def _due_text(due_us: int | None) -> bytes:
    return putting.NO_DUE if due_us is None else b"%d" % due_us


def _expected(row: values.MemberRemoval) -> bytes:
    """Return the fingerprint that the stored member must have; empty = any."""
    if row.condition is None:
        return b""
    try:
        return bytes.fromhex(row.condition.tag) or _NO_SUCH_TAG
    except ValueError:
        return _NO_SUCH_TAG


def _removed(row: values.MemberRemoval, answer: bytes) -> values.MemberWritten:
    outcome, tag = Outcome.PRECONDITION, ""
    if answer == putting.REPLACED:
        outcome = Outcome.REMOVED
    elif answer == putting.MANAGED:
        outcome = Outcome.MANAGED
    elif answer != putting.NOTHING:
        tag = codec.fingerprint(answer).hex()
    elif row.condition is None:
        outcome = Outcome.ABSENT
    return values.MemberWritten(id=row.id, outcome=outcome, tag=tag)
