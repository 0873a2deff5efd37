"""Storing members of a set.

A write takes one row or a hundred thousand. Rows are put together by shard, and a few hundred go in
one script, of several shards where one server holds them all: a call costs as much as some rows. It
stores a row where what it expects stands there, and answers with what does
otherwise. New members, of which a bulk write mostly consists, take one round trip; for one that is
there already the answer says what stands there, the decision is made here, and a second script
replaces exactly that. A lost race is decided again.

Writing a member is no maintenance and has no term: several processes do it side by side. Most of a
row's time goes into small Python objects, so a row has three of them: ``rows.Row``, its facts and
its task. They are structs, which take a third of a named tuple's time, and no garbage collector
looks at them.
"""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, cast

import msgspec

from duepoint import errors
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import index, layouts, messages, sharding
from duepoint.delayqueue.definitions import codec, interning, moves, reading, records, signedblobs
from duepoint.delayqueue.members import lanes, routing, rows, values
from duepoint.delayqueue.members.values import Outcome
from duepoint.delayqueue.wire import scripting
from duepoint.schedules import definition as definitions
from duepoint.schedules.sets import identity as setidentity
from duepoint.schedules.sets import setrecord

#: Decisions about a row that others change at the same time.
_RACES = 16

_CREATED, _REPLACED, _ELSEWHERE, _NOTHING, _ENDED = b"+", b"=", b"-", b"", b"!"
_TROUBLES = {
    b"GONE": Outcome.GONE,
    b"DELETING": Outcome.DELETING,
    b"MANAGED": Outcome.MANAGED,
}
_KEPT_CHAIN, _NO_DUE = b"=", b""
#: Values of a row as the script takes it.
_ROW_LENGTH = 4
#: Rows of one script of several shards. With 200, streams of rows cost the server a fifth more than
#: with a script for each shard, which has some forty of them.
_ROWS_TOGETHER = 32

#: What the script says of one shard: an answer for each row, or the text of an error.
_Answered = list[bytes] | bytes


class _Task(msgspec.Struct, frozen=True, gc=False):
    """A row as it is sent next.

    Attributes:
        facts: None: the row only asks what stands there.
        due: as the script takes it.
        expected: fingerprint of what is to stand there; empty = nothing.
    """

    row: rows.Row
    facts: rows.MemberFacts | None
    due: bytes
    expected: bytes


_low_of = operator.attrgetter("row.low")
_bucket_of = operator.attrgetter("row.bucket")


class _Sent(NamedTuple):
    """Tasks of one shard, by bucket, with the numbers that stand for the set and for each rule.

    ``incarnation``: the life of the shard that the numbers are of.
    """

    shard: messages.ShardId
    incarnation: str | None
    lane: int
    tasks: list[_Task]
    numbers: Mapping[int, int]


