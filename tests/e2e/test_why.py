"""`kubectl duepoint why` names the true cause of each injected trouble, to a developer.

The developer's account may do what the chart's `edit` and Kubernetes' own give in one namespace,
and nothing in the namespace of the installation. Each row of the tables is a trouble of its own,
made on the real API server with real processes. An answer is asked for until it is the right one.
"""

from __future__ import annotations

import asyncio
import copy
import datetime as dt
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.e2e.test_crashes import in_seconds
from tests.e2e.test_jobs import endless, jobs_path, seconds_of, template
from tests.support import receiver
from tests.support.redisserver import free_port
from tests.support.stack import Stack, eventually
from tests.support.waiting import OF_PROCESSES_SECONDS

BIN = Path(sys.executable).parent
RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/{kind}"
#: What `edit` of the chart and of Kubernetes give in a namespace, as far as the commands need it.
RULES = [
    {"apiGroups": ["duepoint.dev"], "resources": ["schedules", "scheduleruns"], "verbs": ["*"]},
    {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get", "list", "create", "delete"]},
    {
        "apiGroups": [""],
        "resources": ["pods", "pods/log", "events"],
        "verbs": ["get", "list"],
    },
]
#: Once, a moment after it is applied: a time that is written down before may have passed by then.
SOON = "soon"
#: What did not begin at some time.
NO_BEGINNING = ("Well", "InvalidSpec", "OutsideWindow")
NO_RETRY = {"maxAttempts": 1}
SLOW_RETRY = {"initialBackoff": "30s", "maxBackoff": "60s"}


class Developer:
    """A person with the rights of a namespace."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        admin, ns = stack.plane.admin(), stack.namespace
        self.kubeconfig = stack.plane.service_account_kubeconfig(ns, "developer", stack.folder)
        admin.apply(RBAC.format(ns=ns, kind="roles/developer"), _rbac(ns, "Role", rules=RULES))
        binding = _rbac(
            ns,
            "RoleBinding",
            roleRef={
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "Role",
                "name": "developer",
            },
            subjects=[{"kind": "ServiceAccount", "name": "developer", "namespace": ns}],
        )
        admin.apply(RBAC.format(ns=ns, kind="rolebindings/developer"), binding)

    async def run(self, *arguments: str, code: int = 0) -> str:
        program = BIN / "kubectl-duepoint"

        def call() -> str:
            done = subprocess.run(
                [str(program), *arguments, "--kubeconfig", str(self.kubeconfig)],
                capture_output=True,
                text=True,
                check=False,
                env=os.environ | {"TERM": "dumb"},
            )
            assert done.returncode == code, done.stdout + done.stderr
            return done.stdout + done.stderr

        return await asyncio.to_thread(call)

    async def why(self, name: str, *more: str) -> dict:
        return json.loads(await self.run("why", name, "-o", "json", *more))

    async def sees(self, name: str, cause: str, *more: str, says: str = "") -> dict:
        """The answer, once it names this cause."""
        last: list[dict] = []

        async def is_named() -> bool:
            last[:] = [await self.why(name, *more)]
            return last[0]["cause"] == cause and says in last[0]["message"]

        try:
            what = f"why {name} says {cause} {says!r}"
            await eventually(is_named, what, pause_seconds=OF_PROCESSES_SECONDS)
        except TimeoutError:
            raise AssertionError(f"{name}: wanted {cause} {says!r}, got {last}") from None
        return last[0]


def _rbac(namespace: str, kind: str, **fields) -> dict:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": "developer", "namespace": namespace},
        **fields,
    }


@pytest.fixture
async def developer(stack: Stack) -> Developer:
    return await asyncio.to_thread(Developer, stack)


def hook(stack: Stack, path: str = "/hook", **more) -> dict:
    return stack.webhook(path, **{"retry": SLOW_RETRY, **more})


def by_path(usual):
    """A receiver that misbehaves as the path says."""
    kinds = {
        "/500": receiver.status(500),
        "/410": receiver.status(410),
        "/403": receiver.status(403),
        "/hang": receiver.hang,
    }

    async def answer(request, writer):
        await kinds.get(request.target, usual)(request, writer)

    return answer


async def not_http(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
    writer.close()


# -- troubles of one Schedule, all at once -------------------------------------------------------

FUTURE = (dt.datetime.now(dt.UTC) + dt.timedelta(days=2)).strftime("%Y-%m-%dT%H:00:00Z")


def troubles(stack: Stack, plain_port: int) -> dict[str, tuple[dict, str, str]]:
    """Name to spec, cause, and a part of the message.

    The stack's receiver waits for the end of a head, which a TLS greeting never has; at the plain
    port a server says at once, as most do, that this is not HTTP.
    """
    secret = {"secretKeyRefs": [{"name": "absent", "key": "a"}]}
    no_volume = copy.deepcopy(template())
    no_volume["spec"]["template"]["spec"]["containers"][0]["volumeMounts"] = [
        {"name": "nowhere", "mountPath": "/data"}
    ]
    unschedulable = copy.deepcopy(template())
    unschedulable["spec"]["template"]["spec"]["nodeSelector"] = {"no": "such-node"}
    second, port = "@every 2s", stack.receiver_port
    return {
        "unreadable-secret": (
            {"schedule": "@daily", "webhook": hook(stack, signing=secret)},
            "SecretUnavailable",
            "kubectl create rolebinding",
        ),
        "closed-port": (
            {
                "schedule": SOON,
                "webhook": {"url": f"http://127.0.0.1:{free_port()}/", "retry": SLOW_RETRY},
            },
            "Network",
            "Connection refused",
        ),
        "open-circuit": (
            {
                "schedule": "@every 1s",
                "webhook": {
                    "url": f"http://127.0.0.1:{free_port()}/",
                    "retry": {"initialBackoff": "1s", "maxBackoff": "2s"},
                },
            },
            "CircuitOpen",
            "Connection refused",
        ),
        "no-tls-there": (
            {
                "schedule": SOON,
                "webhook": {"url": f"https://127.0.0.1:{plain_port}/", "retry": SLOW_RETRY},
            },
            "Network",
            "TLS",
        ),
        "silent-in-tls": (
            {
                "schedule": SOON,
                "webhook": {"url": f"https://127.0.0.1:{port}/", "retry": SLOW_RETRY},
            },
            "Network",
            "no TLS connection",
        ),
        "answers-500": (
            {"schedule": SOON, "webhook": hook(stack, "/500")},
            "Rejected",
            "500",
        ),
        "answers-403-for-good": (
            {"schedule": SOON, "webhook": hook(stack, "/403", retry=NO_RETRY)},
            "Rejected",
            "403",
        ),
        "answers-410": (
            {"schedule": SOON, "webhook": hook(stack, "/410")},
            "EndpointGone",
            "410",
        ),
        "hangs": (
            {"schedule": SOON, "webhook": hook(stack, "/hang", timeoutSeconds=1)},
            "Network",
            "",
        ),
        "blocked-address": (
            {
                "schedule": SOON,
                "webhook": {"url": "http://169.254.169.254/", "retry": SLOW_RETRY},
            },
            "BlockedAddress",
            "169.254.169.254",
        ),
        "no-service": (
            {
                "schedule": SOON,
                "webhook": {"service": {"name": "nowhere", "port": 80}, "retry": SLOW_RETRY},
            },
            "Network",
            "nowhere",
        ),
        "suspended": (
            {
                "schedule": second,
                "suspend": True,
                "suspendReason": "INC-42",
                "webhook": hook(stack),
            },
            "Suspended",
            "INC-42",
        ),
        "suspended-until": (
            {
                "schedule": second,
                "suspend": True,
                "suspendUntil": FUTURE,
                "webhook": hook(stack),
            },
            "Suspended",
            FUTURE,
        ),
        "completed": (
            {"schedule": second, "maxRuns": 1, "webhook": hook(stack)},
            "Completed",
            "maxRuns",
        ),
        "never": ({"schedule": "0 0 30 2 *", "webhook": hook(stack)}, "InvalidSpec", ""),
        "bad-tls-setting": (
            {
                "schedule": "@daily",
                "webhook": {
                    "url": f"https://127.0.0.1:{port}/",
                    "tls": {"insecureSkipVerify": True},
                },
            },
            "InvalidSpec",
            "insecureSkipVerify",
        ),
        "bad-template": (
            {"schedule": "@daily", "jobTemplate": no_volume},
            "InvalidJobTemplate",
            "nowhere",
        ),
        "job-failed": (
            {"schedule": SOON, "jobTemplate": template(outcome="fail")},
            "RunFailed",
            "",
        ),
        "forbid": (
            {
                "schedule": second,
                "concurrencyPolicy": "Forbid",
                "jobTemplate": endless(),
            },
            "ConcurrencyLimit",
            "",
        ),
        "queue-full": (
            {
                "schedule": second,
                "concurrencyPolicy": "Queue",
                "queueLimit": 1,
                "jobTemplate": endless(),
            },
            "QueueFull",
            "",
        ),
        "unschedulable": (
            {"schedule": SOON, "jobTemplate": unschedulable},
            "PodNotStarted",
            "",
        ),
        "runs-on": ({"schedule": SOON, "jobTemplate": endless()}, "Running", ""),
        "wrong-type": (
            {"schedule": SOON, "stream": {"name": "taken"}},
            "TargetUnavailable",
            "",
        ),
        "too-late": (
            {"schedule": "@at 2026-01-01T00:00:00Z", "webhook": hook(stack)},
            "BeforeCreation",
            "2026-01-01T00:00:00Z",
        ),
        "before-start": (
            {"schedule": second, "startTime": FUTURE, "webhook": hook(stack)},
            "OutsideWindow",
            FUTURE,
        ),
        "well": ({"schedule": second, "webhook": hook(stack)}, "Well", "nothing is wrong"),
    }


async def unnamed(developer: Developer, made: dict[str, tuple[dict, str, str]]) -> dict[str, dict]:
    """What is said of those whose cause is not named within four minutes."""
    last: dict[str, dict] = {name: {} for name in made}
    deadline = time.monotonic() + 240

    async def ask(name: str) -> None:
        _, cause, says = made[name]
        answer = last[name] = await developer.why(name)
        if answer["cause"] == cause and says in answer["message"] and answer["do"]:
            assert answer["since"] or cause in NO_BEGINNING, answer
            del last[name]

    while last and time.monotonic() < deadline:
        names = list(last)
        for pair in zip(names[::2], [*names[1::2], None], strict=False):
            await asyncio.gather(*(ask(name) for name in pair if name is not None))
        await asyncio.sleep(OF_PROCESSES_SECONDS)
    return last


@pytest.mark.timeout(600)
async def test_each_trouble_of_a_schedule_is_named(stack: Stack, developer: Developer) -> None:
    stack.answer = by_path(stack.answer)
    await stack.running()
    with stack.redis.client() as client:
        client.set(f"dp:stream:{stack.namespace}:taken", "text")
    plain = await asyncio.start_server(not_http, "127.0.0.1", 0)
    made = troubles(stack, plain.sockets[0].getsockname()[1])
    for name, (spec, _, _) in made.items():
        when = in_seconds(4) if spec["schedule"] == SOON else spec["schedule"]
        await stack.apply(name, {**spec, "schedule": when})
    assert await unnamed(developer, made) == {}
    plain.close()

    # one slot of it, in the words of a person who asks about last night
    past = (dt.datetime.now(dt.UTC) - dt.timedelta(days=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    later = (dt.datetime.now(dt.UTC) + dt.timedelta(days=9)).strftime("%Y-%m-%dT00:00:00Z")
    await developer.sees("unreadable-secret", "NotASlot", "--at", f"{past[:10]}T11:11:11Z")
    await developer.sees("unreadable-secret", "BeforeCreation", "--at", f"{past[:10]}T00:00:00Z")
    await developer.sees("unreadable-secret", "NotYet", "--at", later)
    await stack.apply(
        "window", {"schedule": "@daily", "startTime": FUTURE, "webhook": stack.webhook()}
    )
    await developer.sees("window", "OutsideWindow", "--at", f"{past[:10]}T00:00:00Z")
    said = await developer.run("why", "forbidd", code=2)
    assert 'did you mean "forbid"?' in said
    text = await developer.run("why", "suspended")
    assert "kubectl duepoint resume suspended" in text


async def test_what_a_namespace_refuses_is_named(stack: Stack, developer: Developer) -> None:
    """Quota, Pod Security, a Job of another owner that has the name."""
    await stack.running()
    at = in_seconds(4)
    squatter = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": f"squatted-{seconds_of(at.removeprefix('@at '))}",
            "namespace": stack.namespace,
        },
        "spec": endless()["spec"],
    }
    await stack.api.request("POST", jobs_path(stack), squatter)
    await stack.apply("squatted", {"schedule": at, "jobTemplate": template()})
    await developer.sees("squatted", "NameConflict", says="squatted-")

    label = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    await stack.api.request(
        "PATCH",
        f"/api/v1/namespaces/{stack.namespace}",
        label,
        content_type="application/merge-patch+json",
    )
    await stack.apply("insecure", {"schedule": in_seconds(4), "jobTemplate": template()})
    await developer.sees("insecure", "PodsRefused", says="PodSecurity")

    quotas = f"/api/v1/namespaces/{stack.namespace}/resourcequotas"
    quota = {"metadata": {"name": "no-jobs"}, "spec": {"hard": {"count/jobs.batch": "0"}}}
    await stack.api.request("POST", quotas, quota)

    async def is_counted() -> bool:
        listed = json.loads(await stack.api.request("GET", quotas))
        return bool(listed["items"][0].get("status", {}).get("hard"))

    await eventually(is_counted, "the quota is in force")
    await stack.apply(
        "tight",
        {"schedule": in_seconds(3), "startingDeadlineSeconds": 4, "jobTemplate": template()},
    )
    answer = await developer.sees("tight", "Forbidden", says="quota")
    assert answer["slot"] is None
    slots = json.loads(await developer.run("describe", "tight", "-o", "json"))["recent"]
    assert slots[0]["reason"] == "Forbidden"


# -- troubles of the installation ----------------------------------------------------------------


async def test_a_paused_redis_is_named_and_then_nothing(stack: Stack, developer: Developer) -> None:
    await stack.running()
    await stack.apply("call", {"schedule": "@every 2s", "webhook": stack.webhook()})
    await stack.wait_for_deliveries(1, "call")
    await developer.sees("call", "Well")
    stack.redis.pause()
    try:
        answer = await developer.sees("call", "QueueUnavailable", says="Redis does not answer")
        assert answer["since"]
    finally:
        stack.redis.resume()
    await developer.sees("call", "Well")


async def test_a_missing_worker_and_what_it_missed_are_named(
    stack: Stack, developer: Developer
) -> None:
    _, worker = await stack.running()
    for name, more in {
        "call": {},
        "hasty": {"startingDeadlineSeconds": 5, "catchUpPolicy": "All"},
    }.items():
        await stack.apply(name, {"schedule": "@every 10s", "webhook": stack.webhook(), **more})
    await stack.wait_for_deliveries(1, "call")
    await stack.wait_for_deliveries(1, "hasty")
    await worker.drain()

    async def both_are_named() -> bool:
        answer = await developer.why("call")
        also = {one["cause"] for one in answer["also"]}
        return answer["cause"] == "NoWorker" and "NotClaimed" in also  # once a slot is due

    what = "the missing worker is named, and what it did not claim"
    await eventually(both_are_named, what, pause_seconds=OF_PROCESSES_SECONDS)
    again = stack.worker("again")
    await again.wait_until_ready()

    async def reasons(name: str) -> set[str]:
        shown = json.loads(await developer.run("describe", name, "-o", "json"))
        return {one["reason"] for one in shown["recent"]}

    async def both_are_told() -> bool:
        by_policy = "CatchUpPolicy" in await reasons("call")
        return by_policy and "DeadlineExceeded" in await reasons("hasty")

    what = "the history has what was missed, and why"
    await eventually(both_are_told, what, pause_seconds=OF_PROCESSES_SECONDS)


async def test_a_missing_operator_is_named_for_an_edit_that_waits(
    stack: Stack, developer: Developer
) -> None:
    operator, _ = await stack.running()
    await stack.apply("call", {"schedule": "@every 2s", "webhook": stack.webhook()})
    await stack.wait_until_ready("call")
    await operator.drain()
    await stack.apply("call", {"schedule": "@every 3s", "webhook": stack.webhook()})
    answer = await developer.sees("call", "NoOperator")
    assert any(one["cause"] == "NotObserved" for one in answer["also"])


# -- the other commands --------------------------------------------------------------------------


async def test_doctor_says_what_is_in_order_and_what_is_not(
    stack: Stack, developer: Developer
) -> None:
    _, worker = await stack.running()
    lease = f"{stack.system}/duepoint-operator"
    admin = str(stack.plane.kubeconfig)

    async def checks(code: int) -> dict[str, dict]:
        def call() -> str:
            words = f"doctor --lease {lease} -o json -n {stack.namespace} --kubeconfig {admin}"
            done = subprocess.run(
                [str(BIN / "duepoint"), *words.split()],
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == code, done.stdout + done.stderr
            return done.stdout

        rows = map(json.loads, (await asyncio.to_thread(call)).splitlines())
        return {row["check"]: row for row in rows}

    in_order = ("crd schedules", "crd schedulesets", "leader", "version", "redis", "lag", "clocks")
    found: dict[str, dict] = {}

    async def is_in_order() -> bool:
        try:
            found.update(await checks(0))
        except AssertionError:
            return False
        return all(found[name]["state"] == "ok" for name in (*in_order, "workers"))

    await eventually(is_in_order, "all is in order", pause_seconds=OF_PROCESSES_SECONDS)
    assert "valkey" in found["redis"]["found"]
    of_developer = await developer.run("doctor", "--lease", lease)
    assert "unknown" in of_developer  # others' rights
    await worker.drain()

    async def misses_it() -> bool:
        try:
            return (await checks(1))["workers"]["state"] == "failed"
        except AssertionError:
            return False

    await eventually(misses_it, "the missing worker", pause_seconds=OF_PROCESSES_SECONDS)


async def test_what_never_succeeds_is_fine_nowhere(stack: Stack, developer: Developer) -> None:
    """Not in conditions, columns, Events and metrics, nor in what the commands say."""
    operator, _ = await stack.running()
    quick = {"initialBackoff": "1s", "maxBackoff": "2s"}
    secret = {"secretKeyRefs": [{"name": "absent", "key": "a"}]}
    troubled = {
        "no-service": {"service": {"name": "nowhere", "port": 80}, "retry": quick},
        "wrong-port": {"url": f"http://127.0.0.1:{free_port()}/", "retry": quick},
        "unreadable-secret": hook(stack, signing=secret),
    }
    await stack.apply("well", {"schedule": "@every 2s", "webhook": hook(stack)})
    for name, webhook in troubled.items():
        await stack.apply(name, {"schedule": "@every 2s", "webhook": webhook})
    last: dict[str, dict] = {}

    async def all_are_listed() -> bool:
        text = await developer.run("list", "--failing", "-o", "json")
        rows = [json.loads(line) for line in text.splitlines() if line[:1] == "{"]
        last.clear()
        last.update({row["name"]: row for row in rows})
        return last.keys() == troubled.keys() and last["wrong-port"]["health"] == "failing"

    await eventually(all_are_listed, "list --failing names all three and no other")
    assert last["no-service"]["health"] == "failing"
    assert "nowhere" in last["no-service"]["message"]
    assert "Connection refused" in last["wrong-port"]["message"]
    secret_row = last["unreadable-secret"]
    assert (secret_row["health"], secret_row["reason"]) == ("problem", "SecretUnavailable")

    found = await stack.schedule("no-service")
    (failing,) = [one for one in found["status"]["conditions"] if one["type"] == "Failing"]
    assert (failing["status"], found["status"]["runs"]["succeeded"]) == ("True", 0)
    answer = await developer.why("no-service")
    assert (answer["cause"], answer["since"][:19]) == (
        failing["reason"],
        failing["lastTransitionTime"][:19],
    )
    checks = map(json.loads, (await developer.run("doctor", "-o", "json")).splitlines())
    (said,) = [check["found"] for check in checks if check["check"] == "schedules"]
    assert said.startswith(f"4 Schedules in namespace {stack.namespace}, 3 in trouble: ")
    table = await stack.api.request(
        "GET",
        f"/apis/duepoint.dev/v1alpha1/namespaces/{stack.namespace}/schedules/no-service",
        accept="application/json;as=Table;v=v1;g=meta.k8s.io",
    )
    shown = json.loads(table)
    columns = [column["name"] for column in shown["columnDefinitions"]]
    cell = shown["rows"][0]["cells"][columns.index("Failing")]
    assert cell in ("Network", "CircuitOpen")

    async def is_counted() -> bool:
        found = re.search(
            rf'duepoint_schedules_failing{{namespace="{stack.namespace}"}} (.*)',
            await operator.metrics(),
        )
        # The one without a Secret is overdue after a minute.
        return found is not None and float(found[1]) >= 2

    await eventually(is_counted, "a metric of the operator counts them")

    await stack.apply("wrong-port", {"schedule": "@every 2s", "webhook": hook(stack)})

    def is_well(found: dict) -> bool:
        return all(one["type"] != "Failing" for one in found["status"]["conditions"])

    await stack.wait_for_schedule("wrong-port", is_well, "is fine with the first success")
    listed = json.loads(
        await stack.api.request("GET", f"/api/v1/namespaces/{stack.namespace}/events")
    )
    told = [
        event["reason"]
        for event in listed["items"]
        if event["involvedObject"]["name"] == "wrong-port"
    ]
    assert {"RunFailing", "RunRecovered"} <= set(told)


#: How a Pod ended, as a kubelet writes it, and what is said of its run.
ENDS = {
    "out-of-memory": ({"exitCode": 137, "reason": "OOMKilled"}, {}, "OOMKilled"),
    "exits-with-3": ({"exitCode": 3, "reason": "Error"}, {}, "exit code 3"),
    "cannot-start": (
        {"exitCode": 128, "reason": "StartError", "message": 'exec: "nope": not found'},
        {},
        'StartError: exec: "nope": not found',
    ),
    "evicted": (None, {"reason": "Evicted", "message": "The node was low on memory"}, "Evicted"),
    "drained": (
        {"exitCode": 143, "reason": "Error"},
        {
            "conditions": [
                {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
            ]
        },
        "EvictionByEvictionAPI",
    ),
}


async def pod_of(stack: Stack, schedule: str) -> tuple[str, dict]:
    """Path and object of the Pod of a Schedule's first Job."""
    (job, *_) = await stack.wait_for_job(schedule)
    pods = f"/api/v1/namespaces/{stack.namespace}/pods"
    query = {"labelSelector": f"batch.kubernetes.io/job-name={job['metadata']['name']}"}
    found: list[dict] = []

    async def is_there() -> bool:
        found[:] = json.loads(await stack.api.request("GET", pods, query=query))["items"]
        return bool(found)

    await eventually(is_there, f"the Pod of {schedule}")
    return f"{pods}/{found[0]['metadata']['name']}", found[0]


async def test_a_run_says_how_its_pod_ended_and_not_that_the_job_gave_up(
    stack: Stack, developer: Developer
) -> None:
    """No kubelet runs here, so the test writes what one would."""
    await stack.running()
    for name in ENDS:
        once = {"schedule": "@every 2s", "maxRuns": 1}
        await stack.apply(name, {**once, "jobTemplate": template(seconds=600)})
    for name, (terminated, status, _) in ENDS.items():
        path, pod = await pod_of(stack, name)
        container = pod["spec"]["containers"][0]["name"]
        state = {"name": container, "ready": False, "restartCount": 0, "image": "x", "imageID": ""}
        ended = [] if terminated is None else [{**state, "state": {"terminated": terminated}}]
        await stack.api.request(
            "PATCH",
            f"{path}/status",
            {"status": {"phase": "Failed", "containerStatuses": ended, **status}},
            content_type="application/merge-patch+json",
        )
    for name, (_, _, says) in ENDS.items():
        answer = await developer.sees(name, "RunFailed", says=says)
        assert "BackoffLimitExceeded" not in answer["message"]
        last = (await stack.schedule(name))["status"]["lastRun"]
        assert says in last["message"]
