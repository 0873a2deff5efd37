"""Servers that restart, fall silent, follow another one, are too old, or want other users."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from duepoint import errors
from duepoint.delayqueue import delayqueue
from duepoint.delayqueue.wire import connecting, nodes
from tests.support import listeners, queueing, redisusers
from tests.support.redisserver import RedisServer
from tests.support.waiting import LONGEST_SECONDS


async def test_a_restarted_server_is_an_upheaval_and_one_that_stayed_is_not(own_server, key_prefix):
    harness = await queueing.redis_harness(own_server.url, key_prefix)
    assert await harness.queue.health.keepalive() == ()
    before = harness.queue.health.upheavals
    await harness.servers.of_role("operator").drop_idle()
    assert await harness.queue.health.keepalive() == ()
    assert harness.queue.health.upheavals == before
    own_server.kill()
    own_server.start()
    assert await _missing(harness.queue) == (0,)  # it came back empty
    assert harness.queue.health.upheavals > before
    await harness.queue.membership.open(4, queueing.EPOCH)
    assert await harness.queue.health.keepalive() == ()
    await harness.close()


# -- replicas ---------------------------------------------------------------------------------


@pytest.fixture
def followed(own_server, tmp_path):
    """The server's replica."""
    folder = tmp_path / "replica"
    folder.mkdir()
    replica = RedisServer(own_server.kind, folder)
    replica.start()
    with replica.client() as client:
        client.replicaof("127.0.0.1", own_server.port)
    _wait_for_replica(own_server)
    yield replica
    replica.stop()


def _wait_for_replica(server):
    """Until it has everything that was written so far."""
    with server.client() as client:
        client.set("x", "y")
        assert client.wait(1, int(LONGEST_SECONDS * 1000)) == 1


async def test_a_replica_has_a_schedule_before_it_is_called_ready(
    followed, own_server, key_prefix, monkeypatch
):
    harness = await queueing.redis_harness(own_server.url, key_prefix)
    before = _calls(own_server, "wait")
    with monkeypatch.context() as patient:  # a replica that may take its time
        patient.setattr(nodes, "_CONFIRM_MS", 4_000)
        await harness.arm()
    assert _calls(own_server, "wait") == before + 1
    node = harness.servers.of_role("operator")
    followed.pause()
    started = asyncio.get_running_loop().time()
    await harness.arm(generation=2)
    assert asyncio.get_running_loop().time() - started >= 0.09
    assert node.unconfirmed == 1
    before = _calls(own_server, "wait")
    await harness.arm(generation=3)  # a replica that is too slow is not waited for each time
    assert _calls(own_server, "wait") == before
    followed.resume()
    await harness.close()


# -- servers that are of no use ---------------------------------------------------------------


async def test_a_server_below_7_is_one_clear_line_and_used_once_it_was_upgraded(key_prefix):
    server = _Old("6.2.14")
    async with listeners.listening(server.serve) as port:
        queue = _queue_at(port, key_prefix)
        with pytest.raises(
            errors.QueueUnavailable, match=r"the server is version 6\.2\.14; at least 7\.0"
        ) as found:
            await queue.start()
        assert "\n" not in str(found.value)
        server.version = "7.0.0"
        await queue.start()
        await queue.close()


async def test_a_password_file_is_read_again_at_each_connection(
    own_server, tmp_path, key_prefix, caplog
):
    file = tmp_path / "password"
    file.write_bytes(b"\xff no text\n")
    server = connecting.Server(
        url=own_server.url, username=redisusers.name("operator"), password_file=file
    )
    queue = delayqueue.connect(
        own_server.url, blob_key=queueing.BLOB_KEY, prefix=key_prefix, server=server
    )
    with pytest.raises(errors.QueueUnavailable, match=r"password.*not UTF-8"):
        await queue.start()
    file.write_text("not yet\n")
    with pytest.raises(errors.QueueUnavailable, match=r"(?i)invalid username-password"):
        await queue.start()
    file.write_text(redisusers.password("operator") + "\n")
    await queue.start()
    await queue.close()
    assert caplog.records == []  # the library has nothing to say either


def _calls(server, command):
    with server.client() as client:
        found = client.info("commandstats").get(f"cmdstat_{command}")
        return found["calls"] if found else 0


async def _missing(queue):
    async with asyncio.timeout(LONGEST_SECONDS):
        while True:
            with contextlib.suppress(errors.QueueUnavailable):
                return await queue.health.keepalive()


def _queue_at(port, prefix):
    url = f"redis://127.0.0.1:{port}/0"
    return delayqueue.connect(url, blob_key=queueing.BLOB_KEY, prefix=prefix)


class _Old:
    """Says that it is this version, and OK to everything else."""

    def __init__(self, version):
        self.version = version
        self.trouble = b""

    async def serve(self, reader, writer):
        while True:
            count = int((await reader.readuntil(b"\r\n"))[1:])
            words = []
            for _ in range(count):
                size = int((await reader.readuntil(b"\r\n"))[1:])
                words.append((await reader.readexactly(size + 2))[:-2])
            writer.write(self._answer(words))
            await writer.drain()

    def _answer(self, words):
        if self.trouble:
            return self.trouble
        if words[0].upper() != b"INFO":
            return b"+OK\r\n"
        text = f"redis_version:{self.version}\r\nrun_id:x\r\nrole:master\r\n".encode()
        return b"$%d\r\n%s\r\n" % (len(text), text)


# -- a server that refuses everybody from elsewhere -------------------------------------------
