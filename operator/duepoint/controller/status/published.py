"""The status of a Schedule as a Struct: what ``render`` makes, and what a new leader reads.

A new leader reads the status of every object. ``read`` decodes one; ``Status.summary`` is all that
counting needs, so a new leader continues where the last one stopped. A text that Duepoint did not
write counts as absent. Pure.
"""

from __future__ import annotations

import functools
import zlib

import msgspec

from duepoint.controller.status import texts
from duepoint.controller.status.texts import Reference, instant_us
from duepoint.runs import summary as summaries
from duepoint.runs.run import REGULAR, Note
from duepoint.runs.watermark import Watermark
from duepoint.schedules import diagnosis
from duepoint.schedules.conditions import WITHOUT_SLOTS, ConditionType
from duepoint.schedules.diagnosis import Row, Shown


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
            if run.outcome == texts.RETRYING and (run.trigger or "Schedule") in REGULAR
        }
        return tuple(sorted(one for one in slots_us if one > instant_us(self.settled_through)))

    # -- for counting ----------------------------------------------------------------------------

    def summary(self, schedule_name: str) -> summaries.Summary:
        """Return the summary of runs that the status of this Schedule was rendered from."""
        running = texts.running(self.active, schedule_name)
        success_us = instant_us(self.last_successful_time)
        failure_us = instant_us(self.last_failure_time)
        at_us = max(success_us, failure_us)
        last_result = self._note(ConditionType.LAST_RUN_SUCCEEDED, at_us=at_us)
        return summaries.Summary(
            # The counts in another writer's status may not add up.
            counts=msgspec.structs.replace(self.counts, started=self.counts.ended + len(running)),
            running=running,
            last_run=texts.last_run_of(self.last_run),
            history=texts.history(self.recent_runs),
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
        oldest=texts.instant(slots_us[0]),
        started=list(map(texts.instant, settled.started_us)),
        waiting=list(map(texts.instant, settled.waiting_us)),
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


def may_show_running(status: bytes) -> bool:
    """Whether the JSON text of a status may list active runs; cheaper than decoding it."""
    return b'"activeCount"' in status or b'"Running"' in status
