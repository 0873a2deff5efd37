"""What a program can do with the members of a set, blocking and with asyncio alike."""

from __future__ import annotations

import datetime as dt

import pytest

from duepoint import client
from duepoint.client import ChangeOptions, MemberRow, MemberSpec

FAR = "2090-12-24T18:00:00Z"
DAILY = MemberSpec(schedule="0 9 * * *", payload={"order": 17}, time_zone="Europe/Rome")


def test_a_member_is_put_and_read_back(reminders, api):
    put = reminders.put("order-17", DAILY)
    got = reminders.get("order-17")

    assert got == put
    assert (got.id, got.schedule, got.payload, got.time_zone, got.state) == (
        "order-17", "0 9 * * *", {"order": 17}, "Europe/Rome", "Armed",
    )  # fmt: skip
    assert got.etag == api.members["order-17"]["etag"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "none of them"),
        ({"schedule": "@daily", "delay": "1h"}, "schedule and delay"),
        ({"at": dt.datetime(2027, 1, 1)}, "no zone"),  # noqa: DTZ001 - the mistake
        ({"schedule": ["0 9 * * *", "0 18 * * *"]}, "has one expression"),
    ],
    ids=["no time", "two times", "no zone", "two expressions"],
)
def test_a_spec_that_no_api_would_take_is_refused_at_once(given, said):
    with pytest.raises(ValueError, match=said):
        MemberSpec(**given)


def test_a_payload_that_is_no_json_is_refused_before_anything_is_sent(reminders, api):
    with pytest.raises(ValueError, match="cannot be written as JSON"):
        reminders.put("a", MemberSpec(delay="1h", payload=object()))
    assert api.requests == []


@pytest.mark.parametrize("id_", ["", ".", ".."])
def test_an_id_that_would_name_another_path_is_refused(reminders, api, id_):
    with pytest.raises(ValueError, match="is no id"):
        reminders.get(id_)
    assert api.requests == []


def test_a_member_that_is_not_there_has_a_code_of_its_own(reminders):
    with pytest.raises(client.NothingThere) as caught:
        reminders.get("nothing")
    assert (caught.value.status, caught.value.code) == (404, "NoSuchMember")


def test_a_change_of_an_older_version_is_refused(reminders):
    first = reminders.put("a", DAILY)
    reminders.put("a", MemberSpec(delay="1h"))

    with pytest.raises(client.TagMismatch):
        reminders.put("a", DAILY, options=ChangeOptions(if_match=first.etag))
    with pytest.raises(client.TagMismatch):
        reminders.delete("a", options=ChangeOptions(if_match=first.etag))


def test_a_patch_changes_what_it_names(reminders):
    reminders.put("a", DAILY)
    changed = reminders.patch("a", {"payload": {"order": 18}, "timeZone": None})

    assert (changed.payload, changed.time_zone, changed.schedule) == (
        {"order": 18}, None, "0 9 * * *",
    )  # fmt: skip


def test_all_members_come_page_by_page(reminders, api):
    for number in range(7):
        api.store(f"a-{number}", {"delay": "1h"})
    api.store("b", {"delay": "1h"})

    found = list(reminders.iterate("a-", page_size=3))

    assert [member.id for member in found] == [f"a-{number}" for number in range(7)]
    assert len(api.requests) == 3


def test_what_is_exported_can_be_written_again(reminders, api):
    reminders.put("a", DAILY)
    reminders.put("b", MemberSpec(at="2027-01-01T00:00:00Z", suspend=True))
    before = {id_: dict(member) for id_, member in api.members.items()}
    lines = [client.row_of(member) for member in reminders.export().items]
    api.members.clear()

    answers = list(reminders.upsert(lines))

    assert [answer.outcome for answer in answers] == ["Created", "Created"]
    for id_, member in api.members.items():
        assert {n: member[n] for n in member if n not in ("etag", "uid")} == {
            n: before[id_][n] for n in before[id_] if n not in ("etag", "uid")
        }


def test_a_refused_row_stops_none_of_the_others(reminders, api):
    api.refused["m1"] = [(422, "PayloadTooLarge")]
    answers = list(reminders.upsert([MemberRow(id=f"m{n}", at=FAR) for n in range(3)]))

    assert [answer.is_refused for answer in answers] == [False, True, False]
    with pytest.raises(client.RequestRefused, match="PayloadTooLarge"):
        answers[1].raise_if_refused()
    answers[0].raise_if_refused()
