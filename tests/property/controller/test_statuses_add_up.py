"""Every status that is written is of one moment, through random orders, replays and restarts.

Each history is a seed. Two Schedules run, one by Jobs and one by webhooks; what workers tell comes
late and more than once, Jobs end and vanish with and without a leader, leaders die between a write
and its acknowledgement. Of each status that the API server was ever given ``started`` is what has
succeeded, failed and is active; in the end each counter is what really happened.
"""

from __future__ import annotations

import contextlib
import random

import pytest

from duepoint.kube import jobs
from duepoint.runs.run import RunState
from tests.support.builders import at
from tests.unit.controller.status.test_reporter import event
from tests.unit.controller.world import NAMESPACE, World

S = 1_000_000
LEADERS = 4
STEPS = 40
FIRST = at("2026-03-01 12:05:00")
NAMES = ("by-jobs", "by-webhooks")


def sum_of(status: dict) -> tuple[int, int]:
    """Started runs, and what is said to have become of them."""
    runs = status.get("runs", {})
    ended = runs.get("succeeded", 0) + runs.get("failed", 0) + runs.get("replaced", 0)
    return runs.get("started", 0), ended + status.get("activeCount", 0)


class History:
    """A morning of two Schedules."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.world = World()
        self.made: dict[str, dict] = {}
        self.slot_us = dict.fromkeys(NAMES, FIRST - 300 * S)
        self.active: dict[str, int] = {}
        self.open: set[int] = set()
        self.expected = {name: {"started": 0, "succeeded": 0, "failed": 0} for name in NAMES}
        self.written: list[tuple[str, dict]] = []
        self.epoch = 0

    async def run(self) -> None:
        async with self._leader():
            self.made["by-jobs"] = await self.world.apply_job("by-jobs")
            self.made["by-webhooks"] = await self.world.apply("by-webhooks")
            await self.world.clock.advance(290)
        for _ in range(LEADERS):
            async with self._leader():
                for _ in range(self.dice.randrange(2, 2 * STEPS // LEADERS)):
                    await self._step()
            for _ in range(self.dice.randrange(3)):  # nobody leads
                await self._step()
        async with self._leader():
            await self.world.clock.advance(200)
            self.check_end()

    @contextlib.asynccontextmanager
    async def _leader(self):
        self.epoch += 1
        async with self.world.leader(epoch=self.epoch):
            self._note_what_is_written()
            yield

    def _note_what_is_written(self) -> None:
        """Every status that the API server is given."""

        def note(uid: str) -> None:
            for name, made in self.made.items():
                if made["metadata"]["uid"] == uid:
                    self.written.append((name, self.world.status(name)))

        look = self.world.jobs.history.look

        def look_and_note(uid: str) -> None:
            look(uid)
            note(uid)

        self.world.jobs.history.look = look_and_note

    async def _step(self) -> None:
        steps = [self._start_job, self._start_job, self._deliver, self._open_request, self._relist]
        steps += [self._end_job] * 3 + [self._vanish, self._end_request, self._end_request]
        steps += [self._retry, self._miss]
        await self.dice.choice(steps)()
        await self.world.clock.advance(self.dice.choice((0, 0.05, 0.15, 0.3, 1, 2.5, 11)))
        for name in self.made:
            started, told = sum_of(self.world.status(name))
            assert started == told, (name, self.world.status(name))

    async def _tell(self, name: str, *events) -> None:
        times = self.dice.choice((1, 1, 1, 2))
        for _ in range(times):
            read = self.dice.random() < 0.8
            await self.world.tell(self.made[name]["metadata"]["uid"], *events, read=read)

    async def _next(self, name: str) -> int:
        self.slot_us[name] += 300 * S
        await self.world.clock.advance(max(0, self.slot_us[name] - self.world.clock.now_us()) / S)
        return self.slot_us[name]

    # -- Jobs ----------------------------------------------------------------------------------

    async def _start_job(self) -> None:
        slot_us = await self._next("by-jobs")
        made = self.made["by-jobs"]
        name = await self.world.create_job(made, slot_us)
        if self.dice.random() < 0.5:
            await self.world.clock.advance(self.dice.choice((0.05, 0.5, 3)))
        self.active[name] = slot_us
        self.expected["by-jobs"]["started"] += 1
        if self.dice.random() < 0.2:  # it ends before anybody hears that it started
            await self._end_job(name)
        running = event(made, slot_us, RunState.RUNNING, job_name=name, reason="Created")
        await self._tell("by-jobs", running)

    async def _end_job(self, name: str = "") -> None:
        if not self.active:
            return
        name = name or self.dice.choice(sorted(self.active))
        del self.active[name]
        succeeded = self.dice.random() < 0.7
        self.world.api.end_job(NAMESPACE, name, succeeded=succeeded)
        self.expected["by-jobs"]["succeeded" if succeeded else "failed"] += 1
        await self.world.clock.settle()

    async def _vanish(self) -> None:
        if self.active:
            name = self.dice.choice(sorted(self.active))
            del self.active[name]
            await self.world.api.request("DELETE", jobs.path(NAMESPACE, name))
            self.expected["by-jobs"]["failed"] += 1

    async def _relist(self) -> None:
        self.world.api.compact()

    # -- webhooks ------------------------------------------------------------------------------

    async def _deliver(self) -> None:
        slot_us = await self._next("by-webhooks")
        self.expected["by-webhooks"]["started"] += 1
        self.expected["by-webhooks"]["succeeded"] += 1
        await self._tell("by-webhooks", event(self.made["by-webhooks"], slot_us))

    async def _open_request(self) -> None:
        """Its first request takes long, or has failed."""
        slot_us = await self._next("by-webhooks")
        has_failed = self.dice.random() < 0.5
        self.open.add(slot_us)
        self.expected["by-webhooks"]["started"] += 1
        settled_us = slot_us if has_failed else 0
        running = event(
            self.made["by-webhooks"], slot_us, RunState.RUNNING, settled_us=settled_us, attempts=1
        )
        await self._tell("by-webhooks", running)

    async def _retry(self) -> None:
        if self.open:
            slot_us = self.dice.choice(sorted(self.open))
            running = event(self.made["by-webhooks"], slot_us, RunState.RUNNING)
            await self._tell("by-webhooks", running)

    async def _end_request(self) -> None:
        if self.open:
            slot_us = self.dice.choice(sorted(self.open))
            self.open.remove(slot_us)
            state = self.dice.choice((RunState.SUCCEEDED, RunState.FAILED))
            self.expected["by-webhooks"][state.lower()] += 1
            finished_us = self.world.clock.now_us()
            ended = event(self.made["by-webhooks"], slot_us, state, finished_us=finished_us)
            await self._tell("by-webhooks", ended)

    async def _miss(self) -> None:
        slot_us = await self._next("by-webhooks")
        missed = event(self.made["by-webhooks"], slot_us, RunState.MISSED, reason="CatchUpPolicy")
        await self._tell("by-webhooks", missed)

    # -- what holds ----------------------------------------------------------------------------

    def check_end(self) -> None:
        for name, status in self.written:
            started, told = sum_of(status)
            assert started == told, (name, status)
        for name in NAMES:
            status = self.world.status(name)
            counted = {key: status["runs"][key] for key in self.expected[name]}
            assert counted == self.expected[name], name
        assert self.world.status("by-jobs").get("activeCount", 0) == len(self.active)
        assert self.world.status("by-webhooks").get("activeCount", 0) == len(self.open)


@pytest.mark.parametrize("seed", range(24))
async def test_every_status_adds_up_and_each_run_is_counted_once(seed):
    await History(seed).run()
