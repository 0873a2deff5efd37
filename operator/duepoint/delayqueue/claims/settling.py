"""Ending claims: settle, plan, split, and a user's stream entries.

One settlement becomes one script. Values that scripts pass on to native commands stand side by
side in ARGV (due, member, due, member), so that no loop touches them on the usual road, where
everything that was claimed is named and still held.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from duepoint import errors, telemetry
from duepoint.delayqueue import index, layouts, messages, quotas, sharding
from duepoint.delayqueue.claims import claimedchains, nextdues, prefetch, retrylimit
from duepoint.delayqueue.definitions import records
from duepoint.delayqueue.keys import ShardKeys
from duepoint.delayqueue.wire import scripting
from duepoint.schedules import points

#: Bytes kept of all `runs` together, about, with bounds for one of them; and for how long.
#: They are emptied by their reader; this bounds them while there is none.
RUNS_BYTES = 2 * 1024**3
LEAST_RUNS_BYTES = 1024**2
MOST_RUNS_BYTES = 64 * 1024**2
RUNS_AGE_SECONDS = 7 * 86_400
_ID_LENGTH = 8
#: A batch of more needs a reading of its own anyhow.
_MOST_FORESEEN = 64


def runs_bytes(shards: int) -> int:
    """Bytes that one shard keeps of outcomes that nobody has read."""
    return max(LEAST_RUNS_BYTES, min(MOST_RUNS_BYTES, RUNS_BYTES // shards))


@dataclass(slots=True)
class _LanePart:
    """What one lane's share of a settlement says, as values for ARGV."""

    chains: list[bytes | str] = field(default_factory=list)
    moved: collections.defaultdict[int, list[bytes]] = field(
        default_factory=lambda: collections.defaultdict(list)
    )
    finished: list[bytes | str] = field(default_factory=list)
    occurrences: list[bytes | str] = field(default_factory=list)
    sources: list[bytes | str] = field(default_factory=list)


