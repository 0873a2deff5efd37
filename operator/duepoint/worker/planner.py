"""Plans a claim: reads its definitions and decides what to do with each of its points.

The chains of a fresh claim are read by column and become batches of points that fire alike. All
other points are planned one by one from whole definitions (``planning``), and so is a small claim
that brings its definitions. The plan includes the actions, at least in outline, so that nothing is
read between the plan and its attempts unless an action is too large for the cache.

Most points are ordinary: an armed chain of the right version, one slot due, the next one far enough
away, nothing that depends on the schedule's name. After an outage, chains with several overdue
slots that all run are ordinary too, if the queue appends their entries: it appends the oldest slot,
and the chain is due again at once. Ordinary chains get the same decision as every chain
(``policies``), made once for each kind and due instead of once for each point. The input is the
columns of a claim's chains; the output is one ``Batch`` for each namespace, target and trigger.
"""

from __future__ import annotations

import dataclasses
import functools
import hmac
import itertools
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple

from duepoint import errors, telemetry
from duepoint.delayqueue import messages
from duepoint.delayqueue.claims import chaincolumns
from duepoint.delayqueue.definitions import columns, kinds
from duepoint.delayqueue.delayqueue import DelayQueue
from duepoint.schedules import actions, points, policies, slots
from duepoint.schedules import rule as rules
from duepoint.targets import target as targets
from duepoint.worker import plan as plans
from duepoint.worker import planning, results, runlimits
from duepoint.worker.actioncache import ActionCache
from duepoint.worker.plan import Batch, Plan, picked
from duepoint.worker.settler import Settler

#: Most entries in each cache of decisions by kind and due; the same ones return with each claim.
_MOST_KEPT = 16_384


class Planner:
    """Plans the claims of one worker."""

    def __init__(
        self, *, queue: DelayQueue, target: targets.WorkerTarget, actions: ActionCache
    ) -> None:
        self._queue = queue
        self._target = target
        self._actions = actions

    async def plan(self, settler: Settler, claim: messages.Claim) -> Plan | None:
        """Return what to do with each point; None if the lease ended before the queue answered."""
        together = await self._batches(settler, claim)
        if together is None:
            return None
        batches, outlines = together
        rows = left(len(claim.points), batches)
        made = Plan(outlines=outlines)
        if rows or claim.unknown_members:
            alone = claim
            if batches:
                alone = dataclasses.replace(claim, points=[claim.points[row] for row in rows])
            planned = await self._planned(settler, alone)
            if planned is None:
                return None
            made = planned
            made.outlines = {**outlines, **made.outlines}
        for batch in batches:
            if not self._target.appends(batch.action):
                made.attempts += [(attempt,) for attempt in batch.attempts()]
            elif (action := self._actions.at_hand(batch.namespace, batch.target)) is None:
                made.entries += batch.attempts()
            else:
                made.batches.append(dataclasses.replace(batch, action=action))
        return made

    # -- ordinary points -------------------------------------------------------------------------

    async def _batches(
        self, settler: Settler, claim: messages.Claim
    ) -> tuple[list[Batch], plans.Outlines] | None:
        chains = _fresh_chains(claim)
        if chains is None:
            return [], {}
        found = await settler.while_held(
            functools.partial(self._queue.columns.of_claim, claim, chains.members),
            "definitions not read",
        )
        if found is None:
            return None
        outlines = await self._actions.outlines(
            claim.shard, {(kind.namespace, kind.target) for kind in found.kind_of.values()}
        )
        found = self._with_proven_payloads(found, outlines)
        kinds = kind_rules(found.kind_of, outlines, self._target.appends)
        return batches(found, chains.members, chains.dues, kinds, claim.now_us), outlines

    def _with_proven_payloads(
        self, found: columns.Columns, outlines: plans.Outlines
    ) -> columns.Columns:
        """Drop the rows whose payload has no valid signature: planned alone, they are reported.

        Checks only entries that the queue appends; other payloads are verified before each request.
        """
        if not found.payloads:
            return found
        appending = {
            key: kind
            for key, kind in found.kind_of.items()
            if self._appends(outlines[kind.namespace, kind.target])
        }
        signed = self._queue.signed_blobs
        rows = zip(found.payloads, found.kinds, found.uids, found.names, strict=True)
        is_proven = [
            not payload.text
            or (kind := appending.get(key)) is None
            or hmac.compare_digest(
                signed.payload_mac(kind.namespace, uid, name, payload.text), payload.mac
            )
            for payload, key, uid, name in rows
        ]
        return found if all(is_proven) else columns.picked(found, is_proven)

    # -- all others ------------------------------------------------------------------------------

    async def _planned(self, settler: Settler, rest: messages.Claim) -> Plan | None:
        found = await settler.while_held(
            functools.partial(self._queue.definitions.of_claim, rest), "definitions not read"
        )
        if found is None:
            return None
        runs_left = await settler.while_held(
            functools.partial(runlimits.left, self._queue, rest, found), "open slots not read"
        )
        if runs_left is None:
            return None
        outlines = await self._actions.outlines(
            rest.shard, {(one.namespace, one.target) for one in found.values()}
        )
        made = planning.plan(
            rest,
            found,
            attempt_limit_us=lambda known: self._limit_us(outlines[known.namespace, known.target]),
            unreadable=found.unreadable,
            runs_left=runs_left,
        )
        results.count_ended(made.settlement.events)
        for point, trouble in made.unplanned:
            telemetry.logger.error(
                "point not planned", point=point.member.hex(), error=repr(trouble)
            )
        made.outlines = outlines
        sequences, made.attempts = made.attempts, []
        for sequence in sequences:
            known = sequence[0].definition
            if self._appends(outlines[known.namespace, known.target]):
                made.entries += sequence
            else:
                made.attempts.append(sequence)
        return made

    def _appends(self, outline: actions.Action | plans.ActionUnreadable) -> bool:
        """Whether the queue appends an entry for an attempt at this action."""
        return isinstance(outline, actions.Action) and self._target.appends(outline)

    def _limit_us(self, outline: actions.Action | plans.ActionUnreadable) -> int:
        if isinstance(outline, plans.ActionUnreadable):
            return 0
        return limit_us(outline, self._target.appends)


