"""A workplace in virtual time, with an API server, for a worker that creates Jobs.

It records deliveries to receivers and streams. ``FakeKubernetes`` stores Jobs; a test can end or
delete them there, or make requests fail. A slot is named by its seconds after ``NOON``.
"""

from __future__ import annotations

import msgspec

from duepoint.controller import plan
from duepoint.delayqueue import messages
from duepoint.kube import errors
from duepoint.runs.run import RunState
from duepoint.schedules import actions, definition
from duepoint.targets import jobtarget
from duepoint.targets.jobtarget import JobTarget
from tests.fakes.fakekubernetes import FakeKubernetes
from tests.fakes.recordingtarget import RecordingTarget
from tests.support.builders import a_definition, a_rule, at
from tests.support.workplace import EPOCH, Workplace

NOON = at("2026-03-01 12:00:00")
SECOND = 1_000_000
POD = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]}
JOB = actions.Action(target=actions.job_of({"spec": {"template": {"spec": POD}}}))
DOWN = errors.Unavailable("no answer", sent=False)


class JobWorkplace(Workplace):
    """A workplace that creates its Jobs at an API server."""

    def __init__(self) -> None:
        super().__init__()
        self.api = FakeKubernetes(now_us=self.clock.now_us)
        self.webhooks = RecordingTarget(self.clock)
        self.targets = {"job": JobTarget(self.api, self.clock), "webhook": self.webhooks}
        self.jobs = jobtarget.ActiveJobs(self.api)

    def jobs_there(self) -> list[str]:
        return [job["metadata"]["name"] for job in self.api.all_stored("jobs")]

    def active(self) -> list[str]:
        return [
            job["metadata"]["name"]
            for job in self.api.all_stored("jobs")
            if not job.get("status", {}).get("conditions")
        ]

    async def end(self, slot: int) -> None:
        """End the Job of this slot and report that, as the operator does."""
        self.api.end_job("default", name(slot))
        await self.queue.concurrency.finish(self.known, [name(slot)])

    async def schedule(self, policy: str, action: actions.Action = JOB, **changes):
        rule = a_rule(
            changes.pop("schedule", "@every 10s"),
            whole_seconds=action is JOB,
            policy={"concurrency_policy": policy, **changes.pop("also", {})},
        )
        made = a_definition(rule=rule, created_us=NOON, not_before_us=NOON, **changes)
        self.known = await self.arm(made, action)
        return self.known

    async def lose_redis(self) -> None:
        """Empty the queue and open it anew."""
        self.queue.flush()
        await self.queue.membership.open(4, EPOCH)

    async def rearm_started(
        self, known: definition.Definition, slot: int, *, settled: int, due: int = 0
    ) -> None:
        """Arm as a leader does from a status with this slot as started and one as the latest.

        The slot is due at once, or this many seconds after noon.
        """
        again = msgspec.structs.replace(known, not_before_us=NOON + settled * SECOND)
        slot_us = NOON + slot * SECOND
        at_us = max(self.clock.now_us(), NOON + due * SECOND)
        started = plan.reopened(again, slot_us, at_us, first_us=slot_us)
        due_us = plan.chain_due_us(again)
        arming = messages.Arming(definition=again, due_us=due_us, open=(started,))
        await self.queue.writer.upsert([(arming, actions.encode(JOB))], EPOCH)

    async def told(self) -> list[tuple[int, RunState, str]]:
        """Return the slots, in seconds after noon, and how each ended."""
        return [
            ((event.slot_us - NOON) // SECOND, event.state, event.reason)
            for event in await self.events()
            if event.state is not RunState.PENDING
        ]

    def fired(self) -> list[int]:
        return [(firing.slot_us - NOON) // SECOND for firing in self.webhooks.fired]


def name(slot: int) -> str:
    return f"report-{NOON // SECOND + slot}"
