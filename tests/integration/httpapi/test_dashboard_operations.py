"""The dashboard's operations on a real API server: by users who may, and by users who may not."""

from __future__ import annotations

import datetime as dt

import pytest

from duepoint.httpapi import operations
from duepoint.httpapi.dashboard import files, objects
from tests.support import dashboardscene, givenup
from tests.support.dashboardscene import (
    FAILED,
    FAILING,
    READY,
    UPCOMING,
    a_schedule,
    make,
    publish,
    stored,
)

API = dashboardscene.API
JSON = {"Content-Type": "application/json"}


@pytest.fixture
async def scene(duepoint_plane, kube_namespace, own_server, tmp_path):
    async with dashboardscene.open_scene(
        duepoint_plane, kube_namespace, own_server, tmp_path
    ) as opened:
        yield opened


@pytest.fixture
def everywhere(scene):
    with dashboardscene.an_overseer(scene) as account:
        yield account


def here(scene, rest=""):
    return f"/v1/namespaces/{scene.namespace}{rest}"


# -- who may do what -----------------------------------------------------------------------------

#: Every operation as a request, and whether the chart's role view suffices for it.
REQUESTS = {
    "listSchedules": ("GET", "/v1/schedules?namespace={ns}", None, True),
    "listSets": ("GET", "/v1/schedulesets?namespace={ns}", None, True),
    "getSchedule": ("GET", "/v1/namespaces/{ns}/schedules/report", None, True),
    "triggerSchedule": ("POST", "/v1/namespaces/{ns}/schedules/report/trigger", {}, False),
    "suspendSchedule": ("POST", "/v1/namespaces/{ns}/schedules/report/suspend", {}, False),
    "resumeSchedule": ("POST", "/v1/namespaces/{ns}/schedules/report/resume", {}, False),
    "forecastLoad": ("GET", "/v1/forecast?namespace={ns}", None, True),
    "getQueue": ("GET", "/v1/queue?namespace={ns}", None, True),
    "listScheduleLetters": ("GET", "/v1/deadletters?namespace={ns}", None, True),
}


async def ask(scene, name, as_):
    method, path, body, _ = REQUESTS[name]
    return await scene.ask(method, path.format(ns=scene.namespace), body, as_=as_)


def test_every_operation_is_among_the_requests():
    # For everybody; judged for each letter.
    others = {"whoAmI", "replayScheduleLetters"}
    assert set(REQUESTS) | others == {operation.name for operation in operations.PAGES}


async def test_viewers_read_editors_change_and_strangers_learn_nothing(scene):
    make(scene, a_schedule("report"))
    for name, (*_, is_for_viewers) in REQUESTS.items():
        stranger = await ask(scene, name, "stranger")
        assert (stranger.status, stranger.code) == (403, "Forbidden"), (name, stranger)
        assert "a.example" not in stranger.body.decode()
        viewer = await ask(scene, name, "viewer")
        if is_for_viewers:
            assert viewer.status == 200, (name, viewer)
        else:
            assert (viewer.status, viewer.code) == (403, "Forbidden"), (name, viewer)
        editor = await ask(scene, name, "editor")
        assert editor.status in (200, 201), (name, editor)
        nobody = await ask(scene, name, "")
        assert (nobody.status, nobody.code) == (401, "Unauthenticated"), name


async def test_what_is_of_all_namespaces_is_for_those_who_may_list_them_there(scene, everywhere):
    make(scene, a_schedule("report"))
    for path in ("/v1/schedules", "/v1/queue", "/v1/forecast?days=1"):
        refused = await scene.ask("GET", path)
        assert (refused.status, refused.code) == (403, "Forbidden"), path
        assert (await scene.ask("GET", path, as_=everywhere)).status == 200, path
    assert (await scene.ask("GET", "/v1/schedulesets", as_=everywhere)).code == "Forbidden"
    listed = (await scene.ask("GET", "/v1/schedules?limit=500", as_=everywhere)).json["items"]
    assert (scene.namespace, "report") in {(row["namespace"], row["name"]) for row in listed}
    whoami = (await scene.ask("GET", "/v1/whoami", as_=everywhere)).json
    assert whoami["mayListAll"] is True
    assert whoami["namespaces"] is None  # that is another right
    assert whoami["user"] == f"system:serviceaccount:{scene.namespace}:overseer"
    assert (await scene.ask("GET", "/v1/whoami")).json["mayListAll"] is False


async def test_a_page_of_another_site_changes_nothing(scene):
    make(scene, a_schedule("report"))
    for origin, status in (("cross-site", 403), ("same-site", 403), ("same-origin", 200)):
        answer = await scene.ask(
            "POST", here(scene, "/schedules/report/suspend"), {"reason": origin},
            headers={"Sec-Fetch-Site": origin},
        )  # fmt: skip
        assert answer.status == status, (origin, answer)
    spec = stored(scene, "report")["spec"]
    assert spec["suspendReason"] == "same-origin"


