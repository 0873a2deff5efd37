"""Hands entries of streams in our own Redis over to the queue, with the ends of their points.

Where one server holds queue and streams, the entry, the end of its point and the news of it go in
with one script or not at all, so neither a lost reply nor a death in between makes two entries of
one slot. On a cluster the entry goes first and the settlement follows: at least once. Batches of
one claim go in together, few enough for scripts that stay short; a lone attempt is a batch of one
row. What a stream refuses is answered for attempt by attempt, as any other target's answer is.
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
from duepoint.delayqueue.messages import Settlement
from duepoint.faults import FaultPoint
from duepoint.runs import outcome as outcomes
from duepoint.runs import run
from duepoint.schedules import actions, points
from duepoint.schedules.conditions import Reason
from duepoint.targets import target as targets
from duepoint.worker import endings, results
from duepoint.worker.plan import Attempt, Batch
from duepoint.worker.settler import Settler

#: Of one script that appends and settles: 2 to 3.5 ms of the server's time, 5.5 with 500.
_MOST_ENTRIES = 300
_MOST_BYTES = 1024 * 1024
#: Of an entry beside its payload, which is copied with every entry.
_ENTRY_BYTES = 256
_ID_LENGTH = 8


@dataclass(frozen=True, slots=True)
class Entries:
    """A batch whose entries go into one stream, with the action that they are made from."""

    batch: Batch
    action: actions.Action
    started_us: int

    @property
    def members(self) -> Sequence[bytes]:
        return self.batch.members

    @property
    def firings(self) -> targets.Firings:
        batch, single = self.batch, self.batch.single
        return targets.Firings(
            action=self.action,
            namespace=batch.namespace,
            trigger=batch.trigger,
            uids=batch.uids,
            generations=batch.generations,
            slots_us=batch.slots_us,
            attempt=1 if single is None else single.number,
            run_uid="" if single is None else single.run_uid,
            owner=batch.owner,
            names=batch.names,
            payloads=[payload.text for payload in batch.payloads],
        )

    @property
    def longest_payload(self) -> int:
        """Bytes of the longest payload."""
        own = max((len(payload.text) for payload in self.batch.payloads), default=0)
        return max(own, len(self.action.payload))

    def pick(self, rows: Sequence[int]) -> Entries:
        return Entries(self.batch.pick(rows), self.action, self.started_us)

    def firing(self, attempt: Attempt) -> targets.Firing:
        """One of its attempts as its target sees it; never sent."""
        return attempt.firing(self.action, now=0.0, not_after=0.0)


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

    async def append(self, settler: Settler, items: Iterable[Entries]) -> None:
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

    async def _deliver(self, settler: Settler, items: Sequence[Entries]) -> None:
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

    def _hoped(self, settler: Settler, item: Entries) -> tuple[messages.StreamEntries, Settlement]:
        """Entries and what their points end with, the news among the entries."""
        text = self._target.message(item.action)
        ending = self._ending(settler, item, [text] * len(item.members), settler.now_us())
        entries = dataclasses.replace(
            self._target.entries(item.firings, item.members), outcomes=run.pack(ending.events)
        )
        ending.events.clear()
        return entries, ending

    def _still_held(
        self, settler: Settler, items: Sequence[Entries], handed: messages.DeliveryResult
    ) -> list[Entries]:
        """What is left once the points that were taken out of the queue are left out."""
        held, left = iter(handed.held), []
        for item in items:
            flags = [next(held) for _ in item.members]
            rows = [row for row, is_held in enumerate(flags) if is_held]
            if len(rows) == len(flags):
                left.append(item)
            elif rows:
                left.append(item.pick(rows))
            elif item.batch.single is not None:
                withdrawn = endings.still_open(
                    item.batch.single,
                    Reason.DELETED,
                    "taken out of the queue before it ran",
                    attempts=item.batch.single.number,
                    now_us=settler.now_us(),
                )
                if withdrawn is not None:
                    settler.add(withdrawn)
        return left

    # -- a cluster: before the settlement --------------------------------------------------------

    async def _append_first(self, settler: Settler, item: Entries) -> None:
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
            settler.add(self._ending(settler, item, [f"entry {id_}" for id_ in ids], now_us))
            self._count(item, now_us)

    # -- what the points end with ----------------------------------------------------------------

    def _ending(
        self, settler: Settler, item: Entries, texts: Sequence[str], accepted_us: int
    ) -> Settlement:
        """With their entries appended; a message for each."""
        batch = item.batch
        if (single := batch.single) is not None:
            delivered = outcomes.Delivered(accepted_us=accepted_us, message=texts[0])
            firing = item.firing(single)
            return self._results.settlement(settler, single, firing, delivered, item.started_us)
        news = run.Together(
            namespace=batch.namespace,
            trigger=batch.trigger,
            at_us=accepted_us,
            started_us=accepted_us,
            accepted_us=accepted_us,
            uids=batch.uids,
            names=batch.names,
            generations=run.column(batch.generations),
            slots_us=run.column(batch.slots_us),
            messages=run.column(texts),
            owner=batch.owner,
        )
        ending = Settlement(events=[news])
        following: Iterable[tuple[bytes, int | None]]
        following = zip(batch.members, batch.following, strict=True)
        if batch.has_several:  # the last row of a chain says where it goes on
            following = dict(following).items()
        ending.chains = [(member, due_us) for member, due_us in following if due_us is not None]
        if len(ending.chains) < batch.points:
            over = [
                member
                for member, due_us in zip(batch.members, batch.following, strict=True)
                if due_us is None
            ]
            ending.finished += over
            ending.ended += over
            for member in over:
                ending.leave(points.ScheduleId(member[:_ID_LENGTH]), messages.Leaving.ENDED)
        return ending

    def _count(self, item: Entries, accepted_us: int) -> None:
        delivered = outcomes.Delivered(accepted_us=accepted_us)
        batch, count = item.batch, len(item.members)
        targets.count(batch.namespace, item.action, delivered, count)
        if batch.single is not None:
            self._results.observe(batch.single, delivered)
        else:
            results.observe_batch(batch.namespace, accepted_us, batch.slots_us)
        targets.count_result(batch.namespace, item.action.target, run.RunState.SUCCEEDED, count)

    def _answer(
        self, settler: Settler, item: Entries, refusal: outcomes.Retry | outcomes.Rejected
    ) -> None:
        """None of their entries was appended.

        Of several slots of a chain the oldest is answered for; the chain is due at the next one.
        """
        batch, now_us = item.batch, settler.now_us()
        started_us = now_us if batch.single is None else item.started_us
        targets.count(batch.namespace, item.action, refusal, batch.points)
        for attempt in batch.attempts():
            firing = item.firing(attempt)
            settler.add(self._results.record(settler, attempt, firing, refusal, started_us))


def _answer_of(error: errors.DuepointError) -> outcomes.Retry | outcomes.Rejected:
    if isinstance(error, queue_errors.WrongType):
        return outcomes.Rejected(reason=Reason.TARGET_UNAVAILABLE, message=str(error))
    message, after_us = str(error), targets.after_us(error)
    return outcomes.Retry(reason=Reason.QUEUE_UNAVAILABLE, message=message, after_us=after_us)


def _scripts(items: Iterable[Entries]) -> Iterator[list[Entries]]:
    """The items in their order, few enough entries and bytes for one script each."""
    script: list[Entries] = []
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


def _parts(item: Entries) -> Iterator[Entries]:
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


def _entry_bytes(item: Entries) -> int:
    return _ENTRY_BYTES + item.longest_payload
