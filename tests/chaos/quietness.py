"""A check that a run proves anything: enough slots came due, and enough faults had an effect.

A checker finds no violation in a history in which nothing happened, so that run fails as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator

from tests.chaos.history import History
from tests.chaos.windows import Disturbances

#: The least effects a second, over the whole run, that count as traffic.
LEAST_EFFECTS = 5.0
#: The run must have one witnessed fault in this many seconds.
SECONDS_PER_FAULT = 6.0
#: The least effects of each target, and slots that were due during a fault.
LEAST_OF_TARGET = 10
LEAST_DISTURBED = 50
#: The largest share of the time that the machine may stall; beyond it everything would be excused.
MOST_STALLED = 0.1


def complaints(
    history: History, kinds: Collection[str], *, rounds: int, least_faults: int | None = None
) -> Iterator[str]:
    """Yield the reasons why the run proves nothing, if any.

    Args:
        kinds: the kinds of faults in the plan.
        rounds: the rounds of faults. One has each kind at most once, and may miss by chance.
        least_faults: how many must have been witnessed; None = one in SECONDS_PER_FAULT.
    """
    seconds = history.run.seconds
    if least_faults is None:
        least_faults = round(seconds / SECONDS_PER_FAULT)
    if len(history.effects) < LEAST_EFFECTS * seconds:
        yield f"{len(history.effects)} effects in {seconds:.0f} s are too few"
    for target, count in _of_targets(history).items():
        if count < LEAST_OF_TARGET:
            yield f"{count} effects of {target} are too few"
    bitten = Counter(one.kind for one in history.faults if one.witness)
    without = Counter(one.kind for one in history.faults if not one.witness)
    if sum(bitten.values()) < least_faults:
        yield f"{sum(bitten.values())} faults in {seconds:.0f} s are too few"
    for kind in sorted(kinds) if rounds > 1 else ():
        if not bitten[kind]:
            yield f"no {kind} was seen to bite ({without[kind]} were tried)"
    stalled = sum(one.end_us - one.begin_us for one in history.stalls) / 1e6
    if stalled > MOST_STALLED * seconds:
        yield f"the machine stood still for {stalled:.0f} of {seconds:.0f} s"
    disturbances = Disturbances(history)
    disturbed = sum(1 for one in history.effects if disturbances.at(one.slot_us))
    if disturbed < LEAST_DISTURBED:
        yield f"only {disturbed} slots were due while something was wrong"
    if history.end is None:
        yield "the run was cut off"


def _of_targets(history: History) -> Counter[str]:
    found = Counter({wish.target: 0 for wish in history.wishes})
    found.update(one.target for one in history.effects)
    return found
