"""Settings of generated cases, which ``generatedcases`` makes."""

from __future__ import annotations

from tests.support import generatedcases  # noqa: F401 - sets how cases are generated
