"""The nemesis: carries out a plan of faults, and records each with evidence of its effect."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import signal
from collections.abc import Awaitable, Callable, Collection, Sequence
from pathlib import Path

import redis

from duepoint.faults import FaultPoint
from tests.chaos import connections, installation, servers
from tests.chaos.history import Fault, Skipped
from tests.chaos.installation import Installation, Member
from tests.chaos.plan import OF_RECEIVER, FaultKind, PlannedFault
from tests.chaos.recorder import Recorder, now_us
from tests.chaos.servers import RedisSetup
from tests.chaos.sink import Mood, Sink
from tests.support.proxy import Proxy
from tests.support.stack import Process
from tools.devcluster.apiserver import ApiError

_OF_PROCESSES = frozenset(
    {
        FaultKind.KILL_WORKER, FaultKind.PAUSE_WORKER, FaultKind.DRAIN_WORKER,
        FaultKind.KILL_LEADER, FaultKind.PAUSE_LEADER, FaultKind.LEASE_DELETED,
        FaultKind.DIES_AT_POINT,
        FaultKind.WRONG_CLOCK, FaultKind.API_LOST_REPLIES, FaultKind.API_LATE_REPLIES,
        FaultKind.API_HALF_OPEN, FaultKind.API_REFUSED, FaultKind.RECEIVER_REFUSES,
        FaultKind.RECEIVER_HANGS, FaultKind.RECEIVER_CUTS,
    }
)  # fmt: skip
#: Fault points at which a worker dies during its work.
POINTS = (
    FaultPoint.AFTER_CLAIM, FaultPoint.AFTER_PLAN, FaultPoint.BEFORE_ATTEMPT,
    FaultPoint.AFTER_ATTEMPT, FaultPoint.BEFORE_SETTLEMENT, FaultPoint.AFTER_SETTLEMENT,
    FaultPoint.AFTER_COMMANDS_SENT, FaultPoint.BEFORE_API_REQUEST, FaultPoint.AFTER_API_RESPONSE,
    FaultPoint.BEFORE_HTTP_REQUEST, FaultPoint.AFTER_HTTP_RESPONSE,
)  # fmt: skip
_TRIES = 3
_WRONG_SECONDS = 3600.0
_STARTING_SECONDS = 20

#: What was done it to, and the witness.
Done = tuple[str, str]


class Nemesis:
    """Faults of one installation.

    Args:
        stopped: pids of the control plane's servers, by kind of fault; empty where others use them.
    """

    def __init__(
        self,
        installed: Installation,
        setup: RedisSetup,
        sink: Sink,
        recorder: Recorder,
        stopped: dict[FaultKind, int],
    ) -> None:
        self._installed = installed
        self._redis = setup
        self._sink = sink
        self._recorder = recorder
        self._stopped = stopped
        self._one_at_a_time = {name: asyncio.Lock() for name in ("redis", "plane", "receiver")}
        self._wrong_clocks = self._doomed_workers = 0
        self._began = 0.0
        # asked for now: the API server may be stopped when a further worker starts
        self._further = {
            "KUBECONFIG": str(installed.stack.login("worker")),
            "lease_seconds": str(installation.LEASE_SECONDS),
            **setup.settings,
        }
        self._alone: dict[FaultKind, Callable[[PlannedFault], Awaitable[Done]]] = {
            FaultKind.LEASE_DELETED: self._delete_lease,
            FaultKind.WRONG_CLOCK: self._another_clock,
            FaultKind.DIES_AT_POINT: self._doomed,
        }

    def skipped(self) -> Collection[Skipped]:
        """What cannot be done here, and why."""
        return [Skipped(kind=kind.value, why=why) for kind, why in self._redis.skipped.items()]

    def kinds(self) -> Collection[FaultKind]:
        """What can be done to this installation."""
        return _OF_PROCESSES | self._redis.kinds | frozenset(self._stopped)

    async def carry_out(self, plan: Sequence[PlannedFault]) -> None:
        """Each at its time; faults of different things overlap."""
        loop = asyncio.get_running_loop()
        self._began = loop.time()
        async with asyncio.TaskGroup() as group:
            for planned in plan:
                await asyncio.sleep(max(0.0, self._began + planned.at_seconds - loop.time()))
                group.create_task(self._inject(planned))

    async def _inject(self, planned: PlannedFault) -> None:
        """Again where it did not bite: another fault may have kept it from anything to bite."""
        for _ in range(_TRIES):
            if await self._tried(planned):
                return

    def _is_too_late(self, planned: PlannedFault) -> bool:
        """Whether earlier faults took so long that the calm has begun."""
        return asyncio.get_running_loop().time() > self._began + planned.begins_by_seconds

    async def _tried(self, planned: PlannedFault) -> bool:
        """Try a fault, and return whether it is settled."""
        kind = planned.kind
        turns = self._one_at_a_time
        if kind in self._stopped:
            return await self._recorded(planned, turns["plane"], self._stop_server)
        if kind in OF_RECEIVER:
            return await self._recorded(planned, turns["receiver"], self._spoil)
        if kind in self._redis.kinds and kind not in _OF_CONNECTIONS:
            return await self._recorded(planned, turns["redis"], self._hurt_redis, self._redis.heal)
        if kind in self._alone:
            return await self._recorded(planned, asyncio.Lock(), self._alone[kind])
        member = self._chosen(planned)
        work = functools.partial(self._hurt_member, member)
        return await self._recorded(planned, member.lock, work)

    async def _recorded(
        self,
        planned: PlannedFault,
        turn: asyncio.Lock,
        work: Callable[[PlannedFault], Awaitable[Done]],
        afterwards: Callable[[], None] = lambda: None,
    ) -> bool:
        async with turn:
            if self._is_too_late(planned):
                return True
            begin_us = now_us()
            what, witness = planned.kind.value, ""
            try:
                try:
                    what, witness = await work(planned)
                finally:
                    await asyncio.to_thread(afterwards)  # a former primary takes writes until then
            except (OSError, redis.RedisError, ApiError, TimeoutError) as error:
                what = f"{planned.kind.value}: {error}"
            finally:
                self._recorder.add(
                    Fault(
                        kind=planned.kind.value,
                        what=what,
                        begin_us=begin_us,
                        end_us=now_us(),
                        witness=witness,
                        forgets=planned.kind in self._redis.forgets,
                    )
                )
            return bool(witness)

    # -- servers and receivers -----------------------------------------------------------------

    async def _stop_server(self, planned: PlannedFault) -> Done:
        witness = await _pause(self._stopped[planned.kind], planned.lasts_seconds)
        return planned.kind.value.removesuffix("-stopped"), witness

    async def _spoil(self, planned: PlannedFault) -> Done:
        mood = {
            FaultKind.RECEIVER_REFUSES: Mood.REFUSES,
            FaultKind.RECEIVER_HANGS: Mood.HANGS,
            FaultKind.RECEIVER_CUTS: Mood.CUTS,
        }[planned.kind]
        before = self._sink.spoilt
        async with self._sink.being(mood):
            await asyncio.sleep(planned.lasts_seconds)
        spoilt = self._sink.spoilt - before
        return "receiver", f"{spoilt} requests" if spoilt else ""

    async def _hurt_redis(self, planned: PlannedFault) -> Done:
        seconds, number = planned.lasts_seconds, planned.number
        everywhere = await asyncio.to_thread(self._redis.primaries)
        chosen = everywhere[number % len(everywhere)]
        match planned.kind:
            case FaultKind.REDIS_RESTART:
                witness = await asyncio.to_thread(self._redis.restart, number, seconds)
            case FaultKind.REDIS_TAIL_LOST:
                lost = max(planned.amount, 0.01)
                witness = await asyncio.to_thread(self._redis.restart, number, seconds, lost)
            case FaultKind.REDIS_STOPPED:
                witness = await _pause(chosen.pid, seconds)
            case FaultKind.REDIS_FLUSHED:
                witness = await asyncio.to_thread(servers.flush, everywhere)
            case FaultKind.REDIS_FULL:
                witness = await asyncio.to_thread(servers.fill, chosen, seconds)
            case FaultKind.SCRIPTS_FLUSHED:
                witness = await asyncio.to_thread(servers.forget_scripts, everywhere)
            case FaultKind.CLIENTS_KILLED:
                witness = await asyncio.to_thread(servers.kill_clients, everywhere)
            case FaultKind.FAILOVER | FaultKind.FAILOVER_LOSING:
                losing = planned.kind is FaultKind.FAILOVER_LOSING
                witness = await asyncio.to_thread(
                    self._redis.fail_over, number, seconds, losing=losing
                )
            case unknown:
                raise ValueError(f"{unknown} is no fault of this Redis")
        return "redis", witness

    # -- processes and their connections -------------------------------------------------------

    async def _hurt_member(self, member: Member, planned: PlannedFault) -> Done:
        if planned.kind in _OF_CONNECTIONS:
            side, work = _OF_CONNECTIONS[planned.kind]
            proxy = member.api if side == "api" else member.redis
            assert proxy is not None
            return member.name, await work(proxy, planned.lasts_seconds)
        member.is_expected_to_end = True  # the supervisor resets it
        return member.name, await self._end_or_pause(member, planned)

    def _chosen(self, planned: PlannedFault) -> Member:
        if planned.kind in {FaultKind.KILL_LEADER, FaultKind.PAUSE_LEADER}:
            leases = self._recorder.history.leases
            holder = leases[-1].holder if leases else ""
            return installation.leader_of(self._installed, holder)
        members = self._installed.members
        if planned.kind.endswith("-worker"):
            members = self._installed.workers
        return members[planned.number % len(members)]

    async def _end_or_pause(self, member: Member, planned: PlannedFault) -> str:
        process = member.process
        if process.has_ended:  # another fault has just ended it
            return ""
        match planned.kind:
            case FaultKind.PAUSE_WORKER | FaultKind.PAUSE_LEADER:
                witness = await _pause(process.pid, planned.lasts_seconds)
                await asyncio.sleep(2)  # a leader that lost its Lease ends itself
                member.is_expected_to_end = process.has_ended
                return witness
            case FaultKind.DRAIN_WORKER:
                code = await process.drain()  # the supervisor starts it again
                return "" if code else "ended with 0"
            case _:
                member.is_wanted = False
                try:
                    await process.kill()
                    await asyncio.sleep(planned.lasts_seconds)
                finally:
                    member.is_wanted = True
                return "killed by SIGKILL"

    async def _delete_lease(self, _: PlannedFault) -> Done:
        stack = self._installed.stack
        path = f"/apis/coordination.k8s.io/v1/namespaces/{stack.system}/leases/duepoint-operator"
        await asyncio.to_thread(stack.plane.admin().delete, path)
        return "Lease", "deleted"

    async def _doomed(self, planned: PlannedFault) -> Done:
        """Start another worker, which dies as by SIGKILL when it reaches a fault point."""
        self._doomed_workers += 1  # a repeated fault gets another point
        point = POINTS[(int(planned.amount * len(POINTS)) + self._doomed_workers) % len(POINTS)]
        process = self._installed.stack.worker(
            f"doomed-{self._doomed_workers}", dies_at=point, **self._further
        )
        for _ in range(_STARTING_SECONDS * 5):
            if process.has_ended:
                code = await process.wait_for_end()
                return point.value, "killed by SIGKILL" if code == -signal.SIGKILL else ""
            await asyncio.sleep(0.2)
        await process.kill()
        return point.value, ""

    async def _another_clock(self, planned: PlannedFault) -> Done:
        """Start another worker, whose clock is an hour off; it must report that itself."""
        self._wrong_clocks += 1
        off = _WRONG_SECONDS if planned.amount > 0.5 else -_WRONG_SECONDS
        name = f"clock-{self._wrong_clocks}"
        process = self._installed.stack.worker(name, off=off, **self._further)
        try:
            noticed = await _waited_for_clock(process)
            await asyncio.sleep(planned.lasts_seconds if noticed else 0)
        finally:
            await process.kill()
        if not noticed:
            return name, ""
        return name, f"off by {off:+.0f} s, and not ready: clock"


async def _waited_for_clock(process: Process) -> bool:
    """Whether the process reports a wrong clock within the time that a start takes."""
    for _ in range(_STARTING_SECONDS * 5):
        with contextlib.suppress(OSError):
            if "clock" in await process.troubles():
                return True
        await asyncio.sleep(0.2)
    return False


async def _pause(pid: int, seconds: float) -> str:
    """Send SIGSTOP, and SIGCONT later."""
    try:
        os.kill(pid, signal.SIGSTOP)
        await asyncio.sleep(min(0.1, seconds))
        state = await asyncio.to_thread(_state_of, pid)
        await asyncio.sleep(max(0.0, seconds - 0.1))
    except OSError:
        return ""
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
    return f"state {state}" if state == "T" else ""


def _state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


async def _cut(proxy: Proxy, _: float) -> str:
    return await connections.cut(proxy)


_OF_CONNECTIONS: dict[FaultKind, tuple[str, Callable[[Proxy, float], Awaitable[str]]]] = {
    FaultKind.REDIS_CUT: ("redis", _cut),
    FaultKind.REDIS_LOST_REPLIES: ("redis", connections.lose_replies),
    FaultKind.REDIS_LATE_REPLIES: ("redis", connections.delay_replies),
    FaultKind.REDIS_HALF_OPEN: ("redis", connections.leave_half_open),
    FaultKind.API_LOST_REPLIES: ("api", connections.lose_replies),
    FaultKind.API_LATE_REPLIES: ("api", connections.delay_replies),
    FaultKind.API_HALF_OPEN: ("api", connections.leave_half_open),
    FaultKind.API_REFUSED: ("api", connections.refuse),
}
