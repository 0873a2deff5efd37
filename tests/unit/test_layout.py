"""The shape of the repository that other tools rely on."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_source_root_is_no_package_because_it_would_shadow_the_standard_library():
    import operator

    assert not (ROOT / "operator" / "__init__.py").exists()
    assert callable(operator.itemgetter)


def test_scripts_are_part_of_the_package():
    scripts = ROOT / "operator" / "duepoint" / "delayqueue" / "scripts"
    assert list(scripts.glob("*.lua"))
    assert '"scripts/*.lua"' in (ROOT / "pyproject.toml").read_text()
