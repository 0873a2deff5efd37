"""Event that people read, and how few of it reach the API server."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from duepoint.kube import errors, events
from tests.fakes.fakekubernetes import FakeKubernetes
from tests.unit.election import virtualtime

#: RFC 1123, as the API server checks names of Events.
NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def news(
    reason: str = "RunFailed", uid: str = "u1", namespace: str = "team", **changes: Any
) -> events.Event:
    about = events.ObjectReference(namespace=namespace, name="nightly", uid=uid)
    return events.Event(regarding=about, reason=reason, action="Run", note="exit 1", **changes)


@contextlib.asynccontextmanager
async def a_recorder(kubernetes: FakeKubernetes) -> AsyncIterator[events.Recorder]:
    recorder = events.Recorder(kubernetes, virtualtime.VirtualClock(), "operator")
    task = asyncio.create_task(recorder.run())
    try:
        yield recorder
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def writes(kubernetes: FakeKubernetes) -> list[str]:
    return [verb for verb, _path in kubernetes.requests]


@virtualtime.in_virtual_time
async def test_a_thing_that_goes_on_for_an_hour_is_told_every_five_minutes():
    kubernetes = FakeKubernetes()
    async with a_recorder(kubernetes) as recorder:
        for _ in range(3600):
            recorder.note(news())
            await asyncio.sleep(0.01)  # the first one is being posted
            recorder.note(news())
            await asyncio.sleep(0.99)
    assert writes(kubernetes) == ["POST"] * 12


@virtualtime.in_virtual_time
async def test_a_flood_is_posted_at_twenty_a_second_and_what_is_beyond_the_bound_is_dropped():
    kubernetes = FakeKubernetes()
    async with a_recorder(kubernetes) as recorder:
        for number in range(2 * events.MOST_WAITING):
            recorder.note(news(uid=f"u{number}"))
        await asyncio.sleep(2)
        assert 38 <= len(writes(kubernetes)) <= 41
        await asyncio.sleep(60)
        assert len(writes(kubernetes)) == events.MOST_WAITING


@virtualtime.in_virtual_time
async def test_a_namespace_in_which_everything_fails_leaves_room_and_turns_to_others():
    kubernetes = FakeKubernetes()
    async with a_recorder(kubernetes) as recorder:
        for number in range(2 * events.MOST_WAITING):
            recorder.note(news(uid=f"u{number}"))
        await asyncio.sleep(0.2)
        recorder.note(news(uid="theirs", namespace="quiet"))
        await asyncio.sleep(0.2)
        stored = kubernetes.all_stored("events")
        assert "quiet" in {event["metadata"]["namespace"] for event in stored}


@pytest.mark.parametrize("end", ["-", "."])
@virtualtime.in_virtual_time
async def test_the_event_of_a_long_name_has_a_name_that_the_api_server_takes(end):
    kubernetes = FakeKubernetes()
    name = f"{'a' * 199}{end}{'b' * 40}"
    about = events.ObjectReference(namespace="team", name=name, uid="u")
    async with a_recorder(kubernetes) as recorder:
        recorder.note(events.Event(regarding=about, reason="Failed", action="Run", note="x"))
        await asyncio.sleep(1)
    (event,) = kubernetes.all_stored("events")
    assert NAME.fullmatch(event["metadata"]["name"])


@virtualtime.in_virtual_time
async def test_an_api_server_that_refuses_events_stops_nothing():
    kubernetes = FakeKubernetes()
    kubernetes.fail_next(errors.Forbidden("no", is_about_rights=True), resource="events")
    async with a_recorder(kubernetes) as recorder:
        recorder.note(news())
        recorder.note(news("RunMissed", warning=True))
        await asyncio.sleep(1)
    (event,) = kubernetes.all_stored("events")
    assert (event["reason"], event["type"]) == ("RunMissed", "Warning")
