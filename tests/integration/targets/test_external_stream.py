"""Entries in another Redis: as its Secret says, healed, guarded, and safe from what it answers."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from duepoint.model.webhook import SecretRefFields
from duepoint.schedules import actions
from duepoint.schedules.conditions import Reason
from duepoint.targets import memory, outcome
from tests.support import (
    builders,
    firings,
    listeners,
    othertargets,
    redisserver,
    tlsservers,
    vaults,
)
from tests.support.tlsfiles import Authority

ACTION = actions.StreamAction(
    name="orders:ticks", connection_secret_ref=SecretRefFields(name="other-redis")
)
CANARY = "canary-4f0e9a6d8b"


@pytest.fixture
async def api():
    return await vaults.api_with()


@pytest.fixture
async def target(api):
    made = othertargets.a_stream_target(api, othertargets.a_dialler())
    yield made
    await made.close()


async def put(api, **values):
    await api.apply("secrets", vaults.a_secret("other-redis", **values))


def a_firing(action=ACTION, **changes):
    return firings.a_firing(action, **changes)


async def refused(target, reason, **changes):
    given = await target.fire(a_firing(**changes))
    assert isinstance(given, outcome.Rejected), given
    assert given.reason is reason
    return given.message


async def retried(target, reason, **changes):
    given = await target.fire(a_firing(**changes))
    assert isinstance(given, outcome.Retry), given
    assert given.reason is reason
    return given.message


# -- a server that is one --------------------------------------------------------------------------


async def test_an_entry_arrives_with_its_fields_under_the_streams_own_name(api, target, own_server):
    await put(api, url=own_server.url)
    given = await target.fire(a_firing(payload={"a": "hé"}))
    assert isinstance(given, outcome.Delivered)
    with own_server.client() as client:
        ((entry_id, fields),) = client.xrange("orders:ticks")
    assert given.message == f"entry {entry_id.decode()} in stream orders:ticks"
    assert fields[b"id"] == f"{builders.UID}-1772366400".encode()
    assert fields[b"payload"] == '{"a":"hé"}'.encode()
    assert set(fields) == {
        b"id", b"generated_at", b"schedule_id", b"payload", b"slot", b"scheduled_time",
        b"attempt", b"version", b"trigger",
    }  # fmt: skip


async def test_a_password_that_is_wrong_heals_when_the_secret_is_mended(
    api, target, own_server, monkeypatch
):
    monkeypatch.setattr(memory, "ASK_AGAIN_SECONDS", 0.0)
    with own_server.client() as client:
        client.acl_setuser(
            "writer", enabled=True, passwords=["+the right one"], keys=["*"], commands=["+xadd"]
        )
    await put(api, url=own_server.url, username="writer", password=CANARY)
    message = await retried(target, Reason.REJECTED)
    assert "username and password" in message
    assert CANARY not in message
    await put(api, url=own_server.url, username="writer", password="the right one")
    assert isinstance(await target.fire(a_firing()), outcome.Delivered)


@pytest.mark.parametrize(
    ("prepare", "reason", "final"),
    [
        (lambda client: client.set("orders:ticks", "x"), Reason.TARGET_UNAVAILABLE, True),
        (lambda client: client.config_set("maxmemory", "1"), Reason.REJECTED, False),
        (lambda client: client.replicaof("127.0.0.1", 1), Reason.REJECTED, False),
    ],
    ids=["another type", "full", "a replica"],
)
async def test_what_the_server_says_decides_whether_it_is_tried_again(
    api, target, own_server, prepare, reason, final
):
    await put(api, url=own_server.url)
    with own_server.client() as client:
        prepare(client)
    given = await target.fire(a_firing())
    assert isinstance(given, outcome.Rejected if final else outcome.Retry)
    assert given.reason is reason


@pytest.mark.parametrize("kind", redisserver.EACH_KIND)
async def test_a_server_that_asks_for_a_certificate_gets_that_of_the_secret(
    api, target, tmp_path, kind
):
    authority = Authority(tmp_path / "ca")
    issued = authority.issue("server", "127.0.0.1")
    ours = authority.issue("client", "duepoint")
    with tlsservers.tls_server(kind, tmp_path / "server", authority, issued) as server:
        server.want_certificates()
        values = {"url": f"rediss://127.0.0.1:{server.port}", "ca__crt": authority.file.read_text()}
        await put(api, **values)
        await retried(target, Reason.NETWORK)
        pair = {"tls__crt": ours.certificate.read_text(), "tls__key": ours.key.read_text()}
        await put(api, **values, **pair)
        target._external._reader.forget("default")
        assert isinstance(await target.fire(a_firing()), outcome.Delivered)


# -- the Secret ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"password": "x"}, "has no key url"),
        ({"url": "http://redis:6379"}, "is not a Redis URL"),
        ({"url": "redis://a:6379,b:6379"}, "names several servers"),
        ({"url": "redis+cluster://a:6379"}, "does not name a single server"),
        ({"url": "unix:///tmp/redis.sock"}, "does not name a single server"),
        ({"url": "redis://h:6379?ssl_cert_reqs=none"}, "unknown parameter"),
        ({"url": b"\xff\xfe"}, "is binary; write text"),
        ({"url": "redis://h\n:6379"}, "is not one line"),
        ({"url": "rediss://h", "ca__crt": "junk"}, "holds no PEM certificates"),
        ({"url": "rediss://h", "tls__crt": "junk"}, "needs tls.key beside it"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else value[:20],
)
async def test_a_secret_that_holds_no_connection_says_what_to_write(api, target, values, told):
    await put(api, **values)
    message = await retried(target, Reason.SECRET_UNAVAILABLE)
    assert told in message
    assert message.startswith("spec.stream.connectionSecretRef: ")
    found = await target.check(a_firing())
    assert (found.reason, found.message) == (Reason.SECRET_UNAVAILABLE, message)


# -- the guard -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "[::1]",
        "169.254.169.254",
        "10.0.0.7",
        "[::ffff:127.0.0.1]",
        "rebinding.example",
    ],
)
async def test_an_address_that_is_denied_is_not_connected_to(api, own_server, host):
    def lookup(name, _):
        return ("127.0.0.1",) if name == "rebinding.example" else (name.strip("[]"),)

    guard = othertargets.a_dialler(allowed=(), lookup=lookup)
    target = othertargets.a_stream_target(api, guard)
    port = own_server.url.rpartition(":")[2].partition("/")[0]
    await put(api, url=f"redis://{host}:{port}")
    with own_server.client() as client:
        before = client.info("stats")["total_connections_received"]
        assert "is not allowed" in await refused(target, Reason.BLOCKED_ADDRESS)
        assert client.info("stats")["total_connections_received"] == before


# -- a server that is none -------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def answering(answer):
    """A server that answers every request so; the URL that leads to it."""

    async with listeners.listening(answer) as port:
        yield f"redis://127.0.0.1:{port}"


def saying(text):
    async def answer(reader, writer):
        while await reader.read(65_536):
            writer.write(text)
            await writer.drain()

    return answer


async def endless(reader, writer):
    await reader.read(65_536)
    while True:
        writer.write(b"+" + b"x" * 65_536)
        await writer.drain()


async def silent(reader, _):
    await reader.read()


async def cut(reader, writer):
    await reader.read(65_536)
    writer.write(b"$10\r\nabc")
    await writer.drain()


async def dripping(reader, writer):
    await reader.read(65_536)
    while True:
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    ("answer", "reason", "final"),
    [
        (endless, Reason.NETWORK, False),
        (silent, Reason.NETWORK, False),
        (cut, Reason.NETWORK, False),
        (dripping, Reason.NETWORK, False),
        (saying(b"HTTP/1.1 400 Bad Request\r\n\r\n"), Reason.NETWORK, False),
        (saying(b"$1000000000\r\n"), Reason.NETWORK, False),
        (saying(b"*1000000000\r\n"), Reason.NETWORK, False),
        (saying(b"$-9\r\n"), Reason.NETWORK, False),
        (saying(b"\x15\x03\x01\x00\x02\x02"), Reason.NETWORK, False),
        (saying(b"-NOAUTH Authentication required.\r\n"), Reason.REJECTED, False),
        (saying(b"-LOADING Redis is loading\r\n"), Reason.REJECTED, False),
        (saying(b"-ERR unknown command 'XADD'\r\n"), Reason.REJECTED, True),
        (saying(b"-MOVED 99999 169.254.169.254:80\r\n"), Reason.BLOCKED_ADDRESS, True),
        (saying(b"-MOVED 7 nonsense\r\n"), Reason.REJECTED, False),
        (saying(b"-MOVED 7 127.0.0.1:99999\r\n"), Reason.NETWORK, False),
        (saying(b"-MOVED 7 127.0.0.1:0\r\n"), Reason.NETWORK, False),
        (saying(b"-MOVED 7 canary,canary(canary):80\r\n"), Reason.NETWORK, False),
        (saying(b"-ASK 7 127.0.0.1:1\r\n"), Reason.REJECTED, False),
        (saying(b"-" + b"x" * 100_000 + b"\r\n"), Reason.NETWORK, False),
    ],
    ids=[
        "endless line", "silent", "cut", "dripping", "http", "a huge text", "a huge list",
        "a negative text", "tls", "no auth", "loading", "no redis", "moved to metadata",
        "moved nowhere", "moved to no port", "moved to port 0", "moved to a text",
        "ask", "a long error",
    ],
)  # fmt: skip
async def test_a_hostile_server_costs_one_attempt_and_no_memory(
    api, target, monkeypatch, answer, reason, final
):
    monkeypatch.setattr(actions.StreamAction, "limit_seconds", 0.5)
    async with answering(answer) as url:
        await put(api, url=url)
        given = await asyncio.wait_for(target.fire(a_firing()), 5)
    assert isinstance(given, outcome.Rejected if final else outcome.Retry), given
    assert given.reason is reason
    assert len(given.message) < 2_000
    assert "canary" not in given.message


# -- where its Secret may go -----------------------------------------------------------------------


@pytest.mark.parametrize("send_to", [None, "", "redis.example", "127.0.0.1:1", "*.0.0.1"])
async def test_a_connection_goes_nowhere_without_its_owners_word(api, target, send_to):
    called = []

    async def note(reader, _):
        called.append(await reader.read(65_536))

    async with answering(note) as url:
        await put(api, send_to=send_to, url=url, password=CANARY)
        checked = await target.check(a_firing())
        message = await retried(target, Reason.SECRET_UNAVAILABLE)
    assert checked.reason is Reason.SECRET_UNAVAILABLE
    assert "duepoint.dev/send-to" in message
    assert "kubectl annotate" in message
    assert CANARY not in message
    assert called == []


async def test_a_node_that_the_server_names_gets_the_password_with_the_owners_word_only(
    api, target
):
    called = []

    async def note(reader, _):
        called.append(await reader.read(65_536))

    async with listeners.listening(note) as other:
        moved = saying(f"-MOVED 7 127.0.0.1:{other}\r\n".encode())
        async with answering(moved) as url:
            named = url.removeprefix("redis://")
            await put(api, send_to=named, url=url)
            message = await retried(target, Reason.SECRET_UNAVAILABLE)
    assert "a server that it names is not allowed" in message
    assert "127.0.0.1" not in message
    assert called == []
