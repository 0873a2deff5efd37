"""What the dashboard's operations take and answer, for the OpenAPI document."""

from __future__ import annotations

from typing import Any, Final

Json = dict[str, Any]

_TEXT: Final[Json] = {"type": "string"}
_TIME: Final[Json] = {"type": "string", "format": "date-time"}
_TIME_OR_NULL: Final[Json] = {"type": ["string", "null"], "format": "date-time"}
_COUNT: Final[Json] = {"type": "integer", "minimum": 0}
_NUMBER: Final[Json] = {"type": "number"}
_FLAG: Final[Json] = {"type": "boolean"}
_TEXTS: Final[Json] = {"type": "array", "items": _TEXT}


def _about(schema: Json, description: str) -> Json:
    return {**schema, "description": description}


def _object(properties: Json, *required: str) -> Json:
    found: Json = {"type": "object", "properties": properties}
    return {**found, "required": list(required)} if required else found


def _page_of(name: str) -> Json:
    return _object(
        {
            "items": {"type": "array", "items": {"$ref": f"#/components/schemas/{name}"}},
            "next": _about(_TEXT, "the cursor of the next page; empty at the end"),
        },
        "items",
        "next",
    )


_HEALTH: Final[Json] = _about(
    {
        "type": "string",
        "enum": ["ok", "failing", "problem", "waiting", "suspended", "completed"],
    },
    "problem: a condition says what is wrong; failing: the newest slot failed or was missed; "
    "waiting: the newest edit is not in force yet",
)
_STANDING: Final[Json] = {
    "health": _HEALTH,
    "reason": _about(_TEXT, "of the condition or the slot that health is about"),
    "message": _TEXT,
}
_ROW: Final[Json] = {
    "namespace": _TEXT,
    "name": _TEXT,
    "schedule": _about(_TEXT, "its expressions, with commas between"),
    "timeZone": _TEXT,
    "next": _about(_TIME, "the next slot; absent: there is none"),
    "last": _about(_TIME, "the slot of the newest started run"),
    "result": _about(_TEXT, "outcome of the newest slot"),
    "target": _TEXT,
    **_STANDING,
}

SCHEMAS: Final[Json] = {
    "Whoami": _object(
        {
            "user": _TEXT,
            "namespaces": _about(
                {"type": ["array", "null"], "items": _TEXT},
                "those of the cluster; null: they may not be listed",
            ),
            "mayListAll": _about(_FLAG, "Schedules of all namespaces may be listed"),
        },
        "user", "namespaces", "mayListAll",
    ),
    "ScheduleRow": _object(_ROW, "namespace", "name", "health"),
    "SchedulePage": _page_of("ScheduleRow"),
    "SetRow": _object(
        {
            "namespace": _TEXT,
            "name": _TEXT,
            "members": _COUNT,
            "inFlight": _COUNT,
            "next": _TIME,
            "last": _TIME,
            "lagSeconds": _NUMBER,
            "target": _TEXT,
            **_STANDING,
        },
        "namespace", "name", "health",
    ),
    "SetPage": _page_of("SetRow"),
    "ScheduleDetail": _object(
        {
            **_ROW,
            "uid": _TEXT,
            "createdTime": _TIME,
            "suspend": _FLAG,
            "suspendUntil": _TIME_OR_NULL,
            "suspendReason": {"type": ["string", "null"]},
            "activeCount": _about(_COUNT, "runs that have not ended"),
            "managedBy": {"type": ["string", "null"]},
            "conditions": {
                "type": "array",
                "items": _object(
                    {"type": _TEXT, "reason": _TEXT, "message": _TEXT, "sinceTime": _TIME_OR_NULL}
                ),
            },
            "invalid": _about(_TEXT, "why the spec cannot be read; empty: it can"),
            "upcoming": {"type": "array", "items": _TIME},
            "slots": _about(
                {"type": "array", "items": {"type": "object"}},
                "newest first: entries of status.recentRuns, and others that the queue has kept",
            ),
            "hasOlder": _about(_FLAG, "false: the queue could not be asked for older slots"),
            "advice": _about({"type": "object"}, "what to do next, by reason"),
            "spec": _about({"type": "object"}, "of the object, as it is"),
            "may": _object({"suspend": _FLAG, "trigger": _FLAG, "replay": _FLAG}),
        },
        "namespace", "name", "health", "conditions", "upcoming", "slots", "may",
    ),
    "ScheduleTrigger": {
        **_object({"payload": {"description": "in place of the Schedule's"}}),
        "additionalProperties": False,
    },
    "CreatedRun": _object(
        {"run": _about(_TEXT, "name of the ScheduleRun"), "uid": _TEXT}, "run", "uid"
    ),
    "Suspension": {
        **_object(
            {
                "reason": _about({"type": ["string", "null"], "maxLength": 256}, "for the others"),
                "until": _about(_TIME_OR_NULL, "it resumes by itself then"),
            }
        ),
        "additionalProperties": False,
    },
    "Suspended": _object({"suspend": _FLAG}, "suspend"),
    "Forecast": _object(
        {
            "fromTime": _TIME,
            "timeZone": _TEXT,
            "schedules": _about(_COUNT, "that were counted"),
            "suspended": _about(_COUNT, "of these, without a slot because they are suspended"),
            "unread": _about(_COUNT, "whose spec this version cannot read"),
            "runs": _COUNT,
            "hours": {
                "type": "array",
                "items": _object(
                    {
                        "day": _TEXT,
                        "hour": _COUNT,
                        "runs": _COUNT,
                        "peak": _about(_NUMBER, "slots of the worst minute"),
                        "peakTime": _TIME,
                    }
                ),
            },
            "worst": {
                "type": "array",
                "items": _object(
                    {
                        "time": _TIME,
                        "slots": _NUMBER,
                        "inside": _about({"type": "array", "items": {"type": "object"}},
                                         "expressions with most slots in this minute"),
                    }
                ),
            },
        },
        "fromTime", "hours", "worst",
    ),
    "QueueView": _about(
        _object(
            {
                "points": _about(_COUNT, "that wait"),
                "due": _about(_COUNT, "of these, due and not claimed"),
                "claimed": _about(_COUNT, "of a namespace: that workers hold"),
                "lagSeconds": _about(_NUMBER, "how long the oldest has been due"),
                "deadLetters": _COUNT,
                "outcomes": _about(_COUNT, "that no status shows yet"),
                "server": _TEXT,
                "state": _TEXT,
                "shards": _COUNT,
                "term": _COUNT,
                "memoryUsedBytes": _COUNT,
                "memoryLimitBytes": _about(_COUNT, "0 = none"),
                "persistence": _TEXT,
                "replicas": _COUNT,
                "lossWindow": _TEXT,
                "workers": {
                    "type": "array", "items": _object({"name": _TEXT, "untilTime": _TIME}),
                },
                "troubles": {
                    "type": "array", "items": _object({"worker": _TEXT, "message": _TEXT}),
                },
            },
            "points", "due", "lagSeconds",
        ),
        "Of one namespace only points, due, claimed and lagSeconds.",
    ),
    "ReplayedLetters": _object(
        {
            "replayed": _COUNT,
            "missing": _TEXTS,
            "results": _about(
                {"type": "object"},
                "by id: replayed, gone (no such letter, or none that you may see), "
                "absent (no such Schedule any more), forbidden, unreadable, moving",
            ),
        },
        "replayed", "missing", "results",
    ),
}  # fmt: skip
