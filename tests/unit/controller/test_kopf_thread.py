"""What kopf's thread hands over, and that it gives our loop its turns."""

from __future__ import annotations

import asyncio
import getpass
from typing import cast

import kopf
import pytest

from duepoint import services
from duepoint.clock import SystemClock
from duepoint.controller import observed, term
from duepoint.controller.watching import kopfthread
from duepoint.controller.watching.kopfsetup import ObservedChange
from duepoint.delayqueue import messages
from duepoint.delayqueue.delayqueue import DelayQueue
from duepoint.kube import port, schedules
from duepoint.kube.credentials import LoadedCredentials, Login
from tests.support import scriptedapi
from tests.support.waiting import eventually


def change(number: int) -> ObservedChange:
    seen = observed.of_name("team", f"s{number}", f"uid-{number}")
    return ObservedChange(schedules.PLURAL, seen, is_listed=True)


async def test_a_list_leaves_our_loop_its_turns_and_a_single_change_waits_for_none():
    taken: list[ObservedChange] = []
    pauses: list[float] = []
    life = kopfthread.KopfLife(asyncio.get_running_loop(), taken.append, pauses.append)
    life.deliver(change(0))
    assert pauses == []
    listed = [change(number) for number in range(1, 1000)]
    await asyncio.to_thread(lambda: [life.deliver(one) for one in listed])
    assert taken == [change(0), *listed]
    # kopf handles some 2,500 changes a second: 20 ms of them at the most without a pause.
    assert len(pauses) >= 1000 // 50
    assert all(seconds > 0 for seconds in pauses)


async def test_what_a_life_hands_over_after_its_end_is_dropped():
    taken: list[ObservedChange] = []
    life = kopfthread.KopfLife(asyncio.get_running_loop(), taken.append)
    life.deliver(change(0))
    life.is_over = True
    life.deliver(change(1))
    turn = asyncio.get_running_loop().create_future()
    life.call(turn.set_result, None)  # comes behind what was handed over
    await turn
    assert taken == []


async def test_kopf_runs_as_a_user_without_a_name(monkeypatch):
    def refuse() -> str:
        raise KeyError("getpwuid(): uid not found: 65532")  # as in a container

    monkeypatch.setattr(getpass, "getuser", refuse)
    health = services.Health()
    health.expect("watch")
    context = term.TermContext(
        api=cast("port.Api", None),
        queue=cast("DelayQueue", None),
        epoch=messages.Epoch(1),
        clock=SystemClock(),
        health=health,
    )
    nothing = scriptedapi.answers(200, {"versions": [], "groups": [], "resources": []})
    async with scriptedapi.serving(nothing) as server:
        thread = kopfthread.KopfThread(
            context,
            credentials=LoadedCredentials(lambda: Login(server=server.url)),
            observe=lambda _seen: None,
            observe_run=lambda _seen: None,
            observe_set=lambda _seen: None,
        )

        async def has_begun() -> bool:
            return health.troubles() != {"watch": "starting"}

        running = asyncio.create_task(thread.run())
        await eventually(has_begun, "a life has begun, or ended")
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert health.troubles() == {}


@pytest.mark.parametrize("trouble", [KeyError("uid not found"), RuntimeError("no new thread")])
async def test_where_kopf_cannot_start_an_operator_ends_instead_of_standing_by(
    monkeypatch, trouble
):
    def refuse(**_: object) -> None:
        raise trouble

    monkeypatch.setattr(kopf, "spawn_tasks", refuse)
    with pytest.raises(type(trouble)):
        await kopfthread.rehearse()


async def test_a_rehearsal_of_kopf_needs_no_server_and_says_nothing(caplog):
    await kopfthread.rehearse()
    assert caplog.messages == []
