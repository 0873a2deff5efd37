"""The judge of overlapping runs: what each concurrency policy excuses, and what it forbids."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.simulation import effects
from tests.simulation.effects import Effect
from tests.simulation.history import Record
from tests.simulation.judgement import Subject
from tests.simulation.slots import S

#: A webhook that was refused a few times waits at most this long for its retry; with a Schedule's
#: default policy, one that was refused n times waits 5 s times 2^(n-1).
_WAIT_US = 60 * S
_BACKOFF_US = 5 * S
_FAR = 2**60
#: A Job that was replaced before it existed is deleted within this time.
_WITHDRAWN_US = 2 * S


@dataclass(frozen=True, slots=True)
class Run:
    """A run from its first effect until it ended, as the world saw it.

    Attributes:
        by_hand: whether a ScheduleRun asked for it; its slot may be one of the Schedule's, too.
        is_withdrawn: its Job was deleted as soon as it existed.
    """

    slot_us: int
    begin_us: int
    end_us: int
    by_hand: bool
    is_withdrawn: bool = False


def runs_of(record: Record, subject: Subject) -> list[Run]:
    """Return the runs of an object in the order in which they began, those by hand included."""
    if subject.target == "job":
        found = [
            Run(
                job.slot_us,
                job.at_us,
                min(job.ended_us or _FAR, job.gone_us or _FAR),
                job.trigger in effects.BY_HAND,
                is_withdrawn=not job.ended_us
                and 0 < (job.gone_us or 0) - job.at_us < _WITHDRAWN_US,
            )
            for job in record.made
            if job.owner_uid == subject.uid
        ]
    else:
        found = [
            Run(slot, tried[0].at_us, tried[-1].at_us + wait_us(tried), by_hand)
            for by_hand, slots in ((False, subject.effects), (True, subject.by_hand))
            for slot, tried in slots.items()
        ]
    return sorted(found, key=lambda run: run.begin_us)


def wait_us(tried: Sequence[Effect]) -> int:
    """Return how long a delivery may wait for its retry; 0 if the last attempt was accepted."""
    if not tried[-1].refused:
        return 0
    refusals = sum(each.refused for each in tried)
    return max(_WAIT_US, _BACKOFF_US << (refusals - 1))


def excuses(
    spec: Mapping[str, Any],
    runs: Sequence[Run],
    slot: int,
    due: int,
    by_us: int,
    *,
    by_hand: bool = False,
) -> bool:
    """Whether a slot may have been skipped, delayed or replaced because of another run.

    A run by hand may have the same slot as one of the Schedule's, and each excuses the other.
    """
    policy = spec.get("concurrencyPolicy", "Allow")
    if policy == "Allow":
        return False
    if policy == "Replace" and any(run.slot_us == slot for run in runs):
        # it began, and a newer one replaced it before it was delivered
        return any(run.slot_us > slot and run.begin_us >= due for run in runs)
    others = [run for run in runs if (run.slot_us, run.by_hand) != (slot, by_hand)]
    return any(run.begin_us <= by_us and run.end_us >= due for run in others)


def together(spec: Mapping[str, Any], target: str, runs: Sequence[Run]) -> list[tuple[Run, Run]]:
    """Return pairs of Jobs that ran at the same time although the policy forbids it.

    A Job that is replaced while its creation is in flight begins after the newer one, then goes.
    """
    policy = spec.get("concurrencyPolicy", "Allow")
    if target != "job" or policy == "Allow":
        return []
    return [
        (one, other)
        for one, other in itertools.pairwise(runs)
        if other.begin_us < one.end_us
        and not (policy == "Replace" and other.is_withdrawn and other.slot_us < one.slot_us)
    ]
