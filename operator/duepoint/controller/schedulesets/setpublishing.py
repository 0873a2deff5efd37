"""The statuses of ScheduleSets, published through ``status.writer``.

An answer to an edit, and a condition that begins or ends, is written at once; numbers follow at
most every ten seconds, and only where they have changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from duepoint.controller.observed import Observed
from duepoint.controller.schedulesets import setstatus
from duepoint.controller.schedulesets.followed import FollowedSet, FollowedSets
from duepoint.controller.schedulesets.setstatus import SetFacts
from duepoint.controller.status.writer import Rendered, StatusWriter
from duepoint.controller.term import TermContext
from duepoint.delayqueue.serverhealth import ServerDurability
from duepoint.kube import schedules

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
            SetFacts(
                report=state.report,
                tally=state.tally,
                counted_since_us=state.counted_since_us,
                numbers=state.numbers,
                durability=self.durability,
                lost=state.lost,
                deletion=state.deletion,
                rows=state.rows,
                managed_by=self._term.installation,
            ),
            now_us=self._term.clock.now_us(),
            previous=state.published,
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
