"""The judge of a history, by docs/reference/semantics.md; it uses no code of the engine.

The verdict rests on what the API server created, the receivers saw and the streams contain.
Instants are microseconds since the epoch.

*Slots.* Each wish of a user has slots, which the judge enumerates from its text. Consecutive wishes
with the same timing make a segment. It begins when the object is created, or when the operator sees
the edit: between the edit and the first status that calls it Ready. A slot is *required* if it is
due while its segment is certainly current, *optional* if it is due while the operator may or may
not have seen an edit, and otherwise *forbidden*.

*Disturbances.* An event disturbs from its beginning to its end and for ``RECOVERY`` after it. Slots
that are due in a disturbance may be late up to its end, and the catch-up policy may choose among
them; a delivery may be repeated if the documentation says at least once. All other slots run once,
within ``LATENESS``.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.simulation import manualruns, memberrules, overlaps, segments, slots
from tests.simulation.effects import Effect, Effects, all_of, effects_of
from tests.simulation.faults import OF_CLOCKS, Kind
from tests.simulation.history import Record
from tests.simulation.judgement import (
    Judgement,
    Subject,
    events_of,
    without_collected,
    without_replaced,
)
from tests.simulation.plans import Wish
from tests.simulation.slots import S
from tests.simulation.timeline import (
    EARLY_US,
    LATENESS_US,
    RECOVERY_US,
    is_of_member,
    segments_of,
    windows_of,
    woke_up_at,
)

#: A server that loses this many commands may lack a Schedule; the operator then restores it.
MUCH_LOST = 20
#: The slot after the last one bounds its jitter; no story has a longer period than this.
_FOLLOWING_US = 100 * S
#: How far the status of a Schedule that fires every second may be behind: 10 s between two writes,
#: and the wait for the part of a second in which no slots fire.
_LAG_US = 20 * S
#: Without a deadline, by docs/reference/semantics.md.
_ONE_OFF_SECONDS = 60


def judge(record: Record) -> list[str]:
    """Return the problems of a history, a line each; none if all is well."""
    judgement = Judgement(record, windows_of(record))
    judgement.problems += [f"failure: {text}" for text in record.failures]
    for at_us, name in record.exits:
        # A process paused while it was to end its term exits when it wakes up: its time was over.
        if woke_up_at(record, name, at_us):
            continue
        judgement.complain(name, f"ended itself at {judgement.text(at_us)}: a part does not stop")
    known: set[tuple[str, int]] = set()
    found = effects_of(record)
    for subject in _subjects(record, found):
        known.update((subject.uid, slot) for slot in (*subject.effects, *subject.by_hand))
        _judge_subject(judgement, subject)
    for name in record.story.sets:
        memberrules.judge_set(judgement, name)
    for uid, slot in sorted(all_of(found) - known):
        judgement.complain("phantom", f"{uid} has an effect for {judgement.text(slot)}")
    return judgement.problems


def _subjects(record: Record, found: Effects) -> Iterator[Subject]:
    """Yield each Schedule from its creation to its deletion, and each member."""
    for planned in record.story.schedules:
        lives = itertools.groupby(record.wishes[planned.name], lambda wish: wish.uid)
        for uid, wishes in lives:
            yield Subject(
                name=planned.name,
                target=planned.target,
                uid=uid,
                wishes=tuple(wishes),
                effects=found.get((uid, False), {}),
                by_hand=found.get((uid, True), {}),
            )


def _judge_subject(judgement: Judgement, subject: Subject) -> None:
    required, allowed, earliest = _slots(judgement, subject)
    holds = memberrules.holds_of(judgement, subject)
    lives = memberrules.lives_of(judgement, subject)
    if subject.is_member:
        required = memberrules.required(judgement, subject, required, holds)
        allowed = memberrules.allowed(judgement, subject, allowed)
    spec, name = subject.spec, subject.name
    runs = overlaps.runs_of(judgement.record, subject)
    for slot, due in sorted(required.items()):
        if not overlaps.excuses(spec, runs, slot, due, judgement.latest(due)):
            _judge_required(judgement, subject, slot, due)
    for slot, found in sorted(subject.effects.items()):
        if slot not in allowed:
            judgement.complain(name, f"slot {judgement.text(slot)} ran, and must not")
            continue
        due = allowed[slot]
        waited = overlaps.excuses(spec, runs, slot, due, judgement.latest(due))
        # workers write entries that a server lost again, with new ids
        waited = waited or (subject.target == "stream" and judgement.forgot)
        waited = waited or any(hold.delays(due, found[0].at_us) for hold in holds)
        _judge_times(
            judgement, name, slot, due, found, not_before=earliest.get(slot, due), may_wait=waited
        )
        memberrules.judge_holds(judgement, name, slot, found, holds)
        kept = without_collected(judgement, subject, found)
        kept = without_replaced(judgement, subject, kept)
        judgement.judge_count(name, slot, subject.target, kept, lives=lives)
    if not judgement.forgot:
        for one, other in overlaps.together(subject.spec, subject.target, runs):
            judgement.complain(
                name,
                f"slots {judgement.text(one.slot_us)} and {judgement.text(other.slot_us)}"
                " ran at the same time",
            )
    manualruns.judge(judgement, subject, runs)
    if subject.is_member:
        memberrules.judge_listed(judgement, subject, required)
    elif subject.wishes[-1] is judgement.record.wishes[name][-1]:
        _judge_status(judgement, subject, required)


def _slots(
    judgement: Judgement, subject: Subject
) -> tuple[dict[int, int], dict[int, int], dict[int, int]]:
    """Return the slots that must run and those that may, with their due times.

    Slots that may run have their earliest due time: the operator may not have seen a new jitter.
    """
    wishes = subject.wishes
    end_us = judgement.record.end_us
    created_us = wishes[0].at_us // S * S  # the API server truncates it to the second
    required: dict[int, int] = {}
    allowed: dict[int, int] = {}
    earliest: dict[int, int] = {}
    for segment in segments_of(wishes, judgement.windows):
        if not segment.runs:
            continue
        begin_us = created_us if _is_first_seen(wishes, segment) else segment.begin_us
        late_us = _late_us(segment) if begin_us == created_us else 0
        found = slots.slots_of(segment.spec, created_us - late_us, end_us + _FOLLOWING_US)
        for slot, following in itertools.zip_longest(found, found[1:]):
            due = slot + slots.jitter_us(segment.spec, "shop", subject.name, slot, following)
            if due > end_us or slot < begin_us - late_us:
                continue
            due = max(due, begin_us)
            is_over = due > segment.latest_end_us + LATENESS_US
            if is_over and not _is_shown_again(judgement, segment, due):
                continue
            allowed.setdefault(slot, due)
            earliest[slot] = min(earliest.get(slot, due), due)
            # the edit may have overtaken a slot that was claimed late
            settled_by = judgement.latest(due)
            if (
                slot >= segment.latest_begin_us
                and settled_by < segment.end_us
                and settled_by < end_us
            ):
                required[slot] = due
    return required, allowed, earliest


def _late_us(segment: segments.Segment[Wish]) -> int:
    """Return how late a one-off may be that had passed when its Schedule was created."""
    is_one_off = segment.spec["schedule"].startswith("@at")
    return segment.spec.get("startingDeadlineSeconds", _ONE_OFF_SECONDS) * S if is_one_off else 0


def _is_shown_again(judgement: Judgement, segment: segments.Segment[Wish], due: int) -> bool:
    """Whether a server that lost the edit may run the former spec until objects are compared."""
    fallbacks = (at_us for at_us, _ in events_of(judgement.record, Kind.FALL_BACK))
    return any(
        segment.end_us <= at_us and at_us - LATENESS_US <= due <= judgement.latest(at_us)
        for at_us in fallbacks
    )


def _is_first_seen(wishes: Sequence[Wish], segment: segments.Segment[Wish]) -> bool:
    """Whether operators may have seen no earlier edit: then it applies from the creation on."""
    first = segment.wishes[0]
    earlier = wishes[: wishes.index(first)]
    return not is_of_member(first) and not any(
        wish.ready_us is not None and wish.ready_us < first.at_us for wish in earlier
    )


def _judge_required(
    judgement: Judgement,
    subject: Subject,
    slot: int,
    due: int,
) -> None:
    found = subject.effects.get(slot, ())
    if any(not effect.refused for effect in found):
        return
    if found and found[-1].at_us + overlaps.wait_us(found) > judgement.record.end_us:
        return  # it waits for its next attempt
    if found and judgement.had(Kind.NEW_KEY):
        return  # a retry that waits is signed with the former key
    if subject.target == "stream" and _was_emptied(judgement, due):
        return
    if _may_be_missed(judgement, subject, slot, due):
        return
    judgement.complain(subject.name, f"slot {judgement.text(slot)} is lost")


def _was_emptied(judgement: Judgement, due: int) -> bool:
    """Whether users' streams were lost, by a FLUSHALL or a server that lost nearly everything.

    A server that lost only the last seconds may have lost an entry that a status tells already.
    """
    return any(
        at >= due and (event.kind is Kind.FLUSH or event.amount >= MUCH_LOST or at - due <= _LAG_US)
        for at, event in events_of(judgement.record, Kind.FLUSH, Kind.FALL_BACK)
    )


def _may_be_missed(judgement: Judgement, subject: Subject, slot: int, due: int) -> bool:
    """Whether the catch-up policy may skip the slot for a newer one that was overdue with it."""
    window = judgement.disturbance(due, around_us=LATENESS_US)
    if window is None:
        return False
    policies = subject.values("catchUpPolicy", "Latest")
    if "None" in policies or subject.values("startingDeadlineSeconds", None) != {None}:
        return True
    if policies == {"All"}:
        return False
    # a newer slot was due before this disturbance was over, and ran
    return any(slot < other <= window.end_us + RECOVERY_US for other in subject.effects)


def _judge_times(
    judgement: Judgement,
    name: str,
    slot: int,
    due: int,
    found: Sequence[Effect],
    *,
    not_before: int,
    may_wait: bool,
) -> None:
    first = min(effect.at_us for effect in found)
    early_us = not_before - first
    if early_us > (EARLY_US if judgement.had(*OF_CLOCKS) else 0):
        judgement.complain(name, f"slot {judgement.text(slot)} ran {early_us / S:.6f} s early")
    if first > judgement.latest(due) and not may_wait:
        judgement.complain(
            name, f"slot {judgement.text(slot)} ran late, at {judgement.text(first)}"
        )


def _judge_status(judgement: Judgement, subject: Subject, required: Mapping[int, int]) -> None:
    name, wishes, effects = subject.name, subject.wishes, subject.effects
    status = judgement.record.statuses[name]
    is_deleted = wishes[-1].spec is None
    if status is None or is_deleted:
        if (status is None) != is_deleted:
            judgement.complain(name, "the object is not as the user wished")
        return
    end_us = judgement.record.end_us
    if not judgement.ends_calm:
        return
    conditions = {one["type"]: one for one in status.get("conditions", ())}
    ready = conditions.get("Ready", {})
    if ready.get("status") != "True" or status.get("observedGeneration") != wishes[-1].generation:
        judgement.complain(name, f"is not Ready in the end: {ready}")
    waiting = any(may_be_open(found, end_us) for found in effects.values())
    queues = (wishes[-1].spec or {}).get("concurrencyPolicy") == "Queue"
    opened = status.get("openSlots")
    # A status of a Schedule that never pauses may be as old as the lag.
    is_old = opened and slots.instant_us(opened["oldest"]) < end_us - _LAG_US
    if is_old and not waiting and not queues:
        judgement.complain(name, f"slots are open in the end: {opened}")
    spec = wishes[-1].spec or {}
    ended = [slot for slot in required if required[slot] < end_us - _LAG_US]
    if ended and not spec.get("suspend") and not waiting and not queues:
        settled = slots.instant_us(status["settledThrough"]) if "settledThrough" in status else 0
        if settled < max(ended):
            judgement.complain(
                name,
                f"settledThrough is {judgement.text(settled)}, below {judgement.text(max(ended))}",
            )
    _judge_counters(judgement, name, status, effects)


def may_be_open(found: Sequence[Effect], end_us: int) -> bool:
    """Whether a slot waits for a retry, or had it so late that no status may say so yet."""
    if not any(effect.refused for effect in found):
        return False
    return found[-1].at_us + (overlaps.wait_us(found) or _LAG_US) > end_us


def _unsaid(record: Record, name: str, effects: Mapping[int, Sequence[Effect]]) -> int:
    """Count the slots whose worker ended or stood still before its report, and that an edit ended.

    The edit removes them from the queue, so no other worker tries them and finds out.
    """
    ends = {Kind.KILL_BEFORE, Kind.KILL_AFTER, Kind.PAUSE_BEFORE, Kind.PAUSE_AFTER}
    stops = [(at_us, event.amount) for at_us, event in record.events if event.kind in ends]
    edits = [wish.at_us for wish in record.wishes[name][1:]]
    return sum(
        len(found) == 1
        and any(
            -S <= found[0].at_us - stop_us <= (1 + seconds) * S  # what was being sent is sent later
            and any(abs(edit_us - stop_us) <= S for edit_us in edits)
            for stop_us, seconds in stops
        )
        for found in effects.values()
    )


def _judge_counters(
    judgement: Judgement,
    name: str,
    status: Mapping[str, Any],
    effects: Mapping[int, Sequence[Effect]],
) -> None:
    """Check that each slot that started is counted once, except those that a server forgot."""
    runs = Counter(status.get("runs", {}))
    end_us = judgement.record.end_us
    ran = sum(1 for slot in effects if slot < end_us - _LAG_US)
    at_most = len(effects)
    if judgement.forgot:
        return
    ran -= _unsaid(judgement.record, name, effects)
    if not ran <= runs["started"] - runs["manual"] <= at_most:
        judgement.complain(name, f"{at_most} slots ran, and status.runs says {dict(runs)}")
