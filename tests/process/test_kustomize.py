"""``gitops/kustomizeconfig.yaml``, through the kustomize that is in kubectl."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
CONFIGURATION = ROOT / "gitops" / "kustomizeconfig.yaml"
KUBECTL = str(Path(sys.executable).with_name("kubectl"))

KUSTOMIZATION = {
    "resources": ["things.yaml"],
    "configurations": ["kustomizeconfig.yaml"],
    "namePrefix": "blue-",
    "namespace": "production",
    "configMapGenerator": [{"name": "settings", "literals": ["a=b"]}],
    "secretGenerator": [{"name": "keys", "literals": ["a=b"]}],
    "labels": [{"pairs": {"team": "reports"}, "includeTemplates": True}],
    "commonAnnotations": {"note": "yes"},
    "images": [{"name": "busybox", "newTag": "9.9"}],
}
TEMPLATE = {
    "metadata": {"labels": {}, "annotations": {}},
    "spec": {
        "serviceAccountName": "reporter",
        "imagePullSecrets": [{"name": "keys"}],
        "initContainers": [
            {
                "name": "first",
                "image": "busybox",
                "envFrom": [{"configMapRef": {"name": "settings"}}],
            }
        ],
        "containers": [
            {
                "name": "main",
                "image": "busybox",
                "envFrom": [{"secretRef": {"name": "keys"}}],
                "env": [
                    {
                        "name": "A",
                        "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "a"}},
                    },
                    {"name": "B", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "a"}}},
                    {"name": "C", "value": "settings"},
                ],
            }
        ],
        "volumes": [
            {"name": "c", "configMap": {"name": "settings"}},
            {"name": "s", "secret": {"secretName": "keys"}},
            {"name": "p", "persistentVolumeClaim": {"claimName": "data"}},
            {
                "name": "both",
                "projected": {
                    "sources": [{"configMap": {"name": "settings"}}, {"secret": {"name": "keys"}}]
                },
            },
        ],
    },
}


def a_schedule(name, **spec):
    return {
        "apiVersion": "duepoint.dev/v1alpha1", "kind": "Schedule",
        "metadata": {"name": name}, "spec": {"schedule": "@daily", **spec},
    }  # fmt: skip


THINGS = [
    a_schedule(
        "report",
        jobTemplate={"metadata": {"labels": {}, "annotations": {}}, "spec": {"template": TEMPLATE}},
    ),
    a_schedule(
        "call",
        webhook={
            "service": {"name": "billing", "port": 80},
            "headers": [{"name": "k", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "a"}}}],
            "auth": {"serviceAccountToken": {"serviceAccountName": "reporter"}},
            "signing": {"secretKeyRefs": [{"name": "keys", "key": "a"}]},
            "tls": {"caRef": {"configMap": "settings", "key": "a"}},
        },
    ),
    a_schedule(
        "trust",
        webhook={
            "url": "https://billing.example.com",
            "tls": {"caRef": {"secret": "keys", "key": "a"}},
        },
    ),
    {
        "apiVersion": "duepoint.dev/v1alpha1", "kind": "ScheduleRun",
        "metadata": {"name": "once"}, "spec": {"scheduleName": "report", "trigger": {}},
    },
    {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "reporter"}},
    {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}},
    {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "billing"}},
]  # fmt: skip


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """(kind, name) -> object, and the generated names, out of ``kubectl kustomize``."""
    folder = tmp_path_factory.mktemp("kustomize")
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(KUSTOMIZATION))
    (folder / "things.yaml").write_text(yaml.safe_dump_all(THINGS))
    shutil.copy(CONFIGURATION, folder)
    done = subprocess.run(
        [KUBECTL, "kustomize", str(folder)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "deprecated" not in done.stderr
    return {
        (each["kind"], each["metadata"]["name"]): each for each in yaml.safe_load_all(done.stdout)
    }


@pytest.fixture(scope="module")
def names(built):
    return {kind: name for kind, name in built if kind in ("ConfigMap", "Secret", "ServiceAccount")}


def test_generated_names_reach_every_place_of_the_template(built, names):
    template = built["Schedule", "blue-report"]["spec"]["jobTemplate"]["spec"]["template"]
    pod = template["spec"]
    settings, keys = names["ConfigMap"], names["Secret"]
    assert re.fullmatch(r"blue-settings-\w{10}", settings)
    assert pod["initContainers"][0]["envFrom"][0]["configMapRef"]["name"] == settings
    (main,) = pod["containers"]
    assert main["envFrom"][0]["secretRef"]["name"] == keys
    assert main["env"][0]["valueFrom"]["configMapKeyRef"]["name"] == settings
    assert main["env"][1]["valueFrom"]["secretKeyRef"]["name"] == keys
    assert main["env"][2]["value"] == "settings"
    volumes = {each["name"]: each for each in pod["volumes"]}
    assert volumes["c"]["configMap"]["name"] == settings
    assert volumes["s"]["secret"]["secretName"] == keys
    assert volumes["p"]["persistentVolumeClaim"]["claimName"] == "blue-data"
    sources = volumes["both"]["projected"]["sources"]
    assert [each.popitem()[1]["name"] for each in sources] == [settings, keys]
    assert pod["imagePullSecrets"] == [{"name": keys}]
    assert pod["serviceAccountName"] == "blue-reporter"


def test_names_reach_a_webhook_and_a_run(built, names):
    webhook = built["Schedule", "blue-call"]["spec"]["webhook"]
    assert webhook["service"]["name"] == "blue-billing"
    assert webhook["headers"][0]["valueFrom"]["secretKeyRef"]["name"] == names["Secret"]
    assert webhook["signing"]["secretKeyRefs"][0]["name"] == names["Secret"]
    assert webhook["auth"]["serviceAccountToken"]["serviceAccountName"] == "blue-reporter"
    assert webhook["tls"]["caRef"]["configMap"] == names["ConfigMap"]
    other = built["Schedule", "blue-trust"]["spec"]["webhook"]
    assert other["tls"]["caRef"]["secret"] == names["Secret"]
    assert built["ScheduleRun", "blue-once"]["spec"]["scheduleName"] == "blue-report"


# -- nothing that the CRD can refer to is forgotten ----------------------------------------------
