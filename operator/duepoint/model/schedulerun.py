"""``spec`` of a ScheduleRun: one run now, or a range of slots again."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from duepoint.model import targets
from duepoint.model.vocabulary import (
    Fields,
    Int32,
    ObjectName,
    Rule,
    Time,
    any_json,
    before,
    choices,
    one_of,
    within,
)


class TriggerFields(Fields):
    """One run. Exactly one of trigger and backfill."""

    scheduled_time: Annotated[
        Time | None, "Slot that the run carries. unset = the creation of this object."
    ] = None
    payload: Annotated[
        msgspec.Raw,
        any_json(targets.PAYLOAD_BYTES),
        "Any JSON up to 64 KiB in place of the Schedule's payload. unset = the Schedule's own.",
    ] = msgspec.Raw()
    concurrency_policy: Annotated[
        str | None,
        choices("Allow", "Forbid", "Replace", "Queue"),
        "In place of the Schedule's policy, for this run. unset = the Schedule's own.",
    ] = None


class BackfillFields(Fields):
    """The Schedule's slots of a range, each with its own slot time.

    Exactly one of trigger and backfill.
    """

    from_: Annotated[Time, "Start of the range; a slot at this time belongs to it."] = (
        msgspec.field(name="from")
    )
    to: Annotated[Time, "End of the range; a slot at this time does not belong to it."]
    max_parallel: Annotated[
        Int32 | None, within(1, 1_000), "How many runs may be active at once. unset = 5."
    ] = None
    limit: Annotated[
        Int32 | None,
        within(1, 10_000),
        "A range with more slots than this is refused as a whole. unset = 1000.",
    ] = None
    order: Annotated[
        str | None,
        choices("OldestFirst", "NewestFirst"),
        "Which slots go first. unset = OldestFirst.",
    ] = None

    RULES: ClassVar[tuple[Rule, ...]] = (
        before("from", "to", "write a to that is after from", are_required=True),
    )


class RunFields(Fields):
    """What to run."""

    schedule_name: Annotated[ObjectName, "Name of the Schedule, in this namespace."]
    trigger: TriggerFields | None = None
    backfill: BackfillFields | None = None
    ttl_seconds_after_finished: Annotated[
        Int32 | None,
        within(0),
        "Delete this object so many seconds after it has ended. unset = kept.",
    ] = None

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="self == oldSelf",
            message="the spec of a ScheduleRun does not change: delete it and create another one",
        ),
        one_of("spec.", trigger="trigger: {} runs once, now", backfill="a range of slots"),
    )
