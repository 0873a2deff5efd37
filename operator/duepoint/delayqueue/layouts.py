"""Reads and changes the layout of the index, finds schedules in it, and tracks living workers.

All processes read the layout record. While the index is resharded it names two layouts, and a
schedule is in a shard of the former one until it has moved to its new home, for good. So a search
asks the former shard first. A draining shard says so itself, so a client that knows only the former
layout is redirected, too.

The operator makes the index (``Membership.open``) and changes its layout (``resharding``). Shards
are initialised before the record names them, so that no process meets a half-made index; a shard
that was emptied alone is created anew the same way.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeVar

from duepoint import errors
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import index, messages, sharding
from duepoint.delayqueue.wire import scripting
from duepoint.schedules import points

RECORD_FORMAT = 1
#: A worker without a keepalive for this long counts as dead.
WORKER_TTL_SECONDS = 25.0
#: Longest text about a worker's trouble, in characters.
TROUBLE_LIMIT = 300
#: An installation that is silent for this long has gone, and another one takes its index over.
ABANDONED_SECONDS = 300.0
#: Fields of the layout record when a new layout begins to be filled.
BEGUN = {"state": "splitting", "phase": "announced", "moved": 0, "left": 0}

RECORD_FIELDS = ("layout", "shards", "buckets", "incarnation", "former", "former_shards")
#: Wait between two tries of an edit whose schedule is moving, and the limit for all of them; if a
#: mover dies, another one follows a little later than that.
BUSY_SECONDS, PATIENCE_SECONDS = 0.005, 5.0
MOVING = "the schedule is moving to another shard; try again"

#: A record of ours never has more; with garbage above these, a walk through all would not end.
_MOST_LAYOUTS = 1 << 31
_MOST_BUCKETS = 1 << 20

Answer = TypeVar("Answer")


@dataclass(eq=False)
class Layouts:
    """Reads the layout of the index and says where a schedule is."""

    index: index.Index

    def __post_init__(self) -> None:
        self._owner: Owner | None = None
        #: The requested number of shards, when the layout was last read; 0: none.
        self.wanted_shards = 0

    async def read(self) -> messages.Layout:
        """Read the layout again; raises ``queue_errors.Uninitialised`` if there is none yet."""
        found = await self.record()
        if found is None:
            raise queue_errors.Uninitialised("the index does not exist; the operator creates it")
        return found

    def belong_to(self, owner: Owner) -> None:
        """Require that the index is of this cluster; before this call any index will do.

        If it is not, ``read``, ``beat`` and all calls that change a shard raise ``Foreign`` and
        change nothing.
        """
        self._owner = owner
        self.index.scripts.owner = owner.mark  # until the layout's own is read

    def known(self) -> messages.Layout:
        """Return the layout as it was read last; raises Uninitialised if it never was."""
        return self.index.known_layout()

    async def newest_epoch(self) -> int:
        """Return the newest leader's term that this index has seen; 0 if there is no index."""
        (epoch,) = await self.index.read(
            "read the newest epoch", ("HGET", self.index.keys.layout, "epoch")
        )
        return number_of(epoch)

    async def record(self) -> messages.Layout | None:
        """Read the layout record; return None if there is none."""
        (reply,) = await self.index.read(
            "read the layout",
            ("HMGET", self.index.keys.layout, *RECORD_FIELDS, "wanted", "owner", "by"),
        )
        if reply[0] is None:
            self.wanted_shards = 0
            return None
        self.compare_owner(_text(reply[7]), by=_text(reply[8]))
        try:
            self.wanted_shards = number_of(reply[6])
            return self.remember(reply)
        except (ValueError, TypeError) as garbage:
            raise errors.QueueUnavailable(
                f"the layout record {self.index.keys.layout} cannot be read; delete that key, and"
                " the operator creates it again"
            ) from garbage

    async def change(
        self,
        epoch: messages.Epoch | None,
        fields: Mapping[str, object],
        *,
        expected: Mapping[str, object] = MappingProxyType({}),
        gone: Sequence[str] = (),
        **more: object,
    ) -> messages.Layout | None:
        """Change the layout record if it has the expected fields ("": no such field); else None.

        Args:
            epoch: term of the leader that changes it; None = any process may.
            more: see ``control.lua``.
        """
        call = self.index.call("control", None, gone=gone, **more)
        for name, pairs in (("fields", fields), ("expected", expected)):
            call.put(**{name: [str(part) for pair in pairs.items() for part in pair]})
        if epoch is not None:
            call.put(epoch=epoch)
        is_changed, *record = await self.index.scripts.run(call)
        return self.remember(record) if is_changed else None

    def compare_owner(self, mark: str, *, by: str = "") -> None:
        """Raise Foreign if the index is of another cluster; else send its mark with scripts."""
        if self._owner is None:
            return
        if mark and not self._owner.is_of(mark):
            self.index.scripts.owner = self._owner.mark
            opened = f", opened by the installation {by}" if by else ""
            raise queue_errors.Foreign(
                f"the index in this Redis is of another cluster ({mark}{opened}), not of this one"
                f" ({self._owner.mark}); {scripting.OTHER_INDEX}"
            )
        self.index.scripts.owner = mark or self._owner.mark

    def remember(self, reply: Sequence[Any]) -> messages.Layout:
        """Use the layout in a reply from now on; return it."""
        former = None if reply[4] is None else _checked(int(reply[4]), int(reply[5]))
        newest, buckets = _checked(int(reply[0]), int(reply[1])), int(reply[2])
        if not 1 <= buckets <= _MOST_BUCKETS:
            raise ValueError(f"{buckets} buckets")
        layout = messages.Layout(number=newest.number, shards=newest.shards, former=former)
        self.index.buckets = buckets
        if layout != self.index.layout:
            self.index.layout = layout
            for report in self.index.on_layout:
                report()
        return layout

    async def unless_gone(self, shard: messages.ShardId, reply: Awaitable[Answer]) -> Answer | None:
        """Return the reply of a claim's script; None if its shard, and so the claim, is gone."""
        try:
            return await reply
        except (queue_errors.LayoutChanged, queue_errors.Uninitialised):
            if shard in sharding.all_shards(await self.read()):
                raise
            return None

    async def run_where_it_is(
        self,
        schedule_id: points.ScheduleId,
        call_in: Callable[[messages.ShardId], scripting.ScriptCall],
    ) -> Any:  # noqa: ANN401 - what the script replies
        """Return the reply of this call in the shard that has, or may have, the schedule.

        Repeats it while the schedule is moving to another shard, or the layout changes.
        """
        last = self.index.clock.monotonic() + PATIENCE_SECONDS
        while True:
            layout = self.index.known_layout()
            for shard in sharding.homes(schedule_id, layout):
                try:
                    reply = await self.index.scripts.run(call_in(shard))
                except queue_errors.LayoutChanged:  # a former shard may be closed
                    if sharding.layout_of(shard) == layout.number and await self.read() == layout:
                        raise
                    continue
                if reply == b"BUSY":
                    break
                if reply != b"ABSENT":
                    return reply
            else:
                await self.read()
            if self.index.clock.monotonic() > last:
                raise errors.TryLater(MOVING)
            await self.index.clock.sleep(BUSY_SECONDS)


