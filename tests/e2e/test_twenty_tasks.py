"""The blocks of the page of tasks, run in their order by a shell as a person types them."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.e2e.test_jobs import template
from tests.support.stack import Stack, eventually
from tests.support.waiting import OF_PROCESSES_SECONDS

BIN = Path(sys.executable).parent
ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "howto" / "twenty-tasks.md").read_text()
BLOCKS = re.findall(r"^```\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_there_are_twenty_tasks_of_at_most_two_commands():
    assert len(BLOCKS) == 20
    assert max(block.count("\n") for block in BLOCKS) <= 2


async def test_every_task_succeeds_in_its_turn(stack: Stack, tmp_path: Path) -> None:
    await stack.running()
    for name in ("report", "other"):
        await stack.apply(name, {"schedule": "30 2 * * *", "jobTemplate": template()})
        await stack.wait_until_ready(name)
    environment = {
        **os.environ,
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "KUBECONFIG": str(stack.plane.kubeconfig),
        "DUEPOINT_REDIS_URL": stack.redis.url,
    }
    lease = f"--lease {stack.system}/duepoint-operator"

    def run(line: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-o", "pipefail", "-c", line],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=150,
        )

    # What the operator knows of Redis and the workers is on its Lease within a quarter of a minute.
    async def is_in_order() -> bool:
        done = await asyncio.to_thread(run, f"duepoint doctor {lease} -n {stack.namespace}")
        return done.returncode == 0 and "unknown" not in done.stdout.partition("workers")[2][:40]

    what = "the installation is in order"
    await eventually(is_in_order, what, pause_seconds=OF_PROCESSES_SECONDS)
    for block in BLOCKS:
        for line in block.splitlines():
            if "| jq" in line and shutil.which("jq") is None:
                line = line.partition("|")[0]  # noqa: PLW2901 - the part that is ours
            shown = line.replace("-n team-a", f"-n {stack.namespace}")
            shown = shown.replace("duepoint doctor", f"duepoint doctor {lease}")
            done = await asyncio.to_thread(run, shown)
            assert done.returncode == 0, (line, done.stdout, done.stderr)
            if "why report" in line and "--at" not in line:
                assert "moving the bucket" in done.stdout
