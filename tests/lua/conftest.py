"""One shard of an index, and its scripts called one by one."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import pytest

from duepoint.delayqueue import delayqueue, keys, messages
from duepoint.delayqueue.wire import scripting
from tests.support import queueing, serverclient

SHARD = messages.ShardId(0)
TIME_ARGUMENTS = {"due_delay": 0, "expiry_delay": 0}
FAR_US = 4_000_000_000_000_000


@dataclasses.dataclass
class Bench:
    """The scripts of one shard on one server."""

    harness: queueing.Harness
    names: keys.ShardKeys
    lane: int = 1

    @property
    def queue(self) -> delayqueue.DelayQueue:
        return self.harness.queue

    @property
    def server(self) -> serverclient.ServerClient:
        return self.harness.server

    @property
    def client(self) -> Any:
        return self.server.redis

    async def run(self, call: scripting.ScriptCall) -> Any:
        return await self.server.run(call)

    def call(self, name: str, *keys: str, **named: Any) -> scripting.ScriptCall:
        return self.queue.index.call(name, SHARD, *keys, epoch=queueing.EPOCH, **named)

    # -- each script, with its usual arguments ---------------------------------------------------

    async def put(self, member: bytes, due: float) -> None:
        """A point, as if it had been armed."""
        await self.client.zadd(self.names.lane(self.lane), {b"": float("inf"), member: due})
        await self.client.zadd(self.names.heads, {str(self.lane): due}, lt=True)

    async def claim(
        self,
        claim_id: bytes | None = None,
        *,
        lease: int = 10_000_000,
        batch: int = 500,
        cap: int = FAR_US,
        lanes: list[int] | None = None,
        server: str = "",
        mark: int = 0,
        **named: Any,
    ) -> list[Any]:
        lanes = [self.lane] if lanes is None else lanes
        call = self.call(
            "claim", *map(self.names.lane, lanes),
            id=claim_id or os.urandom(12), worker="w", lease=lease, cap=cap, batch=batch,
            lanes=[str(n) for n in lanes], mark=mark, ran=self.names.ran,
            **{**TIME_ARGUMENTS, **named},
        )  # fmt: skip
        call.run([server])
        return await self.run(call)

    async def settle(
        self,
        claim_id: bytes,
        *,
        moved: tuple[tuple[str, bytes], ...] = (),
        finished: tuple[bytes, ...] = (),
        occurrences: tuple[bytes | str, ...] = (),
        sources: tuple[bytes, ...] = (),
        records: tuple[bytes, ...] = (),
        whole: int = 0,
        number: int = 1,
        outcomes: tuple[bytes, ...] = (),
    ) -> list[Any]:
        call = self.call(
            "settle",
            self.names.lane(self.lane),
            id=claim_id,
            number=number,
            runs_bytes=16_000_000,
            runs_age=86_400_000,
            dead=[],
            ended=[],
            counted=[],
            retried=[],
        )
        lane = {
            "lane": str(self.lane),
            "key": len(scripting.fixed_keys("settle")) + 1,
            "whole": whole,
            "moved": [(due, call.position(members)) for due, members in moved],
            "finished": call.run(finished),
            "occurrences": call.run(occurrences),
            "sources": call.run(sources or (b"",) * (len(occurrences) // 2)),
        }
        call.put(lanes=[lane], records=call.run(records), outcomes=call.run(outcomes))
        reply = await self.run(call)
        return reply[:3]  # what was buried is never something here

    async def plan(self, claim_id: bytes, *, chain: bytes, slot: bytes, due: int) -> list[Any]:
        call = self.call(
            "plan",
            self.names.lane(self.lane),
            id=claim_id,
            runs_bytes=16_000_000,
            runs_age=86_400_000,
            lanes=[{"lane": str(self.lane), "key": 10}],
        )
        plan = {
            "key": 10,
            "chain": call.position(chain),
            "slots": call.run([slot, b"record"]),
            "due": due,
        }
        call.put(plans=[plan], outcomes=call.run([]))
        return await self.run(call)

    async def extend(self, claim_id: bytes, lease: int) -> list[Any]:
        lane = self.names.lane(self.lane)
        call = self.call("extend", lane, id=claim_id, lease=lease, latest=600_000_000)
        return await self.run(call)

    async def intern(self, *texts: str) -> list[Any]:
        call = self.call("intern")
        call.put(texts=call.run(texts))
        return await self.run(call)

    async def scores(self) -> dict[bytes, float]:
        found = await self.client.zrange(self.names.lane(self.lane), 0, -1, withscores=True)
        return {member: score for member, score in found if member}

    async def head(self) -> float | None:
        return await self.client.zscore(self.names.heads, str(self.lane))


@pytest.fixture
async def bench(redis_server, key_prefix):
    harness = await queueing.redis_harness(redis_server.url, key_prefix, shards=1)
    yield Bench(harness, harness.server.shard(SHARD))
    await harness.close()


@pytest.fixture
async def lonely_bench(own_server, key_prefix):
    """On a server of its own, whose users the test may change."""
    harness = await queueing.redis_harness(own_server.url, key_prefix, shards=1)
    yield Bench(harness, harness.server.shard(SHARD))
    await harness.close()
