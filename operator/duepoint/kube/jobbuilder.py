"""Builds the Job of a slot from the template of its Schedule and its facts.

The name consists of the Schedule's name and the slot, so that the API server itself refuses a
second Job. The slot's facts are annotations of the Pod, once, and each container gets variables
that refer to them. A template of any shape gives a Job that the API server can accept or refuse.
Pure; the result shares parts of the template, but changes none.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from duepoint import errors as base
from duepoint.kube import schedules, times
from duepoint.schedules import points
from duepoint.schedules.conditions import Reason

SCHEDULE_LABEL = "duepoint.dev/schedule"
#: Jobs of a set's members have this label instead, and the member's id as an annotation.
SET_LABEL = "duepoint.dev/scheduleset"
MEMBER = "duepoint.dev/member"
SCHEDULED_TIME = "duepoint.dev/scheduled-time"
PREVIOUS_TIME = "duepoint.dev/previous-time"
TRIGGER = "duepoint.dev/trigger"
PAYLOAD = "duepoint.dev/payload"
TRACEPARENT = "duepoint.dev/traceparent"
#: The annotation that tools for CronJobs read (KEP-4026).
CRONJOB_SCHEDULED_TIMESTAMP = "batch.kubernetes.io/cronjob-scheduled-timestamp"

#: Environment variables, with the annotation of the Pod that has their value.
ENVIRONMENT = {
    "DUEPOINT_SCHEDULED_TIME": SCHEDULED_TIME,
    "DUEPOINT_PREVIOUS_TIME": PREVIOUS_TIME,
    "DUEPOINT_TRIGGER": TRIGGER,
    "DUEPOINT_PAYLOAD": PAYLOAD,
}
#: With tracing, also the variable that OpenTelemetry's SDKs take their parent span from.
_TRACED_ENVIRONMENT = ENVIRONMENT | {"TRACEPARENT": TRACEPARENT}

#: A finished Job is the proof that its slot ran: it must outlive the longest redelivery.
MINIMUM_TTL_SECONDS = 600
#: Most bytes in the keys and values of an object's annotations (TotalAnnotationSizeLimitB).
ANNOTATIONS_LIMIT_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotFacts:
    """The facts of a slot that its Job shows, beside the payload.

    Attributes:
        namespace, name, uid: of the Schedule; of a member, its id and uid.
        slot_us: the slot, in microseconds since the epoch. It is part of a Job's name, so one with
            a Job is in whole seconds.
        previous_us: the slot before this one; None if there is none.
        trigger: ``Schedule``, ``CatchUp``, ``Manual`` or ``Backfill``.
        time_zone: IANA name of the Schedule's zone.
        run_uid: uid of the ScheduleRun; empty for regular slots.
        owner: the set whose member fires.
        traceparent: W3C context of the attempt's span, to pass on; empty if traces are off.
    """

    namespace: str
    name: str
    uid: str
    slot_us: int
    previous_us: int | None
    trigger: str
    time_zone: str
    run_uid: str = ""
    owner: points.SetIdentity | None = None
    traceparent: str = ""


def job_name(facts: SlotFacts) -> str:
    """Return the only name that this slot's Job can have; at most 63 characters."""
    if facts.owner is not None:
        return _member_job_name(facts, facts.owner)
    return name_of(facts.name, facts.slot_us, facts.run_uid)


def _member_job_name(facts: SlotFacts, owner: points.SetIdentity) -> str:
    """Return the name of a member's Job, with a hash of its id, which may be invalid in a name."""
    member = hashlib.sha256(facts.uid.encode()).hexdigest()[:16]
    prefix = f"{owner.name[:24].rstrip('.')}-{member}-{facts.slot_us // 1_000_000}"
    if not facts.run_uid:
        return prefix
    return f"{prefix}-{hashlib.sha256(facts.run_uid.encode()).hexdigest()[:10]}"


def name_of(schedule_name: str, slot_us: int, run_uid: str = "") -> str:
    """Return the name of a slot's Job; ``run_uid`` is the uid of a ScheduleRun or empty."""
    seconds = slot_us // 1_000_000
    if not run_uid:
        return f"{schedule_name}-{seconds}"
    digest = hashlib.sha256(run_uid.encode()).hexdigest()[:10]
    return f"{cut_name(schedule_name)}-{seconds}-{digest}"


def cut_name(schedule_name: str) -> str:
    """Return a Schedule's name, cut to fit into the name of a ScheduleRun's Job."""
    # The cut may leave a dot at the end, and a part of a name must not begin with "-".
    return schedule_name[:41].rstrip(".")


