"""A Stack for each test, on a Valkey that it may kill."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support import stack as stacks
from tests.support.controlplane import ControlPlane
from tests.support.redisserver import RedisServer
from tests.support.servedcrds import duepoint_plane

__all__ = ["duepoint_plane"]


@pytest.fixture
async def stack(duepoint_plane: ControlPlane, tmp_path: Path) -> AsyncIterator[stacks.Stack]:
    server = RedisServer("valkey", tmp_path)
    server.start()
    try:
        async with stacks.installed(
            duepoint_plane, server, tmp_path, are_prepared=True
        ) as installed:
            yield installed
    finally:
        server.stop()
