"""What the classes of ``definitions`` share: the index, its layouts, and the numbers of texts.

Gives them the parts of ``index.Index`` under short names.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from duepoint import errors
from duepoint.delayqueue import index as index_
from duepoint.delayqueue import keys, layouts, messages
from duepoint.delayqueue.definitions import interning, seal
from duepoint.delayqueue.wire import gathering, scripting
from duepoint.schedules import points

if TYPE_CHECKING:
    from duepoint.delayqueue.resharding import moves as moves_

Commands = index_.Commands
T = TypeVar("T")


class Core:
    """Base of what reads and writes definitions."""

    def __init__(
        self,
        *,
        index: index_.Index,
        layouts: layouts.Layouts,
        interned: interning.Interned,
        seal: seal.Seal,
        moves: moves_.Moves | None = None,
    ) -> None:
        self._index = index
        self._layouts = layouts
        self._interned = interned
        self._seal = seal
        self._moves = moves
        self._read = index.read
        self._shard = index.shard
        self._known_layout = index.known_layout

    @property
    def _scripts(self) -> scripting.Scripts:
        return self._index.scripts

    @property
    def _gathered(self) -> gathering.Gathering[Any]:
        return self._index.gathered

    @property
    def _gathered_durably(self) -> gathering.Gathering[Any]:
        return self._index.gathered_durably

    @property
    def _gathered_reads(self) -> gathering.Gathering[Any]:
        return self._index.gathered_reads

    @property
    def _keys(self) -> keys.Keys:
        return self._index.keys

    @property
    def _buckets(self) -> int:
        return self._index.buckets

    async def _where_it_is(
        self,
        schedule_id: points.ScheduleId,
        attempt: Callable[[messages.ShardId], Awaitable[T | None]],
    ) -> T:
        return await self._layouts.where_it_is(schedule_id, attempt)

    async def _by_home(
        self, ids: Iterable[points.ScheduleId], *, beyond: messages.ShardId
    ) -> dict[messages.ShardId, list[points.ScheduleId]]:
        return await self._layouts.by_home(ids, beyond=beyond)

    async def _until_free(self, shard: messages.ShardId, run: Callable[[], Awaitable[T]]) -> T:
        if self._moves is None:
            raise errors.Bug("definitions that are only read are written")
        return await self._moves.until_free(shard, run)
