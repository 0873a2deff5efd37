"""What happens around a Pod: its end while requests come, a Redis that refuses."""

from __future__ import annotations

import json

import pytest

from tests.support.realcluster import until
from tools.devcluster.state import Record
from tools.realnode import installation

pytestmark = pytest.mark.alone
NAMESPACE = installation.NAMESPACE

_REQUESTS = """
import http.client, json, os, threading
answered, failed = [], []
HOST = "duepoint-api.duepoint-system.svc"
def ask(is_kept):
    connection = None
    while not os.path.exists("/tmp/stop"):
        if connection is None or not is_kept:
            connection = http.client.HTTPConnection(HOST, 443, timeout=10)
        try:
            connection.request("GET", "/openapi.json")
            answer = connection.getresponse()
            answer.read()
            (answered if answer.status == 200 else failed).append(answer.status)
        except (OSError, http.client.HTTPException) as error:
            failed.append(repr(error))
            connection = None
        if len(answered) == 10:
            print("begun", flush=True)
threads = [threading.Thread(target=ask, args=(kept,)) for kept in (False, False, True)]
[each.start() for each in threads]
[each.join() for each in threads]
print(json.dumps([len(answered), failed]))
"""


def install(cluster, *options):
    installation.install(Record(kubeconfig=cluster.kubeconfig), *options)


def test_a_rolling_restart_of_the_http_api_loses_no_request(installed, team):
    install(installed, "--set=api.enabled=true", "--set=api.tls.enabled=false")
    installed.rolled_out("duepoint-api")
    image = installed.pods("api")[0]["spec"]["containers"][0]["image"]
    command = ["python", "-uc", _REQUESTS]
    container = {"name": "main", "image": image, "command": command}
    spec = {"restartPolicy": "Never", "containers": [container]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "load"}, "spec": spec}
    installed.apply(pod, namespace=team)
    log = ("logs", "load", f"--namespace={team}")
    until("requests are answered", lambda: "begun" in installed(*log))

    for _ in range(2):
        before = {one["metadata"]["name"] for one in installed.pods("api")}
        installed("rollout", "restart", "deploy/duepoint-api", f"--namespace={NAMESPACE}")
        installed.rolled_out("duepoint-api")
        until("the former Pods are gone", lambda before=before: not before & names(installed))
    installed("exec", "load", f"--namespace={team}", "--", "touch", "/tmp/stop")

    last = until("the load has ended", lambda: installed(*log).splitlines()[-1].startswith("["))
    assert last
    answered, failed = json.loads(installed(*log).splitlines()[-1])
    assert answered > 100
    assert failed == []


def names(cluster):
    label = "--selector=app.kubernetes.io/component=api"
    return {one["metadata"]["name"] for one in cluster.items("pods", f"-n={NAMESPACE}", label)}
