"""Which points of a large claim can be fired together, and where their chains go on.

Most points of a burst ask for the same: an armed chain of the right version, one slot due, the
next one far enough away, nothing that hangs on the schedule's name. For those the answer
is that of ``assignment`` (a test holds the two together), found once for each kind and due and not
for each point. Every other point is left, untouched, to ``assignment``. Pure.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from duepoint import errors
from duepoint.delayqueue.definitions import codec
from duepoint.schedules import actions, points, policies, slots
from duepoint.schedules import rule as rules
from duepoint.worker import assignment


class PlainKind(NamedTuple):
    """A kind whose points can be fired together.

    Attributes:
        limit_us: how long an attempt may take.
        age_us: how old a slot may be and still be run, where it is the only one.
        is_anchored: its slots hang on when a schedule was made.
    """

    kind: codec.Kind
    action: actions.Action
    limit_us: int
    age_us: int
    is_anchored: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Plain:
    """The points of one action, by column.

    Attributes:
        indexes: rows of the claim.
        following: the due of each chain's next slot.
        previous_us, time_zones: what a Job is told besides; empty for all else.
    """

    namespace: str
    action: actions.Action
    trigger: str
    indexes: Sequence[int]
    names: Sequence[str]
    uids: Sequence[str]
    generations: Sequence[int]
    slots_us: Sequence[int]
    following: Sequence[int]
    previous_us: Sequence[int | None] = ()
    time_zones: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainWork:
    """Everything that can be fired together, and the rows of what cannot, ascending."""

    batches: list[Plain]
    rest: list[int]


@dataclass(slots=True)
class _Group:
    """What is fired together, while it is being gathered."""

    namespace: str
    action: actions.Action
    trigger: str
    rows: list[int] = field(default_factory=list)


class _Step(NamedTuple):
    """The slot of a due, the due of the next one, and where points of that step go.

    ``previous_us`` is the slot before, where a Job is to be told of it.
    """

    slot_us: int
    following_us: int
    into: _Group
    previous_us: int | None
    time_zone: str


#: What was found out of kinds and their dues; they come back every few minutes.
_REMEMBERED = 16_384

_ValueT = TypeVar("_ValueT")

#: Namespace, target and trigger of points that are fired together.
_Groups = dict[tuple[str, str, str], _Group]


class _Steps(dict[tuple[Hashable, int], "_Step | None"]):
    """Steps by kind and due at one moment, each judged when it is first asked for."""

    def __init__(self, plain: Mapping[Hashable, PlainKind], now_us: int) -> None:
        super().__init__()
        self._plain = plain
        self._now_us = now_us
        self.groups: _Groups = {}

    def __missing__(self, key: tuple[Hashable, int]) -> _Step | None:
        kind, due_us = key
        known = self._plain.get(kind)
        judged = known is not None and not known.is_anchored
        found = self[key] = self.judge(known, due_us, 0) if known and judged else None
        return found

    def judge(self, plain: PlainKind, due_us: int, created_us: int) -> _Step | None:
        """Where points of this due go; None = not here."""
        now_us = self._now_us
        found = _slot_and_next(plain.kind, due_us, created_us)
        if found is None:
            return None
        slot_us, following_us, previous_us = found
        if not now_us - plain.age_us <= slot_us <= now_us:
            return None
        if following_us <= now_us or following_us < now_us + plain.limit_us:
            return None  # several are overdue, or will be before an attempt ends
        late = now_us - slot_us > policies.ON_TIME_US
        trigger = assignment.TRIGGER_CATCH_UP if late else assignment.TRIGGER_SCHEDULE
        zone = plain.kind.rule.timing.time_zone
        return _Step(slot_us, following_us, self._group(plain, trigger), previous_us, zone)

    def _group(self, plain: PlainKind, trigger: str) -> _Group:
        namespace = plain.kind.namespace
        key = namespace, plain.kind.target, trigger
        found = self.groups.get(key)
        if found is None:
            found = self.groups[key] = _Group(namespace, plain.action, trigger)
        return found


@functools.lru_cache(maxsize=_REMEMBERED)
def _slot_and_next(
    kind: codec.Kind, due_us: int, created_us: int
) -> tuple[int, int, int | None] | None:
    """The slot of a due, and the due of the slot after it; None where there is not both.

    Third, for a Job, the slot before.
    """
    try:
        timeline = slots.for_rule(kind.rule, identity="", created_us=created_us)
    except errors.DuepointError:  # told of where the point is judged alone
        return None
    slot_us = timeline.at_or_before(due_us)
    following = None if slot_us is None else timeline.next_after(slot_us)
    if slot_us is None or following is None:
        return None
    if slot_us != due_us and kind.rule.timing.zone_data:
        return None  # its due was computed with other zone data
    previous_us = timeline.previous_before(slot_us) if kind.rule.whole_seconds else None
    return slot_us, following.due_us, previous_us


def choose(
    found: codec.Columns, dues: Sequence[int], plain: Mapping[Hashable, PlainKind], now_us: int
) -> PlainWork:
    """Sort the rows of a fresh claim of chains.

    Args:
        dues: of all points of the claim, also of those without a brief.
        plain: the kinds that may be fired together, without those for which ``is_plain`` is false.
    """
    own = [dues[index] for index in found.indexes]
    known = _Steps(plain, now_us)
    steps = _steps_of(known, found.kinds, own)
    if any(kind.is_anchored for kind in plain.values()):
        _add_anchored(steps, known, found, own, plain)
    for row, step in enumerate(steps):
        if step is not None:
            step.into.rows.append(row)
    batches = [_plain(group, found, steps) for group in known.groups.values()]
    if sum(len(batch.indexes) for batch in batches) == len(dues):
        return PlainWork(batches=batches, rest=[])
    taken = {index for batch in batches for index in batch.indexes}
    return PlainWork(batches=batches, rest=[n for n in range(len(dues)) if n not in taken])


def _steps_of(known: _Steps, kinds: Sequence[Hashable], dues: Sequence[int]) -> list[_Step | None]:
    if dues and dues.count(dues[0]) == len(dues):  # a burst: few kinds are asked for
        of_kind = {kind: known[kind, dues[0]] for kind in set(kinds)}
        return list(map(of_kind.__getitem__, kinds))
    return list(map(known.__getitem__, zip(kinds, dues, strict=True)))


def _add_anchored(
    steps: list[_Step | None],
    known: _Steps,
    found: codec.Columns,
    dues: Sequence[int],
    plain: Mapping[Hashable, PlainKind],
) -> None:
    """The steps of kinds whose slots hang on when a schedule was made."""
    for row, kind in enumerate(found.kinds):
        one = plain.get(kind)
        if one is not None and one.is_anchored:
            steps[row] = known.judge(one, dues[row], found.created_us[row])


def _plain(group: _Group, found: codec.Columns, steps: Sequence[_Step | None]) -> Plain:
    rows = group.rows

    def picked(column: Sequence[_ValueT]) -> Sequence[_ValueT]:
        if len(rows) == rows[-1] - rows[0] + 1:  # side by side, as one namespace's rows are
            return column[rows[0] : rows[-1] + 1]
        return [column[row] for row in rows]

    own = [step for step in picked(steps) if step is not None]
    makes_jobs = isinstance(group.action.target, actions.JobAction)
    return Plain(
        namespace=group.namespace,
        action=group.action,
        trigger=group.trigger,
        indexes=picked(found.indexes),
        names=picked(found.names),
        uids=picked(found.uids),
        generations=picked(found.generations),
        slots_us=[step.slot_us for step in own],
        following=[step.following_us for step in own],
        previous_us=[step.previous_us for step in own] if makes_jobs else (),
        time_zones=[step.time_zone for step in own] if makes_jobs else (),
    )


def is_plain(rule: rules.Rule) -> bool:
    """Whether what hangs on a schedule's own name has no say in its slots."""
    timing = rule.timing
    is_counted = timing.max_runs is not None or rule.policy.concurrency != "Allow"
    return slots.is_alike(timing) and not is_counted


