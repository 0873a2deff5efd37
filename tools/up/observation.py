"""What can be seen from outside: Schedules and Jobs in the API server, arrivals at the receiver.

The view of `duepoint run` draws it. The API server is read with the operator's own token,
since a list every second needs no administrator. Nothing is asked of Redis or of the processes.
"""

from __future__ import annotations

import collections
import json
from pathlib import Path
from typing import Any

from duepoint.cli.local import rows
from duepoint.cli.local.rows import ArrivalRow, ScheduleRow
from tools.devcluster import apiserver
from tools.up.accounts import Server

SCHEDULES = "/apis/duepoint.dev/v1alpha1/schedules"
JOBS = "/apis/batch/v1/jobs?labelSelector=duepoint.dev/schedule"
KEPT = 200


class Source:
    """Reads everything again on request; keeps the newest arrivals."""

    def __init__(self, server: Server, token_file: Path, deliveries: Path) -> None:
        self._server = server
        self._token_file = token_file
        self._file = deliveries
        self._offset = 0
        self._webhooks: collections.deque[ArrivalRow] = collections.deque(maxlen=KEPT)

    def schedules(self) -> list[ScheduleRow]:
        found = [rows.schedule(one) for one in self._items(SCHEDULES)]
        return sorted(found, key=lambda one: (one.namespace, one.name))

    def jobs(self) -> list[ArrivalRow]:
        return [rows.job(one) for one in self._items(JOBS)]

    def webhooks(self) -> list[ArrivalRow]:
        """All kept arrivals, those since the last call included."""
        with self._file.open() as file:
            if file.seek(0, 2) < self._offset:  # the receiver has begun a new file
                self._offset = 0
            file.seek(self._offset)
            text = file.read()
        whole = text[: text.rfind("\n") + 1]
        self._offset += len(whole.encode())
        self._webhooks.extend(webhook(json.loads(line)) for line in whole.splitlines())
        return list(self._webhooks)

    def _items(self, path: str) -> list[dict[str, Any]]:
        # The token file is rewritten while we run.
        token = self._token_file.read_text()
        client = apiserver.Client(self._server.url, self._server.ca_file, token)
        return list(client.get(path)["items"])


def webhook(line: dict[str, Any]) -> ArrivalRow:
    arrived = rows.instant(line["arrived"])
    assert arrived is not None
    attempt = f" attempt {line['attempt']}" if line.get("attempt", 0) > 1 else ""
    return ArrivalRow(
        at=arrived,
        kind="webhook",
        schedule=line["schedule"],
        slot=rows.instant(line["scheduled_time"]),
        text=f"{line['path']}{attempt}",
        is_exact=True,
    )