def job_for(
    template: Mapping[str, Any],
    facts: SlotFacts,
    payload: bytes = b"",
    *,
    has_variables: bool = True,
) -> dict[str, Any]:
    """Return the Job to create for a slot from the Schedule's ``spec.jobTemplate``.

    With ``has_variables=False`` it lacks our variables: then the API server's errors name the
    author's variables by their places in the template. The payload is JSON text, or empty.

    Raises errors.InvalidSpec if the annotations exceed 256 KiB, which no Job may have.
    """
    metadata = _mapping(template.get("metadata"))
    member = None if facts.owner is None else facts.name
    ours = {
        SCHEDULED_TIME: times.time_text(facts.slot_us),
        TRIGGER: facts.trigger,
        CRONJOB_SCHEDULED_TIMESTAMP: times.time_text_in(facts.slot_us, facts.time_zone),
        MEMBER: member,
        TRACEPARENT: facts.traceparent or None,
    }
    path = "spec.jobTemplate.metadata.annotations"
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": job_name(facts),
            "namespace": facts.namespace,
            "labels": _mapping(metadata.get("labels")) | _label(facts),
            "annotations": _annotations(metadata.get("annotations"), ours, path),
            "ownerReferences": [_owner(facts)],
        },
        "spec": _job_spec(
            _mapping(template.get("spec")), facts, payload, has_variables=has_variables
        ),
    }


def _label(facts: SlotFacts) -> dict[str, str]:
    if facts.owner is None:
        return {SCHEDULE_LABEL: facts.name}
    return {SET_LABEL: facts.owner.name}


def _owner(facts: SlotFacts) -> dict[str, Any]:
    kind, name, uid = schedules.KIND, facts.name, facts.uid
    if facts.owner is not None:
        kind, name, uid = schedules.SET_KIND, facts.owner.name, facts.owner.uid
    return {
        "apiVersion": schedules.API_VERSION,
        "kind": kind,
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": False,  # True would need rights on the owner's finalizers
    }


#: Our annotations: the author's values for them are dropped, even if we set none.
_OUR_KEYS = frozenset(
    {
        SCHEDULED_TIME,
        PREVIOUS_TIME,
        TRIGGER,
        PAYLOAD,
        MEMBER,
        TRACEPARENT,
        CRONJOB_SCHEDULED_TIMESTAMP,
    }
)


def _annotations(authored: object, ours: dict[str, str | None], path: str) -> dict[str, Any]:
    """Return the author's annotations and ours; raises errors.InvalidSpec if they are too long."""
    annotations = {key: text for key, text in _mapping(authored).items() if key not in _OUR_KEYS}
    annotations |= {key: text for key, text in ours.items() if text is not None}
    size = sum(len(key.encode()) + len(str(text).encode()) for key, text in annotations.items())
    if size <= ANNOTATIONS_LIMIT_BYTES:
        return annotations
    message = f"annotations, payload included, are {size} bytes; they must stay under 256 KiB"
    field = base.FieldError(reason=Reason.INVALID_JOB_TEMPLATE, path=path, message=message)
    raise base.InvalidSpec((field,))


def _job_spec(
    spec: dict[str, Any], facts: SlotFacts, payload: bytes, *, has_variables: bool
) -> dict[str, Any]:
    ttl = spec.get("ttlSecondsAfterFinished")
    if isinstance(ttl, int) and 0 <= ttl < MINIMUM_TTL_SECONDS:
        spec["ttlSecondsAfterFinished"] = MINIMUM_TTL_SECONDS
    pod = _mapping(spec.get("template"))
    metadata = _mapping(pod.get("metadata"))
    ours = {
        SCHEDULED_TIME: times.time_text(facts.slot_us),
        TRIGGER: facts.trigger,
        PREVIOUS_TIME: None if facts.previous_us is None else times.time_text(facts.previous_us),
        PAYLOAD: bytes(payload).decode(errors="replace") or None,
        TRACEPARENT: facts.traceparent or None,
    }
    path = "spec.jobTemplate.spec.template.metadata.annotations"
    pod["metadata"] = metadata | {
        "annotations": _annotations(metadata.get("annotations"), ours, path)
    }
    environment = _TRACED_ENVIRONMENT if facts.traceparent else ENVIRONMENT
    pod_spec = pod["spec"] = _mapping(pod.get("spec"))
    for field in ("initContainers", "containers") if has_variables else ():
        if isinstance(containers := pod_spec.get(field), list):
            pod_spec[field] = [_with_environment(each, environment) for each in containers]
    spec["template"] = pod
    return spec


def _with_environment(container: object, environment: Mapping[str, str]) -> object:
    """Add our variables first, so that the container's own variables may refer to them."""
    if not isinstance(container, Mapping):
        return container  # the API server will report the error
    own = container.get("env") or []
    if not isinstance(own, list):
        return container
    defined = {entry.get("name") for entry in own if isinstance(entry, Mapping)}
    ours = [
        _variable(name, annotation)
        for name, annotation in environment.items()
        if name not in defined
    ]
    return {**container, "env": [*ours, *own]}


def _variable(name: str, annotation: str) -> dict[str, Any]:
    field = {"apiVersion": "v1", "fieldPath": f"metadata.annotations['{annotation}']"}
    return {"name": name, "valueFrom": {"fieldRef": field}}


def _mapping(value: object) -> dict[str, Any]:
    """Return a shallow copy to change; {} for null, absent and anything that is not an object."""
    return dict(value) if isinstance(value, Mapping) else {}
