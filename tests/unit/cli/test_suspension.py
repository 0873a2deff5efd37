"""``duepoint suspend`` and ``resume`` of many Schedules; others have suspended some."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from duepoint.cli import options
from tests.support import background, scriptedapi

_ALL = "/apis/duepoint.dev/v1alpha1/namespaces/shop/schedules"
_LOSS = "never run: data loss"
SPECS: dict[str, dict[str, Any]] = {
    "dangerous": {"suspend": True, "suspendReason": _LOSS},
    "bare": {"suspend": True},
    "moving": {"suspend": True, "suspendReason": "moving", "suspendUntil": "2090-01-01T00:00:00Z"},
    "over": {"suspend": True, "suspendReason": "old", "suspendUntil": "2020-01-01T00:00:00Z"},
    "running": {},
}


class Cluster:
    """An API server that keeps Schedules and merges what is written to them."""

    def __init__(self) -> None:
        self.specs = copy.deepcopy(SPECS)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.path == _ALL:
            return web.json_response({"items": [self._item(name) for name in self.specs]})
        name = request.path.removeprefix(f"{_ALL}/")
        if request.method == "PATCH":
            for field, value in (await request.json())["spec"].items():
                self.specs[name][field] = value
                if value is None:
                    del self.specs[name][field]
        return web.json_response(self._item(name))

    def _item(self, name: str) -> dict[str, Any]:
        metadata = {"name": name, "namespace": "shop", "uid": name, "generation": 1}
        return {"metadata": metadata, "spec": {"schedule": "0 2 * * *", **self.specs[name]}}

    def suspended(self) -> set[str]:
        return {name for name, spec in self.specs.items() if spec.get("suspend")}


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    found = Cluster()
    with background.living(lambda: scriptedapi.serving(found.answer)) as (server, _):
        document = {
            "current-context": "here",
            "contexts": [
                {"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "shop"}}
            ],
            "clusters": [{"name": "c", "cluster": {"server": server.url}}],
            "users": [{"name": "u", "user": {"token": "t"}}],
        }
        (tmp_path / "config").write_text(json.dumps(document))
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
        yield found


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Questions; the person says no to each."""
    found: list[str] = []
    monkeypatch.setattr(options, "confirmed", lambda question, **_: found.append(question))
    return found


INCIDENT = ("--reason", "INC-42", "--until", "2h", "-o", "json")


@pytest.mark.parametrize("choice", [("--all",), ("-l", "team=a")])
def test_suspending_all_leaves_the_reason_and_the_end_of_those_suspended_before(
    duepoint, cluster, choice
):
    answer = duepoint("suspend", *choice, *INCIDENT)
    for name in ("dangerous", "bare", "moving"):
        assert cluster.specs[name] == SPECS[name]
    for name in ("over", "running"):
        assert cluster.specs[name]["suspendReason"] == "INC-42"
        assert cluster.specs[name]["suspendUntil"] > "2026"
    results = dict(zip(answer.column("schedule"), answer.column("result"), strict=True))
    assert results == {
        "dangerous": f'left as it is: suspended, "{_LOSS}"',
        "bare": "left as it is: suspended, without a reason",
        "moving": 'left as it is: suspended until 2090-01-01T00:00:00Z, "moving"',
        "over": "suspended",
        "running": "suspended",
    }


def test_resuming_all_of_a_reason_leaves_those_of_another(duepoint, cluster):
    duepoint("suspend", "--all", *INCIDENT)
    answer = duepoint("resume", "--all", "--reason", "INC-42", "-o", "json")
    assert cluster.specs == SPECS | {"over": {"suspend": False}, "running": {"suspend": False}}
    assert answer.column("result")[:2] == [
        f'left as it is: suspended, "{_LOSS}"', "left as it is: suspended, without a reason",
    ]  # fmt: skip
    duepoint("resume", "--all", "--reason", "")
    assert cluster.suspended() == {"dangerous", "moving"}


def test_resuming_all_asks_and_names_how_many_reasons_there_are(duepoint, cluster, asked):
    answer = duepoint("resume", "--all")
    assert cluster.specs == SPECS
    assert asked == [
        (
            f'Resume 4 Schedules, suspended for 4 reasons: "{_LOSS}" (1), without a reason (1),'
            ' "moving" (1), "old" (1)?'
        )
    ]
    assert "nothing was resumed" in answer.err


def test_resuming_all_without_a_terminal_needs_a_reason_or_a_yes(duepoint, refused, cluster):
    message = refused("resume", "--all")
    assert "4 Schedules, suspended for 4 reasons" in message
    assert "choose with --reason TEXT, or write --yes" in message
    assert cluster.specs == SPECS
    duepoint("resume", "--all", "--yes")
    assert cluster.suspended() == set()
    assert duepoint("resume", "--all").code == 0  # there is nothing left to ask about
