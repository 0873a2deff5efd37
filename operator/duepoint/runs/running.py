"""The runs of one schedule that have started and have not ended.

Counters and active runs of a status belong to one moment because they change together: a run that
starts is counted and joins this set in one step, and leaves it in the step that counts its end. So
``started`` is always what has ended and what is in here, even if events are late or lost.

A status lists only some of many runs that go on. A process that reads it back knows the others by
their number alone, as ``unlisted``, until an event or an observation names them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

#: What identifies a run: its slot, and what wanted it ("" = its schedule).
Key = tuple[int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """Runs that go on.

    Attributes:
        jobs: by key the name of the run's Job; "" = a delivery.
        unlisted: how many others go on that only their number is known of.
    """

    jobs: Mapping[Key, str] = field(default_factory=dict)
    unlisted: int = 0

    @property
    def count(self) -> int:
        """How many runs go on."""
        return len(self.jobs) + self.unlisted

    def __contains__(self, key: Key) -> bool:
        return key in self.jobs


def key_of(slot_us: int, *, is_regular: bool, wanted_by: str) -> Key:
    """The key of a run.

    Args:
        slot_us: its slot.
        is_regular: whether the schedule itself wanted it: it runs each slot once.
        wanted_by: otherwise the name of its Job, or the uid of the ScheduleRun.
    """
    return (slot_us, "" if is_regular else f"run {wanted_by}")


def begun(running: Running, key: Key, job_name: str = "") -> Running:
    """The run goes on; a name that is known stays known."""
    known = running.jobs.get(key)
    name = job_name or known or ""
    return running if known == name else replace(running, jobs={**running.jobs, key: name})


def recognised(running: Running) -> Running:
    """One of those that only their number was known of has a name now, or has ended."""
    return replace(running, unlisted=max(0, running.unlisted - 1))


def over(running: Running, key: Key) -> Running:
    """The run does not go on."""
    if key not in running.jobs:
        return running
    return replace(
        running, jobs={other: job for other, job in running.jobs.items() if other != key}
    )


#: Nothing goes on.
NONE = Running()
