"""The environment of a worker in virtual time: its queue, and a target that records."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec

from duepoint import clock as clocks
from duepoint import services
from duepoint.delayqueue import messages
from duepoint.runs import run
from duepoint.schedules import actions, definition, slots
from duepoint.targets import target
from duepoint.worker import results, room
from duepoint.worker.claimer import Claimer, Limits
from duepoint.worker.firing import Firer
from tests.fakes.fakeclock import FakeClock
from tests.fakes.nojobs import no_jobs
from tests.fakes.recordingtarget import RecordingTarget
from tests.support.virtualqueue import VirtualQueue

WEBHOOK = actions.Action(
    target=actions.WebhookAction(url="https://hooks.example.com/x", timeout_seconds=5)
)
EPOCH = messages.Epoch(1)
LEASE_SECONDS = 10.0


async def at_once() -> None:
    """Return at once: there is nothing to wait for."""


class Workplace:
    """The parts that a worker needs, and a record of what it has done so far."""

    def __init__(self, clock: clocks.Clock | None = None) -> None:
        self.clock = clock or FakeClock()
        self.queue = VirtualQueue(self.clock)
        self.target = RecordingTarget(self.clock)
        #: In place of ``target``: one for each kind, and the one that composes entries.
        self.targets: dict[str, target.Target] = {}
        self.streams: target.EntryTarget | None = None
        self.jobs = no_jobs()
        self.health = services.Health()
        self.before_claims: Callable[[], Awaitable[None]] = at_once

    async def arm(
        self, known: definition.Definition, action: actions.Action = WEBHOOK
    ) -> definition.Definition:
        """Arm a definition, with its chain at the first slot after its not-before."""
        blob = actions.encode(action)
        known = msgspec.structs.replace(
            known, target=self.queue.signed_blobs.digest(known.namespace, blob)
        )
        timeline = slots.for_rule(known.rule, identity=known.identity, created_us=known.created_us)
        first = timeline.next_after(known.not_before_us)
        armed = known.state is definition.State.ARMED and first is not None
        arming = messages.Arming(definition=known, due_us=first.due_us if armed else None)
        assert await self.queue.writer.upsert([(arming, blob)], EPOCH) == [messages.Armed.APPLIED]
        return known

    def a_worker(
        self,
        name: str = "worker-a",
        *,
        concurrency: int = 16,
        traces: results.AttemptTraces | None = None,
    ) -> Claimer:
        return Claimer(
            self.queue,
            Firer(
                queue=self.queue,
                targets=self.targets or dict.fromkeys(actions.KINDS, self.target),
                streams=self.streams or self.target,
                clock=self.clock,
                places=concurrency,
                lease_seconds=LEASE_SECONDS,
                dice=lambda: 0.5,
                jobs=self.jobs,
                traces=traces,
            ),
            self.clock,
            self.health,
            worker=name,
            limits=Limits(
                batch=100, under_way=200, lease_seconds=LEASE_SECONDS, grace_seconds=20.0
            ),
            before_claims=self.before_claims,
        )

    @contextlib.asynccontextmanager
    async def working(self, *workers: Claimer) -> AsyncIterator[list[asyncio.Task[None]]]:
        """Run workers within the block; kill them at the end."""
        tasks = [asyncio.create_task(worker.run()) for worker in workers]
        await self.clock.settle()
        try:
            yield tasks
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def slots_fired(self) -> list[int]:
        return [firing.slot_us for firing in self.target.fired]

    async def events(self) -> list[run.RunEvent]:
        """Return the run events reported so far, in order."""
        entries = await self.queue.ledger().read_outcomes(count=10_000)
        return [event for entry in entries for event in run.unpack(entry.outcomes)]

    async def definition(self, known: definition.Definition) -> definition.Definition | None:
        await self.queue.layouts.read()
        return await self.queue.definitions.definition(known.id)


async def carry_out(work: Firer, claim: messages.Claim) -> None:
    """Carry out a whole claim, without a claimer."""
    in_hand = room.Room(work.jobs, most=1_000, batch=1_000)
    holding = in_hand.hold(claim, lambda: None)
    await work.run(claim, holding)


async def a_workplace(shards: int = 4) -> Workplace:
    place = Workplace()
    await place.queue.membership.open(shards, EPOCH)
    return place