async def test_no_answer_is_given_to_a_page_of_another_site(scene):
    """A browser hands an answer to such a page only where the answer allows its origin."""
    make(scene, a_schedule("report"))
    origin = {"Origin": "https://elsewhere.example"}
    for method, path in (
        ("GET", "/schedules"), ("GET", "/schedules/report"),
        ("OPTIONS", "/schedules/report"), ("POST", "/schedules/report/suspend"),
    ):  # fmt: skip
        wish = {**origin, "Access-Control-Request-Method": "POST"}
        answer = await scene.ask(method, here(scene, path), headers=wish)
        assert not [name for name in answer.headers if name.startswith("access-control-")]


# -- reading -------------------------------------------------------------------------------------


async def test_a_row_and_a_page_show_the_status_and_what_to_do(scene):
    make(scene, a_schedule("report"), a_schedule("held", suspend=True), a_schedule("fresh"))
    publish(
        scene, "report", recentRuns=[FAILED], conditions=[READY, FAILING],
        nextScheduleTime="2026-03-03T03:30:00Z", lastScheduleTime="2026-03-02T03:30:00Z",
        target="webhook https://a.example", upcomingTimes=UPCOMING,
    )  # fmt: skip
    publish(scene, "held")
    page = (await scene.ask("GET", f"/v1/schedules?namespace={scene.namespace}")).json
    rows = {row["name"]: row for row in page["items"]}
    assert rows["report"] == {
        "namespace": scene.namespace, "name": "report", "schedule": "30 4 * * *",
        "timeZone": "Europe/Berlin", "next": "2026-03-03T03:30:00Z",
        "last": "2026-03-02T03:30:00Z", "result": "Failed", "target": "webhook https://a.example",
        "health": "failing", "reason": "Rejected", "message": "answered 503",
    }  # fmt: skip
    assert rows["held"]["health"] == "suspended"
    assert (rows["fresh"]["health"], rows["fresh"]["reason"]) == ("waiting", "NotObserved")
    answer = await scene.ask("GET", here(scene, "/schedules/report"))
    assert answer.headers["cache-control"] == "no-store"
    known = answer.json
    (slot,) = known["slots"]
    assert (slot["outcome"], slot["reason"], slot["attempts"]) == ("Failed", "Rejected", 3)
    assert known["upcoming"] == UPCOMING
    assert known["advice"]["Rejected"]
    assert known["may"] == {"suspend": True, "trigger": True, "replay": True}
    assert (await scene.ask("GET", here(scene, "/schedules/report"), as_="viewer")).json["may"] == {
        "suspend": False,
        "trigger": False,
        "replay": False,
    }
    held = (await scene.ask("GET", here(scene, "/schedules/held"))).json
    assert (held["spec"]["suspend"], held["upcoming"]) == (True, [])
    assert (await scene.ask("GET", here(scene, "/schedules/missing"))).status == 404


async def test_the_queue_shows_a_namespace_its_own_and_the_whole_to_overseers(scene, everywhere):
    uid = make(scene, a_schedule("report"))["report"]
    await givenup.give_up(scene.harness, scene.namespace, {"report": uid})
    own = (await scene.ask("GET", f"/v1/queue?namespace={scene.namespace}")).json
    assert set(own) == {"points", "due", "claimed", "lagSeconds"}
    assert own["points"] == 1
    whole = (await scene.ask("GET", "/v1/queue", as_=everywhere)).json
    assert (whole["deadLetters"], whole["shards"], whole["state"]) == (1, 2, "stable")
    assert whole["points"] == 1


# -- changing ------------------------------------------------------------------------------------


async def test_a_trigger_makes_a_schedulerun_in_the_callers_name(scene):
    make(scene, a_schedule("report"))
    path = here(scene, "/schedules/report/trigger")
    made = await scene.ask("POST", path, {"payload": {"day": 1}})
    assert made.status == 201
    run = scene.plane.admin().get(
        f"{API}/namespaces/{scene.namespace}/scheduleruns/{made.json['run']}"
    )
    assert run["spec"]["scheduleName"] == "report"
    assert run["spec"]["trigger"] == {"payload": {"day": 1}}
    assert run["metadata"]["managedFields"][0]["manager"] == objects.MANAGER
    assert (await scene.ask("POST", path)).status == 201  # a body is not needed
    for body in (b"[]", b'{"paylod":1}', b"{"):
        refused = await scene.ask("POST", path, body, headers=JSON)
        assert refused.status == 400, (body, refused)
    absent = await scene.ask("POST", here(scene, "/schedules/a..b/trigger"), {})
    assert absent.status in (404, 422)


