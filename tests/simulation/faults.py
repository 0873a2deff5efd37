"""The kinds of faults, and events that inject one of them at the message of a given number.

Each message that a process sends (commands to Redis, a request to the API server or to a receiver)
gets the next number of the history. Up to its first event a history is the same as one without
events, so the numbers of a quiet run say where an event can be injected. Between two messages a
process changes nothing outside itself, so kills before and after each message cover every kill.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """Kinds of events.

    The first group affects the message, the second the process that sends it, the third Redis; the
    last is what users and leaders do.
    """

    LOSE_REQUEST = "lose-request"
    LOSE_REPLY = "lose-reply"
    RESET_REQUEST = "reset-request"
    RESET_REPLY = "reset-reply"
    LATE_REQUEST = "late-request"
    LATE_REPLY = "late-reply"

    KILL_BEFORE = "kill-before"
    KILL_AFTER = "kill-after"
    PAUSE_BEFORE = "pause-before"
    PAUSE_AFTER = "pause-after"
    DRAIN = "drain"
    CLOCK_AHEAD = "clock-ahead"
    CLOCK_BEHIND = "clock-behind"

    FLUSH = "flush"
    FALL_BACK = "fall-back"
    OUTAGE = "outage"
    API_OUTAGE = "api-outage"
    RECEIVER_OUTAGE = "receiver-outage"
    SERVER_AHEAD = "server-ahead"
    SERVER_BEHIND = "server-behind"
    PARTITION = "partition"
    NEW_KEY = "new-key"

    EDIT = "edit"
    RETIME = "retime"
    RESCHEDULE = "reschedule"
    POLICY = "policy"
    SUSPEND = "suspend"
    RESUME = "resume"
    DELETE = "delete"
    RECREATE = "recreate"
    RUN = "run"
    BACKFILL = "backfill"
    TAKEOVER = "takeover"


OF_PROCESSES = frozenset(
    {Kind.KILL_BEFORE, Kind.KILL_AFTER, Kind.PAUSE_BEFORE, Kind.PAUSE_AFTER, Kind.DRAIN}
    | {Kind.TAKEOVER, Kind.CLOCK_AHEAD, Kind.CLOCK_BEHIND}
)
OF_SERVERS = frozenset(
    {Kind.FLUSH, Kind.FALL_BACK, Kind.OUTAGE, Kind.API_OUTAGE, Kind.RECEIVER_OUTAGE}
    | {Kind.SERVER_AHEAD, Kind.SERVER_BEHIND, Kind.PARTITION, Kind.NEW_KEY}
)
OF_USERS = frozenset(
    {Kind.EDIT, Kind.RETIME, Kind.RESCHEDULE, Kind.POLICY, Kind.SUSPEND, Kind.RESUME}
    | {Kind.DELETE, Kind.RECREATE, Kind.RUN, Kind.BACKFILL}
)
#: A process's own clock, and Redis's: if both are wrong at once, nothing is promised.
OF_CLOCKS = frozenset({Kind.CLOCK_AHEAD, Kind.CLOCK_BEHIND, Kind.SERVER_AHEAD, Kind.SERVER_BEHIND})


@dataclass(frozen=True, slots=True, order=True)
class Event:
    """A fault, and where it is injected.

    Attributes:
        at: number of the message.
        amount: seconds of a pause, an outage, a delay or a clock error; the number of commands that
        a fallback loses; the number of shards that a user asks for.
        name: the Schedule, set or member that a user changes; "" = the first Schedule.
    """

    at: int
    kind: Kind
    amount: float = 0.0
    name: str = ""

    def __str__(self) -> str:
        amount = f" {self.amount:g}" if self.amount else ""
        return f"{self.kind}@{self.at}{amount}{f' {self.name}' if self.name else ''}"


#: A lease lasts 10 s; a Redis command times out after 5 s, a request to the API server after 15 s.
USUAL_AMOUNTS = {
    Kind.LATE_REQUEST: 20.0,
    Kind.LATE_REPLY: 4.0,
    Kind.PAUSE_BEFORE: 25.0,
    Kind.PAUSE_AFTER: 25.0,
    Kind.FALL_BACK: 1.0,
    Kind.OUTAGE: 8.0,
    Kind.API_OUTAGE: 20.0,
    Kind.RECEIVER_OUTAGE: 12.0,
    Kind.CLOCK_AHEAD: 3600.0,
    Kind.CLOCK_BEHIND: 3600.0,
    Kind.SERVER_AHEAD: 3600.0,
    Kind.SERVER_BEHIND: 3600.0,
    Kind.PARTITION: 4.0,
}


def usual(kind: Kind, at: int, amount: float | None = None, name: str = "") -> Event:
    """Return an event with the usual amount of its kind."""
    return Event(at, kind, USUAL_AMOUNTS.get(kind, 0.0) if amount is None else amount, name)
