"""Whoever scrapes, however often, holds up nothing that is due."""

from __future__ import annotations

import asyncio

import prometheus_client
import pytest

from duepoint import probes, telemetry


class Counted(prometheus_client.CollectorRegistry):
    def __init__(self) -> None:
        super().__init__()
        self.collected = 0

    def collect(self):
        self.collected += 1
        return super().collect()


@pytest.fixture
def registry():
    made = Counted()
    for number in range(50):
        prometheus_client.Gauge(f"metric_{number}", "A metric.", registry=made).set(number)
    made.collected = 0
    return made


async def test_a_flood_of_scrapes_makes_one_page_a_second(registry, monkeypatch):
    page = probes.Page(registry)
    texts = await asyncio.gather(*(page.text() for _ in range(100)))
    assert len(set(texts)) == 1
    assert registry.collected == 1
    monkeypatch.setattr(probes, "PAGE_SECONDS", -1.0)
    page = probes.Page(registry)
    await page.text()
    await page.text()
    assert registry.collected == 3


async def test_the_page_is_the_librarys_own(registry):
    expected = prometheus_client.generate_latest(registry)
    assert await probes.Page(registry).text() == expected


async def test_what_is_due_goes_between_two_metrics(registry):
    turns = 0

    async def firing():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(firing())
    await probes.Page(registry).text()
    task.cancel()
    assert turns >= 50


async def test_what_is_read_for_a_scrape_is_read_once_for_all_that_wait(registry):
    asked = 0

    async def refresh():
        nonlocal asked
        asked += 1
        await asyncio.sleep(0)

    telemetry.before_scrape.add(refresh)
    try:
        page = probes.Page(registry)
        await asyncio.gather(*(page.text() for _ in range(10)))
    finally:
        telemetry.before_scrape.discard(refresh)
    assert asked == 1
