"""The judge of runs by hand: each ScheduleRun must do what docs/reference/schedulerun.md says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from tests.simulation import overlaps, slots
from tests.simulation.judgement import Judgement, Subject, without_collected
from tests.simulation.plans import ManualRun
from tests.simulation.slots import S
from tests.simulation.timeline import RECOVERY_US

#: The runs of a backfill go one after the other; each waits for the one before.
_ALL_RUN_US = 60 * S


def judge(judgement: Judgement, subject: Subject, runs: Sequence[overlaps.Run]) -> None:
    """Check that every run of a ScheduleRun happened once, and nothing else ran by hand."""
    asked = [run for run in judgement.record.runs if run.uid == subject.uid]
    # A run that did not begin under a former Schedule of this name begins under this one.
    may = [run for run in judgement.record.runs if _precedes(judgement, run, subject)]
    allowed = Counter(slot for run in (*asked, *may) for slot in _slots(subject, run, may=True))
    for slot, found in sorted(subject.by_hand.items()):
        name = f"{subject.name} by hand"
        if not allowed[slot]:
            judgement.complain(name, f"slot {judgement.text(slot)} ran, and must not")
        elif allowed[slot] == 1:
            kept = without_collected(judgement, subject, found)
            judgement.judge_count(name, slot, subject.target, kept)
    for run in asked:
        _judge_run(judgement, subject, run, runs)


def _precedes(judgement: Judgement, run: ManualRun, subject: Subject) -> bool:
    """Whether it was created while a former Schedule had this name."""
    of_name = {wish.uid for wish in judgement.record.wishes[subject.name]}
    is_former = run.uid != subject.uid and run.uid in of_name
    return is_former and run.at_us <= subject.wishes[0].at_us


def _slots(subject: Subject, run: ManualRun, *, may: bool) -> list[int]:
    """Return the slots of a run; with ``may``, by any spec that the Schedule has had."""
    if run.slots is None:
        return [run.at_us // S * S]
    first, last = run.slots
    specs = [wish.spec for wish in subject.wishes if wish.spec is not None]
    created_us = subject.wishes[0].at_us // S * S
    found = {
        slot
        for spec in (specs if may else specs[:1])
        for slot in slots.slots_of(spec, _since_us(spec, first, created_us), last)
        if first // S * S <= slot < last
    }
    if may and first <= created_us < last:
        found.add(created_us)  # slot 0 of a period without a start
    return sorted(found)


def _since_us(spec: Mapping[str, Any], first_us: int, created_us: int) -> int:
    """Return where slots begin: for a period without a start, when the Schedule was created."""
    return created_us if spec["schedule"].startswith("@every") else min(first_us - S, created_us)


def _judge_run(
    judgement: Judgement, subject: Subject, run: ManualRun, runs: Sequence[overlaps.Run]
) -> None:
    by_us = judgement.latest(run.at_us) + _ALL_RUN_US
    is_deleted = subject.wishes[-1].spec is None
    if is_deleted or by_us > judgement.record.end_us:
        return
    if run.slots is not None and subject.values("schedule", None) != {subject.spec["schedule"]}:
        return  # an edit applies from the next slot on
    for slot in _slots(subject, run, may=False):
        found = subject.by_hand.get(slot, ())
        excused = overlaps.excuses(subject.spec, runs, slot, run.at_us, by_us, by_hand=True)
        waits = found and found[-1].refused
        if not found and not excused and not _entries_lost(judgement, subject):
            judgement.complain(run.name, f"slot {judgement.text(slot)} is lost")
        if waits or excused:
            return
    status = judgement.record.statuses[run.name] or {}
    ended = {one["type"] for one in status.get("conditions", ()) if one["status"] == "True"}
    if not ended & {"Complete", "Failed"} and by_us + RECOVERY_US < judgement.record.end_us:
        judgement.complain(run.name, f"has no end: {sorted(ended)}")


def _entries_lost(judgement: Judgement, subject: Subject) -> bool:
    return subject.target == "stream" and judgement.forgot
