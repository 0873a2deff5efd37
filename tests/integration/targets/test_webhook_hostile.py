"""Receivers that hang, drip, babble, lie or cut, and what is made of them."""

from __future__ import annotations

import asyncio
import gzip
import time

import pytest

from duepoint import tlsrules
from duepoint.schedules.conditions import Reason
from duepoint.targets import outcome
from tests.support import certificates, firings, receiver, webhooktargets

OK = b"HTTP/1.1 200 OK\r\n"
BOMB = gzip.compress(b"0" * 10**6)
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"


async def fire(answer, *, seconds=60.0, **changes):
    """What is made of a receiver that behaves so, and how long it took."""
    async with (
        receiver.listening(answer) as hears,
        webhooktargets.a_target() as (target, _),
    ):
        action = firings.a_webhook(f"http://127.0.0.1:{hears.port}/", **changes)
        begun = time.monotonic()
        due_us = time.time_ns() // 1000
        firing = firings.a_firing(action, seconds_left=seconds, due_us=due_us)
        given = await target.fire(firing)
        return given, time.monotonic() - begun


async def test_a_receiver_that_hangs_costs_the_time_limit_and_is_tried_again():
    given, seconds = await fire(receiver.hang, seconds=0.3)
    assert isinstance(given, outcome.Retry)
    assert given.reason is Reason.NETWORK
    assert 0.25 < seconds < 30


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(receiver.repeated(CHUNKED, b"1000\r\n" + b"x" * 4096 + b"\r\n"), id="chunks"),
        pytest.param(
            receiver.repeated(OK + b"Content-Length: 1073741824\r\n\r\n", b"x" * 65536),
            id="a gigabyte",
        ),
        pytest.param(receiver.repeated(OK + b"\r\n", b"x" * 65536), id="until the end of days"),
        pytest.param(
            receiver.repeated(
                CHUNKED.replace(b"OK\r\n", b"OK\r\nContent-Encoding: gzip\r\n", 1),
                b"%x\r\n%b\r\n" % (len(BOMB), BOMB),
            ),
            id="gzip bomb",
        ),
    ],
)
async def test_an_endless_body_is_a_success_that_is_not_read_to_its_end(answer):
    given, seconds = await fire(answer)
    assert isinstance(given, outcome.Delivered)
    assert seconds < 30


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(receiver.raw(OK + b"Content-Length: 100\r\n\r\nabc"), id="cut"),
        pytest.param(receiver.raw(CHUNKED + b"zz\r\nnonsense"), id="no chunk behind the headers"),
        pytest.param(
            receiver.raw(OK + b"Content-Encoding: gzip\r\nContent-Length: 4\r\n\r\nnope"),
            id="not the gzip it says",
        ),
    ],
)
async def test_a_broken_body_after_a_good_status_line_is_a_success(answer):
    given, _ = await fire(answer)
    assert isinstance(given, outcome.Delivered)


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(receiver.raw(b""), id="closed at once"),
        pytest.param(receiver.raw(b"HTTP/1.1 20"), id="cut in the status line"),
        pytest.param(receiver.raw(OK + b"X-A: b"), id="cut in the headers"),
        pytest.param(receiver.raw(b"<html>hello</html>\n\n"), id="HTTP/0.9"),
        pytest.param(receiver.raw(b"\x00\xff\xfe\x16\x03\x01" * 100 + b"\r\n\r\n"), id="noise"),
        pytest.param(receiver.raw(b"SSH-2.0-OpenSSH_9.6\r\n"), id="another protocol"),
        pytest.param(receiver.raw(b"HTTP/1.1 9999 What\r\n\r\n"), id="no such status"),
        pytest.param(receiver.raw(b"HTTP/1.1 -1 What\r\n\r\n"), id="negative status"),
        pytest.param(receiver.raw(OK + b"X: " + b"y" * 100_000 + b"\r\n\r\n"), id="long header"),
        pytest.param(receiver.raw(OK + b"X: y\r\n" * 5000 + b"\r\n"), id="many headers"),
        pytest.param(
            receiver.raw(OK + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab"),
            id="two lengths",
        ),
        pytest.param(receiver.raw(OK + b"Content-Length: -5\r\n\r\n"), id="negative length"),
    ],
)
async def test_an_answer_that_is_not_http_is_tried_again(answer):
    given, seconds = await fire(answer)
    assert isinstance(given, outcome.Retry)
    assert given.reason is Reason.NETWORK
    assert seconds < 30


