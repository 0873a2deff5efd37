"""Run events: what happened to a slot, as workers report it and the controller reads it.

Events go through the shard's ``runs`` stream, many in one entry: a msgpack array of single events,
of those delivered together, which are stored by column, and of sums for sets. New fields are only
appended, with a default. An event is a fact about (uid, slot), so reading it twice must have the
same effect as reading it once. Pure.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from typing import TypeVar

import msgspec

from duepoint.schedules import points
from duepoint.schedules.conditions import Reason

_ValueT = TypeVar("_ValueT", str, int)

#: The longest message of an event in a stream, in characters: as for the API server's messages.
MESSAGE_LIMIT = 800
#: The longest last cause stored with a retry or a circuit, in characters.
CAUSE_LIMIT = 200


def cut(text: str, limit: int) -> str:
    """Return the text, cut to ``limit`` characters with an ellipsis if it is longer."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


class RunState(enum.StrEnum):
    """The state of a slot.

    The first four are runs, the next three are slots that ended without one. A Pending slot has not
    ended: it was handed over or put off, and later slots may end before it. Neither has a Running
    one without a Job: its target has not accepted it yet. A worker reports Replacing right before
    it deletes a Job in favour of a newer slot: the run goes on, as with Running, until the Job is
    gone or has ended. Checked is not about a slot: a worker has read the Secrets that a generation
    refers to; an empty reason means that they exist.
    """

    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    REPLACED = "Replaced"
    SKIPPED = "Skipped"
    MISSED = "Missed"
    SUPERSEDED = "Superseded"
    PENDING = "Pending"
    CHECKED = "Checked"
    REPLACING = "Replacing"


#: Triggers of a schedule's own slots, which move its watermark; ScheduleRuns have the others.
REGULAR = frozenset({"Schedule", "CatchUp"})
#: States of a run that has ended, in any way.
ENDED = frozenset({RunState.SUCCEEDED, RunState.FAILED, RunState.REPLACED})
#: States of a slot that has a run, ended or not.
STARTED = ENDED | {RunState.RUNNING}


#: Reasons of a run in progress without problems.
_UNDER_WAY = frozenset({"", Reason.RUNNING.value})


def is_retry(reason: str, *, has_job: bool) -> bool:
    """Whether a run in progress with this reason is a delivery between two attempts."""
    return not has_job and reason not in _UNDER_WAY