class Settlements:
    """Ends claims: settle, deliver, plan, split; appends entries of users' streams."""

    def __init__(
        self,
        *,
        index: index.Index,
        layouts: layouts.Layouts,
        prefetch: prefetch.Foresight,
        quotas: quotas.Quotas,
    ) -> None:
        self._index = index
        self._layouts = layouts
        self._prefetch = prefetch
        self._quotas = quotas

    async def settle(
        self, claim: messages.Claim, settlement: messages.Settlement
    ) -> messages.Settled:
        try:
            reply = await self._index.gathered.run(self._settle_call(claim, settlement))
        except (scripting.LayoutChanged, scripting.Uninitialised):
            if await self._layouts.may_hold(claim.shard):
                raise
            return await self._settle_nowhere(claim, settlement)
        if reply[0] == b"lost":
            return messages.Settled(lost=True, applied=0, remaining=0)
        _, applied, remaining, buried, dropped, *_ = reply
        _report_dropped(dropped)
        self._foresee(claim.shard, settlement)
        return messages.Settled(
            lost=False,
            applied=applied,
            remaining=remaining,
            buried=tuple(
                (member, records.unpack_or_first(record))
                for member, record in zip(buried[::2], buried[1::2], strict=True)
            ),
        )

    def _foresee(self, shard: messages.ShardId, settlement: messages.Settlement) -> None:
        for chain in settlement.chains:
            self._prefetch.expect(shard, chain.schedule_id, chain.due_us)
        if len(settlement.rearmed) <= _MOST_FORESEEN:
            for member, due_us in settlement.rearmed:
                self._prefetch.expect(shard, points.ScheduleId(member[:_ID_LENGTH]), due_us)

    async def plan(
        self, claim: messages.Claim, planning: messages.Planning
    ) -> tuple[messages.Occurrence, ...] | None:
        """The slots are occurrences of this claim now, the chain moved on; None = lost.

        The chain point is not the claim's any more: settle the slots, not the chain.
        """
        (held,) = await self.split(claim, [planning])
        return planning.slots if held else None

    async def split(
        self, claim: messages.Claim, splits: Sequence[messages.Planning]
    ) -> tuple[bool, ...]:
        """``plan`` for many chain points in one script; False where the chain was not held."""
        try:
            reply = await self._index.gathered.run(self._plan_call(claim, splits))
        except scripting.LayoutChanged:
            if await self._layouts.may_hold(claim.shard):
                raise
            return (False,) * len(splits)
        if reply[0] == b"lost":
            return (False,) * len(splits)
        for planning in splits:
            if planning.next_due_us is not None:
                self._prefetch.expect(claim.shard, planning.chain.schedule_id, planning.next_due_us)
        return tuple(answer == 1 for answer in reply[1:])

    async def _settle_nowhere(
        self, claim: messages.Claim, settlement: messages.Settlement
    ) -> messages.Settled:
        """The claim's shard is no more, and so is the claim; its outcomes count all the same."""
        if settlement.outcomes:
            shard = sharding.own_shards(self._index.known_layout())[0]
            late = dataclasses.replace(claim, shard=shard)
            told = messages.Settlement(outcomes=settlement.outcomes, number=settlement.number)
            await self._index.gathered.run(self._settle_call(late, told))
        return messages.Settled(lost=True, applied=0, remaining=0)

    @property
    def settles_entries(self) -> bool:
        """Whether ``deliver`` is to be had: not on a cluster, where streams lie on other nodes."""
        return not self._index.servers.is_cluster

    async def deliver(
        self, claim: messages.Claim, settlement: messages.Settlement, *entries: messages.Entries
    ) -> messages.Handed:
        """Entries and settlement in one step, exactly once; repeated under its number it is safe.

        The settlement names the members of the entries, and its outcomes are theirs: they are
        written only with the entries. Of several streams one may refuse: its members stay with
        the claim. Raises ``scripting.WrongType`` and ``scripting.Refused`` where the server has
        said no and nothing was done; after any other TryLater it may have been.
        """
        count = sum(len(group.members) for group in entries)
        lost = messages.Handed(done=False, held=(False,) * count, lost=True)
        try:
            reply = await self._index.gathered.run(self._settle_call(claim, settlement, entries))
        except (scripting.LayoutChanged, scripting.Uninitialised):
            if await self._layouts.may_hold(claim.shard):
                raise
            return lost
        if reply[0] == b"lost":
            return lost
        if reply[0] == b"partial":
            return messages.Handed(done=False, held=tuple(held == 1 for held in reply[1]))
        if reply[0] == b"refused":
            raise scripting.refused_entry(reply[1].decode(errors="replace"))
        self._foresee(claim.shard, settlement)
        _report_dropped(reply[4])
        refused = reply[5] if len(reply) > 5 else ()
        return messages.Handed(
            done=True, refused=tuple(error.decode(errors="replace") for error in refused)
        )

    async def append(self, entries: messages.Entries) -> list[str]:
        """The entries by themselves, all or none, in one script; their ids.

        For a cluster, where they cannot go in with a settlement. Raises ``scripting.WrongType``,
        and QueueUnavailable where they may be in or not.
        """
        arguments = scripting.Arguments()
        group = _entries(arguments, entries, key=1)
        arguments.put("entries", [{**group, "most_bytes": self._quotas.of_stream}])
        keys = self._stream_keys(entries.namespace, entries.name)
        ids = await self._index.gathered_appends.run(arguments.call("append", keys))
        return [id_.decode() for id_ in ids]

    def _stream_keys(self, namespace: str, name: str) -> tuple[str, str]:
        """The stream, and what is counted of it."""
        return self._index.keys.stream(namespace, name), self._index.keys.stream_state(
            namespace, name
        )

    def _settle_call(
        self,
        claim: messages.Claim,
        settlement: messages.Settlement,
        entries: Sequence[messages.Entries] = (),
    ) -> scripting.Call:
        names = self._index.shard(claim.shard)
        parts, named = _parts(claim, settlement)
        if settlement.whole:
            _check_whole(claim, settlement)
        is_whole = settlement.whole or _names_all(claim, settlement, named)
        arguments = scripting.Arguments(
            layout=sharding.layout_of(claim.shard),
            number=settlement.number,
            whole=is_whole,
            named=len(claim.points) if settlement.whole else len(named),
            every=settlement.whole,
            runs_bytes=runs_bytes(self._index.known_layout().shards),
            runs_age=RUNS_AGE_SECONDS * 1000,
        )
        if any(one.point.due_us == points.HELD_US for one in settlement.occurrences):
            arguments.put("holds", value=True)
        arguments.put("id", arguments.position(claim.id))
        keys = [
            names.meta, names.heads, names.claims, names.leases, names.occ, names.occrec,
            names.runs, names.dead, names.ran, names.wake,
        ]  # fmt: skip
        lanes: list[dict[str, Any]] = []
        whole_lanes = {} if is_whole else _whole_lanes(claim, settlement, named)
        key_of: dict[int, int] = {}
        for lane, part in parts.items():
            keys.append(names.lane(lane))
            key_of[lane] = len(keys)
            lanes.append(
                {
                    "lane": str(lane),
                    "key": len(keys),
                    "whole": whole_lanes.get(lane, 0),
                    "chains": arguments.run(part.chains),
                    "moved": [
                        (str(records.checked_due(due_us)), arguments.position(b"".join(members)))
                        for due_us, members in part.moved.items()
                    ],
                    "finished": arguments.run(part.finished),
                    "occurrences": arguments.run(part.occurrences),
                    "sources": arguments.run(part.sources),
                }
            )
        arguments.put("lanes", lanes)
        crowds = _crowds(arguments, claim, settlement, key_of)
        arguments.put("crowds", crowds)
        arguments.put("records", arguments.run(_records(settlement.occurrences)))
        if settlement.dead or crowds:
            arguments.put("letters", self._letters(names, keys))
        arguments.put("dead", [_dead(arguments, letter) for letter in settlement.dead])
        arguments.put("ended", self._ended(claim, settlement, keys, arguments))
        arguments.put("counted", self._counted(claim, settlement, keys, arguments))
        arguments.put("outcomes", arguments.run(filter(None, [settlement.outcomes])))
        if not entries:
            return arguments.call("settle", keys)
        groups = []
        for group in entries:
            keys += self._stream_keys(group.namespace, group.name)
            made = _entries(arguments, group, key=len(keys) - 1)
            groups.append({**made, "most_bytes": self._quotas.of_stream})
        arguments.put("entries", groups)
        return arguments.call("deliver", keys)

    def _letters(self, names: ShardKeys, keys: list[str]) -> dict[str, int]:
        """Where letters are buried, and how many."""
        keys += (names.letters, names.letter_sums)
        share = self._quotas.of_shard(self._index.known_layout().shards)
        return {
            "order": len(keys) - 1,
            "sums": len(keys),
            "entries": share.entries,
            "bytes": share.bytes,
            "all": quotas.SHARD_LETTERS,
        }

    def _ended(
        self,
        claim: messages.Claim,
        settlement: messages.Settlement,
        keys: list[str],
        arguments: scripting.Arguments,
    ) -> list[tuple[int, int, int]]:
        """Buckets, ids and chain members of the schedules that are completed."""
        if not settlement.ended:
            return []
        chains = {
            point.schedule_id: point.member
            for point in claim.points
            if point.kind is points.PointKind.CHAIN
        }
        ended = []
        for schedule_id in settlement.ended:
            if schedule_id not in chains:
                raise errors.Bug("a schedule was ended whose chain is not in the claim")
            keys.append(self._index.shard(claim.shard).bucket_of(schedule_id, self._index.buckets))
            ended.append(
                (
                    len(keys),
                    arguments.position(schedule_id),
                    arguments.position(chains[schedule_id]),
                )
            )
        return ended

    def _counted(
        self,
        claim: messages.Claim,
        settlement: messages.Settlement,
        keys: list[str],
        arguments: scripting.Arguments,
    ) -> list[tuple[int, int, int]]:
        """Buckets, ids and members of the slots that are counted."""
        counted = []
        for member in settlement.counted:
            schedule_id = points.ScheduleId(member[:_ID_LENGTH])
            keys.append(self._index.shard(claim.shard).bucket_of(schedule_id, self._index.buckets))
            at_id, at_member = arguments.position(schedule_id), arguments.position(member)
            counted.append((len(keys), at_id, at_member))
        return counted

    def _plan_call(
        self, claim: messages.Claim, plannings: Sequence[messages.Planning]
    ) -> scripting.Call:
        names = self._index.shard(claim.shard)
        arguments = scripting.Arguments(
            layout=sharding.layout_of(claim.shard),
            runs_bytes=runs_bytes(self._index.known_layout().shards),
            runs_age=RUNS_AGE_SECONDS * 1000,
        )
        arguments.put("id", arguments.position(claim.id))
        keys = [
            names.meta, names.heads, names.claims, names.leases, names.occ, names.occrec,
            names.runs, names.ran, names.wake,
        ]  # fmt: skip
        key_of: dict[int, int] = {}
        for lane in claimedchains.lanes_of(claim):
            keys.append(names.lane(lane))
            key_of[lane] = len(keys)
        arguments.put("lanes", [{"lane": str(lane), "key": key} for lane, key in key_of.items()])
        plans = []
        for planning in plannings:
            schedule_id = planning.chain.schedule_id
            plan = _plan(arguments, planning, key_of[claim.lanes[schedule_id]])
            if planning.next_due_us is None:
                keys.append(names.bucket_of(schedule_id, self._index.buckets))
                plan.update(bucket=len(keys), id=arguments.position(schedule_id))
            plans.append(plan)
        arguments.put("plans", plans)
        outcomes = (planning.outcomes for planning in plannings if planning.outcomes)
        arguments.put("outcomes", arguments.run(outcomes))
        return arguments.call("plan", keys)