def plain_kinds(
    found: Mapping[Hashable, codec.Kind],
    action_of: Callable[[codec.Kind], actions.Action | None],
    limit_us: Callable[[actions.Action], int],
) -> dict[Hashable, PlainKind]:
    """The kinds that can be fired together; ``action_of`` gives None where the target cannot."""
    limited: dict[tuple[str, str], tuple[actions.Action, int] | None] = {}
    plain: dict[Hashable, PlainKind] = {}
    for key, kind in found.items():
        nature = _nature(kind)
        if nature is None:
            continue
        target = kind.namespace, kind.target
        if target not in limited:
            action = action_of(kind)
            limited[target] = None if action is None else (action, limit_us(action))
        if (known := limited[target]) is not None:
            plain[key] = PlainKind(kind, *known, *nature)
    return plain


@functools.lru_cache(maxsize=_REMEMBERED)
def _nature(kind: codec.Kind) -> tuple[int, bool] | None:
    """The greatest age of its slots and whether it is anchored; None where it is not plain."""
    if not is_plain(kind.rule):
        return None
    return _oldest(kind.rule.policy), slots.is_anchored(kind.rule.timing)


def _oldest(policy: rules.Policy) -> int:
    """How old a slot may be and still be run, where it is the only one."""
    oldest_us = policies.ON_TIME_US if policy.catch_up == "None" else points.DUE_LIMIT_US
    return oldest_us if policy.deadline_us is None else min(oldest_us, policy.deadline_us)
