"""Health and backoff, which every loop shares."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from duepoint import services


def test_a_part_that_was_never_heard_of_is_not_ready():
    health = services.Health()
    health.expect("queue")
    assert health.troubles() == {"queue": "starting"}


def test_only_a_change_is_news():
    health = services.Health()
    assert health.unwell("queue", "refused")
    assert not health.unwell("queue", "refused again")
    assert health.troubles() == {"queue": "refused again"}
    assert health.well("queue")
    assert not health.well("queue")
    assert health.troubles() == {}


def test_waits_double_up_to_the_most_and_are_never_nothing():
    waits = list(itertools.islice(services.backoff(first_seconds=1, most_seconds=8), 50))
    assert all(0.5 <= wait <= 8 for wait in waits)
    assert 0.5 <= waits[0] <= 1
    assert max(waits[5:]) > 4


async def test_a_service_that_fails_ends_what_waits_for_it():
    """A leader waited for ever for clocks that nothing compared any more, and was ready."""

    async def fail() -> None:
        raise ValueError("DENIED")

    with pytest.raises(ValueError, match="DENIED"):
        async with services.beside(fail()):
            await asyncio.Event().wait()
    assert asyncio.current_task().cancelling() == 0
