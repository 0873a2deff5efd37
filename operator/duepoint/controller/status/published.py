"""The status of a Schedule as a Struct: what ``render`` makes, and what a new leader reads.

A new leader reads the status of every object. ``read`` decodes one; ``Status.summary`` is all that
counting needs, so a new leader continues where the last one stopped. A text that Duepoint did not
write counts as absent.

``active``: a run of a Job is a reference to that Job. A delivery is not an object, so its reference
is to the object that requested it, the Schedule or a ScheduleRun. ``fieldPath`` names the slot.
Manual runs come first. ``activeCount`` counts all runs; if they are more than ``MOST_LISTED``, a
new leader knows the others from the ledger, whose record then stays.

``recentRuns``: the last slots, newest first. An entry leaves out the usual values (trigger
``Schedule``, one attempt, the reason of a success), so that ten of them stay small. A slot that was
put off and has not started is shown as ``Waiting`` with its reason, and a delivery between two
attempts as ``Retrying``. A ``Waiting`` slot is not history, and is not read back.

An instant is RFC 3339 in UTC, with a fraction only if it is not zero; schedules of less than a
second and exact replays need fractions. Pure.
"""

from __future__ import annotations

import functools
import re
import zlib
from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from duepoint.kube import jobbuilder, schedules, times
from duepoint.kube.jobs import JobOwner
from duepoint.runs import history as histories
from duepoint.runs import summary as summaries
from duepoint.runs import watermark as watermarks
from duepoint.runs.history import History, PastSlot
from duepoint.runs.run import REGULAR, STARTED, Note, RunState, cut, is_retry
from duepoint.runs.summary import Key, Running, key_of
from duepoint.runs.watermark import Watermark
from duepoint.schedules import diagnosis
from duepoint.schedules.conditions import MESSAGE_LIMIT, WITHOUT_SLOTS, ConditionType, Reason
from duepoint.schedules.diagnosis import Row, Shown

_SECOND_US = 1_000_000


def instant(at_us: int) -> str:
    """Return the text of an instant, with a fraction only if it is not zero."""
    return times.micro_time_text(at_us) if at_us % _SECOND_US else times.time_text(at_us)


def instant_or_empty(at_us: int) -> str:
    """Return the text of an instant; empty for 0."""
    return instant(at_us) if at_us else ""


def instant_us(text: object) -> int:
    """Return the instant of such a text; 0 for anything else."""
    try:
        return times.parse_us(text) if isinstance(text, str) else 0
    except ValueError:
        return 0


# -- active runs -------------------------------------------------------------------------------

#: The most references to active runs in a status.
MOST_LISTED = 100

_SLOT_PATH = re.compile(r"slots\[(.+)\]")


