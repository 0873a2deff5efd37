"""Which points of a claim are ordinary, in batches of what is fired alike. Pure.

Most points ask for the same: an armed chain of the right version, one slot due, the next one far
enough away, nothing that depends on the schedule's name. So do, behind an outage, chains of which
several slots are overdue and all run, where the queue appends their entries: such a chain has a
row for each of its oldest slots, and is due again at once if there are more. Their decision is that
of every chain (``policies``), made once for each kind and due instead of once for each point.
Columns of a claim's chains come in; a ``Batch`` by column goes out for each namespace, target and
trigger. The rows that are in none, ``planning`` decides one by one.
"""

from __future__ import annotations

import functools
import itertools
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple

from duepoint import errors
from duepoint.delayqueue.definitions import columns
from duepoint.schedules import policies, slots
from duepoint.schedules import rule as rules
from duepoint.schedules.sets import identity as setidentity
from duepoint.worker import plan
from duepoint.worker.plan import Batch, picked

#: Kinds, and dues of theirs, of which it is kept what they mean; they come back with each claim.
_MOST_KEPT = 16_384
#: Rows that the overdue slots of one claim become, all together. More of them would keep other
#: claims waiting; with fewer, reading and settling the claim again costs more than its entries.
_MOST_OVERDUE = 2_000


class KindRule(NamedTuple):
    """What decides about points of one kind.

    Attributes:
        limit_us: how long an attempt may take; 0 of an entry that the queue appends.
        is_anchored: its slots depend on when a schedule was created.
        is_once: it has no slots of its own: each member has one instant.
    """

    kind: columns.DefinitionKind
    limit_us: int
    is_anchored: bool
    is_once: bool


class _Row(NamedTuple):
    """A slot, the due of the next one, and the slot before.

    No slot follows that of a member that fires once.
    """

    slot_us: int
    following_us: int | None
    previous_us: int | None


class _Step(NamedTuple):
    """The slots of a chain that run now, oldest first, and the rows of the claim alike."""

    slots: tuple[_Row, ...]
    rule: rules.Rule
    rows: list[int]


#: Kind, due, time of creation (0 where it has no say), instant of a member that fires once.
_StepKey = tuple[Hashable, int, int, "int | None"]
#: Namespace, target, set, trigger, and whether its chains have several rows each.
_BatchKey = tuple[str, str, "setidentity.SetIdentity | None", str, bool]


class _Steps(dict[_StepKey, "_Step | None"]):
    """The steps of one moment, each decided when it is first asked for.

    Args:
        share: slots of one chain, of those that a claim becomes.
    """

    def __init__(self, kinds: Mapping[Hashable, KindRule], now_us: int, share: int) -> None:
        super().__init__()
        self._kinds = kinds
        self._now_us = now_us
        self._share = share
        #: The rows of the claim in each batch.
        self.batches: defaultdict[_BatchKey, list[int]] = defaultdict(list)

    def __missing__(self, key: _StepKey) -> _Step | None:
        kind, due_us, created_us, once_us = key
        known = self._kinds.get(kind)
        found = None
        if known is not None and known.is_once:
            found = self._decide_once(known, due_us, once_us)
        elif known is not None and once_us is None:
            found = self._decide(known, due_us, created_us)
        self[key] = found
        return found

    def _decide(self, known: KindRule, due_us: int, created_us: int) -> _Step | None:
        """The step of a chain with this due; None where it is not an ordinary one."""
        kind, now_us = known.kind, self._now_us
        around = (_row if kind.is_large else _kept_row)(kind, due_us, created_us)
        if around is None or around.following_us is None:
            return None
        if around.following_us <= now_us:
            return None if known.limit_us else self._decide_several(kind, due_us, created_us)
        if around.following_us < now_us + known.limit_us:
            return None  # it will be overdue before an attempt ends
        due = slots.DueSlot(around.slot_us, around.slot_us)
        chosen = policies.lone(kind.rule.policy, due, now_us)
        return None if chosen is None else self._step(kind, (around,), chosen)

    def _decide_several(
        self, kind: columns.DefinitionKind, due_us: int, created_us: int
    ) -> _Step | None:
        """The step of a chain with several overdue slots; None where not all of them run."""
        timeline = slots.for_rule(kind.rule, identity="", created_us=created_us)
        decision = policies.decide(
            timeline,
            kind.rule.policy,
            chain_due_us=due_us,
            now_us=self._now_us,
            most=self._share,
        )
        run, following = decision.run, decision.following
        if decision.missed or following is None:
            return None
        previous_us = timeline.previous_before(run[0].slot_us)
        instants = [previous_us, *(one.slot_us for one in run), following.due_us]
        chosen = tuple(
            _Row(one.slot_us, instants[number + 2], instants[number])
            for number, one in enumerate(run)
        )
        return self._step(kind, chosen, run[0], has_several=True)

    def _decide_once(self, known: KindRule, due_us: int, once_us: int | None) -> _Step | None:
        """The same of a member that fires once, at this instant."""
        if due_us != once_us:
            return None
        chosen = policies.lone(known.kind.rule.policy, slots.DueSlot(due_us, due_us), self._now_us)
        if chosen is None:
            return None
        return self._step(known.kind, (_Row(due_us, None, None),), chosen)

    def _step(
        self,
        kind: columns.DefinitionKind,
        chosen: tuple[_Row, ...],
        oldest: policies.Chosen,
        *,
        has_several: bool = False,
    ) -> _Step:
        trigger = plan.TRIGGER_CATCH_UP if oldest.catch_up else plan.TRIGGER_SCHEDULE
        key = kind.namespace, kind.target, kind.owner, trigger, has_several
        return _Step(chosen, kind.rule, self.batches[key])


