"""Storing and removing members of a set.

A write takes one row or a hundred thousand. Rows are put together by shard, and a few hundred go in
one script, which stores a row where what it expects stands there, and answers with what does
otherwise. New members, of which a bulk write mostly consists, take one round trip; for one that is
there already the answer says what stands there, the decision is made here, and a second script
replaces exactly that. A lost race is decided again.

Writing a member is no maintenance and has no term: several processes do it side by side. While the
index is resharded a row goes to the former shard first, and to the new one where it is not there.
"""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from duepoint import errors
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import index, layouts, messages, sharding
from duepoint.delayqueue.definitions import codec, interning, moves, reading, records, signedblobs
from duepoint.delayqueue.members import lanes, rows, values
from duepoint.delayqueue.members.values import Outcome
from duepoint.delayqueue.wire import scripting
from duepoint.schedules import definition as definitions
from duepoint.schedules.sets import identity as setidentity
from duepoint.schedules.sets import setrecord

#: Rows of one script: some 5 us of the server's time each; unpack() carries 7,900 values.
_PART = 400
#: Looks for a layout that stays, and decisions about a row that others change at the same time.
_ROUNDS = 4
_RACES = 16

_CREATED, _REPLACED, _ELSEWHERE, _NOTHING, _ENDED = b"+", b"=", b"-", b"", b"!"
_TROUBLES = {b"GONE": Outcome.GONE, b"DELETING": Outcome.DELETING}
_KEPT_CHAIN, _NO_DUE = b"=", b""
#: Values of a row as the script takes it.
_ROW_LENGTH = 4


class _Task(NamedTuple):
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


class _Sent(NamedTuple):
    """The tasks of one script, by bucket, with the number that stands for each rule.

    ``incarnation``: the life of the shard that the numbers are of.
    """

    shard: messages.ShardId
    incarnation: str | None
    tasks: list[_Task]
    numbers: Mapping[int, int]


