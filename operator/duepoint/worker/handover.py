"""Appends entries to streams in our own Redis, together with the settlement of their points.

If one server holds queue and streams, one script writes the entry, the end of its point and its
event, or none of them: neither a lost reply nor a worker that dies in between makes two entries of
one slot. On a cluster the entry goes first and the settlement follows: at least once. Batches of
one claim share scripts, which stay short; a lone attempt is a batch of one row. If a stream refuses
an entry, each attempt gets that as its answer, as with any other target.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterable, Iterator, Sequence

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
from duepoint.worker.plan import Batch
from duepoint.worker.settler import Settler

#: Limits of one script that appends and settles: 2 to 3.5 ms of the server's time, 5.5 with 500.
_MOST_ENTRIES = 300
_MOST_BYTES = 1024 * 1024
#: Size of an entry without its payload, which every entry copies.
_ENTRY_BYTES = 256
_ID_LENGTH = 8


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

    async def append(self, settler: Settler, batches: Iterable[Batch]) -> None:
        """Append these; afterwards their points are settled, or the settler has their endings."""
        for script in _scripts(batches):
            if settler.lost:
                return  # this worker no longer holds its points
            await faults.reach(FaultPoint.BEFORE_ENTRIES)
            if self._queue.settlements.settles_entries:
                await self._deliver(settler, script)
            else:
                for batch in script:
                    await self._append_first(settler, batch)
            await faults.reach(FaultPoint.AFTER_ENTRIES)

    # -- one server: with the settlement ---------------------------------------------------------

    async def _deliver(self, settler: Settler, batches: Sequence[Batch]) -> None:
        while batches:
            handed = await settler.hand_over(
                *zip(*(self._hoped(settler, batch) for batch in batches), strict=True)
            )
            if handed is None:
                return
            if isinstance(handed, queue_errors.WriteRefused | queue_errors.WrongType):
                if len(batches) == 1:
                    self._answer(settler, batches[0], _answer_of(handed))
                    return
                for batch in batches:  # one by one: each stream says why it refuses
                    await self._deliver(settler, [batch])
                return
            if handed.done:
                now_us = settler.now_us()
                for batch in batches:
                    self._count(batch, now_us)
                return
            if handed.lost:
                settler.lost = True
                return
            batches = self._still_held(settler, batches, handed)

    def _hoped(self, settler: Settler, batch: Batch) -> tuple[messages.StreamEntries, Settlement]:
        """Return the entries, which carry the events, and the settlement if all are appended."""
        text = self._target.message(batch.action)
        ending = self._ending(settler, batch, [text] * len(batch.members), settler.now_us())
        entries = dataclasses.replace(
            self._target.entries(batch, batch.members), outcomes=run.pack(ending.events)
        )
        ending.events.clear()
        return entries, ending

    def _still_held(
        self, settler: Settler, batches: Sequence[Batch], handed: messages.DeliveryResult
    ) -> list[Batch]:
        """Return the batches without the points that were removed from the queue meanwhile."""
        held, left = iter(handed.held), []
        for batch in batches:
            flags = [next(held) for _ in batch.members]
            rows = [row for row, is_held in enumerate(flags) if is_held]
            if len(rows) == len(flags):
                left.append(batch)
            elif rows:
                left.append(batch.pick(rows))
            elif batch.single is not None:
                withdrawn = endings.still_open(
                    batch.single,
                    Reason.DELETED,
                    "taken out of the queue before it ran",
                    attempts=batch.single.number,
                    now_us=settler.now_us(),
                )
                if withdrawn is not None:
                    settler.add(withdrawn)
        return left

    # -- a cluster: before the settlement --------------------------------------------------------

    async def _append_first(self, settler: Settler, batch: Batch) -> None:
        held_for = settler.claim.held_until - self._clock.monotonic()
        left = min(held_for, actions.StreamAction.limit_seconds)
        if left <= 0 or settler.lost:
            settler.lost = True
            return
        try:
            async with asyncio.timeout(left):
                ids = await self._queue.streams.append(self._target.entries(batch, batch.members))
        except (queue_errors.WrongType, errors.QueueUnavailable) as error:
            self._answer(settler, batch, _answer_of(error))
        except TimeoutError:
            message = f"no answer from Redis in {left:g} s"
            self._answer(
                settler, batch, outcomes.Retry(reason=Reason.QUEUE_UNAVAILABLE, message=message)
            )
        else:
            now_us = settler.now_us()
            settler.add(self._ending(settler, batch, [f"entry {id_}" for id_ in ids], now_us))
            self._count(batch, now_us)

    # -- what the points end with ----------------------------------------------------------------

    def _ending(
        self, settler: Settler, batch: Batch, texts: Sequence[str], accepted_us: int
    ) -> Settlement:
        """Return the settlement of a batch whose entries were appended, with a message for each."""
        if (single := batch.single) is not None:
            delivered = outcomes.Delivered(accepted_us=accepted_us, message=texts[0])
            firing = single.firing(batch.action, now=0.0, not_after=0.0)
            return self._results.settlement(settler, single, firing, delivered, accepted_us)
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
        following = list(zip(batch.members, batch.following, strict=True))
        ending.chains = [(member, due_us) for member, due_us in following if due_us is not None]
        if len(ending.chains) < len(following):
            over = [member for member, due_us in following if due_us is None]
            ending.finished += over
            ending.ended += over
            for member in over:
                ending.leave(points.ScheduleId(member[:_ID_LENGTH]), messages.Leaving.ENDED)
        return ending

    def _count(self, batch: Batch, accepted_us: int) -> None:
        delivered = outcomes.Delivered(accepted_us=accepted_us)
        count = len(batch.members)
        targets.count(batch.namespace, batch.action, delivered, count)
        if batch.single is not None:
            self._results.observe(batch.single, delivered)
        else:
            results.observe_batch(batch.namespace, accepted_us, batch.slots_us)
        targets.count_result(batch.namespace, batch.action.target, run.RunState.SUCCEEDED, count)

    def _answer(
        self, settler: Settler, batch: Batch, refusal: outcomes.Retry | outcomes.Rejected
    ) -> None:
        """Settle each attempt of a batch with the refusal: none of its entries was appended."""
        now_us = settler.now_us()
        targets.count(batch.namespace, batch.action, refusal, len(batch.members))
        for attempt in batch.attempts():
            firing = attempt.firing(batch.action, now=0.0, not_after=0.0)
            settler.add(self._results.record(settler, attempt, firing, refusal, now_us))


def _answer_of(error: errors.DuepointError) -> outcomes.Retry | outcomes.Rejected:
    if isinstance(error, queue_errors.WrongType):
        return outcomes.Rejected(reason=Reason.TARGET_UNAVAILABLE, message=str(error))
    message, after_us = str(error), targets.after_us(error)
    return outcomes.Retry(reason=Reason.QUEUE_UNAVAILABLE, message=message, after_us=after_us)


def _scripts(batches: Iterable[Batch]) -> Iterator[list[Batch]]:
    """Yield the batches in their order, grouped by script within its limits."""
    script: list[Batch] = []
    entries = size = 0
    for part in batches:
        for batch in _parts(part):
            count = len(batch.members)
            length = count * _entry_bytes(batch)
            if script and (entries + count > _MOST_ENTRIES or size + length > _MOST_BYTES):
                yield script
                script, entries, size = [], 0, 0
            script.append(batch)
            entries, size = entries + count, size + length
    if script:
        yield script


def _parts(batch: Batch) -> Iterator[Batch]:
    """Yield a batch in parts that each fit one script."""
    count = len(batch.members)
    most = max(1, min(_MOST_ENTRIES, _MOST_BYTES // _entry_bytes(batch)))
    if count <= most:
        yield batch
        return
    for first in range(0, count, most):
        yield batch.pick(range(first, min(first + most, count)))


def _entry_bytes(batch: Batch) -> int:
    own = max(map(len, batch.payloads), default=0)
    return _ENTRY_BYTES + max(own, len(batch.action.payload))
