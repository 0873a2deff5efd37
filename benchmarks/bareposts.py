"""What this machine itself makes late: a loop that knows at each second what to post, and posts it.

No queue, no schedule, no second process; what it is late is the machine's share of any lateness.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import math
import time

import aiohttp

#: Marks its requests among the deliveries.
NAME = "bare"


async def post_each_second(port: int, *, seconds: int, requests: int) -> None:
    """So many requests at once at each of the coming whole seconds, to a local receiver."""
    first = math.floor(time.time()) + 2
    async with aiohttp.ClientSession() as session:
        for second in range(first, first + seconds):
            await asyncio.sleep(second - time.time())
            body = _body(second)
            await asyncio.gather(*(_post(session, port, body) for _ in range(requests)))


async def _post(session: aiohttp.ClientSession, port: int, body: dict[str, object]) -> None:
    async with session.post(f"http://127.0.0.1:{port}/", json=body) as answer:
        await answer.read()


def _body(second: int) -> dict[str, object]:
    slot = dt.datetime.fromtimestamp(second, dt.UTC).isoformat()
    return {"data": {"scheduled_time": slot, "schedule": {"name": NAME}}}
