"""A subscription that is closed: its closer can be cancelled meanwhile."""

from __future__ import annotations

import asyncio

from duepoint.clock import SystemClock
from duepoint.delayqueue.wire.changes import ServerChanges
from duepoint.delayqueue.wire.subscription import Subscription


class SlowServers:
    """Servers whose channels live nowhere; a look at them takes some turns to be broken off."""

    def __init__(self):
        self.changes = ServerChanges()

    def homes(self, _names):
        return {}

    async def refresh(self):
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            await asyncio.sleep(0)


class LossyPubSub:
    """A connection whose first request may be lost, while a keepalive on it is answered."""

    def __init__(self, *, loses: bool) -> None:
        self._loses = loses
        self._answers: asyncio.Queue[dict[str, str]] = asyncio.Queue()

    async def ssubscribe(self, *channels):
        for _ in () if self._loses else channels:
            self._answers.put_nowait({"type": "ssubscribe"})

    async def ping(self):
        self._answers.put_nowait({"type": "pong"})

    async def get_message(self, timeout):  # noqa: ASYNC109 - as the library names it
        await asyncio.sleep(0)
        return None if self._answers.empty() else self._answers.get_nowait()

    async def aclose(self):
        pass


class LossyServers(SlowServers):
    """One server; the first connection to it loses what is asked."""

    is_cluster = False

    def __init__(self) -> None:
        self.changes = ServerChanges()
        self.connections: list[LossyPubSub] = []

    def homes(self, names):
        return {"home": list(names)}

    def listener(self, _home):
        return self

    def pubsub(self):
        self.connections.append(LossyPubSub(loses=not self.connections))
        return self.connections[-1]

    async def refresh(self):
        pass

    async def aclose(self, **_):
        pass


async def test_a_subscription_that_is_not_confirmed_is_asked_for_again():
    """Whoever waits would hear of nothing, though the connection answers each keepalive."""
    servers, subscribed = LossyServers(), asyncio.Event()
    subscription = Subscription(
        servers,
        ["a", "b"],
        on_subscribed=subscribed.set,
        on_message=lambda *_: None,
        clock=SystemClock(),
    )
    await subscription.start()
    async with asyncio.timeout(30):
        await subscribed.wait()
    assert len(servers.connections) == 2
    await subscription.close()
