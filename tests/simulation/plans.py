"""Values that describe a story and what its users ask for; nothing here plays them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.simulation import receiver
from tests.simulation.faults import Event

#: Monotonic clocks do not begin at zero.
BEGIN_US = 1_000_000_000

JOB_TEMPLATE = {
    "spec": {
        "template": {
            "spec": {
                "containers": [{"name": "main", "image": "example.com/report:1"}],
                "restartPolicy": "Never",
            }
        }
    }
}
TARGETS = ("job", "webhook", "stream")


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A Schedule of a story, or a member of a ScheduleSet.

    Attributes:
        name: of a Schedule; ``SET/ID`` is a member. The members of a set have one target.
        target: one of ``TARGETS``.
        timing: fields of the spec.
    """

    name: str
    target: str
    timing: Mapping[str, Any]
    apply_seconds: float = 5.0

    @property
    def set_name(self) -> str:
        """Return the set of a member; empty for a Schedule."""
        return self.name.partition("/")[0] if "/" in self.name else ""

    @property
    def member_id(self) -> str:
        return self.name.partition("/")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """An installation's Schedules, the events that hit it, and how long it is played.

    Attributes:
        seconds: how long it goes on after the begin; less if the last event was early.
        calm_seconds: events of later messages do not happen, and the history goes on for
            ``seconds - calm_seconds`` after the last one.
        job_seconds: how long each Job runs.
        answers: number of a request to the receiver -> status.
    """

    schedules: Sequence[Planned]
    seconds: float
    calm_seconds: float = float("inf")
    operators: int = 2
    workers: int = 2
    job_seconds: float = 2.0
    answers: Mapping[int, int] = field(default_factory=dict)
    events: Sequence[Event] = ()

    @property
    def sets(self) -> Mapping[str, str]:
        """Return the target of each ScheduleSet, by name."""
        return {each.set_name: each.target for each in self.schedules if each.set_name}


@dataclass(frozen=True, slots=True)
class Wish:
    """What a user wants from this instant on; ``spec`` None = to be deleted.

    Attributes:
        ready_us: when the status first called this generation Ready, or the HTTP API answered;
            None = never.
    """

    at_us: int
    uid: str
    generation: int
    spec: Mapping[str, Any] | None
    ready_us: int | None = None


@dataclass(frozen=True, slots=True)
class ManualRun:
    """A ScheduleRun that a user created.

    Attributes:
        schedule: the name of its Schedule, whose uid at that time is ``uid``.
        slots: of a backfill, the range; None = a trigger, whose slot is its creation.
    """

    name: str
    schedule: str
    uid: str
    at_us: int
    slots: tuple[int, int] | None = None


def target_of(name: str, target: str) -> Mapping[str, Any]:
    """Return the target fields of the spec of a Schedule or set with this name."""
    match target:
        case "job":
            return {"jobTemplate": JOB_TEMPLATE}
        case "webhook":
            return {"webhook": {"url": receiver.URL}}
        case "stream":
            return {"stream": {"name": stream_of(name)}}
    raise ValueError(target)


def stream_of(name: str) -> str:
    """Return the stream that a Schedule or set with this name writes to."""
    return f"ticks-{name}"