async def test_a_schedule_is_suspended_with_a_reason_and_resumes(scene):
    make(scene, a_schedule("report"))
    until = "2090-12-24T18:00:00Z"
    path = here(scene, "/schedules/report")
    held = await scene.ask("POST", f"{path}/suspend", {"reason": "moving", "until": until})
    assert held.json == {"suspend": True}
    found = stored(scene, "report")
    fields = ("suspend", "suspendReason", "suspendUntil")
    assert [found["spec"].get(name) for name in fields] == [True, "moving", until]
    managers = {each["manager"] for each in found["metadata"]["managedFields"]}
    assert objects.MANAGER in managers
    assert (await scene.ask("POST", f"{path}/resume")).json == {"suspend": False}
    found = stored(scene, "report")
    assert [found["spec"].get(name) for name in fields] == [False, None, None]
    for body in ({"until": "tomorrow"}, {"reason": "x" * 257}, {"untl": until}):
        assert (await scene.ask("POST", f"{path}/suspend", body)).status == 400, body
    gone = await scene.ask("POST", here(scene, "/schedules/missing/suspend"), {})
    assert (gone.status, gone.code) == (404, "NotFound")


async def test_dead_letters_are_listed_and_replayed_by_those_who_may_run(scene):
    names = [f"report-{number}" for number in range(5)]
    uids = make(scene, *(a_schedule(name) for name in names))
    await givenup.give_up(scene.harness, scene.namespace, uids)
    await givenup.give_up(
        scene.harness, "elsewhere", {"other": "6f1c9a34-0000-4000-8000-1" + "0" * 11}
    )
    path, listed = here(scene, "/deadletters"), f"/v1/deadletters?namespace={scene.namespace}"
    found, cursor = [], ""
    while True:
        page = (await scene.ask("GET", f"{listed}&limit=2&cursor={cursor}", as_="viewer")).json
        found += page["items"]
        cursor = page["next"]
        if not cursor:
            break
    assert sorted(each["schedule"] for each in found) == names
    dead = [dt.datetime.fromisoformat(each["deadTime"]) for each in found]
    assert dead == sorted(dead, reverse=True)
    assert {each["message"] for each in found} == {"connection refused"}
    ids = [each["id"] for each in found]
    refused = await scene.ask("POST", f"{path}:replay", {"ids": ids[:1]}, as_="viewer")
    assert refused.json["results"] == {ids[0]: "forbidden"}
    guessed = await scene.ask(
        "POST", f"{path}:replay", {"ids": [ids[0], "1.0.1-1"]}, as_="stranger"
    )
    assert guessed.json["results"] == {ids[0]: "gone", "1.0.1-1": "gone"}
    done = (await scene.ask("POST", f"{path}:replay", {"ids": [*ids[:3], "1.0.1-1", "x"]})).json
    assert done["replayed"] == 3
    assert done["results"]["1.0.1-1"] == done["results"]["x"] == "gone"
    left = (await scene.ask("GET", listed)).json["items"]
    assert {each["id"] for each in left} == set(ids[3:])
    assert (await scene.ask("GET", f"{listed}&cursor=abc")).code == "InvalidParameter"
    assert (await scene.ask("POST", f"{path}:replay", {"ids": []})).code == "InvalidField"


# -- the files -----------------------------------------------------------------------------------


async def test_pages_come_with_a_strict_policy_and_a_tag(scene):
    index = await scene.ask("GET", "/dashboard/", as_="")
    assert index.status == 200
    assert index.headers["content-security-policy"] == files.POLICY
    assert index.headers["content-type"] == "text/html; charset=utf-8"
    assert index.headers["x-content-type-options"] == "nosniff"
    tag = index.headers["etag"]
    for header in (tag, f'"other", W/{tag}'):
        same = await scene.ask("GET", "/dashboard/", as_="", headers={"If-None-Match": header})
        assert (same.status, same.body) == (304, b"")
    script = await scene.ask("GET", "/dashboard/app.js", as_="")
    assert script.headers["content-type"] == "text/javascript; charset=utf-8"
    head = await scene.ask("HEAD", "/dashboard/app.js", as_="")
    assert (head.status, head.body) == (200, b"")
    assert head.headers["content-length"] == str(len(script.body))
    for path in ("/", "/dashboard"):
        moved = await scene.ask("GET", path, as_="")
        assert (moved.status, moved.headers["location"]) == (302, "dashboard/")
    for path in ("/dashboard/missing.js", "/dashboard/../app.js", "/dashboard/%2e%2e/app.js"):
        assert (await scene.ask("GET", path, as_="")).code == "NotFound", path
    assert (await scene.ask("POST", "/dashboard/", b"", as_="")).status == 405
    document = (await scene.ask("GET", "/openapi.json", as_="")).json
    assert "/v1/whoami" in document["paths"]
