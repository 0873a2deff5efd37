"""``duepoint set export`` and ``import``: whole sets."""

from __future__ import annotations

import json

import pytest

from duepoint.cli import sets
from tests.fakes import memoryapi

pytestmark = pytest.mark.usefixtures("environment")

COUNT = 25


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Pages and batches of a few rows, and little patience."""
    from duepoint.client import Retries
    from duepoint.client import rows as batching

    monkeypatch.setattr(sets, "_PAGE", 4)
    monkeypatch.setattr(batching, "ROWS", 4)
    monkeypatch.setattr(sets, "_PATIENCE", Retries(attempts=2, first_seconds=0.01))


def filled(api, count=COUNT):
    for number in range(count):
        api.store(
            f"m{number:03d}",
            {"at": "2090-12-24T18:00:00Z", "payload": {"n": number, "text": "Grüße"}},
        )


def ids(path):
    return [json.loads(line)["id"] for line in path.read_text().splitlines()]


# -- export --------------------------------------------------------------------------------------


def test_an_export_has_every_member_once_and_nothing_that_only_the_api_writes(
    duepoint, api, tmp_path
):
    filled(api)
    path = tmp_path / "members.ndjson"
    answer = duepoint("set", "export", "reminders", str(path))

    assert answer.code == 0
    assert "25 members exported to" in answer.out
    assert ids(path) == sorted(api.members)
    assert set(json.loads(path.read_text().splitlines()[0])) == {"id", "at", "payload"}


async def _gone(_):
    return memoryapi.problem(400, "Broken", "the request is broken")


@pytest.mark.parametrize("requests", [0, 1, 3])
def test_an_export_that_fails_leaves_the_former_file(duepoint, api, tmp_path, requests):
    filled(api)
    path = tmp_path / "members.ndjson"
    path.write_text("former\n")
    api.faults.extend([None] * requests + [_gone] * 3)
    assert duepoint("set", "export", "reminders", str(path)).code == 2
    assert [each.read_text() for each in tmp_path.glob("members*")] == ["former\n"]
    api.faults.clear()
    assert duepoint("set", "export", "reminders", str(path)).code == 0
    assert ids(path) == sorted(api.members)


# -- import --------------------------------------------------------------------------------------


@pytest.fixture
def exported(duepoint, api, tmp_path):
    filled(api)
    path = tmp_path / "members.ndjson"
    duepoint("set", "export", "reminders", str(path))
    wanted = {id_: member["payload"] for id_, member in api.members.items()}
    api.members.clear()
    return path, wanted


def payloads(api):
    return {id_: member["payload"] for id_, member in api.members.items()}


@pytest.mark.parametrize("requests", [0, 1, 3, 5])
def test_an_import_that_was_cut_is_repeated(duepoint, api, exported, requests):
    path, wanted = exported
    api.faults.extend([None] * requests + [_gone] * 10)
    assert duepoint("set", "import", "reminders", str(path)).code == 2
    api.faults.clear()

    (second,) = duepoint("set", "import", "reminders", str(path), "-o", "json").rows
    assert payloads(api) == wanted
    assert second["created"] + second["unchanged"] == 25


ROWS = """{"id": "a", "at": "2090-12-24T18:00:00Z"}

{"id": "b", "at": "1970-01-01T00:00:00Z"}
{"id": "c", "colour": "red", "at": "2090-12-24T18:00:00Z"}
no JSON
{"id": "d", "at": "2090-12-24T18:00:00Z"}
"""


def test_refused_rows_are_counted_shown_and_stop_none_of_the_others(duepoint, api):
    answer = duepoint("set", "import", "reminders", "-", given=ROWS)

    assert answer.code == 1
    assert sorted(api.members) == ["a", "d"]
    assert "2 created" in answer.out
    assert "3 refused (TooLate 1, InvalidField 1, InvalidRow 1)" in answer.out
    assert answer.err.splitlines()[0] == (
        "duepoint: line 3 (b): at: 1970-01-01T00:00:00Z is past its deadline (TooLate)"
    )
    assert answer.err.splitlines()[2].startswith("duepoint: line 5: the row is not a member")
