"""What an API server refuses although the request is well formed.

As much as Duepoint relies on: a Job that Kubernetes could not run, a status that turns back, an
object that is created with a version. Schemas are not known here; ``duepoint run`` checks a
manifest before it stores it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from duepoint.kube import schedules, times
from duepoint.kube.local import paths

#: Their status begins as the CRD's default says.
BORN_UNSEEN = frozenset({schedules.PLURAL, schedules.RUN_PLURAL, schedules.SET_PLURAL})
_RESTARTS = ("Never", "OnFailure")


def check_new(target: paths.NamedObject, document: Mapping[str, Any]) -> None:
    """Raise ApiError for an object that cannot be created."""
    if document["metadata"].get("resourceVersion"):
        message = "resourceVersion should not be set on objects to be created"
        raise paths.refusal(target, 500, "", message)
    if target.resource == "jobs":
        _check_job(target, document)


def _check_job(target: paths.NamedObject, document: Mapping[str, Any]) -> None:
    name = document["metadata"].get("name", "")
    pod = document.get("spec", {}).get("template", {}).get("spec") or {}
    is_right = {
        "restartPolicy": pod.get("restartPolicy") in _RESTARTS,
        "containers": bool(pod.get("containers")),
    }
    for field, right in is_right.items():
        if not right:
            at = f"spec.template.spec.{field}"
            message = f'Job.batch "{name}" is invalid: {at}: Required value'
            cause = {"field": at, "message": "Required value"}
            raise paths.refusal(target, 422, "Invalid", message, [cause])


def _instant_us(text: str | None) -> int:
    """As the schema compares times: a fraction may be there or not."""
    return -1 if text is None else times.parse_us(text)


_MAY_NOT_FALL: dict[str, Callable[[Any], int]] = {
    "observedGeneration": lambda number: -1 if number is None else number,
    "settledThrough": _instant_us,
}


def check_status(target: paths.NamedObject, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    """Raise errors.Invalid for a status that the guards of the CRDs refuse."""
    if target.resource not in BORN_UNSEEN:
        return
    for name, measure in _MAY_NOT_FALL.items():
        if measure(new.get(name)) < measure(old.get(name)):
            message = f"status: Invalid value: {name} may not fall"
            raise paths.refusal(target, 422, "Invalid", message, [{"field": "status"}])
