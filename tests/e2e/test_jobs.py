"""What becomes of a Schedule's Jobs on a real API server: ends, names, quotas, rights, history."""

from __future__ import annotations

import copy
import json
import time

from duepoint.kube import errors as kube_errors
from duepoint.kube import times
from tests.e2e.test_crashes import in_seconds
from tests.e2e.test_firing import slot_us
from tests.support import stack as stacks
from tests.support.builders import JOB_TEMPLATE
from tests.support.controlplane import DURATION, OUTCOME

EVENTS = "/apis/events.k8s.io/v1/namespaces/{ns}/events"


def template(*, seconds: float = 0, outcome: str = "", **spec) -> dict:
    """A Job's template; its simulated container runs so long and ends so."""
    made = copy.deepcopy(JOB_TEMPLATE)
    annotations = {DURATION: f"{seconds}s"} if seconds else {}
    if outcome:
        annotations[OUTCOME] = outcome
    made["spec"]["template"]["metadata"] = {"annotations": annotations}
    made["spec"] |= {"backoffLimit": 0, **spec}
    return made


def endless() -> dict:
    """A Job that is suspended, so nobody ever runs it."""
    return template(suspend=True)


def runs(found: dict) -> dict:
    return found["status"].get("runs", {})


def condition(found: dict, kind: str) -> dict:
    return next((c for c in found["status"].get("conditions", ()) if c["type"] == kind), {})


async def events_of(stack, name: str) -> list[dict]:
    answer = json.loads(await stack.api.request("GET", EVENTS.format(ns=stack.namespace)))
    return [one for one in answer["items"] if one["regarding"]["name"] == name]


async def wait_for_event(stack, name: str, reason: str) -> dict:
    async def told() -> bool:
        return any(one["reason"] == reason for one in await events_of(stack, name))

    await stacks.eventually(told, f"the Event {reason} of {name}")
    return next(one for one in await events_of(stack, name) if one["reason"] == reason)


def jobs_path(stack, name: str = "") -> str:
    return stacks.JOBS.format(ns=stack.namespace) + (f"/{name}" if name else "")


def seconds_of(text: str) -> int:
    return slot_us(text) // 1_000_000


# -- maxRuns -----------------------------------------------------------------------------------


async def test_max_runs_are_counted_over_a_killed_worker_and_an_emptied_redis(stack):
    _, worker = await stack.running()
    spec = {"schedule": "@every 1s", "maxRuns": 30, "jobTemplate": template()}
    await stack.apply("few", spec | {"successfulJobsHistoryLimit": 40})
    await stack.wait_for_job("few", 1)
    await worker.kill()
    killed, before = times.time_text(int(time.time()) * 1_000_000), len(await stack.jobs("few"))
    again = stack.worker("again")

    def is_taken_over(found):
        """Whether the slots that the killed worker held have been settled by the other one."""
        oldest = found["status"].get("openSlots", {}).get("oldest", "9")
        return runs(found).get("started", 0) > before and oldest > killed

    await stack.wait_for_schedule("few", is_taken_over, "the claim of the killed is taken over")
    await again.drain()  # from here on nothing starts, however long the status takes
    started = len(await stack.jobs("few"))
    assert started < 30
    await stack.wait_for_schedule(
        "few", lambda found: runs(found).get("started") == started, "the status tells every run"
    )
    with stack.redis.client() as client:
        client.flushall()
    stack.worker("last")
    found = await stack.wait_for_schedule(
        "few", lambda found: condition(found, "Ready").get("reason") == "Completed", "Completed"
    )
    assert "nextScheduleTime" not in found["status"]
    assert "upcomingTimes" not in found["status"]
    # What is not there cannot be waited for: two slots more pass, by the runs of another Schedule.
    await stack.apply("beside", {"schedule": "@every 2s", "webhook": stack.webhook()})
    await stack.wait_for_deliveries(3, "beside")
    assert len(await stack.jobs("few")) == 30
    assert runs(await stack.schedule("few"))["started"] == 30
    await stack.apply("few", spec | {"maxRuns": 31, "successfulJobsHistoryLimit": 40})
    await stack.wait_for_job("few", 31)


# -- ends --------------------------------------------------------------------------------------


# -- names -------------------------------------------------------------------------------------


async def test_history_goes_on_under_a_quota_that_it_alone_can_relieve(stack):
    """One Job may exist: each slot waits until the history has taken the one before."""
    await stack.running()
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "one-job"},
        "spec": {"hard": {"count/jobs.batch": "1"}},
    }
    quotas = f"/api/v1/namespaces/{stack.namespace}/resourcequotas"
    await stack.api.request("POST", quotas, quota)

    async def is_counted() -> bool:
        listed = json.loads(await stack.api.request("GET", quotas))
        return bool(listed["items"][0].get("status", {}).get("hard"))

    await stacks.eventually(is_counted, "the quota is in force")
    await stack.apply(
        "tight",
        {
            "schedule": "@every 2s",
            "successfulJobsHistoryLimit": 0,
            "jobTemplate": template(seconds=3),
        },
    )
    found = await stack.wait_for_schedule(
        "tight", lambda found: runs(found).get("succeeded", 0) >= 3, "three successes"
    )
    assert runs(found)["missed"] == 0
    event = await wait_for_event(stack, "tight", "Forbidden")
    assert "one-job" in event["note"]
    told = [one for one in await events_of(stack, "tight") if one["reason"] == "Forbidden"]
    assert len(told) == 1


