"""Looking whether the index still agrees with itself, step by step, and mending it.

Each step reads a bounded piece without a script, compares here, and hands what looks wrong to
``mending``, which looks again before it writes. A step of the plan (``s<n>``, or ``s<n>:<scan>``
within a large lane) compares definitions with points: an armed definition without a chain, chains
and occurrences without a definition, occurrences missing from ``occ``, claimed points without a
claim; last slots of schedules that are gone go along. ``o<member>`` is the occurrences' own list.
Heads and lapsed leases go along with every step of a lane. Definitions without a chain as they are
suspended or completed are right as they are.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from duepoint.delayqueue import index, keys, messages, sharding, slothistory
from duepoint.delayqueue.definitions import codec, reading
from duepoint.delayqueue.repair import mending
from duepoint.schedules import points

_SCAN_COUNT = 500
_OCCURRENCES_PER_STEP = 500
_ID_LENGTH = 8
_CLAIM_ID_LENGTH = 12
_RECORDS_PER_STEP = 100
#: Points of one reading command: less than 2 ms of the server's time.
_POINTS_PER_COMMAND = 4_000
_CLAIMED_BAND = (points.DUE_LIMIT_US, "+inf", "BYSCORE", "LIMIT", 0, 10_000)

_Records = dict[bytes, bytes]


@dataclass(eq=False)
class Sweeper:
    """Compares the index with itself, step by step."""

    index: index.Index
    reader: reading.DefinitionReader
    mender: mending.Mending
    history: slothistory.SlotHistory

    def __post_init__(self) -> None:
        self._sweeps: dict[messages.ShardId, SweepPlan] = {}

    async def sweep(
        self,
        shard: messages.ShardId,
        cursor: str | None,
        epoch: messages.Epoch,
        *,
        due_of: mending.DueOf | None = None,
    ) -> mending.Swept:
        """One bounded step of the repair; start with None, go on with ``Swept.cursor``.

        ``due_of`` names the chain's due for an armed definition that lost it (None: leave it).
        """
        if sharding.layout_of(shard) != self.index.known_layout().number:
            return mending.Swept(cursor=None)  # it is being emptied; what it lacks has moved on
        plan = self._sweeps.get(shard)
        if cursor is None or plan is None:
            lanes = await self.reader.lanes(shard)
            lane_keys = map(self.index.shard(shard).lane, lanes)
            counts = await self.index.read("sweep", *(("ZCARD", key) for key in lane_keys))
            sizes = dict(zip(lanes, counts, strict=True))
            plan = self._sweeps[shard] = sweep_plan(lanes, sizes, self.index.buckets)
        at = cursor or "s0"
        if at.startswith("s"):
            number, _, scan = at[1:].partition(":")
            findings, following = await self._sweep_step(
                shard, plan.steps, int(number), scan or "0", due_of
            )
            if cursor is None:
                await self._find_records(shard, findings)
        else:
            findings, following = await self._sweep_occurrences(shard, at[1:], plan)
        if following is None:
            self._sweeps.pop(shard, None)
        swept = await self.mender.mend(shard, findings, epoch)
        return dataclasses.replace(swept, cursor=following)

    async def _sweep_step(
        self,
        shard: messages.ShardId,
        steps: Sequence[Step],
        number: int,
        scan: str,
        due_of: mending.DueOf | None,
    ) -> tuple[mending.Findings, str | None]:
        if number >= len(steps):
            return mending.Findings(), "o"
        step, following = steps[number], f"s{number + 1}"
        if isinstance(step, Whole):
            await self.history.sweep(shard, step.populations)
            return await self._sweep_whole(shard, step, due_of), following
        if isinstance(step, Buckets):
            await self.history.sweep(shard, [step.population], step.first, step.last)
            return await self._sweep_buckets(shard, step, due_of), following
        findings, scan = await self._sweep_lane(shard, step, scan, due_of)
        return findings, following if scan == "0" else f"s{number}:{scan}"

    # -- definitions and points together ---------------------------------------------------------

    async def _sweep_whole(
        self, shard: messages.ShardId, step: Whole, due_of: mending.DueOf | None
    ) -> mending.Findings:
        names = self.index.shard(shard)
        buckets = await self.index.existing(
            "sweep",
            [
                names.bucket(population, number)
                for population in step.populations
                for number in range(self.index.buckets)
            ],
        )
        sizes = await self.index.read(
            "sweep", *(("ZCARD", names.lane(lane)) for lane in step.lanes)
        )
        pages = [
            ("ZRANGE", names.lane(lane), first, first + _POINTS_PER_COMMAND - 1)
            for lane, size in zip(step.lanes, sizes, strict=True)
            for first in range(0, size + 1, _POINTS_PER_COMMAND)
        ]
        replies = await self.index.read(
            "sweep",
            *(("HGETALL", bucket) for bucket in buckets),
            *pages,
            *(("ZRANGE", names.lane(lane), *_CLAIMED_BAND, "WITHSCORES") for lane in step.lanes),
        )
        records: _Records = {}
        for reply in replies[: len(buckets)]:
            records.update(reply)
        of_lane: dict[str, set[bytes]] = {}
        for command, members in zip(pages, replies[len(buckets) :], strict=False):
            of_lane.setdefault(command[1], set()).update(members)
        findings = mending.Findings(
            lanes=set(step.lanes), looked_at=len(records) + sum(map(len, of_lane.values()))
        )
        present = set().union(*of_lane.values())
        expected = {
            i + record[codec.VERSION] for i, record in records.items() if record[:2] == codec.ARMED
        }
        lost = {member[:_ID_LENGTH] for member in expected - present}
        known = {i: records[i] for i in lost if i in records}  # others are no ids of ours
        await self._find_unarmed(shard, known, findings, due_of)
        for lane in step.lanes:
            others = of_lane.get(names.lane(lane), set()) - expected
            await self._find_strays(shard, lane, others, records, findings)
        for lane, claimed in zip(step.lanes, replies[len(buckets) + len(pages) :], strict=True):
            await self._find_orphans(shard, lane, _scores(claimed), findings, due_of)
        return findings

    # -- definitions ----------------------------------------------------------------------------

    async def _sweep_buckets(
        self, shard: messages.ShardId, step: Buckets, due_of: mending.DueOf | None
    ) -> mending.Findings:
        names = self.index.shard(shard)
        buckets = await self.index.existing(
            "sweep definitions",
            [names.bucket(step.population, number) for number in range(step.first, step.last)],
        )
        replies = await self.index.read_many(
            "sweep definitions", [("HGETALL", bucket) for bucket in buckets]
        )
        records: _Records = {}
        for reply in replies:
            records.update(reply)
        chains = {
            i + record[codec.VERSION]: i
            for i, record in records.items()
            if record[:2] == codec.ARMED and len(i) == _ID_LENGTH
        }
        findings = mending.Findings(looked_at=len(records))
        if not chains:
            return findings
        scores = await self.index.read(
            "sweep chains", *(("ZMSCORE", names.lane(lane), *chains) for lane in step.lanes)
        )
        found = [any(score is not None for score in of) for of in zip(*scores, strict=True)]
        lost = [i for i, is_there in zip(chains.values(), found, strict=True) if not is_there]
        await self._find_unarmed(shard, {i: records[i] for i in lost}, findings, due_of)
        return findings

    async def _find_unarmed(
        self,
        shard: messages.ShardId,
        lost: _Records,
        findings: mending.Findings,
        due_of: mending.DueOf | None,
    ) -> None:
        """Armed definitions whose chains were not found."""
        if not lost:
            return
        packed = reading.unpacked((points.ScheduleId(i), record) for i, record in lost.items())
        dues = await self.mender.chain_dues(shard, packed, due_of)
        for schedule_id, (definition, due) in dues.items():
            if due is None:
                findings.unarmed.append(schedule_id)
                continue
            lane = packed[schedule_id].namespace
            chain = schedule_id + definition.timing_version
            findings.arm.append((lane, schedule_id, chain, due))
            findings.lanes.add(lane)

    async def _find_records(self, shard: messages.ShardId, findings: mending.Findings) -> None:
        """Records of claims that are no more; there are as many records as claims, a few."""
        names = self.index.shard(shard)
        ids: set[bytes] = set()
        cursor = 0
        while True:
            ((cursor, fields),) = await self.index.read(
                "sweep claims", ("HSCAN", names.leases, cursor, "COUNT", _SCAN_COUNT)
            )
            ids.update(field[:_CLAIM_ID_LENGTH] for field in fields if field)
            if int(cursor) == 0:
                break
        if ids:
            (scores,) = await self.index.read("sweep claims", ("ZMSCORE", names.claims, *ids))
            gone = [id_ for id_, score in zip(ids, scores, strict=True) if score is None]
            findings.records += gone[:_RECORDS_PER_STEP]

    # -- points ---------------------------------------------------------------------------------

    async def _sweep_lane(
        self, shard: messages.ShardId, lane: int, scan: str, due_of: mending.DueOf | None
    ) -> tuple[mending.Findings, str]:
        names = self.index.shard(shard)
        ((following, found),) = await self.index.read(
            "sweep points", ("ZSCAN", names.lane(lane), scan, "COUNT", _SCAN_COUNT)
        )
        scores = {member: float(score) for member, score in found if member}
        findings = mending.Findings(lanes={lane}, looked_at=len(scores))
        ids = [member[:_ID_LENGTH] for member in scores]
        records = await self._records(shard, ids)
        await self._find_strays(shard, lane, scores, records, findings)
        await self._find_orphans(shard, lane, scores, findings, due_of)
        return findings, str(int(following))

    async def _records(self, shard: messages.ShardId, ids: Iterable[bytes]) -> _Records:
        by_bucket = self.reader.by_bucket(shard, [points.ScheduleId(i) for i in ids])
        replies = await self.index.read(
            "sweep points", *(("HMGET", bucket, *of) for bucket, of in by_bucket.items())
        )
        return {
            schedule_id: record
            for of, reply in zip(by_bucket.values(), replies, strict=True)
            for schedule_id, record in zip(of, reply, strict=True)
            if record is not None
        }

    async def _find_strays(
        self,
        shard: messages.ShardId,
        lane: int,
        members: Iterable[bytes],
        records: _Records,
        findings: mending.Findings,
    ) -> None:
        """Points without a definition, old chains, and occurrences that ``occ`` does not name."""
        occurrences = []
        for member in members:
            if points.parse_member(member, 0) is None:
                continue  # the sentinel, or an unknown member: the worker that claims it buries it
            schedule_id = points.ScheduleId(member[:_ID_LENGTH])
            record = records.get(schedule_id)
            is_chain = len(member) == points.CHAIN_LENGTH
            if record is None or (is_chain and schedule_id + record[codec.VERSION] != member):
                findings.drop.append((lane, schedule_id, member))
            elif not is_chain:
                occurrences.append(member)
        occ = self.index.shard(shard).occ
        for first in range(0, len(occurrences), _OCCURRENCES_PER_STEP):
            some = occurrences[first : first + _OCCURRENCES_PER_STEP]
            (listed,) = await self.index.read("sweep points", ("ZMSCORE", occ, *some))
            findings.add += [
                (lane, member) for member, score in zip(some, listed, strict=True) if score is None
            ]

    async def _find_orphans(
        self,
        shard: messages.ShardId,
        lane: int,
        scores: dict[bytes, float],
        findings: mending.Findings,
        due_of: mending.DueOf | None,
    ) -> None:
        """Points in the claimed band whose claim does not exist."""
        limit = points.DUE_LIMIT_US
        bands = {score for score in scores.values() if score >= limit}
        ends = sorted(band for band in bands if math.isfinite(band))
        names = self.index.shard(shard)
        counts = await self.index.read(
            "sweep claims",
            *(("ZCOUNT", names.claims, int(end - limit), int(end - limit)) for end in ends),
        )
        orphaned = bands.difference(end for end, count in zip(ends, counts, strict=True) if count)
        dropped = {member for _, _, member in findings.drop}
        orphans = {m: s for m, s in scores.items() if s in orphaned and m not in dropped}
        chains = {m for m in orphans if len(m) == points.CHAIN_LENGTH}
        ids = {points.ScheduleId(member[:_ID_LENGTH]) for member in chains}
        dues = await self.mender.chain_dues(shard, ids, due_of) if ids else {}
        for member, score in orphans.items():
            schedule_id = points.ScheduleId(member[:_ID_LENGTH])
            if member not in chains:
                due: int | None = points.slot_of(member)
            elif schedule_id not in dues:
                continue  # its definition cannot be read: the resync writes it anew
            else:
                due = dues[schedule_id][1]
            if due is None:
                findings.unarmed.append(schedule_id)
            else:
                findings.free.append((lane, schedule_id, member, due, score))

    # -- occurrences ----------------------------------------------------------------------------

    async def _sweep_occurrences(
        self, shard: messages.ShardId, at: str, plan: SweepPlan
    ) -> tuple[mending.Findings, str | None]:
        names = self.index.shard(shard)
        begin = b"(" + bytes.fromhex(at)
        (members,) = await self.index.read(
            "sweep occurrences",
            ("ZRANGE", names.occ, begin, "+", "BYLEX", "LIMIT", 0, _OCCURRENCES_PER_STEP),
        )
        findings = mending.Findings(looked_at=len(members))
        asked = [(member, lane) for member in members for lane in plan.lanes_of_member(member)]
        scores = await self.index.read(
            "sweep occurrences", *(("ZSCORE", names.lane(lane), m) for m, lane in asked)
        )
        there = {m for (m, _), score in zip(asked, scores, strict=True) if score is not None}
        findings.forget = [
            (lanes[0], member)
            for member in members
            if member not in there and (lanes := plan.lanes_of_member(member))
        ]
        if len(members) < _OCCURRENCES_PER_STEP:
            return findings, None
        return findings, f"o{members[-1].hex()}"


def _scores(reply: Sequence[Any]) -> dict[bytes, float]:
    """Members and scores, however the library hands them over; without the sentinel."""
    pairs = (
        reply
        if reply and isinstance(reply[0], tuple | list)
        else zip(*[iter(reply)] * 2, strict=True)
    )
    return {member: float(score) for member, score in pairs if member}


#: Points of one step that compares whole namespaces: some 10 ms of the sweeper's time.
_TOGETHER = 10_000
#: Lanes of one step: their heads are looked at by one script.
_LANES_TOGETHER = 32
#: From here on a population is taken apart.
_LARGE = 40_000
_BUCKETS_TOGETHER = 32


@dataclass(frozen=True, slots=True)
class Whole:
    """All definitions of these populations, and all points of their lanes."""

    populations: tuple[str, ...]
    lanes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Buckets:
    """Some definitions of a population, whose chains are in one of these lanes."""

    population: str
    first: int
    last: int
    lanes: tuple[int, ...]


#: A lane alone: its points, in as many steps as it needs.
Step = Whole | Buckets | int


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """The steps in which a shard is swept.

    A namespace of usual size is compared in one step: all definitions and all points, as sets.
    Small ones share a step; a large one is taken apart, definitions a few buckets at a time, then
    points a few hundred at a time. Namespaces of one population share buckets, and so a step.
    """

    steps: tuple[Step, ...]
    lanes_of: Mapping[str, tuple[int, ...]]

    def lanes_of_member(self, member: bytes) -> tuple[int, ...]:
        """Where a point may be by its id; somewhere, where no namespace is known for it."""
        population = f"n{keys.place_of(points.ScheduleId(member[:8]), 1):x}"
        return self.lanes_of.get(population) or next(iter(self.lanes_of.values()), ())


def sweep_plan(
    populations: Mapping[int, tuple[str, ...]], sizes: Mapping[int, int], buckets: int
) -> SweepPlan:
    """The steps for these lanes (number -> populations), with so many points each."""
    lanes_of: dict[str, list[int]] = {}
    for lane in sorted(populations):
        for population in populations[lane]:
            lanes_of.setdefault(population, []).append(lane)
    frozen = {population: tuple(lanes) for population, lanes in lanes_of.items()}
    # A lane with definitions elsewhere, too, is compared with no part of them as a whole.
    apart = {lane for lane, listed in populations.items() if len(listed) > 1}
    return SweepPlan(tuple(_steps(frozen, sizes, buckets, apart)), frozen)


def _steps(
    lanes_of: Mapping[str, tuple[int, ...]],
    sizes: Mapping[int, int],
    buckets: int,
    apart: frozenset[int] | set[int],
) -> Iterator[Step]:
    swept: set[int] = set()
    small: list[str] = []
    lanes: list[int] = []
    count = 0
    for population, of_population in lanes_of.items():
        size = sum(sizes[lane] for lane in of_population)
        if size > _LARGE or not apart.isdisjoint(of_population):
            for first in range(0, buckets, _BUCKETS_TOGETHER):
                last = min(buckets, first + _BUCKETS_TOGETHER)
                yield Buckets(population, first, last, of_population)
            yield from (lane for lane in of_population if lane not in swept)
            swept.update(of_population)
            continue
        if small and (count + size > _TOGETHER or len(lanes) >= _LANES_TOGETHER):
            yield Whole(tuple(small), tuple(lanes))
            small, lanes, count = [], [], 0
        small.append(population)
        lanes += of_population
        count += size
    if small:
        yield Whole(tuple(small), tuple(lanes))
