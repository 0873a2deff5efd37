"""Concurrency policies of the queue in memory: the scripts ``admit`` and ``finish`` over sets.

It decides as they do, and the conformance suite holds both to the same answers. The history of the
server, which a restart or a failover changes, is an attribute for tests to change.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from duepoint.delayqueue import activeruns, messages
from duepoint.delayqueue.activeruns import (
    ActiveRunState,
    AdmissionAnswer,
    AdmissionRequest,
    Run,
    Verdict,
)
from duepoint.schedules import definition as definitions
from duepoint.schedules import points
from tests.fakes.memoryshard import MemoryShard, Point

_KINDS = {
    8: (points.PointKind.RETRY, points.PointKind.PLANNED, points.PointKind.QUEUED),
    12: (points.PointKind.MANUAL, points.PointKind.BACKFILL),
}


@dataclass(slots=True)
class _Set:
    """What a shard knows of one schedule."""

    complete_for: str = ""
    runs: dict[Run, bytes] = field(default_factory=dict)
    looks: dict[Run, int] = field(default_factory=dict)
    last_look: int = 0
    waiting: set[bytes] = field(default_factory=set)


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What is told of runs of one schedule: which have ended, and which is asked for."""

    runs: Sequence[Run] = ()
    jobs: Collection[str] = ()
    look: Run | None = None
    every: bool = False


@dataclass(slots=True)
class _Survey:
    active: int = 0
    suspects: list[Run] = field(default_factory=list)
    others: list[Run] = field(default_factory=list)
    replaced: list[Run] = field(default_factory=list)


class ActiveSets:
    """The sets of every shard."""

    def __init__(self) -> None:
        self.history = "first"
        self._sets: dict[tuple[messages.ShardId, points.ScheduleId], _Set] = {}

    def forget(self) -> None:
        """As after FLUSHALL."""
        self._sets.clear()

    def admit(
        self, shard: MemoryShard, claim_id: messages.ClaimId, entry: AdmissionRequest, now_us: int
    ) -> AdmissionAnswer:
        held = shard.members.get(entry.member)
        if claim_id not in shard.leases or held is None or held.holder != claim_id:
            return AdmissionAnswer(verdict=Verdict.LOST)
        schedule_id = points.ScheduleId(entry.member[:8])
        known = self._sets.setdefault((shard.number, schedule_id), _Set())
        return _Admission(shard, known, entry, now_us, self.history).decide()

    def finish(
        self, shard: MemoryShard, stored: definitions.Definition, told: Told, now_us: int
    ) -> activeruns.Finished:
        schedule_id, look = stored.id, told.look
        known = self._sets.setdefault((shard.number, schedule_id), _Set())
        before = len(known.runs)
        for run in told.runs:
            if run in known.runs and not _tried(shard, schedule_id, run, known.runs[run]):
                del known.runs[run]
        for run, value in list(known.runs.items()):
            if _job(run, value) in told.jobs and (
                _state(value) is ActiveRunState.ACTIVE or not _tried(shard, schedule_id, run, value)
            ):
                del known.runs[run]
        removed = before - len(known.runs)
        called = _hasten_stale(shard, known, stored.timing_version, now_us)
        waiting = _waiting(shard, known, stored.timing_version, now_us)
        most = len(waiting) if told.every else max(removed, 1)
        called += sum(_hasten(shard, one, now_us) for one in waiting[:most])
        state = ActiveRunState.ABSENT
        if look is not None and look in known.runs:
            state = _state(known.runs[look])
        return activeruns.Finished(state=state, removed=removed, called=called)


