"""The reconciler of ScheduleRuns: enqueues their slots, a few at a time, and keeps their statuses.

``reconcile`` handles one ScheduleRun: it reads the Schedule's definition from the queue, takes the
next steps, and leaves the verdict for the status. It runs again whenever something may have
changed.

An enqueued slot is an occurrence that is due at once and carries the ScheduleRun's uid and
overrides. The script that enqueues slots also stores the ScheduleRun's progress in the ledger, and
the script that removes outcomes from their stream stores it with these counted. So a record knows
of every slot that may be in the queue, whoever leads, until a status shows the same. Of the two,
the one that has counted more is newer.

After a change of leader, an enqueue without an answer, or a list of all objects, it is *in doubt*
which open slots are in the queue. ``_recover`` then reads, in this order: the occurrences in the
queue, every outcome reported so far, the Jobs. A slot that is in none of them was lost with the
index, or never enqueued, and is enqueued again. In any other order, a slot that ends meanwhile
would be missed in both places, and would run twice.

From the first slot on, a ScheduleRun belongs to one Schedule; record and status name its uid. No
slot waits for a status. A Job stays in the history until the status shows its end.
"""

from __future__ import annotations

import asyncio
import re

import msgspec

from duepoint.controller import observed
from duepoint.controller.observed import Observed
from duepoint.controller.scheduleruns import runstate, runstatus
from duepoint.controller.scheduleruns.runstate import ScheduleRunState
from duepoint.controller.status import folding
from duepoint.controller.term import TermContext
from duepoint.controller.workqueue import AGAIN, WorkQueue
from duepoint.delayqueue import messages, sharding
from duepoint.delayqueue.definitions import records
from duepoint.kube import errors as kube_errors
from duepoint.kube import jobs, schedules
from duepoint.runs.run import RunEvent
from duepoint.schedules import conditions, manualruns, points
from duepoint.schedules.conditions import Reason
from duepoint.schedules.definition import Definition
from duepoint.schedules.manualruns import Trigger, Wanted

PART = "scheduleruns"

_WORKERS = 8
#: The wait between two reads of a Schedule that is missing or not in the queue; an event causes an
#: earlier one.
_ABSENT_SECONDS = 60.0
#: The least time between two status writes of a ScheduleRun in runstatus.
_INTERVAL_SECONDS = 1.0
#: The end of the name of a ScheduleRun's Job: slot, and ten hexadecimal digits.
_JOB_OF_A_RUN = re.compile(r"-\d+-[0-9a-f]{10}$")


