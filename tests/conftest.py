"""Fixtures every test may ask for; each comes from the module that describes it."""

from __future__ import annotations

from tests.support.controlplane import control_plane, kube_namespace
from tests.support.redisserver import key_prefix, own_server, redis_server, shared_servers, valkey

__all__ = [
    "control_plane",
    "key_prefix",
    "kube_namespace",
    "own_server",
    "redis_server",
    "shared_servers",
    "valkey",
]