def limit_us(outline: actions.Action, appends: Callable[[actions.Action], bool]) -> int:
    """Return how long an attempt may take; 0 if the chain moves on together with its entry."""
    return 0 if appends(outline) else int(outline.target.limit_seconds * 1_000_000)


def _fresh_chains(claim: messages.Claim) -> chaincolumns.ClaimedChains | None:
    """Return the claim by column; None if its points cannot be ordinary.

    Points that another worker held before are not: that worker may have fired them.
    """
    if claim.reclaimed or claim.unknown_members or claim.judged_us != claim.now_us:
        return None
    return chaincolumns.of(claim.points)


# -- ordinary points -----------------------------------------------------------------------------


class KindRule(NamedTuple):
    """What the decision about points of one kind depends on.

    Attributes:
        action: its outline, or the whole action if that is cached.
        limit_us: how long an attempt may take; 0 for an entry that the queue appends.
        is_anchored: its slots depend on when a schedule was created.
        is_once: it has no slots of its own: each member has one instant.
    """

    kind: kinds.Kind
    action: actions.Action
    limit_us: int
    is_anchored: bool
    is_once: bool


class _Row(NamedTuple):
    """A slot, the due of the next one, and the slot before.

    A member that fires once has no next slot.
    """

    slot_us: int
    following_us: int | None
    previous_us: int | None


class _Step(NamedTuple):
    """The slot of a chain that runs now, and the rows of the claim that share it."""

    slot: _Row
    rule: rules.Rule
    rows: list[int]


#: Kind, due, time of creation (0 if it does not matter), instant of a member that fires once.
_StepKey = tuple[Hashable, int, int, "int | None"]
#: Namespace, target, set and trigger.
_BatchKey = tuple[str, str, "points.SetIdentity | None", str]


class _Steps(dict[_StepKey, "_Step | None"]):
    """The steps at one instant, each decided on first access."""

    def __init__(self, kinds: Mapping[Hashable, KindRule], now_us: int) -> None:
        super().__init__()
        self._kinds = kinds
        self._now_us = now_us
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
        """Return the step of a chain with this due; None if the chain is not ordinary."""
        kind, now_us = known.kind, self._now_us
        around = (_row if kind.is_large else _kept_row)(kind, due_us, created_us)
        if around is None or around.following_us is None:
            return None
        if known.limit_us and around.following_us < now_us + known.limit_us:
            return None  # it will be overdue before an attempt ends
        if around.following_us > now_us:
            due = slots.DueSlot(around.slot_us, around.slot_us)
            chosen = policies.lone(kind.rule.policy, due, now_us)
        else:
            timeline = slots.for_rule(kind.rule, identity="", created_us=created_us)
            decision = policies.decide(
                timeline, kind.rule.policy, chain_due_us=due_us, now_us=now_us, most=1
            )
            chosen = None if decision.missed else decision.run[0]
        return None if chosen is None else self._step(kind, around, chosen)

    def _decide_once(self, known: KindRule, due_us: int, once_us: int | None) -> _Step | None:
        """Return the step of a member that fires once, at this instant; None if not ordinary."""
        if due_us != once_us:
            return None
        chosen = policies.lone(known.kind.rule.policy, slots.DueSlot(due_us, due_us), self._now_us)
        if chosen is None:
            return None
        return self._step(known.kind, _Row(due_us, None, None), chosen)

    def _step(self, kind: kinds.Kind, slot: _Row, chosen: policies.Chosen) -> _Step:
        trigger = plans.TRIGGER_CATCH_UP if chosen.catch_up else plans.TRIGGER_SCHEDULE
        key = kind.namespace, kind.target, kind.owner, trigger
        return _Step(slot, kind.rule, self.batches[key])