class ScheduleRuns:
    """The service; one for each term of a leader.

    Attributes:
        listed: set once every ScheduleRun was listed; no outcome is read before.
    """

    def __init__(self, term: TermContext) -> None:
        self._term = term
        self._definitions = term.services.reconciler.stored
        self._outcomes = term.services.outcomes
        self._runs: dict[str, ScheduleRunState] = {}
        #: By namespace and name of the Schedule, and the digest at the end of its Jobs' names.
        self._of_schedules: dict[tuple[str, str], dict[str, ScheduleRunState]] = {}
        #: Set while slots of deleted ScheduleRuns may be in the queue, as when a term begins.
        self._unwanted = asyncio.Event()
        #: Deleted since the last list: an object read before that may still arrive.
        self._gone: set[str] = set()
        self._tasks: WorkQueue[Observed] = WorkQueue(term.clock, "schedulerun not looked at")
        self._requested = asyncio.Event()
        self.listed = asyncio.Event()

    async def run(self) -> None:
        """Work until cancelled; raises queue_errors.Fenced if there is a newer leader."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._work())
            trouble, asked = "scheduleruns cannot be listed", self._requested
            await self._term.repeat(PART, self._list, trouble, asked=asked, every_seconds=None)

    async def _work(self) -> None:
        await self.listed.wait()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._tasks.run(self._handle, _WORKERS))
            trouble, asked = "slots of deleted scheduleruns not withdrawn", self._unwanted
            await self._term.repeat(PART, self._withdraw, trouble, asked=asked, every_seconds=None)

    # -- the interface for other services --------------------------------------------------------

    def observe(self, seen: Observed) -> None:
        """Handle a version of a ScheduleRun that the watch shows, without its texts.

        A deletion takes effect at once. A change of a known run is ignored: it is our own status
        write. A new one is queued to be read.
        """
        if seen.deleted:
            self._remove(seen.uid)
        elif seen.uid not in self._runs:
            self._tasks.put(seen.uid, seen)

    def event(self, event: RunEvent) -> None:
        """Handle an event of a slot."""
        run, slot_us = self._of_event(event)
        if run is None or run.published.ended_us is not None:
            return
        if event.job_uid:  # from the watch; a Job belongs to runs of its own Schedule only
            owner = jobs.JobOwner(event.namespace, event.name, event.uid)
            if owner != run.owner():
                return
        if slot_us != event.slot_us:  # the Job's annotation may name another slot
            event = msgspec.structs.replace(event, slot_us=slot_us)
        if runstatus.applied(run.course, event):
            self._check_soon(run)

    def record(self, event: RunEvent) -> tuple[str, bytes]:
        """Return the uid and the ledger's record of the event's ScheduleRun; empty = no such."""
        run, _ = self._of_event(event)
        return ("", b"") if run is None else (run.seen.uid, runstatus.pack(run.course))

    def schedule_changed(self, seen: Observed) -> None:
        """Reconcile the runs of a Schedule that was stored in the queue or removed from it."""
        for run in self._of_schedules.get((seen.namespace, seen.name), {}).values():
            self._check_soon(run)

    def keeps(self, owner: jobs.JobOwner, job_name: str) -> bool:
        """Whether a finished Job must stay: no published status shows how its run ended."""
        run, slot_us = self._of_job(owner.namespace, owner.name, job_name)
        return run is not None and not runstate.shows_end(run, slot_us)

    def request(self) -> None:
        """List and reconcile all ScheduleRuns again: slots or objects may have been lost."""
        self._requested.set()

    # -- listing and following -------------------------------------------------------------------

    async def _list(self) -> None:
        before, listed = set(self._runs), dict[str, schedules.ScheduleRun]()
        for namespace in self._term.namespaces or (None,):
            path = schedules.collection(namespace, plural=schedules.RUN_PLURAL)
            async for page in self._term.api.list_pages(path, schedules.ScheduleRun):
                listed |= {item.metadata.uid: item for item in page.items}
                await self._term.clock.sleep(0)  # other tasks go on between pages
        for uid in before - listed.keys():
            self._remove(uid)
        for item in listed.values():
            self._add(item)
        self._gone.clear()
        for run in self._runs.values():
            if run.published.ended_us is None and run.course.open:
                run.is_doubtful = True
                self._check_soon(run)
        self.listed.set()

    def _add(self, item: schedules.ScheduleRun) -> None:
        """Follow this object, unless it is followed already."""
        seen = observed.of_object(item)
        if seen.deleted or seen.uid in self._gone:
            self._remove(seen.uid)
        elif seen.uid not in self._runs:
            run = runstate.run_of(seen, self._outcomes.found.pop(seen.uid, ()))
            self._runs[seen.uid] = run
            self._of_schedules.setdefault(run.schedule_key, {})[_digest(run)] = run
            self._check_soon(run)

    def _remove(self, uid: str) -> None:
        self._gone.add(uid)
        if (run := self._runs.pop(uid, None)) is None:
            return
        del self._of_schedules[run.schedule_key][_digest(run)]
        if not self._of_schedules[run.schedule_key]:
            del self._of_schedules[run.schedule_key]
        self._outcomes.shown(uid)
        if run.published.ended_us is None:
            self._unwanted.set()

    def _of_event(self, event: RunEvent) -> tuple[ScheduleRunState | None, int]:
        """Return the ScheduleRun that requested an event's slot, and that slot."""
        if event.run_uid:
            return self._runs.get(event.run_uid), event.slot_us
        return self._of_job(event.namespace, event.name, event.job_name)

    def _of_job(
        self, namespace: str, schedule: str, job_name: str
    ) -> tuple[ScheduleRunState | None, int]:
        """Return the ScheduleRun whose Job can have this name, and its slot."""
        if _JOB_OF_A_RUN.search(job_name) is None:
            return None, 0
        _, seconds, digest = job_name.rsplit("-", 2)
        runs, slot_us = self._of_schedules.get((namespace, schedule), {}), int(seconds) * 1_000_000
        run = runs.get(digest)
        is_its_own = run is not None and run.job_name(slot_us) == job_name
        return (run, slot_us) if is_its_own else (None, 0)

    # -- one ScheduleRun -------------------------------------------------------------------------

    def _check_soon(self, run: ScheduleRunState) -> None:
        self._tasks.put(run.seen.uid, run.seen)

    async def _handle(self, seen: Observed) -> float | None:
        uid = seen.uid
        if uid not in self._runs:
            item = await schedules.read_run(
                self._term.api, seen.namespace, seen.name, not_before=seen.version
            )
            if item is not None and item.metadata.uid == uid:
                self._add(item)
        run = self._runs.get(uid)
        if run is None or run.published.ended_us is not None:
            return None if run is None else await self._expire(run)
        try:
            waits = [await self.reconcile(run)]
        finally:
            if uid not in self._runs:  # it was deleted meanwhile
                self._unwanted.set()
        if self._runs.get(uid) is run:
            waits.append(await self._publish(run))
        return min((wait for wait in waits if wait is not None), default=None)

    async def reconcile(self, run: ScheduleRunState) -> float | None:
        """Take the next steps; return seconds until the next reconcile.

        None = not before the next event.
        """
        if (wanted := run.wanted) is None:
            return None
        run.verdict = None
        known = await self._find(run, wanted)
        if not isinstance(known, Definition):
            run.verdict = known
            return None if runstatus.has_ended(known) else _ABSENT_SECONDS
        try:
            lost = await self._recover(run, known) if run.is_doubtful else []
            left = manualruns.left(wanted, manualruns.timeline(known), run.course.cursor_us)
            run.planned = run.course.opened + left
            run.verdict = runstate.too_many(wanted, run.course, run.planned)
            if run.verdict is None:
                await self._enqueue(run, wanted, known, lost)
        except BaseException:
            run.is_doubtful = True
            raise
        return None

    async def _find(self, run: ScheduleRunState, wanted: Wanted) -> Definition | runstatus.Verdict:
        """Return its Schedule's definition from the queue, else the verdict that says why not.

        A ScheduleRun that has begun ends with its Schedule, whose slots left the queue with it.
        """
        namespace, name = run.schedule_key
        if run.course.schedule_uid:
            known = await self._definitions(run.course.schedule_uid, namespace)
            if known is not None:
                return known
        found = await schedules.read(self._term.api, namespace, name)
        if found is not None and found.metadata.deletion_timestamp is not None:
            found = None
        has_begun = bool(run.published.schedule_uid) or run.course.opened > 0
        if has_begun and (found is None or found.metadata.uid != run.course.schedule_uid):
            await self._outcomes.catch_up()  # count runs that have ended: later events do not count
            identity = f"{namespace}/{name} (uid {run.course.schedule_uid})"
            return runstatus.cut_off(wanted, identity, run.course, run.planned)
        if found is None:
            run.course.schedule_uid = ""
            message = f"there is no Schedule {namespace}/{name}; it runs once there is one"
            return conditions.reconciling(Reason.SCHEDULE_NOT_FOUND, message)
        generation = found.metadata.generation
        known = await self._definitions(found.metadata.uid, namespace)
        if known is None or known.generation < generation:
            message = f"generation {generation} of Schedule {namespace}/{name} is not in the queue;"
            message += " its own conditions say why"
            return conditions.reconciling(Reason.PENDING, message)
        run.course.schedule_uid = known.uid
        return known

    async def _recover(self, run: ScheduleRunState, known: Definition) -> list[int]:
        """Find out where each open slot is; return lost ones. The order of these steps matters."""
        run.is_doubtful = False  # a new doubt may come meanwhile
        queued = {
            point.slot_us
            for shard in sharding.homes(known.id, self._term.queue.layouts.known())
            for point, run_uid in await self._occurrences(shard, known.id)
            if run_uid == run.seen.uid
        }
        await self._outcomes.catch_up()
        state = self._term.services.states.get(known.uid)
        # If such a Job is gone, the sync of Jobs ends its run.
        followed = set() if state is None else {job for _, job in state.running_jobs()}
        lost = []
        for slot_us, slot in list(run.course.open.items()):
            if slot_us in queued or slot.job_name in followed:
                continue
            job = None
            if known.rule.whole_seconds:
                job = await jobs.find(self._term.api, known.namespace, run.job_name(slot_us))
            is_its_own = job is not None and jobs.is_run_of(job, run.owner())
            if runstate.recover(run, slot_us, job if is_its_own else None):
                lost.append(slot_us)
        return lost

    async def _expire(self, run: ScheduleRunState) -> float | None:
        """Delete an ended ScheduleRun once its time to live is over; return seconds until then."""
        if run.wanted is None or run.wanted.ttl_seconds is None or run.published.ended_us is None:
            return None
        end_us = run.published.ended_us + run.wanted.ttl_seconds * 1_000_000
        left = (end_us - self._term.clock.now_us()) / 1e6
        if left > 0:
            return left
        await schedules.delete_run(self._term.api, run.seen.namespace, run.seen.name, run.seen.uid)
        return None

    # -- the queue -------------------------------------------------------------------------------

    async def _enqueue(
        self, run: ScheduleRunState, wanted: Wanted, known: Definition, lost: list[int]
    ) -> None:
        """Enqueue lost slots and the next ones; raises TryLater or WorldChanged."""
        if isinstance(wanted.slots, Trigger):  # read its payload; a spec never changes
            if run.course.cursor_us is not None and not lost:
                return
            item = await schedules.read_run(self._term.api, run.seen.namespace, run.seen.name)
            if item is None or item.metadata.uid != run.seen.uid:
                return  # the object was deleted; the watch will show that
            wanted = schedules.wanted(bytes(item.spec), created_us=run.seen.created_us)
        async with self._outcomes.turn:  # or an older record may be stored after ours
            still_open = [slot_us for slot_us in lost if slot_us in run.course.open]
            if not (slots_us := still_open + runstate.open_next(wanted, known, run.course)):
                return
            wanted_points = [
                (
                    points.manual(known.id, slot_us, run.seen.uid, wanted.kind),
                    self._record(run.seen.uid, wanted, known, slot_us),
                )
                for slot_us in slots_us
            ]
            homes = sharding.homes(known.id, self._term.queue.layouts.known())
            self._outcomes.place(run.seen.uid, *homes)
            record = run.seen.uid, runstatus.pack(run.course)
            await self._term.queue.occurrences.enqueue_many(
                known, wanted_points, self._term.epoch, ledger=record
            )

    def _record(
        self, run_uid: str, wanted: Wanted, known: Definition, slot_us: int
    ) -> messages.OccurrenceRecord:
        slots = wanted.slots
        concurrency = slots.concurrency if isinstance(slots, Trigger) else ""
        record = messages.OccurrenceRecord(
            trigger=wanted.trigger, run_uid=run_uid, concurrency=concurrency
        )
        if not isinstance(slots, Trigger) or not slots.payload:
            return record
        signed = records.signed_content(record, known.uid, slot_us, slots.payload)
        signature = self._term.queue.signed_blobs.digest(known.namespace, signed)
        return msgspec.structs.replace(record, payload=slots.payload, signature=signature)

    async def _occurrences(
        self, shard: messages.ShardId, of: points.ScheduleId | None = None
    ) -> list[tuple[points.DuePoint, str]]:
        """Return queued points of ScheduleRuns, with the uids of these; raises QueueUnavailable."""
        found = self._term.queue.occurrences.all_occurrences(shard, of)
        return [
            (point, record.run_uid)
            async for point, record in found
            if point.kind in points.RUN_KINDS
        ]

    async def _withdraw(self) -> None:
        """Withdraw the queued slots of ScheduleRuns that are gone; leave running ones alone."""
        queue = self._term.queue
        for shard in sharding.all_shards(queue.layouts.known()):
            for point, run_uid in await self._occurrences(shard):
                if run_uid in self._runs:
                    continue
                found = await queue.definitions.read_definitions(shard, {point.schedule_id})
                for known in found.values():
                    armed = await queue.occurrences.withdraw(known, point, self._term.epoch)
                    if armed is messages.Armed.APPLIED:  # else a worker has claimed it
                        await self._outcomes.catch_up()  # count earlier outcomes of the slot first
                        ended = folding.of_run(
                            jobs.JobOwner(known.namespace, known.name, known.uid),
                            point.slot_us,
                            self._term.clock.now_us(),
                            message="its ScheduleRun was deleted before the delivery was accepted",
                            trigger=point.kind.name.title(),
                            run_uid=run_uid,
                        )
                        self._term.services.reporter.event(ended)

    # -- the status ------------------------------------------------------------------------------

    async def _publish(self, run: ScheduleRunState) -> float | None:
        """Write the status if it has changed; return seconds until the next reconcile, None = none.

        It is written at most once a second while runs progress, and at once after any other change.
        """
        verdict, now = run.current_verdict(), self._term.clock.monotonic()
        counted = runstatus.pack(run.course)
        status = runstatus.rendered(
            verdict,
            run.course,
            planned=run.planned,
            generation=run.seen.generation,
            now_us=self._term.clock.now_us(),
            previous=run.published,
        )
        if status != run.published:
            goes_on = verdict[0].reason in (Reason.RUNNING, Reason.RETRYING)
            rest = run.published_at + _INTERVAL_SECONDS - now
            if goes_on and rest > 0:
                return rest
            if self._term.try_write():
                return _INTERVAL_SECONDS
            run.published_at = now
            fields, plural = msgspec.to_builtins(status), schedules.RUN_PLURAL
            try:
                if await self._term.write_status(run.seen, fields, plural) is None:
                    return None  # the watch will show that the object is gone
            except kube_errors.Invalid:  # another leader may have written: continue from that
                item = await schedules.read_run(self._term.api, run.seen.namespace, run.seen.name)
                if item is not None and item.metadata.uid == run.seen.uid:
                    newer = runstatus.read(bytes(item.status))
                    if newer != run.published:
                        runstate.adopt(run, newer, [runstatus.pack(run.course)])
                return AGAIN
            run.published = status
        if counted == runstatus.pack(run.course):
            self._outcomes.shown(run.seen.uid)
        if run.course.schedule_uid:
            self._term.services.jobs.request(run.course.schedule_uid)
        return 0.0 if run.published.ended_us is not None else None


def _digest(run: ScheduleRunState) -> str:
    return run.job_name(0).rpartition("-")[2]
