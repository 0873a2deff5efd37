"""Which points of a large claim can be fired together, and where their chains go on.

Most points of a burst ask for the same: an armed chain of the right version, one slot due, the
next one far enough away, nothing that hangs on the schedule's name. For those the answer
is that of ``assignment`` (a test holds the two together), found once for each kind and due and not
for each point. Every other point is left, untouched, to ``assignment``. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from duepoint import errors
from duepoint.schedules import actions, briefs, points, policies, slots
from duepoint.schedules import rule as rules
from duepoint.worker import assignment


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainKind:
    """A kind whose points can be fired together: its action and how long an attempt may take."""

    kind: briefs.Kind
    action: actions.Action
    limit_us: int


@dataclass(slots=True)
class Plain:
    """The points of one action, by column.

    Attributes:
        indexes: rows of the claim.
        following: the due of each chain's next slot.
    """

    namespace: str
    action: actions.Action
    trigger: str
    indexes: list[int] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    uids: list[str] = field(default_factory=list)
    generations: list[int] = field(default_factory=list)
    slots_us: list[int] = field(default_factory=list)
    following: list[int] = field(default_factory=list)


@dataclass(slots=True)
class PlainWork:
    """Everything that can be fired together, and the rows of what cannot."""

    batches: list[Plain]
    rest: list[int]


#: The slot of a due, the due of the next one, and where points of that step go.
_Step = tuple[int, int, Plain]
#: Namespace, target and trigger of points that are fired together.
_Batches = dict[tuple[str, str, str], Plain]


class _Kind:
    """The steps of one kind at one moment, each worked out once."""

    def __init__(self, plain: PlainKind, batches: _Batches, now_us: int) -> None:
        self._kind = plain.kind
        self._action = plain.action
        self._batches = batches
        self._now_us = now_us
        self._held_us = now_us + plain.limit_us
        self._anchored = slots.is_anchored(plain.kind.rule.timing)
        self._oldest_us = now_us - _oldest(plain.kind.rule.policy)
        self._steps: dict[Hashable, _Step | None] = {}

    def step(self, due_us: int, created_us: int) -> _Step | None:
        key = (due_us, created_us) if self._anchored else due_us
        try:
            return self._steps[key]
        except KeyError:
            step = self._steps[key] = self._worked_out(due_us, created_us)
            return step

    def _worked_out(self, due_us: int, created_us: int) -> _Step | None:
        try:
            timeline = slots.for_rule(self._kind.rule, identity="", created_us=created_us)
        except errors.DuepointError:  # told of where the point is judged alone
            return None
        slot_us = timeline.at_or_before(due_us)
        if slot_us is None or not self._oldest_us <= slot_us <= self._now_us:
            return None
        following = timeline.next_after(slot_us)
        if following is None or following.due_us <= self._now_us:
            return None  # the last one, or several are overdue
        if following.due_us < self._held_us:
            return None
        late = self._now_us - slot_us > policies.ON_TIME_US
        trigger = assignment.TRIGGER_CATCH_UP if late else assignment.TRIGGER_SCHEDULE
        return slot_us, following.due_us, self._batch(trigger)

    def _batch(self, trigger: str) -> Plain:
        key = self._kind.namespace, self._kind.target, trigger
        made = Plain(self._kind.namespace, self._action, trigger)
        return self._batches.setdefault(key, made)


def choose(
    rows: Sequence[briefs.Brief | None],
    dues: Sequence[int],
    plain: Mapping[Hashable, PlainKind],
    now_us: int,
) -> PlainWork:
    """Sort the rows of a fresh claim of chains.

    Args:
        plain: the kinds that may be fired together, without those for which ``is_plain`` is false.
    """
    batches: _Batches = {}
    kinds = {key: _Kind(one, batches, now_us) for key, one in plain.items()}
    rest: list[int] = []
    for index, (row, due_us) in enumerate(zip(rows, dues, strict=True)):
        kind = None if row is None else kinds.get(row.kind)
        step = None if row is None or kind is None else kind.step(due_us, row.created_us)
        if row is None or step is None:
            rest.append(index)
            continue
        slot_us, following_us, into = step
        into.indexes.append(index)
        into.names.append(row.name)
        into.uids.append(row.uid)
        into.generations.append(row.generation)
        into.slots_us.append(slot_us)
        into.following.append(following_us)
    return PlainWork(list(batches.values()), rest)


def is_plain(rule: rules.Rule) -> bool:
    """Whether what hangs on a schedule's own name has no say in its slots."""
    return slots.is_alike(rule.timing) and not rule.whole_seconds


def plain_kinds(
    found: Mapping[Hashable, briefs.Kind],
    action_of: Callable[[briefs.Kind], actions.Action | None],
    limit_us: Callable[[actions.Action], int],
) -> dict[Hashable, PlainKind]:
    """The kinds that can be fired together; ``action_of`` gives None where the target cannot."""
    plain: dict[Hashable, PlainKind] = {}
    for key, kind in found.items():
        action = action_of(kind) if is_plain(kind.rule) else None
        if action is not None:
            plain[key] = PlainKind(kind=kind, action=action, limit_us=limit_us(action))
    return plain


def _oldest(policy: rules.Policy) -> int:
    """How old a slot may be and still be run, where it is the only one."""
    oldest_us = policies.ON_TIME_US if policy.catch_up == "None" else points.DUE_LIMIT_US
    return oldest_us if policy.deadline_us is None else min(oldest_us, policy.deadline_us)
