"""The history of a run: users' wishes, effects in the world, faults, and the final state.

It is stored as a text file with one JSON object a line, in the order of recording, so that it can
be judged again. Instants are microseconds since the epoch, by the machine's only clock. Nothing
comes from Duepoint's own records except the final statuses, which the checker judges.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeAlias

#: The uid and generation of a wish for which no object becomes ``Ready``.
NEVER_READY = ("", 0)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """How the run was set up; the first line.

    Attributes:
        kind: the Redis set-up: ``single``, ``cluster``, ``sentinel``.
        namespace: that of the Schedules; their jitter depends on it.
        recovery_us: how long after the end of a fault effects may still be late.
        lateness_us: how late an effect may be without a disturbance.
    """

    seed: int
    kind: str
    namespace: str
    seconds: float
    recovery_us: int
    lateness_us: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """A user wrote or deleted an object.

    Attributes:
        target: ``job``, ``webhook`` or ``stream``.
        spec: None if the object was deleted.
        edit: counts the wishes of an object from 1; its payload carries it.
        created_us: when the object was created, according to the API server.
        at_us, returned_us: when the request was first sent, and when an answer confirmed it.
        of: uid and generation that must become ``Ready`` for it; no uid = none ever does.
        ready_us: when that was first seen; 0 if it never was.
    """

    name: str
    uid: str
    target: str
    spec: dict[str, Any] | None
    edit: int
    created_us: int
    at_us: int
    returned_us: int
    of: tuple[str, int] = NEVER_READY
    ready_us: int = 0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ReadySeen:
    """An object was first seen to be ``Ready`` for its generation."""

    uid: str
    generation: int
    at_us: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """Something that a slot did in the world.

    Attributes:
        uid: that of the Schedule; ``set/id`` for a member; ``run/uid`` for a run by hand.
        at_us: when it was seen; it happened then or earlier.
        since_us: the earliest time at which it can have happened, if known; else the same.
        key: the same for all attempts of a slot: name, ``webhook-id``, field ``id``.
        unique: distinguishes effects with one key: a Job's uid, an entry's id; else empty.
        edit: the wish that it was made from; 0 if unknown.
        accepted: whether the receiver accepted it.
        begun_rev: the API server's revision of a Job's creation.
    """

    target: str
    uid: str
    slot_us: int
    at_us: int
    since_us: int
    key: str
    unique: str = ""
    edit: int = 0
    accepted: bool = True
    begun_rev: int = 0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class JobEnd:
    """A Job was finished, deleted or marked for deletion, at this revision of the API server."""

    unique: str
    rev: int
    at_us: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Attributes:
    kind, what: such as ``kill`` and ``worker-1``.
    witness: evidence that it had an effect; empty if there is none.
    forgets: whether Redis may have lost confirmed writes.
    """

    kind: str
    what: str
    begin_us: int
    end_us: int
    witness: str = ""
    forgets: bool = False


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A kind of fault that is not possible here, and why."""

    kind: str
    why: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """A time in which the machine did not run a thread of the recorder that only sleeps.

    Other processes got too little time to be punctual, too. It disturbs, but is not a fault.
    """

    begin_us: int
    end_us: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LeaseSeen:
    """The Lease of the operators after a change."""

    at_us: int
    holder: str
    epoch: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StatusAtEnd:
    """A Schedule's status once everything has settled; ``status`` None = it is gone."""

    name: str
    generation: int
    status: dict[str, Any] | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EndState:
    """The rest of the final state.

    Attributes:
        at_us: when the last statuses were read.
        problems: what has not settled, a line each.
        strangers: what happened to objects that are not Duepoint's, a line each.
    """

    at_us: int
    problems: tuple[str, ...] = ()
    strangers: tuple[str, ...] = ()


Line: TypeAlias = (
    Run | Wish | ReadySeen | Effect | JobEnd | Fault | Skipped | Stall | LeaseSeen | StatusAtEnd
    | EndState
)  # fmt: skip
_LINES: tuple[type[Line], ...] = (
    Run, Wish, ReadySeen, Effect, JobEnd, Fault, Skipped, Stall, LeaseSeen, StatusAtEnd, EndState,
)  # fmt: skip
_KINDS: dict[str, type[Line]] = {one.__name__: one for one in _LINES}


@dataclasses.dataclass(slots=True)
class History:
    """All lines of a history, by kind."""

    run: Run
    wishes: list[Wish] = dataclasses.field(default_factory=list)
    ready: dict[tuple[str, int], int] = dataclasses.field(default_factory=dict)
    effects: list[Effect] = dataclasses.field(default_factory=list)
    job_ends: list[JobEnd] = dataclasses.field(default_factory=list)
    faults: list[Fault] = dataclasses.field(default_factory=list)
    skipped: list[Skipped] = dataclasses.field(default_factory=list)
    stalls: list[Stall] = dataclasses.field(default_factory=list)
    leases: list[LeaseSeen] = dataclasses.field(default_factory=list)
    statuses: list[StatusAtEnd] = dataclasses.field(default_factory=list)
    end: EndState | None = None

    def add(self, line: Line) -> None:
        match line:
            case Run():
                raise ValueError("a history has one Run, its first line")
            case Wish():
                known_us = line.ready_us or self.ready.get(line.of, 0)
                self.wishes.append(dataclasses.replace(line, ready_us=known_us))
            case ReadySeen():
                self._see_ready((line.uid, line.generation), line.at_us)
            case Effect():
                self.effects.append(line)
            case JobEnd():
                self.job_ends.append(line)
            case Fault():
                self.faults.append(line)
            case Skipped():
                self.skipped.append(line)
            case Stall():
                self.stalls.append(line)
            case LeaseSeen():
                self.leases.append(line)
            case StatusAtEnd():
                self.statuses.append(line)
            case EndState():
                self.end = line

    def _see_ready(self, of: tuple[str, int], at_us: int) -> None:
        self.ready[of] = at_us
        for place, wish in enumerate(self.wishes):
            if wish.of == of and not wish.ready_us:
                self.wishes[place] = dataclasses.replace(wish, ready_us=at_us)


def instant_us(text: str) -> int:
    """Return the instant of an RFC 3339 text, to the millisecond."""
    return round(dt.datetime.fromisoformat(text).timestamp() * 1000) * 1000


def text_of(line: Line) -> str:
    """Return the line as JSON, with the name of its kind."""
    return json.dumps({"is": type(line).__name__, **dataclasses.asdict(line)})


def read(lines: Iterable[str]) -> History:
    """Return the history of these lines.

    Raises:
        ValueError: a line is not one of ours, or the first one is not a Run.
    """
    found: History | None = None
    for number, text in enumerate(lines, 1):
        fields = json.loads(text)
        kind = _KINDS.get(fields.pop("is", ""))
        if kind is None:
            raise ValueError(f"line {number} is no line of a history: {text[:80]}")
        line = kind(**{key: _tuple(value) for key, value in fields.items()})
        if found is None:
            if not isinstance(line, Run):
                raise ValueError(f"line 1 is {kind.__name__}; a history begins with Run")
            found = History(line)
        else:
            found.add(line)
    if found is None:
        raise ValueError("the history is empty")
    return found


def read_file(path: Path) -> History:
    """Read a stored history, which is compressed if its name ends in ``.gz``."""
    data = path.read_bytes()
    text = gzip.decompress(data) if path.suffix == ".gz" else data
    return read(text.decode().splitlines())


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
