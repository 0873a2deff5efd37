# ruff: noqa: ARG001, ASYNC110 - written against the library of that peer
"""SAQ: jobs that are due at once. Arguments: port, number of jobs. Output as of the others."""

import asyncio
import logging
import sys
import time

from saq import Queue, Worker

logging.getLogger("saq").setLevel(logging.ERROR)
TIMES = []


async def noop(ctx, *, i):
    TIMES.append(time.time_ns() // 1000)


async def main(port, count):
    queue = Queue.from_url(f"redis://127.0.0.1:{port}")
    await queue.connect()
    due = int(time.time()) + 4 + count // 2000
    for first in range(0, count, 500):
        rows = range(first, min(count, first + 500))
        await asyncio.gather(*[queue.enqueue("noop", i=i, scheduled=due) for i in rows])
    worker = Worker(queue, functions=[noop], concurrency=10)
    running = asyncio.create_task(worker.start())
    while len(TIMES) < count:
        await asyncio.sleep(0.05)
    print(due * 1_000_000, *TIMES, sep="\n", flush=True)
    await worker.stop()
    running.cancel()


asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
