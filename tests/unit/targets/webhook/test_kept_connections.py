"""What is answered before, behind and instead of an answer, and when a connection is used again."""

from __future__ import annotations

import time

import pytest

from duepoint.schedules.conditions import Reason
from duepoint.targets import outcome
from tests.support import firings, receiver, webhooktargets

NO_CONTENT = b"HTTP/1.1 204 No Content\r\n"
HINT = b"HTTP/1.1 103 Early Hints\r\nLink: </style.css>\r\n\r\n"


async def answered(behaviour, times=1, **changes):
    """The outcomes of so many deliveries, one after the other, and the receiver."""
    async with (
        receiver.listening(behaviour) as hears,
        webhooktargets.a_target() as (target, _),
    ):
        action = firings.a_webhook(f"http://127.0.0.1:{hears.port}/", **changes)
        given = []
        for number in range(times):
            firing = firings.a_firing(action, slot_us=number * 60_000_000, seconds_left=60)
            given.append(await target.fire(firing))
        return given, hears


# -- before and behind the answer ------------------------------------------------------------------


@pytest.mark.parametrize(
    "behaviour",
    [
        pytest.param(receiver.raw(HINT * 3 + NO_CONTENT + b"\r\n"), id="early hints"),
        pytest.param(receiver.raw(NO_CONTENT + b"\r\nhello"), id="a body that may not be"),
        pytest.param(
            receiver.raw(NO_CONTENT + b"Content-Length: 5\r\n\r\nhello"),
            id="a body that may not be, with its length",
        ),
        pytest.param(
            receiver.raw(HINT + NO_CONTENT + b"\r\n\x00\xff"), id="a hint before, noise behind"
        ),
        pytest.param(
            receiver.raw(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhello, hello"),
            id="a body longer than it says",
        ),
        pytest.param(
            receiver.raw(b"HTTP/1.1 200 OK\r\nContent-Length: 2000\r\n\r\nhello"),
            id="a body shorter than it says",
        ),
        pytest.param(receiver.raw(b"HTTP/1.0 200 OK\r\n\r\nhello"), id="HTTP/1.0"),
        pytest.param(
            receiver.raw(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\nhello"),
            id="compressed, or so it says",
        ),
    ],
)
async def test_the_status_line_decides_whatever_stands_around_it(behaviour):
    (given,), _ = await answered(behaviour)
    assert isinstance(given, outcome.Delivered)


async def test_whoever_only_announces_an_answer_is_not_listened_to_for_long():
    (given,), _ = await answered(receiver.repeated(b"", HINT))
    assert isinstance(given, outcome.Retry)
    assert given.reason is Reason.NETWORK
    assert "not HTTP" in given.message


@pytest.mark.parametrize(
    "lengths",
    [
        pytest.param(b"Content-Length: 2\r\nContent-Length: 5", id="two lengths"),
        pytest.param(b"Content-Length: 2\r\nTransfer-Encoding: chunked", id="length and chunks"),
        pytest.param(b"Content-Length: abc", id="no number"),
    ],
)
async def test_an_answer_that_can_be_read_in_two_ways_is_none(lengths):
    (given,), _ = await answered(receiver.raw(b"HTTP/1.1 200 OK\r\n" + lengths + b"\r\n\r\nok"))
    assert isinstance(given, outcome.Retry)
    assert given.reason is Reason.NETWORK


# -- connections -----------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["POST", "GET"])
async def test_a_kept_connection_that_was_closed_meanwhile_costs_no_attempt(method):
    """The receiver closes each connection after its answer, and does not say so before."""
    given, hears = await answered(receiver.raw(NO_CONTENT + b"\r\n"), times=5, method=method)
    assert all(isinstance(one, outcome.Delivered) for one in given)
    assert len(hears.requests) == 5


async def test_nothing_is_sent_of_a_claim_that_ended_while_its_connection_was_made(monkeypatch):
    """The machine was suspended meanwhile: sleeps and limits do not count that."""
    async with (
        receiver.listening(receiver.raw(NO_CONTENT + b"\r\n")) as hears,
        webhooktargets.a_target() as (target, _),
    ):
        connected = target._pool._open

        async def suspended(*args, **named):
            made = await connected(*args, **named)
            late = time.clock_gettime(time.CLOCK_MONOTONIC) + 120
            monkeypatch.setattr(target._clock, "monotonic", lambda: late, raising=False)
            return made

        monkeypatch.setattr(target._pool, "_open", suspended)
        action = firings.a_webhook(f"http://127.0.0.1:{hears.port}/")
        given = await target.fire(firings.a_firing(action, seconds_left=60))
        assert isinstance(given, outcome.Retry)
        assert hears.requests == []


async def test_a_request_that_a_receiver_took_and_cut_is_sent_once_on_a_kept_connection_too():
    """Another one would be another attempt: it has its own number, and waits for its turn."""
    behaviour = receiver.in_turn(receiver.status(204), receiver.raw(b""))
    given, hears = await answered(behaviour, times=2)
    assert isinstance(given[1], outcome.Retry)
    assert given[1].reason is Reason.NETWORK
    assert (len(hears.requests), hears.connections) == (2, 1)


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"HTTP/1.0 204 No Content\r\n\r\n", id="HTTP/1.0"),
        pytest.param(NO_CONTENT + b"Connection: close\r\n\r\n", id="it says so"),
        pytest.param(b"HTTP/1.1 101 So\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n", id="upgrade"),
    ],
)
async def test_a_connection_that_is_to_be_closed_is_not_kept(answer):
    _, hears = await answered(receiver.raw(answer, then_close=False), times=2)
    assert hears.connections == 2
