"""What a thousand Schedules that are due tomorrow cost: commands, CPU, memory.

Commands are what MONITOR shows in twenty seconds. The keepalive is one command per connection in
ten seconds: the worker's beat, a look at the layout or a shard's meta, PING on a subscription;
every few minutes a check whether the server is fit; and the operator's look at workers and
servers. Anything else is work that should not be there. The sweep that follows a comparison of all
objects is work, at a trickle: on a busy machine it takes a minute or two, so its end is waited for.
"""

from __future__ import annotations

import asyncio
import re

from benchmarks import report, scene
from benchmarks.report import Figure
from tests.support.stack import Process, Stack

SCHEDULES = 1000
SECONDS = 20
SETTLE_SECONDS = 15
#: The sweep is over once nothing but keepalives was seen for so long; looked for so often.
QUIET_SECONDS = 5
QUIET_LOOKS = 36
NAME = "idle"

KEEPALIVE = re.compile(
    r'"PING"|"H(M)?GET" "dp:\{[^"]+\}:(layout|meta)"|"EVALSHA" "\w+" "[13]" "dp:\{ctl\}:layout"'
    r'|"EVALSHA" "\w+" "4" "dp:\{ctl\}:layout" "dp:\{ctl\}:workers"'  # a worker's beat
    r'|"EVALSHA" "\w+" "1" "dp:\{[^"]+\}:probe"'  # whether the server keeps hashes compact
    r'|"INFO" "replication"'  # whether this is still the server that it was
    # how workers and servers are, which the operator's Lease says: each 15 s
    r'|"INFO" "(server|memory)"|"ZRANGE" "dp:\{ctl\}:workers"|"HGETALL" "dp:\{ctl\}:troubles"'
    r'|"TIME"$',  # whether the operator's clock is right: each 10 s, as the others
    re.IGNORECASE,
)


async def run() -> list[Figure]:
    async with scene.stack() as stack:
        operator, worker = await stack.running()
        report.say(f"{SCHEDULES} Schedules that are due tomorrow")
        await _apply_all(stack)
        report.say(f"{SETTLE_SECONDS} s to settle, then {SECONDS} s of MONITOR")
        await asyncio.sleep(SETTLE_SECONDS)
        await _wait_for_the_sweep(stack)
        before = {process: scene.cpu_seconds(process.pid) for process in (operator, worker)}
        commands = await _monitored(stack, SECONDS)
        busy = {
            process: (scene.cpu_seconds(process.pid) - used) / SECONDS * 100
            for process, used in before.items()
        }
        return _figures(commands, busy, operator, worker)


async def _apply_all(stack: Stack) -> None:
    gate = asyncio.Semaphore(16)

    async def apply(number: int) -> None:
        async with gate:
            spec = {"schedule": "@every 24h", "webhook": stack.webhook(f"/{number}")}
            await stack.apply(f"later-{number}", spec)

    await asyncio.gather(*(apply(number) for number in range(SCHEDULES)))
    await stack.wait_until_ready(f"later-{SCHEDULES - 1}")
    for number in range(0, SCHEDULES, 50):
        await stack.wait_until_ready(f"later-{number}")


async def _wait_for_the_sweep(stack: Stack) -> None:
    for _ in range(QUIET_LOOKS):
        if not _others(await _monitored(stack, QUIET_SECONDS)):
            return
    report.say("the sweep does not end")


def _others(commands: list[str]) -> list[str]:
    """The commands that are no keepalive."""
    return [line for line in commands if not KEEPALIVE.search(line)]


async def _monitored(stack: Stack, seconds: float) -> list[str]:
    """Commands of others than this monitor, as the server shows them."""
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
) -> list[Figure]:
    others = _others(commands)
    for line in others[:10]:
        report.say(f"not a keepalive: {line[:160]}")
    return [
        Figure(benchmark=NAME, figure="commands that are no keepalive", value=len(others),
               unit="commands in 20 s", bar="= 0"),
        Figure(benchmark=NAME, figure="keepalive commands", value=len(commands) - len(others),
               unit="commands in 20 s"),
        Figure(benchmark=NAME, figure="operator CPU", value=busy[operator], unit="% of a core",
               bar="< 1"),
        Figure(benchmark=NAME, figure="worker CPU", value=busy[worker], unit="% of a core",
               bar="< 1"),
        Figure(benchmark=NAME, figure="operator memory", value=scene.rss_megabytes(operator.pid),
               unit="MB", bar="<= 140"),
        Figure(benchmark=NAME, figure="worker memory", value=scene.rss_megabytes(worker.pid),
               unit="MB", bar="<= 90"),
    ]  # fmt: skip
