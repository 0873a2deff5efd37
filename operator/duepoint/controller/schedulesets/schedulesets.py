"""The service for ScheduleSets: keeps their records in the queue, statuses and rows; deletes them.

It is level-based: lists and the watch name the objects, and ``reconcile`` reads and applies each
one (``setreconcile``) whenever something may have changed: after an edit, at the beginning of a
term, after every comparison of all objects, and whenever the index may lack something, for example
after an emptied Redis or during resharding. In between, only its members are counted and its rows
compared. Anything else that a new leader needs is in the status.

The object gets a finalizer before the queue stores anything of it, and is released once its members
are gone. Members are removed in steps of some hundred, which take a server a few milliseconds; one
set after the other, with a rest after each step for all other commands. A new leader continues
where the former one stopped, because the queue has exactly the members that are left.

If a set in the queue has no object in a complete list, its members stop firing at once, but they
are removed only after ten minutes: members have no second copy, and must survive a restored backup
of the API server or a wrong list.
"""

from __future__ import annotations

import asyncio
import contextlib

import msgspec
import structlog

from duepoint import errors, telemetry
from duepoint.controller import observed, statusconditions
from duepoint.controller.observed import Observed
from duepoint.controller.schedulesets import setreconcile, setstatus
from duepoint.controller.schedulesets.setreconcile import without_spec
from duepoint.controller.schedulesets.setstatus import Durability, FollowedSet
from duepoint.controller.term import TermContext
from duepoint.controller.workqueue import AGAIN, WorkQueue
from duepoint.delayqueue import errors as queue_errors
from duepoint.kube import errors as kube_errors
from duepoint.kube import schedules
from duepoint.schedules import conditions
from duepoint.schedules.conditions import Condition, ConditionType, Reason
from duepoint.schedules.sets.setrecord import SetRecord, SetState

PART = "schedulesets"

#: The rows of a large set take seconds; namespaces take turns.
_WORKERS = 4
#: The time between two counts of a set.
INTERVAL_SECONDS = 10.0
#: A set without an object does not fire, and is removed by a comparison after this.
ORPHAN_SECONDS = 600.0
#: Members removed in one step: 2,000 at a time made concurrent firings three times as late.
STEP_MEMBERS = 300
#: The rest after each step, and how long steps of one set follow each other.
REST_SECONDS = 0.006
_REMOVAL_SECONDS = 1.0
#: An entry in ``_unstored`` while sets are still being listed.
_LIST = "list"


