"""To which shards rows go, several rows in one script.

Of one wave no two rows have the same id. While the index is resharded a row goes to the
former shard first, and to the new one where it is not there; one on its way is waited for.
"""

from __future__ import annotations

import collections
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from duepoint import errors
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import index, layouts, messages, sharding
from duepoint.schedules import points

#: Rows of one script: some 5 us of the server's time each; unpack() carries 7,900 values.
_PART = 400
#: Looks for a layout that stays.
_ROUNDS = 4
#: Between two tries of an edit whose schedule is on its way, and all of them: a mover that died is
#: followed by another within some more.
_BUSY_SECONDS, _PATIENCE_SECONDS = 0.005, 5.0


class _WithId(Protocol):
    """A row of a Schedule or member."""

    @property
    def id(self) -> points.ScheduleId: ...


RowT = TypeVar("RowT")
Reply = TypeVar("Reply")
IdRowT = TypeVar("IdRowT", bound=_WithId)


class Left(NamedTuple, Generic[RowT]):
    """Rows that a layout's shards have not answered.

    Attributes:
        absent: they are not there.
        stale: a shard is not what it was.
    """

    absent: list[RowT]
    stale: list[RowT]


def waves(listed: Sequence[IdRowT]) -> Iterator[list[IdRowT]]:
    """The rows in order, no two of one wave with the same id."""
    left = list(listed)
    if len({row.id for row in left}) == len(left):  # nearly always
        if left:
            yield left
        return
    while left:
        first: dict[points.ScheduleId, IdRowT] = {}
        left = [row for row in left if first.setdefault(row.id, row) is not row]
        yield list(first.values())


def by_shard(
    listed: Iterable[RowT], layout: messages.Layout, low: Callable[[RowT], int]
) -> dict[messages.ShardId, list[RowT]]:
    """The rows of each shard of a layout; ``low`` is the last 16 bits of an id."""
    shards = sharding.own_shards(layout)
    last = layout.shards - 1
    found: collections.defaultdict[messages.ShardId, list[RowT]] = collections.defaultdict(list)
    for row in listed:
        found[shards[low(row) & last]].append(row)
    return found


def parts(listed: list[RowT]) -> Iterator[list[RowT]]:
    """The rows of each script."""
    for first in range(0, len(listed), _PART):
        yield listed[first : first + _PART]


def is_current(queue: index.Index, shard: messages.ShardId) -> bool:
    """Whether the shard is of the newest layout; a former one may be closed and has no rows."""
    return sharding.layout_of(shard) == queue.known_layout().number


async def until_free(queue: index.Index, run: Callable[[], Awaitable[Reply]]) -> Reply:
    """The reply of a script that refuses schedules on their way, once it does not."""
    last = queue.clock.monotonic() + _PATIENCE_SECONDS
    while True:
        reply = await run()
        if (reply[0] if isinstance(reply, list) else reply) != b"BUSY":
            return reply
        if queue.clock.monotonic() > last:
            raise errors.TryLater("the schedule is on its way to another shard; try again")
        await queue.clock.sleep(_BUSY_SECONDS)


async def where_they_are(
    queue: index.Index,
    known: layouts.Layouts,
    listed: list[RowT],
    send: Callable[[messages.Layout, list[RowT]], Awaitable[Left[RowT]]],
) -> list[RowT]:
    """Send rows to where they are; what even the newest layout does not have is returned."""
    for _ in range(_ROUNDS):
        layout = queue.known_layout()
        former = layout.former
        stale: list[RowT] = []
        try:
            if former is not None:
                listed, stale = await send(former, listed)
            absent, more = await send(layout, listed)
        except queue_errors.LayoutChanged:  # before anything was sent
            await known.read()
            listed = listed + stale
            continue
        listed = absent + stale + more
        if not listed:
            return []
        if await known.read() == layout and not (stale or more):
            return listed
    raise queue_errors.LayoutChanged("the index is resharded faster than it can be written")
