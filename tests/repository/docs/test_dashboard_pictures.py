"""The page that shows the Grafana dashboard has each of its rows, as the dashboard is now."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.panels import dashboard, drawing

PAGE = Path(__file__).resolve().parents[3] / "docs" / "howto" / "read-the-grafana-dashboard.md"
TEXT = PAGE.read_text()
ROWS = {row.name: row for row in dashboard.rows({})}
SVG = "{http://www.w3.org/2000/svg}"


def picture(name: str) -> ET.Element:
    return ET.fromstring((PAGE.parent / "panels" / f"{name}.svg").read_text())


def test_the_page_shows_each_row_below_a_heading():
    shown = re.findall(r"^## (.+)\n+!\[([^\]]{20,})\]\(panels/([\w-]+)\.svg\)", TEXT, re.MULTILINE)

    assert [(title, name) for title, _, name in shown] == [
        (row.title.partition(" (")[0], name) for name, row in ROWS.items()
    ]


@pytest.mark.parametrize("name", ROWS)
def test_a_picture_shows_each_panel_of_its_row_with_data(name):
    texts = {each.text for each in picture(name).iter(f"{SVG}text")}

    assert {panel.title for panel in ROWS[name].panels} <= texts, "`make panels` draws it again"
    assert drawing.NO_DATA not in texts


@pytest.mark.parametrize("name", [name for name in ROWS if name != "how-it-stands"])
def test_the_page_says_what_each_number_in_a_picture_means(name):
    said = re.findall(r"^\d\. (.+)\.$", TEXT, re.MULTILINE)
    _, *marks = [each.text for each in picture(name).iter(f"{SVG}title")]

    assert marks[: len(said)] == said
    assert set(marks) == set(said)
