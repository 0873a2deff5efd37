"""On a guarded loop nothing is connected to but by the dialler of the context."""

from __future__ import annotations

import asyncio
import socket

import aiokafka
import pytest

from duepoint.net import dialling
from tests.support import listeners


@pytest.fixture
async def thread():
    made = dialling.GuardedThread()
    yield made
    await made.close()


@pytest.fixture
async def called():
    """Ports and connections of a server that nobody may reach."""
    seen = []

    async def note(reader, _writer):
        seen.append(await reader.read(1))

    async with listeners.listening(note) as port:
        yield port, seen


async def _open_connection(port):
    await asyncio.open_connection("127.0.0.1", port)


async def _connect_a_socket(port):
    with socket.socket() as made:
        made.setblocking(False)
        await asyncio.get_running_loop().sock_connect(made, ("127.0.0.1", port))


async def _send_datagrams(port):
    await asyncio.get_running_loop().create_datagram_endpoint(
        asyncio.DatagramProtocol, remote_addr=("127.0.0.1", port)
    )


async def _open_a_unix_socket(_):
    await asyncio.open_unix_connection("/run/canary")


@pytest.mark.parametrize(
    "way", [_open_connection, _connect_a_socket, _send_datagrams, _open_a_unix_socket]
)
async def test_without_a_dialler_every_way_to_a_network_is_closed(thread, called, way):
    port, seen = called
    with pytest.raises(dialling.Blocked):
        await thread.call(way(port))
    assert seen == []


async def _started(dial):
    """A producer is started, and stopped again."""
    dialling.dial_by(dial)
    made = aiokafka.AIOKafkaProducer(bootstrap_servers="broker.example:9092")
    try:
        await made.start()
    finally:
        await made.stop()


async def test_aiokafka_asks_the_dialler_for_every_connection(thread):
    """Its first broker, by the name that was given; a release that dials elsewhere fails here."""
    asked = []

    async def dial(host, port, tls):
        asked.append((host, port, tls))
        raise dialling.Blocked("no")

    with pytest.raises(aiokafka.errors.KafkaConnectionError):
        await thread.call(_started(dial))
    assert asked == [("broker.example", 9092, False)]


def _dialling(port):
    """Every host is this port of ours."""

    async def dial(_host, _port, _tls):
        made = socket.create_connection(("127.0.0.1", port))
        made.setblocking(False)
        return made

    return dial


async def test_what_the_dialler_connects_is_what_is_spoken_over(thread):
    async def echo(reader, writer):
        writer.write(await reader.readexactly(8))
        await writer.drain()

    async with listeners.listening(echo) as port:

        async def dial(host, asked_port, tls):
            assert (host, asked_port, tls) == ("echo.example", 7, False)
            return await _dialling(port)(host, asked_port, tls)

        async def talk():
            dialling.dial_by(dial)
            reader, writer = await asyncio.create_task(asyncio.open_connection("echo.example", 7))
            writer.write(b"\0\0\0\4ping")
            answer = await reader.readexactly(8)
            writer.close()
            return answer

        assert await thread.call(talk()) == b"\0\0\0\4ping"


async def test_a_broker_that_announces_two_gigabytes_is_cut_off_before_they_are_kept(thread):
    """aiokafka reads as much as the first four bytes of an answer say."""
    cut_off = asyncio.Event()
    sent = 0

    async def flood(_, writer):
        nonlocal sent
        writer.write(b"\x7f\xff\xff\xff")
        try:
            while sent < 64 << 20:
                writer.write(bytes(1 << 16))
                await writer.drain()
                sent += 1 << 16
        except ConnectionError:
            cut_off.set()

    async with listeners.listening(flood) as port:
        with pytest.raises(aiokafka.errors.KafkaConnectionError):
            await asyncio.wait_for(thread.call(_started(_dialling(port))), 10)
        await asyncio.wait_for(cut_off.wait(), 10)
    assert sent < 8 << 20
