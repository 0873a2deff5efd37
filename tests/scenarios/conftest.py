"""Operator and workers together, in memory and in virtual time: whole stories, no server."""

from tests.support import generatedcases  # noqa: F401 - sets how cases are generated
from tests.unit.controller.conftest import logged

__all__ = ["logged"]
