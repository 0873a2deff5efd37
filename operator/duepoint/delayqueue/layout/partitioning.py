"""Another number of shards while everything runs: what the leader does, step by step.

Asked for by anybody (``ask_partition``), done by the leader with its term: the layout record names
both layouts (``announce_partition``), each former shard takes no new schedules and gives away what
nobody holds (``move``, in bounded steps, pass after pass), is closed when nothing is left
(``close_shard``), and at the end the new layout stands alone (``end_partition``). Every step may be
repeated and every one may be the last of a process: what is to be done next is read from the index.
How one batch travels is ``moving``'s.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from duepoint import errors
from duepoint.delayqueue import keys, messages, sharding
from duepoint.delayqueue.layout import membership, moving
from duepoint.delayqueue.wire import scripting
from duepoint.schedules import definition as definitions
from duepoint.schedules import points

#: Schedules of one batch, and occurrences that go with them: some 2 ms of the server's time.
_MOST_SCHEDULES = 200
_MOST_OCCURRENCES = 500
_BUCKETS_PER_STEP = 16
_LANES_PER_STEP = 32
_POINTS_PER_LANE = 100
_SCAN_COUNT = 500
_COUNTED_AT_ONCE = 500
_LETTERS_PER_STEP = 100

#: Ids of one bucket and lane: lane, bucket, ids.
_Group = tuple[int, str, list[bytes]]


class Partitioning(membership.Membership, moving.Moving):
    """ask_partition, partitioning, and the leader's steps."""

    def __init__(self, *args: Any, **named: Any) -> None:  # noqa: ANN401 - Core's own
        super().__init__(*args, **named)
        self._namespaces_of: dict[messages.ShardId, dict[int, str]] = {}

    # -- asking -----------------------------------------------------------------------------------

    async def ask_partition(self, shards: int) -> messages.Asked:
        if not (sharding.is_power_of_two(shards) and shards <= sharding.MOST_SHARDS):
            raise errors.InvalidSetting(
                "shards",
                f"{shards} is no power of two up to {sharding.MOST_SHARDS};"
                f" write {_nearest_power(shards)}",
            )
        call = scripting.Arguments(shards=shards).call("ask", [self._keys.layout])
        answer, _ = await self._scripts.run(call)
        return messages.Asked(answer.decode())

    async def partitioning(self) -> messages.Partitioning:
        (reply,) = await self._read(
            "read the layout",
            (
                "HMGET", self._keys.layout, "layout", "shards", "former_shards", "wanted", "phase",
                "moved", "left", "waiting",
            ),
        )  # fmt: skip
        if reply[0] is None:
            raise scripting.Uninitialised("there is no index yet: the operator makes it")
        number, shards, former, wanted, phase, moved, left, waiting = reply
        return messages.Partitioning(
            layout=int(number),
            shards=int(shards),
            former_shards=int(former or 0),
            wanted=int(wanted or 0),
            phase=messages.Phase((phase or b"stable").decode()),
            moved=int(moved or 0),
            left=int(left or 0),
            waiting=(waiting or b"").decode(),
        )

    # -- the layout record -------------------------------------------------------------------------

    async def announce_partition(self, shards: int, epoch: messages.Epoch) -> messages.Layout:
        arguments = scripting.Arguments(epoch=epoch, shards=shards)
        reply = await self._scripts.run(arguments.call("announce", [self._keys.layout]))
        self._wanted_shards = 0
        layout = self._remember(reply)
        await self._make_shards(layout, epoch)
        return layout

    async def unaware_workers(self) -> tuple[str, ...]:
        workers, seen, layout = await self._read(
            "read who knows the layout",
            ("ZRANGE", self._keys.workers, 0, -1),
            ("HGETALL", self._keys.seen),
            ("HGET", self._keys.layout, "layout"),
        )
        return tuple(
            worker.decode() for worker in workers if int(seen.get(worker, 0)) < int(layout or 0)
        )

    async def note_progress(
        self,
        epoch: messages.Epoch,
        *,
        phase: messages.Phase,
        moved: int,
        left: int,
        waiting: str = "",
    ) -> None:
        await self._note_progress(epoch, phase=phase, moved=moved, left=left, waiting=waiting)

    async def end_partition(self, epoch: messages.Epoch, *, moved: int = 0) -> messages.Layout:
        layout = self._known_layout()
        calls = []
        for shard in sharding.own_shards(layout):
            names = self._shard(shard)
            arguments = scripting.Arguments(layout=layout.number, epoch=epoch)
            calls.append(arguments.call("filled", [names.meta, names.imported]))
        _raise_first(await self._scripts.run_many(calls))
        reply = await self._note_progress(
            epoch, phase=messages.Phase.STABLE, moved=moved, left=0, waiting="", done=True
        )
        return self._remember(reply)

    async def _note_progress(
        self, epoch: messages.Epoch, *, phase: messages.Phase, done: bool = False, **named: object
    ) -> list[bytes]:
        arguments = scripting.Arguments(
            epoch=epoch, layout=self._known_layout().number, phase=phase.value, done=done, **named
        )
        reply: list[bytes] = await self._scripts.run(
            arguments.call("progress", [self._keys.layout])
        )
        return reply

    # -- one former shard --------------------------------------------------------------------------

    async def shard_state(self, shard: messages.ShardId) -> str:
        (state,) = await self._read(
            "read a shard's state", ("HGET", self._shard(shard).meta, "state")
        )
        if state is None:
            raise scripting.Uninitialised(f"shard {shard} holds no index")
        return bytes(state).decode()

    async def count_definitions(self, shard: messages.ShardId) -> int:
        buckets = self._all_buckets(shard, await self.namespaces(shard))
        counted = 0
        for chunk in _chunks(buckets, _COUNTED_AT_ONCE):
            counted += sum(await self._read("count", *(("HLEN", bucket) for bucket in chunk)))
        return counted

    async def move(
        self,
        shard: messages.ShardId,
        cursor: str | None,
        epoch: messages.Epoch,
        *,
        hold_seconds: float = 0.0,
    ) -> messages.Moved:
        if cursor is None:
            await self._begin(shard, epoch, hold_seconds)
            cursor = "d0"
        namespaces = self._namespaces_of[shard]
        first = int(cursor[1:])
        if cursor.startswith("d"):
            return await self._move_buckets(shard, first, epoch, namespaces)
        if cursor.startswith("p"):
            return await self._move_followers(shard, first, epoch, namespaces)
        more = await self._move_letters(shard, epoch)
        return messages.Moved(cursor="x0" if more else None)

    async def close_shard(self, shard: messages.ShardId, epoch: messages.Epoch) -> str:
        names, namespaces = self._shard(shard), await self.namespaces(shard)
        if await self._is_any_definition_left(shard, namespaces):
            return "definitions"
        lanes = [names.lane(lane) for lane in namespaces]
        for chunk in _chunks(lanes, _COUNTED_AT_ONCE):
            counts = await self._read(
                "count", *(("ZCOUNT", lane, "-inf", "(+inf") for lane in chunk)
            )
            if any(counts):
                return "points"
        arguments = scripting.Arguments(layout=sharding.layout_of(shard), epoch=epoch)
        keys_ = [names.meta, names.claims, names.runs, names.dead]
        answer = (await self._scripts.run(arguments.call("close", keys_))).decode()
        if answer == "closed":
            await self.unlink_closed(shard)
            return ""
        return str(answer)

    async def unlink_closed(self, shard: messages.ShardId) -> None:
        names, namespaces = self._shard(shard), await self.namespaces(shard)
        gone = [names.lane(lane) for lane in namespaces]
        gone += self._all_buckets(shard, namespaces)
        gone += [name for name in membership.fixed_keys(names) if name != names.meta]
        gone.remove(names.interned)
        # The names of all lanes stand in it: whoever goes on after a crash needs them.
        for chunk in (*_chunks(gone, _COUNTED_AT_ONCE), [names.interned]):
            await self._read("unlink a closed shard", ("UNLINK", *chunk))
        self._namespaces_of.pop(shard, None)

    # -- steps of a pass ---------------------------------------------------------------------------

    async def _begin(
        self, shard: messages.ShardId, epoch: messages.Epoch, hold_seconds: float
    ) -> None:
        arguments = scripting.Arguments(
            layout=sharding.layout_of(shard), epoch=epoch, hold=int(hold_seconds * 1_000_000)
        )
        await self._scripts.run(arguments.call("drain", [self._shard(shard).meta]))
        await self._clock.sleep(hold_seconds / 2)
        await self.finish_moves(shard)
        self._namespaces_of[shard] = await self.namespaces(shard)

    async def _move_buckets(
        self,
        shard: messages.ShardId,
        first: int,
        epoch: messages.Epoch,
        namespaces: dict[int, str],
    ) -> messages.Moved:
        buckets = self._all_buckets(shard, namespaces)
        moved = left_out = 0
        scans = dict.fromkeys(buckets[first : first + _BUCKETS_PER_STEP], 0)
        while scans:
            replies = await self._read(
                "read definitions to move",
                *(("HSCAN", name, scan, "COUNT", _SCAN_COUNT) for name, scan in scans.items()),
            )
            groups = _groups(zip(scans, (found for _, found in replies), strict=True))
            for part in _parts(groups):
                brought, busy = await self._export(shard, epoch, schedules=part)
                moved, left_out = moved + brought, left_out + busy
            scans = {
                name: int(scan) for name, (scan, _) in zip(scans, replies, strict=True) if int(scan)
            }
        following = first + _BUCKETS_PER_STEP
        cursor = f"d{following}" if following < len(buckets) else "p0"
        return messages.Moved(cursor=cursor, moved=moved, left_out=left_out)

    async def _move_followers(
        self,
        shard: messages.ShardId,
        first: int,
        epoch: messages.Epoch,
        namespaces: dict[int, str],
    ) -> messages.Moved:
        """Occurrences that a worker held when their definition went, and points of nobody."""
        names, lanes = self._shard(shard), sorted(namespaces)
        chunk = lanes[first : first + _LANES_PER_STEP]
        limit = f"({points.DUE_LIMIT_US}"
        found = await self._read(
            "read points to move",
            *(
                ("ZRANGE", names.lane(lane), "-inf", limit, "BYSCORE", "LIMIT", 0, _POINTS_PER_LANE)
                for lane in chunk
            ),
        )
        groups: list[_Group] = []
        for lane, members in zip(chunk, found, strict=True):
            by_bucket: dict[str, list[bytes]] = {}
            for member in members:
                bucket = names.bucket_of(points.ScheduleId(member[:8]), self._buckets)
                by_bucket.setdefault(bucket, []).append(member)
            groups += [(lane, bucket, some) for bucket, some in by_bucket.items()]
        left_out = 0
        for part in _parts(groups):
            left_out += (await self._export(shard, epoch, followers=part))[1]
        following = first + _LANES_PER_STEP
        cursor = f"p{following}" if following < len(lanes) else "x0"
        return messages.Moved(cursor=cursor, left_out=left_out)

    async def _export(
        self,
        shard: messages.ShardId,
        epoch: messages.Epoch,
        *,
        schedules: Sequence[_Group] = (),
        followers: Sequence[_Group] = (),
    ) -> tuple[int, int]:
        """Move one batch, as far as nobody holds it; how many went and how many did not."""
        names = self._shard(shard)
        used = moving.Keys(
            names.meta, names.heads, names.claims, names.leases, names.occ, names.occrec,
            names.dead,
        )  # fmt: skip
        arguments = scripting.Arguments(
            layout=sharding.layout_of(shard), epoch=epoch, most=_MOST_OCCURRENCES
        )
        batch = os.urandom(16)
        arguments.put("batch", arguments.position(batch))
        for name, groups in (("schedules", schedules), ("followers", followers)):
            arguments.put(
                name,
                [
                    (
                        str(lane),
                        used.position(names.lane(lane)),
                        used.position(bucket),
                        *arguments.run(members),
                    )
                    for lane, bucket, members in groups
                ],
            )
        left_out, taken = await self._scripts.run(arguments.call("export", used.names))
        travellers = [moving.Traveller.of(one) for one in taken]
        if travellers:
            await self._bring(shard, batch, travellers)
        return sum(bool(one.record) for one in travellers), left_out

    async def _move_letters(self, shard: messages.ShardId, epoch: messages.Epoch) -> bool:
        """Some dead letters lie in the new shards; whether there may be more."""
        names = self._shard(shard)
        (found,) = await self._read(
            "read dead letters", ("XRANGE", names.dead, "-", "+", "COUNT", _LETTERS_PER_STEP)
        )
        if not found:
            return False
        by_home: dict[messages.ShardId, list[tuple[bytes, dict[bytes, bytes]]]] = {}
        for letter, raw in found:
            fields = raw if isinstance(raw, dict) else dict(zip(raw[::2], raw[1::2], strict=True))
            by_home.setdefault(self._letter_home(shard, fields), []).append((letter, fields))
        for home, letters in by_home.items():
            target = self._shard(home)
            arguments = scripting.Arguments(
                layout=sharding.layout_of(home), epoch=epoch, source=names.tag
            )
            listed = [
                (letter.decode(), *arguments.run(part for pair in fields.items() for part in pair))
                for letter, fields in letters
            ]
            arguments.put("letters", listed)
            await self._scripts.run(
                arguments.call("rebury", [target.meta, target.dead, target.imported])
            )
        ids = [letter for letter, _ in found]
        await self._read("forget dead letters", ("XDEL", names.dead, *ids))
        return len(found) == _LETTERS_PER_STEP

    def _letter_home(self, shard: messages.ShardId, fields: dict[bytes, bytes]) -> messages.ShardId:
        layout, member = self._known_layout(), fields.get(b"member", b"")
        if len(member) >= points.CHAIN_LENGTH:
            schedule_id = points.ScheduleId(member[:8])
        else:
            uid, namespace = (fields.get(name, b"").decode() for name in (b"uid", b"namespace"))
            schedule_id = points.schedule_id(uid, namespace)
        home = sharding.home(schedule_id, layout)
        return home if home in sharding.fed_by(shard, layout) else sharding.fed_by(shard, layout)[0]

    # -- what is there -----------------------------------------------------------------------------

    def _all_buckets(self, shard: messages.ShardId, namespaces: dict[int, str]) -> list[str]:
        names = self._shard(shard)
        populations = sorted({keys.population_of(name) for name in namespaces.values()})
        return [
            names.bucket(population, number)
            for population in populations
            for number in range(self._buckets)
        ]

    async def _is_any_definition_left(
        self, shard: messages.ShardId, namespaces: dict[int, str]
    ) -> bool:
        """Records that nobody can read do not count: they are written anew from their objects."""
        for chunk in _chunks(self._all_buckets(shard, namespaces), _COUNTED_AT_ONCE):
            counts = await self._read("count", *(("HLEN", bucket) for bucket in chunk))
            for bucket, count in zip(chunk, counts, strict=True):
                if not count:
                    continue
                ((_, found),) = await self._read(
                    "read definitions", ("HSCAN", bucket, 0, "COUNT", _SCAN_COUNT)
                )
                if _groups([(bucket, found)]):
                    return True
        return False


def _groups(found: Iterable[tuple[str, dict[bytes, bytes]]]) -> list[_Group]:
    groups: list[_Group] = []
    for bucket, records in found:
        by_lane: dict[int, list[bytes]] = {}
        for schedule_id, record in records.items():
            try:
                lane, *_ = definitions.numbers(record)
            except definitions.UnknownFormat:
                continue
            by_lane.setdefault(lane, []).append(schedule_id)
        groups += [(lane, bucket, ids) for lane, ids in by_lane.items()]
    return groups


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


def _chunks(names: Sequence[str], size: int) -> Iterator[list[str]]:
    for first in range(0, len(names), size):
        yield list(names[first : first + size])


def _raise_first(replies: Iterable[object]) -> None:
    for reply in replies:
        if isinstance(reply, errors.DuepointError):
            raise reply


def _nearest_power(shards: int) -> str:
    if shards < 1:
        return "1"
    below = min(1 << (shards.bit_length() - 1), sharding.MOST_SHARDS)
    above = below * 2
    return f"{below} or {above}" if above <= sharding.MOST_SHARDS else str(below)
