"""The state that all parts of the judge share: record, disturbances, and problems found."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.effects import Effect
from tests.simulation.faults import OF_USERS, Event, Kind
from tests.simulation.history import Record
from tests.simulation.plans import Wish
from tests.simulation.slots import S
from tests.simulation.timeline import LATENESS_US, RECOVERY_US, Window, seen_by


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A Schedule from its creation to its deletion, or a member, with its effects.

    Attributes:
        name: its name in the story; ``uid`` is that of the object, or ``SET/ID``.
        effects: those of its own slots.
        by_hand: those of ScheduleRuns.
    """

    name: str
    target: str
    uid: str
    wishes: Sequence[Wish]
    effects: Mapping[int, Sequence[Effect]]
    by_hand: Mapping[int, Sequence[Effect]]

    @property
    def is_member(self) -> bool:
        return "/" in self.uid

    @property
    def spec(self) -> Mapping[str, Any]:
        """Return its last spec."""
        return next(wish.spec for wish in reversed(self.wishes) if wish.spec is not None)

    def values(self, name: str, default: Any) -> set[Any]:
        """Return every value that a field of its spec has had."""
        return {wish.spec.get(name, default) for wish in self.wishes if wish.spec is not None}


@dataclass(slots=True)
class Judgement:
    """The verdict in the making."""

    record: Record
    windows: Sequence[Window]
    problems: list[str] = field(default_factory=list)

    def text(self, instant: int) -> str:
        return f"{(instant - self.record.begin_us) / S:+.3f}s"

    def complain(self, name: str, text: str) -> None:
        self.problems.append(f"{name}: {text}")

    def disturbance(self, instant: int, *, around_us: int = 0) -> Window | None:
        """Return the disturbance that may have affected this instant, if any."""
        return next(
            (
                window
                for window in self.windows
                if window.begin_us - around_us <= instant <= window.end_us + RECOVERY_US
            ),
            None,
        )

    def had(self, *kinds: Kind) -> bool:
        """Whether an event of one of these kinds happened."""
        return any(event.kind in kinds for _, event in self.record.events)

    @property
    def forgot(self) -> bool:
        """Whether Redis lost data."""
        return self.had(Kind.FLUSH, Kind.FALL_BACK)

    @property
    def ends_calm(self) -> bool:
        """Whether everything had enough time to settle before the end."""
        end_us = self.record.end_us
        return all(window.end_us + RECOVERY_US <= end_us for window in self.windows)

    def latest(self, due: int) -> int:
        """Return by when a slot with this due time must have had its effect."""
        window = self.disturbance(due, around_us=LATENESS_US)
        usual = due + LATENESS_US
        return usual if window is None else max(usual, window.end_us + RECOVERY_US)

    def spoilt(self, first_us: int, last_us: int) -> int:
        """Return how many events may have caused a delivery of this time to be repeated."""
        return sum(
            1
            for at_us, event in self.record.events
            if event.kind not in OF_USERS and first_us - RECOVERY_US <= at_us <= last_us
        )

    def judge_count(
        self, name: str, slot: int, target: str, found: Sequence[Effect], *, lives: int = 1
    ) -> None:
        """Check that a slot had its effect once, or as often as the documentation allows.

        Args:
            lives: how many times a member existed that Redis lost and a repeated change made again.
            Each life has its own ``webhook-id`` or Job; all share the slot's event id.
        """
        keys = {effect.key for effect in found}
        has_several = target != "job" and len({effect.event for effect in found}) > 1
        if len(keys) > lives or has_several:
            self.complain(name, f"slot {self.text(slot)} has several ids")
        taken = [effect for effect in found if not effect.refused]
        if target != "webhook":
            if len(taken) > (len(keys) if target == "job" else 1):
                self.complain(name, f"slot {self.text(slot)} ran {len(taken)} times")
            return
        for key in sorted(keys):
            of_life = [effect for effect in taken if effect.key == key]
            if of_life and len(of_life) > 1 + self.spoilt(of_life[0].at_us, of_life[-1].at_us):
                self.complain(name, f"slot {self.text(slot)} ran {len(of_life)} times")


def events_of(record: Record, *kinds: Kind) -> list[tuple[int, Event]]:
    return [(at_us, event) for at_us, event in record.events if event.kind in kinds]


def without_collected(
    judgement: Judgement, subject: Subject, found: Sequence[Effect]
) -> Sequence[Effect]:
    """Return the effects without Jobs that Kubernetes collects because their Schedule is gone.

    A worker that has claimed a point while the Schedule is deleted may create its Job afterwards.
    If the slot had run before and Redis lost that, the former Job went with the Schedule already.
    """
    deleted = subject.wishes[-1]
    if subject.target != "job" or subject.is_member or deleted.spec is not None:
        return found
    seen_us = seen_by(deleted, judgement.windows)
    gone = {(job.name, job.at_us) for job in judgement.record.made if job.gone_us is not None}
    return [
        effect
        for effect in found
        if not deleted.at_us <= effect.at_us <= seen_us or (effect.key, effect.at_us) not in gone
    ]


def without_replaced(
    judgement: Judgement, subject: Subject, found: Sequence[Effect]
) -> Sequence[Effect]:
    """Return the effects without Jobs that were deleted before Redis forgot that they had run.

    A newer slot has deleted such a Job but has none itself yet: its worker died, or the API server
    went away. Until a status says that the older slot had started, only Redis knows it. Nor is the
    second Job of a slot counted that a worker made with the request before which it was paused: an
    Event reports it (``JobMadeAgain`` in semantics.md).
    """
    if subject.target != "job" or "Replace" not in subject.values("concurrencyPolicy", "Allow"):
        return found
    made = [job for job in judgement.record.made if job.owner_uid == subject.uid]
    lost = [at_us for at_us, _ in events_of(judgement.record, Kind.FLUSH, Kind.FALL_BACK)]
    replaced = {
        (job.name, job.at_us)
        for job, again in itertools.permutations(made, 2)
        if job.name == again.name
        and job.ended_us is None
        and (job.gone_us or again.at_us) < again.at_us
        and any(job.at_us <= at_us <= again.at_us for at_us in lost)
        and not any(
            newer.slot_us > job.slot_us
            and newer.at_us < again.at_us < (newer.gone_us or again.at_us + 1)
            for newer in made
        )
    }
    resumed = [
        at_us + round(event.amount * S)
        for at_us, event in events_of(judgement.record, Kind.PAUSE_BEFORE)
    ]
    replaced |= {
        (again.name, again.at_us)
        for job, again in itertools.permutations(made, 2)
        if job.name == again.name
        and (job.gone_us or again.at_us) < again.at_us
        and any(0 <= again.at_us - at_us <= S / 10 for at_us in resumed)
    }
    return [effect for effect in found if (effect.key, effect.at_us) not in replaced]
