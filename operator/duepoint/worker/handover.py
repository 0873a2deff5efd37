"""Appends entries to streams in our own Redis, together with the settlement of their points.

If one server holds queue and streams, one script writes the entry, the end of its point and its
event, or none of them: neither a lost reply nor a worker that dies in between makes two entries of
one slot. On a cluster the entry goes first and the settlement follows: at least once. Batches of
one claim share scripts, which stay short. If a stream refuses one of them, each row is tried alone,
and gets the refusal as its answer, as with any other target.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence

from duepoint import errors
from duepoint.clock import Clock
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import messages
from duepoint.delayqueue.delayqueue import DelayQueue
from duepoint.delayqueue.messages import Settlement
from duepoint.runs import run
from duepoint.schedules import actions, points
from duepoint.schedules.conditions import Reason
from duepoint.targets import outcome as outcomes
from duepoint.targets import target as targets
from duepoint.worker import endings, results
from duepoint.worker.plan import Attempt, Batch
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
        streams: targets.EntryTarget,
        clock: Clock,
        results: results.Results,
    ) -> None:
        self._queue = queue
        self._streams = streams
        self._clock = clock
        self._results = results

    async def append_all(self, settler: Settler, batches: Iterable[Batch]) -> list[Batch]:
        """Append these and settle their points; return those that a stream refused."""
        refused: list[Batch] = []
        for script in _scripts(batches):
            if settler.lost:
                break  # this worker no longer holds its points
            if self._queue.settlements.settles_entries:
                refused += await self._deliver(settler, script)
            else:
                for batch in script:
                    refused += await self._append_first(settler, batch)
        return refused

    async def append_one(
        self, settler: Settler, attempt: Attempt, firing: targets.Firing
    ) -> Settlement:
        """Append the entry of one attempt; return its settlement, empty if that is written."""
        row, now_us = targets.Firings.of(firing), settler.now_us()
        entries = self._streams.entries(row, [attempt.point.member])
        answer: outcomes.Outcome
        if not self._queue.settlements.settles_entries:
            ids = await self._ids(settler, entries)
            if settler.lost:
                return Settlement()
            answer = (
                outcomes.Delivered(accepted_us=settler.now_us(), message=f"entry {ids[0]}")
                if isinstance(ids, list)
                else ids
            )
        else:
            answer = outcomes.Delivered(
                accepted_us=now_us, message=self._streams.message(firing.action)
            )
            ending = self._results.settlement(settler, attempt, firing, answer, now_us)
            handed = await settler.hand_over([entries], [ending])
            if handed is None or isinstance(handed, frozenset):
                return self._handed(settler, attempt, firing, answer, handed)
            answer = _answer_of(handed)
        targets.count(firing.namespace, firing.action, answer)
        return self._results.record(settler, attempt, firing, answer, now_us)

    def _handed(
        self,
        settler: Settler,
        attempt: Attempt,
        firing: targets.Firing,
        answer: outcomes.Delivered,
        not_held: frozenset[bytes] | None,
    ) -> Settlement:
        """Count the entry if it was appended; return the settlement that is still to be made."""
        if not_held is None:
            settler.lost = True
        elif not not_held:
            targets.count(firing.namespace, firing.action, answer)
            targets.count_result(firing.namespace, firing.action.target, run.RunState.SUCCEEDED)
            self._results.observe(attempt, answer)
        else:
            text, now_us = "removed from the queue before it ran", settler.now_us()
            made = attempt.number
            return endings.still_open(attempt, Reason.DELETED, text, attempts=made, now_us=now_us)
        return Settlement()

    # -- one server: with the settlement ---------------------------------------------------------

    async def _deliver(self, settler: Settler, batches: Sequence[Batch]) -> Sequence[Batch]:
        while batches:
            handed = await settler.hand_over(
                *zip(*(self._draft(settler, batch) for batch in batches), strict=True)
            )
            if isinstance(handed, queue_errors.WriteRefused | queue_errors.WrongType):
                return batches
            if handed is None:
                settler.lost = True
                break
            if not handed:
                now_us = settler.now_us()
                for batch in batches:
                    _count(batch, now_us)
                break
            batches = _still_held(batches, handed)
        return ()

    def _draft(self, settler: Settler, batch: Batch) -> tuple[messages.StreamEntries, Settlement]:
        """Return the entries of a batch, and its settlement for when all are appended."""
        texts = [self._streams.message(batch.action)]
        ending = _ending(batch, texts, settler.now_us())
        return self._streams.entries(batch, batch.members), ending

    # -- a cluster: before the settlement --------------------------------------------------------

    async def _append_first(self, settler: Settler, batch: Batch) -> Sequence[Batch]:
        ids = await self._ids(settler, self._streams.entries(batch, batch.members))
        if isinstance(ids, list):
            now_us = settler.now_us()
            settler.add(_ending(batch, [f"entry {id_}" for id_ in ids], now_us))
            _count(batch, now_us)
            return ()
        return () if settler.lost else [batch]

    async def _ids(
        self, settler: Settler, entries: messages.StreamEntries
    ) -> list[str] | outcomes.Retry | outcomes.Rejected:
        """Append entries; return their ids, or the outcome of a failure."""
        held_for = settler.claim.held_until - self._clock.monotonic()
        left = min(held_for, actions.StreamAction.limit_seconds)
        if left <= 0 or settler.lost:
            settler.lost = True
            return targets.not_started()
        try:
            async with asyncio.timeout(left):
                return await self._queue.streams.append(entries)
        except (queue_errors.WrongType, errors.QueueUnavailable) as error:
            return _answer_of(error)
        except TimeoutError:
            message = f"no answer from Redis in {left:g} s"
            return outcomes.Retry(reason=Reason.QUEUE_UNAVAILABLE, message=message)


def _still_held(batches: Sequence[Batch], not_held: frozenset[bytes]) -> list[Batch]:
    """Return the batches without the points that were removed from the queue meanwhile."""
    left = []
    for batch in batches:
        rows = [row for row, one in enumerate(batch.members) if one not in not_held]
        if rows:
            left.append(batch.pick(rows))
    return left


def _ending(batch: Batch, texts: Sequence[str], accepted_us: int) -> Settlement:
    """Return the settlement of a batch whose entries were appended, with one or all messages."""
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
        messages=texts,
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
            ending.leaving.append((points.ScheduleId(member[:_ID_LENGTH]), messages.Leaving.ENDED))
    return ending


def _count(batch: Batch, accepted_us: int) -> None:
    count = len(batch.members)
    targets.count(batch.namespace, batch.action, outcomes.Delivered(accepted_us=accepted_us), count)
    results.observe_batch(batch.namespace, accepted_us, batch.slots_us)
    targets.count_result(batch.namespace, batch.action.target, run.RunState.SUCCEEDED, count)


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
