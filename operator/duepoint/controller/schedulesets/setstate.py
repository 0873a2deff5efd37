"""What a leader knows of each ScheduleSet, and how it is published: as status and as Events.

A state begins with what the status says and is changed by one service after the other; the status
that follows from it is rendered when its turn to be written has come. An answer to an edit, and a
condition that begins or ends, is written at once; numbers follow at most every ten seconds, and
only where they have changed. Problems are Events, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from duepoint.controller.observed import Observed
from duepoint.controller.schedulesets import setstatus
from duepoint.controller.schedulesets.setstatus import (
    FollowedSet,
    SetReport,
)
from duepoint.controller.status.writer import Rendered, StatusWriter
from duepoint.controller.term import TermContext
from duepoint.delayqueue.serverhealth import ServerDurability
from duepoint.kube import schedules
from duepoint.kube.events import Event, ObjectReference
from duepoint.schedules.conditions import Condition, ConditionType, Reason


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
            state = self._states[seen.uid] = setstatus.begun(seen)
        elif seen.version >= state.seen.version:
            state.seen = seen.without_texts()
        return state

    def forget(self, uid: str) -> FollowedSet | None:
        """The object is gone."""
        return self._states.pop(uid, None)


_OF_STALLED = frozenset({Reason.UNKNOWN_TIME_ZONE, Reason.INVALID_JOB_TEMPLATE})


def of_report(state: FollowedSet, report: SetReport) -> Iterator[Event]:
    """What was found in a spec, where the status does not say so already."""
    shown = {
        (str(each.get("type")), str(each.get("message")))
        for each in state.published.get("conditions") or ()
    }
    for condition in report.conditions:
        if condition.type is ConditionType.STALLED:
            reason = (
                condition.reason if condition.reason in _OF_STALLED else Reason.INVALID_SCHEDULE
            )
            if (condition.type.value, condition.message) not in shown:
                yield _event(state, reason, condition.message)


def of_loss(state: FollowedSet) -> Event:
    """Redis lost members."""
    before = 0 if state.lost is None else state.lost.members
    note = f"Redis lost members: there were {before} when they were counted last"
    return _event(state, Reason.MEMBERS_LOST, note)


def of_rows(state: FollowedSet, condition: Condition) -> Event:
    """Rows are wrong, or cannot be used."""
    return _event(state, condition.reason, condition.message)


def _event(state: FollowedSet, reason: Reason, note: str) -> Event:
    seen = state.seen
    return Event(
        regarding=ObjectReference(
            namespace=seen.namespace, name=seen.name, uid=seen.uid, kind=schedules.SET_KIND
        ),
        reason=reason,
        action="Reconcile",
        note=note,
        warning=True,
    )


#: Between two writes of the status of a set of which only numbers change.
INTERVAL_SECONDS = 10.0
PART = "schedulesets"


class SetPublisher:
    """Publishes for the leader of one term; the ``StatusSource`` of a writer.

    Args:
        outdated: called with the uid of a set that a newer writer has written.

    Attributes:
        durability: what the servers promise; None until they were asked.
        writer: its writer; to be run.
    """

    def __init__(
        self, term: TermContext, *, states: FollowedSets, outdated: Callable[[str], None]
    ) -> None:
        self._term = term
        self._states = states
        self._outdated = outdated
        self.durability: ServerDurability | None = None
        self.writer = StatusWriter(term, source=self, part=PART)

    def publish(self, state: FollowedSet, *, urgent: bool = False) -> None:
        """The status has changed; an urgent change is written at once."""
        wait = 0.0
        if not urgent and state.written_at is not None:
            wait = max(0.0, state.written_at + INTERVAL_SECONDS - self._term.clock.monotonic())
        self.writer.changed(state.seen.uid, wait, urgent=urgent)

    def adopted(self, seen: Observed) -> None:
        """The object is followed; the status of a large one is written less often."""
        self.writer.resize(seen.uid, seen.size)

    async def render(self, uid: str) -> Rendered | None:
        state = self._states.get(uid)
        if state is None or state.report is None:
            return None
        fields = setstatus.rendered(
            state,
            durability=self.durability,
            managed_by=self._term.installation,
            now_us=self._term.clock.now_us(),
        )
        if fields == state.published:
            return None
        named = schedules.StatusTarget(
            namespace=state.seen.namespace,
            name=state.seen.name,
            uid=uid,
            plural=schedules.SET_PLURAL,
        )
        return named, fields

    def written(
        self,
        uid: str,
        fields: Mapping[str, Any],
        version: int,  # noqa: ARG002 - of ``StatusSource``
    ) -> None:
        if (state := self._states.get(uid)) is not None:
            state.published = dict(fields)
            state.written_at = self._term.clock.monotonic()

    async def refused(self, uid: str) -> None:
        state = self._states.get(uid)
        if state is None:
            return
        seen = state.seen
        item = await schedules.read_set(self._term.api, seen.namespace, seen.name)
        if item is None or item.metadata.uid != uid:
            return
        state.adopt_published(bytes(item.status))
        self._outdated(uid)

    def next_change_in(self, uid: str) -> float | None:  # noqa: ARG002 - by events only
        return None
