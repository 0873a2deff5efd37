"""ScheduleRuns on the real servers: by hand and over a range, through kills and losses."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import sys
from typing import Any

import msgspec

from duepoint.kube import port, schedules
from tests.e2e.test_jobs import template
from tests.support import receiver
from tests.support import stack as stacks
from tests.support.waiting import LONGEST_SECONDS

#: Slots of every Schedule here lie in the past, so that only ScheduleRuns run them.
HOURLY = {"schedule": "0 * * * *", "suspend": True, "startTime": "2026-01-01T00:00:00Z"}
DAY = {"from": "2026-02-01T00:00:00Z", "to": "2026-02-02T00:00:00Z"}
SLOTS = 24


def runs_path(stack, name: str = "") -> str:
    path = schedules.collection(stack.namespace, plural=schedules.RUN_PLURAL)
    return f"{path}/{name}" if name else path


async def run(stack, name: str, schedule: str, metadata: dict | None = None, **spec) -> dict:
    body = {
        "apiVersion": "duepoint.dev/v1alpha1",
        "kind": "ScheduleRun",
        "metadata": {"name": name, **(metadata or {})},
        "spec": {"scheduleName": schedule, **spec},
    }
    return json.loads(await stack.api.request("POST", runs_path(stack), body))


async def the_run(stack, name: str) -> dict:
    return json.loads(await stack.api.request("GET", runs_path(stack, name)))


def condition(found: dict, kind: str) -> dict:
    return next((c for c in found["status"].get("conditions", ()) if c["type"] == kind), {})


def counts(found: dict) -> tuple[int, ...]:
    told = found["status"].get("runs", {})
    return tuple(
        told.get(each, 0) for each in ("planned", "started", "succeeded", "failed", "skipped")
    )


async def wait_for(stack, name: str, holds, what: str) -> dict:
    """The ScheduleRun once it is so; told by a watch."""
    try:
        async with asyncio.timeout(LONGEST_SECONDS):
            found = await the_run(stack, name)
            version = found["metadata"]["resourceVersion"]
            if found["status"] and holds(found):
                return found
            query = {"fieldSelector": f"metadata.name={name}"}
            async for change in stack.api.watch(runs_path(stack), _Run, version, query=query):
                if holds({"status": change.item.status}):
                    return await the_run(stack, name)
    except TimeoutError:
        last = (await the_run(stack, name)).get("status")
        raise TimeoutError(f"{name}: {what} in vain; {last}") from None
    raise AssertionError("a watch goes on for ever")


class _Run(msgspec.Struct, frozen=True):
    metadata: port.Metadata
    status: dict[str, Any] = msgspec.field(default_factory=dict)


async def wait_until_complete(stack, name: str) -> dict:
    def ended(found: dict) -> bool:
        return any(
            condition(found, kind).get("status") == "True" for kind in ("Complete", "Failed")
        )

    return await wait_for(stack, name, ended, "ended")


async def cli(stack, *arguments: str) -> tuple[int, str, str]:
    """The command as a process, with an administrator's kubeconfig."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "duepoint", *arguments),
        *("--kubeconfig", str(stack.plane.kubeconfig), "-n", stack.namespace),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), 120)
    return process.returncode or 0, out.decode(), err.decode()


# -- by hand -----------------------------------------------------------------------------------


async def test_a_run_by_hand_has_a_policy_of_its_own(stack):
    """Beside the active Job of a Schedule that forbids it, and in that Job's place."""
    await stack.running()
    spec = {**HOURLY, "concurrencyPolicy": "Forbid", "jobTemplate": template(suspend=True)}
    await stack.apply("held", spec)
    await stack.wait_until_ready("held")
    await run(stack, "first", "held", trigger={})
    (first,) = await stack.wait_for_job("held")
    await run(stack, "beside", "held", trigger={"concurrencyPolicy": "Allow"})
    both = await stack.wait_for_job("held", 2)
    assert first["metadata"]["uid"] in [job["metadata"]["uid"] for job in both]
    await run(stack, "instead", "held", trigger={"concurrencyPolicy": "Replace"})
    former = {job["metadata"]["uid"] for job in both}

    async def is_replaced() -> bool:
        left = {job["metadata"]["uid"] for job in await stack.jobs("held")}
        return bool(left) and not left & former

    await stacks.eventually(is_replaced, "both Jobs were deleted for the newer one")


async def test_a_schedule_that_never_runs_by_itself_is_ready_and_runs_when_it_is_triggered(stack):
    await stack.running()
    await stack.apply("hand", {"schedule": "@never", "jobTemplate": template()})
    await stack.wait_until_ready("hand")
    ready = (await stack.schedule("hand"))["status"]["conditions"][0]
    assert (ready["type"], ready["reason"]) == ("Ready", "ByHand")
    assert "runs only when it is triggered" in ready["message"]
    code, out, err = await cli(stack, "trigger", "hand", "--wait", "-o", "json")
    assert (code, err) == (0, "")
    assert json.loads(out)["state"] == "Complete"
    _, out, _ = await cli(stack, "why", "hand")
    assert "runs only when it is triggered" in out


