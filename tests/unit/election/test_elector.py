"""What a leader, a candidate and the Lease between them do, in virtual time."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace

import pytest

from duepoint import errors
from duepoint.election import elector
from duepoint.kube import leases
from tests.unit.election import virtualtime
from tests.unit.election.leaseserver import Connection, Fault, LeaseServer


async def none_known() -> int:
    """Redis has seen no term yet."""
    return 0


@dataclass
class Replica:
    """An elector with everything a test wants to see of it."""

    connection: Connection
    rate: float = 1.0
    known_epoch: Callable[[], object] = none_known
    stop_seconds: float = 0.0
    identity: str = ""
    terms: list[elector.Term] = field(default_factory=list)
    changes: list[tuple[bool, int]] = field(default_factory=list)
    leading: asyncio.Event = field(default_factory=asyncio.Event)
    idle: asyncio.Event = field(default_factory=asyncio.Event)
    left: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.clock = virtualtime.VirtualClock(self.rate)
        self.elector = elector.Elector(
            self.connection,
            self.clock,
            self.identity or elector.unique("replica"),
            known_epoch=self.known_epoch,
            leave=self.left.append,
            on_change=lambda leading, epoch: self.changes.append((leading, epoch)),
        )
        self.task = asyncio.create_task(self.elector.run(self.work))

    async def work(self, term: elector.Term) -> None:
        self.terms.append(term)
        self.idle.clear()
        self.leading.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(self.stop_seconds)
            self.leading.clear()
            self.idle.set()

    async def stop(self) -> None:
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.task

    @property
    def term(self) -> elector.Term:
        return self.terms[-1]


@contextlib.asynccontextmanager
async def a_replica(connection: Connection, **options: object) -> AsyncIterator[Replica]:
    replica = Replica(connection, **options)
    try:
        yield replica
    finally:
        await replica.stop()


def now() -> float:
    return asyncio.get_running_loop().time()


#: Of the first term: milliseconds since 1970 on the clock of these tests, after the first look.
FIRST = 1_000_021


def held_by(holder: str, *, transitions: int = 4, **annotations: str) -> leases.Lease:
    return leases.Lease(
        holder=holder,
        duration_seconds=15,
        transitions=transitions,
        annotations={
            key.replace("__", "/").replace("_", "."): text for key, text in annotations.items()
        },
    )


@virtualtime.in_virtual_time
async def test_a_standby_waits_a_whole_lease_after_the_last_renewal_it_saw():
    server, began = LeaseServer(), now()
    server.put(held_by("gone", duepoint_dev__epoch="4"))
    async with a_replica(Connection(server)) as replica:
        await replica.leading.wait()
        assert 15.0 <= now() - began < 17.0
        assert replica.term.epoch == 5


@virtualtime.in_virtual_time
async def test_a_standby_never_takes_a_lease_that_is_renewed():
    server = LeaseServer()
    async with a_replica(Connection(server)) as leader:
        await leader.leading.wait()
        async with a_replica(Connection(server)) as standby:
            await asyncio.sleep(600)
            assert not standby.terms
            assert leader.term.is_held()


@virtualtime.in_virtual_time
async def test_the_lease_is_given_back_only_after_the_work_has_stopped():
    server = LeaseServer()
    async with a_replica(Connection(server), stop_seconds=3.0) as leader:
        await leader.leading.wait()
        stopping = asyncio.create_task(leader.stop())
        await asyncio.sleep(2.9)
        assert server.lease.holder == leader.elector.identity
        assert not leader.term.is_held()
        await stopping
        assert server.lease.holder == ""


@pytest.mark.parametrize("fault", [Fault.HANGS, Fault.REFUSED])
@virtualtime.in_virtual_time
async def test_a_leader_without_answers_steps_down_ten_seconds_after_its_last_renewal_began(fault):
    server = LeaseServer()
    connection = Connection(server)
    async with a_replica(connection) as leader:
        await leader.leading.wait()
        await asyncio.sleep(21.0)
        connection.plan = lambda _verb: fault
        renewed_before = server.lease.renewed_us / 1e6
        await leader.idle.wait()
        assert now() <= renewed_before + elector.DEADLINE_SECONDS + 0.001
        assert now() >= renewed_before + elector.DEADLINE_SECONDS - 0.1
        assert not leader.term.is_held()


def test_is_held_turns_false_by_itself_even_when_the_loop_does_nothing():
    time = 100.0
    term = elector.Term(elector.Epoch(1), {}, lambda: time)
    term.trust_until(110.0)
    assert term.is_held()
    time = 110.0
    assert not term.is_held()


@pytest.mark.parametrize(
    "error",
    [
        OSError("no route to host"),
        TimeoutError(),
        asyncio.CancelledError(),
        ConnectionResetError(),
        ValueError("cannot decode"),
        KeyError("spec"),
        MemoryError(),
        RecursionError(),
        RuntimeError("session is closed"),
        AssertionError(),
        StopAsyncIteration(),
        ExceptionGroup("several", [OSError()]),
        errors.ApiUnavailable("throttled", retry_after_seconds=1),
        errors.Bug("ours"),
    ],
    ids=lambda error: type(error).__name__,
)
@virtualtime.in_virtual_time
async def test_an_exception_of_any_class_is_a_failed_renewal_and_nothing_else(error):
    server = LeaseServer()
    connection = Connection(server, error=lambda: error)
    async with a_replica(connection) as leader:
        await leader.leading.wait()
        failing_until = now() + 7.0
        connection.plan = lambda _verb: Fault.REFUSED if now() < failing_until else Fault.NONE
        await asyncio.sleep(60)
        assert leader.term.is_held()
        assert len(leader.terms) == 1
        connection.plan = lambda _verb: Fault.REFUSED
        await leader.idle.wait()
        connection.plan = lambda _verb: Fault.NONE
        await leader.leading.wait()
        assert [term.epoch for term in leader.terms] == [FIRST, FIRST + 1]


@virtualtime.in_virtual_time
async def test_a_renewal_whose_answer_was_lost_is_met_by_reading_again():
    server = LeaseServer()
    connection = Connection(server)
    async with a_replica(connection) as leader:
        await leader.leading.wait()
        lost = iter([Fault.ANSWER_LOST])
        connection.plan = lambda _verb: next(lost, Fault.NONE)
        await asyncio.sleep(120)
        assert leader.term.is_held()
        assert len(leader.terms) == 1


@virtualtime.in_virtual_time
async def test_a_stolen_lease_ends_the_term_at_the_next_renewal():
    server = LeaseServer()
    async with a_replica(Connection(server)) as leader:
        await leader.leading.wait()
        await asyncio.sleep(5)
        stolen = now()
        server.put(replace(server.lease, holder="thief"))
        await leader.idle.wait()
        assert now() - stolen < 2.5
        await leader.leading.wait()
        assert 15.0 <= now() - stolen < 20.0
        assert leader.term.epoch == FIRST + 1


@pytest.mark.parametrize(("in_redis", "in_lease"), [(41, 7), (7, 41)])
@virtualtime.in_virtual_time
async def test_the_epoch_is_above_that_of_redis_and_of_the_lease(in_redis, in_lease):
    async def known() -> int:
        return in_redis

    server = LeaseServer()
    server.put(held_by("", duepoint_dev__epoch=str(in_lease)))
    async with a_replica(Connection(server), known_epoch=known) as replica:
        await replica.leading.wait()
        assert replica.term.epoch == 42
        assert server.lease.annotations[elector.EPOCH_ANNOTATION] == "42"


@pytest.mark.parametrize("trouble", ["fails", "hangs", "fails before it can be awaited"])
@virtualtime.in_virtual_time
async def test_a_leader_is_found_while_redis_cannot_be_asked(trouble):
    async def known() -> int:
        if trouble == "hangs":
            await asyncio.Event().wait()
        raise errors.QueueUnavailable("down")

    def broken() -> object:
        raise errors.QueueUnavailable("down")

    server = LeaseServer()
    ask = broken if trouble.endswith("awaited") else known
    async with a_replica(Connection(server), known_epoch=ask) as replica:
        await replica.leading.wait()
        assert server.lease.holder


@virtualtime.in_virtual_time
async def test_work_that_does_not_stop_ends_the_process_before_anyone_else_may_lead():
    server = LeaseServer()
    connection = Connection(server)
    replica = Replica(connection, stop_seconds=60.0)
    await replica.leading.wait()
    await asyncio.sleep(11)
    connection.plan = lambda _verb: Fault.REFUSED
    with pytest.raises(errors.Bug):
        await replica.task
    renewed = server.lease.renewed_us / 1e6  # a call may have been under way
    assert replica.left
    assert now() < renewed + elector.LEASE_SECONDS


@pytest.mark.parametrize("ending", ["returns", "raises"])
@virtualtime.in_virtual_time
async def test_work_that_ends_gives_the_lease_to_somebody_else_and_tries_again_later(ending):
    server, starts = LeaseServer(), []

    async def work(term: elector.Term) -> None:
        starts.append(now())
        if ending == "raises":
            raise OSError("Redis is away")

    one = elector.Elector(
        Connection(server), virtualtime.VirtualClock(), "a", known_epoch=none_known
    )
    task = asyncio.create_task(one.run(work))
    await asyncio.sleep(1)
    assert server.lease.holder == ""
    await asyncio.sleep(300)
    gaps = [later - earlier for earlier, later in itertools.pairwise(starts)]
    assert gaps[0] >= 1.0
    assert 10 < max(gaps) < 33
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


@virtualtime.in_virtual_time
async def test_a_deleted_lease_is_made_again_by_its_leader():
    server = LeaseServer()
    async with a_replica(Connection(server)) as leader:
        await leader.leading.wait()
        async with a_replica(Connection(server)) as standby:
            await asyncio.sleep(10)
            server.lease = None
            await asyncio.sleep(60)
            assert leader.term.is_held()
            assert server.lease.annotations[elector.EPOCH_ANNOTATION] == str(FIRST)
            assert not standby.terms
