"""What is written from sources is what the sources give today."""

from __future__ import annotations

from tools import generate
from tools.release import versions


def test_what_is_made_of_sources_is_current() -> None:
    """What Helm makes is compared in tests/integration, where there is Helm."""
    stale = [str(path) for path, text in generate.wanted() if path.read_text() != text]
    assert stale == [], "make generate"


def test_package_and_chart_have_one_version() -> None:
    assert versions.differing() == []
