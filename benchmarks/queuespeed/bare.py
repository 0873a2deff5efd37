"""The minimal work of any queue of this kind, as a baseline for our claim and settle.

One script takes due members by a new score, reads the record of each member and writes one of the
batch; one command acks the score's range. It has no claim ids, no leases that run out and no
second clock, so a queue built on this alone would lose points. It is the best that the server and
a Python client can do.
"""

from __future__ import annotations

import os
from typing import Any

import redis.asyncio

_AT_ONCE = 2_000
#: About as long as that of a Schedule.
_RECORD = b"r" * 150

_CLAIM = """#!lua flags=allow-oom
local now = redis.call('TIME')
now = now[1] * 1000000 + now[2]
local share = math.ceil(tonumber(ARGV[2]) / (#KEYS - 1))
local found_by_lane, records = {}, {}
for lane = 2, #KEYS do
  local found = redis.call('ZRANGE', KEYS[lane], '-inf', now, 'BYSCORE', 'LIMIT', 0, share,
    'WITHSCORES')
  if #found > 0 then
    local change, members = {}, {}
    for i = 1, #found, 2 do
      change[i], change[i + 1] = tonumber(ARGV[3]), found[i]
      members[#members + 1] = found[i]
    end
    redis.call('ZADD', KEYS[lane], unpack(change))
    found_by_lane[#found_by_lane + 1] = found
    records[#records + 1] = redis.call('HMGET', KEYS[lane] .. ':records', unpack(members))
  end
end
if #found_by_lane > 0 then
  redis.call('HSET', KEYS[1], ARGV[1], cmsgpack.pack(found_by_lane))
end
return {found_by_lane, records}
"""


class Bare:
    """Claims and acks over some sorted sets."""

    def __init__(self, client: redis.asyncio.Redis, lanes: list[str], leases: str) -> None:
        self._client = client
        self._lanes = lanes
        self._leases = leases
        self._token = 1 << 52
        self._sha = ""

    async def load(self) -> None:
        self._sha = await self._client.script_load(_CLAIM)

    async def fill(self, count: int, due_us: int) -> None:
        """Add random members of twelve bytes with records, spread evenly over the sorted sets."""
        for lane in self._lanes:
            await self._client.delete(f"{lane}:records")
            left = count // len(self._lanes)
            while left > 0:
                members = {os.urandom(12): due_us for _ in range(min(left, _AT_ONCE))}
                await self._client.zadd(lane, members)
                records: dict[Any, bytes] = dict.fromkeys(members, _RECORD)
                await self._client.hset(f"{lane}:records", mapping=records)
                left -= _AT_ONCE

    async def empty(self, batch: int, *, together: bool) -> int:
        """Claim and ack until nothing is due; return the number of points.

        Args:
            together: send the ack of a batch and the next claim in one round trip, the most that a
                client of one connection can save.
        """
        total = 0
        acks: list[tuple[str | bytes | int, ...]] = []
        while True:
            pipeline = self._client.pipeline(transaction=False)
            for ack in acks:
                pipeline.execute_command(*ack)
            if acks and not together:
                await pipeline.execute()
            self._token += 1
            record = os.urandom(12)
            pipeline.execute_command(
                "EVALSHA", self._sha, 1 + len(self._lanes), self._leases, *self._lanes,
                record, batch, self._token,
            )  # fmt: skip
            found, _ = (await pipeline.execute())[-1]
            if not found:
                return total
            total += sum(len(lane) // 2 for lane in found)
            token = self._token
            acks = [("ZREMRANGEBYSCORE", lane, token, token) for lane in self._lanes]
            acks.append(("HDEL", self._leases, record))
