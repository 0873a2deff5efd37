"""`duepoint simulate`: every slot and its end, as operator and worker would decide them."""

from __future__ import annotations

import json

import pytest

from tests.integration.crds.manifests import a_schedule
from tests.integration.crds.test_accepted_objects import CRONJOB

DAY = ("--from", "2026-12-01T00:00:00Z", "--to", "2026-12-01T06:00:00Z")


def hour(text):
    return f"2026-12-01T{text}:00Z"


def window(first, last):
    return f"{hour(first)}/{hour(last)}"


@pytest.fixture
def simulate(duepoint):
    """Fields of a Schedule and further arguments -> its rows."""

    def run(*arguments, created=None, **fields):
        thing = a_schedule("nightly", namespace="team", **{"schedule": "0 * * * *", **fields})
        if created:
            thing["metadata"]["creationTimestamp"] = created
        answer = duepoint("simulate", "-f", "-", *DAY, *arguments, given=json.dumps(thing))
        assert answer.code == 0, answer.err
        return answer.rows

    return run


def ends(rows):
    """Hour and minute of each slot, how it ends and why, in short."""
    return [
        f"{row['scheduledTime'][11:16]} {row['outcome']} {row['reason']}".strip() for row in rows
    ]


def test_without_trouble_every_slot_starts_at_its_time(simulate):
    rows = simulate()
    assert len(rows) == 6
    assert rows[0] == {
        "schedule": "team/nightly",
        "scheduledTime": hour("00:00"),
        "local": "2026-12-01T00:00:00+00:00",
        "outcome": "Started",
        "reason": "",
        "firedAt": hour("00:00"),
        "trigger": "Schedule",
    }
    assert all(row["firedAt"] == row["scheduledTime"] for row in rows)


def test_after_an_outage_the_newest_slot_runs_and_the_others_are_missed(simulate):
    rows = simulate("--down", window("01:00", "03:30"))
    assert ends(rows) == [
        "00:00 Started",
        "01:00 Missed CatchUpPolicy",
        "02:00 Missed CatchUpPolicy",
        "03:00 Started",
        "04:00 Started",
        "05:00 Started",
    ]
    caught_up = rows[3]
    assert (caught_up["firedAt"], caught_up["trigger"]) == (hour("03:30"), "CatchUp")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (
            {"catchUpPolicy": "All"},
            ["01:00 Started", "02:00 Started", "03:00 Started"],
        ),
        (
            {"catchUpPolicy": "All", "catchUpLimit": 1},
            ["01:00 Missed CatchUpLimit", "02:00 Missed CatchUpLimit", "03:00 Started"],
        ),
        (
            {"catchUpPolicy": "None"},
            [
                "01:00 Missed CatchUpPolicy",
                "02:00 Missed CatchUpPolicy",
                "03:00 Missed CatchUpPolicy",
            ],
        ),
        (
            {"startingDeadlineSeconds": 5400},
            ["01:00 Missed DeadlineExceeded", "02:00 Missed CatchUpPolicy", "03:00 Started"],
        ),
        (
            {"startingDeadlineSeconds": 0},
            [
                "01:00 Missed DeadlineExceeded",
                "02:00 Missed DeadlineExceeded",
                "03:00 Missed DeadlineExceeded",
            ],
        ),
    ],
)
def test_policies_decide_what_an_outage_leaves(simulate, fields, expected):
    assert ends(simulate("--down", window("01:00", "03:20"), **fields))[1:4] == expected


def test_a_single_late_slot_is_simply_run(simulate):
    rows = simulate("--down", window("00:30", "01:20"))
    assert ends(rows)[1] == "01:00 Started"
    assert rows[1]["firedAt"] == hour("01:20")


def test_a_slot_at_the_end_of_an_outage_is_one_of_those_overdue(simulate):
    rows = simulate("--down", window("01:00", "03:00"))
    assert ends(rows)[1:4] == [
        "01:00 Missed CatchUpPolicy",
        "02:00 Missed CatchUpPolicy",
        "03:00 Started",
    ]


def test_an_outage_may_end_after_the_last_slot_that_is_shown(simulate):
    rows = simulate("--down", window("04:00", "23:30"), catchUpPolicy="All", catchUpLimit=2)
    assert ends(rows)[4:] == ["04:00 Missed CatchUpLimit", "05:00 Missed CatchUpLimit"]


def test_outages_that_overlap_are_one(simulate):
    both = simulate("--down", window("01:00", "03:00"), "--down", window("02:00", "04:30"))
    assert both == simulate("--down", window("01:00", "04:30"))


