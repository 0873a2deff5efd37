"""Secrets, from a namespace's admin to the receiver, and nowhere else.

A canary stands in every kind of secret, and the receiver repeats in its answers all that it was
sent. Afterwards the canaries are looked for everywhere that anybody but the receiver can look.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import secrets
import shlex
import zlib

import pytest
import standardwebhooks

from tests.support import receiver, vaults
from tests.support.stack import rendered

RBAC = "/apis/rbac.authorization.k8s.io/v1"


@pytest.fixture
def admin(stack):
    """What a namespace's admin does; the chart's ClusterRole is there, and bound to nobody."""
    client = stack.plane.admin()
    for one in rendered(stack.system, stack.namespace):
        if one["kind"] == "ClusterRole" and one["metadata"]["name"].endswith("secret-reader"):
            client.apply(f"{RBAC}/clusterroles/{one['metadata']['name']}", one)
    return client


async def write_secret(admin, stack, name, **values):
    path = f"/api/v1/namespaces/{stack.namespace}/secrets/{name}"
    document = {
        "apiVersion": "v1", "kind": "Secret", **vaults.a_secret(name, stack.namespace, **values),
    }  # fmt: skip
    await asyncio.to_thread(admin.apply, path, document)


async def run_line(admin, stack, line):
    """`kubectl create rolebinding NAME -n NS --clusterrole=ROLE --serviceaccount=NS:NAME`."""
    words = shlex.split(line)
    assert words[:3] == ["kubectl", "create", "rolebinding"]
    options = dict(word.removeprefix("--").split("=", 1) for word in words if "=" in word)
    space, account = options["serviceaccount"].split(":")
    assert words[words.index("-n") + 1] == stack.namespace
    path = f"{RBAC}/namespaces/{stack.namespace}/rolebindings/{words[3]}"
    await asyncio.to_thread(
        admin.apply,
        path,
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": words[3], "namespace": stack.namespace},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": options["clusterrole"],
            },
            "subjects": [{"kind": "ServiceAccount", "namespace": space, "name": account}],
        },
    )


def because(reason, says=""):
    def holds(found):
        listed = found.get("status", {}).get("conditions", ())
        told = [one for one in listed if one["type"] == "Reconciling"]
        return bool(told) and told[0]["reason"] == reason and says in told[0]["message"]

    return holds


def told(found):
    return next(
        one["message"] for one in found["status"]["conditions"] if one["type"] == "Reconciling"
    )


SIGNING = {"secretKeyRefs": [{"name": "hook", "key": "a"}]}


async def test_a_missing_right_and_a_missing_secret_are_told_and_heal(stack, admin):
    await stack.running()
    webhook = stack.webhook(signing=SIGNING, retry={"initialBackoff": "1s", "maxBackoff": "1s"})
    await stack.apply("signed", {"schedule": "@every 1s", "webhook": webhook})
    found = await stack.wait_for_schedule(
        "signed", because("SecretUnavailable", "allow it"), "told of rights"
    )
    message = told(found)
    assert message.startswith("spec.webhook.signing.secretKeyRefs[0]: ")
    assert found["status"]["observedGeneration"] == 1
    assert stack.deliveries == []

    await run_line(admin, stack, message.partition("allow it with: ")[2])
    webhook["timeoutSeconds"] = 20  # an edit is checked at once
    await stack.apply("signed", {"schedule": "@every 1s", "webhook": webhook})
    found = await stack.wait_for_schedule(
        "signed", because("SecretUnavailable", "not exist"), "told of the Secret"
    )
    assert f"Secret {stack.namespace}/hook does not exist" in told(found)

    await write_secret(admin, stack, "hook", a=vaults.WHSEC)
    # Slots due meanwhile were tried and retried: they arrive without anybody's edit.
    await stack.wait_for_deliveries(1, "signed")
    webhook["timeoutSeconds"] = 21
    await stack.apply("signed", {"schedule": "@every 1s", "webhook": webhook})
    await stack.wait_until_ready("signed", generation=3)


class Echo:
    """Answers with everything that it was sent, in every spelling that comes to mind."""

    #: The receiver's own text, which belongs nowhere either.
    MARK = b"canary-of-the-receiver "

    def __init__(self):
        self.requests: list[receiver.Request] = []

    async def __call__(self, request, writer):
        self.requests.append(request)
        values = " ".join(value for _, value in request.headers)
        basic = re.search(r"Basic (\S+)", values)
        decoded = base64.b64decode(basic[1]).decode() if basic else ""
        headers = json.dumps(dict(request.headers))
        body = self.MARK + f"{values}\n{decoded}\n{headers}\n".encode() + request.body
        await receiver.status(503, body)(request, writer)


async def test_canaries_in_secrets_are_found_nowhere(stack, admin):
    mark = secrets.token_hex(6)
    sign = f"canary-sign-{mark}".encode() + bytes(4)
    kinds = ("bearer", "header", "pass", "path")
    bearer, header, password, path = (f"canary-{kind}-{mark}" for kind in kinds)
    public = f"canary-public-{mark}"
    operator = stack.operator(log_level="debug")
    worker = stack.worker(log_level="debug")
    for process in (operator, worker):
        await process.wait_until_ready()
    account = stack._accounts["worker"]
    await run_line(
        admin, stack,
        f"kubectl create rolebinding duepoint-secret-reader -n {stack.namespace} "
        f"--clusterrole=duepoint-secret-reader --serviceaccount={stack.system}:{account}",
    )  # fmt: skip
    whsec = "whsec_" + base64.b64encode(sign).decode()
    await write_secret(admin, stack, "hook", a=whsec, token=bearer, header=header)
    await write_secret(admin, stack, "login", username="user", password=password)
    await write_secret(admin, stack, "chat", url=stack.webhook(f"/{path}?k={path}")["url"])
    # Half of a key pair, and a signing secret of no known form: their errors must not quote them.
    await write_secret(admin, stack, "broken", a=f"canary-broken-{mark}")

    stack.answer = echo = Echo()
    headers = [{"name": "X-Key", "valueFrom": {"secretKeyRef": {"name": "hook", "key": "header"}}}]
    common = {"headers": headers, "signing": SIGNING, "retry": {"maxAttempts": 2,
              "initialBackoff": "1s"}}  # fmt: skip
    auths = {
        "bearer": {"bearer": {"secretKeyRef": {"name": "hook", "key": "token"}}},
        "basic": {"basic": {"secretRef": {"name": "login"}}},
    }
    for name, auth in auths.items():
        webhook = stack.webhook(auth=auth, **common)
        spec = {"schedule": "@every 2s", "payload": {"p": public}, "webhook": webhook}
        await stack.apply(name, spec)
    chat = {"urlFrom": {"secretKeyRef": {"name": "chat", "key": "url"}}, **common}
    await stack.apply("chat", {"schedule": "@every 2s", "webhook": chat})
    broken = {"secretKeyRefs": [{"name": "broken", "key": "a"}]}
    await stack.apply("broken", {"schedule": "@every 2s", "webhook": stack.webhook(signing=broken)})
    for name in (*auths, "chat"):
        await stack.wait_until_ready(name)
        await stack.wait_for_schedule(
            name, lambda found: found["status"].get("runs", {}).get("failed", 0) >= 1, "failed"
        )
    await stack.wait_for_schedule("broken", because("SecretUnavailable"), "told")

    # The receiver did get all of it, signed.
    arrived = " ".join(value for request in echo.requests for _, value in request.headers)
    assert f"Bearer {bearer}" in arrived
    assert header in arrived
    assert base64.b64encode(f"user:{password}".encode()).decode() in arrived
    request = echo.requests[0]
    standardwebhooks.Webhook(whsec).verify(request.body, dict(request.headers))

    places = await everywhere(stack, operator, worker)
    assert any(path in request.target for request in echo.requests)
    needles = [one.encode() for one in (bearer, header, password, path, whsec, whsec[6:])]
    needles += [f"canary-sign-{mark}".encode(), f"canary-broken-{mark}".encode()]
    needles += [base64.b64encode(one) for one in needles]
    needles.append(Echo.MARK)
    for place, content in places.items():
        for needle in needles:
            assert needle not in content, f"{needle!r} is in {place}"
    # The search does find what may be there: the payload, and what was answered without its text.
    assert public.encode() in places["Redis"]
    assert b"answered 503" in places["statuses"]
    assert b"RunFailed" in places["events"]


async def everywhere(stack, operator, worker) -> dict[str, bytes]:
    """All that Duepoint wrote or shows, decompressed."""
    schedules = await stack.api.request("GET", stack._schedules)
    events = await stack.api.request(
        "GET", f"/apis/events.k8s.io/v1/namespaces/{stack.namespace}/events"
    )
    return {
        "Redis": await asyncio.to_thread(redis_content, stack),
        "statuses": schedules,
        "events": events,
        "log of the operator": operator.log.read_bytes(),
        "log of the worker": worker.log.read_bytes(),
        "metrics of the operator": (await operator.metrics()).encode(),
        "metrics of the worker": (await worker.metrics()).encode(),
    }


def redis_content(stack) -> bytes:
    """Every key, member, field and value; what is compressed is unpacked, too."""
    found = []
    with stack.redis.client() as client:
        for key in client.scan_iter(count=1000):
            found.append(key)
            read = {
                b"string": lambda key: [client.get(key)],
                b"hash": lambda key: flat(client.hgetall(key)),
                b"set": lambda key: list(client.smembers(key)),
                b"zset": lambda key: client.zrange(key, 0, -1),
                b"list": lambda key: client.lrange(key, 0, -1),
                b"stream": lambda key: [
                    part for _, entry in client.xrange(key) for part in flat(entry)
                ],
            }
            found += [value for value in read[client.type(key)](key) if value is not None]
    return b"\n".join(part for value in found for part in (value, *unpacked(value)))


def flat(pairs: dict[bytes, bytes]) -> list[bytes]:
    return [part for pair in pairs.items() for part in pair]


def unpacked(value: bytes) -> list[bytes]:
    """Whatever zlib stream begins somewhere in the first bytes of the value."""
    made = []
    for start in range(min(len(value), 64)):
        if value[start : start + 1] == b"\x78":
            try:
                made.append(zlib.decompressobj().decompress(value[start:]))
            except zlib.error:
                continue
    return made


async def test_a_service_account_token_says_who_we_are_where_a_namespace_allows_it(stack, admin):
    await stack.running()
    space = stack.namespace
    auth = {"serviceAccountToken": {"serviceAccountName": "default", "audience": "billing"}}
    spec = {"schedule": "@every 1s", "webhook": stack.webhook(auth=auth)}
    heard = []

    async def listen(request, writer):
        heard.append(request.header("authorization") or "")
        await receiver.status(204)(request, writer)

    stack.answer = listen
    await stack.apply("who", spec)
    found = await stack.wait_for_schedule("who", because("SecretUnavailable"), "told of rights")
    role, binding = told(found).partition("allow it with: ")[2].split(" && ")
    assert role == (
        f"kubectl create role duepoint-token-default -n {space} --verb=get,create "
        "--resource=serviceaccounts,serviceaccounts/token --resource-name=default"
    )
    await asyncio.to_thread(consent_to_tokens, admin, space, "billing")
    assert heard == []
    await asyncio.to_thread(grant_tokens, admin, space, binding)
    await stack.wait_for_deliveries(1, "who")
    token = heard[0].removeprefix("Bearer ")
    review = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenReview",
        "spec": {"token": token, "audiences": ["billing"]},
    }
    judged = admin.post("/apis/authentication.k8s.io/v1/tokenreviews", review)["status"]
    assert judged["authenticated"]
    assert judged["user"]["username"] == f"system:serviceaccount:{space}:default"
    # It opens the receiver, and not the API server.
    review["spec"].pop("audiences")
    refused = admin.post("/apis/authentication.k8s.io/v1/tokenreviews", review)["status"]
    assert not refused.get("authenticated")
    assert len(set(heard)) == 1
    assert token.encode() not in redis_content(stack)


def consent_to_tokens(admin, space, audience):
    metadata = {
        "name": "default",
        "namespace": space,
        "annotations": {"duepoint.dev/token-audiences": audience},
    }
    admin.apply(
        f"/api/v1/namespaces/{space}/serviceaccounts/default",
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},
    )


def grant_tokens(admin, space, binding):
    words = shlex.split(binding)
    options = dict(word.removeprefix("--").split("=", 1) for word in words if "=" in word)
    holder, account = options["serviceaccount"].split(":")
    name = options["role"]
    admin.apply(
        f"{RBAC}/namespaces/{space}/roles/{name}",
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": {"name": name, "namespace": space},
            "rules": [
                {
                    "apiGroups": [""],
                    "resources": ["serviceaccounts", "serviceaccounts/token"],
                    "resourceNames": ["default"],
                    "verbs": ["get", "create"],
                }
            ],
        },
    )
    admin.apply(
        f"{RBAC}/namespaces/{space}/rolebindings/{name}",
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": name, "namespace": space},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "namespace": holder, "name": account}],
        },
    )