def _row(kind: columns.DefinitionKind, due_us: int, created_us: int) -> _Row | None:
    """The slot of a due with its neighbours; None where it has no slot or none follows."""
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
    return _Row(slot_us, following.due_us, timeline.previous_before(slot_us))


_kept_row = functools.lru_cache(maxsize=_MOST_KEPT)(_row)


def batches(
    found: columns.Columns,
    members: Sequence[bytes],
    dues: Sequence[int],
    kinds: Mapping[Hashable, KindRule],
    now_us: int,
) -> list[Batch]:
    """The ordinary points among the chains of a fresh claim.

    Args:
        members, dues: of all chains of the claim, also of those without a row.
        kinds: the kinds whose points may be ordinary.
    """
    known = _Steps(kinds, now_us, share=_MOST_OVERDUE // max(1, len(members)) or 1)
    created_us: Iterable[int] = itertools.repeat(0)
    if anchored := {key for key, kind in kinds.items() if kind.is_anchored}:
        rows = zip(found.kinds, found.created_us, strict=True)
        created_us = [instant if kind in anchored else 0 for kind, instant in rows]
    own = [dues[index] for index in found.indexes]
    once_us: Iterable[int | None] = found.once_us or itertools.repeat(None)
    steps = [known[key] for key in zip(found.kinds, own, created_us, once_us, strict=False)]
    for row, step in enumerate(steps):
        if step is not None:
            step.rows.append(row)
    return [_batch(key, rows, found, members, steps) for key, rows in known.batches.items()]


def _batch(
    key: _BatchKey,
    rows: Sequence[int],
    found: columns.Columns,
    members: Sequence[bytes],
    steps: Sequence[_Step | None],
) -> Batch:
    namespace, target, owner, trigger, has_several = key
    if len(rows) == rows[-1] - rows[0] + 1:  # side by side, as one namespace's rows are
        rows = range(rows[0], rows[-1] + 1)
    own = [step for step in picked(steps, rows) if step is not None]
    if has_several:
        repeated = list(zip(rows, own, strict=True))
        rows = [row for row, step in repeated for _ in step.slots]
        rules_of = [step.rule for _, step in repeated for _ in step.slots]
        chosen = [one for step in own for one in step.slots]
    else:
        rules_of = [step.rule for step in own]
        chosen = [step.slots[0] for step in own]
    indexes = picked(found.indexes, rows)
    return Batch(
        namespace=namespace,
        target=target,
        owner=owner,
        trigger=trigger,
        members=[members[index] for index in indexes],
        names=picked(found.names, rows),
        uids=picked(found.uids, rows),
        generations=picked(found.generations, rows),
        slots_us=[one.slot_us for one in chosen],
        payloads=picked(found.payloads, rows) if found.payloads else (),
        indexes=indexes,
        created_us=picked(found.created_us, rows),
        following=[one.following_us for one in chosen],
        previous_us=[one.previous_us for one in chosen],
        rules=rules_of,
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


def _nature(kind: columns.DefinitionKind) -> tuple[bool, bool] | None:
    """Whether it is anchored, and whether members of it fire once; None = it is not ordinary."""
    timing = kind.rule.timing
    if not is_ordinary(kind.rule):
        return None
    is_once = timing.schedules == rules.ONCE
    if is_once and (timing.start_us, timing.end_us) != (None, None):
        return None
    return slots.is_anchored(timing), is_once


_kept_nature = functools.lru_cache(maxsize=_MOST_KEPT)(_nature)


def left(count: int, found: Iterable[Batch]) -> list[int]:
    """The rows of a claim of so many points that are in no batch, ascending."""
    taken = set(itertools.chain.from_iterable(one.indexes for one in found))
    return [] if len(taken) == count else [row for row in range(count) if row not in taken]
