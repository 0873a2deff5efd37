"""The controller without kopf: over a fake API server and a queue in memory, in virtual time.

``kopf`` is played by a plain watch of the fake, which offers objects as kopf's handler would.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from duepoint import errors, services
from duepoint.controller import observed, plan
from duepoint.controller.jobs.completions import Completions
from duepoint.controller.jobs.jobwatch import JobWatch
from duepoint.controller.maintenance.endings import Endings
from duepoint.controller.maintenance.fallbacks import Fallbacks
from duepoint.controller.maintenance.otherinstalls import OtherInstalls
from duepoint.controller.scheduleruns.runreads import RunReads
from duepoint.controller.scheduleruns.scheduleruns import ScheduleRuns
from duepoint.controller.schedules import dryruns
from duepoint.controller.schedules.reconcile import Reconcile
from duepoint.controller.schedules.reconcilequeue import ReconcileQueue
from duepoint.controller.schedules.resync import Comparison
from duepoint.controller.status import outcomes
from duepoint.controller.status.openslots import OpenSlotReader
from duepoint.controller.status.outcomes import Outcomes
from duepoint.controller.status.reporter import Reporter
from duepoint.controller.status.states import ScheduleStates
from duepoint.controller.termevents import TermEvents
from duepoint.delayqueue import messages
from duepoint.delayqueue import quotas as quotas_
from duepoint.kube import errors as kube_errors
from duepoint.kube import events, jobbuilder, jobcreation, port, schedules
from duepoint.runs import run as runs
from duepoint.schedules import ownstreams
from duepoint.schedules.definition import Definition
from tests.fakes.fakeclock import FakeClock
from tests.fakes.fakekubernetes import FakeKubernetes
from tests.fakes.memoryqueue import MemoryDelayQueue
from tests.support.builders import JOB_TEMPLATE

EPOCH = messages.Epoch(1)
NAMESPACE = "reports"


class World:
    """One API server and one queue, and at most one leader at a time."""

    def __init__(
        self,
        *,
        shards: int = 4,
        writes_per_second: int = 50,
        managed_by: str = "",
        own_streams: ownstreams.OwnStreams = ownstreams.USUAL,
        quotas: quotas_.Quotas = quotas_.USUAL,
    ) -> None:
        self.clock = FakeClock()
        self.api = FakeKubernetes(now_us=self.clock.now_us)
        self.queue = MemoryDelayQueue(self.clock, quotas=quotas)
        self.own_streams = own_streams
        self.health = services.Health()
        self.shards = shards
        self.writes_per_second = writes_per_second
        self.watches = True
        self.managed_by = managed_by
        self.others = OtherInstalls(
            own=managed_by, api=self.api, clock=self.clock, health=self.health
        )
        self.news: list[events.Event] = []
        self.is_arming = False

    @contextlib.asynccontextmanager
    async def leader(self, epoch: int = EPOCH, namespaces: tuple[str, ...] = ()) -> AsyncIterator:
        """A term: resync first, then everything, as ``leadership`` does it."""
        await self.queue.membership.open(self.shards, messages.Epoch(epoch))
        self.events, self.is_arming, self.listed = TermEvents(), False, asyncio.Event()
        self.reconcile = Reconcile(
            queue=self.queue,
            dry_runs=dryruns.DryRuns(self.api),
            epoch=messages.Epoch(epoch),
            managed_by=self.managed_by,
            own_streams=self.own_streams,
        )
        self.states = ScheduleStates(self.reconcile.stored)
        self.reporter = Reporter(
            api=self.api,
            states=self.states,
            clock=self.clock,
            health=self.health,
            events=self.events,
            is_arming=lambda: self.is_arming,
            writes_per_second=self.writes_per_second,
            record=self.news.append,
            managed_by=self.managed_by,
        )
        self.outcomes = Outcomes(
            queue=self.queue,
            states=self.states,
            reporter=self.reporter,
            open_slots=OpenSlotReader(
                queue=self.queue, states=self.states, reporter=self.reporter, clock=self.clock
            ),
            consumer="operator-0",
            clock=self.clock,
            health=self.health,
            events=self.events,
        )
        self.runs = ScheduleRuns(
            api=self.api,
            queue=self.queue,
            epoch=messages.Epoch(epoch),
            definitions=self.reconcile.stored,
            catch_up=self.outcomes.catch_up,
            namespaces=namespaces,
            clock=self.clock,
            health=self.health,
            events=self.events,
            record=self.news.append,
        )
        self.jobwatch = JobWatch(
            api=self.api,
            states=self.states,
            reporter=self.reporter,
            wanted=self.reconcile.wanted,
            keeps=self.runs.states.keeps,
            catch_up=lambda: self.catch_up(),  # noqa: PLW0108 - tests replace it
            namespaces=namespaces,
            clock=self.clock,
            health=self.health,
            events=self.events,
        )
        self.ends = Completions(
            queue=self.queue,
            definitions=self.states.definition,
            is_waited_for=self.runs.states.has_waiting,
            epoch=messages.Epoch(epoch),
            clock=self.clock,
        )
        self.reconcile_queue = ReconcileQueue(
            reconcile=self.reconcile,
            read=self._read,
            reports=self.reporter,
            health=self.health,
            clock=self.clock,
            events=self.events,
        )
        self.run_reads = RunReads(
            api=self.api, is_wanted=self.runs.is_wanted, offer=self.runs.offer, clock=self.clock
        )
        self.resync = Comparison(
            api=self.api,
            queue=self.queue,
            reconcile_queue=self.reconcile_queue,
            note_collision=self.reconcile.collisions.__setitem__,
            namespaces=namespaces,
            clock=self.clock,
            listed=self.listed,
        )
        self.fallbacks = Fallbacks(
            queue=self.queue,
            epoch=messages.Epoch(epoch),
            knowledge=Endings(states=self.states, jobs=self.jobwatch, runs=self.runs.states),
            holds=self.reporter,
            catch_up=self.outcomes.catch_up,
            ready=self.jobwatch.listed.wait,
            clock=self.clock,
            health=self.health,
            events=self.events,
        )
        self._subscribe()
        version = str(self.api._version)
        running = self.running = [
            asyncio.create_task(work)
            for work in (
                self.reconcile_queue.run(),
                self.reporter.run(),
                self.run_reads.run(),
                self.others.run(self.news.append),
                self._play_kopf(version),
                self._play_kopf_of_runs(version),
            )
        ]
        try:
            await self.clock.settle()
            with contextlib.suppress(errors.TryLater):
                await self.resync.run()
            running += [
                asyncio.create_task(work)
                for work in (
                    self.outcomes.run(),
                    self.jobwatch.run(),
                    self.runs.run(),
                    self.ends.run(),
                    self.fallbacks.run(),
                )
            ]
            await self.clock.settle()
            yield self
        finally:
            for task in running:
                task.cancel()
            ended = await asyncio.gather(*running, return_exceptions=True)
            for one in ended:
                if isinstance(one, Exception) and not isinstance(one, ExceptionGroup):
                    raise one

    def _subscribe(self) -> None:
        """As ``leadership`` does it, without the services that are not played here."""
        self.events.schedule_applied.subscribe(self.runs.schedule_changed)
        self.events.schedule_leaving.subscribe(self.runs.schedule_leaves)
        self.events.schedule_widened.subscribe(self.ends.widen)
        self.events.run_changed.subscribe(self.runs.event)
        self.events.run_started.subscribe(self.jobwatch.run_started)
        self.events.run_replacing.subscribe(self.jobwatch.run_replacing)
        self.events.slot_withdrawn.subscribe(self.reporter.withdrawn)
        self.events.job_ended.subscribe(self.ends.job_ended)
        self.events.jobs_released.subscribe(self.jobwatch.look)
        self.events.template_proven.subscribe(self.reconcile_queue.prove)
        self.events.status_written.subscribe(self.jobwatch.look)
        self.events.generation_refused.subscribe(self.reconcile_queue.refuse)
        self.events.mark_replaced.subscribe(self.others.suspect)
        self.events.points_held.subscribe(self.fallbacks.look)
        self.events.claims_lost.subscribe(self.jobwatch.claims_lost)

    async def catch_up(self) -> None:
        """What Jobs that were cut short wait for; tests put their own in its place."""
        await self.outcomes.catch_up()

    async def _read(self, seen: observed.Observed) -> schedules.Schedule | None:
        return await schedules.read(self.api, seen.namespace, seen.name, not_before=seen.version)

    async def _play_kopf(self, version: str) -> None:
        path = schedules.collection()
        with contextlib.suppress(kube_errors.Gone):
            async for change in self.api.watch(path, schedules.Schedule, version):
                if self.watches:
                    self.reconcile_queue.observe(_shown(change))

    async def _play_kopf_of_runs(self, version: str) -> None:
        path = schedules.collection(plural=schedules.RUN_PLURAL)
        with contextlib.suppress(kube_errors.Gone):
            async for change in self.api.watch(path, schedules.ScheduleRun, version):
                if self.watches:
                    self.run_reads.observe(_shown(change))

    # -- what tests do -----------------------------------------------------------------------

    async def apply(self, name: str = "nightly", **fields: Any) -> dict[str, Any]:
        """Create or edit a Schedule; a webhook every five minutes unless told otherwise."""
        spec = {"schedule": "*/5 * * * *", **fields}
        if not {"webhook", "jobTemplate", "stream", "kafka"} & spec.keys():
            spec["webhook"] = {"url": "https://hooks.example.com/x"}
        manifest = {"metadata": {"namespace": NAMESPACE, "name": name}, "spec": spec}
        applied = await self.api.apply("schedules", manifest)
        await self.clock.settle()
        return applied

    async def apply_job(self, name: str = "nightly", **fields: Any) -> dict[str, Any]:
        return await self.apply(name, **{"jobTemplate": JOB_TEMPLATE, **fields})

    async def delete(self, name: str = "nightly") -> None:
        await self.api.request("DELETE", schedules.path(NAMESPACE, name))
        await self.clock.settle()

    async def tell(self, uid: str, *events: runs.RunEvent, read: bool = True) -> None:
        """A worker settles something of this Schedule; time passes until it has been read."""
        held = self.definition(uid)
        shard = self.reconcile.shard(held.id) if held else messages.ShardId(0)
        stored = self.queue.shards[shard]
        stored.added += 1
        stored.outcomes[stored.added] = runs.pack(events)
        for ledger in self.queue.ledgers:
            ledger.tell(shard)
        await self.clock.advance(outcomes.GATHER_SECONDS if read else 0)

    async def create_job(self, schedule: dict[str, Any], slot_us: int) -> str:
        """The Job of a slot, as the worker makes it; its name."""
        metadata = schedule["metadata"]
        facts = jobbuilder.SlotFacts(
            namespace=NAMESPACE,
            schedule_name=metadata["name"],
            schedule_uid=metadata["uid"],
            slot_us=slot_us,
            previous_us=None,
            trigger="Schedule",
            payload=None,
            time_zone="Etc/UTC",
        )
        job = jobbuilder.job_for(JOB_TEMPLATE, facts)
        await jobcreation.create(self.api, NAMESPACE, job)
        await self.clock.settle()
        return jobbuilder.job_name(facts)

    # -- what tests see ------------------------------------------------------------------------

    def object(self, name: str = "nightly") -> dict[str, Any]:
        found = self.api.stored("schedules", NAMESPACE, name)
        assert found is not None
        return found

    def status(self, name: str = "nightly") -> dict[str, Any]:
        return self.object(name)["status"]

    def condition(self, type_: str, name: str = "nightly") -> dict[str, Any] | None:
        listed = self.status(name).get("conditions", [])
        return next((one for one in listed if one["type"] == type_), None)

    def ready(self, name: str = "nightly") -> tuple[str, str]:
        found = self.condition("Ready", name)
        return ("", "") if found is None else (found["status"], found["reason"])

    def definitions(self) -> list[Definition]:
        return [one for shard in self.queue.shards.values() for one in shard.definitions.values()]

    def definition(self, uid: str) -> Definition | None:
        return next((one for one in self.definitions() if one.uid == uid), None)

    def chain_due_us(self, uid: str) -> int | None:
        """Due of the chain point of this Schedule, or None where it has none."""
        held = self.definition(uid)
        if held is None:
            return None
        for shard in self.queue.shards.values():
            if (point := shard.members.get(held.id + held.timing_version)) is not None:
                return point.due_us
        return None

    def status_writes(self) -> int:
        return sum(verb == "PATCH" for verb, _ in self.api.requests)


def _shown(change: port.WatchEvent) -> observed.Observed:
    """The metadata of a change, as kopf's handlers hand it over."""
    metadata = msgspec.to_builtins(change.item.metadata)
    return observed.of_change(change.type.value, metadata)


def seen_of(body: dict[str, Any]) -> observed.Observed:
    """An object as the API server answers with it."""
    return observed.of_object(msgspec.json.decode(json.dumps(body), type=schedules.Schedule))


def slots_after(held: Definition, count: int) -> list[int]:
    return plan.slots_of(held).upcoming(held.not_before_us, count)
