"""What must have come of a history, by docs/reference/semantics.md; nothing of the engine is used.

The verdict rests on what the API server created, the receivers saw and the streams hold. Instants
are microseconds since the epoch.

*Slots.* Each wish of a user has slots, enumerated here from its text. Wishes with the same timing
make a segment. It begins with the creation of the object, or with the instant at which an edit was
seen, which lies between the edit and the first status that calls it Ready. Of its slots those
are *required* that are due while it is certainly current, *optional* those that are due while an
edit may or may not have been seen, and all others *forbidden*.

*Disturbances.* An event disturbs from its beginning to its end and for ``RECOVERY`` after it. Slots
that are due in a disturbance may be late up to its end, and the catch-up policy may choose among
them; a delivery may come more than once where the documentation says at least once. All other slots
run once, and within ``LATENESS``.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.simulation import overlaps, slots
from tests.simulation.faults import OF_USERS, Event, Kind
from tests.simulation.history import Record, Wish
from tests.simulation.slots import S

#: Nothing disturbs: a slot has its effect so long after its due.
LATENESS_US = 1 * S
#: Something disturbed: so long after its end everything is as if it had not been. A lease of 10 s
#: has to run out, a leader's of 15 s, and what a server lost is found and mended within 30 s.
RECOVERY_US = 45 * S
#: A process starts again after so long, see ``history.RESTART_SECONDS``.
_RESTART_US = 4 * S
#: A message that is lost is given up by its sender after so long at most.
_TIMEOUT_US = 15 * S
#: Where a worker's clock is wrong; see "never early" of the semantics.
EARLY_US = 0
#: A server that falls back by so many commands may lack a Schedule, so it is filled by its status.
MUCH_LOST = 20

_TIMING = (
    "schedule", "schedules", "timeZone", "dst", "jitter", "startTime", "endTime", "suspend",
    "suspendUntil",
)  # fmt: skip


# -- what happened ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Effect:
    """Something that a slot did in the world.

    Attributes:
        refused: a receiver answered that it did not take it.
    """

    at_us: int
    key: str
    refused: bool = False


@dataclass(frozen=True, slots=True)
class Window:
    begin_us: int
    end_us: int

    def has(self, instant: int) -> bool:
        return self.begin_us <= instant <= self.end_us


def windows_of(record: Record) -> list[Window]:
    """Disturbances, merged where they touch."""
    found = sorted(
        (at_us, at_us + _lasting_us(event))
        for at_us, event in record.events
        if event.kind not in OF_USERS
    )
    merged: list[Window] = []
    for begin, end in found:
        if merged and begin <= merged[-1].end_us + RECOVERY_US:
            merged[-1] = Window(merged[-1].begin_us, max(end, merged[-1].end_us))
        else:
            merged.append(Window(begin, end))
    return merged


def _lasting_us(event: Event) -> int:
    match event.kind:
        case Kind.LATE_REQUEST | Kind.LATE_REPLY | Kind.PAUSE_BEFORE | Kind.PAUSE_AFTER:
            return max(round(event.amount * S), _TIMEOUT_US)
        case Kind.OUTAGE | Kind.API_OUTAGE:
            return round(event.amount * S)
        case Kind.LOSE_REQUEST | Kind.LOSE_REPLY:
            return _TIMEOUT_US
        case Kind.KILL_BEFORE | Kind.KILL_AFTER | Kind.DRAIN | Kind.TAKEOVER:
            return _RESTART_US
        case _:
            return 0


@dataclass(frozen=True, slots=True)
class Segment:
    """Wishes with the same timing.

    Attributes:
        begin_us, latest_begin_us: it was current from some instant between these on.
        end_us, latest_end_us: and up to some instant between these.
        is_first: of the object, so that its slots count from its creation.
    """

    wishes: Sequence[Wish]
    begin_us: int
    latest_begin_us: int
    end_us: int
    latest_end_us: int
    is_first: bool

    @property
    def spec(self) -> Mapping[str, Any]:
        assert self.wishes[0].spec is not None
        return self.wishes[0].spec

    @property
    def runs(self) -> bool:
        return not self.spec.get("suspend")


_FAR = 2**60


def segments_of(wishes: Sequence[Wish], windows: Sequence[Window]) -> list[Segment]:
    """Of one object, in order."""
    groups: list[list[Wish]] = []
    for wish in wishes:
        if groups and _timing(groups[-1][-1]) == _timing(wish):
            groups[-1].append(wish)
        else:
            groups.append([wish])
    found = []
    for place, group in enumerate(groups):
        if group[0].spec is None:
            continue
        following = groups[place + 1][0] if place + 1 < len(groups) else None
        found.append(
            Segment(
                wishes=group,
                begin_us=group[0].at_us,
                latest_begin_us=group[0].at_us if place == 0 else _seen_by(group[0], windows),
                end_us=following.at_us if following else _FAR,
                latest_end_us=_seen_by(following, windows) if following else _FAR,
                is_first=place == 0,
            )
        )
    return found


def _timing(wish: Wish) -> object:
    if wish.spec is None:
        return None
    is_job = "jobTemplate" in wish.spec
    return (is_job, *(repr(wish.spec.get(name)) for name in _TIMING))


def _seen_by(wish: Wish, windows: Sequence[Window]) -> int:
    """The operator has seen it by then: its status says so, or enough calm has passed."""
    if wish.spec is not None and wish.ready_us is not None:
        return wish.ready_us
    by = wish.at_us + LATENESS_US
    for window in windows:
        if window.begin_us - LATENESS_US <= wish.at_us <= window.end_us + RECOVERY_US:
            by = max(by, window.end_us + RECOVERY_US)
    return by


# -- the verdict -----------------------------------------------------------------------------------


@dataclass(slots=True)
class _Judgement:
    record: Record
    windows: Sequence[Window]
    problems: list[str] = field(default_factory=list)

    def text(self, instant: int) -> str:
        return f"{(instant - self.record.begin_us) / S:+.3f}s"

    def complain(self, name: str, text: str) -> None:
        self.problems.append(f"{name}: {text}")

    def disturbance(self, instant: int, *, around_us: int = 0) -> Window | None:
        """What may have kept this instant from being as usual."""
        return next(
            (
                window
                for window in self.windows
                if window.begin_us - around_us <= instant <= window.end_us + RECOVERY_US
            ),
            None,
        )

    @property
    def forgot(self) -> bool:
        """Whether Redis has lost something."""
        return any(event.kind in (Kind.FLUSH, Kind.FALL_BACK) for _, event in self.record.events)

    def latest(self, due: int) -> int:
        """When a slot of this due must have had its effect."""
        window = self.disturbance(due, around_us=LATENESS_US)
        usual = due + LATENESS_US
        return usual if window is None else max(usual, window.end_us + RECOVERY_US)


def judge(record: Record) -> list[str]:
    """What is wrong, a line each; nothing where all is as it has to be."""
    judgement = _Judgement(record, windows_of(record))
    judgement.problems += [f"failure: {text}" for text in record.failures]
    for at_us, name in record.exits:
        judgement.complain(name, f"ended itself at {judgement.text(at_us)}: a part does not stop")
    known: set[tuple[str, int]] = set()
    for planned in record.story.schedules:
        wishes = record.wishes[planned.name]
        uid = wishes[0].uid if wishes else ""
        effects = effects_of(record, planned.target, uid)
        known.update((uid, slot) for slot in effects)
        _judge_schedule(judgement, planned.name, planned.target, wishes, effects)
    for uid, slot in _all_effects(record) - known:
        judgement.complain("phantom", f"{uid} has an effect for {judgement.text(slot)}")
    return judgement.problems


def effects_of(record: Record, target: str, uid: str) -> dict[int, list[Effect]]:
    """By slot, in order."""
    found: defaultdict[int, list[Effect]] = defaultdict(list)
    if target == "job":
        for job in record.made:
            if job.owner_uid == uid:
                found[job.slot_us].append(Effect(job.at_us, job.name))
    elif target == "webhook":
        for seen in record.seen:
            if seen.uid == uid:
                refused = not 200 <= seen.status < 300
                found[slots.instant_us(seen.slot)].append(Effect(seen.at_us, seen.id, refused))
    else:
        for entries in record.entries.values():
            for id_, fields in entries:
                if fields.get("schedule_id") == uid:
                    at_us = int(id_.partition("-")[0]) * 1_000
                    found[slots.instant_us(fields["scheduled_time"])].append(
                        Effect(at_us, fields["id"])
                    )
    return dict(found)


def _all_effects(record: Record) -> set[tuple[str, int]]:
    return (
        {(job.owner_uid, job.slot_us) for job in record.made}
        | {(seen.uid, slots.instant_us(seen.slot)) for seen in record.seen}
        | {
            (fields["schedule_id"], slots.instant_us(fields["scheduled_time"]))
            for entries in record.entries.values()
            for _, fields in entries
        }
    )


def _judge_schedule(
    judgement: _Judgement,
    name: str,
    target: str,
    wishes: Sequence[Wish],
    effects: Mapping[int, Sequence[Effect]],
) -> None:
    if not wishes:
        return
    required, allowed = _slots(judgement, name, wishes)
    spec = next(wish.spec for wish in reversed(wishes) if wish.spec is not None)
    attempts = {
        slot: [(effect.at_us, effect.refused) for effect in found]
        for slot, found in effects.items()
    }
    runs = overlaps.runs_of(judgement.record, target, wishes[0].uid, attempts)
    for slot, due in sorted(required.items()):
        if not overlaps.excuses(spec, runs, slot, due, judgement.latest(due)):
            _judge_required(judgement, name, target, slot, due, effects)
    for slot, found in sorted(effects.items()):
        if slot not in allowed:
            judgement.complain(name, f"slot {judgement.text(slot)} ran, and must not")
            continue
        due = allowed[slot]
        waited = overlaps.excuses(spec, runs, slot, due, judgement.latest(due))
        # entries that a server lost are written again, with new ids
        waited = waited or (target == "stream" and judgement.forgot)
        _judge_times(judgement, name, slot, due, found, may_wait=waited)
        _judge_count(judgement, name, target, slot, found)
    if not judgement.forgot:
        for one, other in overlaps.together(spec, target, runs):
            judgement.complain(
                name,
                f"slots {judgement.text(one.slot_us)} and {judgement.text(other.slot_us)}"
                " ran at the same time",
            )
    _judge_status(judgement, name, wishes, required, effects)


def _slots(
    judgement: _Judgement, name: str, wishes: Sequence[Wish]
) -> tuple[dict[int, int], dict[int, int]]:
    """Slots that have to run, and those that may, with their dues."""
    end_us = judgement.record.end_us
    created_us = wishes[0].at_us // S * S  # the API server cuts it to the second
    required: dict[int, int] = {}
    allowed: dict[int, int] = {}
    for segment in segments_of(wishes, judgement.windows):
        if not segment.runs:
            continue
        found = slots.slots_of(segment.spec, created_us, end_us + 3600 * S)
        for slot, following in zip(found, [*found[1:], None], strict=True):
            due = slot + slots.jitter_us(segment.spec, "shop", name, slot, following)
            if due > end_us or slot < segment.begin_us or due > segment.latest_end_us + LATENESS_US:
                continue
            allowed.setdefault(slot, due)
            # what was claimed late may have met the edit
            settled_by = judgement.latest(due)
            if (
                slot >= segment.latest_begin_us
                and settled_by < segment.end_us
                and settled_by < end_us
            ):
                required[slot] = due
    return required, allowed


def _judge_required(
    judgement: _Judgement,
    name: str,
    target: str,
    slot: int,
    due: int,
    effects: Mapping[int, Sequence[Effect]],
) -> None:
    found = effects.get(slot, ())
    if any(not effect.refused for effect in found):
        return
    if found and found[-1].at_us + overlaps.WAIT_US > judgement.record.end_us:
        return  # it waits for its next attempt
    if target == "stream" and _was_emptied(judgement, due):
        return
    if _may_be_missed(judgement, slot, due, judgement.record.wishes[name], effects):
        return
    judgement.complain(name, f"slot {judgement.text(slot)} is lost")


def _was_emptied(judgement: _Judgement, due: int) -> bool:
    """A FLUSHALL takes users' streams with it, and so does a server that lost nearly everything."""
    return any(
        at >= due and (event.kind is Kind.FLUSH or event.amount >= MUCH_LOST)
        for at, event in judgement.record.events
        if event.kind in (Kind.FLUSH, Kind.FALL_BACK)
    )


