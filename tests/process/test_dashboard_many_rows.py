"""50,000 Schedules in the dashboard's list: few elements, and no pause that a person notices.

The pages are the real ones in a real browser; rows are made up by a small server, because what is
measured is the browser's work. Limits are wide, for machines that do other things meanwhile;
``python -m benchmarks.dashboard`` prints the figures.
"""

from __future__ import annotations

import pytest

from benchmarks import dashboard
from tests.support import browser

COUNT = 50_000
#: A list without virtual rows takes tens of seconds. On a busy machine a frame may wait long.
LONGEST_PAUSE_MS = 3_000


@pytest.fixture
async def page(tmp_path):
    async with browser.opened(tmp_path) as opened:
        await opened.look()
        yield opened
        assert opened.complaints == []


async def test_fifty_thousand_schedules_scroll_search_and_sort_without_a_pause(page):
    async with dashboard.served(COUNT) as port:
        found = await dashboard.measured(page, port, COUNT)
    assert found["elements"] < 2_000, found
    for name in ("scroll_ms", "search_ms", "sort_ms", "loading_ms"):
        assert found[name] < LONGEST_PAUSE_MS, (name, found)
