"""The kinds of objects, and the Struct of the spec of each."""

from __future__ import annotations

from typing import Final

from duepoint.model.schedule import ScheduleFields
from duepoint.model.schedulerun import RunFields
from duepoint.model.scheduleset import SetFields
from duepoint.model.vocabulary import Fields

KINDS: Final[dict[str, type[Fields]]] = {
    "Schedule": ScheduleFields,
    "ScheduleRun": RunFields,
    "ScheduleSet": SetFields,
}
