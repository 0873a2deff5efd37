"""Rules V9 and V10: the state at rest, after the last fault and the last slot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tests.chaos.history import History, Wish, instant_us
from tests.chaos.plan import FaultKind
from tests.chaos.timeline import Timeline
from tests.chaos.windows import Disturbances

_SECOND_US = 1_000_000
#: A status reports a start within this time.
_STATUS_RESTS_US = 3 * _SECOND_US
#: Faults that keep a worker from reporting what it did.
_SILENCING = frozenset({FaultKind.KILL_WORKER, FaultKind.REDIS_RESTART})


def counting(
    history: History, lines: Mapping[str, Timeline], disturbances: Disturbances
) -> Iterator[tuple[str, str]]:
    """Check V9: statuses count every run, and every slot of a Schedule that was written once.

    If a server forgot outcomes, no status has them, so those runs are not counted exactly. Neither
    are runs that nobody reported: see ``_unreported``.
    """
    if disturbances.forgot:
        return
    statuses = {one.name: one.status for one in history.statuses}
    began: dict[str, set[int]] = {}
    for effect in history.effects:
        began.setdefault(effect.uid, set()).add(effect.slot_us)
    for uid, line in lines.items():
        wish = line.wishes[-1]
        status = None if wish.spec is None or "/" in uid else statuses.get(wish.name)
        if status is None or "settledThrough" not in status:
            continue
        through = instant_us(status["settledThrough"])
        passed = [slot for slot in line.allowed if slot <= through]
        runs = status.get("runs", {})
        by_hand = runs.get("manual", 0)  # included in those that started
        started = runs.get("started", 0) - by_hand
        seen = len([slot for slot in began.get(uid, ()) if slot <= through])
        if not seen - _unreported(history, uid) <= started <= seen:
            yield wish.name, f"{seen} slots began, and runs.started is {started}"
        if not line.is_untouched:
            continue
        ended = started + runs.get("missed", 0) + runs.get("skipped", 0)
        still_open = len(status.get("openSlots", ()))
        if not len(passed) - still_open <= ended <= len(passed):
            yield wish.name, f"of {len(passed)} slots {ended} are counted: {runs}"


def _unreported(history: History, uid: str) -> int:
    """Return how many Jobs of a Schedule may have come and gone without any report.

    The worker that created one, or Redis, died within a second, so its start may be recorded
    nowhere; and no operator led from before a status could be written until the Job was deleted.
    """
    ends = {one.unique: one.at_us for one in history.job_ends}
    return sum(
        effect.uid == uid
        and effect.unique in ends
        and _died_at(history, effect.at_us)
        and _was_leaderless(history, effect.at_us, ends[effect.unique])
        for effect in history.effects
    )


def _died_at(history: History, made_us: int) -> bool:
    return any(
        one.kind in _SILENCING
        and one.witness
        and one.begin_us - _SECOND_US <= made_us <= one.end_us + _SECOND_US
        for one in history.faults
    )


def _was_leaderless(history: History, made_us: int, gone_us: int) -> bool:
    for one in history.faults:
        if one.kind != FaultKind.KILL_LEADER or not one.witness:
            continue
        led_us = min((seen.at_us for seen in history.leases if seen.at_us > one.end_us), default=0)
        if one.begin_us - _STATUS_RESTS_US <= made_us and one.begin_us <= gone_us <= led_us:
            return True
    return False


def problems(
    history: History, by_object: Mapping[str, Sequence[Wish]], lines: Mapping[str, Timeline]
) -> Iterator[tuple[str, str]]:
    """Check V10: all objects are as their users wish, and everything has settled."""
    if history.end is None:
        yield "the run", "has no end; it was cut off"
        return
    for what in history.end.problems:
        yield "the installation", what
    statuses = {one.name: one for one in history.statuses}
    for uid, wishes in by_object.items():
        last = wishes[-1]
        found = statuses.get(last.name)
        if last.spec is None or found is None or "/" in uid:
            continue
        if found.status is None:
            yield last.name, "is gone, and nobody deleted it"
            continue
        yield from _not_ready(last, found.generation, found.status)
        past = [slot for slot in lines[uid].required if lines[uid].specs[slot] == last.spec]
        settled = found.status.get("settledThrough")
        through = 0 if settled is None else instant_us(settled)
        if past and not last.spec.get("suspend") and through < max(past):
            yield last.name, f"settledThrough is {settled}, before its last slot"
        if found.status.get("openSlots"):
            yield last.name, f"slots are open: {found.status['openSlots']}"


def _not_ready(
    last: Wish, generation: int, status: Mapping[str, object]
) -> Iterator[tuple[str, str]]:
    conditions = status.get("conditions", ())
    assert isinstance(conditions, list | tuple)
    ready = next((one for one in conditions if one["type"] == "Ready"), {})
    if ready.get("status") != "True" or status.get("observedGeneration") != generation:
        yield last.name, f"is not Ready for generation {generation}: {ready}"
