"""What a program can do with the members of a set, blocking and with asyncio alike."""

from __future__ import annotations

import datetime as dt

import msgspec
import pytest

from duepoint import client
from duepoint.client import ChangeOptions, MemberRow, MemberSpec, batches

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


def test_what_is_not_written_is_not_sent(reminders, api):
    reminders.put("a", MemberSpec(delay="24h"))

    assert set(api.members["a"]) == {
        "id", "etag", "uid", "at", "state", "createdTime", "nextDueTime", "claimed",
    }  # fmt: skip


def test_a_payload_of_null_is_sent(reminders, api):
    reminders.put("a", MemberSpec(delay="24h", payload=None))

    assert api.members["a"]["payload"] is None


def test_an_instant_is_sent_with_its_zone(reminders, api):
    at = dt.datetime(2027, 1, 1, 9, 0, tzinfo=dt.timezone(dt.timedelta(hours=1)))
    reminders.put("a", MemberSpec(at=at))

    assert api.members["a"]["at"] == "2027-01-01T09:00:00+01:00"


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


def test_an_id_is_encoded_whole(reminders, api):
    with pytest.raises(client.NothingThere):
        reminders.get("a/../../b?x#y z")
    assert api.requests[0][1].endswith("/schedules/a%2F..%2F..%2Fb%3Fx%23y%20z")


def test_a_member_that_is_not_there_has_a_code_of_its_own(reminders):
    with pytest.raises(client.NothingThere) as caught:
        reminders.get("nothing")
    assert (caught.value.status, caught.value.code) == (404, "NoSuchMember")


def test_a_one_off_without_an_id_gets_one(reminders, api):
    made = reminders.create(MemberSpec(delay="90s", payload={"n": 1}))

    assert len(made.id) == 26
    assert made.id in api.members


def test_an_id_is_created_once(reminders):
    only_new = ChangeOptions(if_absent=True)
    reminders.put("a", DAILY, options=only_new)

    with pytest.raises(client.TagMismatch):
        reminders.put("a", DAILY, options=only_new)


def test_a_change_of_an_older_version_is_refused(reminders):
    first = reminders.put("a", DAILY)
    reminders.put("a", MemberSpec(delay="1h"))

    with pytest.raises(client.TagMismatch):
        reminders.put("a", DAILY, options=ChangeOptions(if_match=first.etag))
    with pytest.raises(client.TagMismatch):
        reminders.delete("a", options=ChangeOptions(if_match=first.etag))


def test_an_etag_is_sent_as_http_wants_it(reminders, api):
    first = reminders.put("a", DAILY)
    reminders.delete("a", options=ChangeOptions(if_match=first.etag, durability="replicas=1"))

    assert api.requests[-1][2]["If-Match"] == f'"{first.etag}"'
    assert api.requests[-1][2]["Duepoint-Durability"] == "replicas=1"


def test_a_patch_takes_the_names_of_a_spec(reminders, api):
    reminders.put("a", DAILY)
    reminders.patch("a", {"time_zone": "Europe/Berlin", "starting_deadline_seconds": 60})

    stored = api.members["a"]
    assert (stored["timeZone"], stored["startingDeadlineSeconds"]) == ("Europe/Berlin", 60)
    assert "time_zone" not in stored


def test_a_patch_changes_what_it_names(reminders):
    reminders.put("a", DAILY)
    changed = reminders.patch("a", {"payload": {"order": 18}, "timeZone": None})

    assert (changed.payload, changed.time_zone, changed.schedule) == (
        {"order": 18}, None, "0 9 * * *",
    )  # fmt: skip


def test_a_deletion_says_whether_there_was_one(reminders):
    reminders.put("a", DAILY)

    assert reminders.delete("a") is True
    assert reminders.delete("a") is False


def test_a_deletion_in_a_set_that_is_not_there_is_no_answer_about_a_member(connect):
    with pytest.raises(client.NothingThere, match="no ScheduleSet"):
        connect().schedule_set("shop", "others").delete("a")


