"""Concurrency policies as a table: what is known, what a slot asks, what becomes of it.

Runs are written by state, slot and what stands for them in the queue: ``A1`` is an active run
whose occurrence has ended, ``A1!`` one that a worker holds, ``A1~`` one that is due later; ``R``
is replaced, ``F`` one too many, ``Q`` waits. ``Q1~old`` is of an older timing.
"""

from __future__ import annotations

import dataclasses

import pytest

from duepoint.delayqueue import activeruns, messages, overlaps
from duepoint.delayqueue.activeruns import ActiveRun, ActiveRuns, ActiveRunState, Run, Tried
from duepoint.delayqueue.overlaps import Facts, Verdict
from duepoint.schedules import points
from duepoint.schedules.points import PointKind

NOW_US = 1_000_000_000
ID = points.ScheduleId(b"schedule")
VERSION, OLDER = points.TimingVersion(b"now-"), points.TimingVersion(b"then")
HELD_BY_A_CLAIM = points.DUE_LIMIT_US + NOW_US
MARK = "history 7"


def name(slot: int) -> Run:
    return Run(slot.to_bytes(8, "big"))


def run(text: str, *, jobs: bool) -> ActiveRun:
    """``A1`` as it is stored."""
    slot = int(text[1:])
    is_job = jobs and text[0] != "Q"
    one = activeruns.active(name(slot), VERSION, f"job-{slot}" if is_job else "")
    return one.in_state(ActiveRunState(text[0]))


def point(slot: int, kind: PointKind, version: points.TimingVersion = VERSION) -> points.DuePoint:
    return points.DuePoint(
        schedule_id=ID, timing_version=version, kind=kind, due_us=NOW_US, slot_us=slot
    )


def known(text: str, *, jobs: bool = True, mark: str = MARK) -> ActiveRuns:
    runs, tried = {}, {}
    for each in text.split():
        written, later, version = each.partition("~")
        one = run(written.rstrip("!"), jobs=jobs)
        runs[one.run] = one
        if later or written.endswith("!"):
            kind = PointKind.QUEUED if each[0] == "Q" else PointKind.RETRY
            of = point(one.slot_us, kind, OLDER if version else VERSION)
            due_us = NOW_US + 5 if later else HELD_BY_A_CLAIM
            tried[one.run] = Tried(member=of.member, due_us=due_us)
    stamp = b"8 random" + mark.encode() if mark or runs else b""
    return ActiveRuns(now_us=NOW_US, history="history", stamp=stamp, runs=runs, tried=tried)


def shown(runs: dict[Run, ActiveRun]) -> str:
    return " ".join(f"{runs[one].state}{runs[one].slot_us}" for one in sorted(runs))


def due_slots(change: activeruns.Change) -> list[int]:
    return [int.from_bytes(activeruns.run_of(member), "big") for member in change.due]


@dataclasses.dataclass(frozen=True)
class Case:
    """One slot, 5, that asks.

    Attributes:
        says: the verdict, and the runs that it names.
        after: the runs then; None = nothing is changed.
        due: slots that are due at once.
    """

    policy: str
    before: str
    says: str
    after: str | None = None
    due: list[int] = dataclasses.field(default_factory=list)
    most: int = 1
    limit: int = 1
    jobs: bool = True
    mark: str = MARK
    checked: bool = True
    verified: tuple[int, ...] = ()
    over: tuple[int, ...] = ()
    seen: tuple[int, ...] = ()
    listed: bool = False
    blind: bool = False


def ask(case: Case) -> overlaps.Answer:
    own = run("A5", jobs=case.jobs)
    before = known(case.before, jobs=case.jobs, mark=case.mark)
    claimed = point(5, PointKind.PLANNED)
    tried = {name(5): Tried(member=claimed.member, due_us=HELD_BY_A_CLAIM)} | dict(before.tried)
    facts = Facts(
        listed=MARK if case.listed else "",
        seen=tuple(run(f"A{slot}", jobs=True) for slot in case.seen),
        over=frozenset(run(f"A{slot}", jobs=case.jobs) for slot in case.over),
        verified=frozenset(name(slot) for slot in case.verified),
        checked=case.checked,
        blind=case.blind,
    )
    request = overlaps.Request(
        member=claimed.member,
        run=own,
        version=VERSION,
        policy=case.policy,
        most=case.most,
        mark="7",
        waiting=messages.Occurrence(
            point=point(5, PointKind.QUEUED), record=messages.OccurrenceRecord()
        ),
        limit=case.limit,
        facts=facts,
    )
    return overlaps.admit(dataclasses.replace(before, tried=tried), request)