def _row(kind: kinds.Kind, due_us: int, created_us: int) -> _Row | None:
    """Return the slot of a due with its neighbours; None if it has no slot or none follows."""
    try:
        timeline = slots.for_rule(kind.rule, identity="", created_us=created_us)
    except errors.DuepointError:  # reported when the point is planned alone
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
    """Return the ordinary points among the chains of a fresh claim.

    Args:
        members, dues: of all chains of the claim, including those without a row.
        kinds: the kinds whose points may be ordinary.
    """
    known = _Steps(kinds, now_us)
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
    action_of = {(one.kind.namespace, one.kind.target): one.action for one in kinds.values()}
    return [
        _batch(key, rows, found, members, steps, action=action_of[key[:2]])
        for key, rows in known.batches.items()
    ]


def _batch(
    key: _BatchKey,
    rows: Sequence[int],
    found: columns.Columns,
    members: Sequence[bytes],
    steps: Sequence[_Step | None],
    *,
    action: actions.Action,
) -> Batch:
    namespace, target, owner, trigger = key
    if len(rows) == rows[-1] - rows[0] + 1:  # side by side, as one namespace's rows are
        rows = range(rows[0], rows[-1] + 1)
    own = [step for step in picked(steps, rows) if step is not None]
    chosen = [step.slot for step in own]
    indexes = picked(found.indexes, rows)
    payloads = picked(found.payloads, rows) if found.payloads else ()
    return Batch(
        action=action,
        namespace=namespace,
        target=target,
        owner=owner,
        trigger=trigger,
        members=[members[index] for index in indexes],
        names=picked(found.names, rows),
        uids=picked(found.uids, rows),
        generations=picked(found.generations, rows),
        slots_us=[one.slot_us for one in chosen],
        payloads=[payload.text for payload in payloads],
        macs=[payload.mac for payload in payloads],
        indexes=indexes,
        created_us=picked(found.created_us, rows),
        following=[one.following_us for one in chosen],
        previous_us=[one.previous_us for one in chosen],
        rules=[step.rule for step in own],
    )


def is_ordinary(rule: rules.Rule) -> bool:
    """Whether the rule's slots depend neither on a schedule's own name nor on its count of runs."""
    timing = rule.timing
    is_counted = timing.max_runs is not None or rule.policy.concurrency != "Allow"
    return slots.is_alike(timing) and not is_counted


def kind_rules(
    found: Mapping[Hashable, kinds.Kind],
    outlines: plans.Outlines,
    appends: Callable[[actions.Action], bool],
) -> dict[Hashable, KindRule]:
    """Return the kinds whose points may be ordinary."""
    chosen: dict[Hashable, KindRule] = {}
    for key, kind in found.items():
        nature = (_nature if kind.is_large else _kept_nature)(kind)
        outline = outlines[kind.namespace, kind.target]
        if nature is not None and isinstance(outline, actions.Action):
            chosen[key] = KindRule(kind, outline, limit_us(outline, appends), *nature)
    return chosen


def _nature(kind: kinds.Kind) -> tuple[bool, bool] | None:
    """Return whether the kind is anchored, and whether it fires once; None = not ordinary."""
    timing = kind.rule.timing
    if not is_ordinary(kind.rule):
        return None
    is_once = timing.schedules == rules.ONCE
    if is_once and (timing.start_us, timing.end_us) != (None, None):
        return None
    return slots.is_anchored(timing), is_once


_kept_nature = functools.lru_cache(maxsize=_MOST_KEPT)(_nature)


def left(count: int, found: Iterable[Batch]) -> list[int]:
    """Return the rows, of a claim with ``count`` points, that are in no batch; ascending."""
    taken = set(itertools.chain.from_iterable(one.indexes for one in found))
    return [] if len(taken) == count else [row for row in range(count) if row not in taken]
