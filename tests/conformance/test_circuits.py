"""What every queue knows of receivers: the script on each server."""

from __future__ import annotations

import random

import pytest

from duepoint.delayqueue import circuits
from duepoint.delayqueue.delayqueue import DelayQueue
from tests.conformance import circuitmodel
from tests.support import queueing, redisserver

#: Short enough to be waited for.
RULE = circuits.CircuitRule(
    most_in_a_row=3,
    least_calls=8,
    window_us=600_000_000,
    first_wait_us=40_000,
    most_wait_us=150_000,
)
HOST = "team https hooks.example 443"


@pytest.fixture(params=[*redisserver.KINDS, "cluster"])
async def harness(request, shared_servers, shared_clusters, key_prefix):
    is_cluster = request.param == "cluster"
    server = shared_clusters("valkey") if is_cluster else shared_servers(request.param)
    made = await queueing.redis_harness(server.url, key_prefix)
    yield made
    await made.close()


async def tell(harness, *calls, host=HOST, rule=RULE, probe=0, ask=0, cause=""):
    """The receiver's circuit after these calls, None where nothing bad is known, and the probe."""
    news = circuits.News(host=host, calls=calls, probe_us=probe, ask_us=ask, cause=cause)
    board = await harness.queue.circuits.report([news], rule=rule)
    return board.hosts.get(host), board.probes[0]


async def opened(harness, **changes):
    known, _ = await tell(harness, -3, **changes)
    assert known.is_open
    return known


async def probe(harness, *, ask=5_000_000, **changes):
    """The probe, once the circuit gives it."""
    while True:
        known, given = await tell(harness, ask=ask, **changes)
        if given or known is None:
            return given
        board = await harness.queue.circuits.report(rule=RULE)
        await harness.pass_time(max(known.until_us, known.probe_us, 0) / 1e6 - board.now_us / 1e6)


async def test_a_receiver_that_answers_is_not_remembered(harness):
    assert await tell(harness, 50) == (None, 0)
    assert (await harness.queue.circuits.read()).hosts == {}


async def test_failures_in_a_row_open_a_circuit_whoever_tells_of_them(harness):
    known, _ = await tell(harness, -2)
    assert not known.is_open
    assert known.in_a_row == 2
    known, _ = await tell(harness, -1)
    assert known.is_open
    assert known.until_us - known.since_us == RULE.first_wait_us


async def test_an_open_circuit_says_what_its_newest_failure_was(harness):
    await tell(harness, -1, cause="answered 500")
    known, _ = await tell(harness, -1, cause="Connection refused")
    assert (known.is_open, known.cause) == (False, "Connection refused")
    known, _ = await tell(harness, -1)  # of a worker that does not say
    assert known.is_open
    assert circuits.trouble(known, RULE) == "3 failures in a row, the last: Connection refused"
    given = await probe(harness)
    known, _ = await tell(harness, -1, probe=given, cause="no answer within 5 s")
    assert circuits.trouble(known, RULE) == "3 failures in a row, the last: no answer within 5 s"
    assert (await harness.queue.circuits.read()).hosts[HOST].cause == "no answer within 5 s"


async def test_nobody_may_probe_before_its_time(harness):
    rule = circuits.CircuitRule(most_in_a_row=3)
    await opened(harness, rule=rule)
    assert (await tell(harness, ask=60_000_000, rule=rule))[1] == 0


async def test_one_at_a_time_may_probe(harness):
    await opened(harness)
    given = await probe(harness, ask=60_000_000)
    assert given
    assert (await tell(harness, ask=60_000_000))[1] == 0


async def test_a_probe_that_succeeds_closes_the_circuit(harness):
    await opened(harness)
    given = await probe(harness)
    assert await tell(harness, 1, probe=given) == (None, 0)


async def test_a_probe_that_fails_opens_it_for_twice_as_long_up_to_a_limit(harness):
    await opened(harness)
    waits = []
    for _ in range(3):
        known, _ = await tell(harness, -1, probe=await probe(harness))
        assert known.is_open
        waits.append(known.wait_us)
    assert waits == [80_000, 150_000, 150_000]


async def test_what_was_under_way_when_it_opened_changes_nothing(harness):
    before = await opened(harness)
    assert await tell(harness, 5) == (before, 0)
    assert await tell(harness, -5) == (before, 0)
    assert await tell(harness, 1, probe=12345) == (before, 0)


async def test_a_probe_that_nobody_answers_for_is_given_to_another(harness):
    await opened(harness)
    first = await probe(harness, ask=30_000)
    second = await probe(harness, ask=30_000)
    assert second > first
    known, _ = await tell(harness, 1, probe=first)
    assert known.is_open  # its time was over


async def test_a_schedule_whose_receiver_is_gone_is_known_to_all_until_it_is_taken_back(harness):
    await harness.queue.circuits.report(
        gone=[circuits.GoneReceiver(uid="a-uid", generation=7)], rule=RULE
    )
    assert (await harness.queue.circuits.read()).gone == {"a-uid": 7}
    await harness.queue.circuits.report(
        gone=[circuits.GoneReceiver(uid="a-uid", generation=0)], rule=RULE
    )
    assert (await harness.queue.circuits.read()).gone == {}


async def test_what_nobody_speaks_of_is_forgotten(harness):
    rule = circuits.CircuitRule(most_in_a_row=1, forget_us=30_000, gone_us=30_000)
    await tell(harness, -1, rule=rule)
    await harness.queue.circuits.report(
        gone=[circuits.GoneReceiver(uid="a-uid", generation=7)], rule=rule
    )
    await harness.pass_time(0.05)
    board = await harness.queue.circuits.report(rule=rule)
    assert board.hosts == {}
    assert board.gone == {}


async def test_script_and_rules_agree_about_any_calls(harness):
    dice = random.Random(20261122)
    rule = circuits.CircuitRule(most_in_a_row=6, least_calls=12, window_us=3_600_000_000)
    expected: circuits.Circuit | None = None
    for turn in range(60):
        calls = tuple(dice.choice((-3, -2, -1, 1, 1, 2, 3)) for _ in range(dice.randrange(4)))
        news = circuits.News(host=f"host {turn // 20}", calls=calls)
        if turn % 20 == 0:
            expected = None
        board = await harness.queue.circuits.report([news], rule=rule)
        expected = circuitmodel.after(expected, news, now_us=board.now_us, rule=rule)
        assert board.hosts.get(news.host) == expected


async def test_too_many_receivers_in_trouble_are_called_as_if_they_were_well(harness, monkeypatch):
    monkeypatch.setattr(circuits, "MOST_KNOWN", 3)
    for number in range(5):
        await tell(harness, -1, host=f"host {number}")
    board = await harness.queue.circuits.read()
    assert len(board.hosts) == 2  # and the version
    assert isinstance(harness.queue, DelayQueue)
