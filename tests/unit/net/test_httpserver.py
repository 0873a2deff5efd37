"""The HTTP server of ours on a loopback socket: what comes in pieces, together, late and unread."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Callable

import pytest

from duepoint import shares
from duepoint.net import httpserver
from duepoint.net.httpserver import HttpRequest, HttpResponse, Refused, ServerLimits

GET = b"GET /%d HTTP/1.1\r\nHost: x\r\n\r\n"
CHUNKED = b"PUT / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"


class Served:
    """A server, the targets that it was asked for, and the headers of the last request."""

    def __init__(self, answer: bytes, limits: ServerLimits) -> None:
        self.answer = answer
        self.targets: list[str] = []
        self.headers: dict[str, str] = {}
        self.server = httpserver.HttpServer(self.handle, self.refuse, limits)

    async def handle(self, request: HttpRequest) -> HttpResponse:
        try:
            body = await request.body.read(1_000_000)
        except Refused as cut:
            return HttpResponse(cut.status, (), str(cut).encode())
        self.targets.append(request.target)
        self.headers = dict(request.headers)
        return HttpResponse(200, (), self.answer or body)

    @staticmethod
    def refuse(status: int, message: str) -> HttpResponse:
        return HttpResponse(status, (), message.encode())

    @property
    def port(self) -> int:
        return self.server.port

    async def ask(self, *pieces: bytes) -> bytes:
        """What is said to these bytes, sent piece by piece, until the server closes."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
            async with asyncio.timeout(20):
                return await reader.read()
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


async def all_closed(served: Served) -> None:
    while served.server.connections or not served.targets:  # noqa: ASYNC110 - they end alone
        await asyncio.sleep(0.01)


Serve = Callable[..., contextlib.AbstractAsyncContextManager[Served]]


@pytest.fixture
def serve() -> Serve:
    @contextlib.asynccontextmanager
    async def serving(
        answer: bytes = b"", tls: ssl.SSLContext | None = None, **limits: float
    ) -> AsyncIterator[Served]:
        served = Served(answer, ServerLimits(**limits))  # type: ignore[arg-type]
        await served.server.start("127.0.0.1", 0, tls)
        try:
            yield served
        finally:
            await served.server.close(0.0)

    return serving


@pytest.mark.parametrize(
    "endless",
    [b"2\r\nok\r\n0\r\nX: ", b"2\r\nok\r\n2;", b"2\r\nok\r\n"],
    ids=["trailer", "extension", "chunk-size"],
)
async def test_what_frames_a_body_does_not_go_on_for_ever(serve, endless):
    """A line of 40 kB that does not end."""
    async with serve(head_bytes=4_096) as served:
        filler = b"0" if endless.endswith(b"\r\n") else b"x"
        said = await served.ask(CHUNKED + endless, filler * 300_000, filler * 300_000)
        assert said.startswith(b"HTTP/1.1 431 ")
        assert served.targets == []


async def test_a_client_that_reads_no_answers_is_given_no_more_of_them_and_cut(serve):
    """20 MB of answers to 200 requests: kernel and transport take a part of them."""
    async with serve(answer=b"x" * 100_000, answer_seconds=0.5) as served:
        with socket.create_connection(("127.0.0.1", served.port)) as connection:
            connection.sendall(b"".join(GET % number for number in range(200)))
            await all_closed(served)
        assert 1 <= len(served.targets) < 200


async def test_an_address_with_very_many_connections_keeps_no_other_from_its_own(serve):
    """Idle connections cost a tenant nothing."""
    async with serve(connections=8) as served:
        held = [await asyncio.open_connection("127.0.0.1", served.port) for _ in range(8)]
        async with asyncio.timeout(20):
            said = await asyncio.gather(*(reader.read() for reader, _ in held[6:]))
        assert all(each.startswith(b"HTTP/1.1 503 ") for each in said)
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", served.port, local_addr=("127.0.0.2", 0)
        )
        writer.write(b"GET /quiet HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        async with asyncio.timeout(20):
            assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
        for _, each in [*held, (reader, writer)]:
            each.close()
        await all_closed(served)
        assert (await served.ask(CHUNKED + b"0\r\n\r\n")).startswith(b"HTTP/1.1 200 ")


async def test_idle_connections_of_few_addresses_keep_no_other_address_out(serve):
    """Five addresses had all places between them, and the sixth got 503."""
    async with serve(connections=40) as served:
        held = []
        for last in range(2, 7):
            source = (f"127.0.0.{last}", 0)
            held += [
                await asyncio.open_connection("127.0.0.1", served.port, local_addr=source)
                for _ in range(40)
            ]
        for last in range(7, 17):
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", served.port, local_addr=(f"127.0.0.{last}", 0)
            )
            writer.write(b"GET /%d HTTP/1.1\r\nHost: x\r\n\r\n" % last)
            async with asyncio.timeout(20):
                assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
            held.append((reader, writer))
        assert len(served.targets) == 10
        for _, each in held:
            each.close()


def test_the_addresses_of_an_ipv6_network_have_one_share():
    one = shares.owner_of("2001:db8:1:2::1")
    assert shares.owner_of("2001:db8:1:2:ffff::9") == one
    assert shares.owner_of("2001:db8:1:3::1") != one
    assert shares.owner_of("::ffff:192.0.2.1") == shares.owner_of("192.0.2.1")
    assert shares.owner_of("192.0.2.2") != shares.owner_of("192.0.2.1")
    assert shares.owner_of("fe80::1%eth0") == shares.owner_of("fe80::2")


async def test_a_change_of_the_protocol_is_refused_and_its_request_not_carried_out(serve):
    async with serve() as served:
        head = b"PUT / HTTP/1.1\r\nHost: x\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n"
        said = await served.ask(head + b"Content-Length: 2\r\n\r\nok")
        assert said.startswith(b"HTTP/1.1 400 ")
        assert said.count(b"HTTP/1.1 ") == 1
        assert served.targets == []
