"""What a draining shard gives away in one pass, in bounded steps: schedules, what follows, letters.

A pass goes over all buckets, then over the lanes (occurrences that a worker held when their
definition went, and points without a claim), then over the dead letters. Where it goes on is its
cursor: ``d`` and a bucket, ``p`` and a lane, ``x`` for the letters. What a worker holds is left out
until another pass. What cannot be read holds up nothing: its points are buried, its definition is
written anew from its object. How one batch travels is in
``definitions.moves``.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import structlog

from duepoint import settings, telemetry
from duepoint.delayqueue import index, messages, sharding
from duepoint.delayqueue.definitions import codec, moves, reading
from duepoint.delayqueue.wire import scripting
from duepoint.schedules import points

log = structlog.get_logger(__name__)

#: Schedules of one batch, and occurrences that go with them: some 2 ms of the server's time.
_MOST_SCHEDULES = 200
_MOST_OCCURRENCES = 500
_BUCKETS_PER_STEP = 16
_LANES_PER_STEP = 32
_POINTS_PER_LANE = 100
_SCAN_COUNT = 500
_LETTERS_PER_STEP = 100
#: No lease ends so long from now.
_LATEST_US = int(2 * settings.LONGEST_LEASE_SECONDS * 1_000_000)
_ID_LENGTH = 8

#: Ids of one bucket and lane: lane, bucket, ids.
_Group = tuple[int, str, list[bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """What one step of a move did.

    Attributes:
        cursor: where to go on, or None at the end of a pass over the shard.
        moved: schedules that went.
        left_out: schedules and points that a worker holds; they go in a later pass.
        damaged: schedules and points that could not be read, or had lost their chain: they are to
            be compared with the objects.
    """

    cursor: str | None
    moved: int = 0
    left_out: int = 0
    damaged: int = 0


#: Lane numbers of a shard, and the populations in which their definitions lie.
_Lanes = dict[int, tuple[str, ...]]


@dataclass(eq=False)
class Export:
    """Gives away what a draining shard holds."""

    index: index.Index
    reader: reading.DefinitionReader
    moves: moves.Moves

    def __post_init__(self) -> None:
        self._lanes_of: dict[messages.ShardId, _Lanes] = {}

    async def move(
        self,
        shard: messages.ShardId,
        cursor: str | None,
        epoch: messages.Epoch,
        *,
        hold_seconds: float = 0.0,
    ) -> Moved:
        """One bounded step of emptying a former shard; start with None, go on with the cursor.

        What no worker holds goes to its new shard; a schedule is claimable in one of the two at
        any time except while its own batch is on its way. A pass may begin by holding the shard:
        no worker claims in it for so long, and the pass begins after half of that time.
        """
        if cursor is None:
            await self._begin(shard, epoch, hold_seconds)
            cursor = "d0"
        lanes = self._lanes_of[shard]
        first = int(cursor[1:])
        if cursor.startswith("d"):
            return await self._move_buckets(shard, first, epoch, lanes)
        if cursor.startswith("p"):
            return await self._move_followers(shard, first, epoch, lanes)
        more = await self._move_letters(shard, epoch)
        return Moved(cursor="x0" if more else None)

    def forget(self, shard: messages.ShardId) -> None:
        """The shard is closed: no pass goes over it again."""
        self._lanes_of.pop(shard, None)

    # -- steps of a pass ---------------------------------------------------------------------------

    async def _begin(
        self, shard: messages.ShardId, epoch: messages.Epoch, hold_seconds: float
    ) -> None:
        hold_us = int(hold_seconds * 1_000_000)
        await self.index.scripts.run(self.index.call("drain", shard, epoch=epoch, hold=hold_us))
        await self.index.clock.sleep(hold_seconds / 2)
        await self.moves.finish(shard)
        self._lanes_of[shard] = await self.reader.lanes(shard)

    async def _move_buckets(
        self,
        shard: messages.ShardId,
        first: int,
        epoch: messages.Epoch,
        lanes: _Lanes,
    ) -> Moved:
        buckets = self._buckets(shard, lanes)
        done: list[Moved] = []
        scans = dict.fromkeys(buckets[first : first + _BUCKETS_PER_STEP], 0)
        while scans:
            replies = await self.index.read(
                "read definitions to move",
                *(("HSCAN", name, scan, "COUNT", _SCAN_COUNT) for name, scan in scans.items()),
            )
            groups = self._groups(shard, zip(scans, (found for _, found in replies), strict=True))
            done += [await self._export(shard, epoch, schedules=part) for part in _parts(groups)]
            scans = {
                name: int(scan) for name, (scan, _) in zip(scans, replies, strict=True) if int(scan)
            }
        following = first + _BUCKETS_PER_STEP
        cursor = f"d{following}" if following < len(buckets) else "p0"
        return _added_up(cursor, done)

    async def _move_followers(
        self,
        shard: messages.ShardId,
        first: int,
        epoch: messages.Epoch,
        lanes_of: _Lanes,
    ) -> Moved:
        """Occurrences that a worker held when their definition went, and points without a claim."""
        names, lanes = self.index.shard(shard), sorted(lanes_of)
        chunk = lanes[first : first + _LANES_PER_STEP]
        groups: list[_Group] = []
        for lane, members in zip(chunk, await self._unheld_points(shard, chunk), strict=True):
            by_bucket: dict[str, list[bytes]] = {}
            for member in members:
                bucket = names.bucket_of(points.ScheduleId(member[:_ID_LENGTH]), self.index.buckets)
                by_bucket.setdefault(bucket, []).append(member)
            groups += [(lane, bucket, some) for bucket, some in by_bucket.items()]
        done = [await self._export(shard, epoch, followers=part) for part in _parts(groups)]
        following = first + _LANES_PER_STEP
        return _added_up(f"p{following}" if following < len(lanes) else "x0", done)

    async def _unheld_points(
        self, shard: messages.ShardId, lanes: Sequence[int]
    ) -> list[list[bytes]]:
        """Of each lane some points that wait, and some that no claim holds; the script decides."""
        names, most = self.index.shard(shard), ("LIMIT", 0, _POINTS_PER_LANE)
        limit = points.DUE_LIMIT_US
        time, claims, *found = await self.index.read(
            "read points to move",
            ("TIME",),
            ("ZRANGE", names.claims, 0, -1, "WITHSCORES"),
            *(
                command
                for lane in map(names.lane, lanes)
                for command in (
                    ("ZRANGE", lane, "-inf", f"({limit}", "BYSCORE", *most),
                    ("ZRANGE", lane, limit, "(+inf", "BYSCORE", *most, "WITHSCORES"),
                    ("ZRANGE", lane, "+inf", "+inf", "BYSCORE", *most),
                )
            ),
        )
        latest = scripting.time_us(time) + _LATEST_US
        held = {limit + expiry for _, expiry in scripting.scored(claims) if expiry <= latest}
        waiting, claimed, endless = found[::3], found[1::3], found[2::3]
        return [
            [
                *some,
                *(member for member, score in scripting.scored(band) if score not in held),
                *filter(None, last),
            ]
            for some, band, last in zip(waiting, claimed, endless, strict=True)
        ]

    async def _export(
        self,
        shard: messages.ShardId,
        epoch: messages.Epoch,
        *,
        schedules: Sequence[_Group] = (),
        followers: Sequence[_Group] = (),
    ) -> Moved:
        """Move one batch, except what a worker holds."""
        names = self.index.shard(shard)
        batch = os.urandom(16)
        call = self.index.call(
            "export", shard, epoch=epoch, most=_MOST_OCCURRENCES, latest=_LATEST_US, batch=batch
        )

        def placed(groups: Sequence[_Group]) -> list[tuple[str | int, ...]]:
            return [
                (str(lane), call.key(names.lane(lane)), call.key(bucket), *call.run(members))
                for lane, bucket, members in groups
            ]

        call.put(schedules=placed(schedules), followers=placed(followers))
        left_out, taken, buried = await self.index.scripts.run(call)
        if buried:
            telemetry.unreadable_total.labels("definition").inc(buried)
            log.warning("points without a readable schedule are dead letters", count=buried)
        travellers = [moves.Traveller.of(traveller) for traveller in taken]
        lost = await self.moves.bring(shard, batch, travellers) if travellers else 0
        unarmed = sum(
            traveller.record[:2] == codec.ARMED and not traveller.due for traveller in travellers
        )
        return Moved(
            cursor=None,
            moved=sum(bool(traveller.record) for traveller in travellers),
            left_out=left_out,
            damaged=buried + lost + unarmed,
        )

    async def _move_letters(self, shard: messages.ShardId, epoch: messages.Epoch) -> bool:
        """Some dead letters lie in the new shards; whether there may be more."""
        names = self.index.shard(shard)
        (found,) = await self.index.read(
            "read dead letters", ("XRANGE", names.dead, "-", "+", "COUNT", _LETTERS_PER_STEP)
        )
        if not found:
            return False
        by_home: dict[messages.ShardId, list[tuple[bytes, dict[bytes, bytes]]]] = {}
        for letter, raw in found:
            fields = scripting.fields(raw)
            by_home.setdefault(self._letter_home(shard, fields), []).append((letter, fields))
        for home, letters in by_home.items():
            call = self.index.call("rebury", home, epoch=epoch, source=names.tag)
            call.put(
                letters=[
                    (letter.decode(), *call.run(part for pair in fields.items() for part in pair))
                    for letter, fields in letters
                ]
            )
            await self.index.pipelined_durably.run(call)
        ids = [letter for letter, _ in found]
        await self.index.read("forget dead letters", ("XDEL", names.dead, *ids))
        return len(found) == _LETTERS_PER_STEP

    def _letter_home(self, shard: messages.ShardId, fields: dict[bytes, bytes]) -> messages.ShardId:
        layout, member = self.index.known_layout(), fields.get(b"member", b"")
        fed = sharding.fed_by(shard, layout)
        if len(member) >= points.CHAIN_LENGTH:
            schedule_id = member[:_ID_LENGTH]
        else:  # of a chain, which goes on without the slot
            try:
                schedule_id = bytes.fromhex(fields.get(b"schedule_id", b"").decode())
            except ValueError:
                return fed[0]
        home = sharding.home(points.ScheduleId(schedule_id), layout)
        return home if home in fed else fed[0]

    def _buckets(self, shard: messages.ShardId, lanes: _Lanes) -> list[str]:
        populations = itertools.chain.from_iterable(lanes.values())
        return self.index.buckets_of_populations(shard, populations)

    # -- what is there -----------------------------------------------------------------------------

    async def is_any_definition_left(self, shard: messages.ShardId, lanes: _Lanes) -> bool:
        """Unreadable records do not count: the operator writes them anew from their objects."""
        buckets = self._buckets(shard, lanes)
        counts = await self.index.read_many("count", [("HLEN", bucket) for bucket in buckets])
        for bucket, count in zip(buckets, counts, strict=True):
            if not count:
                continue
            ((_, found),) = await self.index.read(
                "read definitions", ("HSCAN", bucket, 0, "COUNT", _SCAN_COUNT)
            )
            if self._groups(shard, [(bucket, found)]):
                return True
        return False

    def _groups(
        self, shard: messages.ShardId, found: Iterable[tuple[str, dict[bytes, bytes]]]
    ) -> list[_Group]:
        """Definitions by lane; without what cannot be read or is not in the bucket of its id."""
        names = self.index.shard(shard)
        groups: list[_Group] = []
        for bucket, records in found:
            by_lane: dict[int, list[bytes]] = {}
            for schedule_id, record in records.items():
                place = names.bucket_of(points.ScheduleId(schedule_id), self.index.buckets)
                if len(schedule_id) != _ID_LENGTH or place != bucket:
                    continue
                try:
                    lane, *_ = codec.numbers(record)
                except codec.UnknownRecord:
                    continue
                by_lane.setdefault(lane, []).append(schedule_id)
            groups += [(lane, bucket, ids) for lane, ids in by_lane.items()]
        return groups


def _added_up(cursor: str, batches: Sequence[Moved]) -> Moved:
    return Moved(
        cursor=cursor,
        moved=sum(batch.moved for batch in batches),
        left_out=sum(batch.left_out for batch in batches),
        damaged=sum(batch.damaged for batch in batches),
    )


def _parts(groups: Iterable[_Group]) -> Iterator[list[_Group]]:
    """The groups in batches of a size that one script can carry."""
    part: list[_Group] = []
    room = _MOST_SCHEDULES
    for lane, bucket, members in groups:
        rest = members
        while rest:
            part.append((lane, bucket, rest[:room]))
            room, rest = room - len(rest[:room]), rest[room:]
            if not room:
                yield part
                part, room = [], _MOST_SCHEDULES
    if part:
        yield part
