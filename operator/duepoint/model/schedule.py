"""``spec`` of a Schedule.

The CRD has defaults only for the fields that have one in CronJob, and a few more. The program
applies all others; descriptions state them as "unset = ...".
"""

from __future__ import annotations

import datetime as dt
from typing import Annotated, ClassVar

import msgspec

from duepoint.model import targets
from duepoint.model.vocabulary import (
    ATOMIC,
    Duration,
    Expression,
    Int32,
    Int64,
    Keywords,
    Rule,
    before,
    choices,
    needs,
    one_of,
    within,
)


class PolicyValues(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The fields that decide how slots are treated, with the values that apply if unset."""

    starting_deadline_seconds: int | None = None
    catch_up_policy: str = "Latest"
    catch_up_limit: int = 100
    concurrency_policy: str = "Allow"
    max_concurrency: int = 1
    queue_limit: int = 1
    successful_jobs_history_limit: int = 3
    failed_jobs_history_limit: int = 1


class ScheduleFields(targets.TargetFields):
    """When to run, what to run, and what to do about slots that are late, missed or busy."""

    schedule: Annotated[
        Expression | None,
        "When to run: 5 cron fields (minute hour day-of-month month day-of-week), 6 (seconds "
        "first) or 7 (year last), a macro such as @daily, @every 1h30m, or @at "
        "2026-12-24T18:00:00Z for once. H picks a value from the object's name, which spreads "
        "many Schedules; H(0-29) 0 * * * picks a minute of the first half hour. Exactly one of "
        "schedule and schedules.",
    ] = None
    schedules: Annotated[
        tuple[Expression, ...] | None,
        Keywords(minItems=1, maxItems=32),
        ATOMIC,
        "Several expressions, 1 to 32; times that coincide run once. Exactly one of schedule and "
        "schedules.",
    ] = None
    time_zone: Annotated[targets.TimeZoneName | None, Keywords(default="Etc/UTC")] = None
    dst: targets.Dst | None = None
    jitter: Annotated[
        Duration | None,
        "Largest delay added to each slot, such as 30s. Each slot has a delay of its own, the "
        "same on every replica; it is never early and never past the next slot. unset = 0. For "
        "one delay of the whole Schedule write H in the expression.",
    ] = None
    start_time: Annotated[
        dt.datetime | None,
        "No slot before this time; also the anchor of @every. unset = no lower bound, and @every "
        "is anchored at creation.",
    ] = None
    end_time: Annotated[dt.datetime | None, "No slot at or after this time. unset = no end."] = None
    max_runs: Annotated[
        Int64 | None,
        within(1),
        "Stop after this many started runs of regular slots since its creation; manual and "
        "backfilled ones do not count. unset = no limit.",
    ] = None
    suspend: Annotated[
        bool | None, Keywords(default=False), "Hold all further slots; each is counted as skipped."
    ] = None
    suspend_until: Annotated[
        dt.datetime | None,
        "With suspend: true, the Schedule counts as resumed from this time on; nothing is "
        "written. unset = held until suspend is false.",
    ] = None
    suspend_reason: targets.SuspendReason | None = None
    starting_deadline_seconds: targets.StartingDeadline | None = None
    catch_up_policy: Annotated[
        str | None,
        choices("Latest", "All", "None", default="Latest"),
        "Which of several overdue slots run after an outage - the newest, all of them oldest "
        "first, or none that is more than 10 s late.",
    ] = None
    catch_up_limit: targets.CatchUpLimit | None = None
    concurrency_policy: Annotated[
        str | None,
        choices("", "Allow", "Forbid", "Replace", "Queue", default="Allow"),
        "What a due slot does while a former run is active - Allow starts it too, Forbid skips "
        "it, Replace deletes the active Job first, Queue lets it wait. An empty text is Allow.",
    ] = None
    max_concurrency: Annotated[
        Int32 | None,
        within(1, 100),
        "With Forbid and Queue, how many runs may be active at once. unset = 1.",
    ] = None
    queue_limit: Annotated[
        Int32 | None,
        within(1, 1_000),
        "With Queue, how many slots may wait; beyond it the oldest waiting one is skipped. unset "
        "= 1.",
    ] = None
    payload: targets.Payload = msgspec.Raw()
    job_template: targets.JobTemplate = msgspec.Raw()
    successful_jobs_history_limit: Annotated[
        Int32 | None,
        Keywords(default=3),
        within(0, 2_147_483_647),
        "How many succeeded Jobs are kept; older ones are deleted.",
    ] = None
    failed_jobs_history_limit: Annotated[
        Int32 | None,
        Keywords(default=1),
        within(0, 2_147_483_647),
        "How many failed Jobs are kept; older ones are deleted.",
    ] = None

    RULES: ClassVar[tuple[Rule, ...]] = (
        one_of("spec.", schedule="one expression", schedules="a list of them"),
        targets.ONE_TARGET,
        before("startTime", "endTime", "write an endTime after startTime"),
        needs("catchUpLimit", "catchUpPolicy", "All"),
        needs("maxConcurrency", "concurrencyPolicy", "Forbid", "Queue"),
        needs("queueLimit", "concurrencyPolicy", "Queue"),
    )
