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

from tests.support import argocd
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
