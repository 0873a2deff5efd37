"""Every ScheduleSet: its record in the queue, its status, its rows and its deletion.

Level-based: lists and the watch say which objects there are, and each one is read and applied
(``setreconcile``) as often as something may have changed: after an edit, at the beginning of a
term, after every comparison of all objects, and whenever the index may lack something, such as
after an emptied Redis or while it is resharded. What a new leader needs beside that, the status
says.

The object has a finalizer before the queue holds anything of it, and goes once its members are gone
(``setdeletions``). A set in the queue whose object is missing from a complete list is held at once
and removed only after ten minutes: members have no second copy, and a restored backup of the API
server or a wrong list must not cost them.
"""

from __future__ import annotations

import asyncio

import structlog

from duepoint import clock as clocks
from duepoint import errors, telemetry
from duepoint.controller import observed
from duepoint.controller.observed import Observed
from duepoint.controller.schedules.dryruns import DryRuns
from duepoint.controller.schedulesets import setstate, setstatus
from duepoint.controller.schedulesets.setcounts import SetCounts
from duepoint.controller.schedulesets.setdeletions import SetDeletions
from duepoint.controller.schedulesets.setreconcile import SetReconcile
from duepoint.controller.schedulesets.setrows import SetRows
from duepoint.controller.schedulesets.setstate import PART, FollowedSets, SetPublisher
from duepoint.controller.schedulesets.setstatus import (
    DeletionProgress,
    FollowedSet,
    SetNumbers,
    SetReport,
)
from duepoint.controller.term import TermContext
from duepoint.controller.workqueue import AGAIN, WorkQueue
from duepoint.delayqueue import errors as queue_errors
from duepoint.kube import errors as kube_errors
from duepoint.kube import port, schedules
from duepoint.schedules import ownstreams
from duepoint.schedules.conditions import Reason
from duepoint.schedules.sets.setrecord import SetRecord, SetState
from duepoint.schedules.sets.setspec import SetSpec

_WORKERS = 8
#: A set without an object is held, and removed after this.
ORPHAN_SECONDS = 600.0
_ORPHANS_LOOK_SECONDS = 60.0
_MOST_WAIT_SECONDS = 60.0
_STALE_SECONDS = 0.1
#: Stands among the sets that are not stored while they are still listed.
_LIST = "list"
#: What ends a term; a layout that changes is read again.
_ENDS = (queue_errors.Fenced,)


