"""Concurrency policies: decides whether a due slot starts beside its Schedule's active runs. Pure.

``admit`` decides for one claimed occurrence, ``finish`` for runs that have ended. Both get the runs
as they were read and return how they change. ``admission`` writes the change if the runs are still
the same, and asks for a new decision if not, so that any number of workers together start no more
runs than allowed.

The stored state of a Job is never enough to refuse a slot. A run that has an occurrence is being
tried, so it is active; a delivery without one has ended; a Job without one must be read. Then the
answer names the Job, and the caller asks again with what it has found.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from duepoint.delayqueue import activeruns, messages
from duepoint.delayqueue.activeruns import ActiveRun, ActiveRuns, ActiveRunState, Change, Run
from duepoint.schedules import points

#: Policies that let a slot wait, or end without a run; the others start it.
ALLOW, FORBID, REPLACE, QUEUE = "Allow", "Forbid", "Replace", "Queue"

#: Most stored runs. A Schedule that allowed all may have more Jobs: the next slot lists them too.
MOST_RUNS = 1_000

_FOREIGN = b"\xff"  # first byte of the run of a Job that is not ours by its name and has no slot


class Verdict(enum.Enum):
    """The decision about a slot that asks to start."""

    IN = "in"
    FORBIDDEN = "forbidden"
    WAITS = "waits"  # in the queue; it has left the claim
    FULL = "full"  # too many wait
    REPLACED = "replaced"  # by a newer one
    LOST = "lost"  # the claim does not hold it
    UNKNOWN = "unknown"  # list the Jobs, then ask again with the mark
    CHECK = "check"  # read these Jobs and the slot's own, then ask again


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the caller has found out for a slot since its first request.

    Attributes:
        listed: the mark of the answer UNKNOWN after which the Jobs were listed.
        seen: the active Jobs of that list.
        over: runs that have ended.
        verified: runs whose Jobs were read and are active.
        checked: the slot's own Job does not exist.
        blind: the Jobs cannot be read; only a slot that may wait asks like this.
    """

    listed: str = ""
    seen: tuple[ActiveRun, ...] = ()
    over: frozenset[ActiveRun] = frozenset()
    verified: frozenset[Run] = frozenset()
    checked: bool = False
    blind: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A claimed occurrence that asks to start.

    Attributes:
        run: the entry that will count it among the runs.
        version: the Schedule's timing version now.
        policy: the policy that applies; ``Allow`` starts and counts it.
        most: runs that may be active at once, this one included.
        mark: names the state that the runs must be complete for; if theirs differs, the Jobs are
            listed.
        waiting: with Queue: its occurrence while it waits, due when it asks again by itself.
        limit: with Queue: slots that may wait.
    """

    member: bytes
    run: ActiveRun
    version: points.TimingVersion
    policy: str
    most: int
    mark: str
    waiting: messages.Occurrence | None = None
    limit: int = 1
    facts: Facts = field(default_factory=Facts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer to a request.

    Attributes:
        runs: with IN, the runs whose Jobs to delete; with CHECK, those whose Jobs to read.
        mark: with UNKNOWN, the mark to list for.
        change: must be written before the answer holds; None = nothing.
    """

    verdict: Verdict
    runs: tuple[ActiveRun, ...] = ()
    mark: str = ""
    change: Change | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The result of ``finish``: a change, and what it affects.

    Attributes:
        state: the state of the run ``look``.
        removed: how many runs counted and no longer do.
        called: how many waiting slots are due now, including those of an older timing.
    """

    change: Change | None = None
    state: ActiveRunState = ActiveRunState.ABSENT
    removed: int = 0
    called: int = 0


def admit(known: ActiveRuns, request: Request) -> Answer:
    """Return whether the slot may start; if so it counts as a run from then on.

    A run that was admitted before is admitted again.
    """
    facts = request.facts
    if not known.is_held:
        return Answer(verdict=Verdict.LOST)
    runs = _Runs(known, request.version)
    runs.remove(one for one in facts.over if runs.runs.get(one.run) == one)
    mark = f"{known.history} {request.mark}"
    is_complete = request.policy == ALLOW or runs.mark == mark
    if not is_complete and (not request.run.is_job or facts.listed == mark):
        runs.complete(mark, is_job=request.run.is_job)
        is_complete = True
    if not is_complete and not facts.blind:
        return Answer(verdict=Verdict.UNKNOWN, mark=mark)
    runs.add_seen(facts.seen)
    return _judge(runs, request, is_complete=is_complete)


def finish(
    known: ActiveRuns,
    *,
    version: points.TimingVersion,
    jobs: Collection[str] = (),
    ended: Collection[Run] = (),
    look: Run | None = None,
    every: bool = False,
) -> Finished:
    """Remove these runs, or those of these Jobs; make as many waiting slots due at once.

    A run that was replaced meanwhile stays while it is tried: its worker has to learn of it. If no
    run was removed, one slot is made due all the same, and finds out itself whether it may start.

    Args:
        ended: runs to remove unless they are tried again.
        look: the run whose state to return.
        every: there is more room, so make all waiting slots due.
    """
    left = _Runs(known, version)
    named = [one for one in known.runs.values() if one.is_job and one.job in jobs]
    left.remove(
        one for one in named if one.state is ActiveRunState.ACTIVE or one.run not in known.tried
    )
    left.remove(
        one for one in known.runs.values() if one.run in ended and one.run not in known.tried
    )
    removed = sum(one.run not in left.runs and one.run not in ended for one in named)
    left.call(None if every else max(removed + len(ended), 1))
    state = ActiveRunState.ABSENT if look is None else left.state_of(look)
    change = left.change()
    return Finished(change=change, state=state, removed=removed, called=len(change.due))


class _Runs:
    """The runs during a decision, without those that have ended by themselves."""

    def __init__(self, known: ActiveRuns, version: points.TimingVersion) -> None:
        self._known = known
        self._version = version
        self.mark = known.mark
        self.runs = {
            run: one
            for run, one in known.runs.items()
            if run in known.tried
            or (one.is_job and one.state in (ActiveRunState.ACTIVE, ActiveRunState.REPLACED))
        }
        self._due: list[bytes] = []
        self._drop_stale()

    def _drop_stale(self) -> None:
        """Make waiting slots of an older timing due at once, so that they end."""
        for run in self.waiting():
            tried = self._known.tried[run]
            if tried.kind == points.PointKind.QUEUED and tried.member[8:12] != self._version:
                self._hasten(run)
                del self.runs[run]

    def state_of(self, run: Run) -> ActiveRunState:
        found = self.runs.get(run)
        return ActiveRunState.ABSENT if found is None else found.state

    def is_tried(self, run: Run) -> bool:
        return run in self._known.tried

    def active(self) -> list[ActiveRun]:
        return [one for one in self.runs.values() if one.state is ActiveRunState.ACTIVE]

    def waiting(self) -> list[Run]:
        """Return the waiting runs, oldest first."""
        return sorted(run for run, one in self.runs.items() if one.state is ActiveRunState.WAITING)

    def put(self, one: ActiveRun) -> None:
        self.runs[one.run] = one

    def remove(self, ended: Iterable[ActiveRun]) -> None:
        for one in list(ended):
            self.runs.pop(one.run, None)

    def complete(self, mark: str, *, is_job: bool) -> None:
        """Add the runs that occurrences show: deliveries between two tries, and waiting slots."""
        self.mark = mark
        for run, tried in self._known.tried.items():
            version = points.TimingVersion(tried.member[8:12])
            one = activeruns.active(run, version, "")
            if tried.kind == points.PointKind.RETRY and not is_job:
                self.runs.setdefault(run, one)
            elif tried.kind == points.PointKind.QUEUED:
                self.runs.setdefault(run, one.in_state(ActiveRunState.WAITING))
        self._drop_stale()

    def add_seen(self, seen: Iterable[ActiveRun]) -> None:
        """Add the Jobs of a list while there is room; clear the mark if some are left out."""
        for one in seen:
            if len(self.runs) >= MOST_RUNS and one.run not in self.runs:
                self.mark = ""
                break
            self.runs.setdefault(one.run, one)

    def call(self, most: int | None) -> None:
        """Make at most this many waiting slots due at once, oldest first; None = all."""
        for run in self.waiting()[:most]:
            self._hasten(run)

    def replace_active(self) -> None:
        """Mark the active runs as replaced; make their retries due at once, so that they end."""
        for one in self.active():
            self.put(one.in_state(ActiveRunState.REPLACED))
            self._hasten(one.run)

    def drop_oldest(self, waiting: Iterable[Run]) -> None:
        """Mark these waiting runs as surplus; make them due at once, so that they end."""
        for run in waiting:
            self.put(self.runs[run].in_state(ActiveRunState.SURPLUS))
            self._hasten(run)

    def _hasten(self, run: Run) -> None:
        tried = self._known.tried.get(run)
        if tried is not None and tried.is_later_than(self._known.now_us):
            self._due.append(tried.member)

    def change(self, waiting: messages.Occurrence | None = None) -> Change:
        return Change(runs=self.runs, mark=self.mark, due=tuple(self._due), waiting=waiting)


def _judge(runs: _Runs, request: Request, *, is_complete: bool) -> Answer:
    before = runs.state_of(request.run.run)
    if before is ActiveRunState.REPLACED:
        return Answer(verdict=Verdict.REPLACED)
    if before is ActiveRunState.SURPLUS:
        return Answer(verdict=Verdict.FULL)
    if before is ActiveRunState.ACTIVE or request.policy == ALLOW:
        return _enter(runs, request)
    if request.policy == REPLACE:
        return _replace(runs, request)
    return _beside_others(runs, request, is_complete=is_complete)


def _enter(runs: _Runs, request: Request) -> Answer:
    runs.put(request.run)
    replaced = [
        one for one in runs.runs.values() if one.state is ActiveRunState.REPLACED and one.is_job
    ]
    if request.policy == QUEUE:
        runs.call(max(request.most - len(runs.active()), 0))
    return Answer(
        verdict=Verdict.IN,
        runs=tuple(replaced) if request.policy == REPLACE else (),
        change=runs.change(),
    )


def _replace(runs: _Runs, request: Request) -> Answer:
    """Replace the active runs, unless one of them is of a newer slot.

    A slot that comes late, by a catch-up or a retry, does not take its place back.
    """
    own = request.run
    others = runs.active()
    if others and not request.facts.checked:
        return Answer(verdict=Verdict.CHECK)
    is_behind = any(own.run < one.run < _FOREIGN for one in others if not one.is_wanted)
    if is_behind and not own.is_wanted:
        return Answer(verdict=Verdict.REPLACED, change=runs.change())
    runs.replace_active()
    return _enter(runs, request)


def _beside_others(runs: _Runs, request: Request, *, is_complete: bool) -> Answer:
    """Start the slot if there is room for it and for the older ones that wait."""
    facts, own = request.facts, request.run.run
    older = 0
    if request.policy == QUEUE:
        older = sum(run < own for run in runs.waiting())
    active = runs.active()
    unsure = [one for one in active if not (one.run in facts.verified or runs.is_tried(one.run))]
    room = request.most - len(active)
    if is_complete and room > older:
        return _enter(runs, request)
    has_chance = bool(unsure) and room + len(unsure) > older
    if not facts.blind and (has_chance or not facts.checked):
        return Answer(verdict=Verdict.CHECK, runs=tuple(unsure) if has_chance else ())
    if request.policy == FORBID:
        return Answer(verdict=Verdict.FORBIDDEN, change=runs.change())
    return _wait(runs, request, room=max(room, 0) if is_complete else 0)


def _wait(runs: _Runs, request: Request, *, room: int) -> Answer:
    """Let the slot wait; if too many wait, drop the oldest.

    Waiting slots that have room start in a moment, and do not count as too many.
    """
    own = request.run
    others = [run for run in runs.waiting() if run != own.run]
    surplus = max(len(others) + 1 - request.limit - room, 0)
    older = sum(run < own.run for run in others)
    stays = older >= surplus
    runs.drop_oldest(others[: surplus if stays else surplus - 1])
    if stays:
        runs.put(activeruns.active(own.run, own.version, "").in_state(ActiveRunState.WAITING))
    else:
        runs.remove([own])
    runs.call(room)
    verdict = Verdict.WAITS if stays else Verdict.FULL
    return Answer(verdict=verdict, change=runs.change(request.waiting if stays else None))