def test_a_suspension_skips_its_own_slots_and_no_others(simulate):
    rows = simulate("--suspend", window("02:00", "04:00"))
    assert ends(rows) == [
        "00:00 Started",
        "01:00 Started",
        "02:00 Skipped Suspended",
        "03:00 Skipped Suspended",
        "04:00 Started",
        "05:00 Started",
    ]
    assert "firedAt" not in rows[2]


def test_an_outage_inside_a_suspension_changes_nothing(simulate):
    suspended = ("--suspend", window("01:00", "05:00"))
    assert simulate(*suspended, "--down", window("02:00", "04:00")) == simulate(*suspended)


def test_nobody_sees_a_suspension_that_begins_and_ends_in_an_outage(simulate):
    down = ("--down", window("01:00", "04:30"))
    assert simulate(*down, "--suspend", window("02:00", "03:00")) == simulate(*down)


def test_a_suspension_made_in_an_outage_is_seen_at_its_end_and_fires_nothing_of_the_past(simulate):
    rows = simulate("--down", window("01:00", "03:30"), "--suspend", window("02:30", "04:30"))
    assert ends(rows) == [
        "00:00 Started",
        "01:00 Superseded StaleVersion",
        "02:00 Superseded StaleVersion",
        "03:00 Superseded StaleVersion",
        "04:00 Skipped Suspended",
        "05:00 Started",
    ]


def test_a_schedule_that_is_written_suspended_skips_everything(simulate):
    assert {row["outcome"] for row in simulate(suspend=True)} == {"Skipped"}


def test_suspend_until_holds_slots_up_to_that_time(simulate):
    rows = simulate(suspend=True, suspendUntil=hour("03:00"))
    assert ends(rows)[2:4] == ["02:00 Skipped Suspended", "03:00 Started"]


def test_the_window_of_a_schedule_bounds_its_slots(simulate):
    rows = simulate(startTime=hour("02:00"), endTime=hour("04:00"))
    assert ends(rows) == ["02:00 Started", "03:00 Started"]


def test_several_expressions_run_once_where_they_coincide(simulate):
    rows = simulate(schedule=None, schedules=["0 */2 * * *", "0 */3 * * *"])
    assert [row["scheduledTime"][11:13] for row in rows] == ["00", "02", "03", "04"]


def test_jitter_is_told_by_when_it_fires_and_never_makes_it_early(simulate):
    rows = simulate(jitter="10m")
    again = simulate(jitter="10m")
    assert rows == again
    assert all(row["firedAt"] >= row["scheduledTime"] for row in rows)
    assert any(row["firedAt"] > row["scheduledTime"] for row in rows)


def test_a_slot_whose_jitter_lies_beyond_a_suspension_is_superseded(simulate):
    (free,) = [row for row in simulate(jitter="59m") if row["scheduledTime"] == hour("02:00")]
    assert free["firedAt"] > hour("02:01")
    rows = simulate("--suspend", window("02:01", "05:30"), jitter="59m")
    assert "02:00 Superseded StaleVersion" in ends(rows)


def test_every_counts_from_the_creation_and_never_runs_at_once(simulate):
    period = {"schedule": "@every 90m"}
    assert ends(simulate(**period)) == ["01:30 Started", "03:00 Started", "04:30 Started"]
    older = simulate(created="2026-11-30T23:00:00Z", **period)
    assert ends(older)[:2] == ["00:30 Started", "02:00 Started"]
    anchored = simulate(startTime=hour("01:00"), **period)
    assert ends(anchored)[:2] == ["01:00 Started", "02:30 Started"]


def test_a_schedule_has_no_slot_before_its_creation(simulate):
    assert ends(simulate(created=hour("03:00"))) == ["04:00 Started", "05:00 Started"]


@pytest.mark.parametrize(
    ("deadline", "expected"),
    [(None, "23:00 Missed DeadlineExceeded"), (7200, "23:00 Started")],
)
def test_a_one_shot_in_the_past_runs_only_if_a_deadline_covers_it(simulate, deadline, expected):
    rows = simulate(schedule="@at 2026-11-30T23:00:00Z", startingDeadlineSeconds=deadline)
    assert ends(rows) == [expected]


def test_a_one_shot_of_an_older_schedule_is_over(duepoint):
    thing = a_schedule("once", schedule="@at 2026-11-30T23:00:00Z")
    thing["metadata"]["creationTimestamp"] = "2026-11-01T00:00:00Z"
    answer = duepoint("simulate", "-f", "-", *DAY, given=json.dumps(thing))
    assert (answer.code, answer.out) == (0, "")


