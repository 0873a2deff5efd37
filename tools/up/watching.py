"""The view of `make up`: a live screen, plain lines without a terminal, or a wait for a Job.

Schedules and Jobs are read from the API server with the operator's own login, arrivals from the
receiver's file; it asks neither Redis nor the processes. A process that has ended is shown
with the last line of its log and not started again, which would hide the reason.
"""

from __future__ import annotations

import collections
import datetime as dt
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.live import Live

from duepoint.cli.local import presenting, view
from duepoint.cli.schedules import commands, facts
from duepoint.controller.status import published
from duepoint.schedules import diagnosis
from tools.devcluster import apiserver
from tools.devcluster.errors import DevClusterError
from tools.devcluster.state import Record
from tools.up import applications
from tools.up.applications import Workplace

SCHEDULES = "/apis/duepoint.dev/v1alpha1/schedules"
JOBS = "/apis/batch/v1/jobs?labelSelector=duepoint.dev/schedule"
FIRST_SECONDS = 180.0


class Arrival(NamedTuple):
    """A Job or a webhook; ``at``: when it was created or arrived."""

    at: dt.datetime
    kind: str
    schedule: str
    slot_us: int
    text: str

    @property
    def line(self) -> str:
        return f"{self.at:%H:%M:%S}  {self.kind:<8} {self.schedule}  {self.text}"


class Watcher:
    """Reads everything again on request; keeps the last answer while the API server is away."""

    def __init__(self, place: Workplace, record: Record, client: apiserver.Client) -> None:
        self._place = place
        self._record = record
        self._client = client
        self._offset = 0
        self.schedules: list[dict[str, Any]] = []
        self.rows: list[dict[str, Any]] = []
        self.jobs: list[Arrival] = []
        self.webhooks: collections.deque[Arrival] = collections.deque(maxlen=200)
        self.notices: list[str] = []

    def look(self) -> None:
        self.notices = [
            f"{one.name} has ended: {_lines(self._place.log(one.name))[-1]}"
            for one in applications.ended(self._record)
        ]
        self._read_webhooks()
        try:
            self.schedules = self._client.get(SCHEDULES)["items"]
            self.jobs = [_job(one) for one in self._client.get(JOBS)["items"]]
        except (OSError, apiserver.ApiError) as error:
            self.notices.append(f"the API server does not answer: {error}")
        self.rows = [commands.overview(facts.of_object(one)) for one in self.schedules]
        troubled = [one for one in self.rows if one["health"] in diagnosis.TROUBLED][:3]
        self.notices += ["{namespace}/{name}: {message}".format_map(one) for one in troubled]

    def _read_webhooks(self) -> None:
        with self._place.deliveries.open() as file:
            if file.seek(0, 2) < self._offset:  # the receiver has begun a new file
                self._offset = 0
            file.seek(self._offset)
            text = file.read()
        whole = text[: text.rfind("\n") + 1]
        self._offset += len(whole.encode())
        self.webhooks.extend(_webhook(json.loads(line)) for line in whole.splitlines())

    def lines(self) -> list[str]:
        return [one.line for one in sorted([*self.jobs, *self.webhooks], reverse=True)]

    def show(self, end: str) -> None:
        """Draw the live screen until q or Ctrl-C; ``end`` says what these do."""
        console = Console()
        with (
            presenting.quitting() as is_quitting,
            Live(console=console, screen=True, auto_refresh=False) as live,
        ):
            while not is_quitting():
                self.look()
                screen = view.screen(
                    self.schedules,
                    self.lines(),
                    self.notices,
                    now=dt.datetime.now(dt.UTC),
                    size=(console.width, console.height),
                    end=end,
                )
                live.update(screen, refresh=True)
                time.sleep(presenting.TICK_SECONDS)

    def tell(self, say: Callable[[str], None]) -> None:
        """Print a line for each arrival, until Ctrl-C."""
        said: set[tuple[str, str, int | dt.datetime]] = set()
        while True:
            self.look()
            for one in sorted([*self.jobs, *self.webhooks]):
                key = (one.kind, one.schedule, one.slot_us or one.at)
                if key not in said:
                    said.add(key)
                    say(one.line)
            time.sleep(presenting.TICK_SECONDS)

    def wait_for_first(self, seconds: float = FIRST_SECONDS) -> str:
        """Return a sentence about the first Job and webhook; raise with reasons if none come."""
        started = time.monotonic()
        while True:
            self.look()
            waited = time.monotonic() - started
            if self.jobs and self.webhooks:
                return f"First Job: {min(self.jobs).text}. First webhook: {self.webhooks[0].text}."
            if applications.ended(self._record) or waited > seconds:
                raise DevClusterError(self._reasons(waited))
            time.sleep(presenting.TICK_SECONDS)

    def _reasons(self, waited: float) -> str:
        came = f"{len(self.jobs)} Jobs and {len(self.webhooks)} webhooks after {waited:.0f} s"
        lines = [f"{came}; wanted is at least one of each", *self.notices]
        lines += [
            "Schedule {namespace}/{name}: {health}, {message}".format_map(one)
            for one in self.rows
            if one["health"] != "ok" or not one["runs"]
        ]
        for name in ("operator", "worker"):
            log = self._place.log(name)
            lines += [f"the end of {log}:", *_lines(log)[-8:]]
        return "\n".join(lines)


def _job(item: dict[str, Any]) -> Arrival:
    """Return the row of a Job; the API server stores its creation in whole seconds."""
    metadata = item["metadata"]
    conditions = item.get("status", {}).get("conditions", [])
    ended = [each["type"] for each in conditions if each["status"] == "True"]
    outcome = next((each.lower() for each in ended if each in ("Complete", "Failed")), "running")
    created = dt.datetime.fromisoformat(metadata["creationTimestamp"])
    annotations = metadata.get("annotations", {})
    slot_us = published.instant_us(annotations.get("duepoint.dev/scheduled-time"))
    of = metadata["labels"]["duepoint.dev/schedule"]
    return Arrival(created, "Job", of, slot_us, f"{metadata['name']} {outcome}")


def _webhook(line: dict[str, Any]) -> Arrival:
    arrived = dt.datetime.fromisoformat(line["arrived"])
    attempt = f" attempt {line['attempt']}" if line.get("attempt", 0) > 1 else ""
    slot_us = published.instant_us(line["scheduled_time"])
    return Arrival(arrived, "webhook", line["schedule"], slot_us, f"{line['path']}{attempt}")


def _lines(log: Path) -> list[str]:
    try:
        text = log.read_text(errors="replace")
    except OSError:
        text = ""
    return [line[:400] for line in text.splitlines() if line.strip()] or ["it has written nothing"]
