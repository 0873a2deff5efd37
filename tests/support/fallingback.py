"""A scene: Redis is killed and comes back with an older state while Jobs and webhooks run.

The schedules have a last slot, so the outcome of each slot is certain: it ran, or its schedule's
status counts it as missed. A watch of the API server reports every Job ever created, so a slot with
two Jobs is noticed although history deletes Jobs at once. A snapshot that is an hour old is forged:
the scene takes a true one and moves its chains back by an hour before any process meets the server
that has loaded it. The schedules begin before that, so the slots in between exist.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import copy
import dataclasses
import datetime as dt
import json
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from typing import Any

import msgspec

from duepoint.kube import errors as kube_errors
from duepoint.kube import jobbuilder, jobs, port
from duepoint.schedules import points
from tests.support import receiver
from tests.support import stack as stacks
from tests.support.builders import JOB_TEMPLATE
from tests.support.redisserver import RedisServer
from tests.support.stack import Process, Stack
from tests.support.waiting import LONGEST_SECONDS, wait_until

POLICIES = ("All", "Latest", "None")
LIMITS = (0, 1)
#: This long before the fallback all sides agree: no Job's status is in flight.
_BEFORE_SECONDS = 4
_LEASE_SECONDS = "2"
#: This long after a slot a worker has claimed its points, so the snapshot contains some claims.
_IN_HAND_SECONDS = 0.02
#: An abandoned leadership term lasts 15 s; then waiting slots are compared, judged, run, reported.
_SETTLING_SECONDS = LONGEST_SECONDS
#: A worker retries an unreachable server every half second.
_MET_SECONDS = 1.0
_NEVER = "1970-01-01T00:00:00Z"
_START_BEFORE = dt.timedelta(hours=2)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The size of a scene.

    Attributes:
        back_seconds: how old the snapshot is, in seconds that pass.
        forged_seconds: by how much more its chains are moved back.
        away_seconds: from the death of the server to the start of the next one.
        leader_dies: the operator is killed at that moment, and another one started.
        after_seconds: how long the schedules go on after the fallback.
    """

    back_seconds: float
    forged_seconds: int = 0
    away_seconds: float = 0.0
    leader_dies: bool = False
    after_seconds: int = 12
    policies: tuple[str, ...] = POLICIES
    limits: tuple[int, ...] = LIMITS
    webhooks: bool = True


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The outcome; a slot is (schedule, seconds since the epoch).

    Attributes:
        slots: how many slots had Jobs.
        doubled: slots for which more than one Job was created.
        phantoms: Jobs of slots before the first of their schedule.
        lost: schedule -> slots that neither ran nor count as missed; below zero, slots that ran
            but count as missed.
        repeated: slots of webhooks that were delivered more than once.
        later_seconds: from due time to Job, as the watch reports it, for schedules whose only slot
            was due after a worker had met the new server. They have no overdue slot, so they
            wait for nobody.
        overdue_seconds: from the new server's first answer, for slots that fell due in the outage.
        unsettled: schedules whose status did not settle.
    """

    slots: int
    doubled: tuple[tuple[str, int], ...]
    phantoms: tuple[tuple[str, int], ...]
    lost: dict[str, int]
    repeated: tuple[tuple[str, int], ...]
    later_seconds: tuple[float, ...]
    overdue_seconds: tuple[float, ...]
    unsettled: tuple[str, ...]


class Scene:
    """One run on a Stack whose Redis keeps its state in ``folder``.

    Args:
        others: awaited once both processes are ready; starts further load.
        settings: those of operator and worker.
    """

    def __init__(
        self,
        stack: Stack,
        wanted: Wanted,
        *,
        others: Callable[[], Awaitable[None]] | None = None,
        **settings: str,
    ) -> None:
        self._others = others
        self._settings = settings
        self._stack = stack
        self._wanted = wanted
        #: (schedule, slot) -> uid of each of its Jobs -> when the watch first saw it.
        self._made: dict[tuple[str, int], dict[str, float]] = collections.defaultdict(dict)
        self._hooks: dict[tuple[str, int], list[float]] = collections.defaultdict(list)
        #: Schedules with one slot, a different one each, some of them due after the fallback.
        self._once: dict[str, int] = {}
        self._leader: Process | None = None
        self._killed_at = 0.0
        self._answered_at = 0.0

    async def run(self) -> Result:
        wanted = self._wanted
        self._stack.answer = self._answer
        operator = self._leader = self._stack.operator("operator-0", **self._settings)
        worker = self._stack.worker("worker-0", lease_seconds=_LEASE_SECONDS, **self._settings)
        await operator.wait_until_ready()
        await worker.wait_until_ready()
        if self._others is not None:
            await self._others()
        seconds = 3 + _BEFORE_SECONDS + wanted.back_seconds + wanted.away_seconds
        seconds += wanted.after_seconds
        last = dt.datetime.now(dt.UTC).replace(microsecond=0) + dt.timedelta(seconds=seconds)
        async with self._watching():
            names = await self._apply(last)
            await self._wait_for_first(name for name in names if name.startswith("job"))
            await asyncio.sleep(_BEFORE_SECONDS)
            await asyncio.sleep((_IN_HAND_SECONDS - time.time()) % 1)
            before = await asyncio.to_thread(self._snapshot)
            await asyncio.sleep(wanted.back_seconds)
            await self._fall_back(before, operator)
            await asyncio.sleep(max(0.0, last.timestamp() - time.time()))
            unsettled = await self._wait_for_rest(names, last)
            return await self._result(names, last, unsettled)

    # -- what goes on ----------------------------------------------------------------------------

    async def _apply(self, last: dt.datetime) -> list[str]:
        wanted = self._wanted
        timing = {
            "schedule": "@every 1s",
            "startTime": _text(last - _START_BEFORE),
            "endTime": _text(last),
        }
        specs: dict[str, dict[str, Any]] = {}
        for policy in wanted.policies:
            common = timing | {"catchUpPolicy": policy}
            for limit in wanted.limits:
                specs[f"job-{policy.lower()}-{limit}"] = common | {
                    "jobTemplate": copy.deepcopy(JOB_TEMPLATE),
                    "successfulJobsHistoryLimit": limit,
                    "failedJobsHistoryLimit": limit,
                }
            if wanted.webhooks:
                specs[f"hook-{policy.lower()}"] = common | {"webhook": self._stack.webhook()}
        names = list(specs)
        # A forged snapshot moves all chains back, and then these have overdue slots as well.
        for number in range(1, 1 if wanted.forged_seconds else wanted.after_seconds):
            at = last - dt.timedelta(seconds=number)
            name = f"once-{number}"
            specs[name] = {"schedule": f"@at {_text(at)}", "jobTemplate": JOB_TEMPLATE}
            self._once[name] = int(at.timestamp())
        await asyncio.gather(*(self._stack.apply(name, spec) for name, spec in specs.items()))
        return names

    def _snapshot(self) -> bytes:
        """Take the snapshot that will come back."""
        with self._stack.redis.client() as client:
            wait_until_chains_wait(client)
            client.save()
        return self._stack.redis.snapshot.read_bytes()

    async def _fall_back(self, before: bytes, operator: Process) -> None:
        if self._wanted.forged_seconds:
            before = await asyncio.to_thread(self._forged, before)
        self._killed_at = time.time()
        self._kill()
        if self._wanted.leader_dies:
            await operator.kill()
        await asyncio.sleep(self._wanted.away_seconds)
        await asyncio.to_thread(self._come_back, before)
        self._answered_at = time.time()
        if self._wanted.leader_dies:
            self._leader = self._stack.operator("operator-1", **self._settings)

    def _kill(self) -> None:
        self._stack.redis.kill()

    def _come_back(self, before: bytes) -> None:
        """Start the server with an older state; return when it answers."""
        self._stack.redis.snapshot.write_bytes(before)
        self._stack.redis.start()

    def _forged(self, before: bytes) -> bytes:
        """Return the snapshot with its chains moved back."""
        folder = self._stack.folder / "forge"
        folder.mkdir()
        server = RedisServer("valkey", folder)
        server.snapshot.write_bytes(before)
        server.start()
        try:
            with server.client() as client:
                moved = put_chains_back(client, self._wanted.forged_seconds)
                client.save()
        finally:
            server.stop()
        if not moved:
            raise AssertionError("the snapshot holds no chain that waits")
        made = server.snapshot.read_bytes()
        shutil.rmtree(folder)
        return made

    async def _answer(self, request: receiver.Request, writer: asyncio.StreamWriter) -> None:
        await receiver.status(204)(request, writer)
        data = json.loads(request.body)["data"]
        slot = _seconds(data["scheduled_time"])
        self._hooks[str(data["schedule"]["name"]), slot].append(time.time())

    # -- what is seen ----------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _watching(self) -> AsyncIterator[None]:
        watching = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def _watch(self) -> None:
        path = jobs.collection(self._stack.namespace)
        version = json.loads(await self._stack.api.request("GET", path))["metadata"]
        at = str(version["resourceVersion"])
        while True:
            with contextlib.suppress(kube_errors.Unavailable):
                async for change in self._stack.api.watch(path, _Job, at):
                    self._see(change.item)
                    at = change.item.metadata.resource_version

    def _see(self, job: _Job) -> None:
        known = job.metadata
        name = (known.labels or {}).get(jobbuilder.SCHEDULE_LABEL)
        slot = (known.annotations or {}).get(jobbuilder.SCHEDULED_TIME)
        if name and slot:
            self._made[name, _seconds(slot)].setdefault(known.uid, time.time())

    async def _wait_for_first(self, names: Iterable[str]) -> None:
        wanted = set(names)

        async def all_began() -> bool:
            return wanted <= {name for name, _ in self._made}

        await stacks.eventually(all_began, "every schedule has made its first Job")

    async def _wait_for_rest(self, names: list[str], last: dt.datetime) -> tuple[str, ...]:
        """Return the schedules whose status does not say that all slots have ended."""
        newest = last - dt.timedelta(seconds=1)
        left = list(names)
        deadline = time.monotonic() + _SETTLING_SECONDS
        while left and time.monotonic() < deadline:
            found = await asyncio.gather(*(self._stack.schedule(name) for name in left))
            left = [
                one["metadata"]["name"] for one in found if not _is_at_rest(one["status"], newest)
            ]
            await asyncio.sleep(0.5)
        return tuple(left)

    async def _result(
        self, names: list[str], last: dt.datetime, unsettled: tuple[str, ...]
    ) -> Result:
        lost, slots = {}, 0
        phantoms: list[tuple[str, int]] = []
        began = {
            name: min(
                (slot for (one, slot), seen in self._made.items()
                 if one == name and min(seen.values()) < self._killed_at),
                default=0,
            )
            for name in names
        }  # fmt: skip
        for name in names:
            of_name = [slot for one, slot in self._made if one == name]
            if not name.startswith("job"):
                continue
            expected = set(range(began[name], int(last.timestamp())))
            slots += len(expected)
            phantoms += [(name, slot) for slot in of_name if slot not in expected]
            known = await self._stack.schedule(name)
            missed = known["status"].get("runs", {}).get("missed", 0)
            left = len(expected) - len(expected & set(of_name)) - missed
            # On a busy machine the first slots may be missed before the first Job is made.
            early = began[name] - _seconds(known["metadata"]["creationTimestamp"])
            lost[name] = left if left >= 0 else min(0, left + early)
        lost |= {name: 1 for name, slot in self._once.items() if (name, slot) not in self._made}
        return Result(
            slots=slots + len(self._once),
            doubled=tuple(sorted(key for key, made in self._made.items() if len(made) > 1)),
            phantoms=tuple(sorted(phantoms)),
            lost={name: count for name, count in lost.items() if count},
            repeated=tuple(sorted(key for key, at in self._hooks.items() if len(at) > 1)),
            later_seconds=tuple(self._later()),
            overdue_seconds=tuple(self._overdue()),
            unsettled=unsettled,
        )

    def _later(self) -> Iterable[float]:
        for name, slot in self._once.items():
            is_later = slot > self._answered_at + _MET_SECONDS
            if is_later and (made := self._made.get((name, slot))):
                yield min(made.values()) - slot

    def _overdue(self) -> Iterable[float]:
        for (_, slot), made in self._made.items():
            if self._killed_at < slot <= self._answered_at:
                yield min(made.values()) - self._answered_at


class _Job(msgspec.Struct, frozen=True):
    metadata: port.Metadata


def wait_until_chains_wait(client: Any) -> None:
    """Wait until the first points of a second are settled, so that their chains wait again.

    Right after a slot a quick worker has claimed all chains, and a state without a waiting chain
    has nothing to compare.
    """
    wait_until(lambda: any(is_chain for *_, is_chain in _waiting(client)), "a chain waits")


def put_chains_back(client: Any, seconds: int) -> int:
    """Make each chain that waits in a lane due this much earlier; return how many there are."""
    moved = 0
    for key, member, score, is_chain in list(_waiting(client)):
        client.zadd(key, {member: score - seconds * 1_000_000}, xx=True)
        moved += is_chain
    return moved


def _waiting(client: Any) -> Iterator[tuple[bytes, bytes, float, bool]]:
    """Yield (key, member, score, is_chain) of waiting chains and of their lanes' heads."""
    for key in client.scan_iter(count=1000, _type="zset"):
        is_heads, is_lane = key.endswith(b":heads"), b":points:" in key
        for member, score in client.zscan_iter(key, count=1000):
            # A claim's id has the same length, so check the key, too.
            is_chain = is_lane and len(member) == points.CHAIN_LENGTH
            if (is_chain or (is_heads and member)) and 0 < score < points.DUE_LIMIT_US:
                yield key, member, score, is_chain


def _is_at_rest(status: dict[str, Any], newest: dt.datetime) -> bool:
    """Whether the status says that everything has ended."""
    last = status.get("lastRun") or {}
    ready = next((one for one in status.get("conditions", ()) if one["type"] == "Ready"), {})
    return (
        ready.get("reason") == "Completed"
        and last.get("outcome") != "Running"
        and "openSlots" not in status
        and not status.get("activeCount")
        and dt.datetime.fromisoformat(status.get("settledThrough", _NEVER)) >= newest
    )


def _seconds(text: str) -> int:
    return round(dt.datetime.fromisoformat(text).timestamp())


def _text(at: dt.datetime) -> str:
    return at.isoformat().replace("+00:00", "Z")
