"""Random faults lose no slot, bring nothing back and leave nothing behind, on each server."""

from __future__ import annotations

import os

import pytest
import redis.asyncio

from duepoint.delayqueue.wire import nodes
from tests.conformance import faults
from tests.support import queueing, redisserver

#: Histories on each queue; DUEPOINT_HISTORIES=320 makes a long run of it.
HISTORIES = max(1, int(os.environ.get("DUEPOINT_HISTORIES", "6")))


@pytest.mark.parametrize("with_faults", [True, False], ids=["faults", "calm"])
@pytest.mark.parametrize("kind", redisserver.KINDS)
async def test_every_slot_is_fired_on_a_server(
    kind, shared_servers, key_prefix, with_faults, monkeypatch
):
    # A state that is put back under a process that was met a moment ago has claims made since.
    monkeypatch.setattr(nodes, "_NEWLY_MET_SECONDS", 0.0)
    server = shared_servers(kind)
    async with redis.asyncio.Redis(port=server.port, protocol=2) as client:
        for seed in range(HISTORIES):
            prefix = f"{key_prefix}{seed}:"
            harness = await queueing.redis_harness(server.url, prefix, shards=1)
            state = faults.ServerState(client, prefix)
            history = faults.History(harness, seed, with_faults=with_faults, server=state)
            await history.run()
            _judge(history, seed, with_faults)
            lanes = await harness.queue.definitions.namespaces(0)
            assert await state.leftovers(harness.server.shard(0), lanes) == {}, seed
            await harness.close()
            await client.delete(*[key async for key in client.scan_iter(match=prefix + "*")])


def _judge(history, seed, with_faults):
    assert history.lost() == [], f"lost with seed {seed}"
    assert history.again == [], f"fired again after a fallback with seed {seed}"
    assert history.ghosts == [], f"ghosts with seed {seed}"
    if not with_faults:
        assert history.doubled() == [], f"doubled with seed {seed}"
    assert sum(history.fired.values()) > faults.SLOTS
