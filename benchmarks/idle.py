"""The cost of a thousand Schedules that are due tomorrow: commands, CPU, memory.

MONITOR shows every command of 75 seconds, so also those that come once a minute. Only keepalives
belong there: one command per connection in ten seconds (the worker's beat, a look at the layout,
PING) and, less often, whether the server is still fit and the same. It first waits for the walk
over all objects after a start, and for the check of the server's limits a minute after writes.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator

from benchmarks import report, scene
from benchmarks.report import Figure
from tests.support.stack import Process, Stack

SCHEDULES = int(report.number("SCHEDULES", 1000, 100))
SECONDS = 75
#: The walk is over after so long with keepalives only; and how often to check that.
QUIET_SECONDS = 5
QUIET_LOOKS = 36

KEEPALIVE = re.compile(
    r'"PING"|"H(M)?GET" "dp:\{[^"]+\}:(layout|meta)"'
    r'|"EVALSHA" "\w+" "3" "dp:\{ctl\}:layout" "dp:\{ctl\}:workers"'  # a worker's beat
    r'|"EVALSHA" "\w+" "2" "dp:\{ctl\}:layout" .*seen\\xc3\\xa6fields\\x90'  # a leader's
    r'|"INFO" "replication"'  # whether this is still the same server
    # the state of workers and servers, for the operator's Lease: each 15 s
    r'|"INFO" "(server|memory)"|"ZRANGE" "dp:\{ctl\}:workers"|"HGETALL" "dp:\{ctl\}:troubles"'
    r'|"TIME"$',  # whether the operator's clock is right: each 10 s, as the others
    re.IGNORECASE,
)


async def run() -> list[Figure]:
    async with scene.stack() as stack:
        operator, worker = await stack.running()
        report.say(f"{SCHEDULES} Schedules that are due tomorrow")
        await _apply_all(stack)
        report.say(f"{SECONDS} s to settle, then as long of MONITOR")
        await asyncio.sleep(SECONDS)
        for _ in range(QUIET_LOOKS):
            if not _others(await _monitored(stack, QUIET_SECONDS)):
                break
        else:
            report.say("the walk over all objects does not end")
        before = {process: scene.cpu_seconds(process.pid) for process in (operator, worker)}
        commands = await _monitored(stack, SECONDS)
        busy = {
            process: (scene.cpu_seconds(process.pid) - used) / SECONDS * 100
            for process, used in before.items()
        }
        return list(_figures(commands, busy, operator, worker))


async def _apply_all(stack: Stack) -> None:
    gate = asyncio.Semaphore(16)

    async def apply(number: int) -> None:
        async with gate:
            spec = {"schedule": "@every 24h", "webhook": stack.webhook(f"/{number}")}
            await stack.apply(f"later-{number}", spec)

    await asyncio.gather(*(apply(number) for number in range(SCHEDULES)))
    for number in (*range(0, SCHEDULES, 50), SCHEDULES - 1):
        await stack.wait_until_ready(f"later-{number}")


def _others(commands: list[str]) -> list[str]:
    """Return the commands that are not keepalives."""
    return [line for line in commands if not KEEPALIVE.search(line)]


async def _monitored(stack: Stack, seconds: float) -> list[str]:
    """Return the commands of other clients than this monitor, as the server shows them."""
    reader, writer = await asyncio.open_connection("127.0.0.1", stack.redis.port)
    writer.write(b"MONITOR\r\n")
    await writer.drain()
    await reader.readline()
    lines = []
    try:
        async with asyncio.timeout(seconds):
            while line := await reader.readline():
                lines.append(line.decode(errors="replace"))
    except TimeoutError:
        pass
    finally:
        writer.close()
    # What a script calls is shown as `lua`; the script itself is the command that was sent.
    return [line.partition("] ")[2].strip() for line in lines if " lua]" not in line]


def _figures(
    commands: list[str], busy: dict[Process, float], operator: Process, worker: Process
) -> Iterator[Figure]:
    bench = report.Bench("idle")
    others = _others(commands)
    for line in others[:10]:
        report.say(f"not a keepalive: {line[:160]}")
    unit = f"commands in {SECONDS} s"
    yield bench.one("commands besides keepalives", len(others), unit, "= 0")
    yield bench.one("keepalive commands", len(commands) - len(others), unit)
    for process, most_megabytes in ((operator, 140), (worker, 90)):
        yield bench.one(f"{process.role} CPU", round(busy[process], 2), "% of a core", "< 1")
        megabytes = round(scene.megabytes(process.pid), 1)
        yield bench.one(f"{process.role} memory", megabytes, "MB", f"<= {most_megabytes}")
