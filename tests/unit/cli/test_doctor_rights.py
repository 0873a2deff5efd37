"""Which rights ``duepoint doctor`` asks for, and where: reviews as an API server answers them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from aiohttp import web

from duepoint import settings
from tests.support import background, scriptedapi
from tests.unit.cli.test_words import write_kubeconfig

EVERYWHERE = ""


class Rights:
    """Where who asks may do everything; the rest of the cluster is empty."""

    def __init__(self) -> None:
        self.granted: set[str] = set()
        self.variables: dict[str, str] | None = None

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.method == "POST":
            spec = json.loads(await request.read())["spec"]
            allowed = spec["resourceAttributes"]["namespace"] in self.granted
            return web.json_response({"status": {"allowed": allowed}}, status=201)
        if request.path == "/version":
            return web.json_response({})
        if request.path.endswith("/schedules"):
            return web.json_response({"items": []})
        if request.path.endswith("/deployments/duepoint-worker") and self.variables is not None:
            env = [{"name": name, "value": value} for name, value in self.variables.items()]
            pod = {"containers": [{"name": "worker", "env": env}]}
            return web.json_response({"spec": {"template": {"spec": pod}}})
        return web.json_response({"message": "not found"}, status=404)


@pytest.fixture
def rights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rights]:
    found = Rights()

    @contextlib.asynccontextmanager
    async def serving() -> AsyncIterator[str]:
        async with scriptedapi.serving(found.answer) as server:
            yield server.url

    with background.living(serving) as (url, _):
        write_kubeconfig(tmp_path / "config", url)
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
        yield found


@pytest.fixture
def checks(duepoint):
    def found(*words: str) -> dict[str, tuple[str, str]]:
        rows = map(json.loads, duepoint("doctor", "-o", "json", *words).out.splitlines())
        return {row["check"]: (row["state"], row["found"]) for row in rows}

    return found


def test_in_every_namespace_rights_for_the_cluster_are_asked_for(rights, checks):
    rights.granted = {EVERYWHERE}
    expected = ("ok", "in every namespace: you may do all that this needs")
    assert checks("-A")["your rights"] == expected
    rights.granted = {"shop"}
    state, text = checks("-A")["your rights"]
    assert state == "warning"
    assert text.startswith("in every namespace: you may not list schedules, ")


def test_the_mode_of_egress_that_is_found_and_advised_is_one_that_a_worker_takes(
    rights, duepoint, tmp_path
):
    def found() -> dict[str, str]:
        rows = map(json.loads, duepoint("doctor", "-o", "json").out.splitlines())
        return next(row for row in rows if row["check"] == "egress")

    key = tmp_path / "key"
    key.write_bytes(b"k" * 32)

    def read(mode: str) -> str:
        values = {"redis_url": "redis://a", "blob_key_file": str(key), "egress_mode": mode}
        return settings.read(settings.WorkerSettings, {}, values).egress_mode

    rights.variables = {}
    usual = found()["found"].removeprefix("mode ").partition(";")[0]
    assert read(usual) == usual
    rights.variables = {"DUEPOINT_EGRESS_MODE": "open"}
    assert found()["state"] == "warning"
    advised = set(found()["do"].partition("set egress.mode to ")[2].split(" or "))
    assert advised
    for mode in advised:
        assert read(mode) == mode
