"""Which layout the index has, and where a schedule is while it gets another one.

Everybody reads the layout record; while the index is cut anew it names two layouts, and a schedule
is in a shard of the former one until it has moved to its new home, for good. So whoever looks for
it asks the former shard first. A shard says by itself that it is draining, so that a client which
knows only the former layout is sent on, too. The record is changed by ``membership`` (made) and
``partitioning`` (cut anew).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeVar

from duepoint import errors
from duepoint.delayqueue import core, messages, sharding
from duepoint.delayqueue.wire import scripting
from duepoint.schedules import points

RECORD_FIELDS = ("layout", "shards", "buckets", "incarnation", "former", "former_shards")
#: Looks for one schedule while the layout changes under them: it changes twice in a move.
_ROUNDS = 4

#: No record of ours says more: of either, a walk through all of them would not end.
_MOST_LAYOUTS = 1 << 31
_MOST_BUCKETS = 1 << 20

Answer = TypeVar("Answer")


class Layouts(core.Core):
    """layout, known_shards."""

    async def layout(self) -> messages.Layout:
        found = await self._layout_record()
        if found is None:
            raise scripting.Uninitialised("there is no index yet: the operator makes it")
        return found

    def known_layout(self) -> messages.Layout:
        return self._known_layout()

    async def newest_epoch(self) -> int:
        """The newest term that this index has seen; 0 where there is no index."""
        (epoch,) = await self._read("read the newest epoch", ("HGET", self._keys.layout, "epoch"))
        return number_of(epoch)

    async def _layout_record(self) -> messages.Layout | None:
        (reply,) = await self._read(
            "read the layout",
            ("HMGET", self._keys.layout, *RECORD_FIELDS, "wanted", "owner", "by"),
        )
        if reply[0] is None:
            self._wanted_shards = 0
            return None
        self._compare_owner(_text(reply[7]), by=_text(reply[8]))
        try:
            self._wanted_shards = number_of(reply[6])
            return self._remember(reply)
        except (ValueError, TypeError) as garbage:
            raise errors.QueueUnavailable(
                f"what {self._keys.layout} says cannot be read; remove that key, and the operator"
                " makes it again"
            ) from garbage

    def _compare_owner(self, mark: str, *, by: str = "") -> None:
        """Raise Foreign where the index is of another cluster; else its mark goes with scripts."""
        if self._owner is None:
            return
        if mark and not self._owner.is_of(mark):
            self._scripts.owner = self._owner.mark
            opened = f", opened by the installation {by}" if by else ""
            raise scripting.Foreign(
                f"the index in this Redis is of another cluster ({mark}{opened}), not of this one"
                f" ({self._owner.mark}); {scripting.OTHER_INDEX}"
            )
        self._scripts.owner = mark or self._owner.mark

    def wanted_shards(self) -> int:
        """The number of shards that somebody asked for, by the last look at the layout; 0: none."""
        return self._wanted_shards

    def _remember(self, reply: Sequence[Any]) -> messages.Layout:
        former = None if reply[4] is None else _checked(int(reply[4]), int(reply[5]))
        newest, buckets = _checked(int(reply[0]), int(reply[1])), int(reply[2])
        if not 1 <= buckets <= _MOST_BUCKETS:
            raise ValueError(f"{buckets} buckets")
        layout = messages.Layout(number=newest.number, shards=newest.shards, former=former)
        self._buckets = buckets
        self._layout = layout
        return layout

    async def _may_hold(self, shard: messages.ShardId) -> bool:
        """Whether the layout, read again, has this shard."""
        return shard in sharding.all_shards(await self.layout())

    async def _where_it_is(
        self,
        schedule_id: points.ScheduleId,
        attempt: Callable[[messages.ShardId], Awaitable[Answer | None]],
    ) -> Answer:
        """What ``attempt`` answers in the first shard that has the schedule, or may have it.

        None is "not here and never again"; so is a former shard that is closed.
        """
        for _ in range(_ROUNDS):
            layout = self._known_layout()
            for shard in sharding.homes(schedule_id, layout):
                try:
                    answer = await attempt(shard)
                except scripting.LayoutChanged:
                    if sharding.layout_of(shard) == layout.number:
                        if await self.layout() == layout:
                            raise
                        break
                else:
                    if answer is not None:
                        return answer
            else:
                await self.layout()
        raise scripting.LayoutChanged("the index is cut anew faster than it can be read")

    async def _by_home(
        self, ids: Iterable[points.ScheduleId], *, beyond: messages.ShardId
    ) -> dict[messages.ShardId, list[points.ScheduleId]]:
        """Where schedules have gone that a shard of an older layout has lost."""
        layout = self._known_layout()
        if layout.number <= sharding.layout_of(beyond):
            layout = await self.layout()
        by_home: dict[messages.ShardId, list[points.ScheduleId]] = {}
        for schedule_id in ids:
            for shard in sharding.homes(schedule_id, layout):
                if sharding.layout_of(shard) > sharding.layout_of(beyond):
                    by_home.setdefault(shard, []).append(schedule_id)
                    break
        return by_home


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
