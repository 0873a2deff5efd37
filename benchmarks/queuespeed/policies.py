"""Concurrency policies beside many active runs: what one script costs the server.

A schedule with a policy has ten thousand Jobs that are active and are not being tried any more. A
slot is refused beside them (each of them is looked at first, in pieces), Jobs end, a slot takes the
place, and at last ten thousand are replaced at once. The server notes how long each script takes
(SLOWLOG from 100 us on; no network in it). The bar is that of every script: 5 ms.
"""

from __future__ import annotations

import dataclasses
import statistics
import uuid
from collections.abc import Iterator
from typing import Any

import redis

from benchmarks import report
from benchmarks.queuespeed import place
from benchmarks.report import Figure
from duepoint.delayqueue import activeruns, delayqueue, messages
from duepoint.delayqueue.activeruns import AdmissionFacts, Verdict
from duepoint.schedules import actions, definition, points
from duepoint.schedules import rule as rules

NAME = "policies"
SECOND_US = 1_000_000
_BAR_MS = 5
_BLOB = actions.encode(actions.Action(target=actions.StreamAction(name="policies")))


async def run(kind: str, *, counts: tuple[int, ...] = (1_000, 10_000)) -> list[Figure]:
    figures: list[Figure] = []
    for count in counts:
        with place.server(
            kind, "--slowlog-log-slower-than", "100", "--slowlog-max-len", "5000"
        ) as at:
            async with place.queue(at, 1) as queue:
                with at.client() as client:
                    report.say(f"{kind}: a slot beside {count:,} active runs")
                    figures += await _measured(f"{kind}, {count:,} active", queue, client, count)
    return figures


async def _measured(
    case: str, queue: delayqueue.DelayQueue, client: redis.Redis, count: int
) -> list[Figure]:
    scene = await _Scene.make(queue, count)
    figures = []
    for figure, acts in (
        ("the list of all Jobs is told", scene.listed),
        ("a slot is refused", scene.refused),
        ("a Job ends", scene.ended),
        ("a slot takes its place", scene.entered),
        ("all are replaced", scene.replaced),
    ):
        client.slowlog_reset()
        await acts()
        figures.append(_figure(f"{figure}: {case}", client.slowlog_get(5000)))
    return figures


def _figure(figure: str, log: list[dict[str, Any]]) -> Figure:
    scripts = [each["duration"] / 1000 for each in log if each["command"].startswith(b"EVALSHA")]
    return Figure(
        benchmark=NAME, figure=f"longest script, {figure}", value=max(scripts, default=0.1),
        unit="ms", bar=f"<= {_BAR_MS}", runs=len(scripts),
        spread=(min(scripts, default=0.1), max(scripts, default=0.1)),
        compared_with=f"median {statistics.median(scripts or [0.1])}",
    )  # fmt: skip


@dataclasses.dataclass
class _Scene:
    """One schedule, a claim of some of its slots, and the Jobs of earlier ones."""

    queue: delayqueue.DelayQueue
    known: definition.Definition
    claim: messages.Claim
    members: Iterator[bytes]
    runs: tuple[activeruns.ActiveRun, ...]

    @classmethod
    async def make(cls, queue: delayqueue.DelayQueue, count: int) -> _Scene:
        now_us = place.now_us()
        policy = rules.Policy(concurrency="Forbid", max_concurrency=count)
        timing = rules.Timing(schedules=("@every 1m",), start_us=now_us - SECOND_US)
        known = definition.Definition(
            namespace="team", name="report", uid=str(uuid.uuid4()), generation=1,
            timing_generation=1, created_us=now_us, not_before_us=now_us - 2 * SECOND_US,
            state=definition.State.ARMED, rule=rules.Rule(timing=timing, policy=policy),
            target=queue.signed_blobs.digest("team", _BLOB),
        )  # fmt: skip
        arming = messages.Arming(definition=known, due_us=now_us - 1)
        await queue.writer.upsert([(arming, _BLOB)], place.EPOCH)
        (answer,) = await queue.claims.claim((messages.ShardId(0),), worker="bench")
        assert answer.claim is not None
        (chain,) = answer.claim.points
        first = now_us // SECOND_US * SECOND_US
        slots = [first + number * SECOND_US for number in range(count + 3)]
        planned = [
            dataclasses.replace(chain, kind=points.PointKind.PLANNED, slot_us=slot_us)
            for slot_us in slots[count:]
        ]
        record = messages.OccurrenceRecord()
        own = tuple(messages.Occurrence(point=point, record=record) for point in planned)
        plan = messages.Planning(chain=chain, slots=own, next_due_us=now_us + 3_600 * SECOND_US)
        await queue.settlements.split(answer.claim, [plan])
        runs = tuple(_run(known, slot_us) for slot_us in slots[:count])
        return cls(queue, known, answer.claim, iter([one.member for one in planned]), runs)

    async def listed(self) -> None:
        """The set is not known: the Jobs are listed and reported."""
        member = next(self.members)
        unknown = await self._ask(member, AdmissionFacts(checked=True))
        assert unknown.verdict is Verdict.UNKNOWN
        facts = AdmissionFacts(
            look=unknown.look, listed=unknown.mark, seen=self.runs, checked=True,
            verified=frozenset(one.run for one in self.runs),
        )  # fmt: skip
        assert (await self._ask(member, facts)).verdict is Verdict.FORBIDDEN

    async def refused(self) -> None:
        """Every Job is looked at, and is active."""
        assert await self._asked_to_the_end(next(self.members), "Forbid") is Verdict.FORBIDDEN

    async def ended(self) -> None:
        closed = await self.queue.concurrency.finish(self.known, [self.runs[-1].job], place.EPOCH)
        assert closed.removed == 1

    async def entered(self) -> None:
        self._last = next(self.members)
        assert await self._asked_to_the_end(self._last, "Forbid") is Verdict.IN

    async def replaced(self) -> None:
        """By a slot that is in already under the other policy: it is taken out first."""
        await self.queue.concurrency.finish(
            self.known, [_run_of(self.known, self._last).job], place.EPOCH
        )
        assert await self._asked_to_the_end(self._last, "Replace") is Verdict.IN
        while found := (await self._ask(self._last, AdmissionFacts(checked=True), "Replace")).runs:
            await self.queue.concurrency.leave(
                self.claim, self.known, jobs=[one.job for one in found]
            )

    async def _asked_to_the_end(self, member: bytes, policy: str) -> Verdict:
        facts = AdmissionFacts(checked=True)
        while True:
            answer = await self._ask(member, facts, policy)
            if answer.verdict is not Verdict.CHECK:
                return answer.verdict
            facts = AdmissionFacts(
                look=facts.look or answer.look, checked=True,
                verified=frozenset(one.run for one in answer.runs),
            )  # fmt: skip

    async def _ask(
        self, member: bytes, facts: AdmissionFacts, policy: str = "Forbid"
    ) -> activeruns.AdmissionAnswer:
        entry = activeruns.AdmissionRequest(
            member=member, run=_run_of(self.known, member), version=self.known.timing_version,
            policy=policy, most=self.known.rule.policy.max_concurrency, mark="1", facts=facts,
        )  # fmt: skip
        return await self.queue.concurrency.admit(self.claim, entry)


def _run_of(known: definition.Definition, member: bytes) -> activeruns.ActiveRun:
    return _run(known, int.from_bytes(activeruns.run_of(member), "big"))


def _run(known: definition.Definition, slot_us: int) -> activeruns.ActiveRun:
    run = activeruns.Run(slot_us.to_bytes(8, "big"))
    return activeruns.active(run, known.timing_version, f"{known.name}-{slot_us // SECOND_US}")
