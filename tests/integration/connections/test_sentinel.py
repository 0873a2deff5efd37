"""Real Sentinels: the primary is asked for at each connection, and may become another one.

Every test runs with plain connections and over TLS, where Sentinels and servers show certificates.
"""

from __future__ import annotations

import asyncio

import pytest

from duepoint import errors
from duepoint.clock import SystemClock
from duepoint.delayqueue import delayqueue, messages
from duepoint.delayqueue.wire import connecting
from tests.support import fallingreplica, queueing, redisusers
from tests.support.queueing import moved
from tests.support.redisserver import EACH_KIND
from tests.support.sentinels import NAME, PASSWORD, Watched
from tests.support.tlsfiles import Authority
from tests.support.tlssentinels import TlsWatched
from tests.support.waiting import LONGEST_SECONDS

SERVER_NAME = "redis.example.com"


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path / "ca")


@pytest.fixture(params=["plain", "tls"])
def tls(request, authority):
    """How the client verifies; None = it speaks plainly."""
    if request.param == "plain":
        return None
    return connecting.TlsFiles(ca_file=authority.file, server_name=SERVER_NAME)


@pytest.fixture(params=EACH_KIND)
def watched(request, tmp_path, authority, tls):
    if tls is None:
        watched = Watched(request.param, tmp_path)
    else:
        issued = authority.issue("server", SERVER_NAME)
        watched = TlsWatched(request.param, tmp_path, authority, issued)
    try:
        watched.start()
        yield watched
    finally:
        watched.stop()


@pytest.fixture
def secret(tmp_path):
    file = tmp_path / "sentinel-password"
    file.write_text(PASSWORD + "\n")
    return file


def _queue(watched, prefix, secret=None, name=NAME, role="operator", tls=None):
    login = f"{redisusers.name(role)}:{redisusers.password(role).replace(' ', '%20')}"
    url = f"{watched.scheme}://{login}@{watched.hosts}/{name}"
    server = connecting.Server(
        url=url, sentinel_password_file=secret, tls=tls or connecting.TlsFiles()
    )
    return delayqueue.connect(url, blob_key=queueing.BLOB_KEY, prefix=prefix, server=server)


async def test_the_queue_goes_on_with_the_replica_that_was_promoted(
    watched, tls, secret, key_prefix
):
    operator = _queue(watched, key_prefix, secret, tls=tls)
    worker = _queue(watched, key_prefix, secret, role="worker", tls=tls)
    await operator.start()
    await operator.membership.open(4, queueing.EPOCH)
    await worker.start()
    await worker.layouts.read()
    harness = queueing.Harness(operator, SystemClock().now_us, asyncio.sleep)
    await harness.arm(name="kept")
    wakeups = worker.wakeups()
    await wakeups.start()
    for shard in await wakeups.wait_until_due(5.0):
        await worker.claims.claim([shard], worker="w0", lease_seconds=0.1)
    ports = [watched.port_of(server) for server in watched.servers]
    assert set(worker.health.hosts()) == {("127.0.0.1", port) for port in ports}
    before = operator.health.upheavals
    watched.servers[0].kill()
    async with asyncio.timeout(LONGEST_SECONDS):
        while True:
            try:
                claims = [
                    answer.claim
                    for answer in await worker.claims.claim(await harness.shards(), worker="w1")
                    if answer.claim
                ]
                if claims:
                    break
                for doubt in await operator.fallbacks.doubts():
                    await operator.fallbacks.end(doubt, queueing.EPOCH)  # as a leader would
            except errors.QueueUnavailable:
                pass
            await asyncio.sleep(0.1)
    (claim,) = claims
    settled = await worker.settlements.settle(
        claim, messages.Settlement(chains=(moved(claim.points[0], 3600),))
    )
    assert settled.applied == 1
    async with asyncio.timeout(LONGEST_SECONDS):
        while True:
            try:
                await operator.health.keepalive()
            except errors.QueueUnavailable:
                await asyncio.sleep(0.1)
            else:
                break
    assert operator.health.upheavals > before
    assert len(await wakeups.wait_until_due(10.0)) > 0
    await wakeups.close()
    await worker.close()
    await operator.close()


async def test_what_ran_unheard_of_by_a_replica_waits_there_and_later_slots_do_not(
    watched, tls, secret, key_prefix
):
    url = f"{watched.scheme}://{watched.hosts}/{NAME}"
    server = connecting.Server(
        url=url, sentinel_password_file=secret, tls=tls or connecting.TlsFiles()
    )
    queue = delayqueue.connect(url, blob_key=queueing.BLOB_KEY, prefix=key_prefix, server=server)
    await queue.start()
    await queue.membership.open(1, queueing.EPOCH)
    scene = fallingreplica.Scene(queueing.Harness(queue, SystemClock().now_us, asyncio.sleep))
    await scene.arm()
    primary, replica = watched.servers
    await scene.wait_until_copied(primary)
    replica.pause()
    with primary.client() as client:
        client.execute_command("CLIENT", "KILL", "TYPE", "replica")  # its socket would still fill
    await scene.run_on_the_primary()
    primary.kill()
    replica.resume()
    await scene.check_on_the_replica()
    await queue.close()


@pytest.mark.parametrize("tls", ["tls"], indirect=True)
async def test_sentinels_and_servers_prove_who_they_are(watched, tls, secret, key_prefix, tmp_path):
    others = Authority(tmp_path / "others")
    for wrong in (
        connecting.TlsFiles(ca_file=others.file, server_name=SERVER_NAME),
        connecting.TlsFiles(ca_file=tls.ca_file),
    ):
        queue = _queue(watched, key_prefix, secret, tls=wrong)
        with pytest.raises(errors.QueueUnavailable, match=r"No master found.*CERTIFICATE_VERIFY"):
            await queue.start()
        await queue.close()
    watched.present_to_clients_of_servers(others.issue("theirs", SERVER_NAME))
    queue = _queue(watched, key_prefix, secret, tls=tls)
    with pytest.raises(errors.QueueUnavailable, match="certificate verify failed"):
        await queue.start()
    await queue.close()
