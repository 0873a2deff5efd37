"""The layout of the index, and who is alive.

The operator makes the index (``open``); everybody reads it. Shards are initialised before
the layout record names them, so that no process meets a half-made index; a shard that was emptied
alone is created anew the same way.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from duepoint import errors
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import index, layouts, messages, sharding
from duepoint.delayqueue.wire import scripting

RECORD_FORMAT = 1
#: A worker that has not said so for this long is not alive.
WORKER_TTL_SECONDS = 25.0
#: Longest text about a worker's trouble, in characters.
TROUBLE_LIMIT = 300
#: An installation that was not heard of for so long has gone, and another one takes its index over.
ABANDONED_SECONDS = 300.0


#: What the layout record says when a new layout begins to be filled.
BEGUN = {"state": "splitting", "phase": "announced", "moved": 0, "left": 0}


@dataclass(eq=False)
class Membership:
    """Makes the index, and says who is alive."""

    index: index.Index
    layouts: layouts.Layouts

    async def open(
        self,
        shards: int,
        epoch: messages.Epoch,
        *,
        noted: messages.Layout | None = None,
        by: str = "",
    ) -> messages.Layout:
        """The existing layout, every shard of it initialised; made as ``noted`` when absent.

        Without a note: the first layout, with ``shards``. The operator's. Idempotent; ``shards``
        is a power of two. ``by`` is the installation that opens it, where it says who it is.
        Raises ``queue_errors.Foreign`` where the index is of another cluster, or where another
        installation has opened it and has not been silent for five minutes.
        """
        existing = await self.layouts.record()
        if existing is None:
            await self._compare_owner_of_shards(noted or messages.Layout(number=1, shards=shards))
        wanted = existing or noted or messages.Layout(number=1, shards=shards)
        await self.make_shards(wanted, epoch)
        opened = None
        while opened is None:  # until no other operator changes it between reading and writing
            opened = await self._open(wanted, epoch, by)
        if opened != wanted:  # another operator was first, with another wish
            await self.make_shards(opened, epoch)
        return opened

    async def _open(
        self, wanted: messages.Layout, epoch: messages.Epoch, by: str
    ) -> messages.Layout | None:
        """The layout record exists; None where somebody else changed it at this moment."""
        (found, time) = await self.index.read(
            "read whose index it is",
            ("HMGET", self.index.keys.layout, "layout", "by", "seen"),
            ("TIME",),
        )
        layout, known_by, seen = ((field or b"").decode(errors="replace") for field in found)
        silent_us = scripting.time_us(time) - int(seen or 0)
        if by and known_by not in ("", by) and silent_us < ABANDONED_SECONDS * 1_000_000:
            raise queue_errors.Foreign(
                f"the installation {known_by} looked after it {silent_us // 1_000_000} s ago;"
                f" {scripting.OTHER_INDEX}"
            )
        fields: dict[str, object] = {"by": by} if by else {}
        if not layout:
            fields |= {"layout": wanted.number, "shards": wanted.shards, "state": "stable"}
            fields |= {"buckets": self.index.buckets, "incarnation": secrets.token_hex(8)}
        if not layout and (former := wanted.former) is not None:
            fields |= {"former": former.number, "former_shards": former.shards, **BEGUN}
        expected = {"layout": layout, "by": known_by, "seen": seen}
        return await self.layouts.change(
            epoch, fields, expected=expected, seen=bool(by), makes=True
        )

    async def _compare_owner_of_shards(self, layout: messages.Layout) -> None:
        """The layout record may be lost alone: the shards say whose index it was."""
        names = (
            self.index.keys.shard(sharding.layout_of(shard), sharding.index_of(shard))
            for shard in sharding.all_shards(layout)
        )
        marks = await self.index.read(
            "read whose index it is", *(("HGET", name.meta, "owner") for name in names)
        )
        for mark in filter(None, marks):
            self.layouts.compare_owner(mark.decode(errors="replace"))

    async def stay(self, by: str) -> bool:
        """The installation that opened the index lives; False where another one opened it last."""
        return await self.layouts.change(None, {}, expected={"by": by}, seen=True) is not None

    async def beat(self, worker: str, *, trouble: str = "") -> messages.Beat:
        """Say that this worker lives for the next 25 s; who else does, and what the index is.

        ``trouble`` is what is wrong with it, for people; empty where nothing is.
        """
        await self.index.servers.keepalive()
        # A failover and back leaves connections alive, to a server that has lost what it held last.
        await self.index.servers.refresh()
        call = self.index.call(
            "beat",
            None,
            worker=worker,
            ttl=int(WORKER_TTL_SECONDS * 1_000_000),
            trouble=trouble[:TROUBLE_LIMIT],
        )
        reply = await self.index.scripts.run(call)
        time_us, incarnation, number, shards, workers, former, former_shards = reply
        was = messages.Layout(number=former, shards=former_shards) if former else None
        return messages.Beat(
            workers=tuple(sorted(name.decode(errors="replace") for name in workers)),
            layout=messages.Layout(number=number, shards=shards, former=was)
            if number and shards
            else None,
            incarnation=incarnation.decode(),
            time_us=int(time_us),
        )

    async def goodbye(self, worker: str) -> None:
        await self.index.read("say goodbye", ("ZREM", self.index.keys.workers, worker))

    async def make_shards(self, layout: messages.Layout, epoch: messages.Epoch) -> None:
        """Every shard exists; of a former layout those that are closed are left so."""
        shards = sharding.all_shards(layout)
        calls = []
        for shard in shards:
            is_former = sharding.layout_of(shard) != layout.number
            call = self.index.call(
                "init",
                shard,
                made_as=secrets.token_hex(8),
                epoch=epoch,
                format=RECORD_FORMAT,
                state="draining" if is_former else "open",
            )
            calls.append(call)
        for shard, reply in zip(shards, await self.index.scripts.run_many(calls), strict=True):
            is_closed = isinstance(reply, queue_errors.LayoutChanged)
            if isinstance(reply, errors.DuepointError) and not (
                is_closed and sharding.layout_of(shard) != layout.number
            ):
                raise reply
