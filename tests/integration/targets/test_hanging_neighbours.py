"""A quiet namespace beside two whose receivers hang, with real sockets, a real queue and worker."""

from __future__ import annotations

import contextlib
import time

from duepoint.schedules import actions
from tests.support import webhookscene

SECOND_US = 1_000_000
PLACES = 32
#: Each of two namespaces has as many receivers that hang as the worker has places.
HANGING = PLACES
SECONDS = 6
#: What a busy machine may add; what hangs does so for 30 s.
LATE_US = 2_000_000


async def test_quiet_webhooks_are_on_time_while_all_receivers_of_two_namespaces_hang(
    shared_servers, key_prefix
):
    wants = webhookscene.Wants(workers=1, per_host=4, concurrency=PLACES)
    url = shared_servers("valkey").url
    async with (
        webhookscene.scene(url, key_prefix, wants) as scene,
        contextlib.AsyncExitStack() as stack,
    ):
        hanging = [
            await stack.enter_async_context(
                webhookscene.receiving(webhookscene.Receiver(webhookscene.HANGS))
            )
            for _ in range(2 * HANGING)
        ]
        quiet = await stack.enter_async_context(
            webhookscene.receiving(webhookscene.Receiver(webhookscene.WELL))
        )
        start_us = (time.time_ns() // 1_000_000_000 + 2) * SECOND_US
        for number, receiver in enumerate(hanging):
            await scene.arm(
                f"hanging-{number}",
                actions.WebhookAction(url=f"http://127.0.0.1:{receiver.port}/"),
                every="1s",
                start_us=start_us,
                end_us=start_us + SECOND_US // 2,
                namespace=("hostile", "worse")[number % 2],
            )
        scene.expected.clear()
        for number in range(3):
            await scene.arm(
                f"quiet-{number}",
                actions.WebhookAction(url=f"http://127.0.0.1:{quiet.port}/"),
                every="1s",
                start_us=start_us + 2 * SECOND_US,
                end_us=start_us + (2 + SECONDS) * SECOND_US,
                namespace="quiet",
            )
        async with scene.working():
            assert await quiet.wait_for(len(scene.expected), 20)
            open_at_hostile = sum(receiver.open for receiver in hanging)
    late = [one.at_us - scene.expected[one.webhook_id][1] for one in quiet.accepted()]
    assert len(late) == len(scene.expected)
    assert max(late) < LATE_US
    assert PLACES // 2 <= open_at_hostile < PLACES  # they had their share, and no more
