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

from duepoint import errors, faults, telemetry
from duepoint.delayqueue import messages
from duepoint.delayqueue.claims import chaincolumns
from duepoint.delayqueue.definitions import columns, kinds
from duepoint.delayqueue.delayqueue import DelayQueue
from duepoint.faults import FaultPoint
from duepoint.schedules import actions, points, policies, slots
from duepoint.schedules import rule as rules
from duepoint.targets import target as targets
from duepoint.worker import plan as plans
from duepoint.worker import planning, results, runlimits
from duepoint.worker.actioncache import ActionCache
from duepoint.worker.plan import Batch, Plan, picked
from duepoint.worker.settler import Settler

#: Most slots that are cached by kind and due; the same ones return with each claim.
_MOST_CACHED = 16_384


class Planner:
    """Plans the claims of one worker."""

    def __init__(
        self, *, queue: DelayQueue, streams: targets.EntryTarget, actions: ActionCache
    ) -> None:
        self._queue = queue
        self._streams = streams
        self._actions = actions

    async def plan(self, settler: Settler, claim: messages.Claim) -> Plan | None:
        """Return what to do with each point; None if the lease ended before the queue answered."""
        made, rest = Plan(), claim
        if (chains := _fresh_chains(claim)) is not None:
            found = await settler.while_held(
                functools.partial(self._queue.columns.of_claim, claim, chains.members),
                "definitions not read",
            )
            if found is None:
                return None
            made.outlines = await self._actions.outlines(
                claim.shard, {(kind.namespace, kind.target) for kind in found.kind_of.values()}
            )
            found = self._with_proven_payloads(found, made.outlines)
            together = batches(found, chains, made.outlines, self._appends, claim.now_us)
            for batch in together:
                if self._appends(batch.action):
                    made.batches.append(batch)
                else:
                    made.attempts += batch.attempts()
            if together:
                rows = left(len(chains), together)
                rest = dataclasses.replace(claim, points=[claim.points[row] for row in rows])
        if rest.points or rest.unknown_members:
            planned = await self._planned(settler, rest)
            if planned is None:
                return None
            made.add(planned)
        await faults.reach(FaultPoint.AFTER_PLAN)
        return made

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

    async def _planned(self, settler: Settler, rest: messages.Claim) -> Plan | None:
        """Return the plan of points that are planned one by one; None as for ``plan``."""
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
            attempt_limit_us=lambda known: limit_us(
                outlines[known.namespace, known.target], self._appends
            ),
            unreadable=found.unreadable,
            runs_left=runs_left,
        )
        made.outlines = outlines
        results.count_ended(made.settlement.events)
        for point, trouble in made.unplanned:
            telemetry.logger.error(
                "point not planned", point=point.member.hex(), error=repr(trouble)
            )
        return made

    def _appends(self, outline: plans.Outline) -> bool:
        """Whether the queue appends an entry for an attempt at this action."""
        return isinstance(outline, actions.Action) and self._streams.appends(outline)


def limit_us(outline: plans.Outline, appends: Callable[[plans.Outline], bool]) -> int:
    """Return how long an attempt may take; 0 if the chain moves on together with its entry."""
    if isinstance(outline, plans.ActionUnreadable) or appends(outline):
        return 0
    return int(outline.target.limit_seconds * 1_000_000)


def _fresh_chains(claim: messages.Claim) -> chaincolumns.ClaimedChains | None:
    """Return the claim by column; None if its points cannot be ordinary.

    Points that another worker held before are not: that worker may have fired them.
    """
    if claim.reclaimed or claim.unknown_members or claim.judged_us != claim.now_us:
        return None
    return chaincolumns.of(claim.points)


# -- ordinary points -----------------------------------------------------------------------------


class _Slot(NamedTuple):
    """A slot, the due of the next one, and the slot before.

    A member that fires once has no next slot.
    """

    slot_us: int
    following_us: int | None
    previous_us: int | None


class _Step(NamedTuple):
    """The slot of a chain that runs now, and the rows of the claim that share it."""

    slot: _Slot
    rule: rules.Rule
    action: actions.Action
    rows: list[int]


#: Kind, due, time of creation (0 if it does not matter), instant of a member that fires once.
_StepKey = tuple[Hashable, int, int, "int | None"]
#: Namespace, target, set and trigger.
_BatchKey = tuple[str, str, "points.SetIdentity | None", str]


