"""What the dashboard's operations take and answer, for the OpenAPI document."""

from __future__ import annotations

from typing import Final

from duepoint.model.schemas import COUNT, TEXT, TIME, TIME_OR_NULL, Json, about, object_of, page_of

_NUMBER: Final[Json] = {"type": "number"}
_FLAG: Final[Json] = {"type": "boolean"}
_TEXTS: Final[Json] = {"type": "array", "items": TEXT}

_HEALTH: Final[Json] = about(
    {
        "type": "string",
        "enum": ["ok", "failing", "problem", "waiting", "suspended", "completed"],
    },
    "problem: the spec is refused, or waits for something that has to be mended; "
    "failing: its runs fail, are late or are missed; "
    "waiting: the newest edit is not in force yet",
)
_STANDING: Final[Json] = {
    "health": _HEALTH,
    "reason": about(TEXT, "of the condition or the slot that health is about"),
    "message": TEXT,
}
_ROW: Final[Json] = {
    "namespace": TEXT,
    "name": TEXT,
    "schedule": about(TEXT, "its expressions, with commas between"),
    "timeZone": TEXT,
    "next": about(TIME, "the next slot; absent: there is none"),
    "last": about(TIME, "the slot of the newest started run"),
    "result": about(TEXT, "outcome of the newest slot"),
    "target": TEXT,
    **_STANDING,
}

SCHEMAS: Final[Json] = {
    "Whoami": object_of(
        {
            "user": TEXT,
            "namespaces": about(
                {"type": ["array", "null"], "items": TEXT},
                "those of the cluster; null: they may not be listed",
            ),
            "mayListAll": about(_FLAG, "Schedules of all namespaces may be listed"),
        },
        "user", "namespaces", "mayListAll",
    ),
    "ScheduleRow": object_of(_ROW, "namespace", "name", "health"),
    "SchedulePage": page_of("ScheduleRow"),
    "SetRow": object_of(
        {
            "namespace": TEXT,
            "name": TEXT,
            "members": COUNT,
            "inFlight": COUNT,
            "next": TIME,
            "last": TIME,
            "lagSeconds": _NUMBER,
            "target": TEXT,
            **_STANDING,
        },
        "namespace", "name", "health",
    ),
    "SetPage": page_of("SetRow"),
    "ScheduleDetail": object_of(
        {
            **_ROW,
            "uid": TEXT,
            "createdTime": TIME,
            "suspend": _FLAG,
            "suspendUntil": TIME_OR_NULL,
            "suspendReason": {"type": ["string", "null"]},
            "activeCount": about(COUNT, "runs that have not ended"),
            "managedBy": {"type": ["string", "null"]},
            "conditions": {
                "type": "array",
                "items": object_of(
                    {"type": TEXT, "reason": TEXT, "message": TEXT, "sinceTime": TIME_OR_NULL}
                ),
            },
            "invalid": about(TEXT, "why the spec cannot be read; empty: it can"),
            "upcoming": {"type": "array", "items": TIME},
            "slots": about(
                {"type": "array", "items": {"type": "object"}},
                "newest first: the entries of status.recentRuns",
            ),
            "advice": about({"type": "object"}, "what to do next, by reason"),
            "spec": about({"type": "object"}, "of the object, as it is"),
            "may": object_of({"suspend": _FLAG, "trigger": _FLAG, "replay": _FLAG}),
        },
        "namespace", "name", "health", "conditions", "upcoming", "slots", "may",
    ),
    "ScheduleTrigger": object_of(
        {"payload": {"description": "in place of the Schedule's"}}, closed=True
    ),
    "CreatedRun": object_of(
        {"run": about(TEXT, "name of the ScheduleRun"), "uid": TEXT}, "run", "uid"
    ),
    "Suspension": object_of(
        {
            "reason": about({"type": ["string", "null"], "maxLength": 256}, "for the others"),
            "until": about(TIME_OR_NULL, "it resumes by itself then"),
        },
        closed=True,
    ),
    "Suspended": object_of({"suspend": _FLAG}, "suspend"),
    "Forecast": object_of(
        {
            "fromTime": TIME,
            "timeZone": TEXT,
            "schedules": about(COUNT, "that were counted"),
            "suspended": about(COUNT, "of these, without a slot because they are suspended"),
            "unread": about(COUNT, "whose spec this version cannot read"),
            "runs": COUNT,
            "hours": {
                "type": "array",
                "items": object_of(
                    {
                        "day": TEXT,
                        "hour": COUNT,
                        "runs": COUNT,
                        "peak": about(_NUMBER, "slots of the worst minute"),
                        "peakTime": TIME,
                    }
                ),
            },
            "worst": {
                "type": "array",
                "items": object_of(
                    {
                        "time": TIME,
                        "slots": _NUMBER,
                        "inside": about(
                            {"type": "array", "items": {"type": "object"}},
                            "expressions with most slots in this minute",
                        ),
                    }
                ),
            },
        },
        "fromTime", "hours", "worst",
    ),
    "QueueView": about(
        object_of(
            {
                "points": about(COUNT, "that wait"),
                "due": about(COUNT, "of these, due and not claimed"),
                "claimed": about(COUNT, "of a namespace: that workers hold"),
                "lagSeconds": about(_NUMBER, "how long the oldest has been due"),
                "deadLetters": COUNT,
                "outcomes": about(COUNT, "that no status shows yet"),
                "server": TEXT,
                "state": TEXT,
                "shards": COUNT,
                "term": COUNT,
                "memoryUsedBytes": COUNT,
                "memoryLimitBytes": about(COUNT, "0 = none"),
                "persistence": TEXT,
                "replicas": COUNT,
                "lossWindow": TEXT,
                "workers": {
                    "type": "array", "items": object_of({"name": TEXT, "untilTime": TIME}),
                },
                "troubles": {
                    "type": "array", "items": object_of({"worker": TEXT, "message": TEXT}),
                },
            },
            "points", "due", "lagSeconds",
        ),
        "Of one namespace only points, due, claimed and lagSeconds.",
    ),
    "ReplayedLetters": object_of(
        {
            "replayed": COUNT,
            "missing": _TEXTS,
            "results": about(
                {"type": "object"},
                "by id: replayed, gone (no such letter, or none that you may see), "
                "absent (no such Schedule any more), forbidden, unreadable, moving",
            ),
        },
        "replayed", "missing", "results",
    ),
}  # fmt: skip
