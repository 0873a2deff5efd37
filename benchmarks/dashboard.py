"""The list of the dashboard with very many Schedules, in a real browser.

python -m benchmarks.dashboard [COUNT]    one JSON line

The pages are those of the package; rows are made up by a small server, in pages of 500 as the API
has them. Times are the longest that the page kept the browser from drawing: while loading, during a
ride from the first row to the last, after a letter typed into the search, and after a click that
orders by another column.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from aiohttp import web

from duepoint.httpapi.dashboard import files, reads
from tests.support import browser


def a_row(number: int) -> dict[str, Any]:
    health = ("ok", "ok", "ok", "failing", "suspended", "problem")[number % 6]
    row = {
        "namespace": f"team-{number % 40:03}", "name": f"nightly-report-{number:06}",
        "schedule": f"{number % 60} {number % 24} * * *", "timeZone": "Europe/Berlin",
        "next": f"2090-01-{1 + number % 28:02}T{number % 24:02}:{number % 60:02}:00Z",
        "last": f"2026-11-{1 + number % 28:02}T{number % 24:02}:{number % 60:02}:00Z",
        "result": "Failed" if health == "failing" else "Succeeded",
        "target": "webhook https://hooks.example.com", "health": health,
    }  # fmt: skip
    if health in ("failing", "problem"):
        row |= {"reason": "HTTPServerError", "message": f"answered 503 to attempt {number % 5}"}
    return row


@contextlib.asynccontextmanager
async def served(count: int) -> AsyncIterator[int]:
    """The port of a server with so many Schedules."""
    pages = files.WebFiles().by_name

    async def file(request: web.Request) -> web.Response:
        found = pages[request.match_info["name"] or files.INDEX]
        return web.Response(body=found.body, headers=dict(found.headers))

    async def whoami(_: web.Request) -> web.Response:
        return web.json_response({"user": "bench", "namespaces": [], "mayListAll": True})

    async def schedules(request: web.Request) -> web.Response:
        first = int(request.query.get("cursor") or 0)
        last = min(count, first + reads.MOST_LISTED)
        items = [a_row(number) for number in range(first, last)]
        return web.json_response({"items": items, "next": str(last) if last < count else ""})

    application = web.Application()
    application.router.add_get("/dashboard/{name:.*}", file)
    application.router.add_get("/v1/whoami", whoami)
    application.router.add_get("/v1/schedules", schedules)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


#: Notes how long each task of the page took that was longer than a frame or three.
_WATCH = """
window.tasks = [];
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) tasks.push(entry.duration);
}).observe({ type: 'longtask', buffered: true });
"""
_LONGEST = "(() => { const most = Math.max(0, ...tasks); tasks.length = 0; return most; })()"
_FRAME = "new Promise((go) => requestAnimationFrame(() => setTimeout(go)))"
_RIDE = """
(async () => {
  const box = document.querySelector('.scroller');
  for (let step = 0; step <= 120; step += 1) {
    box.scrollTop = ((box.scrollHeight - box.clientHeight) * step) / 120;
    await new Promise((go) => requestAnimationFrame(go));
  }
})()
"""


async def measured(page: browser.Page, port: int, count: int) -> dict[str, Any]:
    """Longest pauses in milliseconds, the time of loading, and how many elements there are."""
    status = "document.querySelector('.status')?.innerText"
    await page.open(f"http://127.0.0.1:{port}/dashboard/")
    await page.run(_WATCH)
    await page.until(f"{status} === '{count:,}'", seconds=120)
    loaded_ms = await page.run("performance.now()")
    found = {"schedules": count, "loaded_ms": round(loaded_ms), "loading_ms": await _pause(page)}
    await page.run(_RIDE)
    found["scroll_ms"] = await _pause(page)
    elements = "document.querySelectorAll('.rows *').length"
    found["elements"] = await page.run(elements)
    last = "[...document.querySelectorAll('.rows .row .name a')].at(-1).innerText"
    assert await page.run(last) == a_row(count - 1)["name"]
    await page.run(
        "(() => { const field = document.querySelector('#search'); field.value = '0042 503';"
        " field.dispatchEvent(new Event('input')); })()"
    )
    await page.until(f"!{status}.startsWith('{count:,}')")
    found["search_ms"] = await _pause(page)
    await page.run(
        "(() => { const field = document.querySelector('#search'); field.value = '';"
        " field.dispatchEvent(new Event('input')); })()"
    )
    await page.until(f"{status}.startsWith('{count:,}')")
    await _pause(page)
    await page.run("document.querySelectorAll('.sort')[2].click()")
    await page.until("document.querySelector('[aria-sort]').innerText === 'Next'")
    found["sort_ms"] = await _pause(page)
    return found


async def _pause(page: browser.Page) -> int:
    await page.run(_FRAME)
    await asyncio.sleep(0.3)
    return round(await page.run(_LONGEST))


async def main(count: int) -> None:
    """Print the figures."""
    with tempfile.TemporaryDirectory() as folder:
        async with browser.opened(Path(folder)) as page, served(count) as port:
            await page.look()
            print(json.dumps(await measured(page, port, count)))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 50_000))
