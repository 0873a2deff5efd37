"""A bare parallel request loop: what the API server takes from a client that does nothing else.

A process of its own. Standard input has one JSON line: the server, the token, verb and path, how
many objects, how many at a time, and the body as text. In path and body ``@NAME@`` stands for the
object's name and ``@UID@`` for the uid of its owner. It says ``ready``, waits for a second line,
sends, and says how many were accepted and how much CPU time that took. Refused ones are not tried
again, so that the count tells.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
import time
from typing import Any

import aiohttp
import uvloop


async def main() -> None:
    order: dict[str, Any] = json.loads(await asyncio.to_thread(sys.stdin.readline))
    context = ssl.create_default_context(cafile=order["ca_file"])
    headers = {
        "Authorization": f"Bearer {order['token']}",
        "Content-Type": order["content_type"],
        "User-Agent": "bare/1",
    }
    connector = aiohttp.TCPConnector(limit=order["connections"], ssl=context)
    async with aiohttp.ClientSession(connector=connector, headers=headers) as session:
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        numbers = iter(range(order["first"], order["first"] + order["count"]))
        workers = [_send(session, order, numbers) for _ in range(order["connections"])]
        before = time.process_time()
        accepted = sum(await asyncio.gather(*workers))
        print(accepted, time.process_time() - before, flush=True)


async def _send(session: aiohttp.ClientSession, order: dict[str, Any], numbers: Any) -> int:
    accepted = 0
    verb, address, text, owners = (
        order["verb"], order["server"] + order["path"], order["text"], order["owners"]
    )  # fmt: skip
    for number in numbers:
        name, uid = owners[number] if owners else (f"{order['prefix']}{number}", "")
        body = text.replace("@NAME@", name).replace("@UID@", uid).encode()
        async with session.request(verb, address.replace("@NAME@", name), data=body) as answer:
            await answer.read()
            accepted += answer.status < 300
    return accepted


if __name__ == "__main__":
    uvloop.run(main())