class _Steps(dict[_StepKey, "_Step | None"]):
    """The steps at one instant, each decided on first access."""

    def __init__(
        self,
        kind_of: Mapping[Hashable, kinds.Kind],
        outlines: plans.Outlines,
        appends: Callable[[plans.Outline], bool],
        now_us: int,
    ) -> None:
        super().__init__()
        self._kind_of = kind_of
        self._outlines = outlines
        self._appends = appends
        self._now_us = now_us
        #: The rows of the claim in each batch.
        self.batches: defaultdict[_BatchKey, list[int]] = defaultdict(list)

    def __missing__(self, key: _StepKey) -> _Step | None:
        digest, due_us, created_us, once_us = key
        kind = self._kind_of.get(digest)
        found = None if kind is None else self._decide(kind, due_us, created_us, once_us)
        self[key] = found
        return found

    def _decide(
        self, kind: kinds.Kind, due_us: int, created_us: int, once_us: int | None
    ) -> _Step | None:
        """Return the step of a chain with this due; None if the chain is not ordinary."""
        outline, now_us = self._outlines[kind.namespace, kind.target], self._now_us
        if isinstance(outline, plans.ActionUnreadable) or not is_ordinary(kind.rule):
            return None
        if kind.rule.timing.schedules == rules.ONCE:
            slot = _Slot(due_us, None, None) if due_us == once_us else None
        elif once_us is not None:
            slot = None
        else:
            slot = (_slot if kind.is_large else _cached_slot)(kind, due_us, created_us)
        if slot is None:
            return None
        following_us, limit = slot.following_us, limit_us(outline, self._appends)
        if following_us is not None and limit and following_us < now_us + limit:
            return None  # it will be overdue before an attempt ends
        if following_us is None or following_us > now_us:
            due = slots.DueSlot(slot.slot_us, slot.slot_us)
            chosen = policies.lone(kind.rule.policy, due, now_us)
        else:
            timeline = slots.for_rule(kind.rule, identity="", created_us=created_us)
            decision = policies.decide(
                timeline, kind.rule.policy, chain_due_us=due_us, now_us=now_us, most=1
            )
            chosen = None if decision.missed else decision.run[0]
        if chosen is None:
            return None
        trigger = plans.TRIGGER_CATCH_UP if chosen.catch_up else plans.TRIGGER_SCHEDULE
        key = kind.namespace, kind.target, kind.owner, trigger
        return _Step(slot, kind.rule, outline, self.batches[key])


def _slot(kind: kinds.Kind, due_us: int, created_us: int) -> _Slot | None:
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
    return _Slot(slot_us, following.due_us, timeline.previous_before(slot_us))


_cached_slot = functools.lru_cache(maxsize=_MOST_CACHED)(_slot)


def batches(
    found: columns.Columns,
    chains: chaincolumns.ClaimedChains,
    outlines: plans.Outlines,
    appends: Callable[[plans.Outline], bool],
    now_us: int,
) -> list[Batch]:
    """Return the ordinary points among the chains of a fresh claim.

    Args:
        chains: of the whole claim, including those without a row.
    """
    known = _Steps(found.kind_of, outlines, appends, now_us)
    created_us: Iterable[int] = itertools.repeat(0)
    if anchored := {
        key for key, kind in found.kind_of.items() if slots.is_anchored(kind.rule.timing)
    }:
        rows = zip(found.kinds, found.created_us, strict=True)
        created_us = [instant if kind in anchored else 0 for kind, instant in rows]
    dues = chains.dues
    own = [dues[index] for index in found.indexes]
    once_us: Iterable[int | None] = found.once_us or itertools.repeat(None)
    steps = [known[key] for key in zip(found.kinds, own, created_us, once_us, strict=False)]
    for row, step in enumerate(steps):
        if step is not None:
            step.rows.append(row)
    return [_batch(key, rows, found, chains.members, steps) for key, rows in known.batches.items()]


def _batch(
    key: _BatchKey,
    rows: Sequence[int],
    found: columns.Columns,
    members: Sequence[bytes],
    steps: Sequence[_Step | None],
) -> Batch:
    namespace, target, owner, trigger = key
    if len(rows) == rows[-1] - rows[0] + 1:  # side by side, as one namespace's rows are
        rows = range(rows[0], rows[-1] + 1)
    own = [step for step in picked(steps, rows) if step is not None]
    chosen = [step.slot for step in own]
    indexes = picked(found.indexes, rows)
    payloads = picked(found.payloads, rows) if found.payloads else ()
    return Batch(
        action=own[0].action,
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
        following=[one.following_us for one in chosen],
        previous_us=[one.previous_us for one in chosen],
        rules=[step.rule for step in own],
    )


def is_ordinary(rule: rules.Rule) -> bool:
    """Whether its slots depend neither on a schedule's own name nor on its count of runs."""
    timing = rule.timing
    is_counted = timing.max_runs is not None or rule.policy.concurrency_policy != "Allow"
    is_bounded = (timing.start_us, timing.end_us) != (None, None)
    if is_counted or (is_bounded and timing.schedules == rules.ONCE):
        return False
    return slots.is_alike(timing)


def left(count: int, found: Iterable[Batch]) -> list[int]:
    """Return the rows, of a claim with ``count`` points, that are in no batch; ascending."""
    taken = set(itertools.chain.from_iterable(one.indexes for one in found))
    return [] if len(taken) == count else [row for row in range(count) if row not in taken]
