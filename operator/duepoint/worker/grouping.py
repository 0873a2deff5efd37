"""Which points of a claim are ordinary, in groups of what is fired alike. Pure.

Most points ask for the same: an armed chain of the right version, one slot due, the next one far
enough away, nothing that depends on the schedule's name. So do, behind an outage, chains of which
several slots are overdue and all run, where the queue appends their entries: such a chain has a
row for each of its oldest slots, and is due again at once if there are more. For those the decision
is that of ``planning`` (a test holds the two together), found once for each kind and due instead of
once for each point. Columns of a claim's chains come in; ``Group``s by column go out, with the rows
that are not ordinary, which ``planning`` decides one by one.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple

from duepoint import errors
from duepoint.delayqueue import messages
from duepoint.delayqueue.definitions import columns
from duepoint.schedules import definition as definitions
from duepoint.schedules import points, policies, slots
from duepoint.schedules import rule as rules
from duepoint.schedules.sets import identity as setidentity
from duepoint.worker import plan
from duepoint.worker.plan import Group

#: Decisions about kinds and their dues that are kept; they come back every few minutes.
_MOST_KEPT = 16_384


#: Rows that the overdue slots of one claim become, all together. More of them would keep other
#: claims waiting; with fewer, reading and settling the claim again costs more than its entries.
_MOST_OVERDUE = 2_000

#: Namespace, target, set, trigger, and whether its chains have several rows each.
_GroupKey = tuple[str, str, setidentity.SetIdentity | None, str, bool]


class KindRule(NamedTuple):
    """What decides about points of one kind.

    Attributes:
        limit_us: how long an attempt may take; 0 of an entry that the queue appends.
        age_us: the greatest age at which a slot still runs, where it is the only one.
        is_anchored: its slots depend on when a schedule was created.
        is_once: it has no slots of its own: each member has one instant.
    """

    kind: columns.DefinitionKind
    limit_us: int
    age_us: int
    is_anchored: bool
    is_once: bool


class _Step(NamedTuple):
    """The slot of a due, the due of the next one, and the rows of the group of that step.

    No slot follows that of a member that fires once. ``later`` has the steps of the same chain that
    come after this one in the same group.
    """

    slot_us: int
    following_us: int | None
    previous_us: int | None
    rule: rules.Rule
    rows: list[int]
    later: Sequence[_Step] = ()


class _Steps(dict[tuple[Hashable, int], "_Step | None"]):
    """Steps by kind and due at one moment, each decided when it is first asked for.

    Args:
        share: rows that one chain may have, of those that a claim becomes.
    """

    def __init__(self, kinds: Mapping[Hashable, KindRule], now_us: int, share: int) -> None:
        super().__init__()
        self._kinds = kinds
        self._now_us = now_us
        self._share = share
        #: The rows of the claim in each group.
        self.groups: dict[_GroupKey, list[int]] = {}

    def __missing__(self, key: tuple[Hashable, int]) -> _Step | None:
        kind, due_us = key
        known = self._kinds.get(kind)
        is_shared = known is not None and not (known.is_anchored or known.is_once)
        found = self[key] = self.decide(known, due_us, 0) if known and is_shared else None
        return found

    def decide(self, known: KindRule, due_us: int, created_us: int) -> _Step | None:
        """The step of this due; None where it is not an ordinary one."""
        now_us = self._now_us
        around = _slots_around if known.kind.is_large else _kept_slots_around
        found = around(known.kind, due_us, created_us)
        if found is None:
            return None
        slot_us, following_us, previous_us = found
        if not now_us - known.age_us <= slot_us <= now_us:
            return None
        if following_us <= now_us:
            return self._decide_several(known, due_us, created_us, previous_us)
        if following_us < now_us + known.limit_us:
            return None  # it will be overdue before an attempt ends
        rows = self._rows(known.kind, self._trigger(slot_us))
        return _Step(slot_us, following_us, previous_us, known.kind.rule, rows)

    def _decide_several(
        self, known: KindRule, due_us: int, created_us: int, previous_us: int | None
    ) -> _Step | None:
        """The steps of a chain with overdue slots; None where they are not to be appended."""
        if known.limit_us:
            return None
        decision = policies.oldest_of_all(
            slots.for_rule(known.kind.rule, identity="", created_us=created_us),
            known.kind.rule.policy,
            chain_due_us=due_us,
            now_us=self._now_us,
            most=self._share,
        )
        if decision is None or decision.following is None:
            return None
        instants = [previous_us, *(one.slot_us for one in decision.run), decision.following.due_us]
        rows = self._rows(known.kind, plan.TRIGGER_CATCH_UP, has_several=True)
        rule = known.kind.rule
        first, *later = (
            _Step(one.slot_us, instants[number + 2], instants[number], rule, rows)
            for number, one in enumerate(decision.run)
        )
        return first._replace(later=later)

    def decide_once(self, known: KindRule | None, due_us: int, at_us: int) -> _Step | None:
        """The same of a member that fires once, at this instant."""
        if known is None or not known.is_once or due_us != at_us:
            return None
        if not self._now_us - known.age_us <= at_us <= self._now_us:
            return None
        rows = self._rows(known.kind, self._trigger(at_us))
        return _Step(at_us, None, None, known.kind.rule, rows)

    def _trigger(self, slot_us: int) -> str:
        """Of a slot that is the only one overdue."""
        late = self._now_us - slot_us > policies.ON_TIME_US
        return plan.TRIGGER_CATCH_UP if late else plan.TRIGGER_SCHEDULE

    def _rows(
        self, kind: columns.DefinitionKind, trigger: str, *, has_several: bool = False
    ) -> list[int]:
        key = kind.namespace, kind.target, kind.owner, trigger, has_several
        return self.groups.setdefault(key, [])


def _slots_around(
    kind: columns.DefinitionKind, due_us: int, created_us: int
) -> tuple[int, int, int | None] | None:
    """The slot of a due, the due of the slot after it, and the slot before it.

    None where the first two do not both exist.
    """
    try:
        timeline = slots.for_rule(kind.rule, identity="", created_us=created_us)
    except errors.DuepointError:  # reported where the point is planned alone
        return None
    slot_us = timeline.at_or_before(due_us)
    following = None if slot_us is None else timeline.next_after(slot_us)
    if slot_us is None or following is None:
        return None
    if slot_us != due_us and kind.rule.timing.zone_data:
        return None  # its due was computed with other zone data
    return slot_us, following.due_us, timeline.previous_before(slot_us)


_kept_slots_around = functools.lru_cache(maxsize=_MOST_KEPT)(_slots_around)


def group(
    found: columns.Columns,
    members: Sequence[bytes],
    dues: Sequence[int],
    kinds: Mapping[Hashable, KindRule],
    now_us: int,
) -> list[Group]:
    """The ordinary points among the chains of a fresh claim.

    Args:
        members, dues: of all chains of the claim, also of those without a row.
        kinds: the kinds whose points may be ordinary.
    """
    own = [dues[index] for index in found.indexes]
    known = _Steps(kinds, now_us, share=_MOST_OVERDUE // max(1, len(members)) or 1)
    if found.once_us:
        steps = [
            known[kind, due_us]
            if at_us is None
            else known.decide_once(kinds.get(kind), due_us, at_us)
            for kind, due_us, at_us in zip(found.kinds, own, found.once_us, strict=True)
        ]
    elif own and own.count(own[0]) == len(own):  # a burst: few kinds are asked for
        of_kind = {kind: known[kind, own[0]] for kind in set(found.kinds)}
        steps = [of_kind[kind] for kind in found.kinds]
    else:
        steps = [known[key] for key in zip(found.kinds, own, strict=True)]
    if anchored := {key: kind for key, kind in kinds.items() if kind.is_anchored}:
        decided = functools.cache(known.decide)  # of a burst few are distinct
        keys = zip(found.kinds, own, found.created_us, strict=True)
        for row, (key, due_us, created_us) in enumerate(keys):
            if (kind := anchored.get(key)) is not None:
                steps[row] = decided(kind, due_us, created_us)
    for row, step in enumerate(steps):
        if step is not None:
            step.rows.append(row)
    return [_grouped(key, rows, found, members, steps) for key, rows in known.groups.items()]


def _grouped(
    key: _GroupKey,
    rows: Sequence[int],
    found: columns.Columns,
    members: Sequence[bytes],
    steps: Sequence[_Step | None],
) -> Group:
    namespace, target, owner, trigger, has_several = key
    if len(rows) == rows[-1] - rows[0] + 1:  # side by side, as one namespace's rows are
        rows = range(rows[0], rows[-1] + 1)
    own = [step for step in plan.picked(steps, rows) if step is not None]
    if has_several:
        chains = list(zip(rows, own, strict=True))
        rows = [row for row, step in chains for _ in range(1 + len(step.later))]
        own = [one for _, step in chains for one in (step, *step.later)]
    indexes = plan.picked(found.indexes, rows)
    return Group(
        namespace=namespace,
        target=target,
        owner=owner,
        trigger=trigger,
        indexes=indexes,
        members=[members[index] for index in indexes],
        names=plan.picked(found.names, rows),
        uids=plan.picked(found.uids, rows),
        generations=plan.picked(found.generations, rows),
        created_us=plan.picked(found.created_us, rows),
        slots_us=[step.slot_us for step in own],
        following=[step.following_us for step in own],
        previous_us=[step.previous_us for step in own],
        rules=[step.rule for step in own],
        payloads=plan.picked(found.payloads, rows) if found.payloads else (),
        has_several=has_several,
    )


def is_ordinary(rule: rules.Rule) -> bool:
    """Whether nothing about its slots depends on a schedule's own name or count of runs."""
    timing = rule.timing
    is_counted = timing.max_runs is not None or rule.policy.concurrency != "Allow"
    return slots.is_alike(timing) and not is_counted


