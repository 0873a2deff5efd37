"""A Redis that is killed and comes back with an older state, under Jobs that history deletes."""

from __future__ import annotations

import pytest

from tests.support import fallingback, promoting
from tests.support import stack as stacks
from tests.support.sentinels import PASSWORD, Watched

SCENES = {
    "two-seconds": fallingback.Wanted(back_seconds=2),
    "ten-seconds-and-a-dead-leader": fallingback.Wanted(back_seconds=10, leader_dies=True),
    "an-hour": fallingback.Wanted(back_seconds=2, forged_seconds=3600),
}


@pytest.mark.parametrize("wanted", SCENES.values(), ids=SCENES.keys())
async def test_no_job_is_made_twice_and_no_slot_is_lost_when_redis_goes_back(stack, wanted):
    check(await fallingback.Scene(stack, wanted).run())


@pytest.mark.parametrize("leader_dies", [False, True], ids=["living-leader", "dead-leader"])
async def test_no_job_is_made_twice_and_no_slot_is_lost_when_a_lagging_replica_is_promoted(
    duepoint_plane, tmp_path, leader_dies
):
    wanted = fallingback.Wanted(back_seconds=4, after_seconds=20, leader_dies=leader_dies)
    password = tmp_path / "sentinel-password"
    password.write_text(PASSWORD)
    watched = Watched("valkey", tmp_path / "watched")
    try:
        watched.start()
        redis = promoting.UnderSentinel(watched)
        async with stacks.installed(duepoint_plane, redis, tmp_path, are_prepared=True) as stack:
            scene = promoting.PromotedScene(
                stack, wanted, watched, redis_sentinel_password_file=str(password)
            )
            check(await scene.run())
    finally:
        watched.stop()


def check(found):
    assert found.doubled == ()
    assert found.phantoms == ()
    assert found.lost == {}
    assert found.unsettled == ()
