"""Nobody's confused deputy: forbidden addresses are not dialled, however they are spelled."""

from __future__ import annotations

import socket

import pytest
import structlog

from duepoint.net import egressrules, resolving
from duepoint.schedules.conditions import Reason
from duepoint.targets import outcome
from tests.support import firings, receiver, webhooktargets

FORBIDDEN_LITERALS = [
    "127.0.0.1", "127.0.0.2", "127.255.255.254", "127.1", "127.0.1", "2130706433", "0x7f.1",
    "0x7f000001", "0x7F.0x0.0x0.0x1", "0177.0.0.1", "017700000001", "0177.0.0x0.1", "127.0.0.1.",
    "127.0.0.01", "0", "0.0.0.0", "00", "0x0", "localhost", "LOCALHOST",
    "169.254.169.254", "2852039166", "0xa9fea9fe", "0251.0376.0251.0376", "169.254.43518",
    "100.100.100.200", "168.63.129.16", "224.0.0.1", "240.0.0.1", "255.255.255.255",
    "10.0.0.1", "172.16.0.1", "192.168.0.1", "100.64.0.1", "192.0.0.192", "198.18.0.1",
    "[::1]", "[::]", "[0:0:0:0:0:0:0:1]", "[::127.0.0.1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]",
    "[0:0:0:0:0:ffff:7f00:1]", "[::ffff:0:127.0.0.1]", "[::ffff:169.254.169.254]",
    "[64:ff9b::127.0.0.1]", "[64:ff9b::a9fe:a9fe]", "[64:ff9b:1::7f00:1]", "[2002:7f00:1::]",
    "[2002:a9fe:a9fe::1]", "[2001:0:808:808::80ff:fffe]", "[2001:0:7f00:1::f7f7:f7f7]",
    "[fe80::1]", "[fec0::1]", "[ff02::1]", "[fd00:ec2::254]", "[fd12:3456::1]",
]  # fmt: skip


@pytest.mark.parametrize("host", FORBIDDEN_LITERALS)
@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_no_spelling_of_a_forbidden_address_is_dialled(scheme, host):
    async with (
        receiver.listening() as hears,
        webhooktargets.a_target(allowed=(), allow_http=True) as (target, guard),
    ):
        url = f"{scheme}://{host}:{hears.port}/"
        given = await target.fire(firings.a_firing(firings.a_webhook(url)))

        assert given.reason is Reason.BLOCKED_ADDRESS
        assert isinstance(given, outcome.Rejected)
        assert guard.opened == []
        assert hears.connections == 0


@pytest.mark.parametrize(
    "host",
    [
        "\uff11\uff12\uff17.\uff10.0.1",
        "\u2460\u2461\u2466.0.0.1",
        "127\u30020\u30020\u30021",
        "%6c%6f",
        "127.0.0.1%00",
        "[::1%25lo]",
        "",
    ],
)
async def test_hosts_that_the_schema_refuses_reach_nothing_either(host):
    async with (
        receiver.listening() as hears,
        webhooktargets.a_target(allowed=(), allow_http=True) as (target, guard),
    ):
        url = f"http://{host}:{hears.port}/"
        given = await target.fire(firings.a_firing(firings.a_webhook(url)))

        assert not isinstance(given, outcome.Delivered)
        assert guard.opened == []
        assert hears.connections == 0


async def test_a_name_that_leads_to_a_forbidden_address_is_refused():
    lookup = webhooktargets.answering(evil_example=["127.0.0.1"])
    async with (
        receiver.listening() as hears,
        webhooktargets.a_target(allowed=(), lookup=lookup) as (target, guard),
    ):
        url = f"https://evil.example:{hears.port}/"
        given = await target.fire(firings.a_firing(firings.a_webhook(url)))
        assert given.reason is Reason.BLOCKED_ADDRESS
        assert "its address is not allowed" in given.message
        assert guard.opened == []


@pytest.mark.parametrize(
    "answer",
    ["8.8.8.8 127.0.0.1", "127.0.0.1 8.8.8.8", "2606:4700::1 169.254.169.254", "8.8.8.8 ::1"],
)
async def test_one_bad_answer_spoils_the_name(answer):
    lookup = webhooktargets.answering(mixed_example=[answer])
    async with webhooktargets.a_target(allowed=(), lookup=lookup) as (target, guard):
        given = await target.fire(firings.a_firing(firings.a_webhook("https://mixed.example/")))
        assert given.reason is Reason.BLOCKED_ADDRESS
        assert guard.opened == []


