"""The last slots of a schedule: when they were due, how late they began, how they ended and why.

``fold(history, event)`` returns the history after an event. Runs, and slots that ended without one
(missed, skipped), are one entry each; several slots that ended alike in one event are one entry
with a count. A slot that is tried again keeps its entry. Events arrive at least once and out of
order: an entry that has ended stays as it is, and one that is older than the oldest of a full
history is not taken back. Newest first.

A status shows ten slots; the queue keeps some fifty, so that a person can ask about last night. A
worker writes a record when a slot has ended (a Job's when it is created: what becomes of it is the
status's to say), for a slot that did not run too. Of a member of a set only what went wrong is
kept: thirty million successes would fill the server and answer no question. Nor is an entry of a
stream of our own that went in: it is in the stream, with its slot. A record begins with its length,
so that the server can drop the oldest without reading it.

Pure; instants in microseconds since the epoch, 0 = never.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import msgspec

from duepoint.runs.run import ENDED, REGULAR, RunEvent, RunState, Together
from duepoint.schedules import points
from duepoint.schedules.conditions import Reason

#: Slots that a status shows.
MOST = 10
#: Longest message of an entry, in characters: ten of them stand in every status.
MESSAGE_LIMIT = 200

_WITHOUT_RUN = frozenset({RunState.MISSED, RunState.SKIPPED})
_OVER = ENDED | _WITHOUT_RUN
_SHOWN = _OVER | {RunState.RUNNING}


@dataclass(frozen=True, slots=True, kw_only=True)
class PastSlot:
    """A slot, or ``count`` slots that ended alike.

    Attributes:
        slot_us: the slot; of several the newest.
        since_us: of several the oldest; 0 = ``slot_us`` alone is known.
        outcome: a ``RunState`` (Running, Succeeded, Failed, Replaced, Missed or Skipped); read from
            a status also ``Waiting`` or ``Retrying``, or a word of a later version.
        started_us: when its target was first tried or its Job created.
    """

    slot_us: int
    outcome: str
    trigger: str = "Schedule"
    reason: str = ""
    message: str = ""
    started_us: int = 0
    finished_us: int = 0
    attempts: int = 0
    job_name: str = ""
    http_status: int | None = None
    since_us: int = 0
    count: int = 1

    @property
    def order(self) -> tuple[int, int]:
        """Newer is greater: a run of an old slot, made by hand, is as new as its start."""
        return max(self.started_us, self.slot_us), self.slot_us

    @property
    def is_over(self) -> bool:
        return self.outcome in _OVER

    @property
    def is_regular(self) -> bool:
        return self.trigger in REGULAR

    @property
    def why(self) -> str:
        """The word for the cause; a success has none of its own."""
        return self.reason or self.outcome

    def covers(self, slot_us: int) -> bool:
        """Whether this is one of its slots, as far as they are known."""
        return slot_us == self.slot_us or 0 < self.since_us <= slot_us <= self.slot_us


History = tuple[PastSlot, ...]


def fold(history: History, event: RunEvent) -> History:
    """The history after an event; the same object where it says nothing new."""
    if event.state not in _SHOWN or event.count < 1:
        return history
    known = next((entry for entry in history if _is_of(entry, event)), None)
    if known is None:
        return added(history, _entry(event))
    if known.is_over:
        return history
    others = (entry for entry in history if entry is not known)
    return _newest((_updated(known, event), *others))


def newest_run(known: PastSlot | None, event: RunEvent) -> PastSlot:
    """The later started of this run and the event's; an event of the same run updates it."""
    if known is not None and _is_of(known, event):
        return known if known.is_over else _updated(known, event)
    if known is None or (event.begun_us, event.slot_us) > (known.started_us, known.slot_us):
        return _entry(event)
    return known


def added(history: History, entry: PastSlot) -> History:
    """The history with another entry, if that is among the newest."""
    listed = _newest((entry, *history))
    return listed if entry in listed else history


def _newest(entries: Iterable[PastSlot]) -> History:
    return tuple(sorted(entries, key=lambda entry: entry.order, reverse=True)[:MOST])


def _is_of(entry: PastSlot, event: RunEvent) -> bool:
    if entry.slot_us != event.slot_us:
        return False
    if entry.is_regular:
        return event.trigger in REGULAR
    is_same_job = not (entry.job_name and event.job_name) or entry.job_name == event.job_name
    return entry.trigger == event.trigger and is_same_job


def _entry(event: RunEvent) -> PastSlot:
    has_run = event.state not in _WITHOUT_RUN
    return PastSlot(
        slot_us=event.slot_us,
        trigger=event.trigger,
        outcome=event.state,
        reason=event.reason,
        message=event.message,
        started_us=(event.started_us or event.at_us) if has_run else 0,
        finished_us=event.finished_us if has_run else 0,
        attempts=event.attempts,
        job_name=event.job_name,
        http_status=event.http_status,
        since_us=event.since_us if event.count > 1 else 0,
        count=event.count,
    )


def _updated(known: PastSlot, event: RunEvent) -> PastSlot:
    newer = _entry(event)
    return replace(
        newer,
        trigger=known.trigger,
        started_us=known.started_us or newer.started_us,
        attempts=max(known.attempts, newer.attempts),
        job_name=newer.job_name or known.job_name,
        http_status=known.http_status if newer.http_status is None else newer.http_status,
    )


# -- as the queue keeps them ----------------------------------------------------------------------

