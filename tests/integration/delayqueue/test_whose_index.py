"""Two clusters with the same address of Redis, and a Redis that is emptied beneath them."""

from __future__ import annotations

import asyncio

import pytest

from duepoint.clock import SystemClock
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import layouts, messages
from tests.support import queueing
from tests.support.queueing import EPOCH, moved

OURS = layouts.Owner(cluster="uid-of-ours", home="uid-of-our-namespace")
THEIRS = layouts.Owner(cluster="uid-of-theirs", home="uid-of-their-namespace")


@pytest.fixture
async def clusters(own_server, key_prefix):
    """An operator's queue of each cluster; ours has made the index."""
    queues = [queueing.a_queue(own_server.url, key_prefix) for _ in range(2)]
    harnesses = [queueing.Harness(one, SystemClock().now_us, asyncio.sleep) for one in queues]
    for queue, owner in zip(queues, (OURS, THEIRS), strict=True):
        queue.layouts.belong_to(owner)
        await queue.start()
    await queues[0].membership.open(4, EPOCH, by="ours/operator")
    yield harnesses
    for queue in queues:
        await queue.close()


async def test_whoever_makes_an_emptied_index_first_keeps_it_from_the_other(clusters, own_server):
    """The other one goes on with what it knew: it must neither remove, nor claim, nor settle."""
    ours, theirs = clusters
    await ours.arm(name="of-ours")
    (claim,) = await ours.claim_all()
    with own_server.client() as client:
        client.flushall()
    await theirs.queue.membership.open(4, EPOCH, by="theirs/operator")
    await theirs.arm(name="of-theirs", due_in=3_600)
    known, later = ours.definition(name="of-theirs"), messages.Epoch(EPOCH + 1)
    settlement = messages.Settlement(chains=(moved(claim.points[0], 60),))
    for refused in (
        ours.arm(name="of-ours"),
        ours.look(),
        ours.queue.settlements.settle(claim, settlement),
        ours.queue.writer.remove(known.id, known.uid, known.namespace, later),
        ours.queue.membership.open(4, later, by="ours/operator"),
    ):
        with pytest.raises((queue_errors.Foreign, queue_errors.LayoutChanged)):
            await refused
    assert (await theirs.total()).points == 1
    assert await theirs.arm(name="another") is messages.Armed.APPLIED  # no term of ours was noted


async def test_an_operator_that_starts_again_goes_on_with_its_index(clusters):
    ours, _ = clusters
    await ours.arm()
    ours.queue.layouts.belong_to(OURS)  # as a new process, which has read nothing yet
    await ours.queue.membership.open(4, messages.Epoch(EPOCH + 1), by="ours/operator")
    assert (await ours.total()).points == 1
