"""What a CronJob makes of the same expression or manifest, where it is not the same.

CronJob is built on robfig/cron v3, whose times in a zone are plain: a local time that does not
exist is left out, one that comes twice runs twice. That is ``gap: Skip, overlap: Both`` of our
engine, so the comparison is between two expressions of ours. Which texts it takes at all is
judged by a small grammar here. Source: ``parser.go`` and ``spec.go`` of robfig/cron v3.0.1 and
``cronjob_controllerv2.go`` of Kubernetes 1.36.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from duepoint import expressions
from duepoint.cli import clockchanges, instants
from duepoint.cli.manifests import Problem
from duepoint.expressions import cron, fields, syntax
from duepoint.schedules.spec import ScheduleSpec

GAP, OVERLAP = expressions.Gap.SKIP, expressions.Overlap.BOTH

_ITEM = re.compile(
    r"(?P<low>[*?]|\d+|[A-Za-z]{3})(?:-(?P<high>\d+|[A-Za-z]{3}))?(?:/\d+)?", re.ASCII
)
_FIVE = (fields.MINUTE, fields.HOUR, fields.DAY, fields.MONTH, fields.WEEKDAY)
#: The shortest life of a finished Job, whose name proves that its slot ran.
_SHORTEST_TTL_SECONDS = 600


def refusal(text: str) -> str:
    """Why CronJob does not take the text; empty where it does."""
    text = text.strip()
    head = text.split(maxsplit=1)[0] if text else ""
    if head.lower() == "@at":
        return "there is no @at"
    if head.startswith("@"):
        return ""
    words = text.split()
    if len(words) != 5:
        return f"{len(words)} fields instead of 5"
    for kind, word in zip(_FIVE, words, strict=True):
        for item in word.split(","):
            if why := _item_refusal(kind, item):
                return f"{kind.name} {item}: {why}"
    return ""


def _item_refusal(kind: fields.Kind, item: str) -> str:
    parts = _ITEM.fullmatch(item)
    if parts is None or parts["low"].upper() == "H":
        return "it knows no L, W, # or H"
    ends = [_value(kind, parts[name]) for name in ("low", "high") if parts[name]]
    if 7 in ends and kind is fields.WEEKDAY:
        return "it writes Sunday as 0"
    if len(ends) == 2 and ends[0] > ends[1]:
        return "its ranges do not wrap"
    return ""


def _value(kind: fields.Kind, word: str) -> int:
    if word.isdecimal():
        return int(word)
    names = kind.names
    return kind.low + names.index(word.upper()) if word.upper() in names else kind.low


def on_clock_changes(
    ours: cron.Cron, time_zone: str, text: str, from_us: int
) -> Iterator[tuple[clockchanges.Change, list[int], list[int]]]:
    """The next changes of the clock at which CronJob has other slots: ours and its."""
    theirs = expressions.compile_expression(text, time_zone=time_zone, gap=GAP, overlap=OVERLAP)
    for change in clockchanges.coming(ours, time_zone, from_us):
        pair = change.slots_us(ours), change.slots_us(theirs)
        if pair[0] != pair[1]:
            yield change, *pair


def differences(content: dict[str, Any], spec: ScheduleSpec, from_us: int) -> Iterator[Problem]:
    """What a CronJob's manifest means otherwise as a Schedule; notes."""
    raw = content["spec"]
    if raw.get("timeZone") is None:
        yield _note(
            "spec.timeZone",
            "unset: a CronJob takes the zone of its controller manager, a Schedule Etc/UTC",
        )
    for text in spec.rule.timing.schedules:
        yield from _of_expression(text, spec, from_us)
    deadline = spec.rule.policy.deadline_seconds
    if deadline is not None and deadline < 10:
        yield _note(
            "spec.startingDeadlineSeconds",
            f"a CronJob with {deadline} may never run, because its controller looks every 10 s; "
            "a Schedule runs what is on time",
        )
    if raw.get("suspend"):
        yield _note("spec.suspend", "the Schedule will be suspended, too")
    lives = raw["jobTemplate"]["spec"].get("ttlSecondsAfterFinished")
    if isinstance(lives, int) and lives < _SHORTEST_TTL_SECONDS:
        yield _note(
            "spec.jobTemplate.spec.ttlSecondsAfterFinished",
            f"{lives} is raised to {_SHORTEST_TTL_SECONDS}: a Job's name proves that its slot ran",
        )
    yield _note(
        "",
        "after an outage the newest missed slot runs, found exactly; the others are counted; Jobs' "
        "names end in the slot's unix seconds instead of minutes",
    )


def _of_expression(text: str, spec: ScheduleSpec, from_us: int) -> Iterator[Problem]:
    timing = spec.rule.timing
    if text.lstrip().lower().startswith("@every"):
        yield _note(
            "spec.schedule",
            "a CronJob counts @every from its last run, a Schedule from startTime or its creation",
        )
        return
    ours = expressions.compile_expression(
        text,
        time_zone=timing.time_zone,
        gap=expressions.Gap(timing.gap),
        overlap=expressions.Overlap(timing.overlap),
        identity=spec.identity,
        from_us=None,
    )
    if not isinstance(ours, cron.Cron) or refusal(text):
        return
    local = instants.LocalTime(timing.time_zone)
    for change, our_slots, their_slots in on_clock_changes(ours, timing.time_zone, text, from_us):
        day = local.text(change.at_us)[:10]
        yield _note(
            "spec.schedule",
            f"on {day} a CronJob {_runs(their_slots, local)}, a Schedule "
            f"{_runs(our_slots, local)}; {_as_cronjob(change)} for the CronJob's way",
        )


def _as_cronjob(change: clockchanges.Change) -> str:
    return "dst: {gap: Skip}" if change.is_gap else "dst: {overlap: Both}"


def _runs(slots_us: list[int], local: instants.LocalTime) -> str:
    if not slots_us:
        return "does not run"
    times = " and ".join(local.text(slot_us)[11:] for slot_us in slots_us[:4])
    return f"runs at {times}" + (" and later" if len(slots_us) > 4 else "")


def told(
    changes: Iterator[tuple[clockchanges.Change, list[int], list[int]]], local: instants.LocalTime
) -> Iterator[str]:
    """The CronJob's side of each difference, as a sentence without its end."""
    for change, _, their_slots in changes:
        yield f"{_runs(their_slots, local)} on {local.text(change.at_us)[:10]}"


def is_sweeping(text: str, identity: str) -> bool:
    """Whether a cron text keeps its rhythm through changes of the clock."""
    return syntax.parse(text.strip(), identity=identity).sweeping


def _note(path: str, message: str) -> Problem:
    return Problem(path=path, message=message, is_note=True)
