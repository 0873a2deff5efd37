"""A scene: Redis is emptied amid kills while a receiver refuses half of all webhooks.

The schedules have a first and a last slot, so the required deliveries are known beforehand. The
receiver refuses each request with a chance of one half until the last slot is past. It must accept
every slot in the end (none *lost*). A slot accepted twice is a *repeat*; it is *late* if its first
delivery was longer before the loss than a status may be behind.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import datetime as dt
import json
import random
import time

from tests.support import receiver
from tests.support.stack import Process, Stack
from tests.support.waiting import LONGEST_SECONDS

#: The status of a schedule that never pauses is at most this far behind its runs.
STATUS_SECONDS = 10.0 + 2.0
_LEASE_SECONDS = "2"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The size of a scene."""

    schedules: int
    seconds: int
    every_seconds: int
    losses: int
    kills: bool = True
    seed: int = 1


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The outcome.

    Attributes:
        repeated: slots that the receiver accepted more than once.
        late: those of them that it had accepted long before the loss that repeated them.
        left_open: schedules whose status does not settle.
    """

    slots: int
    requests: int
    lost: tuple[tuple[str, str], ...]
    repeated: tuple[tuple[str, str], ...]
    late: tuple[tuple[str, str], ...]
    left_open: tuple[str, ...]


class Scene:
    """One run on a Stack."""

    def __init__(self, stack: Stack, wanted: Wanted) -> None:
        self._stack = stack
        self._wanted = wanted
        self._dice = random.Random(wanted.seed)
        self._takes_all = False
        self._taken: dict[tuple[str, str], list[float]] = collections.defaultdict(list)
        self._requests = 0
        self._lost_at: list[float] = []
        self._news = asyncio.Condition()
        self._processes: list[Process] = []

    async def run(self) -> Result:
        wanted = self._wanted
        self._stack.answer = self._answer
        self._processes = [self._start(role, 0) for role in ("operator", "worker")]
        for process in self._processes:
            await process.wait_until_ready()
        first = dt.datetime.now(dt.UTC).replace(microsecond=0) + dt.timedelta(
            seconds=4 + wanted.schedules // 20
        )
        expected = set(await self._apply(first))
        await self._disturb(first)
        await asyncio.sleep(max(0.0, first.timestamp() + wanted.seconds - time.time()))
        self._takes_all = True
        missing = await self._wait_for(expected)
        left_open = await self._wait_for_rest()
        repeated = {key: times for key, times in self._taken.items() if len(times) > 1}
        return Result(
            slots=len(expected),
            requests=self._requests,
            lost=tuple(sorted(missing)),
            repeated=tuple(sorted(repeated)),
            late=tuple(sorted(key for key, times in repeated.items() if self._is_late(times))),
            left_open=left_open,
        )

    def _start(self, role: str, number: int) -> Process:
        if role == "operator":
            return self._stack.operator(f"operator-{number}")
        return self._stack.worker(f"worker-{number}", lease_seconds=_LEASE_SECONDS)

    async def _apply(self, first: dt.datetime) -> list[tuple[str, str]]:
        wanted = self._wanted
        last = first + dt.timedelta(seconds=wanted.seconds)
        spec = {
            "schedule": f"@every {wanted.every_seconds}s",
            "startTime": _text(first),
            "endTime": _text(last),
            "catchUpPolicy": "All",
            "webhook": self._stack.webhook(retry={"initialBackoff": "1s", "maxBackoff": "4s"}),
        }
        names = [f"hook-{number}" for number in range(wanted.schedules)]
        await asyncio.gather(*(self._stack.apply(name, spec) for name in names))
        slots = range(0, wanted.seconds, wanted.every_seconds)
        return [
            (name, _text(first + dt.timedelta(seconds=seconds)))
            for name in names
            for seconds in slots
        ]

    async def _disturb(self, first: dt.datetime) -> None:
        """Cause the losses, spread evenly over the time, each amid different kills."""
        wanted = self._wanted
        for number in range(wanted.losses):
            due = first.timestamp() + wanted.seconds * (number + 0.7) / (wanted.losses + 0.3)
            await asyncio.sleep(max(0.0, due - time.time()))
            roles = ((), ("operator",), ("worker",), ("operator", "worker"))[number % 4]
            await self._lose(roles if wanted.kills else (), number + 1)

    async def _lose(self, killed: tuple[str, ...], number: int) -> None:
        for process in [one for one in self._processes if one.role in killed]:
            await process.kill()
            self._processes.remove(process)
        with self._stack.redis.client() as client:
            client.flushall()
        self._lost_at.append(time.time())
        self._processes += [self._start(role, number) for role in killed]

    async def _answer(self, request: receiver.Request, writer: asyncio.StreamWriter) -> None:
        self._requests += 1
        if not self._takes_all and self._dice.random() < 0.5:
            await receiver.status(503)(request, writer)
            return
        await receiver.status(204)(request, writer)
        data = json.loads(request.body)["data"]
        async with self._news:
            key = (str(data["schedule"]["name"]), str(data["scheduled_time"]))
            self._taken[key].append(time.time())
            self._news.notify_all()

    async def _wait_for(self, expected: set[tuple[str, str]]) -> set[tuple[str, str]]:
        """Return the slots not accepted within a time that is enough for all retries."""
        try:
            async with asyncio.timeout(LONGEST_SECONDS), self._news:
                await self._news.wait_for(lambda: expected <= self._taken.keys())
        except TimeoutError:
            return expected - self._taken.keys()
        return set()

    async def _wait_for_rest(self) -> tuple[str, ...]:
        """Return the schedules whose status still has open slots or an active run."""
        left = [f"hook-{number}" for number in range(self._wanted.schedules)]
        deadline = time.monotonic() + LONGEST_SECONDS
        while left and time.monotonic() < deadline:
            found = await asyncio.gather(*(self._stack.schedule(name) for name in left))
            left = [one["metadata"]["name"] for one in found if not _is_at_rest(one["status"])]
            await asyncio.sleep(0.5)
        return tuple(left)

    def _is_late(self, times: list[float]) -> bool:
        """Whether the first delivery was longer before the loss than a status may be behind."""
        losses = [at for at in self._lost_at if times[0] <= at <= times[-1]]
        return not losses or losses[0] - times[0] > STATUS_SECONDS


def _is_at_rest(status: dict[str, object]) -> bool:
    last = status.get("lastRun")
    runs_on = isinstance(last, dict) and last.get("outcome") == "Running"
    return "openSlots" not in status and not runs_on


def _text(at: dt.datetime) -> str:
    return at.isoformat().replace("+00:00", "Z")
