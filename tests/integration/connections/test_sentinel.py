"""Real Sentinels: the primary is asked for at each connection, and may become another one."""

from __future__ import annotations

import asyncio

import pytest

from duepoint import errors
from duepoint.clock import SystemClock
from duepoint.delayqueue import delayqueue, messages
from duepoint.delayqueue.wire import connecting
from tests.support import queueing, redisusers
from tests.support.queueing import moved
from tests.support.redisserver import EACH_KIND
from tests.support.sentinels import NAME, PASSWORD, Watched
from tests.support.waiting import LONGEST_SECONDS


@pytest.fixture(params=EACH_KIND)
def watched(request, tmp_path):
    watched = Watched(request.param, tmp_path)
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


def _queue(watched, prefix, secret=None, name=NAME, role="operator"):
    login = f"{redisusers.name(role)}:{redisusers.password(role).replace(' ', '%20')}"
    url = f"redis+sentinel://{login}@{watched.hosts}/{name}"
    server = connecting.Server(url=url, sentinel_password_file=secret)
    return delayqueue.DelayQueue(url, blob_key=queueing.BLOB_KEY, prefix=prefix, server=server)


async def test_the_queue_goes_on_with_the_replica_that_was_promoted(watched, secret, key_prefix):
    operator = _queue(watched, key_prefix, secret)
    worker = _queue(watched, key_prefix, secret, role="worker")
    await operator.start()
    await operator.open_layout(4, queueing.EPOCH)
    await worker.start()
    await worker.layout()
    harness = queueing.Harness(operator, SystemClock().now_us, asyncio.sleep)
    await harness.arm(name="kept")
    wakeups = worker.wakeups()
    await wakeups.start()
    for shard in await wakeups.wait_until_due(5.0):
        await worker.claim([shard], worker="w0", lease_seconds=0.1)
    assert set(worker.server_hosts()) == {("127.0.0.1", one.port) for one in watched.servers}
    before = operator.upheavals
    watched.servers[0].kill()
    async with asyncio.timeout(LONGEST_SECONDS):
        while True:
            try:
                claims = [
                    answer.claim
                    for answer in await worker.claim(await harness.shards(), worker="w1")
                    if answer.claim
                ]
                if claims:
                    break
            except errors.QueueUnavailable:
                pass
            await asyncio.sleep(0.1)
    (claim,) = claims
    settled = await worker.settle(
        claim, messages.Settlement(chains=(moved(claim.points[0], 3600),))
    )
    assert settled.applied == 1
    async with asyncio.timeout(LONGEST_SECONDS):
        while True:
            try:
                await operator.keepalive()
            except errors.QueueUnavailable:
                await asyncio.sleep(0.1)
            else:
                break
    assert operator.upheavals > before
    assert len(await wakeups.wait_until_due(10.0)) > 0
    await wakeups.close()
    await worker.close()
    await operator.close()


async def test_sentinels_that_do_not_know_the_name_are_one_clear_line(watched, secret, key_prefix):
    queue = _queue(watched, key_prefix, secret, name="nobody")
    with pytest.raises(errors.QueueUnavailable, match=r"no Sentinel knows the primary.*nobody"):
        await queue.start()
    await queue.close()
    queue = _queue(watched, key_prefix)
    with pytest.raises(errors.QueueUnavailable, match=r"no Sentinel knows the primary.*"):
        await queue.start()
    await queue.close()