class RunEvent(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One event of a slot, or of ``count`` slots up to it.

    Attributes:
        slot_us: the slot; the newest of several missed ones.
        trigger: ``Schedule``, ``CatchUp``, ``Manual`` or ``Backfill``.
        reason: a ``conditions.Reason``.
        started_us, finished_us: 0 = not yet.
        settled_us: every slot up to here has ended; 0 = this event does not move the watermark.
        completed: whether no slot is left.
        due_us: when a pending slot is due: the slot plus jitter.
        since_us: the oldest of several missed slots; 0 = only ``slot_us``.
        more_us: further slots that a pending event is about.
        run_uid: uid of the ScheduleRun that requested it; empty for regular slots.
        job_uid: uid of the Job, if the event comes from the watch of Jobs; never stored.
        may_come_again: whether an unanswered request for this Job may be in flight.
        owner: the set, if the slot is a member's: ``pack`` sums up such events, and stores none.
    """

    uid: str
    namespace: str
    name: str
    generation: int
    slot_us: int
    trigger: str
    state: RunState
    reason: str
    at_us: int
    message: str = ""
    count: int = 1
    started_us: int = 0
    finished_us: int = 0
    attempts: int = 0
    job_name: str = ""
    http_status: int | None = None
    settled_us: int = 0
    completed: bool = False
    due_us: int = 0
    since_us: int = 0
    more_us: tuple[int, ...] = ()
    run_uid: str = ""
    job_uid: str = ""
    may_come_again: bool = False
    owner: points.SetIdentity | None = None

    @property
    def is_regular(self) -> bool:
        """Whether the slot is one of the schedule's own slots."""
        return self.trigger in REGULAR

    @property
    def begun_us(self) -> int:
        """When the run started, as far as we know."""
        return self.started_us or self.at_us

    @property
    def ended_us(self) -> int:
        """When the run ended, as far as we know."""
        return self.finished_us or self.at_us

    @property
    def is_open(self) -> bool:
        """Whether the slot has not ended: it was put off, or its delivery will be retried.

        The slot of a Job has ended once its Job exists.
        """
        if self.state is RunState.RUNNING:
            return not self.job_name
        return self.state is RunState.PENDING

    @property
    def why(self) -> str:
        """The reason and the message in one line."""
        return f"{self.reason}: {self.message}" if self.message else self.reason

    @property
    def is_retrying(self) -> bool:
        """Whether a delivery has failed and waits for its next attempt."""
        is_running = self.state is RunState.RUNNING
        return is_running and is_retry(self.reason, has_job=bool(self.job_name))


class Note(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The part of an event about a run, slot or receiver that a condition of the status shows.

    Attributes:
        slot_us: the slot of the event; 0 = unknown, as in a published status.
        begun_us: when its run started; 0 = unknown.
    """

    reason: str
    message: str = ""
    at_us: int = 0
    slot_us: int = 0
    begun_us: int = 0
    generation: int = 0

    @classmethod
    def of(cls, event: RunEvent) -> Note:
        """Return the note of an event."""
        return cls(
            reason=event.reason,
            message=event.message,
            at_us=event.at_us,
            slot_us=event.slot_us,
            begun_us=event.begun_us,
            generation=event.generation,
        )

    @property
    def is_success(self) -> bool:
        """Whether it is the note of a run that has succeeded."""
        return self.reason == Reason.SUCCEEDED


class Together(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Regular slots whose first attempts were delivered together, by column.

    A column with one value has that value in every row.

    Attributes:
        owner: the set, if these are slots of its members; as in ``RunEvent``.
    """

    namespace: str
    trigger: str
    at_us: int
    started_us: int
    accepted_us: int
    uids: Sequence[str]
    names: Sequence[str]
    generations: Sequence[int]
    slots_us: Sequence[int]
    messages: Sequence[str]
    owner: points.SetIdentity | None = None

    def events(self) -> list[RunEvent]:
        """Return the same as single events."""
        return [
            RunEvent(
                uid=uid,
                namespace=self.namespace,
                name=name,
                generation=generation,
                slot_us=slot_us,
                trigger=self.trigger,
                state=RunState.SUCCEEDED,
                reason=Reason.SUCCEEDED,
                at_us=self.at_us,
                message=message,
                started_us=self.started_us,
                finished_us=self.accepted_us,
                attempts=1,
                settled_us=slot_us,
            )
            for uid, name, generation, slot_us, message in zip(
                self.uids,
                self.names,
                self._full(self.generations),
                self._full(self.slots_us),
                self._full(self.messages),
                strict=True,
            )
        ]

    def _full(self, column: Sequence[_ValueT]) -> Sequence[_ValueT]:
        return list(column) * len(self.uids) if len(column) == 1 else column


def column(values: Sequence[_ValueT]) -> Sequence[_ValueT]:
    """Return a column for ``Together``: one value if all are equal."""
    return values[:1] if values.count(values[0]) == len(values) else values


class SetTally(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Counts of how the slots of a set's members ended; scripts depend on the order of the fields.

    A set of a million members that fire each minute would write a million events a minute, but its
    status shows only their sums. So a settlement counts the slots of each set by how they ended,
    and its script adds that to the shard's counts (``scripts/includes/runs.lua``).

    Attributes:
        started: the number of Jobs created; the Jobs themselves show how they ended.
        newest_slot_us: the newest slot that has started; 0 = none.
    """

    succeeded: int = 0
    failed: int = 0
    missed: int = 0
    skipped: int = 0
    started: int = 0
    newest_slot_us: int = 0

    def plus(self, other: SetTally) -> SetTally:
        """Return the sum of two counts of different slots."""
        sums = [mine + theirs for mine, theirs in self._with(other)]
        sums[-1] = max(self.newest_slot_us, other.newest_slot_us)
        return msgspec.convert(sums, SetTally)

    def beyond(self, other: SetTally) -> SetTally | None:
        """Return the counts by which this reading exceeds the other one; None if by none."""
        missing = [max(0, mine - theirs) for mine, theirs in self._with(other)]
        missing[-1] = self.newest_slot_us
        return msgspec.convert(missing, SetTally) if any(missing[:-1]) else None

    @property
    def text(self) -> str:
        """The text that a shard stores; ``read_tally`` parses it."""
        return " ".join(map(str, msgspec.structs.astuple(self)))

    def _with(self, other: SetTally) -> zip[tuple[int, int]]:
        return zip(msgspec.structs.astuple(self), msgspec.structs.astuple(other), strict=True)


#: Nothing has ended.
NONE_ENDED = SetTally()


def read_tally(stored: bytes | None) -> SetTally:
    """Parse a shard's counts; all zero if there are none."""
    numbers = [int(number) for number in (stored or b"").split() if number.isdigit()]
    return msgspec.convert(numbers[: len(SetTally.__struct_fields__)], SetTally)


class RunNews(msgspec.Struct, frozen=True, array_like=True):
    """The content of a stream entry: single events, slots delivered together, sums by set uid.

    The script that writes the entry adds the sums to the shard's counts
    (``scripts/includes/runs.lua``); readers skip them.
    """

    events: list[RunEvent]
    together: list[Together]
    of_sets: dict[str, SetTally] = {}


_decoder = msgspec.msgpack.Decoder(RunNews)


def pack(events: Iterable[RunEvent | Together]) -> bytes:
    """Return the stream entry for some events; empty bytes for none.

    For members of sets it has only sums.
    """
    one_by_one: list[RunEvent] = []
    together: list[Together] = []
    of_sets: dict[str, SetTally] = {}
    for event in events:
        if event.owner is not None:
            if (tally := _tally(event)) is not None:
                known = of_sets.get(event.owner.uid, NONE_ENDED)
                of_sets[event.owner.uid] = known.plus(tally)
        elif isinstance(event, Together):
            together.append(event)
        elif len(event.message) > MESSAGE_LIMIT:
            message = cut(event.message, MESSAGE_LIMIT)
            one_by_one.append(msgspec.structs.replace(event, message=message))
        else:
            one_by_one.append(event)
    news = (one_by_one, together, *([of_sets] if of_sets else ()))
    return msgspec.msgpack.encode(news) if any(news) else b""


_COUNTED = {
    RunState.SUCCEEDED: "succeeded",
    RunState.FAILED: "failed",
    RunState.MISSED: "missed",
    RunState.SKIPPED: "skipped",
}


def _tally(event: RunEvent | Together) -> SetTally | None:
    """Return the counts that an event of members adds to their set's; None if it adds none."""
    if isinstance(event, Together):
        return SetTally(succeeded=len(event.uids), newest_slot_us=max(event.slots_us))
    is_job = event.state is RunState.RUNNING and bool(event.job_name)
    name = "started" if is_job else _COUNTED.get(event.state, "")
    if not name or not event.count:
        return None
    has_run = is_job or event.state in ENDED
    return SetTally(**{name: event.count}, newest_slot_us=event.slot_us if has_run else 0)


def unpack(entry: bytes) -> list[RunEvent]:
    """Return the single events of a stream entry; raises msgspec.DecodeError on anything else."""
    found = _decoder.decode(entry)
    try:
        grouped = [event for group in found.together for event in group.events()]
    except ValueError as error:
        raise msgspec.DecodeError("columns of different lengths") from error
    return found.events + grouped
