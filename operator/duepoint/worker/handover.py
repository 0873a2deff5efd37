"""Hands entries of streams in our own Redis over to the queue, with the ends of their points.

Where one server holds queue and streams, the entry, the end of its point and the news of it go in
with one script or not at all, so neither a lost reply nor a death in between makes two entries of
one slot. On a cluster the entry goes first and the settlement follows: at least once. Groups and
single attempts of one claim go in together, few enough for scripts that stay short. What a stream
refuses is answered for attempt by attempt, as any other target's answer is.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from duepoint import errors, faults
from duepoint.clock import Clock
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import messages
from duepoint.delayqueue.delayqueue import DelayQueue
from duepoint.faults import FaultPoint
from duepoint.runs import outcome as outcomes
from duepoint.runs import run
from duepoint.schedules import actions, points
from duepoint.schedules.conditions import Reason
from duepoint.targets import target as targets
from duepoint.worker import closing as closings
from duepoint.worker import results
from duepoint.worker.plan import Attempt, Closing, Group
from duepoint.worker.settler import Settler

#: Of one script that appends and settles: 2 to 3.5 ms of the server's time, 5.5 with 500.
_MOST_ENTRIES = 300
_MOST_BYTES = 1024 * 1024
#: Of an entry beside its payload, which is copied with every entry.
_ENTRY_BYTES = 256
_ID_LENGTH = 8


@dataclass(frozen=True, slots=True)
class GroupItem:
    """Entries of one stream: those of a group of ordinary points."""

    group: Group
    action: actions.Action

    @property
    def namespace(self) -> str:
        return self.group.namespace

    @property
    def members(self) -> Sequence[bytes]:
        return self.group.members

    @property
    def firings(self) -> targets.Firings:
        group = self.group
        return targets.Firings(
            action=self.action,
            namespace=group.namespace,
            trigger=group.trigger,
            uids=group.uids,
            generations=group.generations,
            slots_us=group.slots_us,
            owner=group.owner,
            names=group.names,
            payloads=[payload.text for payload in group.payloads],
        )

    @property
    def longest_payload(self) -> int:
        """Bytes of the longest payload."""
        own = max((len(payload.text) for payload in self.group.payloads), default=0)
        return max(own, len(self.action.payload))

    def pick(self, rows: Sequence[int]) -> GroupItem:
        return GroupItem(self.group.pick(rows), self.action)


@dataclass(frozen=True, slots=True)
class AttemptItem:
    """The entry of one attempt that is not ordinary: a retry, a slot of a catch-up ..."""

    attempt: Attempt
    firing: targets.Firing
    started_us: int

    @property
    def namespace(self) -> str:
        return self.firing.namespace

    @property
    def action(self) -> actions.Action:
        return self.firing.action

    @property
    def members(self) -> Sequence[bytes]:
        return (self.attempt.point.member,)

    @property
    def firings(self) -> targets.Firings:
        return targets.Firings.of(self.firing)

    @property
    def longest_payload(self) -> int:
        """Bytes of its payload."""
        return len(self.action.payload)

    def pick(self, rows: Sequence[int]) -> AttemptItem:  # noqa: ARG002 - it has one
        return self


HandoverItem = GroupItem | AttemptItem


class Handover:
    """Appends entries for a worker."""

    def __init__(
        self,
        *,
        queue: DelayQueue,
        target: targets.WorkerTarget,
        clock: Clock,
        results: results.Results,
    ) -> None:
        self._queue = queue
        self._target = target
        self._clock = clock
        self._results = results

    async def append(self, settler: Settler, items: Iterable[HandoverItem]) -> None:
        """Append these; the ends of their points are settled or with the settler afterwards."""
        for script in _scripts(items):
            if settler.lost:
                return  # nothing of it is this worker's any more
            await faults.reach(FaultPoint.BEFORE_ENTRIES)
            if self._queue.settlements.settles_entries:
                await self._deliver(settler, script)
            else:
                for item in script:
                    await self._append_first(settler, item)
            await faults.reach(FaultPoint.AFTER_ENTRIES)

    # -- one server: with the settlement ---------------------------------------------------------

    async def _deliver(self, settler: Settler, items: Sequence[HandoverItem]) -> None:
        while items:
            handed = await settler.hand_over(
                *zip(*(self._hoped(settler, item) for item in items), strict=True)
            )
            if handed is None:
                return
            if isinstance(handed, queue_errors.WriteRefused | queue_errors.WrongType):
                if len(items) == 1:
                    self._answer(settler, items[0], _answer_of(handed))
                    return
                refused = items
            elif handed.done:
                now_us = settler.now_us()
                why = handed.refused or ("",) * len(items)
                refused = [item for item, refusal in zip(items, why, strict=True) if refusal]
                for item, refusal in zip(items, why, strict=True):
                    if not refusal:
                        self._count(item, now_us)
            elif handed.lost:
                settler.lost = True
                return
            else:
                items = self._still_held(settler, items, handed)
                continue
            for item in refused:  # alone, each stream says why
                await self._deliver(settler, [item])
            return

    def _hoped(
        self, settler: Settler, item: HandoverItem
    ) -> tuple[messages.StreamEntries, Closing]:
        """Entries and what their points end with, the news among the entries."""
        text = self._target.message(item.action)
        closed = self._closing(settler, item, [text] * len(item.members), settler.now_us())
        entries = dataclasses.replace(
            self._target.entries(item.firings, item.members), outcomes=run.pack(closed.events)
        )
        return entries, dataclasses.replace(closed, events=())

    def _still_held(
        self, settler: Settler, items: Sequence[HandoverItem], handed: messages.DeliveryResult
    ) -> list[HandoverItem]:
        """What is left once the points that were taken out of the queue are left out."""
        held, left = iter(handed.held), []
        for item in items:
            flags = [next(held) for _ in item.members]
            rows = [row for row, is_held in enumerate(flags) if is_held]
            if len(rows) == len(flags):
                left.append(item)
            elif rows:
                left.append(item.pick(rows))
            elif isinstance(item, AttemptItem):
                withdrawn = closings.still_open(
                    item.attempt,
                    Reason.DELETED,
                    "taken out of the queue before it ran",
                    attempts=item.attempt.number,
                    now_us=settler.now_us(),
                )
                if withdrawn is not None:
                    settler.add(withdrawn)
        return left

    # -- a cluster: before the settlement --------------------------------------------------------

    async def _append_first(self, settler: Settler, item: HandoverItem) -> None:
        left = min(settler.claim.held_until - self._clock.monotonic(), targets.STREAM_LIMIT_SECONDS)
        if left <= 0 or settler.lost:
            settler.lost = True
            return
        try:
            async with asyncio.timeout(left):
                ids = await self._queue.streams.append(
                    self._target.entries(item.firings, item.members)
                )
        except (queue_errors.WrongType, errors.QueueUnavailable) as error:
            self._answer(settler, item, _answer_of(error))
        except TimeoutError:
            message = f"no answer from Redis in {left:g} s"
            self._answer(
                settler, item, outcomes.Retry(reason=Reason.QUEUE_UNAVAILABLE, message=message)
            )
        else:
            now_us = settler.now_us()
            settler.add(self._closing(settler, item, [f"entry {id_}" for id_ in ids], now_us))
            self._count(item, now_us)

    # -- what the points end with ----------------------------------------------------------------

    def _closing(
        self, settler: Settler, item: HandoverItem, texts: Sequence[str], accepted_us: int
    ) -> Closing:
        """With their entries appended; a message for each."""
        if isinstance(item, AttemptItem):
            delivered = outcomes.Delivered(accepted_us=accepted_us, message=texts[0])
            return self._results.closing(
                settler, item.attempt, item.firing, delivered, item.started_us
            )
        group = item.group
        news = run.Together(
            namespace=group.namespace,
            trigger=group.trigger,
            at_us=accepted_us,
            started_us=accepted_us,
            accepted_us=accepted_us,
            uids=group.uids,
            names=group.names,
            generations=run.column(group.generations),
            slots_us=run.column(group.slots_us),
            messages=run.column(texts),
            owner=group.owner,
        )
        following: Iterable[tuple[bytes, int | None]]
        following = zip(group.members, group.following, strict=True)
        if group.has_several:  # the last row of a chain says where it goes on
            following = dict(following).items()
        next_dues = [(member, due_us) for member, due_us in following if due_us is not None]
        if len(next_dues) == group.points:
            return Closing(next_dues=next_dues, events=(news,))
        over = [
            member
            for member, following_us in zip(group.members, group.following, strict=True)
            if following_us is None
        ]
        ids = [points.ScheduleId(member[:_ID_LENGTH]) for member in over]
        return Closing(
            next_dues=next_dues,
            finished=over,
            ended=ids,
            leaving=[(id_, messages.Leaving.ENDED) for id_ in ids],
            events=(news,),
        )

    def _count(self, item: HandoverItem, accepted_us: int) -> None:
        delivered = outcomes.Delivered(accepted_us=accepted_us)
        targets.count(item.namespace, item.action, delivered, len(item.members))
        if isinstance(item, AttemptItem):
            self._results.observe(item.attempt, delivered)
        else:
            results.observe_group(item.namespace, accepted_us, item.group.slots_us)
        targets.count_result(
            item.namespace, item.action.target, run.RunState.SUCCEEDED, len(item.members)
        )

    def _answer(
        self, settler: Settler, item: HandoverItem, refusal: outcomes.Retry | outcomes.Rejected
    ) -> None:
        """None of their entries was appended.

        Of several slots of a chain the oldest is answered for; the chain is due at the next one.
        """
        record = self._results.record
        if isinstance(item, AttemptItem):
            targets.count(item.namespace, item.action, refusal, 1)
            settler.add(record(settler, item.attempt, item.firing, refusal, item.started_us))
            return
        now_us = settler.now_us()
        targets.count(item.namespace, item.action, refusal, item.group.points)
        for attempt in item.group.oldest().attempts():
            firing = attempt.firing(item.action, now=0.0, not_after=0.0)  # never sent
            settler.add(record(settler, attempt, firing, refusal, now_us))


def _answer_of(error: errors.DuepointError) -> outcomes.Retry | outcomes.Rejected:
    if isinstance(error, queue_errors.WrongType):
        return outcomes.Rejected(reason=Reason.WRONG_TYPE, message=str(error))
    message, after_us = str(error), targets.after_us(error)
    return outcomes.Retry(reason=Reason.QUEUE_UNAVAILABLE, message=message, after_us=after_us)


def _scripts(items: Iterable[HandoverItem]) -> Iterator[list[HandoverItem]]:
    """The items in their order, few enough entries and bytes for one script each."""
    script: list[HandoverItem] = []
    entries = size = 0
    for part in items:
        for item in _parts(part):
            count = len(item.members)
            length = count * _entry_bytes(item)
            if script and (entries + count > _MOST_ENTRIES or size + length > _MOST_BYTES):
                yield script
                script, entries, size = [], 0, 0
            script.append(item)
            entries, size = entries + count, size + length
    if script:
        yield script


def _parts(item: HandoverItem) -> Iterator[HandoverItem]:
    """An item in parts for one script each."""
    count = len(item.members)
    most = max(1, min(_MOST_ENTRIES, _MOST_BYTES // _entry_bytes(item)))
    if count <= most:
        yield item
        return
    first = 0
    while first < count:
        end, left = _end_of_part(item.members, first, most)
        yield item.pick(range(first, end))
        first = left


def _end_of_part(members: Sequence[bytes], first: int, most: int) -> tuple[int, int]:
    """Where a part of so many rows ends, and where the next one begins.

    The slots of a chain go in together, because it moves on with them: a chain that does not fit
    into the rest of a part begins the next one. Of one with more rows than a part may have the
    oldest go in, and the others are left out: it is due again at once.
    """
    end = min(first + most, len(members))
    if end == len(members) or members[end] != members[end - 1]:
        return end, end
    begin = left = end
    while begin > first and members[begin - 1] == members[end]:
        begin -= 1
    if begin > first:
        return begin, begin
    while left < len(members) and members[left] == members[end]:
        left += 1
    return end, left


def _entry_bytes(item: HandoverItem) -> int:
    return _ENTRY_BYTES + item.longest_payload
