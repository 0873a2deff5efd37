"""What a CronJob's manifest means otherwise once it is a Schedule: notes for its author.

Only what can be seen in the manifest is noted here; the whole table of differences is in
``docs/howto/port-a-cronjob.md``.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from duepoint import expressions
from duepoint.cli.check.manifests import Problem, note
from duepoint.cli.cronjob import differences
from duepoint.expressions import cron, descriptors
from duepoint.schedules.spec import ScheduleSpec

#: The shortest life of a finished Job, whose name proves that its slot ran.
_SHORTEST_TTL_SECONDS = 600
_OF_BUSY_SLOTS = {
    "Forbid": "a CronJob starts a slot that was due while a Job ran when that Job ends, if its "
    "deadline allows; a Schedule skips it for good and counts it; the CronJob's way is "
    "concurrencyPolicy: Queue",
}
_OF_ALL = (
    "after an outage the newest missed slot runs, found exactly (a CronJob can miss it where "
    "distances differ), and the others are counted; after an edit or a resume nothing runs that "
    "was due before; Jobs' names end in the slot's unix seconds instead of minutes"
)


def notes(content: dict[str, Any], spec: ScheduleSpec, from_us: int) -> Iterator[Problem]:
    """Everything that differs, in the order of the fields."""
    raw = content["spec"]
    for text in spec.rule.timing.schedules:
        yield from _of_expression(text, spec, from_us)
    if raw.get("timeZone") is None:
        yield note(
            "spec.timeZone",
            "unset: a CronJob takes the zone of its controller manager, a Schedule Etc/UTC",
        )
    deadline = spec.rule.policy.deadline_seconds
    if deadline is not None and deadline < 10:
        yield note(
            "spec.startingDeadlineSeconds",
            f"a CronJob with {deadline} may never run, because its controller looks every 10 s; "
            "a Schedule runs what is on time",
        )
    if raw.get("concurrencyPolicy") in _OF_BUSY_SLOTS:
        yield note("spec.concurrencyPolicy", _OF_BUSY_SLOTS[raw["concurrencyPolicy"]])
    if raw.get("suspend"):
        yield note(
            "spec.suspend",
            "the Schedule will be suspended, too; when it is resumed, it starts nothing that was "
            "due before, where a CronJob starts the newest missed slot at once",
        )
    lives = raw["jobTemplate"]["spec"].get("ttlSecondsAfterFinished")
    if isinstance(lives, int) and lives < _SHORTEST_TTL_SECONDS:
        yield note(
            "spec.jobTemplate.spec.ttlSecondsAfterFinished",
            f"{lives} is raised to {_SHORTEST_TTL_SECONDS}: a Job's name proves that its slot ran",
        )
    yield note("", _OF_ALL)


def _of_expression(text: str, spec: ScheduleSpec, from_us: int) -> Iterator[Problem]:
    if text.lstrip().lower().startswith("@every"):
        yield note(
            "spec.schedule",
            "a CronJob counts @every from its last run, a Schedule from startTime or its creation",
        )
        return
    if text == descriptors.NEVER:
        return
    if why := differences.refusal(text):
        yield note("spec.schedule", f"a CronJob refuses this expression ({why})")
        return
    zone = spec.rule.timing.time_zone
    for difference in _differences(text, zone, from_us):
        yield note("spec.schedule", f"a CronJob {difference.text}, {difference.ours}")


@functools.lru_cache(maxsize=4096)
def _differences(text: str, zone: str, from_us: int) -> tuple[differences.Difference, ...]:
    """Of ten thousand CronJobs many are due at the same times, and a search takes a while."""
    ours = expressions.compile_expression(text, time_zone=zone)  # H, which hashes a name, is ours
    assert isinstance(ours, cron.Cron)  # noqa: S101 - nothing else is left that CronJob takes
    return tuple(differences.around_changes(text, ours, zone, from_us))