def _may_be_missed(
    judgement: _Judgement,
    slot: int,
    due: int,
    wishes: Sequence[Wish],
    effects: Mapping[int, Sequence[Effect]],
) -> bool:
    """The catch-up policy chooses among slots that were overdue together."""
    spec = next(wish.spec for wish in reversed(wishes) if wish.spec is not None)
    window = judgement.disturbance(due, around_us=LATENESS_US)
    if window is None:
        return False
    policy = spec.get("catchUpPolicy", "Latest")
    if policy == "None":
        return True
    if "startingDeadlineSeconds" in spec:
        return True
    if policy == "All":
        return False
    # a newer slot was due before this disturbance was over, and ran
    return any(slot < other <= window.end_us + RECOVERY_US for other in effects)


def _judge_times(
    judgement: _Judgement,
    name: str,
    slot: int,
    due: int,
    found: Sequence[Effect],
    *,
    may_wait: bool,
) -> None:
    first = min(effect.at_us for effect in found)
    if first < due - EARLY_US:
        judgement.complain(name, f"slot {judgement.text(slot)} ran {(due - first) / S:.6f} s early")
    if first > judgement.latest(due) and not may_wait:
        judgement.complain(
            name, f"slot {judgement.text(slot)} ran late, at {judgement.text(first)}"
        )


