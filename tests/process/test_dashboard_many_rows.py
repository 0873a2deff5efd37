"""50,000 Schedules in the dashboard's list: few elements, and no task that grows with the rows.

The pages are the real ones in a real browser; rows are made up by a small server, because what is
measured is the browser's work. The longest task of each step is compared with that for 500 rows on
the same machine, by its CPU time. On a busy machine a short task may cost more CPU than all rows do
on an idle one, so rests between slices are counted, too.
"""

from __future__ import annotations

import pytest

from tests.support import browser, manyrows

STEPS = ("load", "scroll", "search", "clear", "sort", "tick")
#: CPU that a task may have beyond that for few rows: a slice is 6 ms long, and a garbage
#: collection may fall into it. One pass over 50,000 rows in a single task has several times this.
MORE_MS = 25
LEAST_RESTS = 3


@pytest.fixture
async def page(tmp_path):
    async with browser.opened(tmp_path) as opened:
        await opened.look()
        yield opened
        assert opened.complaints == []


async def test_no_task_of_the_page_grows_with_the_number_of_schedules(page):
    few = await manyrows.measured(page, manyrows.FEW)
    many = await manyrows.measured(page, manyrows.MANY)

    assert many["elements"] < 1_000, many
    for step in STEPS:
        name = f"{step}_task_ms"
        assert many[name] < 3 * few[name] + MORE_MS, (step, few, many)
    # To order 50,000 rows takes ten slices and more; one of some length would be all of it.
    assert many["sort_rests"] >= LEAST_RESTS, many


#: A made-up order with many equal keys and some that are missing, beside the browser's own sort.
SORTED = """
import('/dashboard/slices.js').then(async ({ Slices }) => {
  const rows = Array.from({ length: 10_007 }, (_, at) => ({ key: (at * 7919) % 101 || undefined }));
  const wrong = [];
  for (const isDescending of [false, true]) {
    const sign = isDescending ? -1 : 1;
    const found = await new Slices().sorted(rows, (row) => row.key, isDescending);
    const isMissing = (row) => row.key === undefined;
    const wanted = [...rows].sort((a, b) =>
      isMissing(a) - isMissing(b) || (isMissing(a) ? 0 : sign * (a.key - b.key)));
    const isSame = found.length === wanted.length && found.every((row, at) => row === wanted[at]);
    if (!isSame) wrong.push(isDescending);
  }
  return wrong;
})
"""


async def test_rows_that_are_ordered_in_slices_are_in_order_and_equal_ones_stay(page):
    async with manyrows.served(0) as port:
        await page.open(f"http://127.0.0.1:{port}/dashboard/")
        assert await page.run(SORTED) == []
