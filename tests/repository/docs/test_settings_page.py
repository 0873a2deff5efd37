"""The page of settings is what the settings give, and the ranges it tells are the real ones."""

import dataclasses
import re

import pytest

from duepoint import settings
from tools import settingsdoc

FIELDS = {
    field.name: field
    for kind in (settings.OperatorSettings, settings.WorkerSettings, settings.ApiSettings)
    for field in dataclasses.fields(kind)
}
RANGES = {
    name: (int(found[1]), int(found[2]))
    for name, note in settingsdoc.NOTES.items()
    if (found := re.match(r"(\d+) to (\d+)", note.values))
}
CHOICES = {
    name: settingsdoc.NOTES[name].values.split(", ")
    for name in ("log_level", "log_format", "egress_mode", "egress_allow_http")
}


def test_the_page_is_current():
    assert settingsdoc.PAGE.read_text() == settingsdoc.page()


def test_a_stale_page_is_told_and_not_touched(tmp_path, monkeypatch, capsys):
    stale = tmp_path / "settings.md"
    stale.write_text("old")
    monkeypatch.setattr(settingsdoc, "PAGE", stale)

    assert settingsdoc.main(["--check"]) == 1
    assert stale.read_text() == "old"
    assert "tools.settingsdoc" in capsys.readouterr().err


def test_every_setting_has_a_note_and_every_note_a_setting():
    assert settingsdoc.NOTES.keys() == FIELDS.keys()


@pytest.mark.parametrize("name", RANGES)
def test_a_range_on_the_page_is_the_range_that_is_read(name):
    read, (least, most) = FIELDS[name].metadata["read"], RANGES[name]

    assert (read(str(least)), read(str(most))) == (least, most)
    for outside in (least - 1, most + 1):
        with pytest.raises(ValueError, match="out of range"):
            read(str(outside))


@pytest.mark.parametrize("name", CHOICES)
def test_the_choices_on_the_page_are_those_that_are_read(name):
    read = FIELDS[name].metadata["read"]

    for choice in CHOICES[name]:
        read(choice)
    with pytest.raises(ValueError, match="write one of " + ", ".join(CHOICES[name])):
        read("something else")
