"""Requests to the API server are cut off at each fault point; the next one gets its own answer."""

from __future__ import annotations

import asyncio
import contextlib

import msgspec
import pytest
from aiohttp import web

from duepoint.faults import FaultPoint
from duepoint.kube import api, credentials, jobbuilder, jobs, schedules
from tests.fakes.fakekubernetes import FakeKubernetes
from tests.support import faultplan
from tests.support.builders import JOB_TEMPLATE
from tests.support.scriptedapi import serving
from tests.support.waiting import LONGEST_SECONDS

REQUESTS = (
    FaultPoint.BEFORE_API_REQUEST,
    FaultPoint.AFTER_API_RESPONSE,
    FaultPoint.BEFORE_HTTP_CONNECTION,
    FaultPoint.BEFORE_HTTP_REQUEST,
    FaultPoint.AFTER_HTTP_RESPONSE,
)
WATCHES = (FaultPoint.AFTER_WATCH_OPENED, FaultPoint.AFTER_WATCH_EVENT)
POINTS = (
    *REQUESTS,
    *WATCHES,
    FaultPoint.AFTER_LIST_PAGE,
    FaultPoint.AFTER_TOKEN_READ,
    FaultPoint.BEFORE_JOB_COMPARED,
)
PAGES = 3


async def echo(request: web.Request) -> web.StreamResponse:
    """What was asked for; of a list pages, of a watch one event after the version asked for."""
    version = int(request.query.get("resourceVersion") or 0) + 1
    item = {"metadata": {"name": f"at-{version}", "resourceVersion": str(version)}}
    if "watch" in request.query:
        event = msgspec.json.encode({"type": "ADDED", "object": item}) + b"\n"
        return web.Response(body=event)
    if "limit" in request.query:
        page = int(request.query.get("continue") or 0)
        following = str(page + 1) if page + 1 < PAGES else ""
        metadata = {"resourceVersion": "7", "continue": following}
        named = [{"metadata": {"name": f"page-{page}"}}]
        return web.json_response({"metadata": metadata, "items": named})
    return web.json_response({"asked": request.path})


def a_session(url: str) -> api.ApiSession:
    access = credentials.Credentials(credentials.Login(server=url, token="secret"))
    return api.ApiSession(access, component="test")


@pytest.mark.parametrize("point", REQUESTS)
async def test_a_cancelled_request_leaves_no_answer_to_the_next(point):
    with faultplan.FaultPlan(point, faultplan.CANCEL).installed() as plan:
        async with serving(echo) as server, a_session(server.url) as session:
            with pytest.raises(asyncio.CancelledError):
                await asyncio.create_task(session.request("GET", "/first"))
            for number in range(5):
                answer = await session.request("GET", f"/{number}")
                assert msgspec.json.decode(answer) == {"asked": f"/{number}"}
        assert plan.hits[point] > 1


@pytest.mark.parametrize("point", WATCHES)
async def test_a_watch_that_is_cut_off_goes_on_where_it_was(point):
    found: list[str] = []
    with faultplan.FaultPlan(point, OSError("injected")).installed() as plan:
        async with (
            serving(echo) as server,
            a_session(server.url) as session,
            asyncio.timeout(LONGEST_SECONDS),
        ):
            async for change in session.watch("/watched", schedules.Schedule, "4"):
                found.append(change.item.metadata.name)
                if len(found) == 3:
                    break
        assert plan.hits[point] > 1
    assert found == ["at-5", "at-6", "at-7"]


async def test_a_list_that_is_cut_off_begins_again():
    point = FaultPoint.AFTER_LIST_PAGE

    async def listed(session: api.ApiSession) -> list[str]:
        pages = session.list_pages("/listed", schedules.Schedule, limit=1)
        return [item.metadata.name async for page in pages for item in page.items]

    with faultplan.FaultPlan(point, faultplan.CANCEL).installed() as plan:
        async with serving(echo) as server, a_session(server.url) as session:
            with pytest.raises(asyncio.CancelledError):
                await asyncio.create_task(listed(session))
            assert await listed(session) == [f"page-{number}" for number in range(PAGES)]
        assert plan.hits[point] == PAGES + 1


async def test_a_token_that_was_read_in_vain_is_read_again(tmp_path):
    point, token = FaultPoint.AFTER_TOKEN_READ, tmp_path / "token"
    token.write_text("old")
    access = credentials.of_token_file(credentials.Login(server="https://api.example.com"), token)
    token.write_text("new")
    with faultplan.FaultPlan(point, faultplan.CANCEL).installed() as plan:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.create_task(access.renew())
        assert await access.renew()
        assert plan.hits[point] == 2
    assert (await access.login()).token == "new"


async def test_a_job_that_was_not_compared_is_compared_by_the_next_attempt():
    point, server = FaultPoint.BEFORE_JOB_COMPARED, FakeKubernetes()
    facts = jobbuilder.SlotFacts(
        namespace="reports",
        name="nightly",
        uid="6f1c9a34-0000-4000-8000-000000000001",
        slot_us=1_772_366_400_000_000,
        previous_us=None,
        trigger="Schedule",
        time_zone="Etc/UTC",
    )
    job = jobbuilder.job_for(JOB_TEMPLATE, facts)
    first = await jobs.create(server, "reports", job)
    assert isinstance(first, jobs.Created)
    with faultplan.FaultPlan(point, faultplan.CANCEL).installed() as plan:
        with pytest.raises(asyncio.CancelledError):
            await asyncio.create_task(jobs.create(server, "reports", job))
        again = await jobs.create(server, "reports", job)
        assert plan.hits[point] == 2
    assert again == jobs.Created(first.uid, is_new=False)
    assert len(server.all_stored("jobs")) == 1