def kind_rules(
    found: Mapping[Hashable, columns.DefinitionKind], limit_us: Callable[[str, str], int | None]
) -> dict[Hashable, KindRule]:
    """The kinds whose points may be ordinary.

    Args:
        limit_us: how long an attempt at a target (namespace, digest) may take; None where that is
            not known.
    """
    limits: dict[tuple[str, str], int | None] = {}
    chosen: dict[Hashable, KindRule] = {}
    for key, kind in found.items():
        nature = (_nature if kind.is_large else _kept_nature)(kind)
        if nature is None:
            continue
        target = kind.namespace, kind.target
        if target not in limits:
            limits[target] = limit_us(*target)
        if (limit := limits[target]) is not None:
            chosen[key] = KindRule(kind, limit, *nature)
    return chosen


def _nature(kind: columns.DefinitionKind) -> tuple[int, bool, bool] | None:
    """The greatest age of its slots, whether it is anchored, and whether members of it fire once.

    None where it is not ordinary.
    """
    if not is_ordinary(kind.rule):
        return None
    policy = kind.rule.policy
    oldest_us = policies.ON_TIME_US if policy.catch_up == "None" else points.DUE_LIMIT_US
    if policy.deadline_us is not None:
        oldest_us = min(oldest_us, policy.deadline_us)
    timing = kind.rule.timing
    is_once = timing.schedules == rules.ONCE
    if is_once and (timing.start_us, timing.end_us) != (None, None):
        return None
    return oldest_us, slots.is_anchored(timing), is_once


