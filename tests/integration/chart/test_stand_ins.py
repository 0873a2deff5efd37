"""What the chart renders for stand-ins of names is what it renders for the names."""

from __future__ import annotations

import json

from tests.support import stack


def test_the_objects_of_an_installation_are_those_of_its_names():
    names = ("a-system-of-its-own", "first,second")
    found = stack.rendered(*names)
    assert found == json.loads(stack.template_text(*names))
    assert "stand-in" not in json.dumps(found)
    own = stack.rendered("alone", "alone")
    assert own == json.loads(stack.template_text("alone", "alone"))
