"""``duepoint set export`` and ``import``: whole sets."""

from __future__ import annotations

import json

import pytest

from duepoint.cli.sets import transfer
from tests.fakes import memoryapi

pytestmark = pytest.mark.usefixtures("environment")

COUNT = 25


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Pages and batches of a few rows, and little patience."""
    from duepoint.client import Retries

    monkeypatch.setattr(transfer, "_PAGE", 4)
    monkeypatch.setattr(transfer.batches, "ROWS", 4)
    monkeypatch.setattr(transfer, "_PATIENCE", Retries(attempts=2, first_seconds=0.01))


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


def test_an_empty_set_is_an_empty_file(duepoint, tmp_path):
    path = tmp_path / "members.ndjson"
    assert duepoint("set", "export", "reminders", str(path), "-o", "json").rows[0]["members"] == 0
    assert path.read_bytes() == b""


def test_an_export_to_standard_output(duepoint, api):
    filled(api, 5)
    answer = duepoint("set", "export", "reminders", "-")

    assert answer.column("id") == sorted(api.members)
    assert "5 members exported" in answer.err


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


def test_an_import_restores_what_was_exported_and_twice_is_once(duepoint, api, exported):
    path, wanted = exported
    first = duepoint("set", "import", "reminders", str(path))
    assert (first.code, payloads(api)) == (0, wanted)
    assert "25 rows: 25 created, 0 replaced, 0 unchanged, 0 refused" in first.out

    (second,) = duepoint("set", "import", "reminders", str(path), "-o", "json").rows
    assert (second["unchanged"], second["created"]) == (25, 0)
    assert payloads(api) == wanted


def test_several_requests_are_under_way_at_once(duepoint, api, exported):
    path, _ = exported
    import asyncio

    async def wait_for_the_others(request):
        await request.read()
        for _ in range(1_000):
            if api.most_in_flight >= 4:
                break
            await asyncio.sleep(0.01)
        return memoryapi.problem(503, "Busy", "not now")

    api.faults.extend([wait_for_the_others] * 4)
    assert duepoint("set", "import", "reminders", str(path)).code == 0
    assert api.most_in_flight == 4


def test_an_import_from_standard_input(duepoint, api, exported):
    path, wanted = exported
    answer = duepoint("set", "import", "reminders", "-", given=path.read_bytes())

    assert (answer.code, payloads(api)) == (0, wanted)


@pytest.mark.parametrize("requests", [0, 1, 3, 5])
def test_an_import_that_was_cut_is_repeated(duepoint, api, exported, requests):
    path, wanted = exported
    api.faults.extend([None] * requests + [_gone] * 10)
    assert duepoint("set", "import", "reminders", str(path)).code == 2
    api.faults.clear()

    (second,) = duepoint("set", "import", "reminders", str(path), "-o", "json").rows
    assert payloads(api) == wanted
    assert second["created"] + second["unchanged"] == 25


@pytest.mark.parametrize("word", ["import", "export"])
def test_a_misspelt_set_leaves_nothing_that_refuses_the_right_one(duepoint, exported, word):
    path, wanted = exported
    file = str(path) if word == "import" else str(path.with_name("other.ndjson"))
    there = set(path.parent.iterdir())
    assert duepoint("set", word, "remindres", file).code == 2
    assert set(path.parent.iterdir()) == there

    answer = duepoint("set", word, "reminders", file, "-o", "json")
    assert answer.code == 0
    assert answer.rows[0].get("rows", answer.rows[0].get("members")) in (0, len(wanted))


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
    assert "3 refused (TooLate 1, UnknownField 1, InvalidRow 1)" in answer.out
    assert answer.err.splitlines()[0] == (
        "duepoint: line 3 (b): at: 1970-01-01T00:00:00Z is past its deadline (TooLate)"
    )
    assert answer.err.splitlines()[2].startswith("duepoint: line 5: the row is no member")


def test_refused_rows_go_to_a_file(duepoint, tmp_path):
    path = tmp_path / "refused.ndjson"
    answer = duepoint("set", "import", "reminders", "-", "--refused", str(path), given=ROWS)

    assert (answer.code, answer.err) == (1, "")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(row["line"], row["error"]["code"]) for row in rows] == [
        (3, "TooLate"), (4, "UnknownField"), (5, "InvalidRow"),
    ]  # fmt: skip
    assert rows[2]["row"] == "no JSON"


def test_refusals_that_are_expected_are_no_failure(duepoint):
    only = '{"id": "a", "at": "2090-12-24T18:00:00Z"}\n{"id": "b", "at": "1970-01-01T00:00:00Z"}\n'
    late = ("set", "import", "reminders", "-", "--ignore", "TooLate")
    assert duepoint(*late, given=only).code == 0
    assert duepoint(*late, given=ROWS).code == 1


def test_a_line_without_an_end_is_refused(refused):
    assert "line 1 is longer than" in refused(
        "set", "import", "reminders", "-", given=b'{"id": "' + b"x" * 300_000
    )


def test_a_file_that_is_not_there_is_one_line(refused):
    assert "FILE: /nowhere: No such file" in refused("set", "import", "reminders", "/nowhere")
