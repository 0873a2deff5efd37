"""Go programs that some tests need; a test is skipped if they have not been built.

They take minutes to build, so no test does that; the reason of the skip says how to.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.devcluster import binaries


def program(name: str) -> Path:
    """Return the path of a program of `tools/controlplane`, or skip the test."""
    if binaries.not_cached([name]):
        pytest.skip(f"{name} is not built; once: python -m tools.devcluster tool {name}")
    return binaries.ensure([name])[name]
