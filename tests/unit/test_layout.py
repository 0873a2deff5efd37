"""The shape of the repository that other tools rely on."""

from __future__ import annotations

import collections
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PRODUCT = ROOT / "operator" / "duepoint"
PUBLIC_CLASS = re.compile(r"^ *class ([A-Za-z]\w*)[(:]", re.MULTILINE)


def test_the_source_root_is_no_package_because_it_would_shadow_the_standard_library():
    import operator

    assert not (ROOT / "operator" / "__init__.py").exists()
    assert callable(operator.itemgetter)


def test_scripts_are_part_of_the_package():
    scripts = ROOT / "operator" / "duepoint" / "delayqueue" / "scripts"
    assert list(scripts.glob("*.lua"))
    assert '"scripts/*.lua"' in (ROOT / "pyproject.toml").read_text()


def test_no_public_name_of_a_class_stands_twice():
    places = collections.defaultdict(list)
    for path in sorted(PRODUCT.rglob("*.py")):
        for name in PUBLIC_CLASS.findall(path.read_text()):
            places[name].append(str(path.relative_to(PRODUCT)))
    assert len(places) > 100
    several = {name: found for name, found in places.items() if len(found) > 1}
    assert not several


def test_generated_cases_are_no_unit_tests():
    """Collecting one of them costs every run of the unit tests a second for each process."""
    found = [
        str(path.relative_to(ROOT))
        for path in sorted((ROOT / "tests" / "unit").rglob("*.py"))
        if re.search(r"^(?:from|import) hypothesis\b", path.read_text(), re.MULTILINE)
    ]
    assert found == [], "move them to tests/property"
