"""The operations of the dashboard: one table, as ``httpapi.operations`` is one for members."""

from __future__ import annotations

from typing import Final

from duepoint.httpapi.operations import Needs, Operation

_ROOT: Final = "/v1"
_OF_NAMESPACE: Final = "/v1/namespaces/{namespace}"
_OF_SCHEDULE: Final = "/v1/namespaces/{namespace}/schedules/{schedule}"

_ALL = "`list` on `{}` (group duepoint.dev) of the namespace, or of the cluster without one"
_LIST = _ALL.format("schedules")
_GET = "`get` on the Schedule"
_RUN = "`run` on the Schedule"

OPERATIONS: Final = (
    Operation(
        "whoAmI", "GET", "/whoami", Needs.OWN,
        "Whose token it is, and which namespaces they may list", answers={200: "Whoami"},
        rights="a valid token", base=_ROOT,
    ),
    Operation(
        "listSchedules", "GET", "/schedules", Needs.OWN,
        "Schedules with their next and last slots, in the order of their names",
        ("namespace", "limit", "cursor"), answers={200: "SchedulePage"}, rights=_LIST, base=_ROOT,
        limit=(500, 500),
    ),
    Operation(
        "listSets", "GET", "/schedulesets", Needs.OWN,
        "ScheduleSets with their members, next slot and lag",
        ("namespace", "limit", "cursor"), answers={200: "SetPage"},
        rights=_ALL.format("schedulesets"), base=_ROOT, limit=(500, 500),
    ),
    Operation(
        "getSchedule", "GET", "", Needs.OWN,
        "A Schedule: its conditions, last slots and next times", answers={200: "ScheduleDetail"},
        rights=_GET, base=_OF_SCHEDULE,
    ),
    Operation(
        "triggerSchedule", "POST", "/trigger", Needs.OWN,
        "Run a Schedule once, now: creates a ScheduleRun", body="ScheduleTrigger",
        answers={201: "CreatedRun"},
        rights=f"`create` on `scheduleruns` (group duepoint.dev) of the namespace and {_RUN}",
        base=_OF_SCHEDULE,
    ),
    Operation(
        "suspendSchedule", "POST", "/suspend", Needs.OWN,
        "Hold a Schedule: none of its slots runs until it resumes", body="Suspension",
        answers={200: "Suspended"}, rights="`get` and `patch` on the Schedule", base=_OF_SCHEDULE,
    ),
    Operation(
        "resumeSchedule", "POST", "/resume", Needs.OWN,
        "Let a Schedule go on; slots of the suspension do not run",
        answers={200: "Suspended"}, rights="`patch` on the Schedule", base=_OF_SCHEDULE,
    ),
    Operation(
        "forecastLoad", "GET", "/forecast", Needs.OWN,
        "How many slots of Schedules each coming hour, and its worst minute, has",
        ("namespace", "days", "timeZone"), answers={200: "Forecast"}, rights=_LIST, base=_ROOT,
    ),
    Operation(
        "getQueue", "GET", "/queue", Needs.OWN,
        "How full the queue is, how late, and who works on it",
        ("namespace",), answers={200: "QueueView"}, rights=_LIST, base=_ROOT,
    ),
    Operation(
        "listAllLetters", "GET", "/deadletters", Needs.OWN,
        "The newest slots of Schedules of all namespaces that were given up; `next` is empty",
        ("limit",), answers={200: "LetterPage"},
        rights="`list` on `schedules` (group duepoint.dev) of the cluster", base=_ROOT,
        limit=(200, 200),
    ),
    Operation(
        "listScheduleLetters", "GET", "/deadletters", Needs.OWN,
        "Slots of Schedules that were given up, newest first", ("limit", "cursor"),
        answers={200: "LetterPage"},
        rights="`list` on `schedules` (group duepoint.dev) of the namespace", base=_OF_NAMESPACE,
        limit=(200, 200),
    ),
    Operation(
        "replayScheduleLetters", "POST", "/deadletters:replay", Needs.OWN,
        "Run slots of Schedules again that were given up", body="Replay",
        answers={200: "ReplayedLetters"},
        rights=f"`list` on `schedules` of the namespace, and {_RUN} of each letter",
        base=_OF_NAMESPACE,
    ),
)  # fmt: skip
