"""What a leader knows of each ScheduleSet in its term, by the uid of the object.

A state begins with what the status says and is changed by one service after the other; the status
that follows from it is rendered when its turn to be written has come.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from duepoint.controller.observed import Observed
from duepoint.controller.schedulesets import setstatus
from duepoint.controller.schedulesets.setreports import SetReport
from duepoint.controller.schedulesets.setstatus import (
    DeletionProgress,
    Lost,
    RowsProgress,
    SetNumbers,
)
from duepoint.runs.run import NONE_ENDED, SetTally
from duepoint.schedules.sets import setspec
from duepoint.schedules.sets.setrecord import SetRecord


@dataclass(slots=True, kw_only=True)
class FollowedSet:
    """One set.

    Attributes:
        seen: the newest state of the object that was read, without its texts: with them, two
            hundred sets of one author would fill the operator's memory.
        published: the status that the API server has, as far as is known.
        report: the answer to the newest generation that was applied; None = none was yet.
        record: what the queue holds.
        spec: what is kept of the accepted spec; None where it is refused or was not looked at.
        members: when they were counted last, in this term or before; None = never.
        tally: how slots of its members have ended, the newest reading of counters that never fall.
        counted_since_us: when counting that began; 0 = it has not.
        spread, accepted: as the newest answer has them; from the status at first.
        written_at: when the status was written last, on the monotonic clock.
    """

    seen: Observed
    published: dict[str, Any] = field(default_factory=dict)
    report: SetReport | None = None
    record: SetRecord | None = None
    spec: setspec.SetSpec | None = None
    numbers: SetNumbers | None = None
    members: int | None = None
    tally: SetTally = NONE_ENDED
    counted_since_us: int = 0
    lost: Lost | None = None
    deletion: DeletionProgress | None = None
    rows: RowsProgress | None = None
    spread: int | None = None
    accepted: int = -1
    written_at: float | None = None

    @property
    def is_deleting(self) -> bool:
        return self.deletion is not None

    def adopt_published(self, status: bytes) -> None:
        """A newer writer may have published this status."""
        self.published = _decoded(status)
        self.tally = self.tally.newest(setstatus.read(self.published).tally)


class FollowedSets:
    """The states of all sets that have an object."""

    def __init__(self) -> None:
        self._states: dict[str, FollowedSet] = {}

    def __iter__(self) -> Iterator[FollowedSet]:
        return iter(list(self._states.values()))

    def __len__(self) -> int:
        return len(self._states)

    def get(self, uid: str) -> FollowedSet | None:
        return self._states.get(uid)

    def adopt(self, seen: Observed) -> FollowedSet:
        """The state of this object, with it as the newest that was seen."""
        state = self._states.get(seen.uid)
        if state is None:
            state = self._states[seen.uid] = _begun(seen)
        elif seen.version >= state.seen.version:
            state.seen = seen.without_texts()
        return state

    def forget(self, uid: str) -> FollowedSet | None:
        """The object is gone."""
        return self._states.pop(uid, None)


def _decoded(status: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(status, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        return {}


def _begun(seen: Observed) -> FollowedSet:
    published = _decoded(seen.status)
    status = setstatus.read(published)
    return FollowedSet(
        seen=seen.without_texts(),
        published=published,
        members=status.members,
        tally=status.tally,
        counted_since_us=status.counted_since_us,
        lost=status.lost,
        deletion=status.deletion,
        spread=status.spread,
        accepted=status.accepted_generation,
    )
