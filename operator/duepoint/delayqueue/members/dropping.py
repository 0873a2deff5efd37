"""Removing members of a set, with all their points, one by one or many at a time."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import msgspec

from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import index, layouts, messages
from duepoint.delayqueue.definitions import interning, moves
from duepoint.delayqueue.members import lanes, routing, rows, values
from duepoint.delayqueue.members.values import Outcome
from duepoint.delayqueue.wire import scripting
from duepoint.schedules import points
from duepoint.schedules.sets import setrecord

#: Answers of the script.
_REMOVED, _ELSEWHERE, _NOTHING = b"+", b"-", b""
#: No member has it: the condition never holds.
_NO_SUCH_TAG = b"????????"


class _Removal(msgspec.Struct, frozen=True, gc=False):
    """A row of a removal on its way to its shard."""

    place: int
    id: points.ScheduleId
    low: int
    bucket: int
    name: bytes
    row: values.MemberRemoval


_low_of = operator.attrgetter("low")


@dataclass(eq=False)
class MemberRemover:
    """Removes members."""

    index: index.Index
    layouts: layouts.Layouts
    lanes: lanes.SetLanes
    interned: interning.Interned
    moves: moves.Moves

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

        async def send_to(layout: messages.Layout, left: list[_Removal]) -> routing.Left[_Removal]:
            return await self._send_removals(layout, left, set_, answers)

        for wave in routing.waves(removals):
            for removal in await routing.where_they_are(self.index, self.layouts, wave, send_to):
                answers[removal.place] = _removed(removal, Outcome.ABSENT)
        return cast("list[values.MemberWritten]", answers)

    async def _send_removals(
        self,
        layout: messages.Layout,
        removals: list[_Removal],
        set_: setrecord.SetRecord,
        answers: list[values.MemberWritten | None],
    ) -> routing.Left[_Removal]:
        by_shard = routing.by_shard(removals, layout, _low_of)
        numbers = await self.lanes.of(by_shard, set_.identity)
        absent = [one for shard in by_shard.keys() - numbers.keys() for one in by_shard[shard]]
        stale: list[_Removal] = []
        sent = [
            (shard, part)
            for shard, listed in by_shard.items()
            if shard in numbers
            for part in routing.parts(listed)
        ]
        calls = [
            self._removal_call(shard, part, numbers[shard], by_rows=set_.is_managed)
            for shard, part in sent
        ]
        replies = await self.index.pipelined_durably.replies(calls)
        for (shard, part), call, reply in zip(sent, calls, replies, strict=True):
            try:
                answered = await routing.free_reply(self.index, self.moves, shard, call, reply)
            except queue_errors.LayoutChanged:
                self.interned.forget(shard)
                (stale if routing.is_current(shard, layout) else absent).extend(part)
                continue
            if answered == [b"GONE"]:
                absent += part
                continue
            if answered == [b"MANAGED"]:
                for removal in part:
                    answers[removal.place] = values.MemberWritten(
                        id=removal.row.id, outcome=Outcome.MANAGED
                    )
                continue
            for removal, answer in zip(part, answered, strict=True):
                if answer == _ELSEWHERE:
                    absent.append(removal)
                else:
                    answers[removal.place] = _answered(removal, answer)
        return routing.Left(absent, stale)

    def _removal_call(
        self, shard: messages.ShardId, removals: list[_Removal], lane: int, *, by_rows: bool
    ) -> scripting.ScriptCall:
        names = self.index.shard(shard)
        call = self.index.call(
            "dropmembers",
            shard,
            names.lane(lane),
            incarnation=self.interned.incarnation(shard),
            lane=str(lane),
            by_rows=by_rows,
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


def _removed(removal: _Removal, outcome: Outcome, tag: str = "") -> values.MemberWritten:
    if outcome is Outcome.ABSENT and removal.row.condition is not None:
        outcome = Outcome.PRECONDITION
    return values.MemberWritten(id=removal.row.id, outcome=outcome, tag=tag)


def _answered(removal: _Removal, answer: bytes) -> values.MemberWritten:
    if answer == _REMOVED:
        return _removed(removal, Outcome.REMOVED)
    if answer == _NOTHING:
        return _removed(removal, Outcome.ABSENT)
    return _removed(removal, Outcome.PRECONDITION, answer.hex())


def _fingerprint(tag: str) -> bytes:
    try:
        return bytes.fromhex(tag) or _NO_SUCH_TAG
    except ValueError:
        return _NO_SUCH_TAG