async def test_a_name_that_changes_its_answer_is_judged_each_time():
    """The receiver closes each connection, so every attempt looks the name up and dials anew."""
    lookup = webhooktargets.answering(rebind_example=["127.0.0.1", "127.0.0.2"])
    closing = receiver.raw(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
    async with (
        receiver.listening(closing, host="0.0.0.0") as hears,
        webhooktargets.a_target(allowed=["127.0.0.1/32"], lookup=lookup) as (target, guard),
    ):
        firing = firings.a_firing(firings.a_webhook(f"http://rebind.example:{hears.port}/"))
        first = await target.fire(firing)
        second = await target.fire(firing)

        assert isinstance(first, outcome.Delivered)
        assert second.reason is Reason.BLOCKED_ADDRESS
        assert guard.opened == [("127.0.0.1", hears.port)]


async def test_only_the_log_says_what_a_blocked_name_resolves_to():
    lookup = webhooktargets.answering(internal_example=["10.11.12.13"])
    async with webhooktargets.a_target(allowed=(), lookup=lookup) as (target, _):
        firing = firings.a_firing(firings.a_webhook("https://internal.example/"))
        with structlog.testing.capture_logs() as logged:
            given = [await target.fire(firing) for _ in range(3)]

    for one in given:
        assert one.reason is Reason.BLOCKED_ADDRESS
        assert "internal.example may not be called" in one.message
        assert "DUEPOINT_EGRESS_ALLOWED_CIDRS" in one.message
        assert "10.11.12.13" not in one.message
    line = next(one for one in logged if one["event"] == "address denied")
    assert line["host"] == "internal.example"
    assert "10.11.12.13 is private" in line["detail"]


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
async def test_a_redirect_to_a_forbidden_address_is_not_followed(code):
    async with (
        receiver.listening() as secret,
        receiver.listening() as hears,
        webhooktargets.a_target() as (target, guard),
    ):
        there = (("Location", f"http://127.0.0.1:{secret.port}/"),)
        hears.answer = receiver.status(code, headers=there)
        url = f"http://127.0.0.1:{hears.port}/"
        given = await target.fire(firings.a_firing(firings.a_webhook(url)))
        assert isinstance(given, outcome.Rejected)
        assert given.http_status == code
        assert secret.connections == 0
        assert guard.opened == [("127.0.0.1", hears.port)]


async def test_a_public_host_over_http_is_refused_unless_allowed():
    lookup = webhooktargets.answering(public_example=["8.8.8.8"])
    async with webhooktargets.a_target(lookup=lookup) as (target, guard):
        given = await target.fire(firings.a_firing(firings.a_webhook("http://public.example/")))
        assert given.reason is Reason.BLOCKED_ADDRESS
        assert "DUEPOINT_WEBHOOK_INSECURE=http" in given.message
        assert guard.opened == []


async def test_our_own_redis_is_not_called_though_its_address_is_allowed():
    async with (
        receiver.listening() as redis,
        webhooktargets.a_target(own=[("127.0.0.1", 0)]) as (target, guard),
    ):
        found = resolving.own_servers(f"redis://:secret@127.0.0.1:{redis.port}/0")
        guard._own._servers = lambda: found
        url = f"http://127.0.0.1:{redis.port}/"
        given = await target.fire(firings.a_firing(firings.a_webhook(url)))
        assert given.reason is Reason.BLOCKED_ADDRESS
        assert "its address is not allowed" in given.message
        assert redis.connections == 0


async def test_nothing_is_sent_while_our_own_redis_was_never_found():
    """Any private address might be the one that the failed look-up would have named."""

    def lookup(host, port):
        if host == "redis.local":
            raise socket.gaierror(socket.EAI_AGAIN, "the name server does not answer")
        return ["10.1.1.1"]

    async with webhooktargets.a_target(mode="open", lookup=lookup, own=[("redis.local", 6379)]) as (
        target,
        guard,
    ):
        with structlog.testing.capture_logs() as logged:
            given = await target.fire(firings.a_firing(firings.a_webhook("https://hooks.example/")))
        assert isinstance(given, outcome.Retry)
        assert given.reason is Reason.NETWORK
        assert "redis" not in given.message
        (line,) = [one for one in logged if "looked up" in one["event"]]
        assert line["servers"] == [("redis.local", 6379)]
        assert guard.opened == []


async def test_a_node_of_our_redis_that_is_found_later_is_not_called():
    nodes = []
    async with (
        receiver.listening() as node,
        webhooktargets.a_target(own=lambda: nodes) as (target, guard),
    ):
        firing = firings.a_firing(firings.a_webhook(f"http://127.0.0.1:{node.port}/"))
        assert isinstance(await target.fire(firing), outcome.Delivered)
        nodes.append(("127.0.0.1", node.port))
        target._pool.close_idle()  # kept connections were judged when they were opened
        given = await target.fire(firing)
        assert given.reason is Reason.BLOCKED_ADDRESS
        assert "its address is not allowed" in given.message
        assert len(guard.opened) == 1


async def test_a_connection_to_a_service_never_serves_a_url_of_the_same_host():
    """Connections are kept by host and port: another namespace's URL must not find this one."""
    name = "billing.default.svc"
    lookup = webhooktargets.answering(billing_default_svc=["127.0.0.1"])
    async with receiver.listening() as hears:
        known = webhooktargets.FixedServices(
            {("default", "billing"): webhooktargets.a_service(("127.0.0.1", hears.port))}
        )
        async with webhooktargets.a_target(known=known, lookup=lookup) as (target, guard):
            service = firings.a_webhook(service=_service_ref(hears.port))
            assert isinstance(await target.fire(firings.a_firing(service)), outcome.Delivered)
            guard._policy = egressrules.EgressPolicy()  # loopback is not allowed from here on

            url = firings.a_webhook(f"http://{name}:{hears.port}/")
            given = await target.fire(firings.a_firing(url, namespace="other"))
            assert given.reason is Reason.BLOCKED_ADDRESS
            assert hears.connections == 1


def _service_ref(port):
    from duepoint.schedules import actions

    return actions.ServiceRef(name="billing", port=port)


@pytest.mark.parametrize("port", [22, 6379, 10250])
async def test_a_url_with_the_port_of_another_kind_of_server_is_not_dialled(port):
    lookup = webhooktargets.answering(public_example=["8.8.8.8"])
    async with webhooktargets.a_target(lookup=lookup, mode="open") as (target, guard):
        action = firings.a_webhook(f"https://public.example:{port}/")
        given = await target.fire(firings.a_firing(action))
    assert given.reason is Reason.BLOCKED_ADDRESS
    assert guard.opened == []
