"""Shards of a server that went back: which they are, what is overdue in them, and putting it again.

Claims, and ``doubts``, find out that a server holds an older state. Until the leader has put them
again, Schedules with a point that was due by then are not handed out; everything else fires. So the
leader reads what is overdue, puts those Schedules again as it does after a loss of the whole index,
and ends the doubt.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from duepoint.delayqueue import errors, index, messages, sharding
from duepoint.delayqueue.definitions import reading, records
from duepoint.delayqueue.definitions.occurrences import Occurrences, StoredOccurrence
from duepoint.delayqueue.wire import nodes
from duepoint.schedules import definition as definitions
from duepoint.schedules import points

#: Schedules in one part: one script puts so many in two or three milliseconds.
PART = 500
_SCAN_COUNT = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """A shard of a server that went back, and that holds points nobody has looked at.

    Attributes:
        back_us: points of Schedules that are due by then are not handed out.
        found: when such points were found last, as the shard spells it.
    """

    shard: messages.ShardId
    back_us: int
    found: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Overdue:
    """A Schedule of which a point is due by ``Doubt.back_us``, as the server holds it.

    Attributes:
        lane: the queue's own, pass it back.
        chain_due_us: None where its chain is not among those points.
        occurrences: all that it has, due or not, claimed or not; without payloads.
    """

    lane: int | str
    definition: definitions.Definition
    chain_due_us: int | None
    occurrences: Sequence[StoredOccurrence] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PutAgain:
    """What an overdue Schedule becomes.

    Attributes:
        due_us: of its chain, if that is overdue; None = it has no slot left.
        gone: occurrences that have ended.
        lost: occurrences that the server has lost; what is there already stays as it is.
        started: of one with maxRuns, how many of its runs have started at least.
    """

    overdue: Overdue
    due_us: int | None
    gone: Sequence[bytes] = ()
    lost: Sequence[messages.Occurrence] = ()
    started: int = 0

    @property
    def changes(self) -> bool:
        """Whether anything is other than the server holds it."""
        is_moved = self.due_us != self.overdue.chain_due_us
        return bool(is_moved or self.gone or self.lost or self.started)


@dataclass(eq=False)
class Fallbacks:
    """Shards of servers that went back."""

    index: index.Index
    reader: reading.DefinitionReader
    occurrences: Occurrences

    async def doubts(self, *, every: bool = False) -> tuple[Doubt, ...]:
        """The shards that are in doubt.

        A shard that does not answer is left out: it is looked at again, with the others of its
        server.

        Args:
            every: raise QueueUnavailable where a shard does not answer.
        """
        replies: dict[messages.ShardId, Any] = {}
        asked = {
            shard: dict[str, object]() for shard in sharding.all_shards(self.index.known_layout())
        }
        while asked:
            some = await self._look(asked)
            replies |= some
            asked = await self.index.whereabouts(
                {
                    shard: reply[1]
                    for shard, reply in some.items()
                    if not isinstance(reply, Exception) and reply[0] == b"other"
                }
            )
        found = []
        for shard, reply in replies.items():
            if not isinstance(reply, Exception):
                back, doubt = reply
                if doubt:
                    found.append(Doubt(shard=shard, back_us=int(back), found=doubt))
            elif every and not isinstance(reply, errors.LayoutChanged):
                raise reply
        return tuple(found)

    async def _look(
        self, asked: Mapping[messages.ShardId, Mapping[str, object]]
    ) -> dict[messages.ShardId, Any]:
        calls = []
        for shard, former in asked.items():
            ran = self.index.shard(shard).ran
            now_us = self.index.clock.now_us()
            call = self.index.call("doubt", shard, cap=now_us, **former, ran=ran)
            call.values.append(nodes.RUN_ID)
            calls.append(call)
        return dict(zip(asked, await self.index.scripts.run_many(calls), strict=True))

    async def overdue(self, doubt: Doubt) -> AsyncIterator[list[Overdue]]:
        """Every Schedule with an overdue point that no claim holds, in parts.

        All points are read before the first part, so that what is put again meanwhile hides none.
        """
        shard = doubt.shard
        namespaces = await self.reader.namespaces(shard)
        lanes = {namespace: lane for lane, namespace in namespaces.items()}
        dues: dict[bytes, int] = {}
        for lane in namespaces:
            dues.update([pair async for pair in self._due_by(shard, lane, doubt.back_us)])
        ids = {points.ScheduleId(member[:8]) for member in dues}
        stored: dict[points.ScheduleId, list[StoredOccurrence]] = {}
        async for one in self.occurrences.all_occurrences(shard):
            stored.setdefault(one.schedule_id, []).append(one.without_payload())
            if one.kind is points.PointKind.QUEUED and one.slot_us <= doubt.back_us:
                ids.add(one.schedule_id)  # it may have been called up before its due
        ordered = sorted(ids)
        for first in range(0, len(ordered), PART):
            part = ordered[first : first + PART]
            known = await self.reader.read_definitions(shard, part)
            yield [
                Overdue(
                    lane=lanes[definition.namespace],
                    definition=definition,
                    chain_due_us=dues.get(schedule_id + definition.timing_version),
                    occurrences=stored.get(schedule_id, ()),
                )
                for schedule_id in part
                if (definition := known.get(schedule_id)) is not None
                and definition.owner is None
                and definition.namespace in lanes
            ]

    async def _due_by(
        self, shard: messages.ShardId, lane: int, back_us: int
    ) -> AsyncIterator[tuple[bytes, int]]:
        """Members of ours that are due by then, with their dues."""
        cursor = 0
        while True:
            scan = ("ZSCAN", self.index.shard(shard).lane(lane), cursor, "COUNT", _SCAN_COUNT)
            ((cursor, found),) = await self.index.read("read what is overdue", scan)
            for member, score in found:
                if float(score) <= back_us and points.parse_member(member, 0) is not None:
                    yield member, int(float(score))
            if int(cursor) == 0:
                return

    async def put_again(
        self, doubt: Doubt, wanted: Iterable[PutAgain], epoch: messages.Epoch
    ) -> int:
        """How many points changed; what has changed since it was read is left alone."""
        names = self.index.shard(doubt.shard)
        call = self.index.call("putagain", doubt.shard, epoch=epoch)
        lanes: dict[str, int] = {}
        chains: list[tuple[int | None, ...]] = []
        gone: list[tuple[int, int]] = []
        lost: list[tuple[int, int, int, int]] = []
        started: list[tuple[int, int, int]] = []
        for one in wanted:
            known, stood_us = one.overdue.definition, one.overdue.chain_due_us
            lane = call.key(names.lane(int(one.overdue.lane)))
            lanes[str(one.overdue.lane)] = lane
            bucket = call.key(names.bucket_of(known.id, self.index.buckets))
            schedule_id = call.position(known.id)
            if one.due_us != stood_us:
                chain = call.position(known.id + known.timing_version)
                due = () if one.due_us is None else (one.due_us,)
                chains.append((lane, bucket, schedule_id, chain, stood_us, *due))
            gone += [(lane, call.position(member)) for member in one.gone]
            lost += [
                (
                    lane,
                    occurrence.point.due_us,
                    call.position(occurrence.point.member),
                    call.position(records.pack(occurrence.record)),
                )
                for occurrence in one.lost
            ]
            if one.started:
                started.append((bucket, schedule_id, one.started))
        keyed = [{"lane": lane, "key": key} for lane, key in lanes.items()]
        call.put(lanes=keyed, chains=chains, gone=gone, lost=lost, started=started)
        (changed,) = await self.index.scripts.run(call)
        return int(changed)

    async def end(self, doubt: Doubt, epoch: messages.Epoch) -> bool:
        """Whether the doubt has ended: no more overdue points were found since it was read."""
        lanes = list(await self.reader.namespaces(doubt.shard))
        names = self.index.shard(doubt.shard)
        call = self.index.call(
            "doubt",
            doubt.shard,
            *map(names.lane, lanes),
            epoch=epoch,
            ended=doubt.found.decode(),
            lanes=[str(lane) for lane in lanes],
        )
        _, found = await self.index.scripts.run(call)
        return not found
