"""A Prometheus that scrapes processes on this machine, and what it answers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from tests.support.stack import eventually
from tools.devcluster import ports

SCRAPE_INTERVAL = "2s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A process with /metrics, and the labels that a PodMonitor would give to its series."""

    url: str
    labels: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """``points``: (seconds since 1970, value), in the order of time."""

    labels: dict[str, str]
    points: tuple[tuple[float, float], ...]


class Prometheus:
    """A running server."""

    def __init__(self, url: str) -> None:
        self.url = url

    async def is_ready(self) -> bool:
        try:
            await asyncio.to_thread(self._get, "/-/ready", {})
        except OSError:
            return False
        return True

    async def range_of(
        self, expression: str, began: float, ended: float, step_seconds: float
    ) -> list[Series]:
        """Series over a time; raises ValueError where Prometheus refuses the expression."""
        found = await self._ask(
            "/api/v1/query_range",
            {"query": expression, "start": began, "end": ended, "step": step_seconds},
        )
        return [
            Series(
                labels=_labels(one), points=tuple((at, float(text)) for at, text in one["values"])
            )
            for one in found
        ]

    async def now(self, expression: str, at: float) -> list[Series]:
        """Values of one instant; raises ValueError where Prometheus refuses the expression."""
        found = await self._ask("/api/v1/query", {"query": expression, "time": at})
        return [
            Series(labels=_labels(one), points=((one["value"][0], float(one["value"][1])),))
            for one in found
        ]

    async def _ask(self, path: str, parameters: dict[str, Any]) -> list[dict[str, Any]]:
        answer = json.loads(await asyncio.to_thread(self._get, path, parameters))
        if answer["status"] != "success":
            raise ValueError(f"{parameters['query']}: {answer['error']}")
        found: list[dict[str, Any]] = answer["data"]["result"]
        return found

    def _get(self, path: str, parameters: dict[str, Any]) -> bytes:
        url = f"{self.url}{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                return bytes(answer.read())
        except urllib.error.HTTPError as refusal:
            if refusal.code == 503:
                raise OSError("not ready") from refusal
            return refusal.read()


def _labels(one: dict[str, Any]) -> dict[str, str]:
    return {name: value for name, value in one["metric"].items() if name != "__name__"}


def program() -> str:
    """Where Prometheus is; raises FileNotFoundError."""
    found = shutil.which("prometheus")
    if found is None:
        raise FileNotFoundError("needs Prometheus: Debian's package prometheus has it")
    return found


def configuration(targets: Iterable[Target], every: str) -> str:
    """Scrapes the targets as the chart's PodMonitor does: series keep the labels that they have."""
    return yaml.safe_dump(
        {
            "global": {"scrape_interval": every, "scrape_timeout": every},
            "scrape_configs": [
                {
                    "job_name": "duepoint",
                    "honor_labels": True,
                    "static_configs": [
                        {"targets": [urlsplit(one.url).netloc], "labels": one.labels}
                        for one in targets
                    ],
                }
            ],
        }
    )


@contextlib.asynccontextmanager
async def scraping(
    targets: Iterable[Target], folder: Path, every: str = SCRAPE_INTERVAL
) -> AsyncIterator[Prometheus]:
    """A server that scrapes the targets so often, such as 2s; it ends with the block."""
    file = folder / "prometheus.yaml"
    file.write_text(configuration(targets, every))
    port = ports.any_free()
    process = await started(
        [
            program(), f"--config.file={file}",
            f"--storage.tsdb.path={folder / 'prometheus'}",
            f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn",
        ],
        folder / "prometheus.log",
    )  # fmt: skip
    try:
        made = Prometheus(f"http://127.0.0.1:{port}")
        await eventually(made.is_ready, f"Prometheus is ready; see {folder / 'prometheus.log'}")
        yield made
    finally:
        process.terminate()
        await process.wait()


async def started(command: Sequence[str | Path], log: Path) -> asyncio.subprocess.Process:
    """A program whose output goes into a file."""
    with log.open("wb") as output:
        return await asyncio.create_subprocess_exec(*command, stdout=output, stderr=output)
