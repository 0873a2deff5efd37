"""Where deliveries go: to ready Pods, with what owners of Secrets and accounts allow; streams."""

from __future__ import annotations

import base64
import json
import shlex

import pytest
import standardwebhooks
import yaml

from tests.support.realcluster import schedule, until, webhook

OPEN = "tests.duepoint.dev/open"


def why(cluster, team, name):
    return cluster.duepoint("why", name, "-n", team).stdout


# -- ready Pods ------------------------------------------------------------------------------------


class GatedPod:
    """A second Pod of the Service, whose container runs and which is ready once it is opened."""

    def __init__(self, cluster, team):
        self._cluster, self._of = cluster, ("pod", "gated", f"--namespace={team}")
        self._requests = f"/api/v1/namespaces/{team}/pods/gated:8080/proxy/_requests"
        spec = cluster.get("deploy", "receiver", f"--namespace={team}")["spec"]["template"]["spec"]
        spec["readinessGates"] = [{"conditionType": OPEN}]
        metadata = {"name": "gated", "labels": {"app": "receiver"}}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        cluster.apply(pod, namespace=team)
        cluster("wait", *self._of, "--for=condition=ContainersReady", "--timeout=120s")

    def open(self):
        change = {"status": {"conditions": [{"type": OPEN, "status": "True"}]}}
        self._cluster("patch", *self._of, "--subresource=status", f"--patch={json.dumps(change)}")

    def requests(self):
        return json.loads(self._cluster("get", "--raw", self._requests))


@pytest.mark.parametrize("is_headless", [False, True], ids=["cluster-ip", "headless"])
def test_only_ready_pods_get_requests_and_where_none_is_ready_why_says_so(
    installed, team, receiver, is_headless
):
    if is_headless:
        installed("delete", "service", "receiver", f"--namespace={team}")
        ports = [{"name": "http", "port": 8080}]
        spec = {"clusterIP": "None", "selector": {"app": "receiver"}, "ports": ports}
        named = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "receiver"}}
        installed.apply({**named, "spec": spec}, namespace=team)
    gated = GatedPod(installed, team)
    installed.apply(schedule("hook", "@every 1s", webhook=webhook("/hook")), namespace=team)

    until("five requests came", lambda: receiver.requests("/hook")[4:])
    assert gated.requests() == []

    installed("scale", "deploy/receiver", "--replicas=0", f"--namespace={team}")
    says = "no ready endpoints" if is_headless else "Connection refused"
    until("why says so", lambda: says in why(installed, team, "hook"))
    assert gated.requests() == []

    gated.open()
    until(
        "a slot is tried again",
        lambda: [one for one in gated.requests() if json.loads(one["body"])["data"]["attempt"] > 1],
    )


# -- Secrets and tokens ----------------------------------------------------------------------------


def allow(cluster, team, name):
    """Run the commands that the Schedule's message holds, as the namespace's admin."""

    def advised():
        found = cluster.get("schedule", name, f"--namespace={team}")["status"]["conditions"]
        lines = [one["message"].partition("allow it with: kubectl ")[2] for one in found]
        return next(filter(None, lines), None)

    for command in until("it says what to run", advised).split(" && kubectl "):
        cluster(*shlex.split(command))


def signing_key(letter):
    return "whsec_" + base64.b64encode(letter.encode() * 24).decode()


def hook_secret(letter):
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "hook", "annotations": {"duepoint.dev/send-to": "*"}},
        "stringData": {"signing": signing_key(letter), "key": letter},
    }


def is_of(request, letter):
    """Whether header and signature are made with this content of the Secret."""
    if request["headers"]["x-key"] != letter:
        return False
    key = standardwebhooks.Webhook(signing_key(letter))
    return bool(key.verify(request["body"], request["headers"]))


def secret_hook(name, every, path, **settings):
    key = {"secretKeyRef": {"name": "hook", "key": "key"}}
    headers = [{"name": "X-Key", "valueFrom": key}]
    signing = {"secretKeyRefs": [{"name": "hook", "key": "signing"}]}
    hook = webhook(path, headers=headers, signing=signing, **settings)
    return schedule(name, every, webhook=hook)


def test_a_changed_secret_is_used_within_a_minute_and_after_a_401_at_once(
    installed, team, receiver
):
    again = secret_hook("again", "@every 1h", "/again", retry={"retryOn": ["401"]})
    installed.apply(
        hook_secret("a"), secret_hook("hook", "@every 1s", "/hook"), again, namespace=team
    )
    allow(installed, team, "hook")
    first = until("a request came", lambda: receiver.requests("/hook"))
    assert is_of(first[0], "a")
    installed.duepoint("trigger", "again", "-n", team)
    until("a request came", lambda: receiver.requests("/again"))

    receiver.answer("/again", 401)
    installed.apply(hook_secret("b"), namespace=team)
    installed.duepoint("trigger", "again", "-n", team)

    until("it is tried with the new one", lambda: is_of(receiver.requests("/again")[-1], "b"))
    until("all use the new one", lambda: is_of(receiver.requests("/hook")[-1], "b"))


def test_a_receiver_gets_tokens_that_the_api_server_vouches_for(installed, team, receiver):
    annotations = {"duepoint.dev/token-audiences": "billing"}
    metadata = {"name": "caller", "annotations": annotations}
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}
    auth = {"serviceAccountToken": {"serviceAccountName": "caller", "audience": "billing"}}
    hook = schedule("caller", "@every 1s", webhook=webhook("/token", auth=auth))
    installed.apply(account, hook, namespace=team)
    allow(installed, team, "caller")

    (request, *_) = until("a request came", lambda: receiver.requests("/token"))

    token = request["headers"]["authorization"].removeprefix("Bearer ")
    review = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenReview",
        "spec": {"token": token, "audiences": ["billing"]},
    }
    found = json.loads(installed("create", "-f", "-", "-o", "json", text=yaml.safe_dump(review)))
    assert found["status"]["user"]["username"] == f"system:serviceaccount:{team}:caller"
    assert found["status"]["audiences"] == ["billing"]


# -- streams, dead letters, rows -------------------------------------------------------------------


def rows(*members):
    lines = [json.dumps({"id": member, "schedule": "@every 1s"}) for member in members]
    metadata = {"name": "rows"}
    data = {"rows.ndjson": "\n".join(lines)}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


# -- addresses that no webhook may reach -----------------------------------------------------------


def test_an_address_of_a_clouds_metadata_is_refused_by_the_guard_and_why_says_so(installed, team):
    address = "http://169.254.169.254/latest/meta-data/"
    installed.apply(schedule("curious", "@every 1s", webhook={"url": address}), namespace=team)

    until("why says so", lambda: "BlockedAddress" in why(installed, team, "curious"))