async def test_the_commands_make_wait_for_and_tell_the_end(stack):
    await stack.running()
    await stack.apply("good", {**HOURLY, "jobTemplate": template()})
    await stack.apply("bad", {**HOURLY, "jobTemplate": template(outcome="fail")})
    for name in ("good", "bad"):
        await stack.wait_until_ready(name)
    code, out, err = await cli(stack, "trigger", "good", "--wait", "-o", "json")
    assert (code, err) == (0, "")
    assert json.loads(out)["state"] == "Complete"
    code, out, _ = await cli(stack, "trigger", "bad", "--wait")
    assert code == 1
    assert "Failed: 1 of 1 run failed" in out
    code, out, _ = await cli(
        stack, "backfill", "good", "--from", "2026-02-01", "--to", "2026-02-01T06:00", "--yes"
    )
    assert code == 0
    assert "6 of 6 runs succeeded" in out
    code, _, err = await cli(stack, "trigger", "goood")
    assert code == 2
    assert 'did you mean "good"?' in err


async def test_a_stream_and_a_webhook_are_triggered_with_slot_and_payload_of_ones_own(stack):
    await stack.running()
    await stack.apply("ticks", {**HOURLY, "payload": {"of": 1}, "stream": {"name": "ticks"}})
    await stack.apply("hook", {**HOURLY, "payload": {"of": 1}, "webhook": stack.webhook()})
    for name in ("ticks", "hook"):
        await stack.wait_until_ready(name)
        own = ("--at", "2026-02-01T05:00:00Z", "--payload", '{"of": 2}')
        code, out, err = await cli(stack, "trigger", name, *own, "--wait", "-o", "json")
        assert (code, err) == (0, "")
        assert json.loads(out)["state"] == "Complete"
    with stack.redis.client() as client:
        ((_, fields),) = client.xrange(f"dp:stream:{stack.namespace}:ticks")
    slot = dt.datetime(2026, 2, 1, 5, tzinfo=dt.UTC)
    assert int(fields[b"slot"]) == int(slot.timestamp())
    assert json.loads(fields[b"payload"]) == {"of": 2}
    (sent,) = stack.delivered("hook")
    assert sent.slot == "2026-02-01T05:00:00Z"
    assert sent.body["data"]["payload"] == {"of": 2}
    for name in ("ticks", "hook"):
        found = await stack.wait_for_schedule(
            name, lambda one: one["status"].get("runs", {}).get("succeeded") == 1, "counted"
        )
        assert found["status"]["lastRun"]["trigger"] == "Manual"
        assert "settledThrough" in found["status"]


async def test_a_request_that_stays_open_is_shown_as_running_by_run_and_schedule(stack):
    await stack.running()
    answered = asyncio.Event()

    async def late(request, writer) -> None:
        await answered.wait()
        await receiver.status(204)(request, writer)

    stack.answer = late
    await stack.apply("call", {**HOURLY, "webhook": stack.webhook()})
    await stack.wait_until_ready("call")
    await run(stack, "once", "call", trigger={})
    found = await wait_for(stack, "once", lambda one: counts(one)[1] == 1, "started")
    assert counts(found) == (1, 1, 0, 0, 0)
    assert found["status"]["active"][0]["startTime"]
    schedule = await stack.wait_for_schedule(
        "call", lambda one: one["status"].get("runs", {}).get("started") == 1, "started"
    )
    assert schedule["status"]["lastRun"]["outcome"] == "Running"
    answered.set()
    found = await wait_until_complete(stack, "once")
    assert counts(found) == (1, 1, 1, 0, 0)
    await stack.wait_for_schedule(
        "call", lambda one: one["status"]["runs"]["succeeded"] == 1, "succeeded"
    )


# -- a range -----------------------------------------------------------------------------------


async def test_a_backfill_of_jobs_runs_each_slot_once_although_operators_are_killed(stack):
    operator, _ = await stack.running()
    spec = {**HOURLY, "jobTemplate": template(seconds=0.3), "successfulJobsHistoryLimit": 2}
    await stack.apply("task", spec)
    await stack.wait_until_ready("task")
    seen: set[str] = set()
    watching = asyncio.create_task(names_of_jobs(stack, seen))
    await run(stack, "all", "task", backfill={**DAY, "maxParallel": 3})
    for ended in (2, 13):
        await wait_for(
            stack, "all", lambda one, n=ended: sum(counts(one)[2:]) >= n, f"{ended} ends"
        )
        await operator.kill()
        operator.start()
    found = await wait_until_complete(stack, "all")
    assert counts(found) == (SLOTS, SLOTS, SLOTS, 0, 0)
    assert condition(found, "Complete")["status"] == "True"
    assert await so_many(seen, SLOTS)
    watching.cancel()


async def names_of_jobs(stack, seen: set[str]) -> None:
    """Every Job that is ever made: a second one of the same slot has another uid."""
    path = stacks.JOBS.format(ns=stack.namespace)
    listed = json.loads(await stack.api.request("GET", path))
    version = listed["metadata"]["resourceVersion"]
    seen.update(item["metadata"]["uid"] for item in listed["items"])  # the first may exist by now
    async for change in stack.api.watch(path, _Job, version):
        if change.type == "ADDED":
            seen.add(change.item.metadata.uid)


class _Job(msgspec.Struct, frozen=True):
    metadata: port.Metadata


async def so_many(seen: set[str], count: int) -> bool:
    """Whether it is so many once what the watch still has to say was heard."""

    async def heard() -> bool:
        return len(seen) >= count

    await stacks.eventually(heard, f"the watch tells of {count} Jobs")
    return len(seen) == count