_kept_nature = functools.lru_cache(maxsize=_MOST_KEPT)(_nature)


# -- columns of definitions at hand -----------------------------------------------------------


def columns_of(
    chains: Sequence[points.DuePoint], known: messages.KnownDefinitions
) -> columns.Columns:
    """What ``columns.read_columns`` says of these chains, from definitions that are at hand."""
    rows = [
        (index, found)
        for index, point in enumerate(chains)
        if (found := known.get(point.schedule_id)) is not None
        and found.state is definitions.State.ARMED
        and found.timing_version == point.timing_version
        and not found.is_paused
    ]
    kinds = [
        _kind(
            found.namespace,
            found.rule if found.once_us is None else rules.without_instant(found.rule),
            found.target,
            found.owner,
        )
        for _, found in rows
    ]
    own = any(found.once_us is not None or found.payload for _, found in rows)
    return columns.Columns(
        indexes=[index for index, _ in rows],
        uids=[found.uid for _, found in rows],
        names=[found.name for _, found in rows],
        generations=[found.generation for _, found in rows],
        created_us=[found.created_us for _, found in rows],
        kinds=kinds,
        kind_of={kind: kind for kind in kinds},
        once_us=[found.once_us for _, found in rows] if own else (),
        payloads=[columns.OwnPayload(found.payload, found.payload_mac) for _, found in rows]
        if own
        else (),
    )


_kind = functools.lru_cache(maxsize=1024)(columns.DefinitionKind)


def left(count: int, groups: Iterable[Group]) -> list[int]:
    """The rows of a claim of so many points that are in no group, ascending."""
    taken = set(itertools.chain.from_iterable(one.indexes for one in groups))
    return [] if len(taken) == count else [row for row in range(count) if row not in taken]