F, R, Q = "Forbid", "Replace", "Queue"

CASES = {
    # -- who may start -------------------------------------------------------------------------
    "nothing runs": Case(F, "", "in", "A5"),
    "nothing runs, and nobody looked for its own Job": Case(F, "", "in", "A5", checked=False),
    "there is room": Case(F, "A1 A2", "in", "A1 A2 A5", most=3),
    "it was let in before": Case(F, "A1 A5!", "in", "A1 A5"),
    "everything is allowed": Case("Allow", "A1 A2", "in", "A1 A2 A5"),
    "everything is allowed and nothing known": Case("Allow", "", "in", "A5", mark=""),
    # -- what has to be known first ------------------------------------------------------------
    "the Jobs are not known": Case(F, "", "unknown", mark=""),
    "the Jobs are known of another definition": Case(F, "A1", "unknown", mark="history 6"),
    "the Jobs are known of another server": Case(F, "A1", "unknown", mark="other 7"),
    "the Jobs were listed": Case(F, "", "in", "A5", mark="", listed=True),
    "a list shows a Job": Case(
        F, "", "forbidden", "A1", mark="", listed=True, seen=(1,), verified=(1,)
    ),
    "a list shows what is known": Case(
        F, "R1", "in", "R1 A5", mark="", listed=True, seen=(1,), verified=(1,)
    ),
    "of deliveries the queue has all": Case(F, "", "in", "A5", mark="", jobs=False),
    "of deliveries, one is tried again": Case(F, "A1~", "forbidden", "A1", mark="", jobs=False),
    # -- Forbid --------------------------------------------------------------------------------
    "a Job is in the way": Case(F, "A1", "check 1"),
    "a Job is in the way, and its own may exist": Case(F, "A1", "check 1", checked=False),
    "the Job was looked at": Case(F, "A1", "forbidden", "A1", verified=(1,)),
    "the Job is over": Case(F, "A1", "in", "A5", over=(1,)),
    "one of several is over": Case(F, "A1 A2", "in", "A2 A5", most=2, over=(1,), verified=(2,)),
    "what was over was replaced meanwhile": Case(F, "R1", "in", "R1 A5", over=(1,)),
    "some were looked at": Case(F, "A1 A2 A3", "check 2 3", most=3, verified=(1,)),
    "no look can make room": Case(F, "A1! A2!", "forbidden", "A1 A2", most=1),
    "it is refused only if its own Job does not exist": Case(F, "A1!", "check", checked=False),
    "a Job that is being made needs no look": Case(F, "A1!", "forbidden", "A1"),
    "a delivery is tried again later": Case(F, "A1~", "forbidden", "A1", jobs=False),
    "a delivery has ended": Case(F, "A1", "in", "A5", jobs=False),
    "a delivery of the same claim has ended": Case(F, "A1!", "in", "A5", jobs=False, over=(1,)),
    "what was replaced does not count": Case(F, "R1", "in", "R1 A5"),
    "what was replaced and is tried does not count": Case(F, "R1!", "in", "R1 A5", jobs=False),
    "what was replaced and has ended is forgotten": Case(F, "R1", "in", "A5", jobs=False),
    "what was one too many is forgotten": Case(F, "F1", "in", "A5"),
    # -- Replace -------------------------------------------------------------------------------
    "nothing is to be replaced": Case(R, "", "in", "A5", checked=False),
    "its own Job may exist": Case(R, "A1", "check", checked=False),
    "a Job is replaced": Case(R, "A1", "in 1", "R1 A5"),
    "several are": Case(R, "A1 A2! A3", "in 1 2 3", "R1 R2 R3 A5"),
    "a Job that is still to be deleted is named again": Case(R, "R1 A5!", "in 1", "R1 A5"),
    "a delivery between two tries ends": Case(R, "A1~", "in", "R1 A5", [1], jobs=False),
    "a delivery under way is not cut off": Case(R, "A1!", "in", "R1 A5", jobs=False),
    "a newer slot has the place": Case(R, "A9", "replaced", "A9"),
    "it was replaced before": Case(R, "R5! A9", "replaced"),
    # -- Queue ---------------------------------------------------------------------------------
    "it waits": Case(Q, "A1", "waits", "A1 Q5", verified=(1,)),
    "it cannot be judged": Case(Q, "", "waits", "Q5", mark="", blind=True),
    "a Job cannot be looked at": Case(Q, "A1", "waits", "A1 Q5", checked=False, blind=True),
    "a look may make room for an older one": Case(Q, "A1 Q2~", "waits", "A1 Q2 Q5", limit=2),
    "no look makes room for two older": Case(Q, "A1 Q2~ Q3~", "waits", "A1 Q2 Q3 Q5", limit=3),
    "it was let in before, beside too many": Case(Q, "A1! A5! Q8~ Q9~", "in", "A1 A5 Q8 Q9"),
    "it has waited, and there is room": Case(Q, "Q5!", "in", "A5"),
    "it has waited, and waits on": Case(Q, "A1! Q5!", "waits", "A1 Q5"),
    "an older one waits, whose turn it is": Case(Q, "Q2~", "waits", "Q2 Q5", [2]),
    "an older one waits, and there is room for both": Case(
        Q, "A1! Q2~", "in", "A1 Q2 A5", [2], most=3
    ),
    "a newer one waits": Case(Q, "Q9~", "in", "A5 Q9"),
    "with room left, the next one is called": Case(Q, "Q9~", "in", "A5 Q9", [9], most=2),
    "of too many, the oldest goes": Case(Q, "A1! Q2~ Q3~", "waits", "A1 F2 Q3 Q5", [2], limit=2),
    "it is the oldest of too many": Case(Q, "A1! Q7~ Q8~", "full", "A1 Q7 Q8", limit=2),
    "others and it are too many": Case(Q, "A1! Q2~ Q7~ Q8~", "full", "A1 F2 Q7 Q8", [2], limit=2),
    "who has its turn is not one too many": Case(
        Q, "A1! Q2! Q3~", "waits", "A1 Q2 Q3 Q5", [], most=2, limit=2
    ),
    "it was one too many": Case(Q, "A1! F5!", "full"),
    "one that waits is of an older timing": Case(Q, "Q2~old", "in", "A5", [2]),
    "one that waited is gone": Case(Q, "Q2", "in", "A5"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_slot_that_asks(case):
    answer = ask(case)
    named = [str(one.slot_us) for one in sorted(answer.runs, key=lambda one: one.run)]
    assert " ".join([answer.verdict.value, *named]) == case.says
    if case.after is None:
        assert answer.change is None
    else:
        assert answer.change is not None
        assert (shown(answer.change.runs), due_slots(answer.change)) == (case.after, case.due)
    is_waiting = answer.change is not None and answer.change.waiting is not None
    assert is_waiting is (answer.verdict is Verdict.WAITS)


def test_a_run_by_hand_takes_the_place_of_a_newer_slot_and_gives_it_to_an_older_one():
    def by_hand(one: ActiveRun) -> ActiveRun:
        return dataclasses.replace(one, run=Run(one.run + b"hand"))

    own = by_hand(run("A5", jobs=True))
    request = overlaps.Request(
        member=point(5, PointKind.MANUAL).member + b"hand", run=own, version=VERSION,
        policy="Replace", most=1, mark="7", facts=Facts(checked=True),
    )  # fmt: skip
    newer = overlaps.admit(known("A9"), request)
    assert [one.slot_us for one in newer.runs] == [9]
    there = dataclasses.replace(known(""), runs={own.run: own})
    older = dataclasses.replace(request, run=run("A4", jobs=True))
    assert overlaps.admit(there, older).runs == (own.in_state(ActiveRunState.REPLACED),)


@pytest.mark.parametrize(
    ("ended", "removed", "called"),
    [
        ({"jobs": ["job-1", "job-2", "job-3"], "ended": [name(4)]}, 3, [5, 6, 7, 8]),
        ({"jobs": ["unknown"]}, 0, [5]),
        ({"jobs": ["job-1"], "every": True}, 1, [5, 6, 7, 8, 9]),
    ],
)
def test_each_run_that_has_ended_calls_a_slot_that_waits(ended, removed, called):
    told = overlaps.finish(known("A1 A2 A3 A4 Q5~ Q6~ Q7~ Q8~ Q9~"), version=VERSION, **ended)
    assert (told.removed, due_slots(told.change)) == (removed, called)