async def test_rights_that_are_lost_and_regained_delay_a_job_and_lose_none(stack):
    await stack.running()
    await stack.apply("warm", {"schedule": "@every 1s", "jobTemplate": template(), "maxRuns": 1})
    await stack.wait_for_job("warm", 1)
    roles = stacks.PATHS["Role"].format(ns=stack.namespace, name="")
    listed = json.loads(await stack.api.request("GET", roles.rstrip("/")))
    role = next(
        one
        for one in listed["items"]
        if one["metadata"]["labels"].get(stacks.COMPONENT) == "worker"
        and any("jobs" in rule["resources"] for rule in one["rules"])
    )
    taken = [rule for rule in role["rules"] if "jobs" not in rule["resources"]]
    path = roles + role["metadata"]["name"]
    merge = {"content_type": "application/merge-patch+json"}
    await stack.api.request("PATCH", path, {"rules": taken}, **merge)
    await stack.apply("later", {"schedule": in_seconds(2), "jobTemplate": template()})

    async def is_refused() -> bool:
        return "Forbidden" in (stack.folder / "worker.log").read_text()

    await stacks.eventually(is_refused, "a Job is refused")
    assert await stack.jobs("later") == []
    await stack.api.request("PATCH", path, {"rules": role["rules"]}, **merge)
    found = await stack.wait_for_schedule(
        "later", lambda found: runs(found).get("succeeded") == 1, "its success"
    )
    assert runs(found)["missed"] == 0
    assert len(await stack.jobs("later")) == 1


# -- templates ---------------------------------------------------------------------------------


def pod(**fields) -> dict:
    made = template()
    made["spec"]["template"]["spec"] |= fields
    return made


REFUSED = {
    "pod-field": (
        pod(restartPolice="Never"),
        "spec.jobTemplate.spec.template.spec.restartPolice: is not a field of a Job",
    ),
    "mode": (
        template(completionMode="Odd"),
        "spec.jobTemplate.spec.completionMode: Unsupported value",
    ),
    "label": (
        {**template(), "metadata": {"labels": {"a b": "c"}}},
        "spec.jobTemplate.metadata.labels: Invalid value",
    ),
    "n" * 52: (
        template(completionMode="Indexed", completions=1),
        'metadata.name: Invalid value: "<name>-<slot>": will not able to create pod',
    ),
}


async def test_a_template_that_the_api_server_refuses_is_stalled_with_its_words(stack):
    await stack.operator().wait_until_ready()
    for name, (wrong, _) in REFUSED.items():
        await stack.apply(name, {"schedule": "@every 1h", "jobTemplate": wrong})
    for name, (_, told) in REFUSED.items():
        found = await stack.wait_for_condition(name, "Stalled")
        stalled = condition(found, "Stalled")
        assert stalled["reason"] == "InvalidJobTemplate"
        assert stalled["message"].startswith(told), name
        assert condition(found, "Ready")["status"] == "False"
    # An Indexed Job has less room in its name: shorter, the same template will do.
    indexed, _ = REFUSED["n" * 52]
    await stack.apply("short", {"schedule": "@every 1h", "jobTemplate": indexed})
    await stack.wait_until_ready("short")
    await _refuse_what_is_too_large(stack)
    assert await stack.jobs() == []


async def _refuse_what_is_too_large(stack):
    large = template()
    large["metadata"] = {"annotations": {f"a{n}": "x" * 1000 for n in range(300)}}
    await stack.apply("large", {"schedule": "@every 1h", "jobTemplate": large})
    found = await stack.wait_for_condition("large", "Stalled")
    assert condition(found, "Stalled")["reason"] == "InvalidJobTemplate"
    assert "262144" in condition(found, "Stalled")["message"]
    deep: dict = {}
    for _ in range(400):
        deep = {"d": deep}
    nested = template()
    nested["spec"]["template"]["spec"]["deep"] = deep
    try:
        await stack.apply("deep", {"schedule": "@every 1h", "jobTemplate": nested})
    except kube_errors.ApiError:
        return  # the API server's own limit
    found = await stack.wait_for_condition("deep", "Stalled")
    assert condition(found, "Stalled")["reason"] == "InvalidSpec"
    assert condition(found, "Stalled")["message"].startswith("spec.jobTemplate")
