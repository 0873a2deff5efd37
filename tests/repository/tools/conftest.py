"""What tests of our tools share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.devcluster import binaries


@pytest.fixture
def compiled(monkeypatch):
    """Names that the compiler was asked for, instead of minutes of compiling."""
    asked: list[str] = []

    def compile_into(recipe, folder: Path) -> None:
        for name in recipe.commands:
            asked.append(name)
            (folder / name).write_text("built")

    monkeypatch.setattr(binaries, "compile_into", compile_into)
    return asked
