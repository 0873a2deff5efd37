"""kill -9 of a worker that holds claimed points: how long until another has fired them all?

A process claims and does nothing more; it is killed. The lease it took (2 s) runs out by the
server's clock, and a real worker, idle until then, takes the points over. Counted from the kill,
which comes right after the claim; nothing may be lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import Iterator

from benchmarks import report
from benchmarks.queuespeed import calm, place
from benchmarks.report import Figure
from duepoint.delayqueue import delayqueue

NAME = "recovery"
LEASE_SECONDS = 2.0
POINTS = 200


async def run(kind: str, *, turns: int = 3) -> list[Figure]:
    taken = [await _turn(kind) for _ in range(turns)]
    return list(_figures(kind, taken))


async def _turn(kind: str) -> tuple[float, int]:
    """Seconds from the kill to the last firing, and how many points were fired."""
    with place.server(kind) as server:
        async with place.queue(server, 4) as queue:
            for number in range(POINTS):
                await calm.arm(queue, number, place.now_us() - 1000)
            report.say(f"{kind}: a worker is killed with {POINTS} points in hand")
            victim = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "benchmarks.queuespeed.recovery", server.url,
                stdout=asyncio.subprocess.PIPE,
            )  # fmt: skip
            assert victim.stdout is not None
            held = int(await victim.stdout.readline())
            victim.kill()
            killed = time.monotonic()
            await victim.wait()
            noted = calm.NotesTime()
            work = calm.a_worker(queue, noted, lease_seconds=LEASE_SECONDS)
            running = asyncio.create_task(work.run())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(30):
                    while len(noted.late_ms) < held:
                        noted.fired.clear()
                        await noted.fired.wait()
            took = time.monotonic() - killed
            work.drain()
            await running
    return took, held - len(noted.late_ms)


def _figures(kind: str, taken: list[tuple[float, int]]) -> Iterator[Figure]:
    seconds = [one for one, _ in taken]
    yield Figure(
        benchmark=NAME, figure=f"from kill -9 to the last firing, lease {LEASE_SECONDS} s: {kind}",
        value=round(max(seconds), 3), unit="s", bar=f"<= {LEASE_SECONDS + 0.5}", runs=len(taken),
        spread=(round(min(seconds), 3), round(max(seconds), 3)),
    )  # fmt: skip
    lost = sum(missing for _, missing in taken)
    yield Figure(benchmark=NAME, figure=f"points lost: {kind}", value=lost, unit="points",
                 bar="= 0", runs=POINTS * len(taken))  # fmt: skip


async def _victim(url: str) -> None:
    queue = delayqueue.connect(url, blob_key=place.KEY)
    await queue.start()
    layout = await queue.layouts.read()
    held, shards = 0, tuple(range(layout.shards))
    for answer in await queue.claims.claim(shards, worker="victim", lease_seconds=LEASE_SECONDS):
        held += 0 if answer.claim is None else len(answer.claim.points)
    print(held, flush=True)
    await asyncio.sleep(60)


if __name__ == "__main__":
    asyncio.run(_victim(sys.argv[1]))
