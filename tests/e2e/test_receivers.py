"""A receiver that fails, or is gone, as a user sees it: conditions, Events, metrics, no secrets."""

from __future__ import annotations

import secrets

from tests.e2e.test_secrets import everywhere, redis_content
from tests.support import receiver
from tests.support.stack import eventually


def condition(found, kind):
    listed = found.get("status", {}).get("conditions", ())
    return next((one for one in listed if one["type"] == kind), None)


def shows(kind):
    return lambda found: condition(found, kind) is not None


def lacks(kind):
    return lambda found: condition(found, kind) is None


def skips(count):
    return lambda found: found["status"]["runs"].get("skipped", 0) >= count


async def test_a_receiver_that_fails_is_left_alone_until_it_answers(stack):
    canary = f"canary-{secrets.token_hex(6)}"

    async def failing(_, writer):
        await receiver.status(503, f"no: {canary}".encode())(None, writer)

    usual, stack.answer = stack.answer, failing
    operator, worker = await stack.running()
    second = stack.worker("worker-2")
    await second.wait_until_ready()
    webhook = stack.webhook(
        path=f"/hook?token={canary}",
        headers=[{"name": "X-Canary", "value": canary}],
        retry={"initialBackoff": "1s", "maxBackoff": "2s"},
    )
    for number in range(3):
        await stack.apply(f"call-{number}", {"schedule": "@every 1s", "webhook": webhook})
    found = await stack.wait_for_schedule("call-0", shows("CircuitOpen"), "waits for its receiver")
    assert condition(found, "CircuitOpen")["reason"] == "CircuitOpen"
    assert condition(found, "Ready")["status"] == "True"

    async def counted() -> bool:
        return "duepoint_circuits_open 1.0" in await operator.metrics()

    await eventually(counted, "the operator counts one open circuit")
    places = await everywhere(stack, operator, worker)
    assert b"CircuitOpen" in places["events"]
    circuits = [line for line in redis_content(stack).split(b"\n") if b"127.0.0.1" in line]
    assert circuits  # the receiver is known there
    assert not any(canary.encode() in line for line in circuits if b"hook" not in line)
    for place in ("log of the operator", "log of the worker", "metrics of the worker"):
        assert canary.encode() not in places[place], place

    stack.answer = usual
    await stack.wait_for_deliveries(1, "call-0")
    await stack.wait_for_schedule("call-0", lacks("CircuitOpen"), "does not wait any more")


async def test_a_receiver_that_is_gone_is_not_asked_again_until_an_edit(stack):
    usual, stack.answer = stack.answer, receiver.status(410)
    await stack.running()
    await stack.apply("call", {"schedule": "@every 1s", "webhook": stack.webhook()})
    found = await stack.wait_for_schedule("call", shows("EndpointGone"), "is told of the 410")
    assert condition(found, "LastRunSucceeded")["status"] == "False"
    assert condition(found, "Ready")["status"] == "True"
    await stack.wait_for_schedule("call", skips(3), "skips its slots")
    asked = len(stack.delivered("call"))  # a slow worker may have begun the next slot by then
    found = await stack.wait_for_schedule("call", skips(6), "skips more of them")
    assert len(stack.delivered("call")) == asked == found["status"]["runs"]["failed"]
    assert condition(found, "EndpointGone")["status"] == "True"
    stack.answer = usual
    await stack.apply("call", {"schedule": "@every 1s", "webhook": stack.webhook("/elsewhere")})
    await stack.wait_for_deliveries(1, "call")
    await stack.wait_for_schedule("call", lacks("EndpointGone"), "goes on")
