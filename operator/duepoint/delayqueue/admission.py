"""Concurrency policies in the queue: which claimed slots may start, and which runs are over.

``admit`` decides for one occurrence of a claim in one script of its shard, ``leave`` and ``finish``
record runs that have ended (the worker by its claim, the operator by its watch of Jobs). The caller
finds out about Jobs; nothing here speaks to an API server.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
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


@dataclass(eq=False)
class Concurrency:
    """Says which claimed slots may start, and which runs are over."""

    index: index.Index
    layouts: layouts.Layouts
    numbering: interning.Numbering

    async def admit(
        self, claim: messages.Claim, entry: activeruns.AdmissionRequest
    ) -> activeruns.AdmissionAnswer:
        """Whether a claimed occurrence may start beside the active runs of its schedule.

        If so it is one of them from here on; asking again is harmless.
        """
        reply = await self.layouts.unless_gone(claim.shard, self._admit(claim, entry))
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
        reply: list[Any] = await self.index.pipelined.run(self._admit_call(claim, entry))
        return reply

    async def _vouched(
        self, claim: messages.Claim, entry: activeruns.AdmissionRequest
    ) -> activeruns.AdmissionRequest:
        """The entry with what is left to say of many facts; the others are written down."""
        names, schedule_id = self.index.shard(claim.shard), points.ScheduleId(entry.member[:8])
        *first, facts = activeruns.pieces(entry.facts)
        look = facts.look
        for part in first:
            keys = names.active(schedule_id), names.looks(schedule_id)
            call = self.index.call("vouch", claim.shard, *keys, look=look)
            _put_found(call, part)
            (look,) = await self.index.pipelined.run(call)
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
        lane = claim.lanes[known.id]
        call = self._finish_call(claim.shard, known, lane, runs=runs, jobs=sorted(jobs), look=look)
        reply = await self.layouts.unless_gone(claim.shard, self.index.pipelined.run(call))
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
        listed = sorted(jobs)
        for shard in sharding.homes(known.id, self.index.known_layout()):
            try:
                lane = await self.numbering.lane_of(shard, known, epoch)
                # Thousands of Jobs may end at once; one script at least, which calls up others.
                for first in range(0, max(len(listed), 1), _JOBS_TOGETHER):
                    some = listed[first : first + _JOBS_TOGETHER]
                    call = self._finish_call(shard, known, lane, jobs=some, every=every)
                    found = _finished(await self.index.pipelined.run(call))
                    removed, called = removed + found.removed, called + found.called
            except queue_errors.LayoutChanged:
                if shard == sharding.home(known.id, await self.layouts.read()):
                    raise  # otherwise it is a former shard that is closed
        return activeruns.Finished(removed=removed, called=called)

    def _admit_call(
        self, claim: messages.Claim, entry: activeruns.AdmissionRequest
    ) -> scripting.ScriptCall:
        names, schedule_id = self.index.shard(claim.shard), points.ScheduleId(entry.member[:8])
        lane, facts = claim.lanes[schedule_id], entry.facts
        keys = [names.lane(lane), names.active(schedule_id), names.looks(schedule_id)]
        if entry.waiting is not None:
            keys.append(names.waiting(schedule_id))
        call = self.index.call(
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
        *,
        runs: Sequence[activeruns.Run] = (),
        jobs: Sequence[str] = (),
        look: activeruns.Run | None = None,
        every: bool = False,
    ) -> scripting.ScriptCall:
        names = self.index.shard(shard)
        keys = names.active(known.id), names.looks(known.id), names.waiting(known.id)
        call = self.index.call(
            "finish",
            shard,
            *(names.lane(lane), *keys),
            lane=str(lane),
            id=known.id,
            version=known.timing_version,
            every=every,
            look=0 if look is None else look,
        )
        named = [
            value
            for job in jobs
            for run in activeruns.runs_of_job(job, known.name)
            for value in (job, run)
        ]
        call.put(runs=call.run(runs), jobs=call.run(named))
        return call


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
