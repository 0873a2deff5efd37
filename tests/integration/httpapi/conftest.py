from __future__ import annotations

import pytest

from tests.support import (
    apiscene,
    generatedcases,  # noqa: F401 - sets how cases are generated
)
from tests.support.servedcrds import duepoint_plane

__all__ = ["duepoint_plane"]


@pytest.fixture
async def scene(control_plane, kube_namespace, own_server, tmp_path):
    async with apiscene.open_scene(control_plane, kube_namespace, own_server, tmp_path) as opened:
        yield opened
