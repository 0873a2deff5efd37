"""What a reconcile tells the reporter about one generation of one Schedule.

A report is a full statement: the conditions, what the queue holds now, and how far it moves the
watermark. The reporter turns it into a status; nobody else writes one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from duepoint.controller.sighting import Sighting
from duepoint.runs.settled import Settled
from duepoint.schedules.conditions import Condition
from duepoint.schedules.definition import Definition
from duepoint.schedules.rule import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One generation, looked at.

    Attributes:
        generation: metadata.generation that was looked at.
        is_settled: Ready or Stalled: the generation is accepted or refused. It counts as observed
            either way.
        definition: what the queue holds; None where it holds nothing of this generation.
        target: the target in one line; None leaves the line that is shown.
        settled_us: every slot up to here is none of this generation's; 0 = says nothing.
        missed, skipped: slots that ended without a run by this very change.
        keeps: the history limits of a spec that is refused, where it says any.
        awaits_check: the conditions hold once a worker has found what the spec refers to; until
            then, what its check says holds instead.
    """

    generation: int
    conditions: tuple[Condition, ...]
    is_settled: bool
    definition: Definition | None = None
    target: str | None = None
    settled_us: int = 0
    missed: int = 0
    skipped: int = 0
    awaits_check: bool = False
    keeps: Policy | None = None


class Reports(Protocol):
    """Where reports go."""

    def adopt(self, seen: Sighting) -> None:
        """Take note of an object; its status counts as last written when it is new to us."""
        ...

    def version(self, uid: str) -> int:
        """The newest resourceVersion of the object that was adopted, or written here; 0 = none."""
        ...

    def answered_generation(self, uid: str) -> int:
        """The newest generation that the status shows, or soon will, as accepted or refused.

        -1 = none.
        """
        ...

    def settled(self, uid: str) -> Settled | None:
        """What has ended of its slots as it is known here; None = no more than its status says."""
        ...

    def report(self, uid: str, report: Report) -> None:
        """This is true of the object now."""
        ...

    def held(self, uid: str, definition: Definition) -> None:
        """The queue holds this of the object now; there is nothing else to report."""
        ...

    def went_back(self, seen: Sighting) -> None:
        """The objects were restored: no report of a newer generation is true any more."""
        ...

    def forget(self, uid: str) -> None:
        """The object is gone."""
        ...
