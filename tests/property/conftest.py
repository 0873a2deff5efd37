"""Cases are generated as ``generatedcases`` says."""

from __future__ import annotations

from tests.support import generatedcases  # noqa: F401 - sets how cases are generated
