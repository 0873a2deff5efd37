"""A session against an API server on its worst days."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from duepoint.kube import api, credentials, errors, schedules, transport
from tests.support.scriptedapi import Server, answers, hangs, hangs_up, serving, streams
from tests.support.waiting import LONGEST_SECONDS

PATH = "/apis/batch/v1/namespaces/a/jobs"
SCHEDULES = schedules.collection()
LEASE = "/apis/coordination.k8s.io/v1/namespaces/a/leases/b"


def a_session(server: Server, access: credentials.Credentials | None = None) -> api.ApiSession:
    login = credentials.Login(server=server.url, token="secret")
    access = access or credentials.Credentials(login)
    return api.ApiSession(access, component="test")


def event(kind: str, name: str, version: int) -> bytes:
    item = {"metadata": {"name": name, "resourceVersion": str(version)}}
    return json.dumps({"type": kind, "object": item}).encode() + b"\n"


ERROR_410 = (
    json.dumps({"type": "ERROR", "object": {"code": 410, "reason": "Expired"}}).encode() + b"\n"
)


@pytest.mark.parametrize("trouble", [hangs, hangs_up], ids=["hangs", "hangs up"])
async def test_a_request_without_an_answer_may_have_been_accepted(trouble: Any):
    async with serving(answers(200), trouble) as server, a_session(server) as session:
        await session.request("GET", PATH)  # now there is a connection
        with pytest.raises(errors.Unavailable) as failed:
            await session.request("POST", PATH, {}, timeout_seconds=0.2)
        assert failed.value.sent


async def test_a_throttled_request_waits_as_told_and_is_repeated():
    async with (
        serving(answers(429, Retry_After="1"), answers(200, {"ok": 1})) as server,
        a_session(server) as session,
    ):
        began = time.monotonic()
        assert await session.request("POST", PATH, {}) == b'{"ok": 1}'
        assert time.monotonic() - began >= 1.0
        assert len(server.requests) == 2


async def test_the_lease_is_never_held_back():
    async with (
        serving(answers(429, Retry_After="30"), answers(200)) as server,
        a_session(server) as session,
    ):
        with pytest.raises(errors.Throttled):
            await session.request("GET", PATH, timeout_seconds=1)
        await session.request("GET", LEASE, timeout_seconds=1)
        assert len(server.requests) == 2


async def test_a_rotated_token_is_read_again_after_a_401(tmp_path: Path):
    token = tmp_path / "token"
    token.write_text("old\n")

    async def check(request: Any) -> Any:
        right = request.headers["Authorization"] == "Bearer new"
        return await answers(200 if right else 401)(request)

    async with serving(check) as server:
        access = credentials.of_token_file(credentials.Login(server=server.url), token)
        async with a_session(server, access) as session:
            with pytest.raises(errors.Unauthorized):
                await session.request("GET", PATH)
            assert len(server.requests) == 1  # the same token again would help nobody
            token.write_text("new")
            await session.request("GET", PATH)
            assert len(server.requests) == 3


@pytest.mark.parametrize("is_by_proxy", [False, True], ids=["directly", "by a proxy"])
async def test_a_page_that_is_too_large_is_not_read_and_asked_for_again_with_fewer_objects(
    monkeypatch: pytest.MonkeyPatch, is_by_proxy: bool
):
    monkeypatch.setattr(api, "MOST_PAGE_BYTES", 100_000)
    names = [f"large-{number}" for number in range(60)]
    sent: list[int] = []

    async def listed(request: web.Request) -> web.StreamResponse:
        first, limit = int(request.query.get("continue") or 0), int(request.query["limit"])
        items = [
            {"metadata": {"name": name, "labels": {"l": "x" * 10_000}}}
            for name in names[first : first + limit]
        ]
        sent.append(len(items))
        following = "" if first + limit >= len(names) else str(first + limit)
        body = {"metadata": {"continue": following}, "items": items}
        return web.json_response(body)

    async with serving(listed) as server:
        login = credentials.Login(
            server="http://api.invalid" if is_by_proxy else server.url,
            proxy=server.url if is_by_proxy else None,
        )
        async with a_session(server, credentials.Credentials(login)) as session:
            pages = session.list_pages(SCHEDULES, schedules.Schedule)
            read = [item.metadata.name async for page in pages for item in page.items]
    assert read == names
    assert sent[:3] == [60, 60, 7]  # 500 and 62 objects were asked for before
    assert max(sent[2:]) * 10_000 <= 100_000


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        (answers(410, {"reason": "Expired"}), errors.Gone),
        (answers(403, {"message": "no"}), errors.Forbidden),
        (answers(500), errors.Unavailable),
        (answers(200, b"<html>login</html>"), errors.Unavailable),
        (answers(200, b'{"metadata":{},"items":[{"metada'), errors.Unavailable),
    ],
    ids=["token too old", "forbidden", "broken", "a login page", "cut off"],
)
async def test_a_list_that_breaks_off_never_looks_complete(second: Any, expected: type):
    first = answers(200, {"metadata": {"continue": "c"}, "items": []})
    async with serving(first, second) as server, a_session(server) as session:
        with pytest.raises(expected):
            async for _ in session.list_pages(SCHEDULES, schedules.Schedule):
                pass


async def some_changes(session: api.ApiSession, count: int) -> list[tuple[str, str]]:
    changes = session.watch(SCHEDULES, schedules.Schedule, "5")
    async with asyncio.timeout(LONGEST_SECONDS), contextlib.aclosing(changes):
        seen = [await anext(changes) for _ in range(count)]
    return [(change.type.value, change.item.metadata.name) for change in seen]


async def test_a_closed_watch_goes_on_where_it_was_without_listing_again(monkeypatch):
    monkeypatch.setattr(api, "REOPEN_SECONDS", (0.06, 0.1))
    async with (
        serving(
            streams(event("ADDED", "a", 6), event("BOOKMARK", "", 9)),
            streams(event("MODIFIED", "a", 12), then=hangs_up),
            answers(503),
            streams(event("DELETED", "a", 15), then=hangs),
        ) as server,
        a_session(server) as session,
    ):
        assert await some_changes(session, 3) == [
            ("ADDED", "a"),
            ("MODIFIED", "a"),
            ("DELETED", "a"),
        ]
        asked = [request.query["resourceVersion"] for request in server.requests]
        assert asked == ["5", "9", "12", "12"]


async def test_a_watch_that_falls_silent_is_opened_again(monkeypatch: pytest.MonkeyPatch):
    assert transport.WATCH_SILENCE_SECONDS >= 70
    monkeypatch.setattr(transport, "WATCH_SILENCE_SECONDS", 0.2)
    async with (
        serving(streams(then=hangs), streams(event("ADDED", "a", 6), then=hangs)) as server,
        a_session(server) as session,
    ):
        assert await some_changes(session, 1) == [("ADDED", "a")]
        assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        (streams(ERROR_410), errors.Gone),
        (streams(event("BOOKMARK", "", 4), then=hangs), errors.Gone),
        (answers(410, {"reason": "Expired"}), errors.Gone),
        (answers(403, {"message": "no"}), errors.Forbidden),
        (answers(404), errors.NotFound),
        (answers(401), errors.Unauthorized),
    ],
    ids=["410 in the stream", "a store from a backup", "410", "403", "404", "401"],
)
async def test_a_watch_ends_where_going_on_would_not_help(script: Any, expected: type):
    async with serving(script) as server, a_session(server) as session:
        with pytest.raises(expected):
            await some_changes(session, 1)
        assert len(server.requests) == 1
