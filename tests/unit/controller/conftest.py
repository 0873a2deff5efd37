"""Log lines are gathered, not rendered: drawing a traceback takes longer than most tests."""

from __future__ import annotations

import pytest
import structlog


@pytest.fixture(autouse=True)
def logged():
    with structlog.testing.capture_logs() as lines:
        yield lines
