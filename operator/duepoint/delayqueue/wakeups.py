"""A worker's alarm clock: sleeps locally, woken early by a point put in front of the known head.

Owns the subscription to the ``wake`` channels of all shards and a table of alarms. Never a
blocking command: the server serves their time-outs at 1000/hz ms, which made wake-ups 38-83 ms
late (p50) against 0.1-0.5 ms for a local timer. A message carries the due and the server's time
of that moment, so that the clocks need not agree, and mostly whose point it is, so that its
definition is read with the claim. Leaves claiming to the worker: it names shards.
"""

from __future__ import annotations

from collections.abc import Callable

from duepoint import clock as clocks
from duepoint.delayqueue import alarms, keys, messages, sharding
from duepoint.delayqueue.wire import serverclock, subscription
from duepoint.delayqueue.wire import servers as servers_
from duepoint.schedules import points


class RedisWakeups(alarms.Alarms):
    """``port.Wakeups`` over Redis."""

    def __init__(
        self,
        *,
        servers: servers_.Servers,
        names: Callable[[messages.ShardId], keys.ShardKeys],
        layout: messages.Layout,
        clock: clocks.Clock,
        server_clock: serverclock.ServerClock,
        expect_lane: Callable[[messages.ShardId, int], None],
        expect: Callable[[messages.ShardId, points.ScheduleId, int], None],
    ) -> None:
        shards = sharding.all_shards(layout)
        super().__init__(clock, shards)
        self._servers = servers
        self._expect_lane = expect_lane
        self._expect = expect
        self._server_clock = server_clock
        self._shard_of = {names(shard).wake: shard for shard in shards}
        self._subscription = subscription.Subscription(
            servers,
            tuple(self._shard_of),
            on_subscribed=self.ring_all,
            on_message=self._on_message,
        )

    async def start(self) -> None:
        # Whoever meets another server has everybody look at it: it is in doubt up to the first
        # claim, so that what is due between its first answer and that claim has to wait.
        self._servers.on_upheaval.append(self.ring_all)
        await self._subscription.start()

    async def close(self) -> None:
        if self.ring_all in self._servers.on_upheaval:
            self._servers.on_upheaval.remove(self.ring_all)
        await self._subscription.close()

    def _on_message(self, channel: str, data: bytes) -> None:
        shard = self._shard_of[channel]
        try:
            due, lane, now, *whose = data.split(b" ")
            due_us, now_us = int(due), int(now)
            self._expect_lane(shard, int(lane))
            for schedule_id in whose:
                self._expect(shard, points.ScheduleId(bytes.fromhex(schedule_id.decode())), due_us)
        except ValueError:  # of another version: look, and see
            self.wake(shard, 0.0)
            return
        self.wake(shard, (due_us - now_us) / 1_000_000 - self._server_clock.age_seconds(now_us))
