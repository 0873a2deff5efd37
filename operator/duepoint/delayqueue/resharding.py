"""Changes the number of shards while everything runs: the steps of the leader.

Any process may ask for it (``ask``); the leader does it under its term. First the layout record
names both layouts (``announce``). Then each former shard takes no new schedules and gives away
those that no worker holds, in bounded steps, pass after pass (``moving``). It is closed when it is
empty (``close``). At the end only the new layout is left (``end``). Every step may be repeated, and
a process may die after any of them: the next step is always read from the index.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from duepoint import errors
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import index, layouts, messages, moving, sharding


class ReshardingAnswer(enum.StrEnum):
    """The answer to a request for another number of shards."""

    ASKED = "asked"  # the leader begins within seconds
    DONE = "done"  # the index has that many
    MOVING = "moving"  # it is being resharded to that many
    OTHER = "other"  # it is being resharded to another number: ask again afterwards


class Phase(enum.StrEnum):
    """How far the move to a new layout is."""

    STABLE = "stable"
    ANNOUNCED = "announced"  # workers learn of the new shards
    MOVING = "moving"  # schedules move
    CLOSING = "closing"  # only unread outcomes are left


@dataclass(frozen=True, slots=True, kw_only=True)
class ReshardingProgress:
    """The layout of the index and the progress of its resharding.

    Attributes:
        shards: shards of the layout that new schedules go to.
        former_shards: shards of the layout that is being emptied; 0 = none is.
        wanted: number of shards requested and not begun; 0 = none.
        moved, left: definitions, as counted at the beginning and since.
        waiting: what the move waits for, in words; empty = nothing.
    """

    layout: int
    shards: int
    former_shards: int
    wanted: int
    phase: Phase
    moved: int
    left: int
    waiting: str


@dataclass(eq=False)
class Resharding:
    """Changes the number of shards while everything runs."""

    index: index.Index
    membership: layouts.Membership
    layouts: layouts.Layouts
    mover: moving.Mover

    # -- asking -----------------------------------------------------------------------------------

    async def ask(self, shards: int) -> ReshardingAnswer:
        """Request another number of shards; raises InvalidSetting for an impossible one.

        Any process may ask. The leader sees it when it next reads the layout, and begins.
        """
        if not sharding.is_possible(shards):
            raise errors.InvalidSetting(
                "shards",
                f"{shards} is not a power of two up to {sharding.MOST_SHARDS}; set 64, or 256",
            )
        layout = await self.layouts.read()
        if layout.former is not None:
            is_wanted = shards == layout.shards
            return ReshardingAnswer.MOVING if is_wanted else ReshardingAnswer.OTHER
        expected = {"layout": layout.number, "former": ""}
        if shards == layout.shards:
            await self.layouts.change(None, {}, expected=expected, gone=["wanted"])
            return ReshardingAnswer.DONE
        changed = await self.layouts.change(None, {"wanted": shards}, expected=expected)
        return await self.ask(shards) if changed is None else ReshardingAnswer.ASKED

    async def progress(self) -> ReshardingProgress:
        """Return how far the resharding is."""
        (reply,) = await self.index.read(
            "read the layout",
            (
                "HMGET", self.index.keys.layout,
                "layout", "shards", "former_shards", "wanted", "phase", "moved", "left", "waiting",
            ),
        )  # fmt: skip
        if reply[0] is None:
            raise queue_errors.Uninitialised("the index does not exist; the operator creates it")
        *numbers, phase, moved, left, waiting = reply
        number, shards, former, wanted = map(layouts.number_of, numbers)
        return ReshardingProgress(
            layout=number,
            shards=shards,
            former_shards=former,
            wanted=wanted,
            phase=Phase((phase or b"stable").decode()),
            moved=layouts.number_of(moved),
            left=layouts.number_of(left),
            waiting=(waiting or b"").decode(errors="replace"),
        )

    # -- the layout record -------------------------------------------------------------------------

    async def announce(self, shards: int, epoch: messages.Epoch) -> messages.Layout:
        """Make a new layout that is filled from the present one; if it exists, only read it."""
        layout = await self.layouts.read()
        if layout.former is None:
            fields = {
                "former": layout.number,
                "former_shards": layout.shards,
                "layout": layout.number + 1,
                "shards": shards,
                **layouts.BEGUN,
            }
            expected = {"layout": layout.number, "former": ""}
            changed = await self.layouts.change(epoch, fields, expected=expected, gone=["wanted"])
            if changed is None:
                return await self.announce(shards, epoch)
            layout = changed
        self.layouts.wanted_shards = 0
        await self.membership.make_shards(layout, epoch)
        return layout

    async def record_progress(
        self, epoch: messages.Epoch, *, phase: Phase, moved: int, left: int, waiting: str = ""
    ) -> messages.Layout:
        """Write the progress into the layout record; the phase STABLE ends the resharding."""
        fields: dict[str, object] = {"moved": moved, "left": left}
        gone = ["former", "former_shards", "phase", "waiting"]
        if phase is Phase.STABLE:
            fields["state"] = "stable"
        else:
            fields |= {"phase": phase.value, "waiting": waiting}
        changed = await self.layouts.change(
            epoch,
            fields,
            expected={"layout": self.index.known_layout().number},
            gone=gone if phase is Phase.STABLE else (),
        )
        if changed is None:
            raise queue_errors.LayoutChanged("the index was resharded meanwhile")
        return changed

    async def end(self, epoch: messages.Epoch, *, moved: int = 0) -> messages.Layout:
        """End the resharding: every former shard is closed, only the new layout is left."""
        return await self.record_progress(epoch, phase=Phase.STABLE, moved=moved, left=0)

    # -- the state of a shard ----------------------------------------------------------------------

    async def open_own(self, layout: messages.Layout, epoch: messages.Epoch) -> None:
        """Open every shard of a layout without a former one, so that it takes schedules.

        A server that lost only the layout, or everything while a move began, may still have shards
        in the state of that move; nothing else would ever end that state.
        """
        for shard in sharding.own_shards(layout):
            await self.mover.change_state(shard, "open", epoch)

    async def shard_state(self, shard: messages.ShardId) -> str:
        """Return ``open``, ``draining`` or ``closed``."""
        (state,) = await self.index.read(
            "read a shard's state", ("HGET", self.index.shard(shard).meta, "state")
        )
        if state is None:
            raise queue_errors.Uninitialised(f"shard {shard} holds no index")
        return bytes(state).decode(errors="replace")

    async def count_definitions(self, shard: messages.ShardId) -> int:
        buckets = await self.mover.buckets(shard)
        return sum(await self.index.read_many("count", [("HLEN", each) for each in buckets]))

    async def close(self, shard: messages.ShardId, epoch: messages.Epoch) -> str:
        """Close a former shard and remove its keys; return "" or what is still left in it.

        That is ``points``, ``outcomes`` or ``dead``. The last pass left no schedule here, and no
        new one can come: when no worker holds a point any more, nothing can be added.
        """
        names = self.index.shard(shard)
        (claims,) = await self.index.read("close a shard", ("ZCARD", names.claims))
        if claims > 1:  # one is the sentinel
            return "points"
        outcomes, counted, *letters = await self.index.read(
            "close a shard",
            ("XLEN", names.runs),
            ("HLEN", names.ledger),
            *(("XLEN", log) for log in await self._logs(shard)),
        )
        if outcomes or counted > 1:
            return "outcomes"
        if any(letters):
            return "dead"
        await self.mover.change_state(shard, "closed", epoch)
        await self.unlink_closed(shard)
        return ""

    async def _logs(self, shard: messages.ShardId) -> list[str]:
        (lanes,) = await self.mover.letters.lanes_of([shard])
        return [self.index.shard(shard).log(lane) for lane in lanes]

    async def unlink_closed(self, shard: messages.ShardId) -> None:
        """Remove the keys of a closed shard; a crash after the closing may have left some."""
        names, buckets = self.index.shard(shard), await self.mover.buckets(shard)
        gone = [names.lane(lane) for lane in await self.mover.reader.lanes(shard)]
        gone += [*buckets, names.logs, *await self._logs(shard)]
        # Keep `meta`: it names all lanes, which a process that goes on after a crash needs.
        gone += [key for key in self.index.call("init", shard).keys if key != names.meta]
        await self.index.read_many("unlink a closed shard", [("UNLINK", key) for key in gone])
