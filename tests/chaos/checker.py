"""The checker of a history, by rules V1-V12 of its design note (how faults are looked for).

It is pure, and follows ``docs/reference/semantics.md``: it assigns each effect to its slot by
object and time, and applies each rule to that. ``judge`` returns violations, none if all is well.
``quietness`` decides whether the run was worth judging.
"""

from __future__ import annotations

import dataclasses
import enum
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.chaos import atrest, overlaps, timeline
from tests.chaos.history import Effect, History, Wish
from tests.chaos.timeline import Timeline
from tests.chaos.windows import Disturbances

#: A later owner may carry out a claim that was made in time: see "The first claim decides".
NONE_LATE_US = 10_000_000


class Rule(enum.StrEnum):
    """What must hold."""

    LOST = "V1"
    JOB_TWICE = "V2"
    DELIVERED_TWICE = "V3"
    EARLY = "V4"
    LATE = "V5"
    STALE = "V6"
    NOT_WANTED = "V7"
    POLICY = "V8"
    UNEXPLAINED = "V9"
    NOT_AT_REST = "V10"
    TWO_LEADERS = "V11"
    HARM = "V12"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """Attributes:
    at_us: the time of the slot, or when it was seen; 0 if it has no time.
    """

    rule: Rule
    name: str
    at_us: int
    what: str


def judge(history: History) -> list[Violation]:
    """Return all violations, rule by rule."""
    disturbances = Disturbances(history)
    last_us = max((one.at_us for one in history.effects), default=0)
    until_us = history.end.at_us if history.end else last_us
    by_object: defaultdict[str, list[Wish]] = defaultdict(list)
    for wish in history.wishes:
        by_object[wish.uid].append(wish)
    effects = _by_object(history)
    found: list[Violation] = []
    lines: dict[str, Timeline] = {}
    for uid, wishes in by_object.items():
        wishes.sort(key=lambda one: one.at_us)
        lines[uid] = timeline.of(wishes, disturbances, history.run.namespace, until_us)
        of_object = _Object(wishes[0].name, wishes[0].target, lines[uid], effects.pop(uid, {}))
        for rule in _RULES:
            found += rule(of_object, disturbances)
    for uid, of_slots in effects.items():
        found += [
            Violation(rule=Rule.NOT_WANTED, name=uid, at_us=slot, what="ran, and is no object's")
            for slot in of_slots
        ]
    found += [
        Violation(rule=Rule.POLICY, name=name, at_us=slot, what=what)
        for name, slot, what in overlaps.problems(history, by_object, disturbances)
    ]
    found += [
        Violation(rule=Rule.UNEXPLAINED, name=name, at_us=0, what=what)
        for name, what in atrest.counting(history, lines, disturbances)
    ]
    found += [
        Violation(rule=Rule.NOT_AT_REST, name=name, at_us=0, what=what)
        for name, what in atrest.problems(history, by_object, lines)
    ]
    found += _leaders(history)
    found += _harm(history)
    return found


@dataclasses.dataclass(frozen=True, slots=True)
class _Object:
    """An object with its slots and their effects, by slot in order of time."""

    name: str
    target: str
    line: Timeline
    effects: Mapping[int, Sequence[Effect]]

    def violation(self, rule: Rule, slot: int, what: str) -> Violation:
        return Violation(rule=rule, name=self.name, at_us=slot, what=what)

    def accepted(self, slot: int) -> list[Effect]:
        return [one for one in self.effects.get(slot, ()) if one.accepted]


def _by_object(history: History) -> dict[str, dict[int, list[Effect]]]:
    found: defaultdict[str, defaultdict[int, list[Effect]]]
    found = defaultdict(lambda: defaultdict(list))
    for effect in sorted(history.effects, key=lambda one: one.at_us):
        found[effect.uid][effect.slot_us].append(effect)
    return {uid: dict(of_slots) for uid, of_slots in found.items()}


# -- the rules of one object ---------------------------------------------------------------------


def _lost(one: _Object, disturbances: Disturbances) -> Iterator[Violation]:
    for slot, due in one.line.required.items():
        if not one.accepted(slot) and not _may_be_missing(one, slot, due, disturbances):
            yield one.violation(Rule.LOST, slot, "must have run, and did not")


def _may_be_missing(one: _Object, slot: int, due: int, disturbances: Disturbances) -> bool:
    spec = one.line.specs[slot]
    by_us = disturbances.latest_us(due)
    if spec.get("concurrencyPolicy", "Allow") != "Allow" and one.target != "stream":
        return True  # another run may have blocked it; ``overlaps`` checks what may overlap
    if one.target == "stream" and disturbances.forgot_between(due, by_us):
        return True  # the server that lost data had the users' streams
    if timeline.is_member(one.line.wishes[0]):
        # no object has a set's members: if the server forgot one, it may not run until a leader,
        # which faults may delay, has read the rows again
        window = disturbances.at(due)
        since_us = due - disturbances.recovery_us
        since_us = since_us if window is None else min(since_us, window.begin_us)
        if disturbances.forgot_between(since_us, by_us):
            return True
    if disturbances.at(due) is None:
        return False
    policy = spec.get("catchUpPolicy", "Latest")
    if policy == "Latest":
        # a newer slot was overdue too, and the policy chose it
        return any(slot < other <= by_us for other in one.effects)
    return policy == "None" or "startingDeadlineSeconds" in spec


