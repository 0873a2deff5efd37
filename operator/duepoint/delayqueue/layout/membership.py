"""The layout of the index, and who is alive.

The operator makes the index (``open_layout``); everybody reads it. Shards are initialised before
the layout record names them, so that nobody meets a half-made index; a shard that was emptied
alone is made anew the same way.
"""

from __future__ import annotations

import secrets

from duepoint import errors
from duepoint.delayqueue import keys, messages, sharding
from duepoint.delayqueue.layout import layouts
from duepoint.delayqueue.wire import scripting

RECORD_FORMAT = 1
#: Consumer group of the status writer; made with each shard.
STATUS_GROUP = "status"
#: A worker that has not said so for this long is not alive.
WORKER_TTL_SECONDS = 25.0


class Membership(layouts.Layouts):
    """open_layout, beat, goodbye."""

    async def open_layout(
        self,
        shards: int,
        epoch: messages.Epoch,
        *,
        noted: messages.Layout | None = None,
        by: str = "",
    ) -> messages.Layout:
        existing = await self._layout_record()
        wanted = existing or noted or messages.Layout(number=1, shards=shards)
        await self._make_shards(wanted, epoch)
        arguments = scripting.Arguments(
            layout=wanted.number,
            shards=wanted.shards,
            buckets=self._buckets,
            epoch=epoch,
            incarnation=_new_incarnation(),
        )
        if by:
            arguments.put("by", by)
        if wanted.former is not None:
            arguments.put("former", wanted.former.number)
            arguments.put("former_shards", wanted.former.shards)
        reply = await self._scripts.run(arguments.call("open", [self._keys.layout]))
        opened = self._remember(reply)
        if opened != wanted:  # somebody else was first, with another wish
            await self._make_shards(opened, epoch)
        return opened

    async def opened_by(self) -> str:
        (name,) = await self._read("read who opened it", ("HGET", self._keys.layout, "by"))
        return (name or b"").decode(errors="replace")

    async def beat(self, worker: str) -> messages.Beat:
        await self._servers.keepalive()
        arguments = scripting.Arguments(
            worker=worker,
            ttl=int(WORKER_TTL_SECONDS * 1_000_000),
            knows=0 if self._layout is None else self._layout.number,
        )
        reply = await self._scripts.run(
            arguments.call("beat", [self._keys.layout, self._keys.workers, self._keys.seen])
        )
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
        await self._read("say goodbye", ("ZREM", self._keys.workers, worker))

    async def _make_shards(self, layout: messages.Layout, epoch: messages.Epoch) -> None:
        """Every shard exists; of a former layout those that are closed are left so."""
        shards = sharding.all_shards(layout)
        calls = []
        for shard in shards:
            is_former = sharding.layout_of(shard) != layout.number
            arguments = scripting.Arguments(
                layout=sharding.layout_of(shard),
                incarnation=_new_incarnation(),
                epoch=epoch,
                format=RECORD_FORMAT,
                group=STATUS_GROUP,
                state="draining" if is_former else "filling" if layout.former else "open",
            )
            names = self._keys.shard(sharding.layout_of(shard), sharding.index_of(shard))
            calls.append(arguments.call("init", fixed_keys(names)))
        for shard, reply in zip(shards, await self._scripts.run_many(calls), strict=True):
            is_closed = isinstance(reply, scripting.LayoutChanged)
            if isinstance(reply, errors.DuepointError) and not (
                is_closed and sharding.layout_of(shard) != layout.number
            ):
                raise reply


def fixed_keys(names: keys.ShardKeys) -> list[str]:
    return [
        names.meta, names.heads, names.claims, names.leases, names.occ, names.occrec,
        names.blobs, names.interned, names.runs, names.dead,
    ]  # fmt: skip


def _new_incarnation() -> str:
    return secrets.token_hex(8)
