"""The timeline of a history for the judge: its disturbances, and which wish was current when.

Instants are microseconds since the epoch. Two disturbances that touch are one window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.simulation import segments
from tests.simulation.faults import OF_CLOCKS, OF_USERS, Event, Kind
from tests.simulation.history import ROLLING_SECONDS, WRONG_SECONDS, Record
from tests.simulation.plans import Wish
from tests.simulation.slots import S

#: Without a disturbance, a slot has its effect within this time of its due time.
LATENESS_US = 1 * S
#: This long after the end of a disturbance everything has recovered. A worker's lease expires
#: after 10 s, a leader's after 15 s, and data that a server lost is found and restored in 30 s.
RECOVERY_US = 45 * S
#: A process restarts within this time, see ``history.RESTART_SECONDS``.
_RESTART_US = 4 * S
#: The sender of a lost message times out after this at most.
_TIMEOUT_US = 15 * S
#: How many processes get a new key, one after the other.
_PROCESSES = 6
#: How early a slot may be if one clock is wrong; see "never early" in the semantics.
EARLY_US = 5_000


@dataclass(frozen=True, slots=True)
class Window:
    begin_us: int
    end_us: int

    def has(self, instant: int) -> bool:
        return self.begin_us <= instant <= self.end_us


def windows_of(record: Record) -> list[Window]:
    """Return the disturbances, merged if they touch."""
    found = sorted(
        (at_us, at_us + _lasting_us(event))
        for at_us, event in record.events
        if event.kind not in OF_USERS and event.kind is not Kind.PARTITION
    )
    merged: list[Window] = []
    for begin, end in found:
        if merged and begin <= merged[-1].end_us + RECOVERY_US:
            merged[-1] = Window(merged[-1].begin_us, max(end, merged[-1].end_us))
        else:
            merged.append(Window(begin, end))
    return merged


_BY_AMOUNT = frozenset(
    {Kind.LATE_REQUEST, Kind.LATE_REPLY, Kind.PAUSE_BEFORE, Kind.PAUSE_AFTER}
    | {Kind.OUTAGE, Kind.API_OUTAGE, Kind.RECEIVER_OUTAGE}
)
_LEAST_US = {
    **dict.fromkeys((Kind.LATE_REQUEST, Kind.LATE_REPLY), _TIMEOUT_US),
    **dict.fromkeys((Kind.PAUSE_BEFORE, Kind.PAUSE_AFTER), _TIMEOUT_US),
    **dict.fromkeys((Kind.LOSE_REQUEST, Kind.LOSE_REPLY), _TIMEOUT_US),
    **dict.fromkeys((Kind.KILL_BEFORE, Kind.KILL_AFTER), _RESTART_US),
    **dict.fromkeys((Kind.DRAIN, Kind.TAKEOVER), _RESTART_US),
    **dict.fromkeys(OF_CLOCKS, round(WRONG_SECONDS * S)),
    Kind.NEW_KEY: round(_PROCESSES * ROLLING_SECONDS * S),
}


def _lasting_us(event: Event) -> int:
    amount_us = round(event.amount * S) if event.kind in _BY_AMOUNT else 0
    return max(_LEAST_US.get(event.kind, 0), amount_us)


def woke_up_at(record: Record, process: str, at_us: int) -> bool:
    """Whether this process was paused until less than a second before."""
    for begin_us, event in record.events:
        if event.kind not in (Kind.PAUSE_BEFORE, Kind.PAUSE_AFTER):
            continue
        end_us = begin_us + round(event.amount * S)
        sender = record.messages[event.at].process.name
        if sender == process and end_us <= at_us < end_us + S:
            return True
    return False


def segments_of(wishes: Sequence[Wish], windows: Sequence[Window]) -> list[segments.Segment[Wish]]:
    """Return the segments of one object or member, in order."""
    return segments.segments(
        wishes,
        is_job=lambda wish: wish.spec is not None and "jobTemplate" in wish.spec,
        begun_by=lambda wish, is_first: _begun_by(wish, windows, is_first=is_first),
        seen_by=lambda wish: seen_by(wish, windows),
    )


def _begun_by(wish: Wish, windows: Sequence[Window], *, is_first: bool) -> int:
    """Return by when a wish took effect; a new object's slots count from its creation."""
    return wish.at_us if is_first and not is_of_member(wish) else seen_by(wish, windows)


def is_of_member(wish: Wish) -> bool:
    """Whether the wish is about a member, and so went to the HTTP API."""
    return "/" in wish.uid


def seen_by(wish: Wish, windows: Sequence[Window]) -> int:
    """Return by when it was certainly seen: its status or the HTTP API said so, or calm passed."""
    if is_of_member(wish):
        return segments.FAR_US if wish.ready_us is None else wish.ready_us
    if wish.spec is not None and wish.ready_us is not None:
        return wish.ready_us
    by = wish.at_us + LATENESS_US
    for window in windows:
        if window.begin_us - LATENESS_US <= wish.at_us <= window.end_us + RECOVERY_US:
            by = max(by, window.end_us + RECOVERY_US)
    return by