@dataclass(eq=False)
class _Batch:
    """One call of ``put``: what its rows share, and their answers so far."""

    owner: setidentity.SetIdentity
    now_us: int
    answers: list[values.MemberWritten | None]
    facts: rows.NewFacts

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
    """Writes and removes members."""

    index: index.Index
    layouts: layouts.Layouts
    reader: reading.DefinitionReader
    lanes: lanes.SetLanes
    numbering: interning.Numbering
    interned: interning.Interned
    signed_blobs: signedblobs.SignedBlobs
    moves: moves.Moves

    async def put(
        self,
        set_: setrecord.SetRecord,
        wanted: Sequence[values.MemberWrite],
    ) -> list[values.MemberWritten]:
        """Store members; the answers are in the order of the rows."""
        now_us = self.index.clock.now_us()
        batch = _Batch(
            set_.identity, now_us, [None] * len(wanted), rows.NewFacts(len(wanted), now_us)
        )
        for wave in _waves(_rows(wanted, batch, self.index.buckets), lambda row: row.id):
            tasks = [_first(row, batch) for row in wave]
            for _ in range(_RACES):
                tasks = await self._round(tasks, batch)
                if not tasks:
                    break
            else:
                raise errors.TryLater("members of the set are changed by others all the time")
        return cast("list[values.MemberWritten]", batch.answers)

    async def _round(self, tasks: list[_Task], batch: _Batch) -> list[_Task]:
        """Send every task once; the tasks of a further round are returned."""
        again: list[_Task] = []

        async def send_to(layout: messages.Layout, left: list[_Task]) -> _Left:
            return await self._send(layout, left, batch, again)

        rest = await _where_they_are(self.index, self.layouts, tasks, send_to)
        for task in rest:
            batch.answer(task.row, Outcome.GONE)
        return again

    async def _send(
        self,
        layout: messages.Layout,
        tasks: list[_Task],
        batch: _Batch,
        again: list[_Task],
    ) -> _Left:
        """Send tasks to a layout's shards; those that these do not answer are returned."""
        by_shard = _by_shard(tasks, layout, lambda task: task.row.low)
        numbers = await self.lanes.of(by_shard, batch.owner)
        absent = [task for shard in by_shard.keys() - numbers.keys() for task in by_shard[shard]]
        stale: list[_Task] = []
        shards = [shard for shard in by_shard if shard in numbers]
        # Before anything is awaited: what is remembered now is of this life of the shard.
        lives = {shard: self.interned.incarnation(shard) for shard in shards}
        rules = await self._rule_numbers({shard: by_shard[shard] for shard in shards})
        sent = [
            _Sent(shard, lives[shard], part, of_rules)
            for shard, of_rules in rules.items()
            for part in _parts(sorted(by_shard[shard], key=_bucket_of))
        ]
        calls = [self._call(each, numbers[each.shard], batch) for each in sent]
        replies = await self.index.pipelined_durably.replies(calls)
        for each, call, reply in zip(sent, calls, replies, strict=True):
            try:
                answered = await self._free(each.shard, call, reply)
            except queue_errors.LayoutChanged:
                self.interned.forget(each.shard)
                # A former layout's shard that is closed has none of them.
                (stale if _is_current(each.shard, layout) else absent).extend(each.tasks)
                continue
            absent += await self._take(each, answered, batch, again)
        return _Left(absent, stale)

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
                text = interning.entry(interning.TextKind.RULE, shared.text)
                number = self.interned.number(shard, text)
                if number is None:
                    unknown.setdefault(shard, {})[id(shared)] = text
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

    def _call(self, sent: _Sent, lane: int, batch: _Batch) -> scripting.ScriptCall:
        shard, namespace, signed = sent.shard, batch.owner.namespace, self.signed_blobs
        kinds = {key: codec.kind_bytes(lane, lane, n) for key, n in sent.numbers.items()}
        call = self.index.call(
            "putmembers",
            shard,
            self.index.shard(shard).lane(lane),
            incarnation=sent.incarnation,
            lane=str(lane),
            numbers=[number for number in sent.numbers.values() if number],
        )
        groups: list[int] = []
        listed: list[bytes] = []
        buckets: list[str] = []
        names, of_population = self.index.shard(shard), self.index.buckets
        last = -1
        position, _ = call.run(())
        key = call.new_keys(())
        for row, facts, due, expected in sent.tasks:
            made = b""
            if facts is not None:
                payload = row.write.payload
                mac = b""
                if payload:
                    uid = codec.uuid_text(facts.uid)
                    mac = signed.payload_mac(namespace, uid, row.write.id, payload)
                made = rows.record(row, facts, kinds[id(row.shared)], mac)
            listed += (row.id, made, due, expected)
            if row.bucket != last:
                last = row.bucket
                groups += (key + len(buckets), position, 0)
                buckets.append(names.bucket_at(last, of_population))
            position += _ROW_LENGTH
            groups[-1] = position - 1
        call.run(listed)
        call.new_keys(buckets)
        call.put(groups=groups)
        return call

    async def _free(
        self,
        shard: messages.ShardId,
        call: scripting.ScriptCall,
        reply: Any,  # noqa: ANN401 - of the script
    ) -> list[bytes]:
        """The reply of a script, once nothing of it is on its way to another shard."""

        async def again() -> list[bytes]:
            return cast("list[bytes]", await self.index.pipelined_durably.run(call))

        if isinstance(reply, errors.DuepointError):
            raise reply
        if reply != [b"BUSY"]:
            return cast("list[bytes]", reply)
        return await self.moves.until_free(shard, again)

    async def _take(
        self, sent: _Sent, reply: list[bytes], batch: _Batch, again: list[_Task]
    ) -> list[_Task]:
        """Answer the tasks of one script; those that are elsewhere are returned."""
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
        row, facts, due, _ = task
        stored = cast("rows.MemberFacts", facts)
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
            packed, fresh._replace(state=state), keeps_timing=keeps, now_us=batch.now_us
        )
        due = _KEPT_CHAIN if keeps else _due_text(due_us)
        return _Task(row, facts, due, packed.fingerprint)

    # -- removing --------------------------------------------------------------------------------

    async def remove(
        self,
        set_: setrecord.SetRecord,
        wanted: Sequence[values.MemberRemoval],
    ) -> list[values.MemberWritten]:
        """Remove members; the answers are in the order of the rows."""
        owner = set_.identity
        ids = rows.Ids(owner, self.index.buckets)
        answers: list[values.MemberWritten | None] = [None] * len(wanted)
        removals = [
            _Removal(place, *ids.of(name := row.id.encode()), name, row)
            for place, row in enumerate(wanted)
        ]

        async def send_to(layout: messages.Layout, left: list[_Removal]) -> _Left:
            return await self._send_removals(layout, left, owner, answers)

        for wave in _waves(removals, lambda removal: removal.id):
            for removal in await _where_they_are(self.index, self.layouts, wave, send_to):
                answers[removal.place] = _removed(removal, Outcome.ABSENT)
        return cast("list[values.MemberWritten]", answers)

    async def _send_removals(
        self,
        layout: messages.Layout,
        removals: list[_Removal],
        owner: setidentity.SetIdentity,
        answers: list[values.MemberWritten | None],
    ) -> _Left:
        by_shard = _by_shard(removals, layout, lambda removal: removal.low)
        numbers = await self.lanes.of(by_shard, owner)
        absent = [one for shard in by_shard.keys() - numbers.keys() for one in by_shard[shard]]
        stale: list[_Removal] = []
        sent = [
            (shard, part)
            for shard, listed in by_shard.items()
            if shard in numbers
            for part in _parts(listed)
        ]
        calls = [self._removal_call(shard, part, numbers[shard]) for shard, part in sent]
        replies = await self.index.pipelined_durably.replies(calls)
        for (shard, part), call, reply in zip(sent, calls, replies, strict=True):
            try:
                answered = await self._free(shard, call, reply)
            except queue_errors.LayoutChanged:
                self.interned.forget(shard)
                (stale if _is_current(shard, layout) else absent).extend(part)
                continue
            if answered == [b"GONE"]:
                absent += part
                continue
            for removal, answer in zip(part, answered, strict=True):
                if answer == _ELSEWHERE:
                    absent.append(removal)
                else:
                    answers[removal.place] = _answered(removal, answer)
        return _Left(absent, stale)

    def _removal_call(
        self, shard: messages.ShardId, removals: list[_Removal], lane: int
    ) -> scripting.ScriptCall:
        names = self.index.shard(shard)
        call = self.index.call(
            "dropmembers",
            shard,
            names.lane(lane),
            incarnation=self.interned.incarnation(shard),
            lane=str(lane),
        )
        listed: list[int] = []
        for removal in removals:
            condition = removal.row.condition
            expected = b"" if condition is None else _fingerprint(condition.tag)
            first, _ = call.run((removal.id, removal.name, expected))
            bucket = names.bucket_at(removal.bucket, self.index.buckets)
            history = names.history_beside(bucket, of_member=True)
            listed += (call.key(bucket), call.key(history), first)
        call.put(rows=listed)
        return call


