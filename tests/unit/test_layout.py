"""The shape of the repository that other tools rely on."""

from __future__ import annotations

import ast
import collections
from pathlib import Path

ROOT = Path(__file__).parents[2]
PRODUCT = ROOT / "operator" / "duepoint"


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
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(path.relative_to(PRODUCT)))
    several = {name: found for name, found in places.items() if len(found) > 1}
    assert not several
