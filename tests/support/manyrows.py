"""The list of the dashboard with very many Schedules, in a real browser.

The pages are those of the package; rows are made up by a small server, in pages of 500 as the API
has them. The steps: loading, a ride from the first row to the last, a word typed into the search
and taken back, a click that orders by another column, and the renewal of the distances to now. Of
each the figures have the longest task of the page: ``_task_ms`` its CPU time, which does not depend
on what else the machine does, and ``_pause_ms`` its time by the clock, 0 where none took 50 ms.
Between two tasks the browser draws frames and takes clicks and keys; ``_rests`` is how often the
page let it, between two slices of its work.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

from aiohttp import web

from duepoint.httpapi.dashboard import files, reads
from tests.support import browser

FEW = 500
MANY = 50_000


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
        row |= {"reason": "RetriesExhausted", "message": f"answered 503 to attempt {number % 5}"}
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

    async def no_sets(_: web.Request) -> web.Response:
        return web.json_response({"items": [], "next": ""})

    application = web.Application()
    application.router.add_get("/dashboard/{name:.*}", file)
    application.router.add_get("/v1/whoami", whoami)
    application.router.add_get("/v1/schedules", schedules)
    application.router.add_get("/v1/schedulesets", no_sets)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


#: Long tasks as the browser reports them: those of more than 50 ms by the clock.
_WATCH = """
window.tasks = [];
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) tasks.push(entry.duration);
}).observe({ type: 'longtask', buffered: true });
window.rests = 0;
const post = MessagePort.prototype.postMessage;
MessagePort.prototype.postMessage = function (...words) {
  rests += 1;
  return post.apply(this, words);
};
"""
#: How often the page has let the browser go on since it was asked.
_RESTS = "(() => { const count = rests; rests = 0; return count; })()"
_LONGEST = "(() => { const most = Math.max(0, ...tasks); tasks.length = 0; return most; })()"
_FRAME = "new Promise((go) => requestAnimationFrame(() => setTimeout(go)))"
_RIDE_STEPS = 60
_RIDE = """
(async (share) => {
  const box = document.querySelector('.scroller');
  box.scrollTop = (box.scrollHeight - box.clientHeight) * share;
  const frame = () => new Promise((go) => requestAnimationFrame(go));
  await frame().then(frame);
  return document.querySelectorAll('.rows *').length;
})
"""
_STATUS = "document.querySelector('.status')?.innerText"
_LAST = "[...document.querySelectorAll('.rows .row .name a')].at(-1)?.innerText"


def _typed(text: str) -> str:
    return (
        "(() => { const field = document.querySelector('#search');"
        f" field.value = {json.dumps(text)}; field.dispatchEvent(new Event('input')); }})()"
    )


class Ride:
    """What a person does with the list, one step after the other, and what each costs the page."""

    def __init__(self, page: browser.Page, port: int, count: int) -> None:
        self._page = page
        self._url = f"http://127.0.0.1:{port}/dashboard/#/sets"
        self._all = f"{count:,}"
        rows = map(a_row, reversed(range(count)))
        # What rests stands below what is in trouble and what is well.
        self._last = next(row["name"] for row in rows if row["health"] == "suspended")
        self.found: dict[str, Any] = {"schedules": count}

    async def run(self) -> dict[str, Any]:
        """Of each step the CPU of its longest task and the longest pause, in milliseconds."""
        await self._page.open(self._url)
        await self._until(f"{_STATUS} === '0'")
        await self._page.run(_WATCH)
        for step in (self.load, self.scroll, self.search, self.clear, self.sort, self.tick):
            task_ms = await self._page.longest_task_ms(step())
            self.found[f"{step.__name__}_task_ms"] = round(task_ms, 1)
            self.found[f"{step.__name__}_pause_ms"] = round(await self._page.run(_LONGEST))
            self.found[f"{step.__name__}_rests"] = await self._page.run(_RESTS)
        return self.found

    async def load(self) -> None:
        began = time.monotonic()
        await self._page.run("location.hash = '#/schedules'")
        await self._until(f"{_STATUS} === '{self._all}'")
        self.found["loaded_ms"] = round(1_000 * (time.monotonic() - began))

    async def scroll(self) -> None:
        steps = range(_RIDE_STEPS + 1)
        elements = [await self._page.run(f"{_RIDE}({step / _RIDE_STEPS})") for step in steps]
        self.found["elements"] = max(elements)
        await self._until(f"{_LAST} === {json.dumps(self._last)}")

    async def search(self) -> None:
        await self._page.run(_typed("042 503"))
        await self._until(f"!{_STATUS}.startsWith('{self._all}')")
        await self._rest()

    async def clear(self) -> None:
        await self._page.run(_typed(""))
        await self._until(f"{_STATUS}.startsWith('{self._all}')")
        await self._rest()

    async def sort(self) -> None:
        first = "document.querySelector('.rows .row .next time')?.dateTime"
        await self._page.run("document.querySelector('.scroller').scrollTop = 0")
        await self._page.run("document.querySelectorAll('.sort')[2].click()")
        await self._until("document.querySelector('[aria-sort]').innerText === 'Next'")
        await self._until(f"{first} === {json.dumps(min(_nexts(self.found['schedules'])))}")
        await self._rest()

    async def tick(self) -> None:
        """The distances to now are written anew each five seconds."""
        await asyncio.sleep(5.5)

    async def _until(self, expression: str) -> None:
        await self._page.until(expression, seconds=120)  # on a machine that does other things

    async def _rest(self) -> None:
        await self._page.run(_FRAME)
        await asyncio.sleep(0.3)


def _nexts(count: int) -> Iterator[str]:
    return (a_row(number)["next"] for number in range(count))


async def measured(page: browser.Page, count: int) -> dict[str, Any]:
    """The figures of one ride through so many Schedules."""
    async with served(count) as port:
        return await Ride(page, port, count).run()