#: No member has it: the condition never holds.
_NO_SUCH_TAG = b"????????"


class _Removal(NamedTuple):
    """A row of a removal on its way to its shard."""

    place: int
    id: bytes
    low: int
    bucket: int
    name: bytes
    row: values.MemberRemoval


def _removed(removal: _Removal, outcome: Outcome, tag: str = "") -> values.MemberWritten:
    if outcome is Outcome.ABSENT and removal.row.condition is not None:
        outcome = Outcome.PRECONDITION
    return values.MemberWritten(id=removal.row.id, outcome=outcome, tag=tag)


def _answered(removal: _Removal, answer: bytes) -> values.MemberWritten:
    if answer == _CREATED:
        return _removed(removal, Outcome.REMOVED)
    if answer == _NOTHING:
        return _removed(removal, Outcome.ABSENT)
    return _removed(removal, Outcome.PRECONDITION, answer.hex())


def _fingerprint(tag: str) -> bytes:
    try:
        return bytes.fromhex(tag) or _NO_SUCH_TAG
    except ValueError:
        return _NO_SUCH_TAG


def _rows(wanted: Sequence[values.MemberWrite], batch: _Batch, buckets: int) -> list[rows.Row]:
    ids = rows.Ids(batch.owner, buckets)
    shared_of: dict[int, rows.Shared] = {}
    by_rule: dict[Any, rows.Shared] = {}
    listed = []
    for place, write in enumerate(wanted):
        rule = write.rule
        shared = shared_of.get(id(rule))
        if shared is None:
            shared = by_rule.get(rule)
            if shared is None:
                shared = by_rule[rule] = rows.shared_by(rule, batch.owner, batch.now_us)
            shared_of[id(rule)] = shared
        if write.at_us is not None and not records.is_due(write.at_us):
            raise errors.Bug(f"{write.id}: an instant of {write.at_us} us cannot be stored")
        name = write.id.encode()
        listed.append(rows.Row(place, *ids.of(name), name, write, shared))
    return listed


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
    state, due_us = rows.due_of(row, batch.owner, batch.now_us, batch.now_us)
    return _Task(row, batch.facts.of(row, state), _due_text(due_us), b"")


