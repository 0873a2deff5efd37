"""The dashboard's pages in a real headless Chromium, over the real API and a real API server."""

from __future__ import annotations

import asyncio
import json
from importlib import resources

import pytest

from tests.support import browser, dashboardscene, givenup
from tests.support.dashboardscene import (
    FAILED,
    FAILING,
    READY,
    SUCCEEDED,
    UPCOMING,
    a_schedule,
    make,
    publish,
    stored,
)

NARROW = {"width": 390, "height": 800}
HOSTILE = "<img src=x onerror=\"document.title='taken'\">"


@pytest.fixture
async def page(tmp_path_factory):
    async with browser.opened(tmp_path_factory.mktemp("browser")) as opened:
        await opened.look()
        yield opened
        assert opened.complaints == []


@pytest.fixture
async def scene(page, duepoint_plane, kube_namespace, own_server, tmp_path):
    async with dashboardscene.open_scene(
        duepoint_plane, kube_namespace, own_server, tmp_path
    ) as opened:
        names = {"report": {}, "held": {"suspend": True, "suspendReason": HOSTILE}, "fresh": {}}
        uids = make(opened, *(a_schedule(name, **spec) for name, spec in names.items()))
        publish(
            opened, "report", conditions=[READY, FAILING], recentRuns=[FAILED, SUCCEEDED],
            nextScheduleTime="2090-03-03T03:30:00Z", lastScheduleTime="2026-03-02T03:30:00Z",
            target="webhook https://a.example", upcomingTimes=UPCOMING,
        )  # fmt: skip
        publish(opened, "held", nextScheduleTime="2090-03-02T03:30:00Z")
        await givenup.give_up(opened.harness, opened.namespace, {"report": uids["report"]})
        yield opened


def address(scene, rest=""):
    return f"http://127.0.0.1:{scene.port}/dashboard/{rest}"


async def enter(page, scene, rest="", *, as_="editor"):
    """Sign in as somebody, and open a page."""
    await page.open(address(scene))
    await page.until("document.querySelector('#token')")
    await page.run("document.querySelector('#token').focus()")
    await page.type(scene.tokens[as_])
    await page.press("Enter")
    await page.until("document.querySelector('nav a')")
    await page.run(f"location.hash = {json.dumps(rest or of(scene, 'schedules'))}")
    await page.until("document.querySelector('main h1')")


def of(scene, name):
    return f"#/{name}?ns={scene.namespace}"


def rows_shown():
    return "[...document.querySelectorAll('.rows .row .name a')].map((each) => each.innerText)"


async def test_a_token_behind_the_number_sign_signs_in_and_leaves_the_address(page, scene):
    await page.open(address(scene, f"#token={scene.tokens['editor']}"))
    await page.until("document.querySelector('nav a')")
    assert await page.run("location.hash") == "#/schedules"


async def test_search_filters_and_order_stand_in_the_address(page, scene):
    await enter(page, scene)
    await page.until(f"{rows_shown()}.length === 3")
    await page.press("/")
    await page.type("http 503")
    await page.until(f"JSON.stringify({rows_shown()}) === '[\"report\"]'")
    assert "q=http+503" in await page.run("location.hash")
    await page.run("document.querySelector('#search').select()")
    await page.type("e")
    await page.until(f"{rows_shown()}.length === 3")
    await page.run("document.querySelector('.chip.suspended').click()")
    await page.until(f"JSON.stringify({rows_shown()}) === '[\"held\"]'")
    await page.open("about:blank")
    await page.open(address(scene, f"{of(scene, 'schedules')}&sort=next"))
    await page.until(f'JSON.stringify({rows_shown()}) === \'["held","report","fresh"]\'')
    await page.click("Next")
    await page.until(f'JSON.stringify({rows_shown()}) === \'["report","held","fresh"]\'')
    assert await page.run("document.querySelector('[aria-sort]').innerText") == "Next"