class ScheduleSets:
    """The service; one for each term of a leader."""

    def __init__(
        self, term: TermContext, *, dry_runs: DryRuns, own_streams: ownstreams.OwnStreams
    ) -> None:
        self._term = term
        self.states = FollowedSets()
        self._reconcile = SetReconcile(term, dry_runs=dry_runs, own_streams=own_streams)
        self._publisher = SetPublisher(term, states=self.states, outdated=self._look_again)
        self._counts = SetCounts(
            term,
            states=self.states,
            publisher=self._publisher,
            lost=self._members_lost,
            incomplete=lambda state: self._look_again(state.seen.uid),
        )
        self._deletions = SetDeletions(term, report=self._deletion_went_on, finished=self._release)
        self._rows = SetRows(
            term,
            states=self.states,
            done=self._rows_done,
            missing=lambda state: self._look_again(state.seen.uid),
        )
        self._tasks: WorkQueue[Observed] = WorkQueue(
            term.clock, "scheduleset not applied", ends=_ENDS, most_seconds=_MOST_WAIT_SECONDS
        )
        self._requested = asyncio.Event()
        self._absent_since: dict[str, float] = {}
        self._unstored: set[str] = set()

    async def run(self) -> None:
        """Work until cancelled; raises queue_errors.Fenced where a newer leader has been here."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._tasks.run(self._handle, _WORKERS))
            group.create_task(self._publisher.writer.run())
            group.create_task(self._counts.run())
            group.create_task(self._deletions.run())
            group.create_task(self._rows.run())
            self.request()
            while True:
                wait = _ORPHANS_LOOK_SECONDS if self._absent_since else None
                await clocks.wait_for(self._requested, wait, self._term.clock)
                await self._term.until_done(PART, self._compare, "schedulesets not compared")

    # -- what other services say -----------------------------------------------------------------

    def observe(self, change: Observed) -> None:
        """The watch shows this version of an object, without its texts."""
        state = self.states.get(change.uid)
        if state is not None:
            if state.is_deleting:
                return  # its steps end with a look at the object
            if not change.deleted and change.generation <= state.seen.generation:
                return  # our own status, or labels
        self._tasks.put(change.uid, change)

    async def count_all(self) -> None:
        """Count every set now; raises QueueUnavailable and LayoutChanged."""
        await self._counts.count_all()

    def request(self) -> None:
        """Something may have been missed, or the index may lack something: compare soon."""
        self._requested.set()

    def _look_again(self, uid: str) -> None:
        if (state := self.states.get(uid)) is not None:
            self._tasks.put(uid, state.seen.without_texts())

    # -- all objects -----------------------------------------------------------------------------

    async def _compare(self) -> None:
        """Offer every object; sets of the queue that have none are held."""
        self._requested.clear()
        self._unstored = {_LIST}
        held = await self._term.queue.sets.all()
        listed: set[str] = set()
        for namespace in self._term.namespaces or (None,):
            path = schedules.set_collection(namespace)
            async for page in self._term.api.list_pages(path, schedules.ScheduleSet):
                for item in page.items:
                    seen = observed.of_object(item)
                    listed.add(seen.uid)
                    self._unstored.add(seen.uid)
                    self._tasks.put(seen.uid, seen.without_texts())
                await self._term.clock.sleep(0)  # let firing and statuses in between pages
        for state in self.states:
            if state.seen.uid not in listed:
                self._tasks.put(state.seen.uid, state.seen.without_texts())
        absent = [record for record in held if record.uid not in listed]
        await self._hold_orphans([record for record in absent if self._is_ours(record)])
        await self._stored(_LIST)

    async def _stored(self, uid: str) -> None:
        """This set is stored, or all are listed; after the last of them, say so in the index."""
        unstored = self._unstored  # another comparison begins with another set
        if unstored == {uid} and not self._requested.is_set():
            await self._term.queue.sets.mark_complete(self._term.epoch)
        unstored.discard(uid)

    def _is_ours(self, record: SetRecord) -> bool:
        """Whether the namespace is looked after; sets of others are left alone."""
        return not self._term.namespaces or record.namespace in self._term.namespaces

    async def _hold_orphans(self, orphans: list[SetRecord]) -> None:
        now = self._term.clock.monotonic()
        self._absent_since = {
            record.uid: self._absent_since.get(record.uid, now)
            for record in orphans
            if not self._deletions.is_deleting(record.uid)
        }
        for record in orphans:
            if record.uid not in self._absent_since:
                continue
            is_over = now - self._absent_since[record.uid] >= ORPHAN_SECONDS
            if record.state is SetState.DELETING or is_over:
                await self._remove(record)
            elif record.state is not SetState.STALLED:
                telemetry.logger.warning(
                    "a set has no object; its members are held, and removed later",
                    set=record.place,
                    seconds=ORPHAN_SECONDS,
                )
                await self._reconcile.hold(record)

    async def _remove(self, record: SetRecord) -> None:
        """Remove the members of a set that has no object."""
        deleting = await self._reconcile.mark_deleting(record)
        self._absent_since.pop(record.uid, None)
        self._deletions.begin(deleting, began_us=self._term.clock.now_us())

    # -- one object ------------------------------------------------------------------------------

    async def _handle(self, change: Observed) -> float | None:
        """Read and apply; seconds until the next try, None = it is done."""
        with structlog.contextvars.bound_contextvars(set=change.identity):
            try:
                return await self._store(change)
            except _ENDS:
                raise
            except queue_errors.LayoutChanged:
                await self._term.queue.layouts.read()
                return _STALE_SECONDS
            except kube_errors.ApiError as trouble:  # first: one that is away says "try later", too
                self._report_waiting(change, Reason.API_UNAVAILABLE, str(trouble))
                raise
            except errors.TryLater as trouble:
                self._report_waiting(
                    change, Reason.QUEUE_UNAVAILABLE, f"Redis cannot be asked: {trouble}"
                )
                raise
            except Exception as bug:
                self._report_waiting(
                    change,
                    Reason.INTERNAL_ERROR,
                    f"Duepoint could not apply this generation ({type(bug).__name__}); this is a "
                    "bug, please report it with the operator's log; it is tried again",
                )
                raise

    async def _store(self, change: Observed) -> float | None:
        again = await self._look(change)
        if again != _STALE_SECONDS:
            await self._stored(change.uid)
        return again

    async def _look(self, change: Observed) -> float | None:
        item = await self._read(change)
        if item is None or item.metadata.uid != change.uid:
            await self._vanished(change)
            return None
        seen = observed.of_object(item)
        state = self.states.adopt(seen)
        self._publisher.adopted(seen)
        if seen.deleted:
            await self._delete(state, seen)
            return None
        held = await schedules.hold_set(self._term.api, item)
        if held is not schedules.Held.DONE:
            return _STALE_SECONDS
        return await self._apply(state, seen)

    async def _read(self, change: Observed) -> schedules.ScheduleSet | None:
        """The object; no older state than was seen before, unless it was restored."""
        api, name = self._term.api, change.name
        found = await schedules.read_set(api, change.namespace, name, not_before=change.version)
        state = self.states.get(change.uid)
        if found is None or state is None or port.version_of(found.metadata) >= state.seen.version:
            return found
        return await schedules.read_set(api, change.namespace, name)

    async def _apply(self, state: FollowedSet, seen: Observed) -> float | None:
        applied = await self._reconcile.apply(
            seen, spread=state.spread, is_accepted=state.accepted == seen.generation
        )
        if applied.former is not None:
            if not self._deletions.is_deleting(applied.former.uid):
                await self._remove(applied.former)
            self._report(state, applied.report)
            return AGAIN
        if state.lost is not None and state.lost.generation != seen.generation:
            state.lost = None
        if applied.was_absent and state.members:
            self._counts.note_loss(state, state.members)
        state.counted_since_us = state.counted_since_us or self._term.clock.now_us()
        state.record = applied.record
        state.spec = None if applied.spec is None else applied.spec.without_texts()
        state.spread = applied.report.spread
        if applied.report.is_settled and applied.spec is not None:
            state.accepted = seen.generation
        await self._counts.count(state)
        self._rows.follow(state, anew=applied.was_absent or state.lost is not None)
        is_ready = applied.spec is not None and applied.report.is_settled
        if applied.spec is not None and is_ready and not self._rows.is_equal(state):
            self._report(state, _with_rows(state, applied.spec, applied.report))
        else:
            self._report(state, applied.report)
        return None if applied.report.is_settled else AGAIN

    def _rows_done(self, state: FollowedSet) -> None:
        """The set follows its rows now, or cannot."""
        if state.spec is None or state.spread is None or state.is_deleting:
            return
        self._report(state, setstatus.ready(state.spec, spread=state.spread))
        self._publisher.publish(state, urgent=True)

    def _report(self, state: FollowedSet, report: SetReport) -> None:
        is_new = state.report != report
        if is_new:
            for event in setstate.of_report(state, report):
                self._term.record(event)
        state.report = report
        self._publisher.publish(state, urgent=is_new)

    def _report_waiting(self, change: Observed, reason: Reason, message: str) -> None:
        """Only of a change that is not applied; the others lack nothing that they would see."""
        state = self.states.get(change.uid)
        if state is None or state.is_deleting:
            return
        answered = -1 if state.report is None else state.report.generation
        is_answered = answered >= state.seen.generation and (
            state.report is not None and state.report.is_settled
        )
        if is_answered or state.accepted == state.seen.generation:
            return
        self._report(state, setstatus.waiting(state.seen.generation, reason, message))

    def _members_lost(self, state: FollowedSet) -> None:
        self._term.record(setstate.of_loss(state))
        if state.report is not None:
            self._publisher.publish(state, urgent=True)

    # -- deletion --------------------------------------------------------------------------------

    async def _delete(self, state: FollowedSet, seen: Observed) -> None:
        if self._deletions.is_deleting(seen.uid):
            return
        record = await self._reconcile.begin_deletion(seen, spread=state.spread)
        state.record = record
        self._deletions.begin(record, began_us=self._term.clock.now_us(), state=state)

    async def _vanished(self, change: Observed) -> None:
        """The object is gone: its finalizer was removed by hand, or its deletion is over."""
        self._forget(change.uid)
        if self._deletions.is_deleting(change.uid):
            return
        stored = await self._term.queue.sets.read(change.namespace, change.name)
        if stored is not None and stored.uid == change.uid:
            await self._remove(stored)

    def _deletion_went_on(self, uid: str, progress: DeletionProgress) -> None:
        if (state := self.states.get(uid)) is None:
            return
        is_new = state.deletion is None or state.report is None
        state.deletion = progress
        if progress.left is not None:
            state.members = progress.left
            state.numbers = SetNumbers(members=progress.left)
        state.rows = None
        state.report = setstatus.deleting(state.seen.generation, progress.left)
        self._publisher.publish(state, urgent=is_new)

    async def _release(self, record: SetRecord) -> float | None:
        """Nothing is left of a set: let its object go, and a new one of its name in."""
        item = await schedules.read_set(self._term.api, record.namespace, record.name)
        if item is not None and item.metadata.uid == record.uid:
            if item.metadata.deletion_timestamp is None:
                self._tasks.put(record.uid, observed.of_object(item).without_texts())
            elif await schedules.release_set(self._term.api, item) is schedules.Held.STALE:
                return _STALE_SECONDS
            telemetry.logger.info("scheduleset removed", set=record.place)
        elif item is not None:
            self._tasks.put(item.metadata.uid, observed.of_object(item).without_texts())
        self._forget(record.uid)
        return None

    def _forget(self, uid: str) -> None:
        self.states.forget(uid)
        self._publisher.writer.forget(uid)
        self._counts.forget(uid)
        self._rows.forget(uid)


def _with_rows(state: FollowedSet, spec: SetSpec, report: SetReport) -> SetReport:
    """The same, where rows are to come."""
    if not spec.is_managed or state.spread is None:
        return report
    return setstatus.rows_pending(spec, spread=state.spread)