class ScheduleSets:
    """The service; one for each term of a leader."""

    def __init__(self, term: TermContext) -> None:
        self._term = term
        self._states: dict[str, FollowedSet] = {}
        self._tasks: WorkQueue[Observed] = WorkQueue(
            term.clock, "scheduleset not applied", lane=lambda seen: seen.namespace
        )
        #: Taken while members are removed: one set after the other.
        self._removing = asyncio.Lock()
        self._requested = asyncio.Event()
        self._absent_since: dict[str, float] = {}
        self._unstored: set[str] = set()
        self._durability: Durability | None = None

    async def run(self) -> None:
        """Work until cancelled; raises queue_errors.Fenced if there is a newer leader."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._tasks.run(self._handle, _WORKERS))
                # Requested at least with every comparison of Schedules.
                trouble, asked = "schedulesets not compared", self._requested
                await self._term.repeat(
                    PART, self._compare, trouble, asked=asked, every_seconds=None
                )
        finally:
            telemetry.sets_with_lost_members.set(0)  # the next leader sets it

    # -- the interface for other services --------------------------------------------------------

    def observe(self, change: Observed) -> None:
        """Handle a version of an object that the watch shows, without its spec and status."""
        state = self._states.get(change.uid)
        if state is None or change.deleted or change.generation > state.seen.generation:
            self._read_soon(change)  # else only our own status or labels have changed

    async def count_all(self) -> None:
        """Count every set now; raises QueueUnavailable and LayoutChanged."""
        for state in list(self._states.values()):
            if not state.seen.deleted and state.record is not None:
                await setreconcile.count(self._term, state)

    def request(self) -> None:
        """Request a comparison: a change may have been missed, or the index may lack something."""
        self._requested.set()

    def _read_soon(self, seen: Observed) -> None:
        if (state := self._states.get(seen.uid)) is not None:
            state.is_unread = True
        self._tasks.put(seen.uid, seen.without_texts())

    # -- all objects -----------------------------------------------------------------------------

    async def _compare(self) -> None:
        """Queue every object to be read; stop sets in the queue that have no object."""
        self._unstored = {_LIST}
        with contextlib.suppress(errors.TryLater):  # the statuses keep their last values
            durable = await self._term.queue.health.durability()
            self._durability = msgspec.convert(durable, Durability, from_attributes=True)
        held = await self._term.queue.sets.all()
        listed: set[str] = set()
        for namespace in self._term.namespaces or (None,):
            path = schedules.set_collection(namespace)
            async for page in self._term.api.list_pages(path, schedules.ScheduleSet):
                for item in page.items:
                    seen = observed.of_object(item)
                    listed.add(seen.uid)
                    self._unstored.add(seen.uid)
                    self._read_soon(seen)
                await self._term.clock.sleep(0)  # let firing and status writes run between pages
        for uid, state in list(self._states.items()):
            if uid not in listed:
                self._read_soon(state.seen)
        watched, now = self._term.namespaces, self._term.clock.monotonic()
        since, self._absent_since = self._absent_since, {}
        for record in held:
            if record.uid not in listed and (not watched or record.namespace in watched):
                self._absent_since[record.uid] = since.get(record.uid, now)
                await self._stop_orphan(record, now - self._absent_since[record.uid])
        await self._note_stored(_LIST)

    async def _note_stored(self, uid: str) -> None:
        """Record that a set is stored, or all are listed; the last one marks the sets complete."""
        unstored = self._unstored  # a new comparison assigns a new object
        if unstored == {uid} and not self._requested.is_set():
            await self._term.queue.sets.mark_complete(self._term.epoch)
        unstored.discard(uid)

    async def _stop_orphan(self, orphan: SetRecord, absent_seconds: float) -> None:
        """Stop a set that has no object, and remove it later."""
        if orphan.state is SetState.DELETING or absent_seconds >= ORPHAN_SECONDS:
            self._remove_soon(orphan)
        elif orphan.state is not SetState.STALLED:
            telemetry.logger.warning(
                "a set has no object; its members stop now and are removed later",
                set=orphan.place,
                seconds=ORPHAN_SECONDS,
            )
            stalled = msgspec.structs.replace(orphan, state=SetState.STALLED)
            await self._term.queue.sets.store(stalled, b"", self._term.epoch)

    # -- one object ------------------------------------------------------------------------------

    async def _handle(self, change: Observed) -> float | None:
        """Reconcile a set; return seconds until the next time, None = at the next event."""
        with structlog.contextvars.bound_contextvars(set=change.identity):
            try:
                return await self.reconcile(change)
            except queue_errors.Fenced:
                raise
            except queue_errors.LayoutChanged:  # members are being moved to other shards
                if (state := self._states.get(change.uid)) is not None:
                    state.is_unread = True
                await self._term.queue.layouts.read()
                return AGAIN
            except Exception as trouble:
                await self._report_trouble(change.uid, trouble)
                raise

    async def reconcile(  # noqa: C901, PLR0912 - it is read from top to bottom
        self, change: Observed
    ) -> float | None:
        """Read the set if it may have changed; make the queue and its status match it."""
        uid = change.uid
        state, seen = self._states.get(uid), None
        if state is None or state.is_unread:
            item = await schedules.read_set(self._term.api, change.namespace, change.name)
            if item is None or item.metadata.uid != uid:
                self._states.pop(uid, None)
                return await self._remove(change, None, None)
            seen = observed.of_object(item)
            if state is None:
                state = self._states[uid] = setstatus.state_of(seen, self._term.clock.now_us())
            if state.seen.generation != seen.generation:
                state.answer = ()
            state.seen, state.is_unread = seen.without_texts(), False
            if seen.deleted:
                state.is_unread = True
                return await self._remove(seen, state, item)
            if not await schedules.set_finalizer(self._term.api, item):
                state.is_unread = True
                return AGAIN
        state.status.durability = self._durability or state.status.durability

        answer = state.answer
        if seen is not None:
            stored = await self._term.queue.sets.read(seen.namespace, seen.name)
            if stored is not None and stored.uid != uid:
                former = "members of a former ScheduleSet of this name are removed first"
                state.is_unread = True
                await self._publish(state, conditions.reconciling(Reason.PENDING, former))
                self._remove_soon(stored)
                return AGAIN
            answer = await setreconcile.apply(self._term, state, seen, stored)
        await setreconcile.count(self._term, state)

        spec, is_followed = state.spec, True
        is_settled = spec is None or state.accepted == state.seen.generation
        if spec is not None and spec.is_managed:
            if is_settled and not state.follows_rows:
                answer = conditions.reconciling(Reason.PENDING, "the members follow spec.rows")
            await self._publish(state, answer)
            is_followed = await setreconcile.follow(
                self._term, state, None if seen is None else seen.spec
            )
            if is_followed and is_settled:
                answer = setstatus.ready(spec)
        else:
            state.rows_of = None
            if spec is not None:
                state.status.rows, state.rows_wrong = None, ""
        await self._publish(state, answer)
        telemetry.sets_with_lost_members.set(
            sum(one.status.lost is not None for one in self._states.values())
        )
        await self._note_stored(uid)
        if not is_settled:
            state.is_unread = True
            return AGAIN
        return INTERVAL_SECONDS if is_followed and not state.is_unread else AGAIN

    # -- deletion --------------------------------------------------------------------------------

    def _remove_soon(self, record: SetRecord) -> None:
        """Queue the removal of a set whose object is gone."""
        gone = Observed(namespace=record.namespace, name=record.name, uid=record.uid)
        self._tasks.put(record.uid, gone)

    async def _remove(
        self, seen: Observed, state: FollowedSet | None, item: schedules.ScheduleSet | None
    ) -> float | None:
        """Remove members of a deleted set for a second; after the last ones, release its object.

        From the first step on, no member fires or changes.
        """
        record = await self._term.queue.sets.read(seen.namespace, seen.name)
        if record is None or record.uid != seen.uid:  # only shards may still have members
            if state is None:
                return None
            record = without_spec(seen, SetState.DELETING, state.status.spread)
        if self._removing.locked():
            return _REMOVAL_SECONDS
        async with self._removing:
            clock = self._term.clock
            until, removed = clock.monotonic() + _REMOVAL_SECONDS, 0
            while True:
                done = await self._term.queue.set_removals.step(
                    record, self._term.epoch, most=STEP_MEMBERS
                )
                removed += done.removed
                if done.is_done or clock.monotonic() >= until:
                    break
                await clock.sleep(REST_SECONDS)
        await self._note_stored(seen.uid)
        if not done.is_done:
            if state is not None:
                setstatus.count_removed(state, removed, done.left, clock.now_us())
                await self._publish(state, setstatus.deleting(done.left))
            return 0.0
        if item and not await schedules.set_finalizer(self._term.api, item, is_present=False):
            return AGAIN
        self._states.pop(seen.uid, None)
        telemetry.logger.info("scheduleset removed", set=record.place)
        return None

    # -- the status ------------------------------------------------------------------------------

    async def _publish(self, state: FollowedSet, answer: tuple[Condition, ...]) -> None:
        """Set the conditions of the newest generation, and write the status if it has changed."""
        if state.answer != answer:
            state.answer = answer
            shown = {each.get("message") for each in state.published.get("conditions") or ()}
            for one in answer:
                if one.type is ConditionType.STALLED and one.message not in shown:
                    self._term.record(setstatus.event(state, one.reason, one.message))
        fields = setstatus.rendered(
            state, managed_by=self._term.installation, now_us=self._term.clock.now_us()
        )
        if fields == state.published:
            return
        await self._term.take_write()
        with contextlib.suppress(kube_errors.Invalid):  # the schema refuses it; the set goes on
            if await self._term.write_status(state.seen, fields, schedules.SET_PLURAL) is not None:
                state.published = fields

    async def _report_trouble(self, uid: str, trouble: Exception) -> None:
        """Report the error if an edit is not applied yet; otherwise it affects no user."""
        state = self._states.get(uid)
        if state is None or state.seen.deleted:
            return
        state.is_unread = True
        is_refused = any(each.type is ConditionType.STALLED for each in state.answer)
        if state.accepted == state.seen.generation or is_refused:
            return
        with contextlib.suppress(errors.TryLater, kube_errors.ApiError):
            await self._publish(state, statusconditions.not_applied(trouble))
