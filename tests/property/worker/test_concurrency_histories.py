"""Concurrency policies through random troubles: workers die, Redis forgets, Jobs vanish.

Each history is a seed. Whatever happens, no more Jobs are active than may be, and after the trouble
slots start again; a policy that is lost or stuck shows in one of the two.
"""

from __future__ import annotations

import asyncio
import contextlib
import random

import msgspec
import pytest

from duepoint.delayqueue import messages
from duepoint.kube import errors, jobs
from duepoint.schedules import actions
from tests.support.jobworkplace import DOWN, JOB, NOON, SECOND, JobWorkplace
from tests.support.workplace import EPOCH

STEPS = 60
REFUSED = errors.Forbidden("no", cause=errors.ForbiddenCause.ADMISSION)


class History:
    """One schedule, three workers, and a bad hour."""

    def __init__(self, seed: int, policy: str, most: int) -> None:
        self.dice = random.Random(seed)
        self.policy, self.most = policy, most
        self.place = JobWorkplace()
        self.tasks: list[asyncio.Task[None]] = []
        self.created: dict[str, str] = {}
        self.generation = 1

    async def run(self) -> None:
        place = self.place
        await place.queue.membership.open(4, EPOCH)
        also = {} if self.policy == "Replace" else {"max_concurrency": self.most}
        if self.policy == "Queue":
            also["queue_limit"] = 3
        await place.schedule(self.policy, also=also)
        for _ in range(3):
            self._hire()
        try:
            for _ in range(STEPS):
                await self.dice.choice(self._troubles())()
                await self._pass(self.dice.choice((0.05, 1, 3, 9)))
            await self._calm()
        finally:
            for task in self.tasks:
                task.cancel()
            await asyncio.gather(*self.tasks, return_exceptions=True)

    async def _pass(self, seconds: float) -> None:
        await self.place.clock.advance(seconds)
        for job in self.place.api.all_stored("jobs"):
            metadata = job["metadata"]
            self.created.setdefault(metadata["name"], metadata["creationTimestamp"])
        active = self.place.active()
        bound = self.most if self.policy != "Replace" else 1
        assert len(active) <= bound, active

    async def _calm(self) -> None:
        """No more trouble, but nobody tells of ends either."""
        place = self.place
        place.api._faults.clear()
        while len(self.tasks) < 3:
            self._hire()
        for _ in range(45):
            for name in place.active():
                place.api.end_job("default", name)
            await self._pass(10)
        before = set(place.jobs_there())
        for _ in range(4):
            for name in place.active():
                place.api.end_job("default", name)
            await self._pass(35)
        assert set(place.jobs_there()) - before, "nothing starts any more"

    def _troubles(self):
        usual = [self._nothing, self._end_told, self._end_told, self._end_untold]
        return [
            *usual, *usual, self._delete, self._kill, self._fault, self._lose_answer,
            self._flush, self._fail_over, self._edit,
        ]  # fmt: skip

    async def _nothing(self) -> None:
        pass

    def _any_active(self) -> str | None:
        active = self.place.active()
        return self.dice.choice(active) if active else None

    async def _end_told(self) -> None:
        if name := self._any_active():
            self.place.api.end_job("default", name)
            await self.place.queue.concurrency.finish(self.place.known, [name], EPOCH)

    async def _end_untold(self) -> None:
        if name := self._any_active():
            self.place.api.end_job("default", name)

    async def _delete(self) -> None:
        if name := self._any_active():
            with contextlib.suppress(errors.ApiError):
                await self.place.api.request("DELETE", jobs.path("default", name), {})

    async def _kill(self) -> None:
        """kill -9, at whatever step it is: it gives nothing back."""
        doomed = self.tasks.pop(0)
        self.place.queue.available = False
        doomed.cancel()
        await asyncio.gather(doomed, return_exceptions=True)
        self.place.queue.available = True
        self._hire()

    def _hire(self) -> None:
        worker = self.place.a_worker(f"worker-{self.dice.random()}")
        self.tasks.append(asyncio.create_task(worker.run()))

    async def _fault(self) -> None:
        verb = self.dice.choice(("GET", "POST", "DELETE", "LIST"))
        error = DOWN if verb != "POST" else self.dice.choice((DOWN, REFUSED))
        self.place.api.fail_next(error, verb=verb, resource="jobs")

    async def _lose_answer(self) -> None:
        self.place.api.fail_next(DOWN, verb="POST", resource="jobs", applied=True)

    async def _flush(self) -> None:
        """Everything is forgotten; the operator arms the schedule again, from an old watermark."""
        place = self.place
        place.queue.flush()
        await place.queue.membership.open(4, EPOCH)
        since_us = place.clock.now_us() - self.dice.choice((0, 5, 15)) * SECOND
        known = msgspec.structs.replace(place.known, not_before_us=max(since_us, NOON))
        await place.arm(known, JOB)

    async def _fail_over(self) -> None:
        """Another server, whose copy knows some of the runs."""
        self.place.queue.fail_over(lambda: self.dice.random() < 0.5)

    async def _edit(self) -> None:
        """Of something else: points stay as they are."""
        self.generation += 1
        place = self.place
        place.known = msgspec.structs.replace(place.known, generation=self.generation)
        await place.queue.writer.upsert(
            [
                (
                    messages.Arming(definition=place.known, due_us=None, keep_chain=True),
                    actions.encode(JOB),
                )
            ],
            EPOCH,
        )


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("policy", "most"), [("Forbid", 1), ("Forbid", 3), ("Queue", 2)])
async def test_no_more_run_than_may_and_nothing_is_blocked_for_ever(seed, policy, most):
    await History(seed, policy, most).run()


@pytest.mark.parametrize("seed", range(4))
async def test_one_job_is_left_of_those_that_replace_each_other(seed):
    await History(seed, "Replace", 1).run()


@pytest.mark.parametrize("seed", range(3))
async def test_waiting_slots_start_in_order_through_kills_and_lost_answers(seed):
    history = History(seed, "Queue", 1)
    gentle = [
        history._nothing, history._end_told, history._end_untold, history._kill,
        history._lose_answer, history._delete,
    ]  # fmt: skip
    history._troubles = lambda: gentle
    await history.run()
    by_slot = [history.created[name] for name in sorted(history.created)]
    assert by_slot == sorted(by_slot)
