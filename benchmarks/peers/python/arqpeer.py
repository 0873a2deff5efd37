# ruff: noqa: ARG001, ASYNC110 - written against the library of that peer
"""arq: jobs that are due at once. Arguments: port, number of jobs. Output as of the others."""

import asyncio
import sys
import time
from datetime import UTC, datetime

from arq import create_pool
from arq.connections import RedisSettings
from arq.worker import Worker

TIMES = []


async def noop(ctx, i):
    TIMES.append(time.time_ns() // 1000)


async def main(port, count):
    settings = RedisSettings(port=port)
    pool = await create_pool(settings)
    due = int(time.time()) + 4 + count // 1000
    at = datetime.fromtimestamp(due, UTC)
    for first in range(0, count, 200):
        rows = range(first, min(count, first + 200))
        await asyncio.gather(*[pool.enqueue_job("noop", i, _defer_until=at) for i in rows])
    worker = Worker(
        functions=[noop],
        redis_settings=settings,
        max_jobs=100,
        keep_result=0,
        handle_signals=False,
    )
    worker.loop = asyncio.get_running_loop()
    running = asyncio.create_task(worker.main())
    while len(TIMES) < count:
        await asyncio.sleep(0.05)
    print(due * 1_000_000, *TIMES, sep="\n", flush=True)
    running.cancel()


asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
