"""Whether an object is kept in Git by a tool that would make it again once it is deleted.

Argo CD and Flux leave marks on what they apply. A ScheduleRun with such a mark and a time to live
runs, is deleted, is made again from Git, and runs for ever. Hooks of a sync or a release are made
for each one and are not kept. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

_LABELS = (
    "argocd.argoproj.io/instance",
    "kustomize.toolkit.fluxcd.io/name",
    "helm.toolkit.fluxcd.io/name",
)
_ANNOTATIONS = ("argocd.argoproj.io/tracking-id",)
_HOOKS = ("argocd.argoproj.io/hook", "helm.sh/hook")
#: What Argo CD marks with unless told otherwise, and what Helm charts carry, too.
_INSTANCE, _MANAGER = "app.kubernetes.io/instance", "app.kubernetes.io/managed-by"


def mark_of(labels: Mapping[str, str], annotations: Mapping[str, str]) -> str:
    """The label or annotation that says so; empty where there is none."""
    if any(hook in annotations for hook in _HOOKS):
        return ""
    for name in _LABELS:
        if name in labels:
            return f"label {name}"
    for name in _ANNOTATIONS:
        if name in annotations:
            return f"annotation {name}"
    if _INSTANCE in labels and labels.get(_MANAGER, "") != "Helm":
        return f"label {_INSTANCE}"
    return ""
