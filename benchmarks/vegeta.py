"""Load by vegeta, a program in Go: requests from a file, at a rate or as fast as answers come."""

from __future__ import annotations

import asyncio
import base64
import json
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from tools.devcluster import binaries

_MS = 1e6  # nanoseconds


class Target(NamedTuple):
    """A request that vegeta sends."""

    method: str
    url: str
    body: bytes = b""


class Attack(NamedTuple):
    """The result of an attack; ``statuses`` counts answers by status, ``0`` = no answer."""

    requests: int
    seconds: float
    p50_ms: float
    p99_ms: float
    max_ms: float
    statuses: Mapping[str, int]

    @property
    def refused(self) -> int:
        """The number of answers that are not a success."""
        return sum(count for status, count in self.statuses.items() if not status.startswith("2"))


def write(path: Path, targets: Iterable[Target]) -> None:
    """Write a file of targets; vegeta sends them in this order, again and again."""
    with path.open("w", encoding="ascii") as file:
        for target in targets:
            row = {"method": target.method, "url": target.url}
            if target.body:
                row["body"] = base64.b64encode(target.body).decode()
            file.write(json.dumps(row, separators=(",", ":")) + "\n")


async def attack(
    targets: Path,
    seconds: float,
    *,
    headers: Mapping[str, str],
    workers: int,
    rate: int = 0,
) -> Attack:
    """Send the targets for ``seconds``.

    Args:
        workers: requests under way at most.
        rate: a second; 0 = each worker sends its next one when the former is answered.
    """
    vegeta = str(binaries.ensure(["vegeta"])["vegeta"])
    with tempfile.NamedTemporaryFile() as answers:
        command = [
            vegeta, "attack", "-format=json", f"-targets={targets}", f"-duration={seconds}s",
            f"-rate={rate}", f"-max-workers={workers}", f"-workers={min(workers, 10)}",
            f"-output={answers.name}", "-timeout=60s",
            *(f"-header={name}: {value}" for name, value in headers.items()),
        ]  # fmt: skip
        await _run(command)
        said = await _run([vegeta, "report", "-type=json", answers.name])
    report = json.loads(said)
    late = report["latencies"]
    return Attack(
        requests=report["requests"], seconds=(report["duration"] + report["wait"]) / 1e9,
        p50_ms=late["50th"] / _MS, p99_ms=late["99th"] / _MS, max_ms=late["max"] / _MS,
        statuses=report["status_codes"],
    )  # fmt: skip


async def _run(command: list[str]) -> bytes:
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    said, trouble = await process.communicate()
    if process.returncode:
        raise SystemExit(f"{command[0]} failed: {trouble.decode()[-2000:]}")
    return said
