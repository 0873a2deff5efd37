"""The judge allows what the documentation allows, and no more."""

from __future__ import annotations

import dataclasses

import pytest

from tests.simulation import faults, memberrules, oracle
from tests.simulation.cluster import MadeJob
from tests.simulation.effects import Effect
from tests.simulation.faults import Kind
from tests.simulation.judgement import Judgement, Subject, without_collected, without_replaced
from tests.simulation.plans import Wish
from tests.simulation.slots import S

PAUSE_SECONDS = faults.usual(Kind.PAUSE_BEFORE, 1).amount


@pytest.fixture
def judge_of(quiet):
    """Return a judge of a quiet history with these events added, at seconds after its begin."""

    def made(*events):
        record = quiet("member-webhook")
        at = [(record.begin_us + round(when * S), faults.usual(kind, 1)) for when, kind in events]
        return Judgement(dataclasses.replace(record, events=at), [])

    return made


def a_member(judge, *, target="webhook", asked=6.0, answered=7.0):
    """Return a member whose request and answer came at these seconds after the begin."""
    begin_us = judge.record.begin_us
    wish = Wish(
        begin_us + round(asked * S),
        "set/one",
        1,
        {"schedule": "*/5 * * * * *"},
        None if answered is None else begin_us + round(answered * S),
    )
    return Subject(
        name="set/one", target=target, uid="set/one", wishes=[wish], effects={}, by_hand={}
    )


def delivered(key, event="one-1", at_us=0):
    return Effect(at_us, key, event)


@pytest.mark.parametrize(
    ("found", "lives", "said"),
    [
        ([delivered("a"), delivered("b")], 1, "several ids"),
        ([delivered("a"), delivered("b")], 2, ""),
        ([delivered("a"), delivered("b"), delivered("c")], 2, "several ids"),
        ([delivered("a"), delivered("b", "one-2")], 2, "several ids"),
        ([delivered("a"), delivered("a")], 2, "ran 2 times"),
    ],
    ids=["two ids", "two lives", "three ids of two lives", "two events", "twice in a life"],
)
def test_a_life_has_one_id_and_all_lives_have_one_event(judge_of, found, lives, said):
    judge = judge_of()
    judge.judge_count("one", judge.record.begin_us, "webhook", found, lives=lives)
    assert said in " ".join(judge.problems)
    assert bool(judge.problems) is bool(said)


@pytest.mark.parametrize(
    ("target", "answered", "lost", "lives"),
    [
        ("webhook", 7.0, [6.5], 2),
        ("webhook", 7.0, [6.2, 6.5], 3),
        ("webhook", None, [60.0], 2),
        ("webhook", 7.0, [5.0, 30.0], 1),
        ("job", 7.0, [6.5], 2),
        ("job", 7.0, [30.0], 1),
        ("stream", 7.0, [6.5], 1),
    ],
    ids=[
        "lost before its answer",
        "twice",
        "never answered",
        "before and after",
        "Job",
        "a Job's before",
        "entry",
    ],
)
def test_a_member_lives_again_only_where_redis_lost_it_before_its_answer(
    judge_of, target, answered, lost, lives
):
    judge = judge_of(*((at, Kind.FLUSH) for at in lost))
    subject = a_member(judge, target=target, answered=answered)
    assert memberrules.lives_of(judge, subject) == lives


