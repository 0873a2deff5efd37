"""Each rule of the checker works: a clean history passes; one altered line breaks one rule."""

from __future__ import annotations

import dataclasses

import pytest

from tests.chaos import checker, history, quietness
from tests.chaos.checker import Rule
from tests.chaos.history import (
    Effect,
    EndState,
    Fault,
    History,
    JobEnd,
    LeaseSeen,
    Run,
    Stall,
    StatusAtEnd,
    Wish,
)

S = 1_000_000
#: When the objects are created; a whole minute, so that times are easy to read.
T = 1_800_000_000 * S
SECONDS = 20
ENDS = "2027-01-15T08:00:20Z"
RECOVERY_US = 35 * S
#: A fault that excuses slots due from here on.
FAULT = Fault(
    kind="kill-worker", what="worker-1", begin_us=T + 8 * S, end_us=T + 9 * S, witness="x"
)


def a_run(**fields):
    usual = {
        "seed": 1, "kind": "single", "namespace": "shop", "seconds": float(SECONDS),
        "recovery_us": RECOVERY_US, "lateness_us": 3 * S,
    }  # fmt: skip
    return Run(**(usual | fields))


def a_wish(name="hook", target="webhook", **fields):
    spec = {"schedule": "@every 1s", "endTime": ENDS, "catchUpPolicy": "All"}
    usual = {
        "name": name, "uid": f"uid-{name}", "target": target, "spec": spec, "edit": 1,
        "created_us": T, "at_us": T + 1, "returned_us": T + 2, "ready_us": T + 3,
    }  # fmt: skip
    return Wish(**(usual | fields))


def an_effect(second, name="hook", target="webhook", **fields):
    slot = T + second * S
    usual = {
        "target": target, "uid": f"uid-{name}", "slot_us": slot, "at_us": slot + 5_000,
        "since_us": slot + 5_000 if target != "job" else slot, "key": f"{name}-{second}",
        "unique": f"{name}-{second}-a" if target != "webhook" else "", "edit": 1,
        "begun_rev": 100 + 10 * second if target == "job" else 0,
    }  # fmt: skip
    return Effect(**(usual | fields))


def a_status(name="hook", slots=SECONDS - 1, **runs):
    ready = {"type": "Ready", "status": "True"}
    return StatusAtEnd(
        name=name,
        generation=1,
        status={
            "observedGeneration": 1,
            "conditions": [ready],
            "settledThrough": "2027-01-15T08:00:19Z",
            "runs": {"started": slots, **runs},
        },
    )


