"""Who keeps an object in Git is told by its marks."""

from __future__ import annotations

import pytest

from duepoint.controller.scheduleruns import scheduleruns


@pytest.mark.parametrize(
    ("labels", "annotations", "mark"),
    [
        ({}, {}, ""),
        ({"team": "a"}, {"note": "b"}, ""),
        ({"argocd.argoproj.io/instance": "x"}, {}, "label argocd.argoproj.io/instance"),
        ({"kustomize.toolkit.fluxcd.io/name": "x"}, {}, "label kustomize.toolkit.fluxcd.io/name"),
        ({}, {"argocd.argoproj.io/tracking-id": "x"}, "annotation argocd.argoproj.io/tracking-id"),
        ({"app.kubernetes.io/instance": "x"}, {}, "label app.kubernetes.io/instance"),
        ({"app.kubernetes.io/instance": "x", "app.kubernetes.io/managed-by": "Helm"}, {}, ""),
        ({"argocd.argoproj.io/instance": "x"}, {"argocd.argoproj.io/hook": "PostSync"}, ""),
        ({"helm.toolkit.fluxcd.io/name": "x"}, {"helm.sh/hook": "post-install"}, ""),
    ],
)
def test_marks_of_tools_are_known_and_hooks_are_not_meant(labels, annotations, mark):
    assert scheduleruns.mark_of(labels, annotations) == mark
