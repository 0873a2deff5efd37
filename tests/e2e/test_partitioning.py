"""The number of shards changed from a shell, while an installation fires and its leader dies.

The command is that of the page docs/howto/change-the-number-of-shards.md, for fewer shards.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys

from tests.e2e.test_firing import slot_us
from tests.support.waiting import eventually

TICKING = 12
SECOND = 1_000_000


async def test_nothing_is_lost_or_doubled_when_the_leader_is_killed_in_the_middle(stack):
    first = stack.operator("operator-a", shards="4")
    await first.wait_until_ready()
    stack.operator("operator-b", shards="4")
    for number in range(2):
        await stack.worker(f"worker-{number}").wait_until_ready()
    names = [f"tick-{number}" for number in range(TICKING)]
    for name in names:
        # A busy machine may be late by more than a slot, which loses none under this policy.
        spec = {"schedule": "@every 1s", "catchUpPolicy": "All", "webhook": stack.webhook()}
        await stack.apply(name, spec)
    for name in names:
        await stack.wait_for_deliveries(2, name)

    command = _partition(stack, "--shards", "16")
    try:
        await asyncio.to_thread(_wait_until_under_way, command)
        await first.kill()
        output, complaints = await asyncio.to_thread(command.communicate, timeout=90.0)
    finally:
        command.kill()
    assert command.returncode == 0, complaints
    last = json.loads(output.splitlines()[-1])
    assert (last["shards"], last["formerShards"], last["left"]) == (16, None, 0)
    assert last["moved"] >= TICKING

    seen = {name: len(stack.delivered(name)) for name in names}
    for name in names:
        await stack.wait_for_deliveries(seen[name] + 2, name)

    def slots_of(name: str) -> list[int]:
        return sorted(slot_us(one.slot) for one in stack.delivered(name))

    def is_whole(slots: list[int]) -> bool:
        return {*slots} == {*range(slots[0], slots[-1] + 1, SECOND)}

    async def none_is_left_out() -> bool:
        return all(is_whole(slots_of(name)) for name in names)

    # A later slot may arrive before an earlier one, which is still under way.
    await eventually(none_is_left_out, "every slot between the first and the last")
    for name in names:
        slots = slots_of(name)
        assert len(slots) == len(set(slots))
        assert all(one.arrived_us >= slot_us(one.slot) for one in stack.delivered(name))


def _wait_until_under_way(command):
    for line in command.stdout:
        if json.loads(line)["formerShards"] == 4:
            return
    raise AssertionError(command.stderr.read())


def _partition(stack, *arguments):
    url = stack.redis.url_of("operator")
    return subprocess.Popen(
        [
            sys.executable, "-m", "duepoint", "queue", "partition", *arguments,
            "--redis-url", url, "--output", "json",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )  # fmt: skip
