"""The states of all Schedules, with queries for other services.

Only the reporter changes states; all others query them here. "Published" means in the API server:
the history limits delete Jobs by that alone. Other queries use all that we know, published or not.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping

from duepoint.controller.status import texts
from duepoint.controller.status.state import ScheduleState, adopt_records
from duepoint.controller.status.texts import ActiveSlots
from duepoint.kube import jobs
from duepoint.runs import summary as summaries
from duepoint.runs.run import RunEvent, RunState
from duepoint.schedules.conditions import Reason
from duepoint.schedules.definition import Definition

#: Reads the definition in the queue for (uid, namespace); raises QueueUnavailable.
Definitions = Callable[[str, str], Awaitable[Definition | None]]


class ScheduleStates:
    """States by the uid of their Schedule; one for each term.

    Args:
        records: the records in the ledger when the term began, by uid.
    """

    def __init__(
        self,
        definitions: Definitions,
        records: Mapping[str, Iterable[bytes]],
    ) -> None:
        self._definitions = definitions
        self._records = records
        self._states: dict[str, ScheduleState] = {}

    def __iter__(self) -> Iterator[ScheduleState]:
        """Iterate over a copy of all states, so that the set may change meanwhile."""
        return iter(list(self._states.values()))

    def __contains__(self, uid: str) -> bool:
        return uid in self._states

    def get(self, uid: str) -> ScheduleState | None:
        """Return the state of a Schedule; None = unknown or gone."""
        return self._states.get(uid)

    def add(self, state: ScheduleState) -> bool:
        """Add a newly observed Schedule; return whether the ledger has a record of it."""
        self._states[state.uid] = state
        records = self._records.get(state.uid)
        if records is not None:
            adopt_records(state, records)
        return records is not None

    def remove(self, uid: str) -> None:
        """Remove a Schedule that is gone."""
        self._states.pop(uid, None)

    # -- the Schedule ----------------------------------------------------------------------------

    def owner(self, uid: str) -> jobs.JobOwner | None:
        """Return the Schedule as the controller of its Jobs; None = unknown."""
        state = self._states.get(uid)
        return None if state is None else jobs.JobOwner(state.namespace, state.name, uid)

    async def definition(self, uid: str) -> Definition | None:
        """Return the definition in the queue, read at most once; raises QueueUnavailable."""
        state = self._states.get(uid)
        if state is None:
            return None
        if state.definition is None and not state.holds_nothing and state.conditions is None:
            read = await self._definitions(state.uid, state.namespace)
            if state.conditions is None:  # no report arrived meanwhile
                state.definition = read
        return state.definition

    async def stored(self, state: ScheduleState) -> Definition | None:
        """Read the definition from the queue; raises QueueUnavailable."""
        return await self._definitions(state.uid, state.namespace)

    # -- slots that have ended -------------------------------------------------------------------

    def watermark_us(self, uid: str) -> int:
        """Return the watermark, published or not."""
        state = self._states.get(uid)
        return 0 if state is None else state.runs().settled_us

    def has_ended(self, uid: str, slot_us: int) -> bool:
        """Whether the published status says that a slot has ended for good.

        False if an edit of the timing has passed the slot while a worker still requests its Job:
        the name of that Job must not become free.
        """
        state = self._states.get(uid)
        if state is None:
            return False
        return state.last().watermark.has_ended(slot_us) and not state.is_open(slot_us)

    # -- runs ------------------------------------------------------------------------------------

    def lacks_pods(self, uid: str) -> bool:
        """Whether a Job without Pods was reported for a Schedule."""
        state = self._states.get(uid)
        return state is not None and bool(state.refused_pods)

    def running_jobs(self, namespace: str | None) -> Iterator[RunEvent]:
        """Yield the active runs of all Schedules that have Jobs; None = in all namespaces."""
        for state in self:
            may_run = state.summary is not None or state.may_show_running
            if not may_run or namespace not in (None, state.namespace):
                continue
            for (slot_us, wanted_by), job_name in state.runs().running.items():
                if job_name:
                    yield RunEvent(
                        uid=state.uid,
                        namespace=state.namespace,
                        name=state.name,
                        generation=0,
                        slot_us=slot_us,
                        trigger="Manual" if wanted_by else "Schedule",
                        state=RunState.RUNNING,
                        reason=Reason.RUNNING,
                        at_us=0,
                        job_name=job_name,
                    )

    def published_jobs(self, uid: str) -> frozenset[str]:
        """Return the Jobs of a Schedule that its published status shows as running."""
        state = self._states.get(uid)
        if state is None or not state.may_show_running:
            return frozenset()
        status, last_run = state.last(), state.last().last_run
        others = status.active_slots or ActiveSlots()
        names = set(texts.running(status.active, others, state.name).values())
        names.update(reference.name for reference in status.active)
        if last_run is not None and last_run.outcome == RunState.RUNNING:
            names.add(last_run.job_name)
        return frozenset(names)

    def replacement(self, uid: str, job_name: str) -> str | None:
        """Return why Duepoint deletes a Job in favour of a newer slot; None = it does not."""
        state = self._states.get(uid)
        return None if state is None else state.runs().replacing.get(job_name)

    def is_over(self, event: RunEvent) -> bool:
        """Whether the run of a Job's event is no longer active, as far as we know."""
        state = self._states.get(event.uid)
        if state is None:
            return True
        known = summaries.state_of(state.runs(), event.slot_us, event.trigger, event.job_name)
        return known is not RunState.RUNNING
