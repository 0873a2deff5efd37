"""Operator and worker on a cluster of six nodes, logged in as the shipped users."""

from __future__ import annotations

import asyncio
import datetime as dt

from tests.support import redisusers
from tests.support.rediscluster import RedisCluster


async def test_slots_are_delivered_before_and_after_a_primary_dies(stack, tmp_path):
    cluster = RedisCluster("valkey", tmp_path / "cluster", replicas=True)
    try:
        await asyncio.to_thread(cluster.start)
        operator, worker = (
            start(redis_url=redisusers.url_for(cluster.url, role))
            for role, start in (("operator", stack.operator), ("worker", stack.worker))
        )
        await operator.wait_until_ready()
        await worker.wait_until_ready()
        names = [f"each-second-{number}" for number in range(8)]
        for name in names:
            await stack.apply(name, {"schedule": "@every 1s", "webhook": stack.webhook()})
        for name in names:
            await stack.wait_until_ready(name)
            await stack.wait_for_deliveries(2, name)
        cluster.nodes[0].kill()
        seen = {name: len(stack.delivered(name)) for name in names}
        for name in names:
            await stack.wait_for_deliveries(seen[name] + 5, name)
        await operator.wait_until_ready()
        await worker.wait_until_ready()
        for delivery in stack.deliveries:
            assert delivery.arrived_us / 1_000_000 >= _seconds(delivery.slot)
        assert "the server was replaced" in operator.log.read_text() or (
            "a replica has become primary" in operator.log.read_text()
        )
    finally:
        cluster.stop()


def _seconds(slot):
    return dt.datetime.fromisoformat(slot).timestamp()
