"""What a person sees of a Schedule and of what it did, as values for the view.

Objects of the API server end here; ``view`` draws what comes out. ``make up`` shows the same rows,
read from a real API server.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
from typing import Any


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleRow:
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
class ArrivalRow:
    """Something that a Schedule brought about.

    Attributes:
        at: when.
        kind: ``Job``, ``webhook``, ``stream`` or ``kafka``.
        is_exact: ``at`` has fractions of a second, so how late it is means something.
    """

    at: dt.datetime
    kind: str
    schedule: str
    slot: dt.datetime | None
    text: str
    is_exact: bool = False


def schedule(item: dict[str, Any]) -> ScheduleRow:
    """The row of a Schedule as the API server has it."""
    spec, status = item["spec"], item.get("status", {})
    last = status.get("lastRun", {})
    slot, started = instant(last.get("scheduledTime")), instant(last.get("startTime"))
    return ScheduleRow(
        namespace=item["metadata"]["namespace"],
        name=item["metadata"]["name"],
        when=spec.get("schedule") or ", ".join(spec.get("schedules", [])),
        target=status.get("target") or target_kind(spec),
        next=instant(status.get("nextScheduleTime")),
        last=slot or instant(status.get("lastScheduleTime")),
        result=_result(spec, status, last),
        lateness=started - slot if slot and started else None,
        started=status.get("runs", {}).get("started", 0),
        message=_message(status),
    )


def job(item: dict[str, Any]) -> ArrivalRow:
    """The row of a Job as the API server has it, which notes its creation in whole seconds."""
    metadata = item["metadata"]
    conditions = item.get("status", {}).get("conditions", [])
    ended = [each["type"] for each in conditions if each["status"] == "True"]
    outcome = next((each.lower() for each in ended if each in ("Complete", "Failed")), "running")
    created = instant(metadata["creationTimestamp"])
    assert created is not None  # noqa: S101 - every stored object has it
    return ArrivalRow(
        at=created,
        kind="Job",
        schedule=metadata["labels"]["duepoint.dev/schedule"],
        slot=instant(metadata.get("annotations", {}).get("duepoint.dev/scheduled-time")),
        text=f"{metadata['name']} {outcome}",
    )


def instant(text: str | None) -> dt.datetime | None:
    """RFC 3339 as the API server writes it; None for nothing or for anything else."""
    try:
        return dt.datetime.fromisoformat(text) if text else None
    except ValueError:
        return None


#: The target of a spec, by the field that has it.
_KINDS = {"jobTemplate": "Job", "webhook": "Webhook", "stream": "Stream", "kafka": "Kafka"}


def target_kind(spec: dict[str, Any]) -> str:
    """``Job``, ``Webhook``, ``Stream`` or ``Kafka``; empty where the spec has no target."""
    return next((name for field, name in _KINDS.items() if spec.get(field)), "")


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
