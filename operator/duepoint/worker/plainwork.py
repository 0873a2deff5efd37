"""Which points of a large claim can be fired together, and where their chains go on.

Most points of a burst ask for the same: an armed chain of the right version, one slot due, the
next one far enough away, nothing that hangs on the schedule's name. For those the answer
is that of ``assignment`` (a test holds the two together), found once for each kind and due and not
for each point. Every other point is left, untouched, to ``assignment``. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Plain:
    """The points of one action, by column.

    Attributes:
        indexes: rows of the claim.
        following: the due of each chain's next slot.
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
    """The slot of a due, the due of the next one, and where points of that step go."""

    slot_us: int
    following_us: int
    into: _Group


#: Namespace, target and trigger of points that are fired together.
_Groups = dict[tuple[str, str, str], _Group]


class _Kind:
    """The steps of one kind at one moment."""

    def __init__(self, plain: PlainKind, groups: _Groups, now_us: int) -> None:
        self._kind = plain.kind
        self._action = plain.action
        self._groups = groups
        self._now_us = now_us
        self._held_us = now_us + plain.limit_us
        self.is_anchored = slots.is_anchored(plain.kind.rule.timing)
        self._oldest_us = now_us - _oldest(plain.kind.rule.policy)

    def step(self, due_us: int, created_us: int) -> _Step | None:
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
        return _Step(slot_us, following.due_us, self._group(trigger))

    def _group(self, trigger: str) -> _Group:
        key = self._kind.namespace, self._kind.target, trigger
        return self._groups.setdefault(key, _Group(self._kind.namespace, self._action, trigger))


class _Steps(dict[tuple[Hashable, int], "_Step | None"]):
    """Steps by kind and due, each worked out when it is first asked for."""

    def __init__(self, kinds: Mapping[Hashable, _Kind]) -> None:
        super().__init__()
        self._kinds = kinds

    def __missing__(self, key: tuple[Hashable, int]) -> _Step | None:
        kind, due_us = key
        known = self._kinds.get(kind)
        found = None if known is None or known.is_anchored else known.step(due_us, 0)
        self[key] = found
        return found


def choose(
    found: briefs.Briefs, dues: Sequence[int], plain: Mapping[Hashable, PlainKind], now_us: int
) -> PlainWork:
    """Sort the rows of a fresh claim of chains.

    Args:
        dues: of all points of the claim, also of those without a brief.
        plain: the kinds that may be fired together, without those for which ``is_plain`` is false.
    """
    groups: _Groups = {}
    kinds = {key: _Kind(one, groups, now_us) for key, one in plain.items()}
    own = [dues[index] for index in found.indexes]
    steps = list(map(_Steps(kinds).__getitem__, zip(found.kinds, own, strict=True)))
    if any(kind.is_anchored for kind in kinds.values()):
        _add_anchored(steps, found, own, kinds)
    for row, step in enumerate(steps):
        if step is not None:
            step.into.rows.append(row)
    batches = [_plain(group, found, steps) for group in groups.values()]
    taken = {index for batch in batches for index in batch.indexes}
    rest = [] if len(taken) == len(dues) else [n for n in range(len(dues)) if n not in taken]
    return PlainWork(batches=batches, rest=rest)


def _add_anchored(
    steps: list[_Step | None],
    found: briefs.Briefs,
    dues: Sequence[int],
    kinds: Mapping[Hashable, _Kind],
) -> None:
    """The steps of kinds whose slots hang on when a schedule was made."""
    known: dict[tuple[Hashable, int, int], _Step | None] = {}
    for row, kind in enumerate(found.kinds):
        if kind not in kinds or not kinds[kind].is_anchored:
            continue
        key = kind, dues[row], found.created_us[row]
        if key not in known:
            known[key] = kinds[kind].step(*key[1:])
        steps[row] = known[key]


def _plain(group: _Group, found: briefs.Briefs, steps: Sequence[_Step | None]) -> Plain:
    rows = group.rows
    own = [step for row in rows if (step := steps[row]) is not None]
    return Plain(
        namespace=group.namespace,
        action=group.action,
        trigger=group.trigger,
        indexes=[found.indexes[row] for row in rows],
        names=[found.names[row] for row in rows],
        uids=[found.uids[row] for row in rows],
        generations=[found.generations[row] for row in rows],
        slots_us=[step.slot_us for step in own],
        following=[step.following_us for step in own],
    )


def is_plain(rule: rules.Rule) -> bool:
    """Whether what hangs on a schedule's own name has no say in its slots."""
    timing = rule.timing
    is_counted = timing.max_runs is not None or rule.policy.concurrency != "Allow"
    return slots.is_alike(timing) and not rule.whole_seconds and not is_counted


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
