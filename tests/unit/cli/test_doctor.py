"""What ``duepoint doctor`` says of egress: reviews as an API server answers them."""

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


class Cluster:
    """A cluster that has at most the worker's Deployment."""

    def __init__(self) -> None:
        self.variables: dict[str, str] | None = None

    async def answer(self, request: web.Request) -> web.StreamResponse:
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
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    found = Cluster()

    @contextlib.asynccontextmanager
    async def serving() -> AsyncIterator[str]:
        async with scriptedapi.serving(found.answer) as server:
            yield server.url

    with background.living(serving) as (url, _):
        write_kubeconfig(tmp_path / "config", url)
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
        yield found


def test_the_mode_of_egress_that_is_found_and_advised_is_one_that_a_worker_takes(
    cluster, duepoint, tmp_path
):
    def found() -> dict[str, str]:
        rows = map(json.loads, duepoint("doctor", "-o", "json").out.splitlines())
        return next(row for row in rows if row["check"] == "egress")

    key = tmp_path / "key"
    key.write_bytes(b"k" * 32)

    def read(mode: str) -> str:
        values = {"redis_url": "redis://a", "blob_key_file": str(key), "egress_mode": mode}
        return settings.read(settings.WorkerSettings, {}, values).egress_mode

    cluster.variables = {}
    usual = found()["found"].removeprefix("mode ").partition(";")[0]
    assert read(usual) == usual
    cluster.variables = {"DUEPOINT_EGRESS_MODE": "open"}
    assert found()["state"] == "warning"
    advised = set(found()["do"].partition("set egress.mode to ")[2].split(" or "))
    assert advised
    for mode in advised:
        assert read(mode) == mode