def _twice(one: _Object, disturbances: Disturbances) -> Iterator[Violation]:
    for slot, found in one.effects.items():
        if len({effect.key for effect in found}) > 1:
            yield one.violation(Rule.DELIVERED_TWICE, slot, "has attempts with several ids")
        if one.target == "job":
            several = len({effect.unique for effect in found}) > 1
            if several and not _was_replaced_and_forgotten(one, slot, disturbances):
                yield one.violation(Rule.JOB_TWICE, slot, f"has {len(found)} Jobs")
            continue
        taken = one.accepted(slot)
        if len(taken) <= 1:
            continue
        excused = disturbances.overlapping(taken[0].at_us, taken[-1].at_us)
        excused += sum(disturbances.keeps_answers(effect.at_us) for effect in taken)
        # An edit of the timing may come while a request for the same slot is on its way.
        excused += len({effect.edit for effect in taken}) - 1
        if len(taken) > 1 + excused:
            what = f"was delivered {len(taken)} times, with {excused} faults about"
            yield one.violation(Rule.DELIVERED_TWICE, slot, what)


def _was_replaced_and_forgotten(one: _Object, slot: int, disturbances: Disturbances) -> bool:
    """Whether the three conditions hold under which a slot of Replace may have a second Job.

    See "Two gaps remain" in ``semantics.md``: a newer slot deleted the Job, its worker or the API
    server kept it from creating its own, and Redis lost that.
    """
    found = one.effects[slot]
    first_us, last_us = found[0].at_us, found[-1].at_us
    return (
        one.line.specs.get(slot, {}).get("concurrencyPolicy") == "Replace"
        and len(found) == 2
        and disturbances.forgot_between(first_us, last_us) is not None
        and disturbances.held_up_jobs(first_us, last_us)
    )


def _early(one: _Object, disturbances: Disturbances) -> Iterator[Violation]:
    for slot, found in one.effects.items():
        due = one.line.allowed.get(slot, slot)
        if one.target == "job":
            due = due // 1_000_000 * 1_000_000  # the API server truncates to seconds
        first = min(effect.since_us for effect in found)
        if first < due - disturbances.early_us(first):
            yield one.violation(Rule.EARLY, slot, f"ran {(due - first) / 1e6:.6f} s early")


def _late(one: _Object, disturbances: Disturbances) -> Iterator[Violation]:
    for slot, due in one.line.allowed.items():
        taken = one.accepted(slot)
        spec = one.line.specs[slot]
        waits = one.target != "stream" and spec.get("concurrencyPolicy") == "Queue"
        if not taken or waits:
            continue
        by_us = disturbances.latest_us(due)
        if taken[0].at_us <= by_us or disturbances.forgot_between(due, taken[0].at_us):
            continue
        late = (taken[0].at_us - due) / 1e6
        allowed = (by_us - due) / 1e6
        yield one.violation(Rule.LATE, slot, f"ran {late:.3f} s late; {allowed:.3f} s are allowed")


def _stale(one: _Object, disturbances: Disturbances) -> Iterator[Violation]:
    for slot, found in one.effects.items():
        due = one.line.allowed.get(slot, slot)
        for effect in found:
            if not effect.edit:
                continue
            for wish in one.line.wishes:
                known = wish.ready_us and disturbances.remembered_us(wish.ready_us)
                if known and known <= due and effect.edit < wish.edit and wish.spec is not None:
                    what = f"ran as of edit {effect.edit}, {wish.edit} was Ready before it was due"
                    yield one.violation(Rule.STALE, slot, what)
                if effect.at_us < wish.at_us and effect.edit >= wish.edit:
                    what = f"ran as of edit {effect.edit} before that was written"
                    yield one.violation(Rule.STALE, slot, what)


def _not_wanted(one: _Object, _: Disturbances) -> Iterator[Violation]:
    for slot in one.effects:
        if slot not in one.line.allowed:
            why = "was off or gone" if one.line.is_off(slot) else "has no such slot"
            yield one.violation(Rule.NOT_WANTED, slot, f"ran, and its object {why}")


def _deadlines(one: _Object, disturbances: Disturbances) -> Iterator[Violation]:
    """Check deadlines; a later owner may carry out a slot claimed in time, within a recovery."""
    for slot, found in one.effects.items():
        spec: Mapping[str, Any] = one.line.specs.get(slot, {})
        limit = spec.get("startingDeadlineSeconds")
        limit_us = None if limit is None else max(1, limit) * 1_000_000
        if spec.get("catchUpPolicy") == "None":
            limit_us = min(limit_us or NONE_LATE_US, NONE_LATE_US)
        if limit_us is None:
            continue
        due = one.line.allowed.get(slot, slot)
        late_us = found[0].at_us - due
        # until then it may have been claimed by an owner that was down
        excused_us = disturbances.latest_us(due) - due
        if late_us > max(limit_us + disturbances.recovery_us, excused_us):
            what = f"began {late_us / 1e6:.3f} s late; {limit_us / 1e6:.0f} s is the limit"
            yield one.violation(Rule.POLICY, slot, what)


_RULES = (_lost, _twice, _early, _late, _stale, _not_wanted, _deadlines)

# -- the rules of the whole ----------------------------------------------------------------------


def _leaders(history: History) -> Iterator[Violation]:
    newest, holder = 0, ""
    for seen in sorted(history.leases, key=lambda one: one.at_us):
        if seen.epoch < newest:
            what = f"term {seen.epoch} of {seen.holder} after term {newest}"
            yield Violation(rule=Rule.TWO_LEADERS, name="Lease", at_us=seen.at_us, what=what)
        elif seen.epoch == newest and holder and seen.holder not in {"", holder}:
            what = f"term {seen.epoch} is that of {holder} and of {seen.holder}"
            yield Violation(rule=Rule.TWO_LEADERS, name="Lease", at_us=seen.at_us, what=what)
        newest = max(newest, seen.epoch)
        holder = seen.holder or holder


def _harm(history: History) -> Iterator[Violation]:
    if history.end is None:
        return
    for what in history.end.strangers:
        yield Violation(rule=Rule.HARM, name="strangers", at_us=0, what=what)