class Reference(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """An ObjectReference to an active run."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    field_path: str = ""


def active(runs: Running, owner: JobOwner) -> list[Reference]:
    """Return references to the active runs of a Schedule: manual ones, Jobs, deliveries."""
    listed = sorted(runs, key=lambda key: (not key[1], not runs[key], key))[:MOST_LISTED]
    return [_reference(owner, key, runs[key]) for key in listed]


def _reference(owner: JobOwner, key: Key, job: str) -> Reference:
    slot_us, wanted_by = key
    path = f"slots[{instant(slot_us)}]"
    if job:
        return Reference(
            api_version="batch/v1",
            kind="Job",
            namespace=owner.namespace,
            name=job,
            field_path=path,
        )
    return Reference(
        api_version=schedules.API_VERSION,
        kind=schedules.RUN_KIND if wanted_by else schedules.KIND,
        namespace=owner.namespace,
        name="" if wanted_by else owner.name,
        uid=wanted_by.removeprefix("run ") or owner.uid,
        field_path=path,
    )


def running(listed: Iterable[Reference], schedule_name: str) -> Running:
    """Return the active runs of a Schedule of that name, as ``active`` showed them."""
    return dict(filter(None, (_run_of(one, schedule_name) for one in listed)))


def _run_of(reference: Reference, schedule_name: str) -> tuple[Key, str] | None:
    path = _SLOT_PATH.fullmatch(reference.field_path)
    slot_us = 0 if path is None else instant_us(path[1])
    if not slot_us:
        return None
    job = reference.name if reference.kind == "Job" else ""
    is_of_slot = bool(job) and job == jobbuilder.name_of(schedule_name, slot_us)
    is_regular = is_of_slot or reference.kind == schedules.KIND
    return key_of(slot_us, is_regular=is_regular, wanted_by=job or reference.uid), job


# -- the last slots -----------------------------------------------------------------------------

#: The published outcome of a delivery that failed and waits for its next attempt.
RETRYING = "Retrying"
#: The published outcome of a slot that was put off and has not started.
WAITING = "Waiting"
#: The most waiting slots among the recent runs.
_MOST_WAITING = 3

_USUAL_REASONS = frozenset({Reason.SUCCEEDED.value, Reason.RUNNING.value})


def slot_of(row: Row) -> PastSlot:
    """Return the slot of an entry, with its published outcome."""
    return PastSlot(
        slot_us=instant_us(row.scheduled_time),
        outcome=row.outcome,
        reason=row.reason,
        message=row.message,
        trigger=row.trigger or "Schedule",
        started_us=instant_us(row.start_time),
        finished_us=instant_us(row.finish_time),
        attempts=row.attempts or int(bool(row.start_time)),
        job_name=row.job_name,
        http_status=row.http_status,
        since_us=instant_us(row.since),
        count=row.count,
    )


def last_run(run: PastSlot) -> Row:
    """Return ``status.lastRun``: an entry that also has the usual values."""
    return Row(
        scheduled_time=instant(run.slot_us),
        since=instant_or_empty(run.since_us),
        count=run.count,
        trigger=run.trigger,
        start_time=instant_or_empty(run.started_us),
        finish_time=instant_or_empty(run.finished_us),
        outcome=RETRYING if is_retrying(run) else str(run.outcome),
        reason=run.reason,
        message=run.message[:MESSAGE_LIMIT],
        job_name=run.job_name,
        http_status=run.http_status,
        attempts=run.attempts,
    )


def last_run_of(row: Row | None) -> PastSlot | None:
    """Return the newest started run of a status."""
    run = None if row is None else _past(row)
    if row is None or run is None or run.outcome not in STARTED:
        return None
    return replace(run, attempts=row.attempts)


def recent_runs(history: History, open_slots: watermarks.OpenSlots) -> list[Row]:
    """Return the last slots, newest first, among them those that wait."""
    begun = {entry.slot_us for entry in history if entry.is_regular}
    waiting = [slot for slot in open_slots if slot.may_be_late and not slot.superseded]
    rows = [
        (
            slot.slot_us,
            Row(
                scheduled_time=instant(slot.slot_us),
                outcome=WAITING,
                reason=slot.reason,
                message=cut(slot.message, histories.MESSAGE_LIMIT),
            ),
        )
        for slot in waiting[-_MOST_WAITING:]
        if slot.slot_us not in begun
    ]
    rows += [(max(entry.order), _entry(entry)) for entry in history]
    rows.sort(key=lambda row: row[0], reverse=True)
    return [row for _, row in rows[: histories.MOST]]


def history(rows: Iterable[Row]) -> History:
    """Return the history that a status shows; entries that are not ours are left out."""
    return tuple(filter(None, map(_past, rows)))[: histories.MOST]


def is_retrying(run: PastSlot) -> bool:
    """Whether a delivery failed and waits for its next attempt."""
    return run.outcome == RunState.RUNNING and is_retry(run.reason, has_job=bool(run.job_name))


def _entry(entry: PastSlot) -> Row:
    """Return an entry without the usual values."""
    is_well = entry.outcome == RunState.SUCCEEDED
    return replace(
        last_run(entry),
        trigger="" if entry.trigger == "Schedule" else entry.trigger,
        reason="" if entry.reason in _USUAL_REASONS else entry.reason,
        message="" if is_well else cut(entry.message, histories.MESSAGE_LIMIT),
        http_status=None if is_well else entry.http_status,
        attempts=0 if entry.attempts == 1 else entry.attempts,
    )


def _past(row: Row) -> PastSlot | None:
    """Return a slot that began or ended; None if it waits or its outcome is unknown to us."""
    outcome = RunState.RUNNING.value if row.outcome == RETRYING else row.outcome
    is_ours = outcome in set(RunState) and outcome != RunState.PENDING
    if not is_ours or not instant_us(row.scheduled_time):
        return None
    return replace(slot_of(row), outcome=RunState(outcome))


# -- the status ----------------------------------------------------------------------------------


class OpenSlots(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Open slots, oldest first."""

    count: int = 0
    oldest: str = ""
    started: list[str] = []
    waiting: list[str] = []


class Status(msgspec.Struct, kw_only=True, rename="camel", omit_defaults=True):
    """``.status`` of a Schedule; fields with their default value are left out."""

    observed_generation: int = -1
    conditions: list[Shown] = []
    settled_through: str = ""
    last_schedule_time: str = ""
    last_successful_time: str = ""
    last_failure_time: str = ""
    open_slots: OpenSlots | None = None
    last_run: Row | None = None
    runs: summaries.RunTotals | None = None
    recent_runs: list[Row] = []
    next_schedule_time: str = ""
    upcoming_times: list[str] = []
    active: list[Reference] = []
    active_count: int = 0
    target: str = ""
    timing_hash: str = ""
    managed_by: str = ""

    # -- for decisions ---------------------------------------------------------------------------

    def condition(self, type_: ConditionType) -> Shown:
        """Return the condition of this type; an empty one if there is none."""
        return next((one for one in self.conditions if one.type == type_), _NO_CONDITION)

    @property
    def ready(self) -> Shown:
        """The Ready condition."""
        return self.condition(ConditionType.READY)

    @property
    def watermark(self) -> Watermark:
        """The slots that have ended."""
        slots = self.open_slots or OpenSlots()
        return Watermark(
            through_us=instant_us(self.settled_through),
            started_us=tuple(filter(None, map(instant_us, slots.started))),
            waiting_us=tuple(filter(None, map(instant_us, slots.waiting))),
        )

    @property
    def answered_generation(self) -> int:
        """The newest generation that was accepted or refused; -1 = none.

        An observed generation that waits for something is neither; nor are those before it, if the
        status has no watermark.
        """
        if self.ready.status != "Unknown":
            return self.observed_generation
        is_later = self.observed_generation > 1 and self.settled_through
        return self.observed_generation - 1 if is_later else -1

    def has_accepted(self, generation: int) -> bool:
        """Whether this very generation is accepted."""
        is_of_this = self.ready.observed_generation == self.observed_generation == generation
        return is_of_this and self.ready.status == "True"

    @property
    def is_new(self) -> bool:
        """Whether no generation of this object was ever armed or refused.

        Generations may have been processed while Redis was unavailable: slots still count from the
        creation. If one was refused before, the status has a watermark although it waits.
        """
        is_waiting = self.ready.status == "Unknown" and not self.settled_through
        return self.observed_generation < 0 or is_waiting

    @property
    def counts(self) -> summaries.RunTotals:
        """The counts of its runs so far."""
        return self.runs or summaries.RunTotals()

    @property
    def retried_us(self) -> tuple[int, ...]:
        """Slots above the watermark with a delivery that is being retried, oldest first.

        The chain comes to them again, unless the timing changes.
        """
        slots_us = {
            instant_us(run.scheduled_time)
            for run in self.recent_runs
            if run.outcome == RETRYING and (run.trigger or "Schedule") in REGULAR
        }
        return tuple(sorted(one for one in slots_us if one > instant_us(self.settled_through)))

    # -- for counting ----------------------------------------------------------------------------

    def summary(self, schedule_name: str) -> summaries.Summary:
        """Return the summary of runs that the status of this Schedule was rendered from."""
        active = running(self.active, schedule_name)
        success_us = instant_us(self.last_successful_time)
        failure_us = instant_us(self.last_failure_time)
        at_us = max(success_us, failure_us)
        last_result = self._note(ConditionType.LAST_RUN_SUCCEEDED, at_us=at_us)
        return summaries.Summary(
            # The counts in another writer's status may not add up.
            counts=replace(self.counts, started=self.counts.ended + len(active)),
            running=active,
            last_run=last_run_of(self.last_run),
            history=history(self.recent_runs),
            last_slot_us=instant_us(self.last_schedule_time),
            last_success_us=success_us,
            last_failure_us=failure_us,
            last_result=last_result,
            retried=self._retried(last_result),
            settled_us=instant_us(self.settled_through),
            completed=self.ready.reason in WITHOUT_SLOTS,
            missed=self._missed(),
            # Its time is not published, so any event replaces it.
            gone=self._note(ConditionType.ENDPOINT_GONE),
        )

    def _missed(self) -> Note | None:
        # The slot is not published; it is at most the newest that has ended.
        newest_us = max(instant_us(self.settled_through), instant_us(self.last_schedule_time))
        taken = self._note(ConditionType.NAME_CONFLICT, slot_us=newest_us)
        return taken or self._note(ConditionType.MISSED, slot_us=newest_us)

    def _retried(self, last_result: Note | None) -> Note | None:
        """Return the run that keeps failing; its slot is not published."""
        failing = self.condition(ConditionType.FAILING)
        has_failed = last_result is not None and not last_result.is_success
        if has_failed or diagnosis.troubles(self.conditions) != [failing]:
            return None
        since_us = instant_us(failing.last_transition_time)
        return self._note(ConditionType.FAILING, at_us=since_us, begun_us=since_us)

    def _note(self, type_: ConditionType, **instants: int) -> Note | None:
        """Return the note of a condition; None if there is no such condition."""
        shown = self.condition(type_)
        if not shown.type:
            return None
        return Note(
            generation=shown.observed_generation,
            reason=shown.reason,
            message=shown.message,
            **instants,
        )


def open_slots(settled: Watermark) -> OpenSlots | None:
    """Return the open slots of a watermark, as a status lists them; None = there are none."""
    if not (slots_us := settled.open_us):
        return None
    return OpenSlots(
        count=len(slots_us),
        oldest=instant(slots_us[0]),
        started=list(map(instant, settled.started_us)),
        waiting=list(map(instant, settled.waiting_us)),
    )


_NO_CONDITION = Shown()
_decoder = msgspec.json.Decoder(Status)


@functools.lru_cache(maxsize=4)  # a new leader reads each status several times
def read(text: bytes) -> Status:
    """Decode a status, read-only; empty if it is not ours."""
    try:
        return _decoder.decode(text)
    except msgspec.DecodeError:
        return Status()


@functools.lru_cache(maxsize=2)  # each rendering reads the same status several times
def decompressed(status: bytes) -> Status:
    """Decode a compressed status, read-only."""
    return read(zlib.decompress(status))
