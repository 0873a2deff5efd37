"""An API process that dies at a fault point; another one carries the repeated request out, once."""

from __future__ import annotations

import asyncio
import http.client
import signal

from duepoint.faults import FaultPoint
from tests.support.waiting import LONGEST_SECONDS

POINTS = (
    FaultPoint.AFTER_CALLER_KNOWN,
    FaultPoint.AFTER_RIGHTS_CHECKED,
    FaultPoint.AFTER_KEY_RECORDED,
    FaultPoint.BEFORE_MEMBERS_STORED,
    FaultPoint.AFTER_MEMBERS_STORED,
    FaultPoint.AFTER_ANSWER_RECORDED,
)


async def test_a_request_with_a_key_is_carried_out_once_wherever_its_process_dies(scene):
    made = [await _made(scene, point) for point in POINTS]
    answers = await asyncio.gather(*(_repeated(scene, point) for point in POINTS))
    assert [answer.status for answer in answers] == [201] * len(POINTS)
    held = await scene.members()
    assert sorted(held) == sorted(answer.json["id"] for answer in answers)
    assert made == [-signal.SIGKILL] * len(POINTS)


async def _made(scene, point: FaultPoint) -> int:
    """The first request, and how its process ended."""
    async with scene.another(point) as doomed:
        try:
            answer = await _post(doomed, point)
        except (http.client.HTTPException, OSError):
            return await doomed.process.wait_for_end()
    raise AssertionError(f"{point} was not hit: {answer}")


async def _repeated(scene, point: FaultPoint):
    """The same request to the other process, once that knows that the first attempt is lost."""
    async with asyncio.timeout(LONGEST_SECONDS):
        while True:
            answer = await _post(scene, point)
            if answer.status != 409:
                return answer
            assert answer.code == "IdempotencyInProgress"
            await asyncio.sleep(1)


async def _post(scene, point: FaultPoint):
    key = {"Idempotency-Key": f"key-{point}"}
    return await scene.ask("POST", f"{scene.base}/schedules", {"delay": "1h"}, headers=key)