def test_a_trigger_takes_a_payload_of_its_own(reminders, api):
    reminders.put("a", DAILY)

    assert reminders.trigger("a") == "run-1"
    assert reminders.trigger("a", {"now": True}) == "run-2"
    assert api.triggered == [("a", None), ("a", {"now": True})]


def test_next_times_and_counts(reminders):
    reminders.put("a", DAILY)

    assert reminders.next_times("a", 2) == ("2026-11-27T09:00:00Z", "2026-11-28T09:00:00Z")
    assert reminders.info().members == 1
    assert reminders.unacknowledged()[0].last_error == "Timeout"


def test_all_members_come_page_by_page(reminders, api):
    for number in range(7):
        api.store(f"a-{number}", {"delay": "1h"})
    api.store("b", {"delay": "1h"})

    found = list(reminders.iterate("a-", page_size=3))

    assert [member.id for member in found] == [f"a-{number}" for number in range(7)]
    assert len(api.requests) == 3


def test_due_members_come_the_earliest_first(reminders, api):
    for number, at in enumerate(["2027-03-01", "2027-01-01", "2027-02-01", "2028-01-01"]):
        api.store(f"m{number}", {"at": f"{at}T00:00:00Z"})

    first = reminders.due("2027-01-01T00:00:00Z", "2028-01-01T00:00:00Z", limit=2)
    rest = reminders.due("2027-01-01T00:00:00Z", "2028-01-01T00:00:00Z", first.next, limit=2)

    assert [member.id for member in (*first.items, *rest.items)] == ["m1", "m2", "m0"]
    assert rest.next == ""


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


def test_a_payload_that_was_written_on_several_lines_is_a_row_of_one():
    member = b'{"id":"a","at":"2090-12-24T18:00:00Z","payload":{\r\n  "text": "a\\nb"\n}}'
    line = client.row_of(member)
    assert line == b'{"id":"a","at":"2090-12-24T18:00:00Z","payload":{    "text": "a\\nb" }}'
    row = client.MemberRow(id="a", schedule="@daily", payload=msgspec.Raw(b"[\n1\n]"))
    assert batches.line_of(row) == b'{"schedule":"@daily","payload":[ 1 ],"id":"a"}'


def test_a_field_of_a_newer_api_survives_an_export_and_disturbs_no_reading(reminders, api):
    reminders.put("a", DAILY)
    api.members["a"]["priority"] = 3

    assert reminders.get("a").id == "a"
    (line,) = [client.row_of(member) for member in reminders.export().items]
    assert b'"priority":3' in line
    assert b"etag" not in line


def test_rows_of_any_iterable_are_written(reminders, api):
    answers = list(reminders.upsert(MemberRow(id=f"m{n}", at=FAR) for n in range(2_500)))

    assert len(answers) == len(api.members) == 2_500
    assert {answer.outcome for answer in answers} == {"Created"}
    assert [answer.id for answer in answers[:3]] == ["m0", "m1", "m2"]
    assert len(api.requests) == 3


def test_a_row_says_its_instant_itself():
    with pytest.raises(ValueError, match="delay: a row may be sent twice"):
        MemberRow(id="a", delay="1h")
    with pytest.raises(ValueError, match="exactly one of"):
        MemberRow(id="a")


def test_a_refused_row_stops_none_of_the_others(reminders, api):
    api.refused["m1"] = [(422, "PayloadTooLarge")]
    answers = list(reminders.upsert([MemberRow(id=f"m{n}", at=FAR) for n in range(3)]))

    assert [answer.is_refused for answer in answers] == [False, True, False]
    with pytest.raises(client.RequestRefused, match="PayloadTooLarge"):
        answers[1].raise_if_refused()
    answers[0].raise_if_refused()


def test_many_members_are_deleted(reminders, api):
    for number in range(3):
        api.store(f"m{number}", {"delay": "1h"})

    answers = list(reminders.delete_many(["m0", "m2", "m9"]))

    assert [answer.outcome for answer in answers] == ["Removed", "Removed", "Absent"]
    assert list(api.members) == ["m1"]
