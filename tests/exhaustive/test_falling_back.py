"""Every product of what matters after a fallback; the unit tests let each two values meet."""

from __future__ import annotations

import pytest

from tests.unit.controller.test_falling_back import WINDOWS, fall_back_and_go_on


@pytest.mark.parametrize("policy", ["None", "Latest", "All"])
@pytest.mark.parametrize("limit", [0, 1], ids=["no-history", "one-job"])
@pytest.mark.parametrize(("seconds", "every"), WINDOWS.values(), ids=WINDOWS)
@pytest.mark.parametrize("leader", ["living", "dead"])
async def test_no_job_is_made_twice_or_lost_or_missed_after_a_fallback(
    policy, limit, seconds, every, leader
):
    await fall_back_and_go_on(policy, limit, seconds, every, leader)
