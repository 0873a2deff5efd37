"""Circuits of failing receivers, which all workers share, on each server."""

from __future__ import annotations

import asyncio

from duepoint.delayqueue import circuits

RULE = circuits.CircuitRule(first_wait_us=40_000, most_wait_us=150_000)
HOST = "team https hooks.example 443"


def known(harness, rule=RULE):
    return circuits.Circuits(harness.queue.index, rule)


async def probe(shared):
    """Return the circuit once its probe has been given out."""
    async with asyncio.timeout(60):
        while True:
            is_given, circuit, now_us = await shared.probe(HOST, 60.0)
            if is_given:
                return circuit
            assert circuit.until_us > now_us
            await asyncio.sleep((circuit.until_us - now_us) / 1e6)


async def test_an_open_circuit_says_why_and_stays_as_the_first_worker_opened_it(harness):
    shared = known(harness)
    await shared.open(HOST, "3 failures in a row", "answered 500")
    await shared.open(HOST, "4 failures in a row", "Connection refused")
    board = await shared.read()
    assert board.hosts[HOST].trouble == "3 failures in a row, the last: answered 500"
    assert board.hosts[HOST].until_us <= board.now_us + RULE.first_wait_us


async def test_nobody_may_probe_before_its_time_and_then_one_at_a_time(harness):
    patient = known(harness, circuits.CircuitRule())
    await patient.open(HOST, "3 failures in a row", "")
    assert not (await patient.probe(HOST, 60.0))[0]
    await patient.probed(HOST, succeeded=True)
    shared = known(harness)
    await shared.open(HOST, "3 failures in a row", "")
    assert await probe(shared)
    assert not (await shared.probe(HOST, 60.0))[0]
    await shared.probed(HOST, succeeded=None)
    assert await probe(shared)


async def test_a_probe_that_succeeds_closes_the_circuit(harness):
    shared = known(harness)
    await shared.open(HOST, "3 failures in a row", "")
    await probe(shared)
    await shared.probed(HOST, succeeded=True)
    assert (await shared.read()).hosts == {}
    assert (await shared.probe(HOST, 60.0))[:2] == (False, None)


async def test_a_probe_that_fails_opens_it_for_twice_as_long_up_to_a_limit(harness):
    shared = known(harness)
    await shared.open(HOST, "3 failures in a row", "")
    waits = []
    for _ in range(3):
        await probe(shared)
        await shared.probed(HOST, succeeded=False, cause="no answer within 5 s")
        waits.append((await shared.read()).hosts[HOST].wait_us)
    assert waits == [80_000, 150_000, 150_000]
    assert (await shared.read()).hosts[HOST].cause == "no answer within 5 s"


async def test_a_schedule_whose_receiver_is_gone_is_known_to_all_until_it_is_taken_back(harness):
    shared = known(harness)
    await shared.note_gone("a-uid", 7)
    assert (await shared.read()).gone == {"a-uid": 7}
    await shared.note_gone("a-uid", 0)
    assert (await shared.read()).gone == {}


async def test_what_nobody_speaks_of_is_forgotten(harness):
    shared = known(harness, circuits.CircuitRule(first_wait_us=0, forget_us=-1, gone_us=-1))
    await shared.open(HOST, "3 failures in a row", "")
    await shared.note_gone("a-uid", 7)
    await shared.read()
    board = await shared.read()
    assert (board.hosts, board.gone) == ({}, {})


async def test_beyond_a_number_of_receivers_further_ones_are_called_as_if_they_were_well(
    harness, monkeypatch
):
    monkeypatch.setattr(circuits, "MOST_KNOWN", 1)
    shared = known(harness)
    for host in (HOST, "another"):
        await shared.open(host, "3 failures in a row", "")
    assert list((await shared.read()).hosts) == [HOST]


def test_what_opens_a_circuit():
    def trouble(*failures, seconds_each=1):
        calls = [(number * seconds_each, failed) for number, failed in enumerate(failures)]
        return circuits.CircuitRule().trouble_of(calls)

    assert trouble(*[True] * 9) == ""
    assert trouble(False, *[True] * 10) == "10 failures in a row"
    assert trouble(*[True, False] * 10) == ""
    assert trouble(*[True, False] * 9, True, True) == "11 of its last 20 requests failed"
    assert trouble(*[True, False] * 9, True, True, seconds_each=4) == ""
