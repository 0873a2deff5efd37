"""Which layout the index has, and where a schedule is while it gets another one.

All processes read the layout record; while the index is resharded it names two layouts, and a
schedule is in a shard of the former one until it has moved to its new home, for good. So a search
asks the former shard first. A shard says by itself that it is draining, so that a client that knows
only the former layout is sent on, too. The record is changed by ``membership`` (made) and
``resharding`` (resharded).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeVar

from duepoint import errors
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import index, messages, sharding
from duepoint.delayqueue.wire import scripting
from duepoint.schedules import points

RECORD_FIELDS = ("layout", "shards", "buckets", "incarnation", "former", "former_shards")
#: Looks for one schedule while the layout changes under them: it changes twice in a move.
_ROUNDS = 4

#: No record of ours says more: of either, a walk through all of them would not end.
_MOST_LAYOUTS = 1 << 31
_MOST_BUCKETS = 1 << 20

Answer = TypeVar("Answer")


@dataclass(eq=False)
class Layouts:
    """Reads the layout of the index and says where a schedule is."""

    index: index.Index

    def __post_init__(self) -> None:
        self._owner: Owner | None = None
        #: The number of shards that was asked for, by the last look at the layout; 0: none.
        self.wanted_shards = 0

    async def read(self) -> messages.Layout:
        """Read the layout again; raises ``queue_errors.Uninitialised`` when there is none yet."""
        found = await self.record()
        if found is None:
            raise queue_errors.Uninitialised("there is no index yet: the operator makes it")
        return found

    def belong_to(self, owner: Owner) -> None:
        """The index must be of this cluster from now on; before this call any index will do.

        Where it is not, ``read``, ``beat`` and all calls that change a shard raise ``Foreign`` and
        change nothing.
        """
        self._owner = owner
        self.index.scripts.owner = owner.mark  # or the mark that the layout turns out to have

    def known(self) -> messages.Layout:
        """As it was read last; raises Uninitialised where it never was."""
        return self.index.known_layout()

    async def newest_epoch(self) -> int:
        """The newest term that this index has seen; 0 where there is no index."""
        (epoch,) = await self.index.read(
            "read the newest epoch", ("HGET", self.index.keys.layout, "epoch")
        )
        return number_of(epoch)

    async def record(self) -> messages.Layout | None:
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
                f"what {self.index.keys.layout} says cannot be read; remove that key, and the"
                " operator makes it again"
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
        """Change the layout record if it says what is expected ("": no such field); else None.

        Args:
            epoch: of the leader that changes it; None = anybody may.
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
        """Raise Foreign where the index is of another cluster; else its mark goes with scripts."""
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
        """The reply of a claim's script; None where its shard is gone, and the claim with it."""
        try:
            return await reply
        except (queue_errors.LayoutChanged, queue_errors.Uninitialised):
            if shard in sharding.all_shards(await self.read()):
                raise
            return None

    async def where_it_is(
        self,
        schedule_id: points.ScheduleId,
        attempt: Callable[[messages.ShardId], Awaitable[Answer | None]],
    ) -> Answer:
        """What ``attempt`` answers in the first shard that has the schedule, or may have it.

        None is "not here and never again"; so is a former shard that is closed.
        """
        for _ in range(_ROUNDS):
            layout = self.index.known_layout()
            for shard in sharding.homes(schedule_id, layout):
                try:
                    answer = await attempt(shard)
                except queue_errors.LayoutChanged:
                    if sharding.layout_of(shard) == layout.number:
                        if await self.read() == layout:
                            raise
                        break
                else:
                    if answer is not None:
                        return answer
            else:
                await self.read()
        raise queue_errors.LayoutChanged("the index is resharded faster than it can be read")


def _checked(number: int, shards: int) -> messages.Layout:
    """The layout; raises ValueError where there can be none such."""
    if not sharding.is_possible(shards) or not 1 <= number <= _MOST_LAYOUTS:
        raise ValueError(f"layout {number} of {shards} shards")
    return messages.Layout(number=number, shards=shards)


def _text(field: bytes | None) -> str:
    return (field or b"").decode(errors="replace")


def number_of(field: bytes | None) -> int:
    """0 where there is none, or something that is none."""
    return int(field) if field is not None and field.isdigit() else 0


_NOTHING = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """A cluster, as far as a process may see it: the uids of namespaces tell clusters apart.

    The operator of one of two clusters that share a Redis would remove what the other has armed,
    and its workers would create Jobs of the other's Schedules in the wrong place. So the layout
    record and each shard carry the mark of their cluster. A process compares it with what its own
    API server says and names it to each script, which refuses another one; no round trip is added.

    Attributes:
        cluster: uid of the namespace kube-system; "" where it may not be read.
        home: uid of the namespace of the installation; "" where it may not be read.
    """

    cluster: str = ""
    home: str = ""

    @property
    def mark(self) -> str:
        """As it stands in the index."""
        return f"{self.cluster or _NOTHING} {self.home or _NOTHING}"

    def is_of(self, mark: str) -> bool:
        """Whether a mark may be ours: the best that both sides know is the same."""
        cluster, _, home = mark.partition(" ")
        if self.cluster and cluster not in ("", _NOTHING):
            return self.cluster == cluster
        return bool(self.home) and self.home == home