def _report_dropped(dropped: Sequence[bytes]) -> None:
    """Dead letters that had to go: the namespace of each."""
    for namespace, count in collections.Counter(dropped).items():
        telemetry.dead_letters_dropped_total.inc(count)
        telemetry.logger.warning(
            "a namespace has more dead letters than it may keep: its oldest are gone",
            namespace=namespace.decode(errors="replace"),
            letters=count,
        )


def _members(claim: messages.Claim) -> set[bytes]:
    """What the claim began with."""
    if isinstance(claim.points, claimedchains.ClaimedChains):
        return set(claim.points.members)
    members = {point.member for point in claim.points}
    members.update(member for member, _ in claim.strangers)
    return members


def _names_all(claim: messages.Claim, settlement: messages.Settlement, named: set[bytes]) -> bool:
    """Whether everything that the claim began with is named, by its first settlement."""
    return (
        settlement.number == 1
        and len(named) == len(claim.points) + len(claim.strangers)
        and named == _members(claim)
        and _follow(settlement, named)
    )


def _check_whole(claim: messages.Claim, settlement: messages.Settlement) -> None:
    named = (
        settlement.chains, settlement.rearmed, settlement.finished, settlement.ended,
        settlement.dead, settlement.occurrences, settlement.counted, claim.strangers,
        claim.records,
    )  # fmt: skip
    if settlement.number != 1 or any(named):
        raise errors.Bug("only a claim of chains can be finished whole, and only at once")


