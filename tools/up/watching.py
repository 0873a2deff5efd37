"""Looking on while it runs: the live screen, plain lines where there is no terminal, or the wait
for the first Job and the first webhook.

The loops only read. A process that has ended is shown, with the last line of its log, and not
started again: that would hide the reason.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console, RenderableType
from rich.live import Live

from duepoint.cli.local import keys, view
from duepoint.cli.local.rows import ArrivalRow, ScheduleRow
from tools.devcluster import apiserver
from tools.devcluster.errors import DevClusterError
from tools.devcluster.state import Record
from tools.up import applications
from tools.up.applications import Workplace
from tools.up.observation import Source

TICK_SECONDS = 0.5
FIRST_SECONDS = 180.0
LOG_LINES = 8
MOST_TROUBLED = 3


class Watcher:
    """Reads the source, and remembers the last answer for when the API server is away."""

    def __init__(self, place: Workplace, record: Record, source: Source) -> None:
        self._place = place
        self._record = record
        self._source = source
        self.schedules: list[ScheduleRow] = []
        self.jobs: list[ArrivalRow] = []
        self.webhooks: list[ArrivalRow] = []
        self.notices: list[str] = []

    def look(self) -> None:
        self.notices = [
            f"{one.name} has ended: {_last_line(self._place.log(one.name))}"
            for one in applications.ended(self._record)
        ]
        self.webhooks = self._source.webhooks()
        try:
            self.schedules = self._source.schedules()
            self.jobs = self._source.jobs()
        except (OSError, apiserver.ApiError) as error:
            self.notices.append(f"the API server does not answer: {error}")
        troubled = [one for one in self.schedules if one.message][:MOST_TROUBLED]
        self.notices += [f"{one.namespace}/{one.name}: {one.message}" for one in troubled]

    def show(self, end: str) -> None:
        """The live screen, until q or Ctrl-C, of which it says what they do."""
        console = Console()
        with (
            keys.quitting() as is_quitting,
            Live(console=console, screen=True, auto_refresh=False) as live,
        ):
            while not is_quitting():
                self.look()
                live.update(self._screen(console, end), refresh=True)
                time.sleep(TICK_SECONDS)

    def tell(self, say: Callable[[str], None]) -> None:
        """A line per arrival, until Ctrl-C; for output that is no terminal."""
        said: set[tuple[str, str, dt.datetime]] = set()
        while True:
            self.look()
            for one in sorted([*self.jobs, *self.webhooks]):
                key = (one.kind, one.schedule, one.slot or one.at)
                if key not in said:
                    said.add(key)
                    say(f"{one.at:%H:%M:%S}  {one.kind:<8} {one.schedule}  {one.text}")
            time.sleep(TICK_SECONDS)

    def wait_for_first(self, seconds: float = FIRST_SECONDS) -> str:
        """A sentence about the first Job and webhook; DevClusterError with reasons if none come."""
        started = time.monotonic()
        while True:
            self.look()
            waited = time.monotonic() - started
            if self.jobs and self.webhooks:
                return f"First Job: {min(self.jobs).text}. First webhook: {self.webhooks[0].text}."
            if applications.ended(self._record) or waited > seconds:
                raise DevClusterError(self._reasons(waited))
            time.sleep(TICK_SECONDS)

    def _screen(self, console: Console, end: str) -> RenderableType:
        return view.screen(
            self.schedules,
            [*self.jobs, *self.webhooks],
            self.notices,
            now=dt.datetime.now(dt.UTC),
            size=(console.width, console.height),
            end=end,
        )

    def _reasons(self, waited: float) -> str:
        """Everything that may explain why nothing has arrived."""
        came = f"{len(self.jobs)} Jobs and {len(self.webhooks)} webhooks"
        lines = [f"{came} after {waited:.0f} s; wanted is at least one of each", *self.notices]
        lines += [
            f"Schedule {one.namespace}/{one.name}: {one.message or one.result}"
            for one in self.schedules
            if one.message or not one.started
        ]
        for name in ("operator", "worker"):
            log = self._place.log(name)
            lines += [f"the end of {log}:", *_lines(log)[-LOG_LINES:]]
        return "\n".join(lines)


def _last_line(log: Path) -> str:
    return (_lines(log) or ["it has written nothing"])[-1]


def _lines(log: Path) -> list[str]:
    try:
        text = log.read_text(errors="replace")
    except OSError:
        return []
    return [line[:400] for line in text.splitlines() if line.strip()]
