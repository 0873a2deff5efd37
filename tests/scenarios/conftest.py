"""Operator and workers together, in virtual time on an embedded Valkey: whole stories."""

from tests.support import generatedcases  # noqa: F401 - sets how cases are generated
from tests.unit.controller.conftest import logged

__all__ = ["logged"]
