"""kopf's watch of Schedules: from a version on, and past its workers."""

from __future__ import annotations

import asyncio
import contextvars

import kopf._cogs.clients.api as kopf_api
import kopf._cogs.clients.watching as kopf_watching
import pytest

from duepoint.controller.watching import shortwatch, tuning


class Resource:
    def __init__(self, plural: str) -> None:
        self.plural = plural

    def get_url(self, *, namespace, params):
        return f"/{namespace}/{self.plural}?limit={params['limit']}"


@pytest.fixture
def opened(monkeypatch):
    """(since, namespace) of each watch that kopf's own function was asked for."""
    asked = []

    async def open_watch(*, since=None, namespace, **_):
        asked.append((since, namespace))
        yield {"type": "ADDED", "object": {"metadata": {"name": "one", "resourceVersion": "18"}}}

    async def get(url, **_):
        asked.append(url)
        return {"metadata": {"resourceVersion": "17"}}

    monkeypatch.setattr(shortwatch, "_open_watch", open_watch)
    monkeypatch.setattr(kopf_api, "get", get)
    monkeypatch.setattr(kopf_watching, "watch_objs", open_watch)
    return asked


async def _events(*, plural="schedules", is_compared=True, since=None):
    begun, taken = [], []

    async def watch():
        shortwatch.use(
            shortwatch.Short(
                is_compared=lambda: is_compared,
                on_begin=lambda: begun.append(True),
                take=lambda _: None,
                take_unread=lambda kind, body: taken.append((kind, body["metadata"]["name"])),
            )
        )
        watched = kopf_watching.continuous_watch if since is None else kopf_watching.watch_objs
        given = {"since": since} if since is not None else {}
        waiter = asyncio.get_running_loop().create_future()
        found = []
        async for event in watched(
            settings=tuning.settings(),
            resource=Resource(plural),
            namespace="team",
            operator_pause_waiter=waiter,
            **given,
        ):
            found.append(event)
            if taken or (isinstance(event, dict) and event["type"] != "BOOKMARK"):
                break
        return found

    found = await asyncio.create_task(watch(), context=contextvars.copy_context())
    return found, len(begun), taken


async def test_what_has_been_compared_is_watched_from_now_on(opened):
    found, begun, taken = await _events()
    assert opened == ["/team/schedules?limit=1", ("17", "team")]
    assert begun == 1
    assert taken == [("ADDED", "one")]
    assert found[0] is kopf_watching.Bookmark.LISTED
    places = [event["object"]["metadata"]["resourceVersion"] for event in found[1:]]
    assert (places, {event["type"] for event in found[1:]}) == (["17", "18"], {"BOOKMARK"})


@pytest.mark.parametrize("given", [{"is_compared": False}, {"plural": "scheduleruns"}])
async def test_everything_else_is_listed_by_kopf(opened, given):
    found, begun, taken = await _events(**given)
    assert opened == [(None, "team")]
    assert (begun, taken) == (0, [])
    assert found[-1]["type"] is None


@pytest.mark.parametrize("is_compared", [True, False])
async def test_a_watch_that_goes_on_begins_where_it_was(opened, is_compared):
    found, begun, taken = await _events(since="20", is_compared=is_compared)
    assert opened == [("20", "team")]
    assert (begun, taken) == (0, [("ADDED", "one")])
    assert found[-1]["object"]["metadata"]["resourceVersion"] == "18"


async def test_a_change_that_cannot_be_read_ends_nothing_and_asks_for_a_comparison(opened):
    begun = []

    def unreadable(kind, body):
        raise OverflowError(f"{kind} of {body}")

    shortwatch.use(
        shortwatch.Short(
            is_compared=lambda: True,
            on_begin=lambda: begun.append(True),
            take=lambda _: None,
            take_unread=unreadable,
        )
    )
    found = [
        event
        async for event in kopf_watching.watch_objs(
            settings=tuning.settings(), resource=Resource("schedules"), namespace="team", since="20"
        )
    ]
    assert [event["object"]["metadata"]["resourceVersion"] for event in found] == ["18"]
    assert begun == [True]


async def test_once_kopfs_own_list_is_over_changes_are_handed_over(opened, monkeypatch):
    async def open_watch(**_):
        for kind, version in (("ADDED", "1"), ("BOOKMARK", "2"), ("ADDED", "3")):
            yield {
                "type": kind,
                "object": {"metadata": {"name": "one", "resourceVersion": version}},
            }

    monkeypatch.setattr(shortwatch, "_open_watch", open_watch)
    taken = []
    shortwatch.use(
        shortwatch.Short(
            is_compared=lambda: False,
            on_begin=lambda: None,
            take=lambda _: None,
            take_unread=lambda _, body: taken.append(body["metadata"]["resourceVersion"]),
        )
    )
    found = [
        event["type"]
        async for event in kopf_watching.watch_objs(
            settings=tuning.settings(), resource=Resource("schedules"), namespace="team"
        )
    ]
    assert found == ["ADDED", "BOOKMARK", "BOOKMARK"]
    assert taken == ["3"]


async def test_changes_of_scheduleruns_stay_with_kopf(opened):
    found, _, taken = await _events(plural="scheduleruns", since="20")
    assert taken == []
    assert found[-1]["type"] == "ADDED"
