"""Receivers that fail and are nasty about it: what a bad answer may cost, and whom."""

from __future__ import annotations

import asyncio
import gzip
import time

import pytest

from duepoint.schedules.conditions import Reason
from duepoint.targets import outcome, target
from tests.support import firings, receiver, webhooktargets

FAILED = b"HTTP/1.1 500 No\r\n"
BOMB = gzip.compress(b"0" * 10**6)
CHUNKED = FAILED + b"Transfer-Encoding: chunked\r\n\r\n"


async def fire(answer, *, seconds=60.0, **changes):
    async with receiver.listening(answer) as hears, webhooktargets.a_target() as (target, _):
        action = firings.a_webhook(f"http://127.0.0.1:{hears.port}/", **changes)
        begun = time.monotonic()
        due_us = time.time_ns() // 1000
        given = await target.fire(firings.a_firing(action, seconds_left=seconds, due_us=due_us))
        return given, time.monotonic() - begun


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(receiver.repeated(CHUNKED, b"1000\r\n" + b"x" * 4096 + b"\r\n"), id="chunks"),
        pytest.param(
            receiver.repeated(FAILED + b"Content-Length: 1073741824\r\n\r\n", b"x" * 65536),
            id="a gigabyte",
        ),
        pytest.param(
            receiver.repeated(
                CHUNKED.replace(b"No\r\n", b"No\r\nContent-Encoding: gzip\r\n", 1),
                b"%x\r\n%b\r\n" % (len(BOMB), BOMB),
            ),
            id="gzip bomb",
        ),
    ],
)
async def test_an_endless_body_of_a_failure_is_a_failure_of_few_words(answer):
    given, seconds = await fire(answer)
    assert isinstance(given, outcome.Retry)
    assert given.reason is Reason.REJECTED
    assert len(given.message) <= target.EXCERPT_BYTES + 40
    assert seconds < 30


async def test_a_compressed_body_is_not_unpacked():
    packed = gzip.compress(b"the words that nobody reads")
    bad = receiver.status(500, packed, headers=(("Content-Encoding", "gzip"),))
    given, _ = await fire(bad)
    assert "words" not in given.message


@pytest.mark.parametrize(
    "smuggled",
    [
        pytest.param(
            b"HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 410 Gone\r\nContent-Length: 0\r\n\r\n",
            id="a second answer",
        ),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 410 Gone\r\n"
            b"Content-Length: 0\r\n\r\n",
            id="more than the length says",
        ),
    ],
)
async def test_what_was_not_asked_for_is_nobody_elses_answer(smuggled):
    async with (
        receiver.listening(receiver.raw(smuggled, then_close=False)) as hears,
        webhooktargets.a_target() as (target, _),
    ):
        action = firings.a_webhook(f"http://127.0.0.1:{hears.port}/")
        assert isinstance(await target.fire(firings.a_firing(action)), outcome.Delivered)
        await asyncio.sleep(0.05)  # what was smuggled has arrived
        hears.answer = receiver.status(204)
        given = await target.fire(firings.a_firing(action, slot_us=60_000_000))
        assert isinstance(given, outcome.Delivered)
        assert len(hears.requests) == 2


# -- TLS ----------------------------------------------------------------------------------------
