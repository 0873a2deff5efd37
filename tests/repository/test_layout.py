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


def test_no_public_name_of_a_class_stands_twice():
    places = collections.defaultdict(list)
    for path in sorted(PRODUCT.rglob("*.py")):
        for name in PUBLIC_CLASS.findall(path.read_text()):
            places[name].append(str(path.relative_to(PRODUCT)))
    assert len(places) > 100
    several = {name: found for name, found in places.items() if len(found) > 1}
    assert not several


USES_HYPOTHESIS = re.compile(r"^(?:from|import) hypothesis\b", re.MULTILINE)


def test_generated_cases_are_no_unit_tests():
    """Collecting one of them costs every run of the unit tests a second for each process."""
    found = [
        str(path.relative_to(ROOT))
        for path in sorted((ROOT / "tests" / "unit").rglob("*.py"))
        if USES_HYPOTHESIS.search(path.read_text())
    ]
    assert found == [], "move them to tests/property"


def test_every_test_of_generated_cases_has_our_settings():
    tests = ROOT / "tests"
    generating = [
        path for path in tests.rglob("test_*.py") if USES_HYPOTHESIS.search(path.read_text())
    ]
    assert len(generating) > 10
    without = [
        str(path.relative_to(ROOT))
        for path in generating
        if not any(
            (folder / "conftest.py").exists()
            and "generatedcases" in (folder / "conftest.py").read_text()
            for folder in path.parents
            if folder.is_relative_to(tests)
        )
    ]
    assert without == [], "import tests.support.generatedcases in a conftest.py above"
