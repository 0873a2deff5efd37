"""A chaos run from beginning to end: servers, processes, users, faults, and the final state.

The order is always the same: everything becomes ready, users write their objects, a few calm
seconds, the plan with its final calm, a new one-off that must run, the end of all recurring
Schedules, and a wait until everything has settled.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime as dt
import json
import random
import time
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from duepoint.kube import transport
from tests.chaos import plan, servers
from tests.chaos.history import EndState, Run, StatusAtEnd, instant_us
from tests.chaos.installation import Installation, Member, leader_of
from tests.chaos.load import STREAMS, Amounts, Load
from tests.chaos.nemesis import Nemesis
from tests.chaos.plan import FaultKind, PlannedFault, Rhythm
from tests.chaos.recorder import Recorder, now_us
from tests.chaos.replicated import Cluster, UnderSentinel
from tests.chaos.sink import Sink
from tests.chaos.stalls import StallWatch
from tests.chaos.watching import Change, Watch
from tests.support import stack as stacks
from tests.support.controlplane import ControlPlane
from tests.support.stack import Stack

#: A claim's lease lasts 3 s, a leader's 15 s, and data that a server lost is restored in 30 s.
RECOVERY_SECONDS = 35.0
#: Generous, because ten processes and a control plane share two cores.
LATENESS_SECONDS = 3.0
_WARM_SECONDS = 4.0
_TAIL_SECONDS = 4.0
_REST_SECONDS = 60.0
#: A Lease lasts 15 s, and the next leader compares everything.
_TAKEOVER_SECONDS = 35.0
#: How long after a stall it still explains trouble.
_STALLED_US = 20_000_000
_STRANGER = "stranger"
SETS = "/apis/duepoint.dev/v1alpha1/namespaces/{ns}/schedulesets"
#: How many more connections a process may have than another of its kind: some, and all to the API
#: server, because a rebuild opens its whole pool and keeps it for 75 s.
_SPARE_FILES = 10 + transport.REQUEST_CONNECTIONS
_ZERO_AT_REST = ("duepoint_inflight", "duepoint_circuits_open", "duepoint_dead_entries")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The parameters of a run.

    Attributes:
        kinds: faults to choose from; empty = all that are possible in this set-up.
        stopped: pids of control plane servers that may be stopped, by kind of fault.
        recovery_seconds: how long after a fault everything has recovered.
    """

    seed: int
    kind: str
    rhythm: Rhythm
    amounts: Amounts
    kinds: Collection[FaultKind] = ()
    stopped: dict[FaultKind, int] = dataclasses.field(default_factory=dict)
    recovery_seconds: float = RECOVERY_SECONDS


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """Attributes:
    kinds: of faults that the plan had.
    """

    recorder: Recorder
    kinds: Collection[str]


SETUPS: dict[str, type[servers.SingleServer | Cluster | UnderSentinel]] = {
    "single": servers.SingleServer,
    "cluster": Cluster,
    "sentinel": UnderSentinel,
}


async def play(
    wanted: Wanted, plane: ControlPlane, folder: Path, path: Path, say: Callable[[str], None]
) -> Played:
    """Play the run and record it in the file at ``path``."""
    redis = SETUPS[wanted.kind](folder / "redis")
    await asyncio.to_thread(redis.start)
    try:
        async with stacks.installed(plane, redis, folder) as stack:  # type: ignore[arg-type]
            run = Run(
                seed=wanted.seed,
                kind=wanted.kind,
                namespace=stack.namespace,
                seconds=_WARM_SECONDS + wanted.rhythm.seconds,
                recovery_us=int(wanted.recovery_seconds * 1e6),
                lateness_us=int(LATENESS_SECONDS * 1e6),
            )
            recorder = Recorder(run, path)
            try:
                kinds = await _Play(wanted, stack, redis, recorder, say).run()
            finally:
                recorder.close()
            return Played(recorder=recorder, kinds=kinds)
    finally:
        redis.stop()


