"""Stores and removes rows of lanes: Schedules of a namespace, members of a set.

A call takes one row or a hundred thousand. Rows are grouped by shard, and one script takes a few
dozen, of several shards if one server holds them all, because a call costs as much as some rows.
The script stores or removes a row if it finds the expected record; otherwise it answers with the
record that it found, and the caller decides, and sends the row again for exactly that record. While
the index is resharded, a row goes to the former shard first, and to the new one if it is not there.
A row that is just moving is retried until it has arrived.
"""

from __future__ import annotations

import collections
import functools
import itertools
import operator
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from duepoint import errors
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import index, keys, layouts, messages, sharding
from duepoint.delayqueue.definitions import lanes
from duepoint.delayqueue.wire import scripting
from duepoint.schedules import points

#: Most rows of one script: some 5 us of the server's time each; unpack() carries 7,900 values.
_PART = 400
#: Most rounds in search of a layout that stays the same.
_ROUNDS = 4
#: Most decisions about a row that others change at the same time.
_RACES = 16


RowT = TypeVar("RowT")


async def send_to_shards(
    queue: index.Index,
    known: layouts.Layouts,
    listed: list[RowT],
    send: Callable[[messages.Layout, list[RowT]], Awaitable[tuple[list[RowT], list[RowT]]]],
) -> list[RowT]:
    """Send rows to the shards that have them; return those that not even the newest layout has.

    Args:
        send: returns the rows that the shards of a layout do not have, and those whose shard has
            changed since the layout was read.
    """
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


#: Answers about a row: new; replaced, or removed; there is no record; a claim holds the chain;
#: ``Lane.by_rows`` is wrong for this set. Any other answer is the stored record.
CREATED, REPLACED, NOTHING, HELD = b"+", b"=", b"", b"HELD"
MANAGED = b"MANAGED"
_ELSEWHERE = b"-"
#: Dues: leave the chain alone; the row has no chain.
KEPT_CHAIN, NO_DUE = b"=", b""
#: Expected: any record, even an unreadable one, or none.
ANYTHING = b"*"

#: Values of a row as the script takes it.
_ROW_LENGTH = 4
#: Most rows of one script for several shards. With 200, bulk writes cost the server a fifth more
#: than with a script for each shard, which takes some forty rows.
_ROWS_TOGETHER = 32

#: The script's answer for one shard: an answer for each row, or the text of an error.
_Answered = list[bytes] | bytes


class Kind(NamedTuple):
    """A kind (``kinds``) in the form in which it is stored with the first row that names it.

    Attributes:
        blob: the signed content that the target names; empty for members.
    """

    digest: bytes
    text: bytes
    target: str = ""
    blob: bytes = b""


class Row(msgspec.Struct, frozen=True, gc=False):
    """A schedule to store, read or remove, with the position of its shard and bucket.

    Attributes:
        place: its position in the caller's list.
        low: the last 16 bits of the id, which determine the shard.
        bucket: number of its bucket in the shard, by ``keys.place_of``.
    """

    place: int
    id: points.ScheduleId
    low: int
    bucket: int


def row_of(place: int, schedule_id: points.ScheduleId, buckets: int) -> Row:
    """Return the row of a schedule, in an index with this many buckets of a population."""
    number = int.from_bytes(schedule_id, "big")
    return Row(place, schedule_id, number & 0xFFFF, keys.place_of_number(number, buckets))


class Task(msgspec.Struct, gc=False):
    """The next request to the script about one row.

    Attributes:
        row: a ``Row``; the caller knows which.
        due: the due of its chain, in the form of the script.
        kind: the kind that its record names; None in a removal.
        expected: the fingerprint of the stored record; empty = no record, in a removal any.
        record: the new record; empty = only read the stored one. In a removal the uid or name that
            the stored record must have.
        options: of a row of a Schedule, or of one that moves: further arguments of the script, by
            name; ``open``: values that follow in ARGV.
    """

    row: Any
    kind: Kind | None
    due: bytes
    expected: bytes
    record: bytes = b""
    options: Mapping[str, Any] = {}


