"""The state of a Schedule's receiver, from run events: it is gone, or deliveries to it wait.

"Gone" holds for one generation: an edit of the Schedule ends it, and so does a successful manual
delivery. "Waits" (an open circuit) ends with the first answer, or when the waiting delivery is
given up; if others wait, their next event sets it again. Events arrive more than once and out of
order; the newest counts. Pure.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from duepoint.runs.run import Note, RunEvent, RunState
from duepoint.schedules.conditions import Reason


class ReceiverState(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The two possible problems of a receiver; None = not known."""

    gone: Note | None = None
    waits: Note | None = None


#: Nothing is wrong.
WELL = ReceiverState()


def fold(known: ReceiverState, event: RunEvent) -> ReceiverState:
    """Return the state of the receiver after an event."""
    if event.reason == Reason.ENDPOINT_GONE:
        return replace(known, gone=_newer(known.gone, event), waits=None)
    if event.reason == Reason.CIRCUIT_OPEN and event.state in (RunState.PENDING, RunState.RUNNING):
        return replace(known, waits=_newer(known.waits, event))
    if known.gone is None and known.waits is None:
        return known
    succeeded = event.state is RunState.SUCCEEDED
    return ReceiverState(
        gone=_unless(known.gone, event, ended=succeeded),
        waits=_unless(
            known.waits,
            event,
            ended=succeeded or _was_answered(event) or _gives_up(event, known.waits),
        ),
    )


def _newer(known: Note | None, event: RunEvent) -> Note:
    if (
        known is not None
        and known.generation >= event.generation
        and (known.at_us >= event.at_us or known.message == event.message)
    ):
        return known
    return Note.of(event)


def _unless(known: Note | None, event: RunEvent, *, ended: bool) -> Note | None:
    return None if known is not None and ended and event.at_us >= known.at_us else known


def _gives_up(event: RunEvent, waits: Note | None) -> bool:
    """Whether the event gives up the delivery of the note, without an answer."""
    if waits is None or event.state not in _GIVEN_UP:
        return False
    is_same = (event.since_us or event.slot_us) <= waits.slot_us <= event.slot_us
    return is_same or not waits.slot_us


_GIVEN_UP = (RunState.FAILED, RunState.MISSED, RunState.SKIPPED, RunState.SUPERSEDED)


def _was_answered(event: RunEvent) -> bool:
    return event.http_status is not None and event.http_status < 500
