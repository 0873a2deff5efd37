"""What a program can do with the members of a set, blocking and with asyncio alike."""

from __future__ import annotations

import datetime as dt

import pytest

from duepoint import client
from duepoint.client import MemberSpec

DAILY = MemberSpec(schedule="0 9 * * *", payload={"order": 17}, time_zone="Europe/Rome")


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
    with pytest.raises(ValueError, match="neither an id"):
        reminders.get(id_)
    assert api.requests == []


def test_a_member_that_is_not_there_has_a_code_of_its_own(reminders):
    with pytest.raises(client.NothingThere) as caught:
        reminders.get("nothing")
    assert (caught.value.status, caught.value.code) == (404, "NoSuchMember")