class _Admission:
    """One question."""

    def __init__(
        self, shard: MemoryShard, known: _Set, entry: AdmissionRequest, now_us: int, history: str
    ) -> None:
        self._shard = shard
        self._known = known
        self._entry = entry
        self._now_us = now_us
        self._mark = f"{history} {entry.mark}"
        self._id = points.ScheduleId(entry.member[:8])
        self._run = entry.run.run
        self._look = 0

    def decide(self) -> AdmissionAnswer:
        """The answer, and all that goes with it."""
        facts = self._entry.facts
        for over in facts.over:
            if self._known.runs.get(over.run) == over.value:
                del self._known.runs[over.run]
        self._begin_look()
        complete = self._entry.policy == activeruns.ALLOW or self._is_complete()
        if not complete and not facts.blind:
            return AdmissionAnswer(verdict=Verdict.UNKNOWN, mark=self._mark, look=self._look)
        for seen in facts.seen:
            self._known.runs.setdefault(seen.run, seen.value)
        for run in facts.verified:
            self._known.looks[run] = max(self._look, self._known.looks.get(run, 0))
        if self._run in self._known.runs:
            return self._entered(_state(self._known.runs[self._run]))
        if self._entry.policy == activeruns.ALLOW:
            return self._enter()
        found = self._survey()
        if self._entry.policy == activeruns.REPLACE:
            return self._replace(found)
        return self._beside(found, complete=complete)

    def _begin_look(self) -> None:
        self._look = self._entry.facts.look or self._known.last_look + 1
        self._known.last_look = max(self._look, self._known.last_look)

    def _beside(self, found: _Survey, *, complete: bool) -> AdmissionAnswer:
        """Of a policy under which a slot does not start where there is no room."""
        entry, facts = self._entry, self._entry.facts
        older = sum(one[13:] < entry.member[13:] for one in self._waiting_others())
        room = entry.most - found.active
        if complete and room > older:
            return self._enter()
        has_suspects = bool(found.suspects) and room + len(found.suspects) > older
        if not facts.blind and (has_suspects or not facts.checked):
            suspects = self._named(found.suspects) if has_suspects else ()
            return AdmissionAnswer(verdict=Verdict.CHECK, runs=suspects, look=self._look)
        if entry.policy == activeruns.FORBID:
            return AdmissionAnswer(verdict=Verdict.FORBIDDEN)
        return self._wait(room if complete else 0)

    def _is_complete(self) -> bool:
        if self._known.complete_for == self._mark:
            return True
        if self._entry.run.job and self._entry.facts.listed != self._mark:
            return False
        for member in self._shard.records:
            if member.startswith(self._id):
                self._remember(member)
        self._known.complete_for = self._mark
        return True

    def _remember(self, member: bytes) -> None:
        if member[12] == points.PointKind.RETRY and not self._entry.run.job:
            self._known.runs.setdefault(activeruns.run_of(member), b"AW" + member[8:12])
        if member[12] == points.PointKind.QUEUED and self._entry.waiting is not None:
            self._known.waiting.add(member)

    def _survey(self) -> _Survey:
        found = _Survey()
        for run, value in list(self._known.runs.items()):
            if run == self._run:
                continue
            tried, state = _tried(self._shard, self._id, run, value), _state(value)
            if state is ActiveRunState.REPLACED and _job(run, value):
                found.replaced.append(run)
            elif not tried and (state is not ActiveRunState.ACTIVE or not _job(run, value)):
                del self._known.runs[run]
            elif state is ActiveRunState.ACTIVE:
                found.active += 1
                found.others.append(run)
                if not tried and self._known.looks.get(run, 0) < self._look:
                    found.suspects.append(run)
        return found

    def _named(self, runs: Sequence[Run]) -> tuple[activeruns.ActiveRun, ...]:
        return tuple(activeruns.ActiveRun(run=run, value=self._known.runs[run]) for run in runs)

    def _entered(self, state: ActiveRunState) -> AdmissionAnswer:
        if state is ActiveRunState.REPLACED:
            return AdmissionAnswer(verdict=Verdict.REPLACED)
        if state is ActiveRunState.SURPLUS:
            return AdmissionAnswer(verdict=Verdict.FULL)
        entered = self._enter()
        if self._entry.policy != activeruns.REPLACE:
            return entered
        return AdmissionAnswer(verdict=Verdict.IN, runs=self._named(self._survey().replaced))

    def _enter(self) -> AdmissionAnswer:
        self._known.runs[self._run] = self._entry.run.value
        self._known.looks.pop(self._run, None)
        if self._entry.waiting is not None:
            self._known.waiting.discard(self._entry.member)
            self._call_up(self._entry.most - self._survey().active - 1)
        return AdmissionAnswer(verdict=Verdict.IN)

    def _replace(self, found: _Survey) -> AdmissionAnswer:
        if found.others and not self._entry.facts.checked:
            return AdmissionAnswer(verdict=Verdict.CHECK, look=self._look)
        own, others = self._entry.run, self._named(found.others)
        newer = [one for one in others if not one.is_wanted and one.slot_us > own.slot_us]
        if newer and not own.is_wanted:
            return AdmissionAnswer(verdict=Verdict.REPLACED)
        replaced = list(found.replaced)
        for run in found.others:
            value = self._known.runs[run]
            self._known.runs[run] = ActiveRunState.REPLACED.encode() + value[1:]
            if _job(run, value):
                replaced.append(run)
            for member in _members(self._id, run, value):
                _hasten(self._shard, member, self._now_us)
        self._known.runs[self._run] = self._entry.run.value
        return AdmissionAnswer(verdict=Verdict.IN, runs=self._named(replaced))

    # -- waiting -----------------------------------------------------------------------------------

    def _waiting_others(self) -> list[bytes]:
        if self._entry.waiting is None:
            return []
        waiting = _waiting(self._shard, self._known, self._entry.version, self._now_us)
        return [member for member in waiting if member != self._entry.member]

    def _call_up(self, room: int) -> None:
        waiting = _waiting(self._shard, self._known, self._entry.version, self._now_us)
        for member in waiting[: max(room, 0)]:
            _hasten(self._shard, member, self._now_us)

    def _wait(self, room: int) -> AdmissionAnswer:
        others = self._waiting_others()
        surplus = len(others) + 1 - self._entry.limit - max(room, 0)
        stays = sum(one[13:] < self._entry.member[13:] for one in others) >= surplus
        for member in others[: max(surplus if stays else surplus - 1, 0)]:
            target = self._entry.run.value[1:2]
            self._known.runs[activeruns.run_of(member)] = b"F" + target + member[8:12]
            self._known.waiting.discard(member)
            _hasten(self._shard, member, self._now_us)
        if stays:
            self._put_aside()
        else:
            self._known.waiting.discard(self._entry.member)
        self._call_up(room)
        return AdmissionAnswer(verdict=Verdict.WAITS if stays else Verdict.FULL)

    def _put_aside(self) -> None:
        waiting, shard = self._entry.waiting, self._shard
        assert waiting is not None
        record = shard.records.get(self._entry.member, messages.OccurrenceRecord())
        lane = shard.members[self._entry.member].lane
        is_another = waiting.point.kind is points.PointKind.QUEUED
        shard.drop(self._entry.member)
        shard.members[waiting.point.member] = Point(lane, waiting.point.due_us)
        shard.records[waiting.point.member] = waiting.record if is_another else record
        self._known.waiting.add(waiting.point.member)


