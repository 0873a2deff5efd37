"""The loads on an installation as the chart makes it, by the command that users have.

Operator, two workers and one API process, on a control plane and a Valkey of their own; ``duepoint
load`` submits through the API, listens, and counts. What it measures goes from the due time to the
arrival of the webhook in its process.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from benchmarks import report, scene
from benchmarks.loads.outcome import Outcome
from duepoint.worker import keepalive
from tests.support.stack import Stack
from tools.devcluster import ports

_NAME = "probe"
#: What is late is late, not lost: the others wait for everything, too.
_PATIENCE = "5m"


class Ours:
    """An installation with a set whose webhook goes to ``port``."""

    def __init__(self, stack: Stack, server: str, token: Path, port: int) -> None:
        self._stack = stack
        self._server = server
        self._token = token
        self._port = port

    async def run(self, count: int, within_seconds: int, picture: Path) -> Outcome:
        """One load, with its picture."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "duepoint", "load", _NAME,
            "--namespace", self._stack.namespace, "--server", self._server,
            "--token-file", str(self._token), "--receive", f"127.0.0.1:{self._port}",
            "--count", str(count), "--within", f"{within_seconds}s", "--wait", _PATIENCE,
            "--svg", str(picture),
            "--output", "json",
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, said = await process.communicate()
        if not out:
            raise SystemExit(f"duepoint load failed: {said.decode()[-2000:]}")
        row = json.loads(out)
        if row["refused"] or row["accepted"] != count:
            raise SystemExit(f"the API did not take the load: {row}")
        late = row["latenessMs"]
        return Outcome(
            lost=row["lost"], doubled=row["doubled"], early=row["early"],
            p50_ms=late["p50"], p90_ms=late["p90"], p99_ms=late["p99"], max_ms=late["max"],
        )  # fmt: skip


@contextlib.asynccontextmanager
async def installed() -> AsyncIterator[Ours]:
    """The installation, ready, for as long as the context lasts."""
    async with scene.stack() as stack:
        await stack.running()
        await stack.worker("worker-2").wait_until_ready()
        api = stack.http_api()
        await api.wait_until_ready()
        await asyncio.sleep(keepalive.BEAT_SECONDS + 1)  # the workers agree on who looks at what
        port = ports.any_free()
        await scene.make_set(stack, _NAME, {"webhook": {"url": f"http://127.0.0.1:{port}/"}})
        report.say("the set is ready")
        with tempfile.TemporaryDirectory() as folder:
            token = Path(folder) / "token"
            token.write_text(await stack.member_token())
            yield Ours(stack, stack.api_url, token, port)
