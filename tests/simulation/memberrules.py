"""The judge's rules for members of sets, as far as they differ from Schedules.

See docs/reference/scheduleset.md. A change of a member takes effect between the request and its
answer. A set that is suspended or deleted stops all its members. Members that Redis loses are lost;
if Redis falls back, members may fire once more under the same ids.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.simulation import slots
from tests.simulation.effects import Effect
from tests.simulation.faults import Kind
from tests.simulation.judgement import Judgement, Subject, events_of
from tests.simulation.slots import S
from tests.simulation.timeline import LATENESS_US, RECOVERY_US, seen_by, segments_of

_FAR = 2**60
#: By this long before the end, a deleted set is gone and finished members have left.
_ENDED_US = 30 * S


@dataclass(frozen=True, slots=True)
class Hold:
    """A time in which a set is suspended or being deleted.

    Attributes:
        begin_us, certain_us: it begins at some instant between these.
        ends_us, end_us: it ends at some instant between these.
    """

    begin_us: int
    certain_us: int
    ends_us: int
    end_us: int

    def touches(self, first_us: int, last_us: int) -> bool:
        return self.begin_us <= last_us and first_us <= self.end_us + LATENESS_US

    def delays(self, due: int, ran_us: int) -> bool:
        """Whether a slot may have run late because of it."""
        return self.touches(due, ran_us)

    def forbids(self, instant: int) -> bool:
        return self.certain_us + LATENESS_US < instant < self.ends_us


def holds_of(judgement: Judgement, subject: Subject) -> list[Hold]:
    """Return the holds of the member's set; a Schedule has none."""
    if not subject.is_member:
        return []
    wishes = judgement.record.wishes[subject.name.partition("/")[0]]
    found = [
        Hold(each.begin_us, each.latest_begin_us, each.end_us, each.latest_end_us)
        for each in segments_of(wishes, judgement.windows)
        if not each.runs
    ]
    if wishes and wishes[-1].spec is None:
        certain_us = seen_by(wishes[-1], judgement.windows)
        found.append(Hold(wishes[-1].at_us, certain_us, _FAR, _FAR))
    return found


def required(
    judgement: Judgement, subject: Subject, usual: Mapping[int, int], holds: Sequence[Hold]
) -> dict[int, int]:
    """Return the slots that must run, with their due times."""
    is_sure = all(wish.ready_us is not None for wish in subject.wishes)
    if not is_sure or _may_be_lost(judgement, subject):
        return {}
    return {
        slot: due
        for slot, due in usual.items()
        if not any(hold.touches(slot, judgement.latest(due)) for hold in holds)
    }


def allowed(judgement: Judgement, subject: Subject, usual: Mapping[int, int]) -> Mapping[int, int]:
    """Return the slots that may run, those included that run if Redis lost a change."""
    if not _may_be_lost(judgement, subject):
        return usual
    end_us, begin_us = judgement.record.end_us, subject.wishes[0].at_us
    specs = [wish.spec for wish in subject.wishes if wish.spec is not None]
    return {slot: slot for spec in specs for slot in slots.slots_of(spec, begin_us, end_us)}


def lives_of(judgement: Judgement, subject: Subject) -> int:
    """Return how many members may have had its id: one more for each loss before the answer.

    The client repeats an unanswered request. A member that this makes again has a new uid, and so a
    new ``webhook-id`` or Job name. A request that was disturbed may arrive after the answer to its
    repetition. The ids of stream entries do not contain the uid.
    """
    first = subject.wishes[0]
    if not subject.is_member or subject.target not in ("webhook", "job"):
        return 1
    until_us = _FAR
    if first.ready_us is not None:
        until_us = max(first.ready_us, judgement.latest(first.at_us))
    return 1 + sum(first.at_us <= at_us <= until_us for at_us in _losses_us(judgement))


def _losses_us(judgement: Judgement) -> list[int]:
    return [at for at, _ in events_of(judgement.record, Kind.FLUSH, Kind.FALL_BACK)]


def _may_be_lost(judgement: Judgement, subject: Subject) -> bool:
    """Whether Redis lost data after the member was first asked for."""
    begin_us = subject.wishes[0].at_us
    return any(at_us >= begin_us for at_us in _losses_us(judgement))


def judge_holds(
    judgement: Judgement, name: str, slot: int, found: Sequence[Effect], holds: Sequence[Hold]
) -> None:
    """Check that nothing was sent while the set was suspended or deleted."""
    for effect in found:
        is_held = any(hold.forbids(effect.at_us) for hold in holds)
        if is_held and judgement.disturbance(effect.at_us) is None:
            judgement.complain(
                name, f"slot {judgement.text(slot)} ran at {judgement.text(effect.at_us)}, held"
            )


def judge_listed(judgement: Judgement, subject: Subject, due_of: Mapping[int, int]) -> None:
    """Check that the HTTP API lists in the end what was asked for."""
    set_name, _, id_ = subject.name.partition("/")
    record = judgement.record
    is_open = record.wishes[set_name][-1].spec is not None
    is_sure = all(wish.ready_us is not None for wish in subject.wishes)
    is_lost = _may_be_lost(judgement, subject)
    if not judgement.ends_calm or is_lost or not is_open or not is_sure:
        return
    listed = record.members[set_name]
    if listed is None:
        judgement.complain(set_name, "the members are not listed")
        return
    last = subject.wishes[-1]
    if last.spec is None:
        if id_ in listed:
            judgement.complain(subject.name, "is there, and was deleted")
    elif not last.spec["schedule"].startswith("@at "):
        if id_ not in listed:
            judgement.complain(subject.name, "is not there any more")
    elif id_ in listed:
        refused = any(effect.refused for found in subject.effects.values() for effect in found)
        if not refused and any(due < record.end_us - _ENDED_US for due in due_of.values()):
            judgement.complain(subject.name, "has ended, and is still there")


def judge_set(judgement: Judgement, name: str) -> None:
    """Check the final state of the ScheduleSet object."""
    record = judgement.record
    wishes, status = record.wishes[name], record.statuses[name]
    if not judgement.ends_calm or not wishes:
        return
    last = wishes[-1]
    if last.spec is None:
        if status is not None and last.at_us + RECOVERY_US < record.end_us:
            judgement.complain(name, f"is not gone: {status}")
        return
    ready = next(
        (one for one in (status or {}).get("conditions", ()) if one["type"] == "Ready"), {}
    )
    seen = (status or {}).get("observedGeneration")
    if ready.get("status") != "True" or seen != last.generation:
        judgement.complain(name, f"is not Ready in the end: {ready}")
