"""A client for a Pod: creates one-offs of `orders` through the HTTP API, and prints the answers."""

from __future__ import annotations

import asyncio
import itertools
import sys
import time

from duepoint.client import AsyncClient, ClientError, MemberSpec

EVERY_SECONDS = 0.2


async def main(namespace: str) -> None:
    async with AsyncClient.from_environment() as client:
        orders = client.schedule_set(namespace, "orders")
        for number in itertools.count():
            began = time.monotonic()
            try:
                await orders.put(f"order-{number}", MemberSpec(delay="2s"))
                answer = "stored"
            except ClientError as error:
                answer = f"{type(error).__name__}: {error}"
            print(time.time_ns() // 1000, f"order-{number}", answer, flush=True)  # noqa: T201
            await asyncio.sleep(max(0.0, began + EVERY_SECONDS - time.monotonic()))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
