"""Log lines are gathered here as beside the unit tests."""

from __future__ import annotations

from tests.unit.controller.conftest import logged

__all__ = ["logged"]
