"""Builders of Schedules and ScheduleRuns for the tests of the CRDs."""

from __future__ import annotations

from typing import Any

VERSION = "duepoint.dev/v1alpha1"
ABSENT = object()

STREAM = {"name": "ticks"}
POD = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]}
JOB = {"spec": {"template": {"spec": POD}}}
WEBHOOK = {"url": "https://hooks.example.com/nightly"}
SECRET_KEY = {"name": "billing", "key": "token"}


def a_schedule(name: str, *, namespace: str = "default", **fields: Any) -> dict[str, Any]:
    """A Schedule with a stream target, unless the fields name another one."""
    spec: dict[str, Any] = {"schedule": "*/5 * * * *", **fields}
    if not {"jobTemplate", "webhook", "stream"} & fields.keys():
        spec["stream"] = STREAM
    return _thing("Schedule", name, namespace, spec)


def a_schedule_run(name: str, *, namespace: str = "default", **fields: Any) -> dict[str, Any]:
    spec: dict[str, Any] = {"scheduleName": "nightly", **fields}
    if not {"trigger", "backfill"} & fields.keys():
        spec["trigger"] = {}
    return _thing("ScheduleRun", name, namespace, spec)


def a_schedule_set(name: str, *, namespace: str = "default", **fields: Any) -> dict[str, Any]:
    """A ScheduleSet with a stream target, unless the fields name another one."""
    spec: dict[str, Any] = dict(fields)
    if not {"jobTemplate", "webhook", "stream", "kafka"} & fields.keys():
        spec["stream"] = STREAM
    return _thing("ScheduleSet", name, namespace, spec)


def a_job(**pod: Any) -> dict[str, Any]:
    """A jobTemplate whose Pod has these fields."""
    return {"spec": {"template": {"spec": _without_absent({**POD, **pod})}}}


def a_webhook(**fields: Any) -> dict[str, Any]:
    return _without_absent({**WEBHOOK, **fields})


def _thing(kind: str, name: str, namespace: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": VERSION,
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": _copied(_without_absent(spec)),
    }


def _without_absent(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not ABSENT}


def _copied(value: Any) -> Any:
    """A copy that shares no list and no dict; ``copy.deepcopy`` takes five times as long."""
    if isinstance(value, dict):
        return {name: _copied(each) for name, each in value.items()}
    return [_copied(each) for each in value] if isinstance(value, list) else value