#: Longest message of a record, in bytes of UTF-8.
MESSAGE_BYTES = 80
_OUTCOMES = (
    RunState.SUCCEEDED,
    RunState.FAILED,
    RunState.MISSED,
    RunState.SKIPPED,
    RunState.RUNNING,
    RunState.REPLACED,
)
_CODES = {state: code for code, state in enumerate(_OUTCOMES)}
_TRIGGERS = ("Schedule", "CatchUp", "Manual", "Backfill")
_USUAL = {
    RunState.SUCCEEDED: Reason.SUCCEEDED.value,
    RunState.RUNNING: Reason.CREATED.value,
}
_THOUSAND = 1_000


class Kept(NamedTuple):
    """A record of a schedule, or of a member of a set."""

    schedule_id: points.ScheduleId
    record: bytes
    of_member: bool = False


@dataclass(frozen=True, slots=True)
class LastSlots:
    """The records of some events, made when they are asked for: the queue may keep none."""

    events: Sequence[RunEvent | Together]

    def __iter__(self) -> Iterator[Kept]:
        return kept(self.events)


class _Record(msgspec.Struct, frozen=True, array_like=True):
    """Fields are only ever appended, with a default; the last ones are left out where usual.

    Attributes:
        late_ms: from the slot to the first attempt; -1 = it never began.
        took_ms: from the first attempt to the end; -1 = unknown.
        reason: empty = the usual one of the outcome.
        span_ms: of several slots that ended alike, from the oldest to ``slot_us``.
    """

    slot_us: int
    outcome: int
    late_ms: int
    took_ms: int = -1
    attempts: int = 1
    trigger: int = 0
    reason: str = ""
    message: bytes = b""
    http_status: int = 0
    count: int = 1
    span_ms: int = 0


_DEFAULTS = (-1, 1, 0, "", b"", 0, 1, 0)
_FIXED = 3
_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(_Record)


def kept(events: Iterable[RunEvent | Together]) -> Iterator[Kept]:
    """The records of what has ended, each with the schedule that it is of."""
    for event in events:
        if isinstance(event, RunEvent) and event.schedule_id and _is_kept(event):
            schedule_id = points.ScheduleId(event.schedule_id)
            yield Kept(schedule_id, record(event), event.owner is not None)


def _is_kept(event: RunEvent) -> bool:
    if event.state not in _CODES or event.is_open or not event.slot_us or not event.count:
        return False
    went_well = event.state in _USUAL and event.attempts <= 1
    return event.owner is None or not went_well


def record(event: RunEvent) -> bytes:
    """The record of a slot that has ended."""
    late_ms = took_ms = -1
    if event.started_us and event.state not in (RunState.MISSED, RunState.SKIPPED):
        late_ms = max(0, event.started_us - event.slot_us) // _THOUSAND
        if event.finished_us:
            took_ms = max(0, event.finished_us - event.started_us) // _THOUSAND
    is_well = event.state is RunState.SUCCEEDED
    several = event.count > 1 and event.since_us
    return _packed(
        event.slot_us,
        _CODES[event.state],
        late_ms,
        took_ms,
        event.attempts,
        _TRIGGERS.index(event.trigger) if event.trigger in _TRIGGERS else 0,
        "" if event.reason == _USUAL.get(event.state) else str(event.reason),
        b"" if is_well else _cut(event.job_name or event.message),
        0 if is_well else event.http_status or 0,
        event.count,
        (event.slot_us - event.since_us) // _THOUSAND if several else 0,
    )


def _packed(*values: object) -> bytes:
    listed = list(values)
    while len(listed) > _FIXED and listed[-1] == _DEFAULTS[len(listed) - _FIXED - 1]:
        listed.pop()
    packed = _encode(listed)
    return bytes((len(packed) + 1,)) + packed


def _cut(text: str) -> bytes:
    """The beginning of the text, of whole characters."""
    return text.encode()[:MESSAGE_BYTES].decode(errors="ignore").encode()


def read(value: bytes) -> tuple[PastSlot, ...]:
    """The slots of a value, newest first; what another version wrote is left out.

    A slot that two workers ended is there twice: what was written last counts.
    """
    found: dict[tuple[int, str], PastSlot] = {}
    at = 0
    while at < len(value):
        length = max(value[at], 1)
        slot = _slot(value[at + 1 : at + length])
        if slot is not None:
            found[slot.slot_us, slot.trigger] = slot
        at += length
    return tuple(sorted(found.values(), key=lambda slot: slot.order, reverse=True))


def _slot(packed: bytes) -> PastSlot | None:
    try:
        known = _decoder.decode(packed)
        outcome = _OUTCOMES[known.outcome]
        trigger = _TRIGGERS[known.trigger]
    except (msgspec.DecodeError, IndexError):
        return None
    started_us = 0 if known.late_ms < 0 else known.slot_us + known.late_ms * _THOUSAND
    text = known.message.decode(errors="replace")
    is_job = outcome is RunState.RUNNING
    return PastSlot(
        slot_us=known.slot_us,
        trigger=trigger,
        outcome=outcome,
        reason=known.reason or _USUAL.get(outcome, ""),
        message="" if is_job else text,
        started_us=started_us,
        finished_us=started_us + known.took_ms * _THOUSAND if known.took_ms >= 0 else 0,
        attempts=known.attempts,
        job_name=text if is_job else "",
        http_status=known.http_status or None,
        since_us=known.slot_us - known.span_ms * _THOUSAND if known.span_ms else 0,
        count=known.count,
    )