def _judge_count(
    judgement: _Judgement, name: str, target: str, slot: int, found: Sequence[Effect]
) -> None:
    """Once, or as often as the documentation allows."""
    taken = [effect for effect in found if not effect.refused]
    if len({effect.key for effect in found}) > 1:
        judgement.complain(name, f"slot {judgement.text(slot)} has several ids")
    if len(taken) <= 1:
        return
    if target == "webhook":
        first, last = taken[0].at_us, taken[-1].at_us
        spoilt = sum(
            1
            for at_us, event in judgement.record.events
            if event.kind not in OF_USERS and first - RECOVERY_US <= at_us <= last
        )
        if len(taken) <= 1 + spoilt:
            return
    judgement.complain(name, f"slot {judgement.text(slot)} ran {len(taken)} times")


def _judge_status(
    judgement: _Judgement,
    name: str,
    wishes: Sequence[Wish],
    required: Mapping[int, int],
    effects: Mapping[int, Sequence[Effect]],
) -> None:
    status = judgement.record.statuses[name]
    is_deleted = wishes[-1].spec is None
    if status is None or is_deleted:
        if (status is None) != is_deleted:
            judgement.complain(name, "the object is not as the user wished")
        return
    end_us = judgement.record.end_us
    calm = not any(window.end_us + RECOVERY_US > end_us for window in judgement.windows)
    if not calm:
        return
    conditions = {one["type"]: one for one in status.get("conditions", ())}
    ready = conditions.get("Ready", {})
    if ready.get("status") != "True" or status.get("observedGeneration") != wishes[-1].generation:
        judgement.complain(name, f"is not Ready in the end: {ready}")
    waiting = any(
        found[-1].refused and found[-1].at_us + overlaps.WAIT_US > end_us
        for found in effects.values()
    )
    queues = (wishes[-1].spec or {}).get("concurrencyPolicy") == "Queue"
    if "openSlots" in status and not waiting and not queues:
        judgement.complain(name, f"slots are open in the end: {status['openSlots']}")
    spec = wishes[-1].spec or {}
    ended = [slot for slot in required if required[slot] < end_us - 15 * S]
    if ended and not spec.get("suspend") and not waiting and not queues:
        settled = slots.instant_us(status["settledThrough"]) if "settledThrough" in status else 0
        if settled < max(ended):
            judgement.complain(
                name,
                f"settledThrough is {judgement.text(settled)}, below {judgement.text(max(ended))}",
            )
    _judge_counters(judgement, name, status, effects)


def _judge_counters(
    judgement: _Judgement,
    name: str,
    status: Mapping[str, Any],
    effects: Mapping[int, Sequence[Effect]],
) -> None:
    """Each slot that started is counted once; what a server forgot may be missing."""
    runs = Counter(status.get("runs", {}))
    end_us = judgement.record.end_us
    ran = sum(1 for slot in effects if slot < end_us - 15 * S)
    at_most = len(effects)
    if judgement.forgot:
        return
    if not ran <= runs["started"] <= at_most:
        judgement.complain(name, f"{at_most} slots ran, and status.runs says {dict(runs)}")