def _state(value: bytes) -> ActiveRunState:
    return ActiveRunState(value[:1].decode())


def _job(run: Run, value: bytes) -> str:
    return activeruns.ActiveRun(run=run, value=value).job


def _members(schedule_id: points.ScheduleId, run: Run, value: bytes) -> list[bytes]:
    return [schedule_id + value[2:6] + bytes([kind]) + run for kind in _KINDS.get(len(run), ())]


def _tried(shard: MemoryShard, schedule_id: points.ScheduleId, run: Run, value: bytes) -> bool:
    return any(member in shard.members for member in _members(schedule_id, run, value))


def _waiting(
    shard: MemoryShard, known: _Set, version: points.TimingVersion, now_us: int
) -> list[bytes]:
    """Those that still wait, oldest slot first."""
    _hasten_stale(shard, known, version, now_us)
    return sorted(known.waiting, key=lambda member: (member[13:21], member))


def _hasten_stale(
    shard: MemoryShard, known: _Set, version: points.TimingVersion, now_us: int
) -> int:
    """Those that do not wait any more go; those of an older timing are due, to be told of."""
    stale = 0
    for member in list(known.waiting):
        is_old = member[12] == points.PointKind.QUEUED and member[8:12] != version
        if member not in shard.members:
            known.waiting.discard(member)
        elif is_old:
            known.waiting.discard(member)
            stale += _hasten(shard, member, now_us)
    return stale


def _hasten(shard: MemoryShard, member: bytes, now_us: int) -> int:
    point = shard.members.get(member)
    if point is None or point.holder is not None or point.due_us <= now_us:
        return 0
    point.due_us = now_us
    return 1
