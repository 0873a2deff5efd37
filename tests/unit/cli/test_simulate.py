"""`duepoint simulate`: every slot and its end, as operator and worker would decide them."""

from __future__ import annotations

import json

import pytest

from tests.integration.crds.manifests import a_schedule

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
            ["01:00 Missed CatchUpPolicy", "02:00 Missed CatchUpPolicy", "03:00 Started"],
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


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--from", "2026-12-02", "--to", "2026-12-01"), "--to"),
        (("--from", "2026-12-01", "--to", "2026-12-01"), "--to"),
        (("--from", "x", "--to", "2026-12-01"), "--from"),
        (("--from", "2026-12-01"), "--to"),
        ((*DAY, "--down", "2026-12-01"), "write FROM/TO"),
        ((*DAY, "--down", "2026-12-02/2026-12-01"), "ends before it begins"),
        ((*DAY, "--down", "x/2026-12-01"), "--down"),
        ((*DAY, "-o", "yml"), "--output"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(refused, arguments, says):
    given = json.dumps(a_schedule("x"))
    assert says in refused("simulate", "-f", "-", *arguments, given=given)
