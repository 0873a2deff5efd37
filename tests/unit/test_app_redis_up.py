"""Whether Redis answers, as the operator's metrics and readiness say it."""

from __future__ import annotations

import pytest

from duepoint import app, errors, services, telemetry


class Queue:
    """Tells the time, or not."""

    def __init__(self, answer):
        self.answer = answer
        self.health = self

    async def time_us(self):
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def shown():
    return telemetry.registry.get_sample_value("duepoint_redis_up")


async def test_metrics_and_readiness_of_an_operator_say_whether_redis_answers():
    health = services.Health()
    assert await app._redis_time(Queue(7), health) == 7
    assert shown() == 1
    with pytest.raises(errors.QueueUnavailable):
        await app._redis_time(Queue(errors.QueueUnavailable("away")), health)
    assert shown() == 0
    assert health.troubles() == {"redis": "away"}
    await app._redis_time(Queue(8), health)
    assert shown() == 1
    assert health.troubles() == {}