def _checked(number: int, shards: int) -> messages.Layout:
    """Return the layout; raises ValueError if there can be no such layout."""
    if not sharding.is_possible(shards) or not 1 <= number <= _MOST_LAYOUTS:
        raise ValueError(f"layout {number} of {shards} shards")
    return messages.Layout(number=number, shards=shards)


def _text(field: bytes | None) -> str:
    return (field or b"").decode(errors="replace")


def number_of(field: bytes | None) -> int:
    """Return the number in a field; 0 if it has none."""
    return int(field) if field is not None and field.isdigit() else 0


_NOTHING = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The identity of a cluster as far as a process may read it: uids of namespaces.

    The operator of one of two clusters that share a Redis would remove what the other has armed,
    and its workers would create Jobs of the other's Schedules in the wrong place. So the layout
    record and each shard carry the mark of their cluster. A process compares it with the answer of
    its API server and sends it with each script, which refuses any other; no round trip is added.

    Attributes:
        cluster: uid of the namespace kube-system; "" if it may not be read.
        home: uid of the namespace of the installation; "" if it may not be read.
    """

    cluster: str = ""
    home: str = ""

    @property
    def mark(self) -> str:
        """The text that is stored in the index."""
        return f"{self.cluster or _NOTHING} {self.home or _NOTHING}"

    def is_of(self, mark: str) -> bool:
        """Whether a mark may be ours: the strongest uid that both sides know is the same."""
        cluster, _, home = mark.partition(" ")
        if self.cluster and cluster not in ("", _NOTHING):
            return self.cluster == cluster
        return bool(self.home) and self.home == home


@dataclass(eq=False)
class Membership:
    """Makes the index, and tracks living workers and installations."""

    index: index.Index
    layouts: Layouts

    async def open(
        self,
        shards: int,
        epoch: messages.Epoch,
        *,
        noted: messages.Layout | None = None,
        by: str = "",
    ) -> messages.Layout:
        """Return the layout with all shards initialised; if there is none, make ``noted``.

        Without ``noted``, make the first layout, with ``shards``, a power of two. Only the operator
        calls this; it is idempotent. ``by`` names the installation that opens the index, if known.
        Raises ``queue_errors.Foreign`` if the index is of another cluster, or if another
        installation has opened it and has not been silent for five minutes.
        """
        existing = await self.layouts.record()
        if existing is None:
            await self._compare_owner_of_shards(noted or messages.Layout(number=1, shards=shards))
        wanted = existing or noted or messages.Layout(number=1, shards=shards)
        await self.make_shards(wanted, epoch)
        opened = None
        while opened is None:  # until no other operator changes it between the read and the write
            opened = await self._open(wanted, epoch, by)
        if opened != wanted:  # another operator was first, with another wish
            await self.make_shards(opened, epoch)
        return opened

    async def _open(
        self, wanted: messages.Layout, epoch: messages.Epoch, by: str
    ) -> messages.Layout | None:
        """Write the layout record; return None if another operator changed it meanwhile."""
        (found, time) = await self.index.read(
            "read the owner of the index",
            ("HMGET", self.index.keys.layout, "layout", "by", "seen"),
            ("TIME",),
        )
        layout, known_by, seen = ((field or b"").decode(errors="replace") for field in found)
        silent_us = scripting.time_us(time) - int(seen or 0)
        if by and known_by not in ("", by) and silent_us < ABANDONED_SECONDS * 1_000_000:
            raise queue_errors.Foreign(
                f"the installation {known_by} used this index {silent_us // 1_000_000} s ago;"
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
        """Compare the owner that the shards name: the layout record alone may be lost."""
        names = (
            self.index.keys.shard(sharding.layout_of(shard), sharding.index_of(shard))
            for shard in sharding.all_shards(layout)
        )
        marks = await self.index.read(
            "read the owner of the index", *(("HGET", name.meta, "owner") for name in names)
        )
        for mark in filter(None, marks):
            self.layouts.compare_owner(mark.decode(errors="replace"))

    async def stay(self, by: str) -> messages.Layout | None:
        """Note that installation ``by`` is alive, so that no other takes its index over.

        Returns the layout; None if another one opened the index last.
        """
        return await self.layouts.change(None, {}, expected={"by": by}, seen=True)

    async def beat(self, worker: str, *, trouble: str = "") -> messages.Beat:
        """Report this worker as alive for the next 25 s; return the living workers and the layout.

        ``trouble``: what is wrong with it, for people; empty if nothing is.
        """
        await self.index.servers.keepalive()
        # A failover and back leaves connections alive, to a server that has lost its last writes.
        await self.index.servers.refresh()
        call = self.index.call(
            "beat",
            None,
            worker=worker,
            ttl=int(WORKER_TTL_SECONDS * 1_000_000),
            trouble=trouble[:TROUBLE_LIMIT],
            fields=RECORD_FIELDS,
        )
        time_us, fields, workers = await self.index.scripts.run(call)
        number, shards, _, _, former, former_shards = map(number_of, fields)
        was = messages.Layout(number=former, shards=former_shards) if former else None
        return messages.Beat(
            workers=tuple(sorted(name.decode(errors="replace") for name in workers)),
            layout=messages.Layout(number=number, shards=shards, former=was)
            if number and shards
            else None,
            incarnation=_text(fields[RECORD_FIELDS.index("incarnation")]),
            time_us=int(time_us),
        )

    async def goodbye(self, worker: str) -> None:
        await self.index.read("say goodbye", ("ZREM", self.index.keys.workers, worker))

    async def make_shards(self, layout: messages.Layout, epoch: messages.Epoch) -> None:
        """Make every shard that does not exist; closed shards of a former layout stay closed."""
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
