"""What is known of one Schedule: its object as the API server gives it, taken apart once.

Fields that are missing, or that another version wrote, count as absent: any client with the
right may have written a status. Instants in microseconds, 0 = unknown. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from duepoint import errors
from duepoint.controller.status import texts
from duepoint.kube import installation, schedules
from duepoint.runs.history import PastSlot
from duepoint.runs.watermark import Watermark
from duepoint.schedules import diagnosis, slots
from duepoint.schedules.diagnosis import Shown
from duepoint.schedules.spec import ScheduleSpec

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacts:
    """A Job of the Schedule, and why its Pods do not run, where they do not."""

    name: str
    slot_us: int
    is_over: bool
    pod_trouble: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseFacts:
    """The operator's Lease.

    Attributes:
        holder: empty where none leads.
        is_stale: it was not renewed for longer than it lasts.
    """

    holder: str
    renewed_us: int
    is_stale: bool
    state: installation.InstallationState | None = None

    @property
    def leads(self) -> bool:
        return bool(self.holder) and not self.is_stale


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """Who last wrote a field of the spec, and when."""

    by: str
    at_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleFacts:
    """Everything that is known of a Schedule.

    Attributes:
        observed: newest generation that an operator has looked at; -1 = none.
        spec: None where this version cannot read it; ``invalid`` then says why.
        conditions: by type; those that are not True, Ready besides, are left out.
        recent: newest first.
        last_us: slot of the newest started run.
        jobs: None where they may not be read.
        lease: None where it may not be read, or is not named by the status.
        notes: of Events about the Schedule: reason and text, newest first.
        is_deleting: the namespace is being deleted.
    """

    namespace: str
    name: str
    uid: str
    generation: int
    observed: int
    created_us: int
    spec: ScheduleSpec | None
    invalid: str
    conditions: Mapping[str, Shown]
    recent: tuple[PastSlot, ...]
    settled: Watermark
    last_us: int
    next_us: int
    target: str
    managed_by: str
    written: Mapping[str, Written]
    jobs: tuple[JobFacts, ...] | None = None
    lease: LeaseFacts | None = None
    notes: tuple[tuple[str, str], ...] = ()
    is_deleting: bool = False

    @property
    def identity(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def zone(self) -> str:
        return "Etc/UTC" if self.spec is None else self.spec.rule.timing.time_zone

    @property
    def timeline(self) -> slots.Slots | None:
        """The slots as they would be if no suspension held them up."""
        if self.spec is None:
            return None
        timing = msgspec.structs.replace(
            self.spec.rule.timing, suspend=False, suspend_until_us=None
        )
        rule = msgspec.structs.replace(self.spec.rule, timing=timing)
        return slots.for_rule(rule, identity=self.identity, created_us=self.created_us)

    def is_suspended(self, now_us: int) -> bool:
        """Whether no slot runs until it resumes."""
        if self.spec is None:
            return False
        until_us = self.spec.rule.timing.suspend_until_us
        return self.spec.rule.timing.suspend and (until_us is None or until_us > now_us)

    def diagnosis(self, now_us: int) -> diagnosis.Diagnosis:
        """How it stands."""
        return diagnosis.of(
            self.conditions.values(),
            is_current=self.observed >= self.generation,
            is_suspended=self.is_suspended(now_us),
        )

    def known(self, **more: Any) -> ScheduleFacts:  # noqa: ANN401 - fields of this class
        """With further facts."""
        return replace(self, **more)


def of_object(found: Object) -> ScheduleFacts:
    """The facts of a Schedule as the API server gives it."""
    metadata, status = _mapping(found.get("metadata")), _mapping(found.get("status"))
    created_us = texts.instant_us(metadata.get("creationTimestamp"))
    spec, invalid = _spec(found)
    return ScheduleFacts(
        namespace=str(metadata.get("namespace") or ""),
        name=str(metadata.get("name") or ""),
        uid=str(metadata.get("uid") or ""),
        generation=_number(metadata.get("generation"), 0),
        observed=_number(status.get("observedGeneration"), -1),
        created_us=created_us,
        spec=spec,
        invalid=invalid,
        conditions={condition.type: condition for condition in _conditions(status)},
        recent=tuple(texts.shown(status)),
        settled=texts.watermark(status),
        last_us=texts.instant_us(status.get("lastScheduleTime")),
        next_us=texts.instant_us(status.get("nextScheduleTime")),
        target=str(status.get("target") or ""),
        managed_by=str(status.get("managedBy") or ""),
        written=dict(_written(metadata)),
    )


def _spec(found: Object) -> tuple[ScheduleSpec | None, str]:
    try:
        return schedules.spec_of(schedules.item_of(found)), ""
    except errors.InvalidSpec as invalid:
        return None, str(invalid)


def _conditions(status: Object) -> Iterator[Shown]:
    for one in _mappings(status.get("conditions")):
        condition = Shown(
            type=str(one.get("type") or ""),
            status=str(one.get("status") or ""),
            reason=str(one.get("reason") or ""),
            message=str(one.get("message") or ""),
            last_transition_time=str(one.get("lastTransitionTime") or ""),
        )
        if condition.status == "True" or condition.type == "Ready":
            yield condition


def _written(metadata: Object) -> Iterator[tuple[str, Written]]:
    """The newest writer of each field of the spec, from the managed fields."""
    entries = _mappings(metadata.get("managedFields"))
    for entry in sorted(entries, key=lambda entry: str(entry.get("time") or "")):
        fields = _mapping(_mapping(entry.get("fieldsV1")).get("f:spec"))
        writer = Written(
            by=str(entry.get("manager") or ""), at_us=texts.instant_us(entry.get("time"))
        )
        for field in fields:
            yield str(field).removeprefix("f:"), writer


def _mapping(value: object) -> Object:
    return value if isinstance(value, Mapping) else {}


def _mappings(value: object) -> list[Object]:
    listed = value if isinstance(value, list) else []
    return [one for one in listed if isinstance(one, Mapping)]


def _number(value: object, otherwise: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else otherwise