async def test_the_keyboard_reaches_everything(page, scene):
    await enter(page, scene)
    await page.until(f"{rows_shown()}.length === 3")
    await page.press("/")
    assert await page.run("document.activeElement.id") == "search"
    for _ in range(30):
        await page.press("Tab")
        if await page.run("document.activeElement.closest('.rows') !== null"):
            break
    focused = "document.activeElement.innerText"
    assert await page.run(focused) == "report"
    for key, name in (("ArrowDown", "fresh"), ("End", "held"), ("Home", "report")):
        await page.press(key)
        assert await page.run(focused) == name
    await page.press("Enter")
    await page.until("document.querySelector('main h1')?.innerText === 'report'")
    await page.until("document.querySelector('[data-focus=suspend]')")
    await page.run("document.querySelector('[data-focus=suspend]').focus()")
    await page.press("Enter")
    await page.until("document.querySelector('dialog[open]')")
    await page.press("Escape")
    await page.until("!document.querySelector('dialog')")
    assert await page.run("document.activeElement.dataset.focus") == "suspend"
    assert not stored(scene, "report")["spec"].get("suspend")


async def test_a_schedule_shows_its_slots_and_why_each_ended_so(page, scene):
    await enter(page, scene, f"#/schedule/{scene.namespace}/report")
    await page.until("document.querySelectorAll('table.slots tbody tr').length === 2")
    text = await page.run("document.querySelector('main').innerText")
    for part in ("Rejected: answered 503", "Europe/Berlin", "armed"):
        assert part in text
    assert await page.run("document.querySelectorAll('.upcoming li').length") == 5
    await page.click("what to do")
    assert await page.run("document.querySelector('.advice[open] li').innerText")


async def test_texts_are_shown_and_never_read_as_html(page, scene):
    await enter(page, scene, f"#/schedule/{scene.namespace}/held")
    await page.until("document.querySelector('.standing')?.innerText.includes('onerror')")
    assert await page.run("document.querySelector('main img')") is None
    assert (await page.run("document.title")).startswith(scene.namespace)


async def test_an_editor_triggers_suspends_and_resumes(page, scene):
    await enter(page, scene, f"#/schedule/{scene.namespace}/report")
    await page.click("Trigger")
    await page.until("document.querySelector('dialog[open]')")
    await page.click("Trigger", "dialog button")
    await page.until("document.querySelector('.notice')?.innerText.includes('was created')")
    (run,) = await asyncio.to_thread(dashboardscene.runs, scene)
    assert run["spec"]["scheduleName"] == "report"
    await page.click("Suspend")
    await page.until("document.querySelector('#field-reason')")
    await page.run("document.querySelector('#field-reason').focus()")
    await page.type("moving house")
    await page.press("Enter")
    await page.until("document.querySelector('.standing')?.innerText.includes('moving house')")
    spec = (await asyncio.to_thread(stored, scene, "report"))["spec"]
    assert (spec["suspend"], spec["suspendReason"]) == (True, "moving house")
    await page.click("Resume")
    await page.until("document.querySelector('dialog[open]')")
    await page.click("Resume", "dialog button")
    await page.until("document.querySelector('[data-focus=suspend]')")
    assert (await asyncio.to_thread(stored, scene, "report"))["spec"]["suspend"] is False


async def test_a_viewer_sees_no_button_for_what_they_may_not(page, scene):
    await enter(page, scene, f"#/schedule/{scene.namespace}/report", as_="viewer")
    await page.until("document.querySelectorAll('table.slots tbody tr').length === 2")
    assert await page.run("document.querySelectorAll('main .action').length") == 0


