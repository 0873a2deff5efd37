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
from typing import Protocol

from duepoint import errors
from duepoint.clock import Clock
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import messages
from duepoint.delayqueue.delayqueue import DelayQueue
from duepoint.runs import outcome as outcomes
from duepoint.runs import run
from duepoint.schedules import actions
from duepoint.schedules.conditions import Reason
from duepoint.targets import target as targets
from duepoint.worker import closing as closings
from duepoint.worker import results
from duepoint.worker.plan import Attempt, Group
from duepoint.worker.settler import Settler

#: Of one script that appends and settles: 2 to 3.5 ms of the server's time, 5.5 with 500.
_MOST_ENTRIES = 300
_MOST_BYTES = 1024 * 1024
#: Of an entry beside its payload, which is copied with every entry.
_ENTRY_BYTES = 256


class HandoverItem(Protocol):
    """Entries of one stream, all because of points of one claim."""

    @property
    def members(self) -> Sequence[bytes]: ...

    @property
    def firings(self) -> targets.Firings: ...

    def pick(self, rows: Sequence[int]) -> HandoverItem:
        """Some of them."""
        ...

    def closing(self, texts: Sequence[str], accepted_us: int) -> closings.Closing:
        """What the points end with, their entries appended; a message for each."""
        ...

    def observe(self, accepted_us: int) -> None:
        """Count them as delivered."""
        ...

    def answer(self, refusal: outcomes.Retry | outcomes.Rejected) -> Iterator[closings.Closing]:
        """What the points end with, none of their entries appended."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupItem:
    """A group of ordinary points."""

    group: Group
    action: actions.Action
    settler: Settler
    results: results.Results

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
        )

    def pick(self, rows: Sequence[int]) -> GroupItem:
        return dataclasses.replace(self, group=self.group.pick(rows))

    def closing(self, texts: Sequence[str], accepted_us: int) -> closings.Closing:
        group = self.group
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
        )
        next_dues = list(zip(group.members, group.following, strict=True))
        return closings.Closing(next_dues=next_dues, events=(news,))

    def observe(self, accepted_us: int) -> None:
        results.observe_group(accepted_us, self.group.slots_us)

    def answer(self, refusal: outcomes.Retry | outcomes.Rejected) -> Iterator[closings.Closing]:
        now_us = self.settler.now_us()
        for attempt in self.group.attempts():
            firing = attempt.firing(self.action, now=0.0, not_after=0.0)  # never sent
            yield self.results.record(self.settler, attempt, firing, refusal, now_us)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptItem:
    """One attempt that is not ordinary: a retry, a slot of a catch-up, of a ScheduleRun ..."""

    attempt: Attempt
    firing: targets.Firing
    started_us: int
    settler: Settler
    results: results.Results

    @property
    def members(self) -> Sequence[bytes]:
        return (self.attempt.point.member,)

    @property
    def firings(self) -> targets.Firings:
        return targets.Firings.of(self.firing)

    def pick(self, rows: Sequence[int]) -> AttemptItem:  # noqa: ARG002 - it has one
        return self

    def closing(self, texts: Sequence[str], accepted_us: int) -> closings.Closing:
        delivered = outcomes.Delivered(accepted_us=accepted_us, message=texts[0])
        return self.results.closing(
            self.settler, self.attempt, self.firing, delivered, self.started_us
        )

    def observe(self, accepted_us: int) -> None:
        self.results.observe(self.attempt, outcomes.Delivered(accepted_us=accepted_us))

    def answer(self, refusal: outcomes.Retry | outcomes.Rejected) -> Iterator[closings.Closing]:
        yield self.results.record(self.settler, self.attempt, self.firing, refusal, self.started_us)


class Handover:
    """Appends entries for a worker."""

    def __init__(self, *, queue: DelayQueue, target: targets.WorkerTarget, clock: Clock) -> None:
        self._queue = queue
        self._target = target
        self._clock = clock

    async def append(self, settler: Settler, items: Iterable[HandoverItem]) -> None:
        """Append these; the ends of their points are settled or with the settler afterwards."""
        for script in _scripts(items):
            if settler.lost:
                return  # nothing of it is this worker's any more
            if self._queue.settlements.settles_entries:
                await self._deliver(settler, script)
            else:
                for item in script:
                    await self._append_first(settler, item)

    # -- one server: with the settlement ---------------------------------------------------------

    async def _deliver(self, settler: Settler, items: Sequence[HandoverItem]) -> None:
        while items:
            handed = await settler.hand_over(
                *zip(*(self._hoped(settler, item) for item in items), strict=True)
            )
            if handed is None:
                return
            if isinstance(handed, queue_errors.WriteRefused | queue_errors.WrongType):
                await self._refused(settler, items, handed)
                return
            if handed.done:
                refused = self._delivered(settler, items, handed)
                for item in refused:  # alone, each stream says why
                    await self._deliver(settler, [item])
                return
            items = self._still_held(settler, items, handed)

    def _hoped(
        self, settler: Settler, item: HandoverItem
    ) -> tuple[messages.StreamEntries, closings.Closing]:
        """Entries and what their points end with, the news among the entries."""
        firings, now_us = item.firings, settler.now_us()
        text = self._target.message(firings.action)
        closed = item.closing([text] * len(item.members), now_us)
        entries = dataclasses.replace(
            self._target.entries(firings, item.members), outcomes=run.pack(closed.events)
        )
        return entries, dataclasses.replace(closed, events=())

    def _delivered(
        self, settler: Settler, items: Sequence[HandoverItem], handed: messages.DeliveryResult
    ) -> list[HandoverItem]:
        """Counts those that are in; returns those of streams that refused."""
        now_us = settler.now_us()
        why = handed.refused or ("",) * len(items)
        for item, refusal in zip(items, why, strict=True):
            if not refusal:
                self._count(item, now_us)
        return [item for item, refusal in zip(items, why, strict=True) if refusal]

    def _count(self, item: HandoverItem, accepted_us: int) -> None:
        delivered = outcomes.Delivered(accepted_us=accepted_us)
        targets.count(item.firings.action, delivered, len(item.members))
        item.observe(accepted_us)

    async def _refused(
        self,
        settler: Settler,
        items: Sequence[HandoverItem],
        error: queue_errors.WriteRefused | queue_errors.WrongType,
    ) -> None:
        """No stream took anything: of several each is asked alone, to say why."""
        if len(items) == 1:
            self._answer(settler, items[0], _answer_of(error))
            return
        for item in items:
            await self._deliver(settler, [item])

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
            elif isinstance(item, AttemptItem) and not handed.lost:
                withdrawn = closings.withdrawn(item.attempt, settler.now_us())
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
            settler.add(item.closing([f"entry {id_}" for id_ in ids], now_us))
            self._count(item, now_us)

    def _answer(
        self, settler: Settler, item: HandoverItem, refusal: outcomes.Retry | outcomes.Rejected
    ) -> None:
        targets.count(item.firings.action, refusal, len(item.members))
        for closed in item.answer(refusal):
            settler.add(closed)


def _answer_of(error: errors.DuepointError) -> outcomes.Retry | outcomes.Rejected:
    if isinstance(error, queue_errors.WrongType):
        return outcomes.Rejected(reason=Reason.WRONG_TYPE, message=str(error))
    seconds = error.retry_after_seconds if isinstance(error, errors.TryLater) else None
    return outcomes.Retry(
        reason=Reason.QUEUE_UNAVAILABLE,
        message=str(error),
        after_us=None if seconds is None else int(seconds * 1_000_000),
    )


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
    for first in range(0, count, most):
        yield item.pick(range(first, min(first + most, count)))


def _entry_bytes(item: HandoverItem) -> int:
    return _ENTRY_BYTES + len(item.firings.action.payload)
