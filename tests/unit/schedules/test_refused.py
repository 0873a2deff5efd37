"""What the API server refuses of a spec is refused by its reader too, with the same field.

An operator may be older or newer than the CRD that is installed, and `duepoint run` has none.
"""

from __future__ import annotations

import json

import pytest

from duepoint import errors
from duepoint.kube import schedules
from duepoint.schedules import spec
from duepoint.schedules.sets import setspec
from tests.integration.crds.rejected import ALL as OF_SCHEDULES
from tests.integration.crds.rejectedsets import ALL as OF_SETS
from tests.support.builders import CREATED_US

PLACE = {"namespace": "a", "name": "b", "uid": "c", "generation": 1, "created_us": CREATED_US}
READERS = {
    "Schedule": lambda text: spec.parse(text, **PLACE),
    "ScheduleSet": lambda text: setspec.parse(text, **PLACE),
    "ScheduleRun": lambda text: schedules.wanted(text, created_us=CREATED_US),
}


def is_of_the_reader(case) -> bool:
    """Names, unknown fields and Jobs are judged by the API server alone; rows when they are read.

    A time without a zone is read as UTC.
    """
    others = ("metadata", "spec.jobTemplate", "spec.rows.inline[")
    spec = case.thing["spec"]
    is_taken = spec.get("startTime") == "2026-12-24T12:00:00" or "Duplicate" in case.says
    return case.field.startswith("spec.") and not (
        case.field.startswith(others) or "unknown" in case.says or is_taken
    )


REFUSED = [case for case in (*OF_SCHEDULES, *OF_SETS) if is_of_the_reader(case)]


@pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in REFUSED])
def test_the_reader_refuses_it_too(case):
    text = json.dumps(case.thing["spec"]).encode()
    with pytest.raises(errors.InvalidSpec) as caught:
        READERS[case.thing["kind"]](text)
    assert case.field in {each.path for each in caught.value.errors}
