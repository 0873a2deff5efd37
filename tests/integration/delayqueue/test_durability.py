"""What a server promises of members is read off the server itself, as it is now."""

from __future__ import annotations

import pytest

from duepoint.delayqueue import delayqueue
from duepoint.delayqueue.serverhealth import ServerDurability
from tests.support import queueing, redisusers
from tests.support.waiting import wait_until


async def promised(url: str, role: str) -> ServerDurability:
    queue = delayqueue.connect(redisusers.url_for(url, role), blob_key=queueing.BLOB_KEY)
    found = await queue.health.durability()
    await queue.close()
    return found


@pytest.mark.parametrize("role", ["operator", "worker"])
@pytest.mark.parametrize(
    ("append", "saves", "persistence", "says"),
    [
        (False, False, "none", "every member when a server restarts"),
        (False, True, "rdb", "every change since the last snapshot"),
        (True, False, "aof", "about the last second of changes"),
        (True, True, "aof+rdb", "about the last second of changes"),
    ],
)
async def test_each_kind_of_persistence_is_told_from_the_others(
    own_server, role, append, saves, persistence, says
):
    with own_server.client() as client:
        client.config_set("appendonly", "yes" if append else "no")
        wait_until(
            lambda: not client.info("persistence")["aof_rewrite_in_progress"], "the file is there"
        )
        if saves:
            client.save()
        elif append:
            client.config_resetstat()
    found = await promised(own_server.url, role)
    assert (found.persistence, found.replicas) == (persistence, 0)
    assert says in found.loss_window
    assert "there is no replica" in found.loss_window