class _Play:
    def __init__(
        self,
        wanted: Wanted,
        stack: Stack,
        redis: servers.RedisSetup,
        recorder: Recorder,
        say: Callable[[str], None],
    ) -> None:
        self._wanted = wanted
        self._stack = stack
        self._redis = redis
        self._recorder = recorder
        self._say = say
        self._sink = Sink(recorder)
        self._installed = Installation(stack, redis, self._stood_still)
        self._strangers: list[str] = []
        self._most_files = 0
        stack.answer = self._sink.answer

    async def run(self) -> Collection[str]:
        rhythm = self._wanted.rhythm
        chance = random.Random(self._wanted.seed)
        stranger = await asyncio.to_thread(self._make_stranger)
        nemesis = Nemesis(
            self._installed,
            self._redis,
            self._sink,
            self._recorder,
            self._wanted.stopped,
        )
        kinds = frozenset(self._wanted.kinds or nemesis.kinds()) & frozenset(nemesis.kinds())
        for line in nemesis.skipped():
            self._recorder.add(line)
        faults = plan.of_seed(self._wanted.seed, rhythm, kinds)
        stalls = StallWatch(self._recorder.add)
        stalls.start()
        try:
            await self._disturb(faults, nemesis, chance, stranger)
        finally:
            stalls.stop()
        return {fault.kind.value for fault in faults}

    async def _disturb(
        self,
        faults: Sequence[PlannedFault],
        nemesis: Nemesis,
        chance: random.Random,
        stranger: str,
    ) -> None:
        """Play the part between the start of the processes and the reading of the final state."""
        rhythm = self._wanted.rhythm
        async with self._installed.running(), self._watching(), self._following():
            seconds = _WARM_SECONDS + rhythm.seconds
            ends = dt.datetime.now(dt.UTC).replace(microsecond=0) + dt.timedelta(
                seconds=seconds + _TAIL_SECONDS + 4
            )
            load = Load(self._stack, self._recorder, ends)
            await load.apply_all(self._wanted.amounts)
            self._say(f"{len(load.present())} Schedules, {len(faults)} faults in {seconds:.0f} s")
            await asyncio.sleep(_WARM_SECONDS)
            self._most_files = max(map(_open_files, self._installed.members))
            disturbing = asyncio.create_task(nemesis.carry_out(faults))
            editing = asyncio.create_task(
                load.edit(chance, self._wanted.amounts.edited, rhythm.seconds - rhythm.calm_seconds)
            )
            began = time.monotonic()
            await asyncio.gather(disturbing, editing)
            await asyncio.sleep(max(0.0, began + rhythm.seconds - time.monotonic()))
            await self._end(load, stranger)

    # -- what is seen ----------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _watching(self) -> AsyncIterator[None]:
        stack, recorder = self._stack, self._recorder
        leases = f"/apis/coordination.k8s.io/v1/namespaces/{stack.system}/leases"
        watches = [
            Watch(stack.plane, path, see, recorder.gaps.append)
            for path, see in (
                (stacks.JOBS.format(ns=stack.namespace), recorder.see_job),
                (stacks.SCHEDULES.format(ns=stack.namespace), recorder.see_schedule),
                (SETS.format(ns=stack.namespace), recorder.see_schedule),
                (leases, recorder.see_lease),
                ("/apis/batch/v1/jobs", self._see_elsewhere),
            )
        ]
        for watch in watches:
            watch.start()
        try:
            yield
        finally:
            await asyncio.gather(*(asyncio.to_thread(watch.stop) for watch in watches))

    def _see_elsewhere(self, change: Change) -> None:
        """Record any Job of ours that appears in another namespace."""
        metadata = change.item["metadata"]
        ours = {wish.uid for wish in self._recorder.history.wishes}
        owners = {one["uid"] for one in metadata.get("ownerReferences", ())}
        if metadata["namespace"] != self._stack.namespace and owners & ours:
            self._strangers.append(f"a Job in {metadata['namespace']}: {metadata['name']}")

    @contextlib.asynccontextmanager
    async def _following(self) -> AsyncIterator[None]:
        tasks = [
            asyncio.create_task(
                self._recorder.follow_stream(key, lambda key=key: self._redis.holder_of(key))
            )
            for key in (f"dp:stream:{self._stack.namespace}:{name}" for name in STREAMS)
        ]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _make_stranger(self) -> str:
        """Create a Job that is not ours but has our label, and return its uid."""
        labels = {"duepoint.dev/schedule": "job-0"}
        body = {
            "metadata": {"name": _STRANGER, "labels": labels},
            "spec": {**_suspended_job(), "suspend": True},
        }
        path = stacks.JOBS.format(ns=self._stack.namespace)
        return str(self._stack.plane.admin().post(path, body)["metadata"]["uid"])

    def _stood_still(self) -> bool:
        stalls = self._recorder.history.stalls
        return bool(stalls) and stalls[-1].end_us > now_us() - _STALLED_US

    # -- the end ---------------------------------------------------------------------------------

    async def _end(self, load: Load, stranger: str) -> None:
        at = dt.datetime.now(dt.UTC).replace(microsecond=0) + dt.timedelta(seconds=2)
        text = at.isoformat().replace("+00:00", "Z")
        spec = {"schedule": f"@at {text}", "startingDeadlineSeconds": 600}
        await load.apply("fresh", {**spec, "webhook": self._stack.webhook()})
        problems = [*self._recorder.gaps, *self._installed.exits]
        left = (load.ends - dt.datetime.now(dt.UTC)).total_seconds()
        recovered_us = max((one.end_us for one in self._recorder.history.faults), default=0)
        recovered_us += self._recorder.history.run.recovery_us + 1_000_000
        await asyncio.sleep(max(0.0, left, (recovered_us - now_us()) / 1e6))
        await load.apply_set(self._wanted.amounts.members, suspend=True)
        problems += await self._wait_for_rest(load)
        problems += await self._unready()
        self._recorder.stop_following()
        for name in load.present():
            found = await self._found(name)
            self._recorder.add(
                StatusAtEnd(
                    name=name,
                    generation=found["metadata"]["generation"],
                    status=found.get("status"),
                )
            )
        problems += await self._changed_by_takeover()
        await asyncio.to_thread(self._look_after, stranger)
        problems += self._installed.troubled_logs()
        self._recorder.add(
            EndState(
                at_us=now_us(),
                problems=tuple(problems),
                strangers=tuple(self._strangers),
            )
        )

    async def _wait_for_rest(self, load: Load) -> list[str]:
        """Wait until every status reports its last slot; the checker judges those that do not."""
        last_us = int(load.ends.timestamp() * 1e6) - 4_000_000
        left = [name for name in load.present() if load.has_timing_that_ended(name)]
        deadline = time.monotonic() + _REST_SECONDS
        while left and time.monotonic() < deadline:
            await asyncio.sleep(0.5)
            left = [name for name in left if not _is_at_rest(await self._found(name), last_us)]
        return [f"{name} has not come to rest" for name in left]

    async def _changed_by_takeover(self) -> list[str]:
        """Let another leader work out every status anew, and name those that it changes."""
        history = self._recorder.history
        leader = leader_of(self._installed, history.leases[-1].holder)
        leader.is_expected_to_end = True
        await leader.process.kill()
        await asyncio.sleep(_TAKEOVER_SECONDS)
        found = {one.name: (await self._found(one.name)).get("status") for one in history.statuses}
        return [
            f"a takeover changes {one.name}: {one.status} to {found[one.name]}"
            for one in history.statuses
            if found[one.name] != one.status
        ]

    async def _found(self, name: str) -> dict[str, Any]:
        return await self._stack.schedule(name)

    async def _unready(self) -> list[str]:
        """Return how the installation differs from a healthy one."""
        found, leaders = [], 0.0
        for member in self._installed.members:
            try:
                trouble = await member.process.troubles()
                numbers = _gauges(await member.process.metrics())
            except OSError as error:
                found.append(f"{member.name}: {error}")
                continue
            if trouble:
                # The error is at the end of a traceback.
                shown = trouble if len(trouble) < 600 else f"{trouble[:200]} ... {trouble[-400:]}"
                found.append(f"{member.name} is not ready: {shown}")
            leaders += numbers.get("duepoint_leader", 0)
            if (files := _open_files(member)) > self._most_files * 1.05 + _SPARE_FILES:
                found.append(f"{member.name} has {files} files open; {self._most_files} before")
            found += [
                f"{member.name}: {gauge} is {numbers[gauge]:g}"
                for gauge in _ZERO_AT_REST
                if numbers.get(gauge)
            ]
        if leaders != 1:
            found.append(f"there are {leaders:g} leaders")
        return found + await asyncio.to_thread(self._dead_letters)

    def _dead_letters(self) -> list[str]:
        found = []
        for server in self._redis.primaries():
            with servers.connected(server) as client:
                for key in client.scan_iter(match="*:log:*", _type="stream"):
                    found += [f"dead letter: {letter}" for _, letter in client.xrange(key)]
        return [letter[:500] for letter in found]

    def _look_after(self, stranger: str) -> None:
        path = f"{stacks.JOBS.format(ns=self._stack.namespace)}/{_STRANGER}"
        found = self._stack.plane.admin().get(path)["metadata"]
        if found["uid"] != stranger or "deletionTimestamp" in found:
            self._strangers.append("the stranger's Job was deleted")


def _suspended_job() -> dict[str, Any]:
    from tests.support.builders import JOB_TEMPLATE

    return dict(json.loads(json.dumps(JOB_TEMPLATE["spec"])))


def _is_at_rest(found: dict[str, Any], last_us: int) -> bool:
    status = found.get("status", {})
    settled = status.get("settledThrough")
    if "openSlots" in status or status.get("active"):
        return False
    if found["spec"].get("schedule", "").startswith("@at"):
        return bool(status.get("runs"))
    return settled is not None and instant_us(settled) >= last_us


def _open_files(member: Member) -> int:
    """Return the open files of its process, connections included; 0 if it has just ended."""
    try:
        return len(list(Path(f"/proc/{member.process.pid}/fd").iterdir()))
    except FileNotFoundError:
        return 0


def _gauges(text: str) -> dict[str, float]:
    """Return the gauges, summed over labels."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            name = name.partition("{")[0]
            found[name] = found.get(name, 0.0) + float(value)
    return found
