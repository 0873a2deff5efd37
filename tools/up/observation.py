"""What can be seen from outside: Schedules and Jobs in the API server, arrivals at the receiver.

Dictionaries end here; `view` gets values. The API server is read with the operator's own token,
since a list every second needs no administrator. Nothing is asked of Redis or of the processes.
"""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import json
from pathlib import Path
from typing import Any

from tools.devcluster import apiserver
from tools.up.accounts import Server

SCHEDULES = "/apis/duepoint.dev/v1alpha1/schedules"
JOBS = "/apis/batch/v1/jobs?labelSelector=duepoint.dev/schedule"
KEPT = 200


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A Schedule's answer to: what is next, what was last, how did it go?"""

    namespace: str
    name: str
    when: str
    target: str
    next: dt.datetime | None
    last: dt.datetime | None
    result: str
    lateness: dt.timedelta | None
    started: int
    message: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Delivery:
    """Something that reached its destination: a Job in the API server or a webhook here."""

    at: dt.datetime
    kind: str
    schedule: str
    slot: dt.datetime | None
    text: str


class Source:
    """Reads everything again on request; keeps the newest arrivals."""

    def __init__(self, server: Server, token_file: Path, deliveries: Path) -> None:
        self._server = server
        self._token_file = token_file
        self._file = deliveries
        self._offset = 0
        self._webhooks: collections.deque[Delivery] = collections.deque(maxlen=KEPT)

    def schedules(self) -> list[Schedule]:
        found = [schedule(one) for one in self._items(SCHEDULES)]
        return sorted(found, key=lambda one: (one.namespace, one.name))

    def jobs(self) -> list[Delivery]:
        return [job(one) for one in self._items(JOBS)]

    def webhooks(self) -> list[Delivery]:
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


def schedule(item: dict[str, Any]) -> Schedule:
    spec, status = item["spec"], item.get("status", {})
    last = status.get("lastRun", {})
    slot, started = instant(last.get("scheduledTime")), instant(last.get("startTime"))
    return Schedule(
        namespace=item["metadata"]["namespace"],
        name=item["metadata"]["name"],
        when=spec.get("schedule") or ", ".join(spec.get("schedules", [])),
        target=status.get("target") or _target(spec),
        next=instant(status.get("nextScheduleTime")),
        last=slot or instant(status.get("lastScheduleTime")),
        result=_result(spec, status, last),
        lateness=started - slot if slot and started else None,
        started=status.get("runs", {}).get("started", 0),
        message=_message(status),
    )


def job(item: dict[str, Any]) -> Delivery:
    metadata = item["metadata"]
    conditions = item.get("status", {}).get("conditions", [])
    ended = [one["type"] for one in conditions if one["status"] == "True"]
    outcome = next((one.lower() for one in ended if one in ("Complete", "Failed")), "running")
    created = instant(metadata["creationTimestamp"])
    assert created is not None
    return Delivery(
        at=created,
        kind="Job",
        schedule=metadata["labels"]["duepoint.dev/schedule"],
        slot=instant(metadata.get("annotations", {}).get("duepoint.dev/scheduled-time")),
        text=f"{metadata['name']} {outcome}",
    )


def webhook(line: dict[str, Any]) -> Delivery:
    arrived = instant(line["arrived"])
    assert arrived is not None
    attempt = f" attempt {line['attempt']}" if line.get("attempt", 0) > 1 else ""
    return Delivery(
        at=arrived,
        kind="webhook",
        schedule=line["schedule"],
        slot=instant(line["scheduled_time"]),
        text=f"{line['path']}{attempt}",
    )


def instant(text: str | None) -> dt.datetime | None:
    """RFC 3339 as the API server and the body write it; None for nothing or for anything else."""
    try:
        return dt.datetime.fromisoformat(text) if text else None
    except ValueError:
        return None


def _target(spec: dict[str, Any]) -> str:
    kinds = {"jobTemplate": "Job", "webhook": "Webhook", "stream": "Stream"}
    return next((name for field, name in kinds.items() if spec.get(field)), "")


def _result(spec: dict[str, Any], status: dict[str, Any], last: dict[str, Any]) -> str:
    for condition in status.get("conditions", []):
        if condition["type"] in ("Stalled", "Reconciling") and condition["status"] == "True":
            return str(condition["type"])
    if not status.get("conditions"):
        return "new"
    if spec.get("suspend"):
        return "Suspended"
    return str(last.get("outcome", "-"))


def _message(status: dict[str, Any]) -> str:
    """What a troubled Schedule says about itself."""
    for condition in status.get("conditions", []):
        if condition["type"] in ("Stalled", "Reconciling") and condition["status"] == "True":
            return f"{condition.get('reason', '')}: {condition.get('message', '')}"
    return ""
