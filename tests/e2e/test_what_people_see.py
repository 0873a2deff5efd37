"""Where a person looks, the worst that is true stands first."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

from tests.support import argocd, flux
from tests.support.stack import Stack, eventually
from tests.support.waiting import OF_PROCESSES_SECONDS

BIN = Path(sys.executable).parent


def condition(found, kind):
    listed = found.get("status", {}).get("conditions", ())
    return next((one for one in listed if one["type"] == kind), None)


def outcome(found):
    return found.get("status", {}).get("lastRun", {}).get("outcome")


async def command(*arguments: str, code: int = 0, **environment: str) -> str:
    def run() -> str:
        done = subprocess.run(
            arguments,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr

    return await asyncio.to_thread(run)


async def kubectl(stack: Stack, *arguments: str) -> str:
    """The API server's own Table, as kubectl prints it."""
    kubeconfig = str(stack.plane.kubeconfig)
    return await command(
        str(BIN / "kubectl"), "--kubeconfig", kubeconfig, "-n", stack.namespace, *arguments
    )


async def peek(stack: Stack, name: str, *, code: int = 0) -> str:
    arguments = ("queue", "peek", "-n", stack.namespace, "-s", name)
    return await command(
        str(BIN / "duepoint"), *arguments, code=code, DUEPOINT_REDIS_URL=stack.redis.url
    )


async def events(stack: Stack, reason: str) -> list[str]:
    body = await stack.api.request(
        "GET", f"/apis/events.k8s.io/v1/namespaces/{stack.namespace}/events"
    )
    return [one["note"] for one in json.loads(body)["items"] if one["reason"] == reason]


async def wait_for_event(stack: Stack, reason: str, text: str) -> None:
    async def told() -> bool:
        return any(text in note for note in await events(stack, reason))

    await eventually(told, f"an Event {reason} says {text!r}")


async def test_a_closed_port_is_told_as_such_wherever_a_person_looks(stack: Stack) -> None:
    await stack.running()
    refused = "Connection refused"
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # nobody listens there
        url = f"http://127.0.0.1:{held.getsockname()[1]}/hook?token=canary"
        retry = {"initialBackoff": "1s", "maxBackoff": "2s"}
        await stack.apply(
            "call", {"schedule": "@every 1s", "webhook": {"url": url, "retry": retry}}
        )
        found = await stack.wait_for_schedule(
            "call", lambda found: outcome(found) == "Retrying", "is tried again"
        )
        assert refused in found["status"]["lastRun"]["message"]
        assert "next try at 2" in found["status"]["lastRun"]["message"]
        row = await kubectl(stack, "get", "schedules", "call", "-o", "wide")
        assert "Retrying" in row
        assert refused in row

        found = await stack.wait_for_schedule(
            "call", lambda found: condition(found, "CircuitOpen"), "waits for its receiver"
        )
        told = condition(found, "CircuitOpen")["message"]
        assert re.search(r": [1-9][0-9]+ failures in a row, the last: cannot be reached: ", told)
        assert refused in told
        await wait_for_event(stack, "CircuitOpen", refused)
        found = await stack.wait_for_schedule(
            "call",
            lambda found: condition(found, "Ready")["message"].startswith("CircuitOpen: "),
            "says so beside Ready",
        )
        assert condition(found, "Ready")["status"] == "True"
        row = await kubectl(stack, "get", "schedules", "call", "-o", "wide")
        assert refused in row
        assert "the next slot is in the queue" not in row
        health = argocd.health(found)
        assert health["status"] == "Healthy"
        assert refused in health["message"]

        async def peeked() -> bool:
            return refused in await peek(stack, "call")

        what = "queue peek names the cause"
        await eventually(peeked, what, pause_seconds=OF_PROCESSES_SECONDS)
        for shown in (json.dumps(found["status"]), json.dumps(await events(stack, "CircuitOpen"))):
            assert "canary" not in shown


