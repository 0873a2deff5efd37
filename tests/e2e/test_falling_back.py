"""A Redis that is killed and comes back with an older state, under Jobs that history deletes."""

from __future__ import annotations

import pytest

from tests.support import fallingback

SCENES = {
    "two-seconds": fallingback.Wanted(back_seconds=2),
    "ten-seconds-and-a-dead-leader": fallingback.Wanted(back_seconds=10, leader_dies=True),
    "an-hour": fallingback.Wanted(back_seconds=2, forged_seconds=3600),
}


@pytest.mark.parametrize("wanted", SCENES.values(), ids=SCENES.keys())
async def test_no_job_is_made_twice_and_no_slot_is_lost_when_redis_goes_back(stack, wanted):
    found = await fallingback.Scene(stack, wanted).run()
    assert found.compared > 0
    assert found.doubled == ()
    assert found.phantoms == ()
    assert found.lost == {}
    assert found.unsettled == ()
