"""A receiver that is away and comes back: nothing lost, nothing twice, nothing too soon.

Ten minutes of an outage are shortened to seconds with everything that counts by them: waits,
ages, the rules of the circuit.
"""

from __future__ import annotations

import asyncio
import time

import pytest

from duepoint.runs import circuit
from duepoint.schedules import actions
from tests.support import webhookscene
from tests.support.webhookscene import FAILS, GONE, HANGS, WELL

SECOND_US = 1_000_000
RULE = circuit.CircuitRule(first_wait_us=60_000, most_wait_us=400_000)
RETRY = actions.RetryRule(
    initial_backoff_us=50_000, max_backoff_us=1_000_000, max_attempts=1000, max_age_us=60_000_000
)


@pytest.fixture
def url(shared_servers):
    return shared_servers("valkey").url


class Watched(webhookscene.Receiver):
    """Attributes:
    early: by how much requests came before they were due, in microseconds.
    """

    def __init__(self, scene, **options) -> None:
        super().__init__(**options)
        self._scene = scene
        self.early: list[int] = []

    def arrived(self, webhook_id: str) -> bytes | None:
        early_us = self._scene.due_of(webhook_id) - time.time_ns() // 1000
        if early_us > 0:
            self.early.append(early_us)
        return super().arrived(webhook_id)


def a_webhook(hears, *, timeout_seconds=5, retry=RETRY):
    return actions.WebhookAction(
        url=f"http://127.0.0.1:{hears.port}/", timeout_seconds=timeout_seconds, retry=retry
    )


async def arm(scene, hears, *, schedules=4, every="100ms", seconds=4.0, **webhook):
    start_us = time.time_ns() // 1000 + 300_000
    return [
        await scene.arm(
            f"s{number}",
            a_webhook(hears, **webhook),
            every=every,
            start_us=start_us,
            end_us=start_us + int(seconds * SECOND_US),
        )
        for number in range(schedules)
    ]


@pytest.mark.parametrize(
    ("mood", "headers"),
    [
        pytest.param(FAILS, b"", id="it fails"),
        pytest.param(FAILS, b"Retry-After: 1\r\n", id="it asks for time"),
        pytest.param(HANGS, b"", id="it hangs"),
    ],
)
async def test_after_an_outage_everything_arrives_once_in_its_time_and_within_the_limit(
    url, key_prefix, mood, headers
):
    wants = webhookscene.Wants(workers=2, per_host=3, rule=RULE)
    async with webhookscene.scene(url, key_prefix, wants) as scene:
        watched = Watched(scene, mood=WELL, seconds=0.002, headers=headers)
        async with webhookscene.receiving(watched) as hears, scene.working():
            await arm(scene, hears, timeout_seconds=1)
            await asyncio.sleep(1.0)
            hears.mood = mood
            await asyncio.sleep(2.5)
            hears.mood = WELL
            assert await hears.wait_for(len(scene.expected), 40)
            # What is about to be sent a second time has a moment to arrive.
            await asyncio.sleep(0.5)
    assert {one.webhook_id for one in hears.accepted()} == set(scene.expected)
    assert webhookscene.twice(hears.arrivals) == []
    assert hears.early == []
    assert hears.most_open <= wants.workers * wants.per_host
    assert len(scene.expected) >= 100  # fewer would prove nothing


async def test_while_it_is_away_it_is_asked_by_probes_only(url, key_prefix):
    rule = circuit.CircuitRule(first_wait_us=400_000, most_wait_us=400_000)
    wants = webhookscene.Wants(workers=2, per_host=3, rule=rule)
    async with webhookscene.scene(url, key_prefix, wants) as scene:
        watched = Watched(scene, mood=FAILS)
        async with webhookscene.receiving(watched) as hears, scene.working():
            await arm(scene, hears, seconds=3.0)
            await asyncio.sleep(1.3)
            before = len(hears.arrivals)
            await asyncio.sleep(1.6)
            assert 1 <= len(hears.arrivals) - before <= 5
            board = await scene.queue.circuits.read()
            assert [one.is_open for one in board.hosts.values()] == [True]


async def test_what_is_older_than_max_age_is_given_up_and_not_sent_any_more(url, key_prefix):
    retry = actions.RetryRule(
        initial_backoff_us=50_000, max_backoff_us=200_000, max_attempts=1000, max_age_us=1_000_000
    )
    wants = webhookscene.Wants(workers=1, per_host=3, rule=RULE)
    async with webhookscene.scene(url, key_prefix, wants) as scene:
        watched = Watched(scene, mood=FAILS)
        async with webhookscene.receiving(watched) as hears, scene.working():
            await arm(scene, hears, schedules=2, seconds=3.0, retry=retry)
            await asyncio.sleep(2.8)
            hears.mood = WELL
            async with asyncio.timeout(30):
                while True:
                    ended = {one.webhook_id for one in hears.accepted()} | await scene.dead()
                    if ended == set(scene.expected):
                        break
                    await asyncio.sleep(0.1)
    dead = ended - {one.webhook_id for one in hears.accepted()}
    assert 0 < len(dead) < len(scene.expected)
    for one in hears.accepted():
        _, slot_us = scene.expected[one.webhook_id]
        assert one.at_us - slot_us <= retry.max_age_us + 700_000  # it was begun in time
    assert hears.early == []


async def test_a_receiver_that_is_gone_is_asked_once_whatever_is_due(url, key_prefix):
    wants = webhookscene.Wants(workers=1, rule=RULE)
    async with webhookscene.scene(url, key_prefix, wants) as scene:
        watched = Watched(scene, mood=GONE)
        async with webhookscene.receiving(watched) as hears, scene.working():
            known = await arm(scene, hears, schedules=2, every="500ms", seconds=2.0)
            await asyncio.sleep(2.8)
            board = await scene.queue.circuits.read()
    assert set(board.gone) == {one.uid for one in known}
    assert len(hears.arrivals) == 2
