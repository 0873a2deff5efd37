"""Another number of shards while everything runs: what the leader does, step by step.

Asked for by anybody (``ask_partition``), done by the leader with its term: the layout record names
both layouts (``announce_partition``), each former shard takes no new schedules and gives away what
nobody holds (``move``, in bounded steps, pass after pass), is closed when nothing is left
(``close_shard``), and at the end the new layout stands alone (``end_partition``). Every step may be
repeated and every one may be the last of a process: what is to be done next is read from the index.
What gives a shard away in which order is ``emptying``'s, how one batch travels ``moving``'s.
"""

from __future__ import annotations

from collections.abc import Iterable

from duepoint import errors
from duepoint.delayqueue import messages, sharding
from duepoint.delayqueue.resharding import emptying, layouts, membership
from duepoint.delayqueue.wire import scripting

_COUNTED_AT_ONCE = 500


class Partitioning(membership.Membership, emptying.Emptying):
    """ask_partition, partitioning, and the leader's steps."""

    # -- asking -----------------------------------------------------------------------------------

    async def ask_partition(self, shards: int) -> messages.Asked:
        if not sharding.is_possible(shards):
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
        *numbers, phase, moved, left, waiting = reply
        number, shards, former, wanted = map(layouts.number_of, numbers)
        return messages.Partitioning(
            layout=number,
            shards=shards,
            former_shards=former,
            wanted=wanted,
            phase=_phase(phase, is_cut=bool(former)),
            moved=layouts.number_of(moved),
            left=layouts.number_of(left),
            waiting=(waiting or b"").decode(errors="replace"),
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
        newest = layouts.number_of(layout)
        return tuple(
            worker.decode(errors="replace")
            for worker in workers
            if layouts.number_of(seen.get(worker)) < newest
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
        return bytes(state).decode(errors="replace")

    async def count_definitions(self, shard: messages.ShardId) -> int:
        buckets = self._all_buckets(shard, await self.namespaces(shard))
        counted = 0
        for chunk in emptying.chunks(buckets, _COUNTED_AT_ONCE):
            counted += sum(await self._read("count", *(("HLEN", bucket) for bucket in chunk)))
        return counted

    async def close_shard(self, shard: messages.ShardId, epoch: messages.Epoch) -> str:
        names, namespaces = self._shard(shard), await self.namespaces(shard)
        if await self._is_any_definition_left(shard, namespaces):
            return "definitions"
        lanes = [names.lane(lane) for lane in namespaces]
        for chunk in emptying.chunks(lanes, _COUNTED_AT_ONCE):
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
        for chunk in (*emptying.chunks(gone, _COUNTED_AT_ONCE), [names.interned]):
            await self._read("unlink a closed shard", ("UNLINK", *chunk))
        self._namespaces_of.pop(shard, None)


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


def _phase(text: bytes | None, *, is_cut: bool) -> messages.Phase:
    """What is said, where this version knows the word."""
    try:
        return messages.Phase((text or b"stable").decode())
    except ValueError:
        return messages.Phase.MOVING if is_cut else messages.Phase.STABLE
