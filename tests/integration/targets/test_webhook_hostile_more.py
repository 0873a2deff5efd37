"""Receivers that fail and are nasty about it: what a bad answer may cost, and whom."""

from __future__ import annotations

import asyncio
import gzip
import ssl
import time
import warnings

import pytest

from duepoint import tlsrules
from duepoint.runs import outcome
from duepoint.schedules.conditions import Reason
from duepoint.targets import target
from tests.support import certificates, firings, receiver, webhooktargets

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
    ("head", "piece"),
    [
        pytest.param(b"", b"H", id="the status line"),
        pytest.param(b"HTTP/1.1 200 OK\r\nX: ", b"y", id="a header"),
        pytest.param(b"HTTP/1.1 100 Continue\r\n", b"X: y\r\n", id="an interim answer"),
    ],
)
async def test_an_answer_that_drips_before_its_body_ends_with_the_time_limit(head, piece):
    given, seconds = await fire(receiver.repeated(head, piece, pause_seconds=0.02), seconds=0.4)
    assert isinstance(given, outcome.Retry)
    assert seconds < 30


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


@pytest.mark.parametrize(
    ("text", "wanted_us"),
    [
        ("0", 1_000_000),
        ("-5", None),
        ("abc", None),
        ("", None),
        ("1e3", None),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 1_000_000),
        ("99999999999999999999999", "the last moment"),
        ("31536000", "the last moment"),
        ("Fri, 31 Dec 2099 23:59:59 GMT", "the last moment"),
        ("Fri, 31 Dec 99999 23:59:59 GMT", None),
        ("7\t", 7_000_000),
    ],
)
@pytest.mark.parametrize("status", [429, 503])
async def test_a_wish_to_be_left_alone_is_obeyed_within_bounds(status, text, wanted_us):
    given, _ = await fire(receiver.status(status, headers=(("Retry-After", text),)))
    assert isinstance(given, outcome.Retry)
    if wanted_us == "the last moment":
        day_us = 86_400_000_000
        assert day_us - 10_000_000 < given.after_us < day_us
    else:
        assert given.after_us == wanted_us


# -- TLS ----------------------------------------------------------------------------------------


@pytest.fixture
def trusting():
    return tlsrules.client_context(cadata=certificates.authority().pem.decode())


async def asked_over_tls(serving, trusting):
    lookup = webhooktargets.answering(hooks_example=["127.0.0.1"])
    async with (
        receiver.listening(tls=serving) as hears,
        webhooktargets.a_target(lookup=lookup, tls=trusting) as (target, _),
    ):
        action = firings.a_webhook(f"https://hooks.example:{hears.port}/")
        return await target.fire(firings.a_firing(action)), hears.requests


async def test_an_expired_certificate_is_refused_before_anything_is_sent(tmp_path, trusting):
    serving = certificates.authority().signs("hooks.example", expired=True).serving(tmp_path)
    given, requests = await asked_over_tls(serving, trusting)
    assert isinstance(given, outcome.Retry)
    assert "expired" in given.message
    assert requests == []


async def test_tls_before_1_2_is_refused(tmp_path, trusting):
    serving = certificates.authority().signs("hooks.example").serving(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        serving.minimum_version = ssl.TLSVersion.TLSv1
        serving.maximum_version = ssl.TLSVersion.TLSv1_1
    serving.set_ciphers("ALL:@SECLEVEL=0")
    given, requests = await asked_over_tls(serving, trusting)
    assert isinstance(given, outcome.Retry)
    assert given.reason is Reason.NETWORK
    assert requests == []