def _rearm(claim: messages.Claim, rearmed: nextdues.Rearmed, parts: dict[int, _LanePart]) -> None:
    """Many chains at their next dues, of which few differ."""
    if len(parts) == 1:
        (part,) = parts.values()
        moved = part.moved
        for due_us, member in zip(rearmed.dues_us, rearmed.members, strict=True):
            moved[due_us].append(member)
        return
    lanes = _lanes_of(claim, rearmed.members)
    for lane, due_us, member in zip(lanes, rearmed.dues_us, rearmed.members, strict=True):
        parts[lane].moved[due_us].append(member)


def _lanes_of(claim: messages.Claim, members: Sequence[bytes]) -> list[int]:
    """The lane of each member."""
    if isinstance(claim.lanes, claimedchains.LanesOfChains):
        return list(map(claim.lanes.by_member().__getitem__, members))
    return [claim.lanes[member[:_ID_LENGTH]] for member in members]


def _whole_lanes(
    claim: messages.Claim, settlement: messages.Settlement, named: set[bytes]
) -> dict[int, int]:
    """The lanes of which everything is named, with the number of their points.

    Of settlements that do nothing but move chains on or end them.
    """
    more = settlement.occurrences, settlement.dead, settlement.ended, settlement.counted
    if any(more) or not isinstance(claim.lanes, claimedchains.LanesOfChains):
        return {}
    return {
        lane: len(members) for lane, members in claim.lanes.by_lane().items() if members <= named
    }