TaskT = TypeVar("TaskT", bound=Task)
OwnRowT = TypeVar("OwnRowT", bound=Row)

_bucket_of = operator.attrgetter("row.bucket")


class Sent(NamedTuple, Generic[TaskT]):
    """Tasks of one shard, sorted by bucket, that go into one script."""

    shard: messages.ShardId
    tasks: list[TaskT]


#: Called with some tasks of one shard and their answers; returns the tasks to send next.
Decide = Callable[[messages.ShardId, list[TaskT], list[bytes]], Awaitable[Sequence[TaskT]]]


def waves(listed: Sequence[OwnRowT]) -> Iterator[list[OwnRowT]]:
    """Yield the rows in order, in waves without two rows of the same id."""
    left = list(listed)
    if len({row.id for row in left}) == len(left):  # nearly always
        if left:
            yield left
        return
    while left:
        first: dict[points.ScheduleId, OwnRowT] = {}
        left = [row for row in left if first.setdefault(row.id, row) is not row]
        yield list(first.values())


@dataclass(eq=False)
class RowWriter:
    """Stores and removes rows."""

    index: index.Index
    layouts: layouts.Layouts

    async def write(
        self, lane: lanes.Lane, tasks: Sequence[TaskT], decide: Decide[TaskT]
    ) -> list[TaskT]:
        """Send these tasks, no two of one row, and their follow-ups; return those no shard took.

        Raises TryLater if other writers keep changing a row.
        """
        gone: list[TaskT] = []
        for _ in range(_RACES):
            again: list[TaskT] = []
            send = functools.partial(self._send, lane=lane, decide=decide, again=again)
            gone += await send_to_shards(self.index, self.layouts, list(tasks), send)
            if not again:
                return gone
            tasks = again
        raise errors.TryLater("other writers keep changing the same rows")

    async def drop(
        self, lane: lanes.Lane, wanted: Mapping[Row, tuple[bytes, bytes]]
    ) -> list[bytes]:
        """Remove rows, each with its owner and expected fingerprint; return answers by place."""
        answers = [NOTHING] * len(wanted)

        async def take(
            _: messages.ShardId, tasks: list[Task], found: list[bytes]
        ) -> Sequence[Task]:
            for task, answer in zip(tasks, found, strict=True):
                answers[task.row.place] = answer
            return ()

        for wave in waves(list(wanted)):
            tasks = [
                Task(row, None, NO_DUE, expected, whose)
                for row in wave
                for whose, expected in (wanted[row],)
            ]
            await self.write(lane._replace(drops=True), tasks, take)
        return answers

    async def _send(
        self,
        layout: messages.Layout,
        tasks: list[TaskT],
        *,
        lane: lanes.Lane,
        decide: Decide[TaskT],
        again: list[TaskT],
    ) -> tuple[list[TaskT], list[TaskT]]:
        """Send tasks to a layout's shards; return absent and stale ones, see ``send_to_shards``."""
        shards, last = sharding.own_shards(layout), layout.shards - 1
        by_shard: collections.defaultdict[messages.ShardId, list[TaskT]]
        by_shard = collections.defaultdict(list)
        for task in tasks:
            by_shard[shards[task.row.low & last]].append(task)
        absent: list[TaskT] = []
        stale: list[TaskT] = []
        sent = []
        for shard, own in by_shard.items():
            own.sort(key=_bucket_of)
            sent += [Sent(shard, own[at : at + _PART]) for at in range(0, len(own), _PART)]
        together = list(self._by_script(sent))
        calls = [self._call(lane, parts) for parts in together]
        replies = await self.index.pipelined_durably.replies(calls)
        for parts, reply in zip(together, replies, strict=True):
            if isinstance(reply, errors.DuepointError):
                raise reply
            for each, answered in zip(parts, reply, strict=True):
                try:
                    found = await self._free_answers(lane, each, answered)
                except queue_errors.LayoutChanged:
                    # A former shard may be closed; it has no rows then.
                    is_newest = layout.number == self.index.known_layout().number
                    (stale if is_newest else absent).extend(each.tasks)
                    continue
                if found == [b"GONE"]:
                    absent += each.tasks
                    continue
                if len(found) < len(each.tasks):  # one answer for all of them
                    found *= len(each.tasks)
                is_here = [answer != _ELSEWHERE for answer in found]
                here = each.tasks
                if not all(is_here):
                    absent += itertools.compress(here, map(operator.not_, is_here))
                    found = list(itertools.compress(found, is_here))
                    here = list(itertools.compress(here, is_here))
                again += await decide(each.shard, here, found)
        return absent, stale

    def _by_script(self, sent: Sequence[Sent[TaskT]]) -> Iterator[list[Sent[TaskT]]]:
        """Yield the parts that one script takes together; in a cluster each part has its own."""
        most = 0 if self.index.servers.is_cluster else _ROWS_TOGETHER
        parts: list[Sent[TaskT]] = []
        rows = 0
        for each in sent:
            if parts and rows + len(each.tasks) > most:
                yield parts
                parts, rows = [], 0
            parts.append(each)
            rows += len(each.tasks)
        if parts:
            yield parts

    async def _free_answers(
        self, lane: lanes.Lane, sent: Sent[TaskT], answered: _Answered
    ) -> list[bytes]:
        """Return the answers of a part; send it again while one of its rows is moving."""
        last = self.index.clock.monotonic() + layouts.PATIENCE_SECONDS
        while answered == [b"BUSY"]:
            if self.index.clock.monotonic() > last:
                raise errors.TryLater(layouts.MOVING)
            await self.index.clock.sleep(layouts.BUSY_SECONDS)
            (answered,) = await self.index.pipelined_durably.run(self._call(lane, [sent]))
        if isinstance(answered, bytes):
            raise scripting.reported(answered, "change rows")
        return answered

    def _call(self, lane: lanes.Lane, parts: Sequence[Sent[TaskT]]) -> scripting.ScriptCall:
        call = self.index.call("drop" if lane.drops else "put", None)
        self.index.stored += not lane.drops
        call.put(parts=[self.part(call, lane, each) for each in parts])
        return call

    def part(
        self, call: scripting.ScriptCall, lane: lanes.Lane, sent: Sent[TaskT]
    ) -> dict[str, object]:
        """Return the script's arguments for one shard; add its keys and rows to the call."""
        shard = sent.shard
        kinds = {task.kind.digest: task.kind for task in sent.tasks if task.kind and task.record}
        groups: list[int] = []
        listed: list[bytes] = []
        buckets: list[str] = []
        names, of_population = self.index.shard(shard), self.index.buckets
        last = -1
        first_key = call.new_keys(
            (
                *(names.meta, names.heads, names.wake, names.leases, names.texts, names.blobs),
                *(names.occ, names.occrec, names.ended, names.lane(lane.name)),
            )
        )
        position = first = call.run(())[0]
        key = call.new_keys(())
        for task in sent.tasks:
            row = task.row
            listed += (row.id, task.record, task.due, task.expected)
            if row.bucket != last:
                last = row.bucket
                groups += (key + len(buckets), position, 0)
                buckets.append(names.bucket_at(last, of_population))
            position += _ROW_LENGTH
            groups[-1] = position - 1
        call.run(listed)
        call.new_keys(buckets)
        part: dict[str, object] = {
            "keys": first_key,
            "layout": sharding.layout_of(shard),
            "lane": lane.name,
            "groups": groups,
            **lane.writer,
        }
        if kinds:
            part["kinds"] = call.run(
                value for kind in kinds.values() for value in (kind.digest, kind.text)
            )
        blobs = {kind.target: kind.blob for kind in kinds.values() if kind.blob}
        if blobs:
            part["blobs"] = call.run(value for pair in blobs.items() for value in pair)
        options = {
            first + _ROW_LENGTH * number: {
                name: call.run(value) if name == "open" else value
                for name, value in task.options.items()
            }
            for number, task in enumerate(sent.tasks)
            if task.options
        }
        if options:
            part["options"] = options
        return part
