"""The controller without kopf: over a fake API server, in virtual time.

``kopf`` is played by a plain watch of the fake, which offers objects as kopf's handler would.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from duepoint import errors, services
from duepoint.controller import observed
from duepoint.controller.leadership import TermServices
from duepoint.controller.maintenance.installation import OtherInstalls
from duepoint.controller.status import outcomes
from duepoint.controller.term import TermContext
from duepoint.delayqueue import messages, sharding
from duepoint.delayqueue import quotas as quotas_
from duepoint.kube import errors as kube_errors
from duepoint.kube import events, jobbuilder, jobs, port, schedules
from duepoint.model import targets
from duepoint.runs import run as runs
from duepoint.schedules.definition import Definition
from duepoint.targets import jobtarget, target
from duepoint.worker.claimer import Claimer, Limits
from duepoint.worker.firing import Firer
from tests.fakes.fakeclock import FakeClock
from tests.fakes.fakekubernetes import FakeKubernetes
from tests.support.builders import JOB_TEMPLATE
from tests.support.virtualqueue import VirtualQueue, points_of

EPOCH = messages.Epoch(1)
NAMESPACE = "reports"
#: Names of services in tests, where they differ.
_SERVICES = {"jobsync": "jobs"}


class World:
    """One API server and one queue, and at most one leader at a time."""

    def __init__(
        self,
        *,
        shards: int = 4,
        writes_per_second: int = 50,
        managed_by: str = "",
        has_own_streams: bool = True,
        quotas: quotas_.Quotas = quotas_.USUAL,
    ) -> None:
        self.clock = FakeClock()
        self.api = FakeKubernetes(now_us=self.clock.now_us)
        self.queue = VirtualQueue(self.clock, quotas=quotas)
        self.has_own_streams = has_own_streams
        self.health = services.Health()
        self.shards = shards
        self.writes_per_second = writes_per_second
        self.watches = True
        self.managed_by = managed_by
        self.others = OtherInstalls(own=managed_by, clock=self.clock, health=self.health)
        self.news: list[events.Event] = []

    @contextlib.asynccontextmanager
    async def leader(self, epoch: int = EPOCH, namespaces: tuple[str, ...] = ()) -> AsyncIterator:
        """A term: resync first, then everything, as ``leadership`` does it."""
        layout = await self.queue.membership.open(self.shards, messages.Epoch(epoch))
        self.term = TermContext(
            api=self.api,
            queue=self.queue,
            epoch=messages.Epoch(epoch),
            clock=self.clock,
            health=self.health,
            namespaces=namespaces,
            installation=self.managed_by,
            has_own_streams=self.has_own_streams,
            writes_per_second=self.writes_per_second,
            record=self.news.append,
        )
        self.services = TermServices(
            self.term,
            layout=layout,
            others=self.others,
            records=await self.queue.ledger().records(),
        )
        self.resync.listed.set()  # statuses are written from the beginning
        version = str(self.api.version)
        running = self.running = [
            asyncio.create_task(work)
            for work in (
                *(run() for run in self.services.running),
                self._play_kopf(version),
                self._play_kopf_of_runs(version),
                self._play_kopf_of_sets(version),
            )
        ]
        try:
            await self.clock.settle()
            with contextlib.suppress(errors.TryLater):
                await self.resync.compare()
            self.resync.first_done.set()
            running.append(asyncio.create_task(self._compare_when_asked()))
            await self.clock.settle()
            yield self
        finally:
            for task in running:
                task.cancel()
            ended = await asyncio.gather(*running, return_exceptions=True)
            for one in ended:
                if isinstance(one, Exception) and not isinstance(one, ExceptionGroup):
                    raise one

    @contextlib.asynccontextmanager
    async def worker(
        self,
        targets: dict[str, target.Target],
        streams: target.EntryTarget,
        name: str = "worker-a",
        active_jobs: Any = None,
    ) -> AsyncIterator[asyncio.Task[None]]:
        """Yield the task of a worker with these targets, and kill it at the end without a word."""
        firer = Firer(
            queue=self.queue,
            targets=targets,
            streams=streams,
            clock=self.clock,
            places=64,
            lease_seconds=10.0,
            dice=lambda: 0.5,
            jobs=active_jobs or jobtarget.ActiveJobs(self.api),
        )
        limits = Limits(batch=100, under_way=200, lease_seconds=10.0, grace_seconds=20.0)
        claimer = Claimer(
            self.queue, firer, self.clock, services.Health(), worker=name, limits=limits
        )
        task = asyncio.create_task(claimer.run())
        await self.clock.settle()
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _compare_when_asked(self) -> None:
        """As the resync does, without its rhythm."""
        while True:
            await self.resync.asked.wait()
            self.resync.asked.clear()
            with contextlib.suppress(errors.TryLater):
                await self.resync.compare()
                self.runs.request()

    def __getattr__(self, name: str) -> Any:
        """A service of the present term."""
        if name == "services":
            raise AttributeError(name)  # no leader yet
        return getattr(self.services, _SERVICES.get(name, name))

    @property
    def is_arming(self) -> bool:
        """Whether statuses wait for the end of a list."""
        return not self.resync.listed.is_set()

    @is_arming.setter
    def is_arming(self, is_arming: bool) -> None:
        if is_arming:
            self.resync.listed.clear()
        else:
            self.resync.listed.set()

    async def _play_kopf(self, version: str) -> None:
        path = schedules.collection()
        with contextlib.suppress(kube_errors.Gone):
            async for change in self.api.watch(path, schedules.Schedule, version):
                if self.watches:
                    self.store.observe(_shown(change))

    async def _play_kopf_of_sets(self, version: str) -> None:
        path = schedules.set_collection()
        with contextlib.suppress(kube_errors.Gone):
            async for change in self.api.watch(path, schedules.ScheduleSet, version):
                if self.watches:
                    self.sets.observe(_shown(change))

    async def _play_kopf_of_runs(self, version: str) -> None:
        path = schedules.collection(plural=schedules.RUN_PLURAL)
        with contextlib.suppress(kube_errors.Gone):
            async for change in self.api.watch(path, schedules.ScheduleRun, version):
                if self.watches:
                    self.runs.observe(_shown(change))

    # -- what tests do -----------------------------------------------------------------------

    async def lose_redis(self) -> None:
        """FLUSHALL by somebody, and the leader makes the index again."""
        self.queue.flush()
        await self.queue.membership.open(self.shards, self.term.epoch)

    async def apply(self, name: str = "nightly", **fields: Any) -> dict[str, Any]:
        """Create or edit a Schedule; a webhook every five minutes unless told otherwise."""
        spec = {"schedule": "*/5 * * * *", **fields}
        if not spec.keys() & targets.KINDS:
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
        shard = sharding.home(held.id, self.queue.layouts.known()) if held else messages.ShardId(0)
        self.queue.report(shard, runs.pack(events))
        await self.clock.advance(outcomes.GATHER_SECONDS if read else 0)

    async def create_job(self, schedule: dict[str, Any], slot_us: int) -> str:
        """The Job of a slot, as the worker makes it; its name."""
        metadata = schedule["metadata"]
        facts = jobbuilder.SlotFacts(
            namespace=NAMESPACE,
            name=metadata["name"],
            uid=metadata["uid"],
            slot_us=slot_us,
            previous_us=None,
            trigger="Schedule",
            time_zone="Etc/UTC",
        )
        job = jobbuilder.job_for(JOB_TEMPLATE, facts)
        await jobs.create(self.api, NAMESPACE, job)
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
        return points_of().get(held.id + held.timing_version)

    def status_writes(self) -> int:
        return sum(verb == "PATCH" for verb, _ in self.api.requests)


def _shown(change: port.WatchEvent) -> observed.Observed:
    """As kopf shows a change: without spec and status."""
    is_deleted = change.type is port.ChangeType.DELETED
    return observed.of_metadata(change.item.metadata, is_deleted=is_deleted)
