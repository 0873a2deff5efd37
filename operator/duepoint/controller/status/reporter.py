"""The only writer of Schedule statuses, and who tells people of changes.

Reports of the reconciler, events of runs and counts of Jobs come in; guarded patches go out, each
the whole status in its newest state. What changed by an edit is written at once, what changed by
runs within two seconds of the first change and at most every two seconds per object, and all of it
at no more than a global rate. A status that would be the same is not written.

A write that fails is repeated without a read, whatever happened to the first one; a write that
finds another object under the name is dropped; one that the schema's guards refuse comes from a
leader that is behind, is dropped too, and the next sighting of the object is believed instead.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from duepoint import clock as clocks
from duepoint import errors, services, telemetry
from duepoint.clock import Clock
from duepoint.controller.jobs import unended
from duepoint.controller.jobs.podless import PodlessJob
from duepoint.controller.jobs.unended import Unended
from duepoint.controller.maintenance import otherinstalls
from duepoint.controller.schedules import verdicts
from duepoint.controller.schedules.report import Report
from duepoint.controller.sighting import UNKNOWN, Sighting
from duepoint.controller.status import book, news, pace
from duepoint.controller.status.agenda import Agenda, Allowance
from duepoint.controller.status.nextwheel import NextWheel
from duepoint.controller.status.receipts import Receipt
from duepoint.controller.termevents import TermEvents
from duepoint.kube import errors as kube_errors
from duepoint.kube import events as kube_events
from duepoint.kube import jobs, port, status
from duepoint.runs import openslots
from duepoint.runs import summary as summaries
from duepoint.runs.openslots import OpenSlot
from duepoint.runs.run import RunEvent, RunState
from duepoint.runs.running import Running
from duepoint.runs.settled import Settled
from duepoint.schedules.conditions import Reason
from duepoint.schedules.definition import Definition
from duepoint.schedules.rule import Policy

#: A start is held back a little less, so that a run that ends at once costs one write.
_START_SECONDS = 1.8

#: When the rate is not enough, the answer to an edit goes before runs' news younger than this.
_PRECEDENCE_SECONDS = 30.0

#: Ten thousand Schedules are applied within this, or nearly: their answers wait until then.
_APPLYING_SECONDS = 30.0

#: While all objects are listed, it is looked this often whether statuses may be written.
_ARMING_SECONDS = 0.25

#: A Schedule none of whose runs has gone on for so long is idle: its status does not wait longer.
_IDLE_SECONDS = 1.5

#: A status that another writer writes again and again is put right at least this often.
_LONGEST_CORRECTION_SECONDS = 600.0
_MOST_CORRECTIONS = 16

#: A burst of news goes on for as long as further ones come within this.
_STILL_SECONDS = 1.0

#: A slot that stays overdue for another reason shows it within this.
_SAME_TROUBLE_SECONDS = 30.0

#: So many Schedules whose NEXT is past are gone through before others have their turn.
_PASSED_TOGETHER = 100

_PARALLEL_WRITES = 16

#: Reads what the queue holds for (uid, namespace); raises QueueUnavailable.
Definitions = Callable[[str, str], Awaitable[Definition | None]]


class _Line(msgspec.Struct):
    """One object in the reporter's hands.

    Attributes:
        idle_at: since when none of its runs goes on, where that has not been written.
        foreign: the status that was seen last, where it is not the one that we wrote last.
        foreign_due: when that is written over, unless our own is seen before.
        corrections: how often that was done of late, and when last.
    """

    entry: book.Entry
    pace: pace.Pace = pace.Pace()
    changed_at: float | None = None
    idle_at: float | None = None
    foreign: bytes = b""
    foreign_due: float = 0.0
    corrections: tuple[int, float] = (0, 0.0)
    writing: bool = False
    due_after_write: float | None = None
    receipts: tuple[Receipt, ...] = ()
    waits: Iterator[float] | None = None


class Reporter:
    """The service; one for each term of a leader.

    Args:
        is_arming: whether a takeover still lists all objects. No status is written until it has:
            beside 100,000 of them one write costs the API server as much time as a page of it.
    """

    def __init__(
        self,
        *,
        api: port.Api,
        definitions: Definitions,
        clock: Clock,
        health: services.Health,
        events: TermEvents,
        is_arming: Callable[[], bool] = lambda: False,
        writes_per_second: float = 50,
        tell: Callable[[kube_events.News], None] = lambda _news: None,
        managed_by: str = "",
    ) -> None:
        self._api = api
        self._definitions = definitions
        self._clock = clock
        self._health = health
        self._tell = tell
        self._managed_by = managed_by
        self._mark = otherinstalls.mark(managed_by)
        self._allowance = Allowance(writes_per_second, clock.monotonic())
        self._events = events
        self._is_arming = is_arming
        self._lines: dict[str, _Line] = {}
        #: Schedules of which a held point was told, and may be there.
        self._held: set[str] = set()
        self._untold: set[str] = set()
        self._unanswered: set[str] = set()
        self._allowed_at = 0.0
        #: When news of a status that had none came last.
        self._told_at = -_STILL_SECONDS
        self._agenda = Agenda()
        self._nexts = NextWheel()
        self._looks_per_second = max(1, int(writes_per_second / 2))
        self._next_news = asyncio.Event()
        self._news = asyncio.Event()
        self._slots = asyncio.Semaphore(_PARALLEL_WRITES)
        self._pause_until = 0.0

    # -- what is told ----------------------------------------------------------------------------

    def adopt(self, seen: Sighting) -> None:
        line = self._lines.get(seen.uid)
        if line is None:
            line = self._lines[seen.uid] = _Line(
                book.entry_of(seen, self._managed_by, now_us=self._clock.now_us())
            )
            if (until_us := seen.suspended_until_us()) is not None:
                wait_us = max(0, until_us - self._clock.now_us())
                self._look_in(seen.uid, line, max(_START_SECONDS, wait_us / 1e6))
            self._note_next(line)
            return
        if line.entry.is_outdated:
            line.entry.believe(seen.status, self._clock.now_us())
        self._compare(line, seen)
        if line.entry.was_written and self._mark not in seen.status:
            self._events.mark_replaced(seen)

    def _compare(self, line: _Line, seen: Sighting) -> None:
        """A status that somebody else wrote is written over; what we wrote is seen after a while.

        Another writer who does the same finds us ever slower.
        """
        if seen.status == UNKNOWN or book.is_as_written(line.entry, seen.status):
            line.foreign = b""
        elif self._mark not in seen.status and otherinstalls.named(seen.status):
            return  # another installation's, which nobody fights with over it
        elif seen.generation >= line.entry.generation:  # else the object was restored
            now, (count, last) = self._clock.monotonic(), line.corrections
            if now - last > 2 * _LONGEST_CORRECTION_SECONDS:
                line.corrections = count, last = 0, now
            wait = min(pace.STALENESS_SECONDS * 2**count, _LONGEST_CORRECTION_SECONDS)
            line.foreign, line.foreign_due = seen.status, now + wait
            self._look_in(seen.uid, line, wait)

    def _is_overwritten(self, line: _Line) -> bool:
        """Whether somebody else's status is there, and is to be written over now."""
        now = self._clock.monotonic()
        if not line.foreign or now < line.foreign_due:
            return False
        if book.is_as_written(line.entry, line.foreign):
            return False
        line.corrections = min(line.corrections[0] + 1, _MOST_CORRECTIONS), now
        return True

    def answered_generation(self, uid: str) -> int:
        line = self._lines.get(uid)
        return -1 if line is None else line.entry.answered

    def report(self, uid: str, report: Report) -> None:
        line = self._lines.get(uid)
        if line is None:
            return
        is_new = news.has_any(report) and book.is_news(line.entry, report)
        if book.take(line.entry, report):
            book.end_refused(line.entry, self._clock.now_us())
            self._answer(uid, line)
            if is_new:
                self._tell_all(news.of_report(_about(line.entry), report))
            self._refuse_what_is_final(line.entry)

    def held(self, uid: str, definition: Definition) -> None:
        line = self._lines.get(uid)
        if line is not None and line.entry.definition is not None:
            line.entry.definition = definition

    def went_back(self, seen: Sighting) -> None:
        line = self._lines.get(seen.uid)
        if line is not None:
            book.go_back(line.entry, seen.status)

    def forget(self, uid: str) -> None:
        line = self._lines.pop(uid, None)
        self._agenda.drop(uid)
        self._untold.discard(uid)
        self._unanswered.discard(uid)
        if line is not None:
            _settle(line)

    def event(
        self,
        event: RunEvent,
        *,
        replayed: bool = False,
        receipt: Receipt | None = None,
        is_lost: bool = False,
    ) -> None:
        """Something happened to a slot; the receipt is settled once the status tells.

        Told by a lost claim, it counts as a run, and the slot is still somebody else's to end.
        """
        self._events.run_changed(event, receipt)
        line = self._lines.get(event.uid)
        if line is None:
            return  # of a Schedule that is gone
        if event.state is RunState.REPLACING:
            self._events.run_replacing(event, receipt)
            return
        if event.reason == Reason.REDIS_WENT_BACK:
            book.hold(line.entry, event.slot_us)
            self._held.add(event.uid)
            self._events.points_held()
            return
        if event.state is RunState.PENDING:
            if event.run_uid:
                return  # its ScheduleRun tells
            # No receipt: while no status passes the slot, a rebuilt chain begins below it.
            self._put_off(line, event)
            return
        if event.state is RunState.CHECKED:
            self._check(line, event, receipt)
            return
        before = line.entry.runs()
        now_us = self._clock.now_us()
        book.fold(
            line.entry,
            event,
            now_us,
            replayed=replayed,
            by_queue=receipt is not None and not is_lost,
        )
        entry = line.entry
        self._tell_all(news.of_event(_about(entry), event, before, entry.runs()))
        telemetry.replaced_runs_total.inc(entry.runs().counts.replaced - before.counts.replaced)
        if book.is_refused_for_good(entry, event, before):
            self._refuse(entry, verdicts.refused_again_and_again(entry.generation, event.message))
        if receipt is not None:
            receipt.expect()
            line.receipts = (*line.receipts, receipt)
        if not summaries.same_result(before, entry.runs()):
            line.pace = line.pace.hurried()
        running = event.state is RunState.RUNNING
        if event.job_name and book.awaits_dry_run(entry, event.generation):
            self._events.template_proven(event.uid, event.generation)
        if running and event.job_name:
            self._events.run_started(_unended(event))
        self._note_idle(line, before.running.count, entry.runs().running.count)
        self._due_in(event.uid, line, _START_SECONDS if running else self._rest(line))

    def _check(self, line: _Line, event: RunEvent, receipt: Receipt | None) -> None:
        """What a generation refers to was looked at."""
        answered, before = line.entry.answered, line.entry.check
        report = book.note_check(line.entry, event)
        if report is None:
            return  # of an older generation, or nobody waited for it
        if receipt is not None:
            receipt.expect()
            line.receipts = (*line.receipts, receipt)
        if report.generation > answered:
            self._tell_all(news.of_report(_about(line.entry), report))
        self._tell_all(news.of_check(_about(line.entry), event, before))
        self._answer(event.uid, line)
        self._refuse_what_is_final(line.entry)

    def _refuse_what_is_final(self, entry: book.Entry) -> None:
        """Nothing fires of what only an edit mends: the queue is to hold nothing of it."""
        check = entry.check
        if entry.unchecked is None or check is None or check.generation < entry.generation:
            return
        if verdicts.is_final(check):
            self._refuse(entry, verdicts.refused_by_worker(entry.generation, check.message))

    def _refuse(self, entry: book.Entry, refusal: Report) -> None:
        self._events.generation_refused(entry.namespace, entry.name, entry.uid, refusal)

    def _put_off(self, line: _Line, event: RunEvent) -> None:
        entry = line.entry
        before = entry.runs()
        is_news = book.put_off(entry, event, self._clock.now_us())
        if not summaries.same_result(before, entry.runs()):
            self._due_in(event.uid, line, self._rest(line))
        elif is_news and event.reason:
            self._due_in(event.uid, line, max(_START_SECONDS, self._rest(line)))
        elif is_news:  # mostly the slot ends before this, and its end is what is written
            self._look_in(event.uid, line, pace.STEADY_SECONDS)
        if event.reason == Reason.QUOTA_EXCEEDED:
            self._events.status_written(event.uid)  # the history may be what fills the quota
        if event.reason and event.slot_us in entry.open:
            self._look_when_overdue(event.uid, line, event)
            self._tell_all(news.of_event(_about(entry), event, before, entry.runs()))

    def _tell_all(self, told: Iterable[kube_events.News]) -> None:
        for one in told:
            self._tell(one)

    def runs_on(self, event: RunEvent) -> None:
        """The Job of a run is seen to be active: it has started, whatever became of that news."""
        line = self._lines.get(event.uid)
        if line is None or book.is_running(line.entry, event):
            return
        book.fold(line.entry, event, self._clock.now_us(), replayed=True, by_queue=False)
        if book.is_running(line.entry, event):
            self._due_in(event.uid, line, max(_START_SECONDS, self._rest(line)))

    def withdrawn(self, event: RunEvent) -> None:
        """A slot was taken out of the queue: its run, if it had begun, has ended so."""
        line = self._lines.get(event.uid)
        if line is not None and book.is_running(line.entry, event):
            self.event(event)

    def active(self, uid: str, references: tuple[dict[str, Any], ...]) -> None:
        """These Jobs of the Schedule are seen to be active, of many the first by their names."""
        line = self._lines.get(uid)
        if line is None or line.entry.active == references:
            return
        is_shown = bool(line.entry.active) or _shows_active(line.entry)
        line.entry.active = references
        if is_shown:
            self._due_in(uid, line, max(_START_SECONDS, self._rest(line)))

    def jobs_listed(self) -> None:
        """Every Job that exists has been seen."""
        for uid, line in list(self._lines.items()):
            entry = line.entry
            if (entry.summary or entry.may_show_unended) and book.end_unlisted(entry):
                self._due_in(uid, line, self._rest(line))

    def owner(self, uid: str) -> jobs.Owner | None:
        """The Schedule of that uid as the controller of its Jobs; None = it is not known."""
        line = self._lines.get(uid)
        return None if line is None else jobs.Owner(line.entry.namespace, line.entry.name, uid)

    def job_without_slot(self, uid: str, job_name: str, job_uid: str) -> None:
        """A Job says that this Schedule controls it, and names no slot."""
        line = self._lines.get(uid)
        if line is not None:
            about = _about(line.entry)
            self._tell(news.of_job_without_slot(about, job_name, job_uid))

    def pods_refused(self, uid: str, job: PodlessJob | None, message: str) -> None:
        """A Job of the Schedule gets no Pods, for this reason; None: none is without."""
        line = self._lines.get(uid)
        if line is None or line.entry.refused_pods == message:
            return
        line.entry.refused_pods = message
        if job is not None:
            self._tell(news.of_refused_pods(_about(line.entry), job.reference(), message))
        self._due_in(uid, line, max(_START_SECONDS, self._rest(line)))

    def made_again(self, uid: str, job_name: str, job_uid: str) -> None:
        """A Job of the Schedule that was deleted is there again: its slot runs once more."""
        line = self._lines.get(uid)
        if line is not None:
            about = _about(line.entry)
            job = dataclasses.replace(
                about, name=job_name, uid=job_uid, kind="Job", api_version="batch/v1"
            )
            self._tell(news.of_job_made_again(about, job))

    def unended(self, namespace: str | None) -> Iterator[tuple[str, tuple[Unended, ...]]]:
        """By uid the runs of Jobs that are believed to go on; None = everywhere."""
        for uid, line in list(self._lines.items()):
            entry = line.entry
            may_run = entry.summary is not None or entry.may_show_unended
            if may_run and namespace in (None, entry.namespace) and entry.runs().running.jobs:
                yield uid, tuple(_unended_of(entry, entry.runs().running))

    def unended_names(self, uid: str) -> frozenset[str]:
        """The Jobs of a Schedule that its written status shows as running."""
        line = self._lines.get(uid)
        if line is None or not line.entry.may_show_unended:
            return frozenset()
        return frozenset(book.shown_jobs(line.entry))

    def is_over(self, run: Unended) -> bool:
        """Whether nobody believes any more that this run goes on."""
        line = self._lines.get(run.uid)
        if line is None:
            return True
        known = summaries.state_of(line.entry.runs(), run.slot_us, run.trigger, run.job_name)
        return known is not RunState.RUNNING

    def compare_open(self, held: Mapping[str, Collection[OpenSlot]], began_us: int) -> None:
        """The queue holds these open slots and, since before that instant, no others."""
        for uid, line in self._lines.items():
            slots = held.get(uid, ())
            shown = line.entry.shows_overdue
            if not slots and not line.entry.open and not shown:
                continue
            if book.compare_open(line.entry, slots, began_us) or shown:
                self._due_in(uid, line, self._rest(line))
            self._look_at_next_change(uid, line)

    def settled_through(self, uid: str, through_us: int, *, completed: bool) -> None:
        """The queue shows that every slot up to here has ended or is open; or that none is left."""
        line = self._lines.get(uid)
        if line is not None:
            book.settle_through(line.entry, through_us, completed=completed)
            self._due_in(uid, line, self._rest(line))

    def has_open_slots(self) -> bool:
        """Whether any slot is known that has not ended while later ones may have."""
        return any(line.entry.open for line in self._lines.values())

    def has_ended(self, uid: str, slot_us: int) -> bool:
        """Whether a slot has ended for good, by what the API server has.

        Not where an edit of the timing has passed a slot whose Job is still being asked for: that
        Job's name must not become free.
        """
        line = self._lines.get(uid)
        if line is None:
            return False
        return line.entry.settled_written.has_ended(slot_us) and slot_us not in line.entry.open

    def is_told_as_ended(self, uid: str, slot_us: int) -> bool:
        """Whether the API server's status says that a slot has ended."""
        line = self._lines.get(uid)
        return line is not None and line.entry.settled_written.has_ended(slot_us)

    def settled(self, uid: str) -> Settled | None:
        """What has ended as it is known here; None = this process knows no more than the status."""
        line = self._lines.get(uid)
        return None if line is None else line.entry.remembered()

    # -- a server that went back -----------------------------------------------------------------

    def holds(self) -> dict[str, int]:
        return {uid: self._lines[uid].entry.holds for uid in self._held & self._lines.keys()}

    def hold(self, uid: str, from_us: int) -> None:
        """A held point was found in the queue."""
        if (line := self._lines.get(uid)) is not None:
            book.hold(line.entry, from_us)
            self._held.add(uid)
            self._events.points_held()  # what ends it may have looked before

    def end_open(self, ended: Iterable[tuple[str, int]]) -> None:
        """These slots (uid, slot) have ended, and the queue holds no point of them."""
        for uid, slot_us in ended:
            line = self._lines.get(uid)
            if line is not None and book.end_open(line.entry, slot_us):
                self._due_in(uid, line, self._rest(line))

    def end_holds(self, known: dict[str, int]) -> None:
        for uid, told in known.items():
            line = self._lines.get(uid)
            if line is None or line.entry.holds != told:
                continue
            self._held.discard(uid)
            if book.end_hold(line.entry):
                self._due_in(uid, line, self._rest(line))
        self._held &= self._lines.keys()

    def settled_now(self, uid: str) -> Settled | None:
        """What has ended as it is known here, written or not; None = the Schedule is not known."""
        line = self._lines.get(uid)
        return None if line is None else line.entry.settled()

    def knows_end(self, uid: str, slot_us: int, *, of_job: bool) -> bool:
        """Whether a regular slot has ended though the watermark may not say so."""
        line = self._lines.get(uid)
        return line is not None and book.knows_end(line.entry, slot_us, of_job=of_job)

    def started(self, uid: str) -> int:
        """How many regular runs have started."""
        line = self._lines.get(uid)
        return 0 if line is None else line.entry.runs().counts.regular

    def refused_keeps(self, uid: str) -> Policy | None:
        """The history limits of a Schedule that is refused; None = it is not, or not known."""
        line = self._lines.get(uid)
        return line.entry.keeps if line is not None and line.entry.holds_nothing else None

    def watermark_us(self, uid: str) -> int:
        """The watermark as it is known here, written or not."""
        line = self._lines.get(uid)
        return 0 if line is None else line.entry.runs().settled_us

    async def definition(self, uid: str) -> Definition | None:
        """What the queue holds for the Schedule, asked once; raises QueueUnavailable."""
        line = self._lines.get(uid)
        if line is None:
            return None
        entry = line.entry
        if entry.definition is None and not entry.holds_nothing and entry.told is None:
            found = await self._definitions(entry.uid, entry.namespace)
            if entry.told is None:  # nothing was reported meanwhile
                entry.definition = found
        return entry.definition

    # -- writing ---------------------------------------------------------------------------------

    async def run(self) -> None:
        """Write until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._pass_nexts())
            while True:
                self._news.clear()
                wait = self._wait_seconds()
                if wait is None or wait > 0:
                    await clocks.wait_for(self._news, wait, self._clock)
                    continue
                await self._slots.acquire()
                line = self._take()
                if line is None:
                    self._slots.release()
                    continue
                group.create_task(self._write_one(line))

    def _wait_seconds(self) -> float | None:
        due = self._agenda.next_due()
        if due is None:
            return None
        return max(due, self._pause_until, self._allowed_at) - self._clock.monotonic()

    def _take(self) -> _Line | None:
        now = self._clock.monotonic()
        due = self._agenda.next_due()
        if due is None or due > now:
            return None
        if (seconds := self._allowed_in(now)) > 0:
            self._allowed_at = now + seconds
            return None
        uid = self._agenda.take(now)
        return None if uid is None else self._lines.get(uid)

    def _allowed_in(self, now: float) -> float:
        """Seconds until the next status may be written; 0.0 = it is written now."""
        if self._is_arming():
            return _ARMING_SECONDS
        first = self._agenda.first() or ""
        line = self._lines.get(first)
        changed_at = None if line is None else line.changed_at
        # The answer to an edit waits for other answers, however much news of runs there is.
        is_answer = first in self._unanswered
        return self._allowance.take(
            now,
            waiting=len(self._unanswered if is_answer else self._untold),
            waited_seconds=0.0 if changed_at is None else now - changed_at,
            is_rising=now - self._told_at < _STILL_SECONDS,
            patience_seconds=_APPLYING_SECONDS if is_answer else Allowance.PATIENCE_SECONDS,
        )

    async def _write_one(self, line: _Line) -> None:
        changed_at, receipts = line.changed_at, line.receipts
        line.writing, line.changed_at, line.receipts = True, None, ()
        self._untold.discard(line.entry.uid)
        self._unanswered.discard(line.entry.uid)
        try:
            done = await self._write(line)
        except Exception as bug:  # noqa: BLE001 - one object's trouble is nobody else's
            telemetry.logger.error(
                "status not written", error=repr(bug), uid=line.entry.uid, exc_info=bug
            )
            done = False
            self._retry(line, None)
        finally:
            line.writing = False
            self._slots.release()
        if done or not self._is_current(line):
            self._finish(line, changed_at, receipts)
        else:
            line.changed_at = changed_at
            if changed_at is not None:
                self._untold.add(line.entry.uid)
            line.receipts = receipts + line.receipts

    async def _write(self, line: _Line) -> bool:
        """True where nothing is left to write of what was known at the beginning."""
        entry = line.entry
        try:
            await self.definition(entry.uid)
        except errors.TryLater as trouble:
            self._retry(line, trouble.retry_after_seconds)
            return False
        now_us = self._clock.now_us()
        book.resume(entry, now_us)
        wanted = book.status_at(entry, now_us)
        if wanted == entry.last() and not self._is_overwritten(line):
            telemetry.status_writes_total.labels("unchanged").inc()
            return True
        return await self._patch(line, wanted)

    async def _patch(self, line: _Line, wanted: dict[str, Any]) -> bool:
        entry = line.entry
        named = status.Object(namespace=entry.namespace, name=entry.name, uid=entry.uid)
        try:
            answer = await status.write(self._api, named, wanted)
        except kube_errors.ApiError as trouble:
            self._note_trouble(line, trouble)
            return False
        self._health.well("status")
        line.waits = None
        match answer:
            case status.Written():
                line.pace = line.pace.written(self._clock.monotonic())
                entry.note_written(wanted)
                line.foreign = b""
                self._note_next(line)
                self._events.status_written(entry.uid)
                telemetry.status_writes_total.labels("written").inc()
            case status.Replaced():
                telemetry.status_writes_total.labels("replaced").inc()
            case status.Refused(message=message):
                entry.is_outdated = True
                telemetry.status_writes_total.labels("refused").inc()
                telemetry.logger.warning(
                    "status refused",
                    namespace=entry.namespace,
                    schedule=entry.name,
                    error=message,
                )
        return True

    def _note_trouble(self, line: _Line, trouble: kube_errors.ApiError) -> None:
        after = trouble.retry_after_seconds if isinstance(trouble, errors.TryLater) else None
        if isinstance(trouble, kube_errors.Throttled):
            pause = after or 1.0
            self._pause_until = max(self._pause_until, self._clock.monotonic() + pause)
        if self._health.unwell("status", str(trouble)):
            telemetry.logger.warning("statuses cannot be written", error=str(trouble))
        telemetry.status_writes_total.labels("failed").inc()
        self._retry(line, after)

    # -- NEXT ------------------------------------------------------------------------------------

    def _note_next(self, line: _Line) -> None:
        passes_us = book.next_passes_us(line.entry)
        if passes_us is not None:
            at_us = passes_us + int(pace.STALENESS_SECONDS * 1e6)
            if self._nexts.put(line.entry.uid, at_us):
                self._next_news.set()

    async def _pass_nexts(self) -> None:
        """Look at each status whose NEXT is past although nothing was told that changes it."""
        while True:
            self._next_news.clear()
            next_us = self._nexts.next_us()
            wait = None if next_us is None else (next_us - self._clock.now_us()) / 1e6
            if wait is None or wait > 0:
                await clocks.wait_for(self._next_news, wait, self._clock)
                continue
            looks = 0
            for number, uid in enumerate(self._nexts.take(self._clock.now_us()), start=1):
                looks += self._pass_next(uid)
                if looks >= self._looks_per_second:  # news of runs are not held up by these
                    looks = 0
                    await self._clock.sleep(1.0)
                elif number % _PASSED_TOGETHER == 0:
                    await self._clock.sleep(0)

    def _pass_next(self, uid: str) -> bool:
        """Whether the status is looked at."""
        line = self._lines.get(uid)
        if line is None:
            return False
        if line.changed_at is not None:  # it is written soon anyhow, and then noted again
            self._hurry_idle(line)
            return False
        now_us = self._clock.now_us()
        passes_us = book.next_passes_us(line.entry)
        if passes_us is None or passes_us > now_us:
            return False  # written meanwhile
        if self._is_burst():  # most of these are told of within moments
            self._nexts.put(uid, now_us + int(_SAME_TROUBLE_SECONDS * 1e6))
            return False
        self._look_in(uid, line, self._rest(line))
        return True

    def _note_idle(self, line: _Line, before: int, after: int) -> None:
        """The last run has ended: unless the next one begins at once, that is written soon."""
        if after:
            line.idle_at = None
        elif before:
            line.idle_at = self._clock.monotonic()
            at_us = self._clock.now_us() + int(_IDLE_SECONDS * 1e6)
            if self._nexts.put(line.entry.uid, at_us):
                self._next_news.set()

    def _hurry_idle(self, line: _Line) -> None:
        if line.idle_at is not None and self._clock.monotonic() - line.idle_at >= _IDLE_SECONDS:
            line.idle_at = None
            line.pace = line.pace.hurried()
            self._due_in(line.entry.uid, line, self._rest(line))

    def _is_burst(self) -> bool:
        return self._allowance.is_burst(len(self._untold))

    # -- when ------------------------------------------------------------------------------------

    def _rest(self, line: _Line) -> float:
        """Seconds until a run's news may be written again."""
        return line.pace.rest(self._clock.monotonic())

    def _answer(self, uid: str, line: _Line) -> None:
        """Somebody waits for what became of an edit."""
        self._unanswered.add(uid)
        self._due_in(uid, line, -_PRECEDENCE_SECONDS)

    def _due_in(self, uid: str, line: _Line, seconds: float) -> None:
        now = self._clock.monotonic()
        if line.changed_at is None:
            line.changed_at = self._told_at = now
            self._untold.add(uid)
        if line.writing:
            line.due_after_write = min(now + seconds, line.due_after_write or now + seconds)
        elif self._agenda.bring_forward(uid, now + seconds):
            self._allowed_at = 0.0  # another name, another rate
            self._news.set()

    def _look_in(self, uid: str, line: _Line, seconds: float) -> None:
        """The status may be another one then, though nothing is known to have changed."""
        due = self._clock.monotonic() + seconds
        if not line.writing and self._agenda.bring_forward(uid, due):
            self._news.set()

    def _look_when_overdue(self, uid: str, line: _Line, event: RunEvent) -> None:
        """A minute after its due; what is overdue already may have another reason by now."""
        overdue_us = event.due_us + openslots.OVERDUE_US - self._clock.now_us()
        self._look_in(uid, line, overdue_us / 1e6 if overdue_us > 0 else _SAME_TROUBLE_SECONDS)

    def _look_at_next_change(self, uid: str, line: _Line) -> None:
        now_us = self._clock.now_us()
        change_us = book.next_change_us(line.entry, now_us)
        if change_us is not None:
            self._look_in(uid, line, (change_us - now_us) / 1e6)

    def _finish(self, line: _Line, changed_at: float | None, receipts: tuple[Receipt, ...]) -> None:
        """After a write: its receipts are settled, and what changed meanwhile is due again."""
        now = self._clock.monotonic()
        for receipt in receipts:
            receipt.settle()
        if changed_at is not None:
            telemetry.status_staleness_seconds.observe(now - changed_at)
        due, line.due_after_write = line.due_after_write, None
        if not self._is_current(line):
            _settle(line)
            return
        self._look_at_next_change(line.entry.uid, line)
        if due is not None:
            self._due_in(line.entry.uid, line, due - now)

    def _is_current(self, line: _Line) -> bool:
        return self._lines.get(line.entry.uid) is line

    def _retry(self, line: _Line, after_seconds: float | None) -> None:
        if line.waits is None:
            line.waits = services.backoff(first_seconds=0.5, most_seconds=30.0)
        wait = max(next(line.waits), after_seconds or 0.0)
        if self._is_current(line):
            self._agenda.put_off(line.entry.uid, self._clock.monotonic() + wait)
            self._news.set()


def _unended(event: RunEvent) -> Unended:
    return Unended(
        uid=event.uid,
        namespace=event.namespace,
        schedule_name=event.name,
        job_name=event.job_name,
        slot_us=event.slot_us,
        trigger=event.trigger,
        told_us=event.at_us,
        may_come_again=event.may_come_again,
    )


def _unended_of(entry: book.Entry, running: Running) -> Iterator[Unended]:
    return unended.of(running, uid=entry.uid, namespace=entry.namespace, name=entry.name)


def _about(entry: book.Entry) -> kube_events.Object:
    return kube_events.Object(namespace=entry.namespace, name=entry.name, uid=entry.uid)


def _settle(line: _Line) -> None:
    receipts, line.receipts = line.receipts, ()
    for receipt in receipts:
        receipt.settle()


def _shows_active(entry: book.Entry) -> bool:
    return entry.may_show_unended and bool(entry.last().get("activeCount"))
