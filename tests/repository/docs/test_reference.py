"""The reference has every metric, reason and range of a setting, and no others."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from duepoint import settings, telemetry
from duepoint.schedules.conditions import Reason
from tools import settingsdoc

REFERENCE = Path(__file__).resolve().parents[3] / "docs" / "reference"


def first_cells(page: str) -> list[str]:
    """What stands first in each row of the page's tables, where it is code."""
    return re.findall(r"^\| `([^`]+)` \|", (REFERENCE / page).read_text(), re.MULTILINE)


def test_every_metric_and_every_reason_has_one_row_and_every_row_one() -> None:
    # A counter's samples carry the suffix that its family's name leaves out.
    served = {
        family.name + ("_total" if family.type == "counter" else "")
        for family in telemetry.registry.collect()
        if family.name.startswith("duepoint_")
    }
    assert sorted(first_cells("metrics.md")) == sorted(served)
    assert sorted(first_cells("errors-and-reasons.md")) == sorted(Reason)


FIELDS = {
    field.name: field.metadata["read"]
    for kind in (settings.OperatorSettings, settings.WorkerSettings, settings.ApiSettings)
    for field in kind.__dataclass_fields__.values()
}
RANGES = {
    name: (int(found[1]), int(found[2]))
    for name, values in settingsdoc.VALUES.items()
    if (found := re.match(r"(\d+) to (\d+)", values))
}


@pytest.mark.parametrize("name", RANGES)
def test_a_range_on_the_page_of_settings_is_the_range_that_is_read(name: str) -> None:
    read, (least, most) = FIELDS[name], RANGES[name]
    assert (read(str(least)), read(str(most))) == (least, most)
    for outside in (least - 1, most + 1):
        with pytest.raises(ValueError, match="out of range"):
            read(str(outside))
