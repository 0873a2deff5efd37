"""A subscription that is closed: whoever closes it can be cancelled meanwhile."""

from __future__ import annotations

import asyncio

import pytest

from duepoint.delayqueue.wire.subscription import Subscription


class SlowServers:
    """Servers whose channels live nowhere; a look at them takes some turns to be broken off."""

    generation = 0

    def homes(self, _names):
        return {}

    async def refresh(self):
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            await asyncio.sleep(0)


async def test_a_cancelled_closer_is_cancelled():
    """Else a leader whose term has ended would go on to read outcomes."""
    subscription = Subscription(
        SlowServers(), ["a"], on_subscribed=lambda: None, on_message=lambda *_: None
    )
    await subscription.start()
    await asyncio.sleep(0)
    closing = asyncio.create_task(subscription.close())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing


async def test_a_listener_that_failed_is_not_closed_in_silence():
    class Failing(SlowServers):
        async def refresh(self):
            raise LookupError("a bug")

    subscription = Subscription(
        Failing(), ["a"], on_subscribed=lambda: None, on_message=lambda *_: None
    )
    await subscription.start()
    await asyncio.sleep(0)
    with pytest.raises(LookupError):
        await subscription.close()