def test_slots_of_several_schedules_are_one_time_line(duepoint):
    things = [a_schedule("one", schedule="0 * * * *"), a_schedule("two", schedule="30 * * * *")]
    given = "\n---\n".join(json.dumps(thing) for thing in things)
    answer = duepoint("simulate", "-f", "-", *DAY, given=given)
    assert answer.column("schedule")[:3] == ["default/one", "default/two", "default/one"]
    times = answer.column("scheduledTime")
    assert times == sorted(times)


def test_daylight_saving_is_the_schedules_own(duepoint):
    thing = a_schedule("x", schedule="30 2 * * *", timeZone="Europe/Berlin")
    answer = duepoint(
        "simulate", "-f", "-", "--from", "2027-03-27T00:00:00", "--to", "2027-03-30T00:00:00",
        given=json.dumps(thing),
    )  # fmt: skip
    assert answer.column("local") == [
        "2027-03-27T02:30:00+01:00",
        "2027-03-28T03:00:00+02:00",
        "2027-03-29T02:30:00+02:00",
    ]


def test_hashes_use_the_namespace_that_is_given(duepoint):
    thing = a_schedule("x", schedule="H * * * *")
    del thing["metadata"]["namespace"]
    found = {
        duepoint("simulate", "-f", "-", *DAY, "-n", name, given=json.dumps(thing)).rows[0]["local"]
        for name in ("a", "b", "c")
    }
    assert len(found) > 1


def test_a_cronjob_is_taken_for_the_schedule_it_becomes(duepoint):
    answer = duepoint("simulate", "-f", "-", *DAY, given=CRONJOB)
    assert answer.column("scheduledTime") == [hour("02:30")]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--from", "2026-12-02", "--to", "2026-12-01"), "--to"),
        (("--from", "2026-12-01", "--to", "2026-12-01"), "--to"),
        (("--from", "x", "--to", "2026-12-01"), "--from"),
        (("--from", "2026-12-01"), "--to"),
        ((*DAY, "--down", "2026-12-01"), "write FROM/TO"),
        ((*DAY, "--down", "2026-12-02/2026-12-01"), "ends before it begins"),
        ((*DAY, "--suspend", "x/2026-12-01"), "--suspend"),
        ((*DAY, "-o", "yml"), "--output"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(refused, arguments, says):
    given = json.dumps(a_schedule("x"))
    assert says in refused("simulate", "-f", "-", *arguments, given=given)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (json.dumps(a_schedule("x", schedule="61 * * * *")), "spec.schedule: minute, column 1"),
        ("", "holds no Schedule"),
        ("a: [", "document 1"),
    ],
)
def test_a_file_without_a_valid_schedule_is_refused(refused, given, says):
    assert says in refused("simulate", "-f", "-", *DAY, given=given)


@pytest.mark.parametrize("policy", ["Forbid", "Replace", "Queue"])
def test_that_a_concurrency_policy_is_left_out_is_said(duepoint, policy):
    thing = a_schedule("nightly", namespace="team", schedule="0 * * * *", concurrencyPolicy=policy)
    thing["spec"].pop("stream", None)
    thing["spec"]["webhook"] = {"url": "https://hooks.example.com/x"}
    answer = duepoint("simulate", "-f", "-", *DAY, given=json.dumps(thing))
    assert f"concurrencyPolicy: {policy} is left out" in answer.err
    assert {row["outcome"] for row in answer.rows} == {"Started"}


def test_nothing_is_said_of_the_policy_that_allows_everything(duepoint):
    thing = a_schedule("nightly", namespace="team", schedule="0 * * * *")
    answer = duepoint("simulate", "-f", "-", *DAY, given=json.dumps(thing))
    assert answer.err == ""


def test_max_runs_end_a_schedule_after_so_many_starts(simulate):
    assert ends(simulate(maxRuns=2)) == ["00:00 Started", "01:00 Started"]


def test_missed_slots_do_not_count_towards_max_runs(simulate):
    down = ("--down", window("01:00", "03:30"))
    assert ends(simulate(*down, maxRuns=3)) == [
        "00:00 Started",
        "01:00 Missed CatchUpPolicy",
        "02:00 Missed CatchUpPolicy",
        "03:00 Started",
        "04:00 Started",
    ]
    assert ends(simulate(*down, maxRuns=2, catchUpPolicy="All")) == [
        "00:00 Started",
        "01:00 Started",
        "02:00 Skipped MaxRuns",
        "03:00 Skipped MaxRuns",
    ]