def _parts(
    claim: messages.Claim, settlement: messages.Settlement
) -> tuple[dict[int, _LanePart], set[bytes]]:
    """The settlement by lane (every lane of the claim), and the members it names."""
    parts = {lane: _LanePart() for lane in claimedchains.lanes_of(claim)}
    began_with = _members(claim) if settlement.occurrences else frozenset()
    buried = (letter.member for letter in settlement.dead if letter.member)
    gone = dict.fromkeys((*settlement.finished, *buried))
    named = set(gone)
    for chain in settlement.chains:
        part = parts[claim.lanes[chain.schedule_id]]
        part.chains += (str(records.checked_due(chain.due_us)), chain.member)
        named.add(chain.member)
    if settlement.rearmed:
        rearmed = nextdues.columns(settlement.rearmed)
        _rearm(claim, rearmed, parts)
        named.update(rearmed.members)
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


def _follow(settlement: messages.Settlement, named: set[bytes]) -> bool:
    """Whether every new occurrence follows something that the settlement names."""
    return all(
        not occurrence.source or occurrence.source in named for occurrence in settlement.occurrences
    )


def _records(occurrences: Sequence[messages.Occurrence]) -> list[bytes | str]:
    values: list[bytes | str] = []
    for occurrence in occurrences:
        values += (occurrence.point.member, records.pack(occurrence.record))
    return values


def _crowds(
    arguments: scripting.Arguments,
    claim: messages.Claim,
    settlement: messages.Settlement,
    key_of: Mapping[int, int],
) -> list[tuple[str, int, int, int, int, int]]:
    """Schedules that have more open retries after this settlement than before."""
    tried_again = {
        occurrence.point.schedule_id: occurrence
        for occurrence in settlement.occurrences
        if occurrence.point.kind is points.PointKind.RETRY
        and occurrence.point.member not in claim.records
    }
    crowds = []
    for schedule_id, occurrence in tried_again.items():
        lane = claim.lanes[schedule_id]
        position = arguments.position(schedule_id)
        entry = retrylimit.entry(occurrence)
        first, last = arguments.run(part for pair in entry.items() for part in pair)
        most = occurrence.most_open
        crowds.append((str(lane), key_of[lane], position, first, last, most))
    return crowds


def _dead(arguments: scripting.Arguments, letter: messages.DeadLetter) -> tuple[int, int, int]:
    fields = [part for pair in letter.entry.items() for part in pair]
    position = arguments.position(letter.member) if letter.member else 0
    first, last = arguments.run(fields)
    return position, first, last


def _entries(
    arguments: scripting.Arguments,
    entries: messages.Entries,
    *,
    key: int,
) -> dict[str, object]:
    """What all entries have alike is sent once, which also spares the server its handling."""
    are_chains = set(map(len, entries.members)) == {points.CHAIN_LENGTH}
    columns = list(zip(*entries.values, strict=True))
    own = [
        number
        for number, column in enumerate(columns, start=1)
        if number == 1 or column.count(column[0]) < len(column)
    ]
    values = zip(*(columns[number - 1] for number in own), strict=True)
    alike = quotas.entry_bytes((*(column[0] for column in columns), *entries.same[1::2]))
    return {
        "key": key,
        "state": key + 1,
        "bytes": alike * len(entries.members),
        "max_length": entries.max_length,
        "members": arguments.run(() if are_chains else entries.members),
        "joined": arguments.position(b"".join(entries.members)) if are_chains else 0,
        "names": arguments.run((*entries.names, *entries.same[::2])),
        "common": arguments.run((*(column[0] for column in columns), *entries.same[1::2])),
        "own": own,
        "values": arguments.run(itertools.chain.from_iterable(values)),
        "outcome": arguments.position(entries.outcomes) if entries.outcomes else 0,
    }


def _plan(
    arguments: scripting.Arguments, planning: messages.Planning, key: int
) -> dict[str, object]:
    plan: dict[str, object] = {
        "key": key,
        "chain": arguments.position(planning.chain.member),
        "slots": arguments.run(_records(planning.slots)),
    }
    if planning.next_due_us is not None:
        plan["due"] = records.checked_due(planning.next_due_us)
    return plan
