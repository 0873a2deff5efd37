"""Whoever scrapes, however often, holds up nothing that is due."""

from __future__ import annotations

import asyncio
import dataclasses

import prometheus_client
import pytest

from duepoint import probes, services
from tools.devcluster import ports


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


async def test_idle_connections_to_the_probes_leave_room_for_the_kubelet(registry, monkeypatch):
    """They were never closed: a process with 1,024 files answered no probe any more."""
    limits = dataclasses.replace(probes._LIMITS, head_seconds=1.0)
    monkeypatch.setattr(probes, "_LIMITS", limits)
    port = ports.any_free()
    health = services.Health()
    async with probes.serving(health, host="127.0.0.1", port=port, registry=registry):
        idle = [
            await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", 0))
            for _ in range(300)
        ]
        ends = [asyncio.create_task(reader.read()) for reader, _ in idle]
        async with asyncio.timeout(60):
            for path in ("healthz", "readyz", "metrics"):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(f"GET /{path} HTTP/1.0\r\n\r\n".encode())
                assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
                writer.close()
            await asyncio.gather(*ends, return_exceptions=True)  # all of them are closed
        for _, writer in idle:
            writer.close()
