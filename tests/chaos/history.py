"""What a run has recorded: users' wishes, effects in the world, faults, and the state at its end.

A history is a text file of one JSON object a line, in the order of recording, so that it can be
judged again. Instants are microseconds since the epoch, of the one clock of the machine. Nothing
here comes from Duepoint's own records, but for the statuses at the end, which are judged.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeAlias

#: Of a wish that no object becomes ``Ready`` for.
NEVER_READY = ("", 0)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """How the run was set up; the first line.

    Attributes:
        kind: of the Redis set-up: ``single``, ``cluster``, ``sentinel``.
        namespace: of the Schedules; their jitter depends on it.
        recovery_us: so long after the end of a fault, effects may still be late.
        lateness_us: so late an effect may be where nothing disturbs.
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
        spec: None where the object was deleted.
        edit: counts the wishes of an object from 1; its payload carries it.
        created_us: the object's creation, as the API server says it.
        at_us, returned_us: when the request was sent first, and when an answer said that it is so.
        of: uid and generation of the object that has to be ``Ready`` for it; no uid = it never is.
        ready_us: when that was first seen; 0 where it never was.
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
        uid: of the Schedule; of a member ``set/id``; of a run by hand ``run/uid``.
        at_us: when it was seen; it happened then or earlier.
        since_us: it did not happen before, where something says so; else the same.
        key: what all attempts of a slot have in common: name, ``webhook-id``, field ``id``.
        unique: what tells effects of one key apart: a Job's uid, an entry's id; else empty.
        edit: which of the wishes it was made from; 0 where it does not say.
        accepted: whether the receiver took it.
        begun_rev: of a Job, the API server's revision of its creation.
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
    witness: what shows that it bit; empty where nothing does.
    forgets: whether Redis may have lost what it had confirmed.
    """

    kind: str
    what: str
    begin_us: int
    end_us: int
    witness: str = ""
    forgets: bool = False


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A kind of fault that cannot be had here, and why."""

    kind: str
    why: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """The machine gave no time to a thread of the recorder that only sleeps.

    Other processes had none either, or not enough to be punctual: it disturbs, and is no fault.
    """

    begin_us: int
    end_us: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LeaseSeen:
    """The Lease of the operators, at each change."""

    at_us: int
    holder: str
    epoch: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StatusAtEnd:
    """A Schedule as it is when everything has come to rest; ``status`` None = it is gone."""

    name: str
    generation: int
    status: dict[str, Any] | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EndState:
    """What else is so at the end.

    Attributes:
        at_us: when the last statuses were read.
        problems: what has not come to rest, a line each.
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
    """All lines, by kind."""

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
    """RFC 3339, to the millisecond."""
    return round(dt.datetime.fromisoformat(text).timestamp() * 1000) * 1000


def text_of(line: Line) -> str:
    """The line as JSON, with the name of its kind."""
    return json.dumps({"is": type(line).__name__, **dataclasses.asdict(line)})


def read(lines: Iterable[str]) -> History:
    """The history of these lines.

    Raises:
        ValueError: a line is none of ours, or the first one is no Run.
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
    """A stored history, compressed where its name ends in ``.gz``."""
    data = path.read_bytes()
    text = gzip.decompress(data) if path.suffix == ".gz" else data
    return read(text.decode().splitlines())


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
