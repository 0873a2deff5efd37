"""Requests with a key whose first attempt was lost, on a real server."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from duepoint.delayqueue import apirequests, delayqueue
from duepoint.httpapi import access, idempotency
from duepoint.httpapi.problems import OperationProblem
from duepoint.net.httpserver import HttpResponse
from tests.fakes.fakeclock import FakeClock
from tests.support import queueing

_REPEATS = 5


class ReadTogether(apirequests.ApiRequests):
    """Repeats have all read what stands there before the first of them goes on."""

    barrier: asyncio.Barrier | None = None

    async def begin(self, *request, **named):
        found = await super().begin(*request, **named)
        if self.barrier is not None:
            await self.barrier.wait()
        return found


async def test_repeats_at_once_of_a_lost_request_are_carried_out_once(valkey, key_prefix):
    queue = delayqueue.connect(valkey.url, blob_key=queueing.BLOB_KEY, prefix=key_prefix)
    await queue.start()
    clock = FakeClock()
    requests = ReadTogether(queue.index)
    runs: list[str] = []

    async def lost(_):
        raise asyncio.CancelledError

    async def carried_out(call):
        runs.append(call.chosen["run"])
        return HttpResponse(202, (), b"{}")

    def asked(do, run):
        call = SimpleNamespace(
            shared=SimpleNamespace(queue=SimpleNamespace(api_requests=requests)),
            owned=SimpleNamespace(owner="set"), caller=access.Caller(access.User("a")),
            request=SimpleNamespace(headers={}), namespace="shop", id="member", body=b"",
            operation=SimpleNamespace(name="triggerMember", handle=do),
            chosen={"run": run, "now_us": clock.now_us()},
        )  # fmt: skip
        return idempotency.once(call, "key")

    with pytest.raises(asyncio.CancelledError):
        await asked(lost, "first")
    await clock.advance(11)
    requests.barrier = asyncio.Barrier(_REPEATS)
    answers = await asyncio.gather(
        *(asked(carried_out, f"repeat {n}") for n in range(_REPEATS)), return_exceptions=True
    )
    assert runs == ["first"]
    refused = [one for one in answers if isinstance(one, OperationProblem)]
    assert [one.code for one in refused] == ["IdempotencyInProgress"] * (_REPEATS - 1)
    requests.barrier = None
    assert (await asked(carried_out, "later")).status == 202
    assert runs == ["first"]
    await queue.close()