@dataclass(eq=False)
class _Batch:
    """One call of ``put``: what its rows share, their answers so far, and what is sent of them.

    Attributes:
        drafts: of the records, by the places of the rows; None of those that only ask.
        by_rows: it is written for the rows of the set.
    """

    owner: setidentity.SetIdentity
    now_us: int
    answers: list[values.MemberWritten | None]
    facts: rows.NewFacts
    drafts: list[codec.MemberDraft | None]
    by_rows: bool

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
class MemberWriter:
    """Writes members."""

    index: index.Index
    layouts: layouts.Layouts
    reader: reading.DefinitionReader
    lanes: lanes.SetLanes
    numbering: interning.Numbering
    interned: interning.Interned
    signed_blobs: signedblobs.SignedBlobs
    moves: moves.Moves
    known_rules: rows.KnownRules = field(default_factory=rows.KnownRules)

    async def put(
        self,
        set_: setrecord.SetRecord,
        wanted: Sequence[values.MemberWrite],
    ) -> list[values.MemberWritten]:
        """Store members; the answers are in the order of the rows."""
        now_us = self.index.clock.now_us()
        count = len(wanted)
        facts = rows.NewFacts(count, now_us)
        batch = _Batch(
            set_.identity, now_us, [None] * count, facts, [None] * count, set_.is_managed
        )
        for wave in routing.waves(self._rows(wanted, batch)):
            tasks = [_first(row, batch) for row in wave]
            for _ in range(_RACES):
                tasks = await self._round(tasks, batch)
                if not tasks:
                    break
            else:
                raise errors.TryLater("members of the set are changed by others all the time")
        return cast("list[values.MemberWritten]", batch.answers)

    def _rows(self, wanted: Sequence[values.MemberWrite], batch: _Batch) -> list[rows.Row]:
        ids = rows.Ids(batch.owner, self.index.buckets)
        shared_of: dict[int, rows.Shared] = {}
        listed = []
        for place, write in enumerate(wanted):
            rule, at_us = write.rule, write.at_us
            shared = shared_of.get(id(rule))
            if shared is None:
                shared = self.known_rules.shared(rule, batch.owner, batch.now_us)
                shared_of[id(rule)] = shared
            if at_us is not None and not records.is_due(at_us):
                raise errors.Bug(f"{write.id}: an instant of {at_us} us cannot be stored")
            name = write.id.encode()
            id_, low, bucket = ids.of(name)
            listed.append(rows.Row(place, id_, low, bucket, name, write, shared))
        return listed

    async def _round(self, tasks: list[_Task], batch: _Batch) -> list[_Task]:
        """Send every task once; the tasks of a further round are returned."""
        again: list[_Task] = []
        self._draft(tasks, batch)

        async def send_to(layout: messages.Layout, left: list[_Task]) -> routing.Left[_Task]:
            return await self._send(layout, left, batch, again)

        rest = await routing.where_they_are(self.index, self.layouts, tasks, send_to)
        for task in rest:
            batch.answer(task.row, Outcome.GONE)
        return again

    def _draft(self, tasks: Sequence[_Task], batch: _Batch) -> None:
        """Make what is the same of the records in every shard.

        Rows are taken in the order in which they lie in memory: sorted by shard, each one lies
        somewhere else, and the same work takes longer.
        """
        stored = [(task.row, task.facts) for task in tasks if task.facts is not None]
        signed = [(row, facts) for row, facts in stored if row.write.payload]
        macs: dict[int, bytes] = {}
        if signed:
            uids = codec.uuid_texts([facts.uid for _, facts in signed])
            listed = (
                (uid, row.write.id, row.write.payload)
                for uid, (row, _) in zip(uids, signed, strict=True)
            )
            proofs = self.signed_blobs.payload_macs(batch.owner.namespace, listed)
            macs = {row.place: mac for (row, _), mac in zip(signed, proofs, strict=True)}
        for row, facts in stored:
            batch.drafts[row.place] = rows.draft(row, facts, macs.get(row.place, b""))

    async def _send(
        self,
        layout: messages.Layout,
        tasks: list[_Task],
        batch: _Batch,
        again: list[_Task],
    ) -> routing.Left[_Task]:
        """Send tasks to a layout's shards; those that these do not answer are returned."""
        by_shard = routing.by_shard(tasks, layout, _low_of)
        numbers = await self.lanes.of(by_shard, batch.owner)
        absent = [task for shard in by_shard.keys() - numbers.keys() for task in by_shard[shard]]
        stale: list[_Task] = []
        shards = [shard for shard in by_shard if shard in numbers]
        # Before anything is awaited: what is remembered now is of this life of the shard.
        lives = {shard: self.interned.incarnation(shard) for shard in shards}
        rules = await self._rule_numbers({shard: by_shard[shard] for shard in shards})
        sent = [
            _Sent(shard, lives[shard], numbers[shard], part, of_rules)
            for shard, of_rules in rules.items()
            for part in routing.parts(sorted(by_shard[shard], key=_bucket_of))
        ]
        together = list(self._together(sent))
        calls = [self._call(parts, batch) for parts in together]
        replies = await self.index.pipelined_durably.replies(calls)
        for parts, reply in zip(together, replies, strict=True):
            if isinstance(reply, errors.DuepointError):
                raise reply
            for each, answered in zip(parts, reply, strict=True):
                try:
                    found = await self._free_answers(each, answered, batch)
                except queue_errors.LayoutChanged:
                    self.interned.forget(each.shard)
                    # A former layout's shard that is closed has none of them.
                    is_current = routing.is_current(each.shard, layout)
                    (stale if is_current else absent).extend(each.tasks)
                    continue
                absent += await self._take(each, found, batch, again)
        return routing.Left(absent, stale)

    async def _rule_numbers(
        self, by_shard: Mapping[messages.ShardId, Sequence[_Task]]
    ) -> dict[messages.ShardId, dict[int, int]]:
        """By shard the number of each rule's text, by the identity of what its rows share."""
        found: dict[messages.ShardId, dict[int, int]] = {}
        unknown: dict[messages.ShardId, dict[int, bytes]] = {}
        for shard, tasks in by_shard.items():
            numbers = found[shard] = {}
            for shared in {id(task.row.shared): task.row.shared for task in tasks}.values():
                if shared.text is None:
                    numbers[id(shared)] = 0
                    continue
                number = self.interned.number(shard, shared.text)
                if number is None:
                    unknown.setdefault(shard, {})[id(shared)] = shared.text
                else:
                    numbers[id(shared)] = number
        if unknown:
            epoch = messages.Epoch(await self.layouts.newest_epoch())
            learned = await asyncio.gather(
                *(
                    self.numbering.intern(shard, list({*texts.values()}), epoch)
                    for shard, texts in unknown.items()
                )
            )
            for (shard, texts), number_of in zip(unknown.items(), learned, strict=True):
                found[shard].update({key: number_of[text] for key, text in texts.items()})
        return found

    def _together(self, sent: Sequence[_Sent]) -> Iterator[list[_Sent]]:
        """The parts of each script: few where shards lie on several servers, one each."""
        most = 0 if self.index.servers.is_cluster else _ROWS_TOGETHER
        parts: list[_Sent] = []
        rows = 0
        for each in sent:
            if parts and rows + len(each.tasks) > most:
                yield parts
                parts, rows = [], 0
            parts.append(each)
            rows += len(each.tasks)
        if parts:
            yield parts

    async def _free_answers(self, sent: _Sent, answered: _Answered, batch: _Batch) -> list[bytes]:
        """The answers of a part, once no row of it is on its way to another shard."""
        if answered == [b"BUSY"]:

            async def again() -> _Answered:
                (reply,) = await self.index.pipelined_durably.run(self._call([sent], batch))
                return cast("_Answered", reply)

            answered = await self.moves.until_free(sent.shard, again)
        if isinstance(answered, bytes):
            raise scripting.reported(answered, "run putmembers")
        return answered

    def _call(self, parts: Sequence[_Sent], batch: _Batch) -> scripting.ScriptCall:
        call = self.index.call("putmembers", None)
        call.put(parts=[self._part(call, each, batch) for each in parts])
        return call

    def _part(self, call: scripting.ScriptCall, sent: _Sent, batch: _Batch) -> dict[str, object]:
        """What the script is to know of one shard; its keys and rows go to the call."""
        shard, lane = sent.shard, sent.lane
        kinds = {key: codec.kind_bytes(lane, lane, n) for key, n in sent.numbers.items()}
        groups: list[int] = []
        listed: list[bytes] = []
        buckets: list[str] = []
        names, of_population = self.index.shard(shard), self.index.buckets
        drafts = batch.drafts
        last = -1
        keys = call.new_keys(
            (
                *(names.meta, names.heads, names.wake, names.leases, names.interned),
                *(names.ended_even, names.ended_odd, names.lane(lane)),
            )
        )
        position, _ = call.run(())
        key = call.new_keys(())
        for task in sent.tasks:
            row = task.row
            draft = drafts[row.place]
            record = b"" if draft is None else draft.record(kinds[id(row.shared)])
            listed += (row.id, record, task.due, task.expected)
            if row.bucket != last:
                last = row.bucket
                groups += (key + len(buckets), position, 0)
                buckets.append(names.bucket_at(last, of_population))
            position += _ROW_LENGTH
            groups[-1] = position - 1
        call.run(listed)
        call.new_keys(buckets)
        part: dict[str, object] = {
            "keys": keys,
            "layout": sharding.layout_of(shard),
            "lane": str(lane),
            "numbers": [number for number in sent.numbers.values() if number],
            "by_rows": batch.by_rows,
            "groups": groups,
        }
        if sent.incarnation is not None:
            part["incarnation"] = sent.incarnation
        return part

    async def _take(
        self, sent: _Sent, reply: list[bytes], batch: _Batch, again: list[_Task]
    ) -> list[_Task]:
        """Answer the tasks of one part; those that are elsewhere are returned."""
        if len(reply) == 1 and (trouble := _TROUBLES.get(reply[0])) is not None:
            for task in sent.tasks:
                batch.answer(task.row, trouble)
            return []
        absent: list[_Task] = []
        met: list[tuple[_Task, bytes]] = []
        for task, answer in zip(sent.tasks, reply, strict=True):
            if answer == _CREATED:
                self._stored(task, Outcome.CREATED, batch)
            elif answer == _REPLACED:
                self._stored(task, Outcome.REPLACED, batch)
            elif answer == _ELSEWHERE:
                absent.append(task)
            elif answer == _NOTHING:
                self._met_nothing(task, batch, again)
            elif answer.startswith(_ENDED):
                _met_ended(task, answer[len(_ENDED) :].hex(), batch)
            else:
                met.append((task, answer))
        if met:
            await self._decide(sent, met, batch, again)
        return absent

    def _stored(self, task: _Task, outcome: Outcome, batch: _Batch) -> None:
        row, stored, due = task.row, task.facts, task.due
        assert stored is not None  # noqa: S101 - for the type checker: it was sent
        if due == _KEPT_CHAIN:
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

    def _met_nothing(self, task: _Task, batch: _Batch, again: list[_Task]) -> None:
        if isinstance(task.row.write.condition, values.IfMatch):
            batch.answer(task.row, Outcome.PRECONDITION)
        else:  # it was there a moment ago
            again.append(_new(task.row, batch))

    async def _decide(
        self,
        sent: _Sent,
        met: list[tuple[_Task, bytes]],
        batch: _Batch,
        again: list[_Task],
    ) -> None:
        """What to do about what stands there already."""
        found: list[tuple[_Task, codec.Packed]] = []
        for task, record in met:
            try:
                found.append((task, codec.unpack(record)))
            except codec.UnknownRecord:  # written by a newer version, or damaged
                batch.answer(task.row, Outcome.COLLISION)
        wanted = {n for _, packed in found for n in packed.numbers()[2:]}
        if not await self.reader.learn_numbers(sent.shard, wanted):
            raise queue_errors.LayoutChanged(f"texts of shard {sent.shard} are gone")
        for task, packed in found:
            next_task = self._decided(sent, task, packed, batch)
            if next_task is not None:
                again.append(next_task)

    def _decided(
        self, sent: _Sent, task: _Task, packed: codec.Packed, batch: _Batch
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
        if rows.is_same(packed, row, sent.numbers[id(row.shared)]):
            due_us = _due_of_unchanged(row, packed.state, packed.created_us, batch)
            has_ended = packed.state is definitions.State.COMPLETED
            batch.answer(row, Outcome.UNCHANGED, tag, due_us, has_ended=has_ended)
            return None
        stored_rule = reading.parsed_rule(
            packed.rule
            if isinstance(packed.rule, bytes)
            else self.reader.text(sent.shard, packed.rule)
        )
        keeps = rows.is_same_timing(stored_rule, packed.once_us, row)
        state, due_us = rows.due_of(row, batch.owner, batch.now_us, packed.created_us)
        fresh = batch.facts.of(row, state) if task.facts is None else task.facts
        facts = rows.edited(
            packed,
            msgspec.structs.replace(fresh, state=state),
            keeps_timing=keeps,
            now_us=batch.now_us,
        )
        due = _KEPT_CHAIN if keeps else _due_text(due_us)
        return _Task(row, facts, due, packed.fingerprint)


def _due_of_unchanged(
    row: rows.Row, state: definitions.State, created_us: int, batch: _Batch
) -> int | None:
    """The next due of a member whose chain was left alone."""
    if state is not definitions.State.ARMED:
        return None
    return rows.due_of(row, batch.owner, batch.now_us, created_us)[1]


def _met_ended(task: _Task, tag: str, batch: _Batch) -> None:
    """The answer while the one-off was there: a repeated request makes nothing again."""
    is_unwanted = isinstance(task.row.write.condition, values.IfAbsent)
    outcome = Outcome.PRECONDITION if is_unwanted else Outcome.UNCHANGED
    batch.answer(task.row, outcome, tag, has_ended=True)


def _first(row: rows.Row, batch: _Batch) -> _Task:
    """A row is new until the index says otherwise."""
    if isinstance(row.write.condition, values.IfMatch):
        return _Task(row, None, _NO_DUE, b"")
    return _new(row, batch)


def _new(row: rows.Row, batch: _Batch) -> _Task:
    if row.shared.is_exact and (at_us := row.write.at_us) is not None:
        return _Task(row, batch.facts.of(row, definitions.State.ARMED), b"%d" % at_us, b"")
    state, due_us = rows.due_of(row, batch.owner, batch.now_us, batch.now_us)
    return _Task(row, batch.facts.of(row, state), _due_text(due_us), b"")


def _due_text(due_us: int | None) -> bytes:
    return _NO_DUE if due_us is None else b"%d" % due_us
