"""Rule V8: Jobs overlap only if their Schedule allows it, and no Job replaces a newer one.

The API server numbers all changes, so whether a Job was created before another one had ended is
a comparison of revisions, not of clocks.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.chaos.history import Effect, History, Wish
from tests.chaos.windows import FORGOTTEN_US, Disturbances

_FAR = 2**62
#: A request that a fault delayed arrives within this time after it.
_ARRIVAL_US = 3_000_000
#: A Job that was replaced before it existed is deleted this soon; those of a run last for longer.
_WITHDRAWN_US = 2_000_000


def _replaces(spec: Mapping[str, Any]) -> bool:
    return bool(spec.get("concurrencyPolicy") == "Replace")


def _was_under_way(older: Effect, newer: Effect, disturbances: Disturbances) -> bool:
    """Whether its creation was in flight when it was replaced: it is deleted once it exists."""
    is_near = older.at_us >= newer.at_us - disturbances.lateness_us
    return is_near and disturbances.at(newer.at_us) is not None


def problems(
    history: History, by_object: Mapping[str, Sequence[Wish]], disturbances: Disturbances
) -> Iterator[tuple[str, int, str]]:
    """Yield name, slot and problem for each pair of Jobs that overlap."""
    ends: dict[str, int] = {}
    ends_us: dict[str, int] = {}
    for end in history.job_ends:
        ends[end.unique] = min(end.rev, ends.get(end.unique, _FAR))
        ends_us[end.unique] = min(end.at_us, ends_us.get(end.unique, _FAR))
    for uid, wishes in by_object.items():
        specs = [wish.spec for wish in wishes if wish.spec is not None]
        if not specs or any(spec.get("concurrencyPolicy", "Allow") == "Allow" for spec in specs):
            continue
        most = max(int(spec.get("maxConcurrency", 1)) for spec in specs)
        made = sorted(
            (one for one in history.effects if one.uid == uid and one.target == "job"),
            key=lambda one: one.begun_rev,
        )
        is_replacing = wishes[-1].spec is not None and _replaces(wishes[-1].spec)
        if is_replacing and all(map(_replaces, specs)):
            yield from _out_of_turn(made, wishes[0].name, ends_us, disturbances)
        for place, job in enumerate(made):
            running = [one for one in made[:place] if ends.get(one.unique, _FAR) > job.begun_rev]
            if is_replacing:
                running = [one for one in running if not _was_under_way(one, job, disturbances)]
            if len(running) < most:
                continue
            # One gap is documented: a Job that is being created while Redis fails over.
            if disturbances.forgot_between(job.at_us - FORGOTTEN_US, job.at_us):
                continue
            others = ", ".join(one.key for one in itertools.islice(running, 3))
            yield wishes[0].name, job.slot_us, f"{job.key} began while {others} ran"


def _out_of_turn(
    made: Sequence[Effect], name: str, ends_us: Mapping[str, int], disturbances: Disturbances
) -> Iterator[tuple[str, int, str]]:
    """Yield late slots that replaced a newer one's Job, which should have stayed."""
    newest: Effect | None = None
    for job in made:
        if newest is None or job.slot_us > newest.slot_us:
            newest = job
            continue
        # A Job whose creation was in flight when the newer slot came is deleted once it exists.
        # After a loss, Jobs may have been listed between a deletion and a creation.
        crossed = job.at_us - newest.at_us <= _ARRIVAL_US
        if crossed and ends_us.get(job.unique, _FAR) - job.at_us <= _WITHDRAWN_US:
            continue
        held_up = disturbances.ongoing(job.at_us - _ARRIVAL_US, job.at_us)
        lost = disturbances.forgot_between(job.at_us - FORGOTTEN_US, job.at_us)
        if job.slot_us < newest.slot_us and not (held_up or lost):
            yield name, job.slot_us, f"{job.key} began after {newest.key}, of a newer slot"
