"""What ``duepoint import cronjob`` prints is taken by the real API server, read by real kubectl."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from duepoint import cli
from tests.integration.crds import kubeapi
from tests.support.controlplane import ControlPlane

KUBECTL = str(Path(sys.executable).with_name("kubectl"))

# The forms in which tutorials, old clusters and generators write CronJobs.
MANIFESTS = """
apiVersion: batch/v1
kind: CronJob
metadata:
  name: hello
spec:
  schedule: "* * * * *"
  jobTemplate:
    spec:
      template:
        spec:
          containers:
          - name: hello
            image: busybox:1.28
            imagePullPolicy: IfNotPresent
            command:
            - /bin/sh
            - -c
            - date; echo Hello from the Kubernetes cluster
          restartPolicy: OnFailure
---
apiVersion: batch/v1
kind: CronJob
metadata:
  name: everything
  labels: {app: reports, "on": "yes"}
  annotations: {note: "a: b # c\\nsecond line\\n", number: "1e3"}
spec:
  schedule: "CRON_TZ=Europe/Rome */61 2 1-7 * mon"
  suspend: true
  startingDeadlineSeconds: 200
  concurrencyPolicy: Replace
  successfulJobsHistoryLimit: 0
  failedJobsHistoryLimit: 0
  jobTemplate:
    metadata: {name: ignored, labels: {app: reports}, annotations: {"y": "n"}}
    spec:
      completions: 3
      parallelism: 2
      completionMode: Indexed
      backoffLimitPerIndex: 1
      activeDeadlineSeconds: 600
      ttlSecondsAfterFinished: 60
      podFailurePolicy:
        rules:
        - {action: FailJob, onExitCodes: {operator: In, values: [42]}}
      template:
        metadata: {creationTimestamp: null, labels: {app: reports}}
        spec:
          serviceAccountName: reporter
          initContainers: [{name: prepare, image: busybox, restartPolicy: Always}]
          containers:
          - name: main
            image: registry.example.com/reports@sha256:0123456789012345678901234567890123456789012345678901234567890123
            env:
            - {name: "OFF", value: "no"}
            - {name: OCTAL, value: "0o17"}
            - name: KEY
              valueFrom: {secretKeyRef: {name: keys, key: api}}
            args: ["-c", "a\\ttab\\n  and 'quotes' \\"too\\"\\n"]
            resources: {limits: {cpu: 1, memory: 64Mi}}
            ports: [{containerPort: 80}]
            volumeMounts: [{name: data, mountPath: /data}]
          volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
          tolerations: [{operator: Exists}]
          restartPolicy: Never
---
apiVersion: batch/v1beta1
kind: CronJob
metadata: {name: old-version, creationTimestamp: null}
spec:
  schedule: "@hourly"
  concurrencyPolicy: Forbid
  timeZone: null
  jobTemplate:
    metadata: {creationTimestamp: null}
    spec: {template: {metadata: {creationTimestamp: null}, spec: {restartPolicy: OnFailure, containers: [{name: a, image: b, resources: {}}]}}}
status: {}
"""  # noqa: E501 - a manifest of one line, as generators write them


def run(*arguments: str, given: str = "") -> str:
    result = CliRunner().invoke(cli.commands, arguments, input=given)
    assert result.exit_code == 0, result.stderr
    return str(result.stdout)


def kubectl(kubeconfig: Path, *arguments: str, given: str = "") -> str:
    done = subprocess.run(
        [KUBECTL, "--kubeconfig", str(kubeconfig), *arguments],
        input=given, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def tried(kubeconfig: Path, namespace: str, manifests: str) -> list[str]:
    """The names of what a strict server-side dry run accepts."""
    options = ("--dry-run=server", "--validate=strict", "-n", namespace)
    out = kubectl(kubeconfig, "create", *options, "-f", "-", "-o", "name", given=manifests)
    return sorted(line.rpartition("/")[2] for line in out.splitlines())


@pytest.mark.usefixtures("api")
def test_what_kubectl_create_cronjob_writes_is_accepted(kubeconfig: Path, namespace: str) -> None:
    arguments = ("--image=busybox", "--schedule=*/5 * * * *", "--dry-run=client", "-o", "yaml")
    given = kubectl(kubeconfig, "create", "cronjob", "probe", *arguments, "--", "date")
    assert tried(kubeconfig, namespace, run("import", "cronjob", "-f", "-", given=given)) == [
        "probe"
    ]


@pytest.mark.usefixtures("api")
def test_kubectl_reads_the_values_that_were_meant(kubeconfig: Path, namespace: str) -> None:
    made = run("import", "cronjob", "-f", "-", "-n", namespace, given=MANIFESTS)
    out = kubectl(kubeconfig, "create", "--dry-run=server", "-f", "-", "-o", "yaml", given=made)
    _, seen, _ = yaml.safe_load_all(out)
    _, meant, _ = yaml.safe_load_all(MANIFESTS)
    assert seen["metadata"]["labels"] == meant["metadata"]["labels"]
    assert seen["metadata"]["annotations"] == meant["metadata"]["annotations"]
    theirs = meant["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    ours = seen["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    assert ours["containers"][0]["env"] == theirs["containers"][0]["env"]
    assert ours["containers"][0]["args"] == theirs["containers"][0]["args"]
    assert (seen["spec"]["schedule"], seen["spec"]["timeZone"]) == (
        "0 2 1-7 * mon",
        "Europe/Rome",
    )


@pytest.fixture(scope="module")
def stored(api: kubeapi.KubeApi, control_plane: ControlPlane, kubeconfig: Path) -> Iterator[str]:
    """A namespace with CronJobs that the server has completed with its defaults."""
    name = control_plane.create_namespace("cronjobs")
    things = list(yaml.safe_load_all(MANIFESTS))
    for thing in things:
        thing["apiVersion"] = "batch/v1"
        thing["spec"]["schedule"] = thing["spec"]["schedule"].rpartition("Rome ")[2]
        thing["spec"]["suspend"] = True
        thing["metadata"]["namespace"] = name
    listed = {"apiVersion": "v1", "kind": "List", "items": things}
    kubectl(kubeconfig, "apply", "-f", "-", given=json.dumps(listed))
    yield name
    control_plane.discard_namespace(name)


def test_what_kubectl_prints_of_a_namespace_is_imported(kubeconfig: Path, stored: str) -> None:
    given = kubectl(kubeconfig, "get", "cronjobs", "-n", stored, "-o", "yaml")
    made = run("import", "cronjob", "-", given=given)
    assert tried(kubeconfig, stored, made) == ["everything", "hello", "old-version"]
    for schedule in yaml.safe_load_all(made):
        assert set(schedule["metadata"]) <= {"name", "namespace", "labels", "annotations"}
        assert "last-applied" not in json.dumps(schedule)
