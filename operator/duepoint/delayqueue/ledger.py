"""The ``runs`` and ``dead`` streams of all shards, as their readers want them.

The status writer is one consumer of one group. It is told by the ``ran`` channels which shards
have something new, and reads those without blocking; entries that were read and never
acknowledged (a crash) are taken over at the start. What is acknowledged leaves the stream, so that
its length is what status lags behind; the cap holds while nobody reads.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from duepoint.delayqueue import keys, messages, sharding
from duepoint.delayqueue.claims import retrylimit
from duepoint.delayqueue.wire import scripting, subscription
from duepoint.delayqueue.wire import servers as servers_

#: A sleeping reader looks this often whether somebody has read another layout; asks nobody.
_LAYOUT_SECONDS = 2.0


class RedisLedger:
    """``port.Ledger`` over Redis."""

    def __init__(
        self,
        *,
        servers: servers_.Servers,
        names: Callable[[messages.ShardId], keys.ShardKeys],
        layout: Callable[[], messages.Layout],
    ) -> None:
        self._servers = servers
        self._names = names
        self._read_layout = layout
        self._something = asyncio.Event()
        self._is_started = False
        self._use(layout())

    def _use(self, layout: messages.Layout) -> None:
        """Look at the shards of this layout from now on; every one of them may have something."""
        self._layout = layout
        self._shards = sharding.all_shards(layout)
        self._told: set[messages.ShardId] = set(self._shards)
        self._something.set()
        self._shard_of = {self._names(shard).ran: shard for shard in self._shards}
        self._subscription = subscription.Subscription(
            self._servers,
            tuple(self._shard_of),
            on_subscribed=self._on_subscribed,
            on_message=self._on_message,
        )

    async def _follow(self) -> None:
        """The layout may have been read anew since: listen to the shards that it has now."""
        if self._read_layout() == self._layout:
            return
        await self._subscription.close()
        self._use(self._read_layout())
        if self._is_started:
            await self._subscription.start()

    async def start(self) -> None:
        self._is_started = True
        await self._follow()
        await self._subscription.start()

    async def close(self) -> None:
        await self._subscription.close()

    async def wait_for_outcomes(self, timeout_seconds: float) -> tuple[messages.ShardId, ...]:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                while not self._something.is_set():
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(_LAYOUT_SECONDS):
                            await self._something.wait()
                    await self._follow()
        told, self._told = sorted(self._told), set()
        self._something.clear()
        return tuple(told)

    async def read_outcomes(
        self,
        group: str,
        consumer: str,
        *,
        shards: Collection[messages.ShardId] | None = None,
        count: int = 100,
    ) -> list[messages.OutcomeEntry]:
        await self._follow()
        asked = list(self._shards if shards is None else shards)
        replies = await self._in_group(
            group,
            asked,
            lambda shard: (
                "XREADGROUP",
                "GROUP",
                group,
                consumer,
                "COUNT",
                count,
                "STREAMS",
                self._names(shard).runs,
                ">",
            ),
        )
        entries = []
        for shard, reply in zip(asked, replies, strict=True):
            for _, found in reply or ():
                entries += _outcomes(shard, found)
        return entries

    async def recover_outcomes(
        self, group: str, consumer: str, *, idle_seconds: float = 0.0
    ) -> list[messages.OutcomeEntry]:
        await self._follow()
        idle_ms = int(idle_seconds * 1_000)
        entries: list[messages.OutcomeEntry] = []
        cursors = dict.fromkeys(self._shards, "0-0")
        while cursors:
            asked = list(cursors)
            replies = await self._in_group(
                group,
                asked,
                lambda shard: (
                    "XAUTOCLAIM", self._names(shard).runs, group, consumer, idle_ms,
                    cursors[shard], "COUNT", 100,
                ),
            )  # fmt: skip
            for shard, reply in zip(asked, replies, strict=True):
                cursor, found, *_ = reply or (b"0-0", ())
                entries += _outcomes(shard, found)
                cursors[shard] = _text(cursor)
                if cursors[shard] == "0-0":
                    del cursors[shard]
        return entries

    async def ack(self, group: str, entries: Sequence[messages.OutcomeEntry]) -> None:
        by_shard: dict[messages.ShardId, list[str]] = {}
        for entry in entries:
            by_shard.setdefault(entry.shard, []).append(entry.id)
        commands: list[tuple[Any, ...]] = []
        for shard, ids in by_shard.items():
            runs = self._names(shard).runs
            commands += (("XACK", runs, group, *ids), ("XDEL", runs, *ids))
        if commands:
            scripting.good(await self._servers.exchange(commands), "acknowledge outcomes")

    async def dropped(self) -> dict[messages.ShardId, int]:
        shards = self._shards
        commands = [("HGET", self._names(shard).meta, "runs_dropped") for shard in shards]
        replies = scripting.good(await self._servers.exchange(commands), "read what was dropped")
        found = zip(shards, replies, strict=True)
        return {shard: int(count) for shard, count in found if count and int(count) > 0}

    async def forget_dropped(self, dropped: Mapping[messages.ShardId, int]) -> None:
        commands = [
            ("HINCRBY", self._names(shard).meta, "runs_dropped", -count)
            for shard, count in dropped.items()
        ]
        scripting.good(await self._servers.exchange(commands), "note what was dropped")

    async def dead_letters(
        self, shard: messages.ShardId, *, count: int = 100
    ) -> list[messages.DeadEntry]:
        command = ("XREVRANGE", self._names(shard).dead, "+", "-", "COUNT", count)
        (found,) = scripting.good(await self._servers.exchange([command]), "read dead letters")
        return [_dead_entry(shard, entry_id, fields) for entry_id, fields in found]

    async def _in_group(
        self,
        group: str,
        shards: Sequence[messages.ShardId],
        command: Callable[[messages.ShardId], tuple[Any, ...]],
    ) -> list[Any]:
        """The command for each shard in one round trip; a missing group is made first."""
        for last in (False, True):
            commands = [command(shard) for shard in shards]
            replies = await self._servers.exchange(commands)
            replies = [
                None if self._is_closed(shard, reply) else reply
                for shard, reply in zip(shards, replies, strict=True)
            ]
            failed = [reply for reply in replies if isinstance(reply, Exception)]
            if not failed:
                return replies
            if not all(str(error).startswith("NOGROUP") for error in failed):
                raise scripting.translated(failed[0], "read outcomes") from failed[0]
            if last:  # the group could not be made: there is no stream to make it on
                raise scripting.Uninitialised("the index holds no outcomes") from failed[0]
            await self._make_group(group, shards)
        return []  # pragma: no cover

    def _is_closed(self, shard: messages.ShardId, reply: object) -> bool:
        """A former shard without a stream was emptied to the last entry, and closed."""
        is_former = sharding.layout_of(shard) != self._layout.number
        return is_former and isinstance(reply, Exception) and str(reply).startswith("NOGROUP")

    async def _make_group(self, group: str, shards: Sequence[messages.ShardId]) -> None:
        """Only on streams that exist: nothing but ``init`` makes a shard."""
        await self._servers.exchange(
            [("XGROUP", "CREATE", self._names(shard).runs, group, "0") for shard in shards]
        )

    def _on_subscribed(self) -> None:
        self._told.update(self._shards)
        self._something.set()

    def _on_message(self, channel: str, _: bytes) -> None:
        if (shard := self._shard_of.get(channel)) is not None:
            self._told.add(shard)
            self._something.set()


def _outcomes(shard: messages.ShardId, found: Sequence[Any]) -> list[messages.OutcomeEntry]:
    return [
        _outcome(shard, _text(entry_id), _fields(fields)) for entry_id, fields in found if fields
    ]


def _outcome(
    shard: messages.ShardId, entry_id: str, fields: dict[bytes, bytes]
) -> messages.OutcomeEntry:
    if b"back" in fields:
        back_us = int(fields[b"back"]) if fields[b"back"].isdigit() else 0
        return messages.OutcomeEntry(shard=shard, id=entry_id, outcomes=b"", back_us=back_us)
    return messages.OutcomeEntry(
        shard=shard, id=entry_id, outcomes=_packed(fields), is_lost=b"lost" in fields
    )


def _packed(fields: dict[bytes, bytes]) -> bytes:
    """The outcomes of an entry, or of the retry that a script buried; empty of a stranger."""
    if b"o" in fields:
        return fields[b"o"]
    member, record = fields.pop(b"member", b""), fields.pop(b"record", b"")
    named = {_text(name): _text(value) for name, value in fields.items()}
    return retrylimit.news(named, member, record)


def _dead_entry(shard: messages.ShardId, entry_id: bytes, raw: Any) -> messages.DeadEntry:  # noqa: ANN401
    fields = _fields(raw)
    member = fields.pop(b"member", b"")
    return messages.DeadEntry(
        shard=shard,
        id=_text(entry_id),
        member=member,
        entry={_text(name): _text(value) for name, value in fields.items()},
    )


def _fields(raw: Any) -> dict[bytes, bytes]:  # noqa: ANN401 - the library parses some commands
    if isinstance(raw, dict):
        return dict(raw)
    return dict(zip(raw[::2], raw[1::2], strict=True))


def _text(value: bytes | str) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
