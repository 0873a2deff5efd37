"""A Redis that is emptied again and again, under webhooks whose receiver refuses half."""

from __future__ import annotations

import pytest

from tests.support import flushing


@pytest.mark.parametrize("kills", [False, True], ids=["processes-live", "processes-are-killed"])
async def test_no_webhook_is_lost_with_an_emptied_redis_whose_receiver_refuses_half(stack, kills):
    wanted = flushing.Wanted(schedules=10, seconds=30, every_seconds=2, losses=3, kills=kills)
    found = await flushing.Scene(stack, wanted).run()
    assert found.slots == 150
    assert found.lost == ()
    assert found.late == ()
    assert found.left_open == ()