@pytest.mark.parametrize(
    ("made_at", "is_gone", "counts"),
    [(10.2, True, 1), (10.2, False, 2), (13.0, True, 2), (5.5, True, 2)],
    ids=["after the deletion", "and stays", "long after it", "before it"],
)
def test_a_job_made_after_its_schedules_deletion_counts_unless_it_is_collected(
    judge_of, made_at, is_gone, counts
):
    judge = judge_of()
    begin_us = judge.record.begin_us
    first, again = (begin_us + round(at * S) for at in (5.0, made_at))
    jobs = [
        MadeJob("one-5", uid, "one", first, at_us, "Schedule", gone_us=gone_us)
        for uid, at_us, gone_us in (
            ("a", first, begin_us + 10 * S),
            ("b", again, again + S if is_gone else None),
        )
    ]
    judge.record = dataclasses.replace(judge.record, made=jobs)
    wishes = [
        Wish(begin_us, "one", 1, {"schedule": "*/5 * * * * *", "jobTemplate": {}}, begin_us + S),
        Wish(begin_us + 10 * S, "one", 1, None, None),
    ]
    subject = Subject(name="one", target="job", uid="one", wishes=wishes, effects={}, by_hand={})
    found = [Effect(job.at_us, job.name, job.name) for job in jobs]
    assert len(without_collected(judge, subject, found)) == counts


@pytest.mark.parametrize(
    ("events", "policy", "newer", "counts"),
    [
        ([(9.0, Kind.FALL_BACK)], "Replace", (8.0, 8.5), 1),
        ([(9.0, Kind.FALL_BACK)], "Replace", (8.0, None), 2),
        ([], "Replace", (8.0, 8.5), 2),
        ([(12.0, Kind.FALL_BACK)], "Replace", (8.0, 8.5), 2),
        ([(9.0, Kind.FALL_BACK)], "Forbid", (8.0, 8.5), 2),
        ([(10.0 - PAUSE_SECONDS, Kind.PAUSE_BEFORE)], "Replace", (8.0, None), 1),
        ([(9.0 - PAUSE_SECONDS, Kind.PAUSE_BEFORE)], "Replace", (8.0, None), 2),
    ],
    ids=[
        *("nothing is left", "the newer Job is there", "Redis forgot nothing", "later", "Forbid"),
        *("a paused worker made it", "a worker was paused before"),
    ],
)
def test_a_replaced_job_comes_again_only_where_redis_forgot_it_or_its_request_came_late(
    judge_of, events, policy, newer, counts
):
    judge = judge_of(*events)
    begin_us = judge.record.begin_us
    spec = {"schedule": "@every 3s", "jobTemplate": {}, "concurrencyPolicy": policy}
    jobs = []
    for slot, uid, at, gone in ((5, "a", 5.0, 8.0), (8, "b", *newer), (5, "c", 10.0, None)):
        made_us = begin_us + round(at * S)
        gone_us = None if gone is None else begin_us + round(gone * S)
        name, slot_us = f"one-{slot}", begin_us + slot * S
        jobs.append(MadeJob(name, uid, "one", slot_us, made_us, "Schedule", gone_us=gone_us))
    judge.record = dataclasses.replace(judge.record, made=jobs)
    wish = Wish(begin_us, "one", 1, spec, begin_us + S)
    subject = Subject(name="one", target="job", uid="one", wishes=[wish], effects={}, by_hand={})
    found = [Effect(job.at_us, job.name, job.name) for job in jobs if job.name == "one-5"]
    assert len(without_replaced(judge, subject, found)) == counts


@pytest.mark.parametrize(
    ("answers", "is_open"),
    [
        ([(100, True)], True),
        ([(85, True), (100, True)], True),
        ([(155, True), (159, False)], True),
        ([(100, True), (101, False)], False),
        ([(159, False)], False),
        ([(90, True)], False),
        ([(at, True) for at in (75, 80, 82, 85, 90)], True),
        ([(at, True) for at in (80, 82, 85, 90)], False),
    ],
    ids=[
        "waits",
        "waits again",
        "just ended",
        "ended long ago",
        "at once",
        "too long",
        "the fifth refusal waits for longer",
        "the fourth does not",
    ],
)
def test_a_slot_may_be_open_in_the_end_only_after_a_refusal(answers, is_open):
    found = [Effect(at * S, "a", "a", refused) for at, refused in answers]
    assert oracle.may_be_open(found, 159 * S) is is_open
