"""The age of a message: what it took longer than the quickest one."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from duepoint.delayqueue.messages import ShardId
from duepoint.delayqueue.wakeups import ServerClock, ServerClocks
from tests.fakes.fakeclock import FakeClock

BEHIND_US = 90_000_000  # the server's wall clock has nothing to do with ours


@pytest.fixture
def clock():
    return FakeClock()


async def sent(clock: FakeClock, took_seconds: float) -> int:
    server_us = clock.now_us() - BEHIND_US
    await clock.advance(took_seconds)
    return server_us


async def test_a_slow_message_is_as_old_as_it_took_longer_than_the_quickest(clock):
    server = ServerClock(clock)
    assert server.age_seconds(await sent(clock, 0.001)) == 0
    assert server.age_seconds(await sent(clock, 0.009)) == pytest.approx(0.008, abs=1e-5)


async def test_a_quicker_message_becomes_the_measure(clock):
    server = ServerClock(clock)
    server.age_seconds(await sent(clock, 0.005))
    assert server.age_seconds(await sent(clock, 0.001)) == 0
    assert server.age_seconds(await sent(clock, 0.005)) == pytest.approx(0.004, abs=1e-5)


async def test_a_measure_is_forgotten_so_that_drifting_clocks_do_no_harm(clock):
    server = ServerClock(clock)
    server.age_seconds(await sent(clock, 0.001))
    for _ in range(3):
        await clock.advance(31)
        server.age_seconds(await sent(clock, 0.004))
    assert server.age_seconds(await sent(clock, 0.004)) == pytest.approx(0, abs=1e-5)


async def test_a_server_set_back_an_hour_wakes_too_early_for_a_minute_and_never_too_late(clock):
    server = ServerClock(clock)
    server.age_seconds(await sent(clock, 0.001))
    stepped = await sent(clock, 0.001) - 3_600_000_000
    assert server.age_seconds(stepped) > 3000
    for _ in range(2):
        await clock.advance(31)
        server.age_seconds(await sent(clock, 0.001) - 3_600_000_000)
    assert server.age_seconds(await sent(clock, 0.001) - 3_600_000_000) < 0.001


async def test_an_answer_in_a_calm_moment_shows_that_all_messages_are_read_late(clock):
    server = ServerClock(clock)
    asked = clock.monotonic()
    await clock.advance(0.001)
    server_us = clock.now_us() - BEHIND_US
    await clock.advance(0.001)
    server.note_answer(server_us, asked=asked)
    assert server.age_seconds(await sent(clock, 0.008)) == pytest.approx(0.008, abs=1e-5)


async def test_an_answer_that_was_long_on_its_way_shows_nothing(clock):
    server = ServerClock(clock)
    asked = clock.monotonic()
    await clock.advance(0.001)
    server.note_answer(clock.now_us() - BEHIND_US, asked=asked)
    asked = clock.monotonic()
    await clock.advance(0.010)  # the question waited in our own loop
    server.note_answer(clock.now_us() - BEHIND_US, asked=asked)
    assert server.age_seconds(await sent(clock, 0.002)) < 0.003


class Cluster:
    """Two nodes that hold a shard each."""

    def __init__(self) -> None:
        self.changes = SimpleNamespace(generation=0)
        self.holders = {"wake-0": "ahead", "wake-1": "behind"}

    def homes(self, names):
        return {self.holders[name]: [name] for name in names}


def clocks_of(cluster: Cluster, clock: FakeClock) -> ServerClocks:
    names = lambda shard: SimpleNamespace(wake=f"wake-{shard}")  # noqa: E731
    return ServerClocks(SimpleNamespace(servers=cluster, clock=clock, shard=names))


async def test_nodes_whose_clocks_are_80_ms_apart_are_compared_each_with_itself(clock):
    clocks = clocks_of(Cluster(), clock)
    ahead, behind = ShardId(0), ShardId(1)
    for _ in range(2):
        assert clocks.of(ahead).age_seconds(await sent(clock, 0.001) + 80_000) < 0.001
        assert clocks.of(behind).age_seconds(await sent(clock, 0.001)) < 0.001
    assert clocks.of(behind).age_seconds(await sent(clock, 0.009)) == pytest.approx(0.008, abs=1e-5)


async def test_a_shard_that_moves_is_measured_by_its_new_servers_clock(clock):
    cluster = Cluster()
    clocks = clocks_of(cluster, clock)
    shard, other = ShardId(0), ShardId(1)
    assert clocks.of(shard) is clocks.of(shard) is not clocks.of(other)
    cluster.holders["wake-0"] = "behind"
    cluster.changes.generation += 1
    assert clocks.of(shard) is clocks.of(other)
