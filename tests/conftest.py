"""Fixtures every test may ask for; each comes from the module that describes it."""

from __future__ import annotations

from tests.support.controlplane import control_plane, kube_namespace

__all__ = ["control_plane", "kube_namespace"]
