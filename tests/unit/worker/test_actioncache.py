"""Actions in memory: bounded by bytes, a share for each namespace, and fired all the same."""

from __future__ import annotations

import functools

from duepoint import shares
from duepoint.schedules import actions
from tests.support.builders import a_definition, at
from tests.support.workplace import a_workplace

NOON = at("2026-03-01 12:00:00")


def a_large_job(number: int, size: int = 240_000) -> actions.Action:
    """Many small objects, which take most memory for their text."""
    container = {"name": f"c-{number}", "image": "busybox", "env": _environment(size // 32)}
    template = {"spec": {"template": {"spec": {"containers": [container]}}}}
    return actions.Action(target=actions.job_of(template))


@functools.cache
def _environment(variables: int) -> list[dict[str, str]]:
    return [{"name": f"V1234-{number}", "value": "x"} for number in range(variables)]


def due(name: str, namespace: str):
    return a_definition(
        "@every 10s", uid=f"{namespace}-{name}", name=name, namespace=namespace,
        created_us=NOON, not_before_us=NOON,
    )  # fmt: skip


async def test_actions_for_which_there_is_no_room_are_read_when_their_attempt_begins():
    place = await a_workplace()
    for number in range(8):
        await place.arm(due(f"l-{number}", "hostile"), a_large_job(number, 40_000))
    worker = place.a_worker()
    worker._firer._planner._actions._entries = shares.BytesCache(100_000)
    async with place.working(worker):
        await place.clock.advance(28)  # large ones have a quarter of each second
    assert len(place.target.fired) == 16
    for firing in place.target.fired:
        assert firing.action.target.opened()["spec"]
