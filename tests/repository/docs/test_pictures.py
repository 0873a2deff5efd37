"""The README shows what Duepoint looks like and how it works: both pictures are there."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
README = (ROOT / "README.md").read_text()
PICTURES = sorted((ROOT / "docs" / "pictures").glob("*.svg"))


@pytest.mark.parametrize("file", PICTURES, ids=lambda file: file.stem)
def test_a_picture_is_an_svg_that_the_readme_shows(file):
    assert ET.fromstring(file.read_text()).tag == "{http://www.w3.org/2000/svg}svg"
    assert f"]({file.relative_to(ROOT)})" in README


def test_every_picture_of_the_readme_exists_and_has_a_description():
    shown = re.findall(r"!\[([^\]]*)\]\((docs/pictures/[^)]+)\)", README)
    assert {path for _, path in shown} == {str(file.relative_to(ROOT)) for file in PICTURES}
    assert all(len(words) > 20 for words, _ in shown)
