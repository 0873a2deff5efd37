"""What the health of an operator says while the index cannot be opened."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

from duepoint import services, settings
from duepoint.controller.leadership import Leadership
from duepoint.kube import errors as kube_errors
from tests.fakes.fakeclock import FakeClock
from tests.fakes.fakekubernetes import FakeKubernetes
from tests.support.virtualqueue import VirtualQueue


class Term:
    epoch, inherited = 1, {}

    def annotate(self, notes):
        pass


async def test_an_api_server_that_is_away_at_the_beginning_of_a_term_is_not_called_the_queue():
    clock, health = FakeClock(), services.Health()
    api = FakeKubernetes(now_us=clock.now_us)
    for _ in range(100):
        api.fail_next(kube_errors.Unavailable("GET /api/v1/namespaces: 503"), verb="GET")
    leadership = Leadership(
        settings=settings.OperatorSettings(
            redis_url="redis://127.0.0.1",
            blob_key_file=Path("unused"),
            identity="operator-0",
            namespace="duepoint",
        ),
        api=api,
        queue=VirtualQueue(clock),
        watch=None,
        clock=clock,
        health=health,
    )
    work = asyncio.create_task(leadership.work(Term()))
    await clock.advance(1)
    try:
        troubles = health.troubles()
        assert "503" in troubles["resync"]
        assert "queue" not in troubles
    finally:
        work.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await work
