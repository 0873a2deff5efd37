"""A random story for each seed: some Schedules, some events, and calm after them."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from tests.simulation import faults, history, scopes
from tests.simulation.faults import Event, Kind
from tests.simulation.history import Planned, Story

#: Events befall messages of the first part; the rest shows that all is well again.
CALM_SECONDS = 70.0
SECONDS = 160.0
#: Messages before the first Schedule is there, and in each second after it, about.
_FIRST_MESSAGE = 70
_MESSAGES_PER_SECOND = 6
_PERIODS = (5, 7, 10, 20, 30)
_WEIGHTS = {
    Kind.KILL_BEFORE: 3, Kind.KILL_AFTER: 3, Kind.LOSE_REPLY: 3, Kind.RESET_REPLY: 3,
    Kind.FALL_BACK: 3, Kind.PAUSE_BEFORE: 2, Kind.FLUSH: 2, Kind.LATE_REQUEST: 2,
}  # fmt: skip


def of_seed(seed: int) -> Story:
    """The story of a seed; always the same one."""
    dice = random.Random(f"story of {seed}")
    planned = [_schedule(dice, number) for number in range(dice.choice((1, 1, 2, 3)))]
    last = _FIRST_MESSAGE + int(_MESSAGES_PER_SECOND * CALM_SECONDS)
    events = [_event(dice, last, planned) for _ in range(dice.choice((0, 1, 1, 2, 2, 3, 4)))]
    return Story(
        schedules=planned,
        seconds=SECONDS,
        calm_seconds=CALM_SECONDS,
        job_seconds=dice.choice((0.5, 2.0, 8.0)),
        answers=_answers(dice),
        events=sorted(events),
    )


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
    target = dice.choice(history.TARGETS)
    if target != "stream" and dice.random() < 0.4:
        timing["concurrencyPolicy"] = dice.choice(("Forbid", "Replace", "Queue"))
    return Planned(
        name=f"s{number}", target=target, timing=timing, apply_seconds=dice.choice((5.0, 5.0, 6.5))
    )


def _event(dice: random.Random, last: int, planned: list[Planned]) -> Event:
    kinds = list(Kind)
    kind = dice.choices(kinds, [_WEIGHTS.get(each, 1) for each in kinds])[0]
    name = dice.choice(planned).name if kind in faults.OF_USERS else ""
    amount = float(dice.choice((1, 2, 5, 20, 200))) if kind is Kind.FALL_BACK else None
    return faults.usual(kind, dice.randint(_FIRST_MESSAGE, last), amount, name)


def _answers(dice: random.Random) -> Mapping[int, int]:
    """Receivers are in trouble now and then."""
    if dice.random() < 0.6:
        return {}
    return {dice.randrange(12): dice.choice((500, 503, 429)) for _ in range(dice.randint(1, 3))}