def clean(target="webhook", **fields):
    """Return the history of a Schedule every second, all of whose slots ran."""
    made = History(a_run())
    made.wishes = [a_wish(target=target, **fields)]
    made.effects = [an_effect(second, target=target) for second in range(1, SECONDS)]
    made.job_ends = [
        JobEnd(unique=one.unique, rev=one.begun_rev + 5, at_us=one.at_us + S // 2)
        for one in made.effects
        if target == "job"
    ]
    made.statuses = [a_status()]
    made.leases = [LeaseSeen(at_us=T, holder="operator-0", epoch=1)]
    made.end = EndState(at_us=T + 120 * S)
    return made


def with_spec(made, **fields):
    """Return the same history with another spec of its only wish."""
    made.wishes = [dataclasses.replace(one, spec={**one.spec, **fields}) for one in made.wishes]
    return made


def broken(made):
    return {one.rule for one in checker.judge(made)}


def replaced(made, second, **fields):
    made.effects[second - 1] = dataclasses.replace(made.effects[second - 1], **fields)


@pytest.mark.parametrize("target", ["webhook", "stream", "job"])
def test_a_history_in_which_all_is_well_breaks_nothing(target):
    assert checker.judge(clean(target)) == []


def test_v1_a_slot_without_an_effect_is_lost():
    made = clean()
    del made.effects[4]
    made.statuses = [a_status(slots=SECONDS - 2)]
    assert Rule.LOST in broken(made)


def test_v1_a_fault_excuses_no_loss_where_the_policy_is_all():
    made = clean()
    made.faults = [FAULT]
    del made.effects[9]
    assert Rule.LOST in broken(made)


def test_v1_what_a_server_forgot_of_a_stream_is_no_loss():
    made = clean("stream")
    del made.effects[9]
    made.faults = [dataclasses.replace(FAULT, begin_us=T + 10 * S + 1, end_us=T + 11 * S)]
    assert Rule.LOST in broken(made)
    made.faults = [dataclasses.replace(made.faults[0], forgets=True)]
    assert Rule.LOST not in broken(made)


def test_v2_a_second_job_of_a_slot_is_not_excused_by_a_fault():
    made = clean("job")
    made.faults = [FAULT]
    made.effects.append(an_effect(10, target="job", unique="another"))
    made.job_ends.append(JobEnd(unique="another", rev=1, at_us=T))
    assert broken(made) == {Rule.JOB_TWICE}


def test_v3_a_second_delivery_needs_a_fault_between_or_around():
    made = clean()
    made.effects.append(an_effect(5, at_us=T + 6 * S))
    assert broken(made) == {Rule.DELIVERED_TWICE}
    made.faults = [FAULT]
    assert broken(made) == {Rule.DELIVERED_TWICE}
    made.faults = [dataclasses.replace(FAULT, begin_us=T + 5 * S, end_us=T + 6 * S)]
    assert broken(made) == set()


def test_v3_each_delivery_whose_answer_the_receiver_kept_may_be_repeated():
    made = clean()
    cut = dataclasses.replace(FAULT, kind="receiver-cuts")
    made.faults = [dataclasses.replace(cut, begin_us=T + 10 * S, end_us=T + 11 * S)]
    made.effects += [an_effect(10, at_us=T + 10 * S + n) for n in (100, 200, 300)]
    assert broken(made) == set()
    made.effects += [an_effect(10, at_us=T + 12 * S + n) for n in (100, 200, 300)]
    assert broken(made) == {Rule.DELIVERED_TWICE}


def test_v3_attempts_of_a_slot_have_one_id():
    made = clean()
    made.faults = [FAULT]
    made.effects.append(an_effect(10, at_us=T + 11 * S, key="another"))
    assert broken(made) == {Rule.DELIVERED_TWICE}


def test_v4_nothing_runs_before_its_time():
    made = clean()
    replaced(made, 5, at_us=T + 5 * S - 1, since_us=T + 5 * S - 1)
    assert broken(made) == {Rule.EARLY}


@pytest.mark.parametrize(
    ("kind", "early_us", "expected"),
    [
        ("wrong-clock", 5_000, set()),
        ("wrong-clock", 5_001, {Rule.EARLY}),
        ("kill-worker", 1, {Rule.EARLY}),
    ],
)
def test_v4_a_wrong_clock_makes_a_slot_five_milliseconds_early_at_most(kind, early_us, expected):
    made = clean()
    made.faults = [dataclasses.replace(FAULT, kind=kind)]
    at_us = T + 9 * S - early_us
    replaced(made, 9, at_us=at_us, since_us=at_us)
    assert broken(made) == expected


def test_v5_nothing_runs_late_where_nothing_disturbs():
    made = clean()
    replaced(made, 5, at_us=T + 5 * S + 3 * S + 1)
    assert broken(made) == {Rule.LATE}


def test_v5_a_fault_excuses_until_its_recovery_is_over():
    made = clean()
    made.faults = [FAULT]
    replaced(made, 10, at_us=FAULT.end_us + RECOVERY_US)
    assert broken(made) == set()
    replaced(made, 10, at_us=FAULT.end_us + RECOVERY_US + 1)
    assert broken(made) == {Rule.LATE}


def edited(made, spec, **fields):
    """Return the history with the object edited at +10 s and Ready at +11 s."""
    second = a_wish(
        spec=spec,
        edit=2,
        at_us=T + 10 * S - 1,
        returned_us=T + 10 * S,
        ready_us=T + 11 * S,
        **fields,
    )
    made.wishes.append(second)
    made.statuses = []
    return made


def test_v6_no_slot_that_is_due_after_ready_runs_as_of_an_older_edit():
    made = edited(clean(), a_wish().spec)
    assert {one.at_us for one in checker.judge(made) if one.rule is Rule.STALE} == {
        T + second * S for second in range(11, SECONDS)
    }


@pytest.mark.parametrize("spec", [None, {**a_wish().spec, "suspend": True}], ids=["gone", "off"])
def test_v7_what_is_deleted_or_suspended_runs_no_more(spec):
    made = edited(clean(), spec)
    first = min(one.at_us for one in checker.judge(made) if one.rule is Rule.NOT_WANTED)
    assert first >= T + 11 * S


def test_v7_a_slot_that_the_object_does_not_have_is_not_wanted():
    made = clean()
    made.effects.append(
        an_effect(5, slot_us=T + 5 * S + 500_000, at_us=T + 6 * S, since_us=T + 6 * S)
    )
    assert Rule.NOT_WANTED in broken(made)


def test_v8_jobs_that_may_not_overlap_do_not():
    made = with_spec(clean("job"), concurrencyPolicy="Forbid")
    assert broken(made) == set()
    made.job_ends[4] = dataclasses.replace(made.job_ends[4], rev=made.effects[5].begun_rev + 1)
    assert broken(made) == {Rule.POLICY}


def test_v8_what_is_too_late_for_its_policy_does_not_run():
    made = with_spec(clean(), catchUpPolicy="None")
    made.faults = [dataclasses.replace(FAULT, end_us=T + 20 * S)]
    replaced(made, 10, at_us=T + 20 * S + RECOVERY_US)
    assert broken(made) == set()
    replaced(made, 10, at_us=T + 20 * S + RECOVERY_US + 1)
    assert Rule.POLICY in broken(made)


def test_v9_what_began_is_counted_and_every_slot_has_an_end():
    made = clean()
    made.statuses = [a_status(slots=SECONDS - 2)]
    assert broken(made) == {Rule.UNEXPLAINED}
    made.statuses = [a_status(slots=SECONDS - 1, missed=1)]
    assert broken(made) == {Rule.UNEXPLAINED}
    made.statuses = [a_status(slots=SECONDS, manual=1)]
    assert broken(made) == set()


def test_v10_a_status_is_of_the_last_slot_and_generation_and_nothing_is_open():
    for change in (
        {"observedGeneration": 0},
        {"conditions": []},
        {"settledThrough": "2027-01-15T08:00:18Z", "runs": {"started": SECONDS - 2}},
        {"openSlots": ["2027-01-15T08:00:19Z"]},
    ):
        made = clean()
        (status,) = made.statuses
        made.statuses = [dataclasses.replace(status, status={**status.status, **change})]
        assert broken(made) == {Rule.NOT_AT_REST}, change


def test_v10_a_history_that_was_cut_off_is_not_at_rest():
    made = clean()
    made.end = None
    assert Rule.NOT_AT_REST in broken(made)


def test_v11_terms_go_up_and_each_has_one_leader():
    made = clean()
    made.leases.append(LeaseSeen(at_us=T + 1, holder="operator-1", epoch=1))
    assert broken(made) == {Rule.TWO_LEADERS}
    made.leases[-1] = LeaseSeen(at_us=T + 1, holder="operator-1", epoch=2)
    assert broken(made) == set()
    made.leases.append(LeaseSeen(at_us=T + 2, holder="operator-0", epoch=1))
    assert broken(made) == {Rule.TWO_LEADERS}


def test_v12_strangers_are_left_alone():
    made = clean()
    made.end = dataclasses.replace(made.end, strangers=("a Job in default",))
    assert broken(made) == {Rule.HARM}


def test_a_stall_of_the_machine_excuses_what_a_pause_of_all_processes_does():
    made = clean()
    replaced(made, 12, at_us=T + 20 * S)
    made.effects.append(dataclasses.replace(made.effects[11], at_us=T + 21 * S))
    assert broken(made) == {Rule.LATE, Rule.DELIVERED_TWICE}
    made.stalls = [Stall(begin_us=T + 11 * S, end_us=T + 14 * S)]
    assert checker.judge(made) == []


# -- what is required ------------------------------------------------------------------------------


# -- runs that say nothing -------------------------------------------------------------------------


def busy():
    made = clean()
    made.effects = [an_effect(second) for second in range(1, SECONDS) for _ in range(10)]
    made.faults = [dataclasses.replace(FAULT, kind=kind) for kind in ("a", "b", "c", "d")]
    return made


def test_a_run_is_refused_that_was_too_quiet():
    assert "too few" in "\n".join(quietness.complaints(clean(), [], rounds=2))
    made = busy()
    made.faults = []
    said = "\n".join(quietness.complaints(made, ["a"], rounds=2))
    assert "0 faults" in said
    assert "no a was seen to bite" in said
    assert "slots were due while" in said


# -- stored histories ------------------------------------------------------------------------------


def test_a_stored_history_is_read_as_it_was():
    made = busy()
    made.stalls = [Stall(begin_us=T, end_us=T + 3 * S)]
    lines = [
        made.run, *made.wishes, *made.effects, *made.faults, *made.stalls, *made.leases,
        *made.statuses, made.end,
    ]  # fmt: skip
    assert history.read(map(history.text_of, lines)) == made
