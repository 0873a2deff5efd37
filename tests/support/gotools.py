"""Programs that only some tests need: used where they are built, else the test is skipped.

They take minutes to build, so no test does it by itself; the reason of the skip says how.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.devcluster import binaries


def program(name: str) -> Path:
    """The path of a program of `tools/controlplane`, or a skip."""
    if binaries.not_cached([name]):
        pytest.skip(f"{name} is not built; once: python -m tools.devcluster tool {name}")
    return binaries.ensure([name])[name]
