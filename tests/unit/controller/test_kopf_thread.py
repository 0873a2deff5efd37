"""What kopf's thread asks of the API server, and what it hands over."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
from collections.abc import AsyncIterator

import kopf
import pytest
from aiohttp import web

from duepoint import services
from duepoint.clock import SystemClock
from duepoint.controller.observed import Observed
from duepoint.controller.watching import kopfthread
from duepoint.controller.watching.kopfthread import PLURALS
from duepoint.kube import schedules
from duepoint.kube.credentials import Credentials, Login
from tests.support import scriptedapi
from tests.support.terms import a_term
from tests.support.waiting import eventually

VERSION = "41"


class ApiServer:
    """Discovery, lists and watches of our kinds, as kopf asks for them.

    Attributes:
        lists: paths and queries of all lists.
        refused: kinds whose lists are refused.
        changes: what the newest watch of Schedules shows; None = it ends with 410.
    """

    def __init__(self) -> None:
        self.lists: list[tuple[str, dict[str, str]]] = []
        self.watches: list[dict[str, str]] = []
        self.opened = 0
        self.refused: set[str] = set()
        self.changes: asyncio.Queue[str | None] = asyncio.Queue()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        kind = request.path.rpartition("/")[2]
        if kind not in PLURALS:
            return web.json_response(self._discovery(request.path))
        if "watch" in request.query:
            return await self._watch(request, kind)
        self.lists.append((request.path, dict(request.query)))
        if kind in self.refused:
            return web.json_response({"kind": "Status", "code": 403}, status=403)
        return web.json_response({"metadata": {"resourceVersion": VERSION}, "items": []})

    async def _watch(self, request: web.Request, kind: str) -> web.StreamResponse:
        self.watches.append(dict(request.query))
        response = web.StreamResponse()
        await response.prepare(request)
        if kind == schedules.PLURAL:
            self.changes = changes = asyncio.Queue()
            self.opened += 1
            while (change := await changes.get()) is not None:
                await response.write(change.encode() + b"\n")
        else:
            await asyncio.Event().wait()
        await response.write(b'{"type": "ERROR", "object": {"code": 410}}\n')
        return response

    @staticmethod
    def _discovery(path: str) -> dict[str, object]:
        """Our kinds, and two without which kopf does not begin."""
        if path.endswith(schedules.API_VERSION):
            return {"resources": [resource(plural) for plural in PLURALS]}
        if path.endswith("/api/v1"):
            return {"resources": [resource("namespaces")]}
        if path.endswith("apiextensions.k8s.io/v1"):
            return {"resources": [resource("customresourcedefinitions")]}
        ours = group(schedules.GROUP, schedules.VERSION)
        return {"versions": ["v1"], "groups": [ours, group("apiextensions.k8s.io", "v1")]}


def group(name: str, version: str) -> dict[str, object]:
    return {
        "name": name,
        "versions": [{"version": version}],
        "preferredVersion": {"version": version},
    }


def resource(plural: str) -> dict[str, object]:
    verbs = ["list", "watch"]
    names = {"name": plural, "singularName": plural[:-1], "kind": plural[:-1].capitalize()}
    return {**names, "namespaced": True, "verbs": verbs}


class Watching:
    """A thread of kopf beside such a server."""

    def __init__(self, api: ApiServer, namespaces: tuple[str, ...] = ()) -> None:
        self.api = api
        self.health = services.Health()
        self.health.expect("watch")
        self.seen: list[Observed] = []
        self.begun = 0
        self.term = a_term(SystemClock(), health=self.health, namespaces=namespaces)
        self.term.services.resync.request = self._note_listed
        self.term.services.observers = dict.fromkeys(kopfthread.PLURALS, lambda _seen: None)
        self.term.services.observers[schedules.PLURAL] = self.seen.append

    def _note_listed(self) -> None:
        self.begun += 1

    @contextlib.asynccontextmanager
    async def running(self, path: str = "") -> AsyncIterator[None]:
        async with scriptedapi.serving(self.api.answer) as server:
            credentials = Credentials(None, lambda: Login(server=server.url + path))
            running = asyncio.create_task(kopfthread.watch(self.term, credentials=credentials))
            try:
                yield
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)

    async def until_begun(self, times: int = 1) -> None:
        async def has_begun() -> bool:
            return self.begun >= times

        await eventually(has_begun, f"the watch has begun {times} times")

    async def show(self, change: str | None, *, watch: int = 1) -> None:
        """Show a change in the watch of Schedules that was opened as this one."""

        async def is_open() -> bool:
            return self.api.opened >= watch

        await eventually(is_open, f"watch {watch} is open")
        self.api.changes.put_nowait(change)

    async def until_seen(self, *names: str) -> None:
        async def are_seen() -> bool:
            return [one.name for one in self.seen] == [*names]

        await eventually(are_seen, f"{names} are seen")


def event(name: str, fields: str = "{}") -> str:
    names = f'"namespace": "team", "name": "{name}", "uid": "{name}", "resourceVersion": "42"'
    metadata = f'{{{names}, "managedFields": [{{"fieldsV1": {fields}}}]}}'
    return f'{{"type": "ADDED", "object": {{"metadata": {metadata}}}}}'


async def test_kopf_lists_nothing_and_watches_everything_from_the_version_of_its_list():
    watching = Watching(ApiServer())
    async with watching.running():
        await watching.until_begun()
        await watching.show(event("s1"))
        await watching.until_seen("s1")
    assert sorted(path for path, _ in watching.api.lists) == sorted(
        schedules.collection(plural=plural) for plural in PLURALS
    )
    assert {query.get("fieldSelector") for _, query in watching.api.lists} == {"metadata.name=-"}
    assert {query["resourceVersion"] for query in watching.api.watches} == {VERSION}
    assert all("fieldSelector" not in query for query in watching.api.watches)
    assert watching.begun == 1
    assert watching.health.troubles() == {}


async def test_a_watch_that_was_cut_off_begins_again():
    watching = Watching(ApiServer())
    async with watching.running():
        await watching.until_begun()
        await watching.show(None)
        await watching.until_begun(2)


async def test_a_change_nested_so_deeply_that_kopf_cannot_read_it_begins_the_watch_again():
    """The API server repeats the depth of a payload in the metadata."""
    watching = Watching(ApiServer())
    levels = 100_000  # newer versions of Python read some thousand
    fields = '{"f:a":' * levels + "{}" + "}" * levels
    async with watching.running():
        await watching.until_begun()
        await watching.show(event("deep", fields))
        await watching.until_begun(2)
        await watching.show(event("after"), watch=2)
        await watching.until_seen("after")


async def test_a_watch_that_may_not_list_one_kind_has_not_begun():
    watching = Watching(ApiServer())
    watching.api.refused.add(schedules.SET_PLURAL)
    async with watching.running():

        async def is_listed() -> bool:
            return len(watching.api.lists) >= len(PLURALS)

        await eventually(is_listed, "every kind was listed")
        assert watching.health.troubles() != {}
        assert watching.begun == 0


async def test_kopf_runs_as_a_user_without_a_name(monkeypatch):
    def refuse() -> str:
        raise KeyError("getpwuid(): uid not found: 65532")  # as in a container

    monkeypatch.setattr(getpass, "getuser", refuse)
    watching = Watching(ApiServer())
    async with watching.running():
        await watching.until_begun()
    assert watching.health.troubles() == {}


@pytest.mark.parametrize("trouble", [KeyError("uid not found"), RuntimeError("no new thread")])
async def test_where_kopf_cannot_start_an_operator_ends_instead_of_standing_by(
    monkeypatch, trouble
):
    def refuse(**_: object) -> None:
        raise trouble

    monkeypatch.setattr(kopf, "spawn_tasks", refuse)
    with pytest.raises(type(trouble)):
        await kopfthread.rehearse()