async def test_a_service_that_does_not_exist_is_what_the_message_column_says(stack: Stack) -> None:
    await stack.running()
    webhook = {"service": {"name": "nowhere", "port": 80}}
    await stack.apply("call", {"schedule": "@every 1s", "webhook": webhook})
    found = await stack.wait_for_schedule(
        "call", lambda found: outcome(found) == "Retrying", "is tried again"
    )
    assert "nowhere" in condition(found, "Ready")["message"]
    row = await kubectl(stack, "get", "schedules", "call", "-o", "wide")
    assert f"{stack.namespace}/nowhere" in row
    assert "the next slot is in the queue" not in row


async def test_what_is_stalled_does_not_fire(stack: Stack) -> None:
    await stack.running()
    webhook = {
        "url": f"https://127.0.0.1:{stack.receiver_port}/",
        "tls": {"insecureSkipVerify": True},
    }
    await stack.apply("call", {"schedule": "@every 1s", "webhook": webhook})
    found = await stack.wait_for_condition("call", "Stalled")
    assert "insecureSkipVerify: is not allowed here" in condition(found, "Stalled")["message"]
    assert found["status"]["observedGeneration"] == 1
    assert (argocd.health(found)["status"], flux.status(found)) == ("Degraded", "failed")
    assert "it is not armed" in await peek(stack, "call")
    await wait_for_event(stack, "InvalidSchedule", "insecureSkipVerify")
    before = (await stack.schedule("call"))["status"]["runs"]
    await asyncio.sleep(4)  # four slots of its former timing
    assert (await stack.schedule("call"))["status"]["runs"] == before
    await stack.apply("call", {"schedule": "@every 1s", "webhook": stack.webhook()})
    await stack.wait_for_deliveries(1, "call")


async def test_a_missing_secret_is_an_event_and_the_dashboards_show_it(stack: Stack) -> None:
    await stack.running()
    webhook = stack.webhook(signing={"secretKeyRefs": [{"name": "hook", "key": "a"}]})
    await stack.apply("call", {"schedule": "@daily", "webhook": webhook})
    found = await stack.wait_for_schedule(
        "call",
        lambda found: (condition(found, "Reconciling") or {}).get("reason") == "SecretForbidden",
        "told of rights",
    )
    assert found["status"]["observedGeneration"] == 1
    await wait_for_event(stack, "SecretForbidden", "kubectl create rolebinding")
    health = argocd.health(found)
    assert health["status"] == "Progressing"
    assert health["message"].startswith("SecretForbidden: ")
    assert flux.status(found) == "inProgress"
    row = await kubectl(stack, "get", "schedules", "call", "-o", "wide")
    assert "spec.webhook.signing.secretKeyRefs[0]" in row


async def test_the_operators_own_metrics_say_that_redis_answers(stack: Stack) -> None:
    operator, worker = await stack.running()
    for process in (operator, worker):

        async def says_so(process=process) -> bool:
            return "duepoint_redis_up 1.0" in await process.metrics()

        await eventually(says_so, f"the {process.role} says that Redis answers")


async def test_a_redis_that_takes_no_writes_is_what_ready_says_of_an_edit(stack: Stack) -> None:
    """READONLY after a failover that left a replica, MISCONF and the like: reads go on."""
    await stack.running()
    await stack.apply("call", {"schedule": "@every 2s", "webhook": stack.webhook()})
    await stack.wait_for_condition("call", "Ready")
    refusals = {
        "READONLY": (("REPLICAOF", "127.0.0.1", "1"), ("REPLICAOF", "NO", "ONE")),
        "NOREPLICAS": (
            ("CONFIG", "SET", "min-replicas-to-write", "1"),
            ("CONFIG", "SET", "min-replicas-to-write", "0"),
        ),
    }
    with stack.redis.client() as client:
        for number, (code, (begin, end)) in enumerate(refusals.items(), start=2):
            client.execute_command(*begin)
            made = await stack.apply(
                "call", {"schedule": f"@every {number}m", "webhook": stack.webhook()}
            )
            generation = made["metadata"]["generation"]

            def says_why(found, code=code, generation=generation):
                ready = condition(found, "Ready")
                is_current = ready["observedGeneration"] == generation
                return is_current and ready["status"] == "Unknown" and code in ready["message"]

            await stack.wait_for_schedule("call", says_why, f"names {code} in Ready")
            client.execute_command(*end)
            await stack.wait_until_ready("call", generation)