async def test_a_dead_letter_is_replayed(page, scene):
    await enter(page, scene, of(scene, "deadletters"))
    await page.until("document.querySelectorAll('.letters tbody tr').length === 1")
    assert "connection refused" in await page.run("document.querySelector('.letters').innerText")
    await page.run("document.querySelector('.letters tbody input').click()")
    await page.click("Replay 1")
    await page.until("document.querySelector('dialog[open]')?.innerText.includes('1 dead letter')")
    assert len([each async for each in scene.harness.queue.dead_letters.newest()]) == 1
    await page.click("Replay", "dialog button")
    await page.until("document.querySelector('.notice')?.innerText === '1 run again.'")
    await page.until("document.querySelector('main').innerText.includes('no dead letter')")
    assert [each async for each in scene.harness.queue.dead_letters.newest()] == []


async def test_the_queue_and_the_forecast_are_drawn(page, scene):
    with dashboardscene.an_overseer(scene) as overseer:
        await enter(page, scene, "#/queue", as_=overseer)
        await page.until("document.querySelector('.verdict')?.innerText.includes('No worker')")
        await page.until("document.querySelector('.chart polyline')")
        await page.run(f"location.hash = {json.dumps(of(scene, 'forecast'))}")
        await page.until("document.querySelectorAll('.heat tbody tr').length >= 7")
        # Both Schedules that run fire in the same minutes, so one shade is all there is to explain.
        legend = await page.run("document.querySelector('.legend').innerText.split('\\n')")
        assert legend == ["none", "from 2"]
        text = await page.run("document.querySelector('main').innerText")
        assert "3 Schedules, 1 of them suspended: 14 runs" in text
        assert await page.run("document.querySelectorAll('.heat .heat-5').length") == 0
        await page.run(f"location.hash = {json.dumps(of(scene, 'forecast') + '&limit=1')}")
        await page.until("document.querySelectorAll('.heat .heat-5').length >= 7")
        legend = await page.run("document.querySelector('.legend').innerText.split('\\n')")
        assert legend == ["none", "more than 1"]


# -- in trouble ----------------------------------------------------------------------------------


async def test_the_list_opens_with_what_is_in_trouble_and_a_narrow_one_says_why(page, scene):
    await page.look(**NARROW)
    await enter(page, scene)
    await page.until(f'JSON.stringify({rows_shown()}) === \'["report","fresh","held"]\'')
    about = "document.querySelector('.rows .row .about')"
    assert "answered 503" in await page.run(f"{about}.innerText")
    box = await page.run(
        f"JSON.stringify([{about}, {about}.closest('.row')].map((each) => "
        "{ const {top, bottom} = each.getBoundingClientRect(); return [top, bottom]; }))"
    )
    (top, bottom), (row_top, row_bottom) = json.loads(box)
    assert row_top < top < bottom <= row_bottom


# -- everybody -----------------------------------------------------------------------------------

PAGES = ("schedules", "sets", "schedule/{ns}/report", "queue", "forecast", "deadletters")
LOOKS = ({}, {"dark": True}, NARROW, {**NARROW, "dark": True})


async def test_no_page_has_a_barrier_or_is_wider_than_the_screen(page, scene):
    """By axe-core, with the rules of WCAG 2.1 AA and its best practices."""
    axe = (resources.files("axe_core_python") / "axe.min.js").read_text()
    await enter(page, scene)
    for look in LOOKS:
        await page.look(**look)
        for name in PAGES:
            place = name.format(ns=scene.namespace)
            query = "" if "/" in place else f"?ns={scene.namespace}"
            await page.run(f"location.hash = '#/{place}{query}'")
            await page.until("document.querySelector('main h1')")
            await page.until("!/Loading|loading/.test(document.body.innerText)")
            await page.run(axe)
            answer = await page.run("axe.run().then((found) => JSON.stringify(found.violations))")
            found = {
                each["id"]: [node["html"][:200] for node in each["nodes"]][:3]
                for each in json.loads(answer)
            }
            assert found == {}, (name, look)
            width = await page.run("document.documentElement.scrollWidth - innerWidth")
            assert width <= 0, (name, look)
