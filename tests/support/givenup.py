"""Given-up slots: Schedules in the queue whose only attempt has failed."""

from __future__ import annotations

from duepoint.clock import SystemClock
from duepoint.delayqueue import messages
from duepoint.schedules import actions
from duepoint.schedules.conditions import Reason
from duepoint.targets import outcome as outcomes
from duepoint.worker import firing
from tests.fakes.nojobs import no_jobs
from tests.fakes.recordingtarget import RecordingTarget
from tests.support import queueing, workplace

WEBHOOK = actions.Action(
    target=actions.WebhookAction(
        url="https://hooks.example.com/x", retry=actions.RetryRule(max_attempts=1)
    )
)
REFUSED = outcomes.Retry(reason=Reason.NETWORK, message="connection refused")


async def give_up(harness: queueing.Harness, namespace: str, uids: dict[str, str]) -> None:
    """Arm Schedules, given by name and uid, and let their slots of this minute fail for good."""
    clock, blob = SystemClock(), actions.encode(WEBHOOK)
    target = RecordingTarget(clock)
    now_us = clock.now_us()
    due_us = now_us - now_us % 60_000_000
    for name, uid in uids.items():
        digest = harness.queue.signed_blobs.digest(namespace, blob)
        known = harness.definition(name=name, namespace=namespace, uid=uid, target=digest)
        arming = messages.Arming(definition=known, due_us=due_us)
        await harness.queue.writer.upsert([(arming, blob)], queueing.EPOCH)
    target.reply(*[REFUSED] * len(uids))
    worker = firing.Firer(
        queue=harness.queue,
        targets={"webhook": target, "job": target, "stream": target},
        streams=target,
        clock=clock,
        places=8,
        lease_seconds=10.0,
        jobs=no_jobs(),
    )
    for claim in await harness.claim_all():
        await workplace.carry_out(worker, claim)
