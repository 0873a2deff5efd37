"""Ends claims: settles them, delivers them with entries of users' streams, splits chains.

One settlement is one script call. Values that a script passes on to native commands are adjacent
in ARGV (due, member, due, member), so that no loop touches them in the usual case, in which the
settlement names every point of the claim and the claim still holds them all.
"""

from __future__ import annotations

import collections
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from duepoint import telemetry
from duepoint.delayqueue import deadletters, index, layouts, messages, streams
from duepoint.delayqueue.definitions import records
from duepoint.delayqueue.wire import scripting
from duepoint.schedules import points

#: About the most bytes of all `runs` together, with bounds for each of them, and the longest age of
#: an outcome. Their reader empties them; these limits matter while there is none.
RUNS_BYTES = 2 * 1024**3
LEAST_RUNS_BYTES = 1024**2
MOST_RUNS_BYTES = 64 * 1024**2
RUNS_AGE_SECONDS = 7 * 86_400
_ID_LENGTH = 8


def runs_bytes(shards: int) -> int:
    """Return how many bytes of unread outcomes one shard keeps."""
    return max(LEAST_RUNS_BYTES, min(MOST_RUNS_BYTES, RUNS_BYTES // shards))


def outcome_bounds(shards: int) -> dict[str, int]:
    """Return the arguments that bound the outcomes of one shard, in an index of this many."""
    return {"runs_bytes": runs_bytes(shards), "runs_age": RUNS_AGE_SECONDS * 1000}


@dataclass(slots=True)
class _LanePart:
    """One lane's part of a settlement, as values for ARGV."""

    moved: collections.defaultdict[int, list[bytes]] = field(
        default_factory=lambda: collections.defaultdict(list)
    )
    finished: list[bytes | str] = field(default_factory=list)
    occurrences: list[bytes | str] = field(default_factory=list)
    sources: list[bytes | str] = field(default_factory=list)


@dataclass(eq=False)
class Settlements:
    """Ends claims: settle, deliver, split."""

    index: index.Index
    layouts: layouts.Layouts
    dead_letters: deadletters.DeadLetters
    streams: streams.Streams

    async def settle(
        self, claim: messages.Claim, settlement: messages.Settlement
    ) -> messages.Settled:
        """Apply how points of the claim ended; a repeat under the same number changes nothing."""
        ended = self.index.pipelined.run(self._settle_call(claim, settlement))
        reply = await self.layouts.unless_gone(claim.shard, ended)
        if reply is None or reply[0] == b"lost":
            return messages.Settled(lost=True, applied=0, remaining=0)
        _, applied, remaining, buried, dropped, *_ = reply
        _report_dropped(dropped)
        return messages.Settled(
            lost=False,
            applied=applied,
            remaining=remaining,
            buried=tuple(
                (member, records.unpack_or_first(record))
                for member, record in zip(buried[::2], buried[1::2], strict=True)
            ),
        )

    async def split(
        self, claim: messages.Claim, splits: Sequence[messages.Planning]
    ) -> tuple[bool, ...]:
        """Move chain points on and store their chosen slots as occurrences of this claim.

        One script for all; returns False for each chain that the claim did not hold. A chain that
        moved on has left the claim: settle the slots, not the chain.
        """
        call = self._plan_call(claim, splits)
        reply = await self.layouts.unless_gone(claim.shard, self.index.pipelined.run(call))
        if reply is None or reply[0] == b"lost":
            return (False,) * len(splits)
        return tuple(answer == 1 for answer in reply[1:])

    @property
    def settles_entries(self) -> bool:
        """Whether ``deliver`` is available: not on a cluster, whose streams are on other nodes."""
        return not self.index.servers.is_cluster

    async def deliver(
        self,
        claim: messages.Claim,
        settlement: messages.Settlement,
        *entries: messages.StreamEntries,
    ) -> messages.DeliveryResult:
        """Append entries and settle in one step, exactly once; a repeat under its number is safe.

        The settlement names the members of the entries, and its outcomes are theirs: they are
        written only with the entries. Raises ``errors.WrongType`` or ``errors.WriteRefused`` if a
        stream refused; nothing was done then. After any other TryLater it may have been done.
        """
        count = sum(len(group.members) for group in entries)
        lost = messages.DeliveryResult(done=False, held=(False,) * count, lost=True)
        ended = self.index.pipelined.run(self._settle_call(claim, settlement, entries))
        reply = await self.layouts.unless_gone(claim.shard, ended)
        if reply is None or reply[0] == b"lost":
            return lost
        if reply[0] == b"partial":
            return messages.DeliveryResult(done=False, held=tuple(held == 1 for held in reply[1]))
        if reply[0] == b"refused":
            raise scripting.refused_entry(reply[1].decode(errors="replace"))
        _report_dropped(reply[4])
        return messages.DeliveryResult(done=True)

    def _settle_call(
        self,
        claim: messages.Claim,
        settlement: messages.Settlement,
        entries: Sequence[messages.StreamEntries] = (),
    ) -> scripting.ScriptCall:
        names = self.index.shard(claim.shard)
        parts, named = _parts(claim, settlement)
        call = self._call(
            "deliver" if entries else "settle",
            claim,
            number=settlement.number,
        )
        whole = _whole_lanes(claim, settlement, named)
        key_of = {lane: call.key(names.lane(lane)) for lane in parts}
        lanes = [
            {
                "lane": lane,
                "key": key_of[lane],
                "whole": whole.get(lane, 0),
                "moved": [
                    (str(records.checked_due(due_us)), call.position(b"".join(members)))
                    for due_us, members in part.moved.items()
                ],
                "finished": call.run(part.finished),
                "occurrences": call.run(part.occurrences),
                "sources": call.run(part.sources),
            }
            for lane, part in parts.items()
        ]
        retried = self._retried(call, claim, settlement, key_of)
        if settlement.dead or retried:
            call.put(logs=call.key(names.logs))

        def place(member: bytes) -> tuple[int, int, int]:
            """Return the positions of the bucket, the id and the member."""
            schedule_id = points.ScheduleId(member[:_ID_LENGTH])
            bucket = call.key(names.bucket_of(schedule_id, self.index.buckets))
            return bucket, call.position(schedule_id), call.position(member)

        over, leaving = self._leaving(call, claim, settlement, key_of)
        call.put(
            lanes=lanes,
            retried=retried,
            records=call.run(_records(settlement.occurrences)),
            dead=[
                (
                    call.position(letter.member) if letter.member else 0,
                    *call.run(itertools.chain.from_iterable(letter.entry.items())),
                    self._log_of(call, claim.shard, letter.entry),
                )
                for letter in settlement.dead
            ],
            ended=[place(chain) for chain in settlement.ended if chain not in over],
            counted=[place(member) for member in settlement.counted],
            outcomes=call.run(filter(None, [settlement.outcomes])),
        )
        if leaving:
            call.put(leaving=leaving)
        if entries:
            self.streams.put_entries(call, entries)
        return call

    def _retried(
        self,
        call: scripting.ScriptCall,
        claim: messages.Claim,
        settlement: messages.Settlement,
        key_of: Mapping[str, int],
    ) -> list[tuple[object, ...]]:
        """Return the schedules that have more open retries after this settlement than before."""
        tried_again = {
            occurrence.point.schedule_id: occurrence
            for occurrence in settlement.occurrences
            if occurrence.point.kind is points.PointKind.RETRY
            and occurrence.point.member not in claim.records
        }
        names = self.index.shard(claim.shard)
        retried: list[tuple[object, ...]] = []
        for schedule_id, occurrence in tried_again.items():
            lane = claim.lanes[schedule_id]
            position = call.position(schedule_id)
            entry = records.buried_entry(occurrence)
            first, last = call.run(part for pair in entry.items() for part in pair)
            most = occurrence.most_open
            bucket = call.key(names.bucket_of(schedule_id, self.index.buckets))
            log = self._log_of(call, claim.shard, entry)
            retried.append((lane, key_of[lane], position, first, last, most, bucket, log))
        return retried

    def _log_of(
        self, call: scripting.ScriptCall, shard: messages.ShardId, entry: Mapping[str, str]
    ) -> dict[str, object]:
        """Return the log to which a letter with this entry goes."""
        return self.dead_letters.put_log(call, shard, deadletters.lane_of(entry))

    def _leaving(
        self,
        call: scripting.ScriptCall,
        claim: messages.Claim,
        settlement: messages.Settlement,
        key_of: Mapping[str, int],
    ) -> tuple[set[bytes], list[tuple[int, int, bool, str, int, int]]]:
        """Return the chains that end with a member, and all members that may leave, by bucket."""
        names = self.index.shard(claim.shard)
        chains = {chain[:_ID_LENGTH]: chain for chain in settlement.ended}
        over: set[bytes] = set()
        by_bucket: collections.defaultdict[tuple[str, str, bool, int], list[bytes]]
        by_bucket = collections.defaultdict(list)
        for schedule_id, why in settlement.leaving:
            chain = chains.get(schedule_id)
            if chain is not None:
                over.add(chain)
            bucket = names.bucket_of(schedule_id, self.index.buckets)
            place = bucket, claim.lanes[schedule_id], chain is not None, int(why)
            by_bucket[place].append(chain or schedule_id)
        return over, [
            (
                call.key(bucket),
                call.position(b"".join(listed)),
                are_chains,
                lane,
                key_of.get(lane) or call.key(names.lane(lane)),
                why,
            )
            for (bucket, lane, are_chains, why), listed in by_bucket.items()
        ]

    def _plan_call(
        self, claim: messages.Claim, plannings: Sequence[messages.Planning]
    ) -> scripting.ScriptCall:
        names = self.index.shard(claim.shard)
        call = self._call("plan", claim)
        key_of = {lane: call.key(names.lane(lane)) for lane in claim.by_lane}
        plans = []
        for planning in plannings:
            schedule_id = planning.chain.schedule_id
            plan: dict[str, object] = {
                "key": key_of[claim.lanes[schedule_id]],
                "chain": call.position(planning.chain.member),
                "slots": call.run(_records(planning.slots)),
            }
            if planning.next_due_us is not None:
                plan["due"] = records.checked_due(planning.next_due_us)
            else:
                plan["bucket"] = call.key(names.bucket_of(schedule_id, self.index.buckets))
                plan["id"] = call.position(schedule_id)
            plans.append(plan)
        call.put(
            lanes=[{"lane": lane, "key": key} for lane, key in key_of.items()],
            plans=plans,
            outcomes=call.run(planning.outcomes for planning in plannings if planning.outcomes),
        )
        return call

    def _call(self, script: str, claim: messages.Claim, **named: object) -> scripting.ScriptCall:
        return self.index.call(
            script,
            claim.shard,
            id=claim.id,
            **outcome_bounds(self.index.known_layout().shards),
            **named,
        )


def _report_dropped(dropped: Sequence[bytes]) -> None:
    """Count and log dead letters that were dropped, by their namespaces."""
    lanes = (lane.decode(errors="replace") for lane in dropped)
    for name, count in collections.Counter(map(deadletters.namespace_of, lanes)).items():
        telemetry.dead_letters_dropped_total.labels(telemetry.namespaces.label(name)).inc(count)
        telemetry.logger.warning(
            "a namespace has more dead letters than it may keep: its oldest are gone",
            namespace=name,
            letters=count,
        )


def _rearm(
    claim: messages.Claim, chains: Sequence[tuple[bytes, int]], parts: dict[str, _LanePart]
) -> None:
    """Add the chains to their lanes' parts, grouped by next due: few dues differ."""
    if len(parts) == 1:
        (part,) = parts.values()
        moved = part.moved
        for member, due_us in chains:
            moved[due_us].append(member)
    else:
        for member, due_us in chains:
            parts[claim.lanes[member[:_ID_LENGTH]]].moved[due_us].append(member)


def _whole_lanes(
    claim: messages.Claim, settlement: messages.Settlement, named: set[bytes]
) -> dict[str, int]:
    """Return the lanes whose points are all named, with the number of their points.

    Empty if the settlement names any other member, or an occurrence follows one.
    """
    whole = {
        lane: len(members) for lane, members in claim.by_lane.items() if named.issuperset(members)
    }
    sources = (each.source for each in settlement.occurrences if each.source)
    return whole if sum(whole.values()) == len(named) and named.issuperset(sources) else {}


def _parts(
    claim: messages.Claim, settlement: messages.Settlement
) -> tuple[dict[str, _LanePart], set[bytes]]:
    """Return the settlement by lane (every lane of the claim), and the members it names."""
    parts = {lane: _LanePart() for lane in claim.by_lane}
    began_with: set[bytes] = set()
    if settlement.occurrences:
        began_with = began_with.union(*claim.by_lane.values())
    buried = (letter.member for letter in settlement.dead if letter.member)
    gone = dict.fromkeys((*settlement.finished, *buried))
    named = set(gone)
    _rearm(claim, settlement.chains, parts)
    named.update([member for member, _ in settlement.chains])
    for occurrence in settlement.occurrences:
        point = occurrence.point
        part = parts[claim.lanes[point.schedule_id]]
        part.occurrences += (str(records.checked_due(point.due_us)), point.member)
        part.sources.append(occurrence.source)
        if point.member in began_with:
            named.add(point.member)
    for member in gone:
        parts[claim.lanes[member[:_ID_LENGTH]]].finished.append(member)
    return parts, named


def _records(occurrences: Sequence[messages.Occurrence]) -> list[bytes | str]:
    values: list[bytes | str] = []
    for occurrence in occurrences:
        values += (occurrence.point.member, records.pack(occurrence.record))
    return values
