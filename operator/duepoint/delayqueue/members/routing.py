"""To which shards rows about members go, several rows in one script.

Of one wave no two rows are about the same member. While the index is resharded a row goes to the
former shard first, and to the new one where it is not there.
"""

from __future__ import annotations

import collections
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, cast

from duepoint import errors
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import index, layouts, messages, sharding
from duepoint.delayqueue.definitions import moves
from duepoint.delayqueue.wire import scripting
from duepoint.schedules import points

#: Rows of one script: some 5 us of the server's time each; unpack() carries 7,900 values.
_PART = 400
#: Looks for a layout that stays.
_ROUNDS = 4


class _AboutMember(Protocol):
    """A row with the id of its member."""

    @property
    def id(self) -> points.ScheduleId: ...


RowT = TypeVar("RowT")
MemberRowT = TypeVar("MemberRowT", bound=_AboutMember)


class Left(NamedTuple, Generic[RowT]):
    """Rows that a layout's shards have not answered.

    Attributes:
        absent: they are not there.
        stale: a shard is not what it was.
    """

    absent: list[RowT]
    stale: list[RowT]


def waves(listed: Sequence[MemberRowT]) -> Iterator[list[MemberRowT]]:
    """The rows in order, no two of one wave about the same member."""
    left = list(listed)
    if len({row.id for row in left}) == len(left):  # nearly always
        if left:
            yield left
        return
    while left:
        first: dict[points.ScheduleId, MemberRowT] = {}
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


def is_current(shard: messages.ShardId, layout: messages.Layout) -> bool:
    """Whether nothing but this layout has what the shard does not have."""
    return sharding.layout_of(shard) == layout.number and layout.former is None


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


async def free_reply(
    queue: index.Index,
    moving: moves.Moves,
    shard: messages.ShardId,
    call: scripting.ScriptCall,
    reply: Any,  # noqa: ANN401 - of the script
) -> list[bytes]:
    """The reply of a script, once no row of it is on its way to another shard."""
    if isinstance(reply, errors.DuepointError):
        raise reply
    if reply != [b"BUSY"]:
        return cast("list[bytes]", reply)

    async def again() -> list[bytes]:
        return cast("list[bytes]", await queue.pipelined_durably.run(call))

    return await moving.until_free(shard, again)
