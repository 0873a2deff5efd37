"""Concurrency policies in the queue: which claimed slots may start, and which runs are over.

``admit`` decides for one occurrence of a claim in one script of its shard, ``leave`` and ``finish``
record runs that have ended (the worker by its claim, the operator by its watch of Jobs). The caller
finds out about Jobs; nothing here speaks to an API server.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from duepoint.delayqueue import activeruns, index, layouts, messages, sharding
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue.definitions import interning, records
from duepoint.delayqueue.wire import scripting
from duepoint.schedules import definition as definitions
from duepoint.schedules import points

#: Jobs of one script: half a millisecond or so of the server's time.
_JOBS_TOGETHER = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ended:
    """Runs of one schedule that have ended, and a run to look at."""

    runs: Sequence[activeruns.Run] = ()
    jobs: Collection[str] = ()
    look: activeruns.Run | None = None
    every: bool = False


class Concurrency:
    """Says which claimed slots may start, and which runs are over."""

    def __init__(
        self, *, index: index.Index, layouts: layouts.Layouts, numbering: interning.Numbering
    ) -> None:
        self._index = index
        self._layouts = layouts
        self._numbering = numbering

    async def admit(
        self, claim: messages.Claim, entry: activeruns.AdmissionRequest
    ) -> activeruns.AdmissionAnswer:
        """Whether a claimed occurrence may start beside the active runs of its schedule.

        If so it is one of them from here on; asking again is harmless.
        """
        reply = await self._layouts.unless_gone(claim.shard, self._admit(claim, entry))
        if reply is None:
            return activeruns.AdmissionAnswer(verdict=activeruns.Verdict.LOST)
        verdict = activeruns.Verdict(reply[0].decode())
        return activeruns.AdmissionAnswer(
            verdict=verdict,
            runs=activeruns.paired(reply[1]) if len(reply) > 1 else (),
            look=int(reply[2]) if len(reply) > 2 else 0,
            mark=reply[3].decode() if len(reply) > 3 else "",
        )

    async def _admit(self, claim: messages.Claim, entry: activeruns.AdmissionRequest) -> list[Any]:
        entry = await self._vouched(claim, entry)
        reply: list[Any] = await self._index.pipelined.run(self._admit_call(claim, entry))
        return reply

    async def _vouched(
        self, claim: messages.Claim, entry: activeruns.AdmissionRequest
    ) -> activeruns.AdmissionRequest:
        """The entry with what is left to say of many facts; the others are written down."""
        names, schedule_id = self._index.shard(claim.shard), points.ScheduleId(entry.member[:8])
        *first, facts = activeruns.pieces(entry.facts)
        look = facts.look
        for part in first:
            keys = names.active(schedule_id), names.looks(schedule_id)
            call = self._index.call("vouch", claim.shard, *keys, look=look)
            _put_found(call, part)
            (look,) = await self._index.pipelined.run(call)
        return dataclasses.replace(entry, facts=dataclasses.replace(facts, look=int(look)))

    async def leave(
        self,
        claim: messages.Claim,
        known: definitions.Definition,
        runs: Sequence[activeruns.Run] = (),
        *,
        jobs: Collection[str] = (),
        look: activeruns.Run | None = None,
    ) -> activeruns.Finished:
        """These runs, or the runs of these Jobs, have ended; slots that wait are due instead.

        A run that is still an occurrence is being tried, and stays; one whose Job has ended stays
        only if it was replaced meanwhile. ``look`` asks how that run stands.
        """
        ended = _Ended(runs=runs, jobs=jobs, look=look)
        call = self._finish_call(claim.shard, known, claim.lanes[known.id], ended)
        reply = await self._layouts.unless_gone(claim.shard, self._index.pipelined.run(call))
        return activeruns.Finished() if reply is None else _finished(reply)

    async def finish(
        self,
        known: definitions.Definition,
        jobs: Collection[str],
        epoch: messages.Epoch,
        *,
        every: bool = False,
    ) -> activeruns.Finished:
        """The same for who holds no claim: these Jobs have ended.

        ``every``: there is more room than by these ends, so all slots that wait are called up.
        """
        removed = called = 0
        for shard in sharding.homes(known.id, self._index.known_layout()):
            try:
                for ended in _in_parts(jobs, every=every):
                    found = await self._finish_at(shard, known, ended, epoch)
                    removed, called = removed + found.removed, called + found.called
            except queue_errors.LayoutChanged:
                if shard == sharding.home(known.id, await self._layouts.read()):
                    raise  # otherwise it is a former shard that is closed
        return activeruns.Finished(removed=removed, called=called)

    async def _finish_at(
        self,
        shard: messages.ShardId,
        known: definitions.Definition,
        ended: _Ended,
        epoch: messages.Epoch,
    ) -> activeruns.Finished:
        text = interning.entry(interning.TextKind.NAMESPACE, known.namespace.encode())
        lane = (await self._numbering.intern(shard, [text], epoch))[text]
        call = self._finish_call(shard, known, lane, ended)
        return _finished(await self._index.pipelined.run(call))

    def _admit_call(
        self, claim: messages.Claim, entry: activeruns.AdmissionRequest
    ) -> scripting.ScriptCall:
        names, schedule_id = self._index.shard(claim.shard), points.ScheduleId(entry.member[:8])
        lane, facts = claim.lanes[schedule_id], entry.facts
        keys = [names.lane(lane), names.active(schedule_id), names.looks(schedule_id)]
        if entry.waiting is not None:
            keys.append(names.waiting(schedule_id))
        call = self._index.call(
            "admit",
            claim.shard,
            *keys,
            lane=str(lane),
            policy=entry.policy,
            most=entry.most,
            is_job=bool(entry.run.job),
            mark=entry.mark,
            listed=facts.listed,
            checked=facts.checked,
            blind=facts.blind,
            look=facts.look,
            piece=activeruns.PIECE,
            id=claim.id,
            member=entry.member,
            value=entry.run.value,
            version=entry.version,
        )
        _put_found(call, facts)
        if (waiting := entry.waiting) is not None:
            is_another = waiting.point.kind is points.PointKind.QUEUED
            call.put(
                limit=entry.limit,
                due=records.checked_due(waiting.point.due_us),
                queued=waiting.point.member,
                record=records.pack(waiting.record) if is_another else 0,
            )
        return call

    def _finish_call(
        self,
        shard: messages.ShardId,
        known: definitions.Definition,
        lane: int,
        ended: _Ended,
    ) -> scripting.ScriptCall:
        names = self._index.shard(shard)
        keys = names.active(known.id), names.looks(known.id), names.waiting(known.id)
        call = self._index.call(
            "finish",
            shard,
            *(names.lane(lane), *keys),
            lane=str(lane),
            id=known.id,
            version=known.timing_version,
            every=ended.every,
            look=0 if ended.look is None else ended.look,
        )
        named = [
            value
            for job in sorted(ended.jobs)
            for run in activeruns.runs_of_job(job, known.name)
            for value in (job, run)
        ]
        call.put(runs=call.run(ended.runs), jobs=call.run(named))
        return call


def _in_parts(jobs: Collection[str], *, every: bool) -> Iterator[_Ended]:
    """Thousands of Jobs may end at once; one script at least, which calls up others."""
    listed = sorted(jobs)
    for first in range(0, max(len(listed), 1), _JOBS_TOGETHER):
        yield _Ended(jobs=listed[first : first + _JOBS_TOGETHER], every=every)


def _put_found(call: scripting.ScriptCall, facts: activeruns.AdmissionFacts) -> None:
    call.put(
        seen=call.run(activeruns.pairs(facts.seen)),
        over=call.run(activeruns.pairs(facts.over)),
        verified=call.run(sorted(facts.verified)),
    )


def _finished(reply: Sequence[bytes | int]) -> activeruns.Finished:
    state, removed, called = reply
    assert isinstance(state, bytes)  # noqa: S101 - as the script says
    return activeruns.Finished(
        state=activeruns.ActiveRunState(state.decode()), removed=int(removed), called=int(called)
    )
