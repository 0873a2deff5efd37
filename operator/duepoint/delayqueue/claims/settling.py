"""Ends claims: settles them, and delivers them with entries of users' streams.

One settlement is one script call, which reads the scores of many points by one command.
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
#: Most occurrences of a schedule that are read to find its open retries.
_MOST_READ = 2_000
_ID_LENGTH, _KIND, _RETRY = 8, 12, bytes([points.PointKind.RETRY])


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
    planned: list[bytes | str] = field(default_factory=list)


@dataclass(eq=False)
class Settlements:
    """Ends claims: settle, deliver."""

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
        _, applied, remaining, dropped, crowded, not_held = reply
        _report_dropped(dropped)
        newest = {one.point.schedule_id: one for one in settlement.occurrences}
        buried = [await self._bury_oldest(claim, newest[schedule_id]) for schedule_id in crowded]
        return messages.Settled(
            lost=False,
            applied=applied,
            remaining=remaining,
            buried=tuple(itertools.chain.from_iterable(buried)),
            not_held=frozenset(not_held),
        )

    async def _bury_oldest(
        self, claim: messages.Claim, newest: messages.Occurrence
    ) -> Sequence[bytes]:
        """Give up the oldest waiting retries of a schedule beyond its limit; return them."""
        names, schedule_id = self.index.shard(claim.shard), newest.point.schedule_id
        lane = claim.lanes[schedule_id]
        (found,) = await self.index.read(
            "look for open retries",
            ("ZRANGE", names.occ, b"[" + schedule_id, b"[" + schedule_id + b"\xff" * 24, "BYLEX",
             "LIMIT", 0, _MOST_READ),
        )  # fmt: skip
        retries = [each for each in found if each[_KIND : _KIND + 1] == _RETRY]
        if len(retries) <= newest.most_open:
            return ()
        retries.sort(key=points.slot_of)
        dues, packed = await self.index.read(
            "look for open retries",
            ("ZMSCORE", names.lane(lane), *retries),
            ("HMGET", names.occrec, *retries),
        )
        listed = list(zip(retries, dues, packed, strict=True))
        surplus = sum(due is not None for due in dues) - newest.most_open
        waiting = [each for each in listed if each[1] is not None and each[1] < points.DUE_LIMIT_US]
        given_up = waiting[: max(surplus, 0)]
        call = self.index.call(
            "bury", claim.shard, lane=lane, **outcome_bounds(self.index.known_layout().shards)
        )
        letters = []
        for member, _, record in given_up:
            now_us = self.index.clock.now_us()
            entry, outcome = records.surplus(newest, member, record or b"", now_us)
            fields = call.run(part for pair in entry.items() for part in pair)
            letters.append((*fields, call.position(member), call.position(outcome)))
        log = self.dead_letters.put_log(call, claim.shard, deadletters.lane_of(newest.origin))
        call.put(log=log, letters=letters, lane_key=call.key(names.lane(lane)))
        _report_dropped(await self.index.scripts.run(call))
        return [member for member, *_ in given_up]

    @property
    def settles_entries(self) -> bool:
        """Whether ``deliver`` is available: not on a cluster, whose streams are on other nodes."""
        return not self.index.servers.is_cluster

    async def deliver(
        self,
        claim: messages.Claim,
        settlement: messages.Settlement,
        *entries: messages.StreamEntries,
    ) -> frozenset[bytes] | None:
        """Append entries and settle in one step, exactly once; a repeat under its number is safe.

        The settlement names the members of the entries, and its outcomes are theirs: they are
        written only with the entries. Returns the members that were removed from the queue since
        the claim; if there are any, nothing was done. None = the claim is gone: its lease ended,
        or this settlement ended it and its reply was lost.

        Raises ``errors.WrongType`` or ``errors.WriteRefused`` if a stream refused; nothing was
        done then. After any other TryLater it may have been done.
        """
        ended = self.index.pipelined.run(self._settle_call(claim, settlement, entries))
        reply = await self.layouts.unless_gone(claim.shard, ended)
        if reply is None or reply[0] == b"lost":
            return None
        if reply[0] == b"partial":
            return frozenset(reply[1])
        if reply[0] == b"refused":
            raise scripting.refused_entry(reply[1].decode(errors="replace"))
        _report_dropped(reply[3])
        return frozenset()

    def _settle_call(
        self,
        claim: messages.Claim,
        settlement: messages.Settlement,
        entries: Sequence[messages.StreamEntries] = (),
    ) -> scripting.ScriptCall:
        names = self.index.shard(claim.shard)
        parts = _parts(claim, settlement)
        call = self.index.call(
            "deliver" if entries else "settle",
            claim.shard,
            id=claim.id,
            number=settlement.number,
            began=sum(map(len, claim.by_lane.values())),
            **outcome_bounds(self.index.known_layout().shards),
        )
        key_of = {lane: call.key(names.lane(lane)) for lane in parts}
        lanes = [
            {
                "lane": lane,
                "key": key_of[lane],
                "moved": [
                    (str(records.checked_due(due_us)), call.position(b"".join(members)))
                    for due_us, members in part.moved.items()
                ],
                "finished": call.run(part.finished),
                "occurrences": call.run(part.occurrences),
            }
            for lane, part in parts.items()
        ]
        if settlement.dead:
            call.put(logs=call.key(names.logs))

        def bucket_of(schedule_id: points.ScheduleId) -> int:
            return call.key(names.bucket_of(schedule_id, self.index.buckets))

        def place(member: bytes) -> tuple[int, int, int]:
            """Return the positions of the bucket, the id and the member."""
            schedule_id = points.ScheduleId(member[:_ID_LENGTH])
            return bucket_of(schedule_id), call.position(schedule_id), call.position(member)

        over, leaving = self._leaving(call, claim, settlement, key_of)
        call.put(
            lanes=lanes,
            retried=[
                (call.position(schedule_id), bucket_of(schedule_id), most)
                for schedule_id, most in _retried(claim, settlement).items()
            ],
            dead=[
                (
                    call.position(letter.member) if letter.member else 0,
                    *call.run(itertools.chain.from_iterable(letter.entry.items())),
                    self.dead_letters.put_log(call, claim.shard, deadletters.lane_of(letter.entry)),
                )
                for letter in settlement.dead
            ],
            ended=[place(chain) for chain in settlement.ended if chain not in over],
            counted=[place(member) for member in settlement.counted],
            outcomes=call.run(filter(None, [settlement.outcomes])),
        )
        if leaving:
            call.put(leaving=leaving)
        if settlement.planned:
            call.put(
                planned=[(key_of[lane], *call.run(part.planned)) for lane, part in parts.items()]
            )
        if entries:
            self.streams.put_entries(call, entries)
        return call

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


def _report_dropped(dropped: Sequence[bytes]) -> None:
    """Count and log dead letters that were dropped, by their namespaces."""
    lanes = (lane.decode(errors="replace") for lane in dropped)
    for name, count in collections.Counter(map(deadletters.namespace_of, lanes)).items():
        telemetry.dead_letters_dropped_total.labels(telemetry.namespace_label(name)).inc(count)
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


def _retried(
    claim: messages.Claim, settlement: messages.Settlement
) -> dict[points.ScheduleId, int]:
    """Return the schedules that may have more open retries than before, with their limits."""
    return {
        occurrence.point.schedule_id: occurrence.most_open
        for occurrence in settlement.occurrences
        if occurrence.point.kind is points.PointKind.RETRY
        and occurrence.point.member not in claim.records
    }


def _parts(claim: messages.Claim, settlement: messages.Settlement) -> dict[str, _LanePart]:
    """Return the settlement by lane, every lane of the claim."""
    parts = {lane: _LanePart() for lane in claim.by_lane}
    buried = (letter.member for letter in settlement.dead if letter.member)
    _rearm(claim, settlement.chains, parts)
    for occurrence in settlement.occurrences:
        point = occurrence.point
        part = parts[claim.lanes[point.schedule_id]]
        due, record = str(records.checked_due(point.due_us)), records.pack(occurrence.record)
        part.occurrences += (occurrence.source, due, point.member, record)
    for occurrence in settlement.planned:
        point = occurrence.point
        part = parts[claim.lanes[point.schedule_id]]
        part.planned += (point.member, records.pack(occurrence.record))
    for member in dict.fromkeys((*settlement.finished, *buried)):
        parts[claim.lanes[member[:_ID_LENGTH]]].finished.append(member)
    return parts