def _bucket_of(task: _Task) -> int:
    return task.row.bucket


def _due_text(due_us: int | None) -> bytes:
    return _NO_DUE if due_us is None else b"%d" % due_us


def _waves(listed: Sequence[Any], key: Callable[[Any], object]) -> Iterator[list[Any]]:
    """The rows in order, no two of one wave with the same key."""
    left = list(listed)
    while left:
        first: dict[object, Any] = {}
        later = [each for each in left if first.setdefault(key(each), each) is not each]
        yield list(first.values()) if later else left
        left = later


def _by_shard(
    listed: Iterable[Any], layout: messages.Layout, low: Callable[[Any], int]
) -> dict[messages.ShardId, list[Any]]:
    shards = sharding.own_shards(layout)
    last = layout.shards - 1
    found: collections.defaultdict[messages.ShardId, list[Any]] = collections.defaultdict(list)
    for each in listed:
        found[shards[low(each) & last]].append(each)
    return found


def _parts(listed: list[Any]) -> Iterator[list[Any]]:
    for first in range(0, len(listed), _PART):
        yield listed[first : first + _PART]


def _is_current(shard: messages.ShardId, layout: messages.Layout) -> bool:
    return sharding.layout_of(shard) == layout.number and layout.former is None


class _Left(NamedTuple):
    """Rows that a layout's shards have not answered.

    Attributes:
        absent: they are not there.
        stale: a shard is not what it was.
    """

    absent: list[Any]
    stale: list[Any]


async def _where_they_are(
    queue: index.Index,
    known: layouts.Layouts,
    listed: list[Any],
    send: Callable[[messages.Layout, list[Any]], Awaitable[_Left]],
) -> list[Any]:
    """Send rows to where they are; what even the newest layout does not have is returned."""
    for _ in range(_ROUNDS):
        layout = queue.known_layout()
        former = layout.former
        stale: list[Any] = []
        try:
            if former is not None:
                listed, stale = await send(former, listed)
            absent, more = await send(layout, listed)
        except queue_errors.LayoutChanged:  # before anything was sent
            await known.read()
            listed = listed + stale
            continue
        listed = absent + stale + more
        if not listed:
            return []
        if await known.read() == layout and not (stale or more):
            return listed
    raise queue_errors.LayoutChanged("the index is resharded faster than it can be written")
