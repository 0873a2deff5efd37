"""Sleeping costs nothing, waking is prompt, and clocks that disagree make nobody early."""

from __future__ import annotations

import asyncio
import contextlib

from duepoint import errors
from duepoint.delayqueue.wire import subscription
from tests.support.waiting import eventually


async def test_an_idle_worker_sends_nothing_but_the_keepalive(lonely, own_server, monkeypatch):
    monkeypatch.setattr(subscription, "KEEPALIVE_SECONDS", 0.25)
    for number in range(50):
        await lonely.arm(name=f"s{number}", due_in=86_400.0)
    wakeups = await _asleep(lonely)
    ledger = lonely.queue.ledger()
    await ledger.start()
    while await ledger.wait_for_outcomes(0.1):
        pass
    await _until_subscribed(own_server, connections=2)
    async with _monitored(own_server) as commands:
        assert await wakeups.wait_until_due(1.1) == ()
    assert commands
    assert set(commands) == {"PING"}
    assert len(commands) <= 10  # two connections, four turns each, and a margin
    await wakeups.close()
    await ledger.close()


async def test_an_insert_while_the_subscriber_reconnects_is_not_missed(lonely, own_server):
    wakeups = await _asleep(lonely)
    with own_server.client() as client:
        client.client_kill_filter(_type="pubsub")
        await lonely.arm()
    async with asyncio.timeout(60):
        while not (claims := await _claims_of(lonely, await wakeups.wait_until_due(60))):
            pass
    assert len(claims) == 1
    await wakeups.close()


async def test_a_server_with_an_older_state_is_looked_at_as_soon_as_anybody_meets_it(
    lonely, own_server, monkeypatch
):
    await lonely.arm(due_in=3600.0)
    wakeups = await _asleep(lonely)
    monkeypatch.setattr(subscription, "_RECONNECT_SECONDS", (600.0, 600.0))
    monkeypatch.setattr(subscription, "_SLOWEST_RECONNECT_SECONDS", 600.0)
    _go_back(own_server)
    with contextlib.suppress(errors.QueueUnavailable):  # the connection in hand is dead
        await lonely.queue.layouts.read()
    await lonely.queue.layouts.read()
    async with asyncio.timeout(60):
        assert len(await wakeups.wait_until_due(60)) == 4
    await wakeups.close()
    assert wakeups.ring_all not in lonely.servers.changes.on_upheaval


def _go_back(server):
    with server.client() as client:
        client.save()
    server.kill()
    server.start()


async def _asleep(harness):
    """Wake-ups whose subscription stands and that know every head."""
    wakeups = harness.queue.wakeups()
    await wakeups.start()
    async with asyncio.timeout(60):
        while shards := await wakeups.wait_until_due(0.3):
            await _claims_of(harness, shards, wakeups)
    return wakeups


async def _until_subscribed(server, *, connections):
    with server.client() as client:

        async def are_subscribed() -> bool:
            return len(client.client_list(_type="pubsub")) >= connections

        await eventually(are_subscribed, f"{connections} connections are subscribed")


async def _claims_of(harness, shards, wakeups=None):
    if not shards:
        return []
    answers = await harness.queue.claims.claim(shards, worker="sleeper")
    for answer in answers if wakeups else ():
        wakeups.note(answer)
    return [answer.claim for answer in answers if answer.claim]


@contextlib.asynccontextmanager
async def _monitored(server):
    """The names of the commands that the server got meanwhile, scripts' own not counted."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"MONITOR\r\n")
    assert await reader.readline() == b"+OK\r\n"
    commands: list[str] = []

    async def read():
        while line := await reader.readline():
            where, _, rest = line.decode(errors="replace").partition("] ")
            if not where.endswith("lua"):
                commands.append(rest.split('"')[1].upper())

    reading = asyncio.create_task(read())
    yield commands
    reading.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await reading
    writer.close()
    await writer.wait_closed()