async def test_a_port_nobody_listens_at_is_tried_again():
    async with receiver.listening() as hears:
        port = hears.port
    async with webhooktargets.a_target() as (target, _):
        given = await target.fire(firings.a_firing(firings.a_webhook(f"http://127.0.0.1:{port}/")))
    assert isinstance(given, outcome.Retry)
    assert given.reason is Reason.NETWORK
    assert "refused" in given.message.lower()


@pytest.mark.parametrize("code", [200, 301, 401, 410, 503])
async def test_no_text_of_the_answer_is_in_the_outcome(code):
    """It would show readers of the Schedule what its author could not ask the receiver."""
    given, _ = await fire(receiver.status(code, b"canary of the receiver"))
    assert given.http_status == code
    assert "canary" not in repr(given)


async def test_connections_to_one_receiver_are_limited():
    async with (
        receiver.listening(receiver.hang) as hears,
        webhooktargets.a_target(limit_per_host=3) as (target, _),
    ):
        action = firings.a_webhook(f"http://127.0.0.1:{hears.port}/")
        fired = (target.fire(firings.a_firing(action, seconds_left=0.4)) for _ in range(10))
        given = await asyncio.gather(*fired)
        assert all(isinstance(one, outcome.Retry) for one in given)
        assert hears.connections <= 3


async def test_cancelling_an_attempt_closes_its_connection():
    async with (
        receiver.listening(receiver.hang) as hears,
        webhooktargets.a_target() as (target, _),
    ):
        action = firings.a_webhook(f"http://127.0.0.1:{hears.port}/")
        attempt = asyncio.create_task(target.fire(firings.a_firing(action)))
        await hears.wait_until_asked()
        attempt.cancel()
        with pytest.raises(asyncio.CancelledError):
            await attempt
        hears.answer = receiver.status(204)
        assert isinstance(await target.fire(firings.a_firing(action)), outcome.Delivered)
        assert hears.connections == 2


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A certificate of our own for localhost: nobody's authority vouches for it."""
    pair = certificates.self_signed("hooks.example", "billing.default.svc")
    serving = pair.serving(tmp_path_factory.mktemp("tls"))
    return serving, tlsrules.client_context(cadata=pair.certificate.decode())


LOOKUP = {"hooks_example": ["127.0.0.1"], "other_example": ["127.0.0.1"]}


async def test_a_certificate_that_nobody_vouches_for_is_told_and_nothing_is_sent(certificate):
    serving, _ = certificate
    async with (
        receiver.listening(tls=serving) as hears,
        webhooktargets.a_target(lookup=webhooktargets.answering(**LOOKUP)) as (target, _),
    ):
        action = firings.a_webhook(f"https://hooks.example:{hears.port}/")
        given = await target.fire(firings.a_firing(action))
        assert isinstance(given, outcome.Retry)
        assert given.reason is Reason.NETWORK
        assert "certificate is refused: self-signed" in given.message
        assert hears.requests == []


async def test_a_certificate_for_another_name_is_refused(certificate):
    serving, trusting = certificate
    async with (
        receiver.listening(tls=serving) as hears,
        webhooktargets.a_target(lookup=webhooktargets.answering(**LOOKUP), tls=trusting) as (
            target,
            _,
        ),
    ):
        right = firings.a_webhook(f"https://hooks.example:{hears.port}/")
        wrong = firings.a_webhook(f"https://other.example:{hears.port}/")
        assert isinstance(await target.fire(firings.a_firing(right)), outcome.Delivered)
        given = await target.fire(firings.a_firing(wrong))
        assert "certificate is refused" in given.message
        assert len(hears.requests) == 1


async def test_the_certificate_of_a_service_carries_the_services_name(certificate):
    from duepoint.schedules import actions

    serving, trusting = certificate
    async with receiver.listening(tls=serving) as hears:
        known = webhooktargets.FixedServices(
            {
                ("default", "billing"): webhooktargets.a_service(("127.0.0.1", hears.port)),
                ("default", "other"): webhooktargets.a_service(
                    ("127.0.0.1", hears.port), name="other"
                ),
            }
        )
        async with webhooktargets.a_target(known=known, tls=trusting) as (target, _):
            right, wrong = (
                firings.a_webhook(service=actions.ServiceRef(name=name, port=443, scheme="https"))
                for name in ("billing", "other")
            )
            assert isinstance(await target.fire(firings.a_firing(right)), outcome.Delivered)
            given = await target.fire(firings.a_firing(wrong))
            assert "certificate is refused" in given.message
