"""A random story for each seed: some Schedules, or a crowd, some events, and calm after them."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from tests.simulation import faults, plans, scopes
from tests.simulation.faults import Event, Kind
from tests.simulation.plans import Planned, Story

#: Events hit messages of the first part; the rest shows that all is well again.
CALM_SECONDS = 70.0
SECONDS = 160.0
#: Roughly, messages before the first Schedule exists, and in each second after it.
_FIRST_MESSAGE = 70
_MESSAGES_PER_SECOND = 6
_PERIODS = (5, 7, 10, 20, 30)
_WEIGHTS = {
    Kind.KILL_BEFORE: 6, Kind.KILL_AFTER: 6, Kind.LOSE_REPLY: 6, Kind.RESET_REPLY: 6,
    Kind.FALL_BACK: 6, Kind.PAUSE_BEFORE: 4, Kind.FLUSH: 4, Kind.LATE_REQUEST: 4, Kind.RUN: 4,
    Kind.EDIT: 2, Kind.RETIME: 2, Kind.DELETE: 2, Kind.SUSPEND: 2, Kind.RESUME: 4,
    Kind.RESET_REQUEST: 2, Kind.LOSE_REQUEST: 2, Kind.LATE_REPLY: 2, Kind.OUTAGE: 2,
    Kind.API_OUTAGE: 2, Kind.DRAIN: 2, Kind.TAKEOVER: 2, Kind.PAUSE_AFTER: 2, Kind.PARTITION: 2,
}  # fmt: skip
#: Members are signed with the key: after a change of key they must be written again.
_NOT_FOR_SETS = frozenset({Kind.NEW_KEY})
_OF_SERVER_CLOCK = frozenset({Kind.SERVER_AHEAD, Kind.SERVER_BEHIND})


def of_seed(seed: int) -> Story:
    """Return the story of a seed; always the same one."""
    return _of_some(random.Random(f"story of {seed}"), (0, 1, 1, 2, 2, 3, 4))


def of_storm(seed: int) -> Story:
    """Return a story with many events, one in the recovery from another."""
    return _of_some(random.Random(f"storm of {seed}"), (12, 16, 20))


def _of_some(dice: random.Random, counts: Sequence[int]) -> Story:
    planned = [_schedule(dice, number) for number in range(dice.choice((1, 1, 2, 3)))]
    if dice.random() < 0.3:
        planned += _members(dice)
    last = _FIRST_MESSAGE + int(_MESSAGES_PER_SECOND * CALM_SECONDS)
    kinds = _kinds(dice, has_sets=any(each.set_name for each in planned))
    events = [_event(dice, last, planned, kinds) for _ in range(dice.choice(counts))]
    return Story(
        schedules=planned,
        seconds=SECONDS,
        calm_seconds=CALM_SECONDS,
        job_seconds=dice.choice((0.5, 2.0, 8.0)),
        answers=_answers(dice),
        events=sorted(events),
    )


#: Weights of events in stories about ``Replace``: they cause a retry while the slot's Job runs.
_REPLACING_WEIGHTS = {
    Kind.FALL_BACK: 8, Kind.FLUSH: 5, Kind.TAKEOVER: 5, Kind.PAUSE_BEFORE: 3, Kind.PAUSE_AFTER: 3,
    Kind.KILL_BEFORE: 2, Kind.KILL_AFTER: 3, Kind.LOSE_REPLY: 3, Kind.RESET_REPLY: 3,
    Kind.LATE_REQUEST: 2, Kind.LATE_REPLY: 2, Kind.API_OUTAGE: 2,
}  # fmt: skip
_REPLACING_AMOUNTS = {
    Kind.FALL_BACK: (5, 20, 60, 200, 400),
    Kind.PAUSE_BEFORE: (2, 5, 8, 12),
    Kind.PAUSE_AFTER: (2, 5, 8, 12),
    Kind.LATE_REQUEST: (0.1, 1, 3),
    Kind.LATE_REPLY: (1, 3),
    Kind.API_OUTAGE: (2, 8),
}
_REPLACING_LAST_MESSAGE = 1500


def of_replacing(seed: int) -> Story:
    """Return a story of Jobs that outlast several slots and replace one another."""
    dice = random.Random(f"replacing of {seed}")
    timing = {
        "schedule": f"@every {dice.choice((2, 3))}s",
        "catchUpPolicy": "All",
        "concurrencyPolicy": "Replace",
        "successfulJobsHistoryLimit": dice.choice((0, 2)),
    }
    events = []
    for _ in range(dice.choice((8, 12, 16))):
        kind = dice.choices(list(_REPLACING_WEIGHTS), list(_REPLACING_WEIGHTS.values()))[0]
        amounts = _REPLACING_AMOUNTS.get(kind)
        amount = float(dice.choice(amounts)) if amounts else None
        at = dice.randint(_FIRST_MESSAGE, _REPLACING_LAST_MESSAGE)
        events.append(faults.usual(kind, at, amount))
    return Story(
        schedules=[Planned(name="s0", target="job", timing=timing)],
        seconds=SECONDS,
        calm_seconds=CALM_SECONDS,
        workers=3,
        job_seconds=dice.choice((3.0, 12.0)),
        events=sorted(events),
    )


#: Periods of a crowd, and roughly how many messages a second each of its Schedules causes.
_CROWD_PERIODS = (1, 1, 2, 3, 5)
_CROWD_SIZES = (40, 80, 120)
_CROWD_MESSAGES = {"job": 0.2, "webhook": 0.5, "stream": 0.01}


def of_crowd(seed: int) -> Story:
    """Return a story of many Schedules that fire together, so claims and settlements are large."""
    dice = random.Random(f"crowd of {seed}")
    targets = dice.choice((("stream",), ("webhook", "stream"), ("job", "webhook", "stream")))
    planned = [_of_crowd(dice, number, targets) for number in range(dice.choice(_CROWD_SIZES))]
    messages = sum(_CROWD_MESSAGES[each.target] for each in planned)
    last = _FIRST_MESSAGE + int((_MESSAGES_PER_SECOND + messages) * CALM_SECONDS)
    kinds = _kinds(dice, has_sets=False)
    events = [_event(dice, last, planned, kinds) for _ in range(dice.randint(1, 4))]
    return Story(
        schedules=planned, seconds=SECONDS, calm_seconds=CALM_SECONDS, events=sorted(events)
    )


def _of_crowd(dice: random.Random, number: int, targets: Sequence[str]) -> Planned:
    target = dice.choice(targets)
    # few Jobs: each is an object with a controller of its own
    period = 10 if target == "job" else dice.choice(_CROWD_PERIODS)
    timing: dict[str, Any] = {"schedule": f"@every {period}s"}
    if dice.random() < 0.7:
        timing["catchUpPolicy"] = dice.choice(("All", "All", "None"))
    return Planned(name=f"s{number}", target=target, timing=timing)


def _schedule(dice: random.Random, number: int) -> Planned:
    timing: dict[str, Any] = {}
    match dice.randrange(4):
        case 0 | 1:
            timing["schedule"] = f"@every {dice.choice(_PERIODS)}s"
            if dice.random() < 0.5:
                timing["startTime"] = scopes.clock_text(dice.choice((8, 11, 20)))
        case 2:
            timing["schedule"] = f"*/{dice.choice((10, 15, 20))} * * * * *"
        case _:
            timing["schedule"] = f"@at {scopes.clock_text(dice.choice((9, 15, 30)))}"
    if dice.random() < 0.4:
        timing["catchUpPolicy"] = dice.choice(("None", "Latest", "All"))
    if dice.random() < 0.25:
        timing["jitter"] = dice.choice(("500ms", "3s"))
    if dice.random() < 0.15:
        timing["startingDeadlineSeconds"] = dice.choice((5, 30))
    target = dice.choice(plans.TARGETS)
    if target == "job" and dice.random() < 0.5:
        timing["successfulJobsHistoryLimit"] = dice.choice((0, 1))
    if target != "stream" and dice.random() < 0.4:
        timing["concurrencyPolicy"] = dice.choice(("Forbid", "Replace", "Queue"))
    return Planned(
        name=f"s{number}", target=target, timing=timing, apply_seconds=dice.choice((5.0, 5.0, 6.5))
    )


def _members(dice: random.Random) -> list[Planned]:
    """Return the members of one set; some fire once."""
    target = dice.choice(plans.TARGETS)
    found = []
    for number in range(dice.choice((1, 2, 4))):
        timing: dict[str, Any] = {}
        if dice.random() < 0.5:
            timing["schedule"] = f"*/{dice.choice((5, 10, 20))} * * * * *"
        else:
            timing["schedule"] = f"@at {scopes.clock_text(dice.choice((12, 15, 15, 30)))}"
        if dice.random() < 0.3:
            timing["catchUpPolicy"] = dice.choice(("None", "Latest", "All"))
        if target == "webhook" and dice.random() < 0.2:
            timing["concurrencyPolicy"] = "Forbid"
        found.append(
            Planned(
                name=f"set/m{number}",
                target=target,
                timing=timing,
                apply_seconds=dice.choice((6.0, 6.0, 8.0)),
            )
        )
    return found


def _kinds(dice: random.Random, *, has_sets: bool) -> list[Kind]:
    """Return the kinds of one story: either processes' clocks may be wrong, or Redis's."""
    left_out = faults.OF_CLOCKS - _OF_SERVER_CLOCK if dice.random() < 0.5 else _OF_SERVER_CLOCK
    if has_sets:
        left_out |= _NOT_FOR_SETS
    return [kind for kind in Kind if kind not in left_out]


def _event(dice: random.Random, last: int, planned: list[Planned], kinds: list[Kind]) -> Event:
    kind = dice.choices(kinds, [_WEIGHTS.get(each, 1) for each in kinds])[0]
    name, amount = "", None
    if kind in faults.OF_USERS:
        chosen = dice.choice(planned)
        name = chosen.set_name if chosen.set_name and dice.random() < 0.3 else chosen.name
    if kind is Kind.FALL_BACK:
        amount = float(dice.choice((1, 2, 5, 20, 200)))
    elif kind in faults.OF_CLOCKS:
        amount = float(dice.choice((1, 3, 3600)))
    elif kind is Kind.PARTITION:
        amount = float(dice.choice((1, 2, 4)))
    return faults.usual(kind, dice.randint(_FIRST_MESSAGE, last), amount, name)


def _answers(dice: random.Random) -> Mapping[int, int]:
    """Return the answers of receivers, which fail now and then."""
    if dice.random() < 0.6:
        return {}
    return {dice.randrange(12): dice.choice((500, 503, 429)) for _ in range(dice.randint(1, 3))}
