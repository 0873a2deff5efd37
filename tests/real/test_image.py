"""The image as containers get it: small, whole, and content with any user."""

from __future__ import annotations

import json

from tests.support.realcluster import until
from tools.devcluster.state import REPOSITORY
from tools.realnode import installation
from tools.release import sbom

MOST_BYTES = 250_000_000
NAMESPACE = installation.NAMESPACE

_SIZE = """
import os
found, here = {}, os.lstat("/").st_dev
for folder, folders, files in os.walk("/"):
    folders[:] = [each for each in folders if os.lstat(f"{folder}/{each}").st_dev == here]
    for name in files:
        about = os.lstat(f"{folder}/{name}")
        found[about.st_ino] = about.st_size
print(sum(found.values()))
"""

_PACKAGES = """
import importlib.metadata, json
print(json.dumps([[each.name, each.version] for each in importlib.metadata.distributions()]))
"""


def in_a_pod(cluster, script):
    """What a script prints in the container of a worker."""
    where = ("deploy/duepoint-worker", f"--namespace={NAMESPACE}")
    return cluster("exec", *where, "--", "python", "-c", script)


def test_the_image_is_no_larger_than_it_need_be(installed):
    assert int(in_a_pod(installed, _SIZE)) < MOST_BYTES


def test_the_bill_of_materials_names_what_is_in_the_image(installed):
    listed = json.loads(in_a_pod(installed, _PACKAGES))
    found = {name.lower().replace("_", "-"): version for name, version in listed}
    components = sbom.document(REPOSITORY, "cli", version="1.2.3", epoch=1)["components"]
    billed = {each["name"]: each["version"] for each in components}
    del found["duepoint"]

    assert found.items() <= billed.items()
    # What another system needs has a marker, which stands among the properties.
    assert billed.keys() - found.keys() <= {
        each["name"] for each in components if "properties" in each
    }


def test_any_user_may_run_it(installed, team):
    """As OpenShift starts it: a user without an entry anywhere, in the group root."""
    image = installed.pods("worker")[0]["spec"]["containers"][0]["image"]
    container = {
        "name": "main",
        "image": image,
        "args": ["next", "* * * * *", "--from", "2026-01-01T00:00:00Z"],
        "securityContext": {
            "readOnlyRootFilesystem": True,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    context = {"runAsUser": 1_000_740_000, "runAsGroup": 0, "runAsNonRoot": True}
    spec = {"restartPolicy": "Never", "securityContext": context, "containers": [container]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "any"}, "spec": spec}
    installed.apply(pod, namespace=team)

    def ended():
        phase = installed.get("pod", "any", f"--namespace={team}")["status"]["phase"]
        return phase in ("Succeeded", "Failed") and phase

    assert until("it has ended", ended) == "Succeeded"
    assert "2026-01-01" in installed("logs", "any", f"--namespace={team}")
