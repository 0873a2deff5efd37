"""The installation without Helm, `deploy/kustomize/base/duepoint.yaml`, made from the chart.

It has every object of the chart with its default values, and two Secrets named instead of filled.
It leaves out objects whose deletion with the file would delete Schedules or the index
as well: the CRDs, the namespace and the Secret of the blob key. A release copies the file as
install.yaml and names its image.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from tools import helm
from tools.devcluster.state import REPOSITORY

CHART = REPOSITORY / "charts" / "duepoint"
#: What `crds/` has, in one file for the chart, which adds Helm's metadata; a release copies it.
CRDS = CHART / "files" / "crds" / "duepoint.dev.yaml"
BASE = REPOSITORY / "deploy" / "kustomize" / "base" / "duepoint.yaml"
NAMESPACE = "duepoint-system"
#: Both have to be there before the Pods start; the how-to creates them.
REDIS_SECRET = "duepoint-redis"
BLOB_KEY_SECRET = "duepoint-blob-key"
HEADER = """\
# Duepoint in the namespace duepoint-system. Written by `make generate` from
# charts/duepoint; do not edit. docs/howto/install-with-kustomize.md says what must be there first.
"""
_HELMS_OWN = ("helm.sh/", "app.kubernetes.io/managed-by")
_CLUSTER_KINDS = ("Cluster", "ValidatingAdmission")


def install_objects(chart: Path = CHART) -> list[dict[str, Any]]:
    """Return the objects of an installation, in the order in which they are applied."""
    options = (
        "--set=crds.enabled=false",
        "--set=helmTest.enabled=false",
        f"--set=redis.existingSecret.name={REDIS_SECRET}",
        f"--set=blobKey.existingSecret={BLOB_KEY_SECRET}",
    )
    text = helm.template(chart, release="duepoint", namespace=NAMESPACE, options=options)
    return [_without_helm(one) for one in yaml.safe_load_all(text) if one]


def _without_helm(thing: dict[str, Any]) -> dict[str, Any]:
    """Set the namespace of an object; remove what only Helm reads, also from its Pods."""
    if not thing["kind"].startswith(_CLUSTER_KINDS):
        thing["metadata"].setdefault("namespace", NAMESPACE)
    template = thing.get("spec", {}).get("template", {})
    for metadata in (thing["metadata"], template.get("metadata", {})):
        for kind in ("labels", "annotations"):
            if kind in metadata:
                metadata[kind] = {
                    key: value
                    for key, value in metadata[kind].items()
                    if not key.startswith(_HELMS_OWN)
                }
    return thing


def install_text(chart: Path = CHART) -> str:
    """Return the whole file, with the image that the chart names."""
    return HEADER + yaml.safe_dump_all(install_objects(chart), sort_keys=False, width=120)
