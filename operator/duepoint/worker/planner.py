"""Plans a claim: what is read for it, and what is decided about each of its points.

The chains of a fresh claim are read by column and become batches. What is not ordinary is planned
point by point from whole definitions, and so is a small claim that brings them. Which actions the
targets are to carry out is known afterwards, in outline at least, so that nothing is read between
the plan and its attempts unless an action is too large to be kept. The decisions are pure:
``batching``, ``planning``.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import hmac
from collections.abc import Iterable

from duepoint import telemetry
from duepoint.delayqueue import messages
from duepoint.delayqueue.claims import chaincolumns
from duepoint.delayqueue.definitions import columns
from duepoint.delayqueue.delayqueue import DelayQueue
from duepoint.schedules import actions
from duepoint.targets import target as targets
from duepoint.worker import batching, planning, results, runlimits
from duepoint.worker.actioncache import ActionCache, ActionUnreadable
from duepoint.worker.plan import Batch, Plan
from duepoint.worker.settler import Settler


class Planner:
    """Plans the claims of one worker."""

    def __init__(
        self, *, queue: DelayQueue, target: targets.WorkerTarget, actions: ActionCache
    ) -> None:
        self._queue = queue
        self._target = target
        self._actions = actions

    async def plan(self, settler: Settler, claim: messages.Claim) -> Plan | None:
        """What to do with each point; None where the claim ran out before the queue answered."""
        batches = await self._batches(settler, claim)
        if batches is None:
            return None
        rows = batching.left(len(claim.points), batches)
        made = Plan()
        if rows or claim.unknown_members:
            alone = claim
            if batches:
                alone = dataclasses.replace(claim, points=[claim.points[row] for row in rows])
            planned = await self._planned(settler, alone)
            if planned is None:
                return None
            made = planned
        for batch in batches:
            appends = self._appends(batch.namespace, batch.target)
            action = self._actions.at_hand(batch.namespace, batch.target)
            if appends and isinstance(action, actions.Action):
                made.batches.append(batch)
            else:
                into = made.entries if appends else made.attempts
                into += [(attempt,) for attempt in batch.attempts()]
        return made

    # -- ordinary points -------------------------------------------------------------------------

    async def _batches(self, settler: Settler, claim: messages.Claim) -> list[Batch] | None:
        chains = _fresh_chains(claim)
        if chains is None or len(claim.definitions) >= len(claim.points):
            return []
        found = await settler.while_held(
            functools.partial(self._queue.columns.read_columns, claim.shard, chains.members),
            "definitions not read",
        )
        if found is None:
            return None
        await self._load(
            claim.shard, ((kind.namespace, kind.target) for kind in found.kind_of.values())
        )
        found = self._with_proven_payloads(found)
        kinds = batching.kind_rules(found.kind_of, self._limit_us)
        return batching.batches(found, chains.members, chains.dues, kinds, claim.now_us)

    def _with_proven_payloads(self, found: columns.Columns) -> columns.Columns:
        """Without the rows whose payload is not ours: planned alone, they are reported.

        Only of those that the queue appends: before a request each is proven by itself.
        """
        if not found.payloads:
            return found
        appending = {
            key: kind
            for key, kind in found.kind_of.items()
            if self._appends(kind.namespace, kind.target)
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
            functools.partial(self._definitions, rest), "definitions not read"
        )
        if found is None:
            return None
        runs_left = await settler.while_held(
            functools.partial(runlimits.left, self._queue, rest, found), "open slots not read"
        )
        if runs_left is None:
            return None
        await self._load(rest.shard, ((one.namespace, one.target) for one in found.values()))
        made = planning.plan(
            rest,
            found,
            attempt_limit_us=lambda known: self._limit_us(known.namespace, known.target) or 0,
            unreadable=found.unreadable,
            runs_left=runs_left,
        )
        results.count_ended(made.settlement.events)
        for point, trouble in made.unplanned:
            telemetry.logger.error(
                "point not planned", point=point.member.hex(), error=repr(trouble)
            )
        sequences, made.attempts = made.attempts, []
        for sequence in sequences:
            known = sequence[0].definition
            appends = self._appends(known.namespace, known.target)
            (made.entries if appends else made.attempts).append(sequence)
        return made

    async def _definitions(self, claim: messages.Claim) -> messages.FoundDefinitions:
        """Those that came with the claim, and the newest of the others."""
        at_hand = {key: known for key, known in claim.definitions.items() if known is not None}
        unread = {point.schedule_id for point in claim.points} - claim.definitions.keys()
        if not unread:
            return messages.FoundDefinitions(at_hand)
        found = await self._queue.definitions.read_definitions(claim.shard, unread)
        found.update(at_hand)
        return found

    # -- actions ---------------------------------------------------------------------------------

    async def _load(self, shard: messages.ShardId, wanted: Iterable[tuple[str, str]]) -> None:
        unknown = [key for key in set(wanted) if not self._actions.is_sketched(*key)]
        if unknown:
            await asyncio.gather(*(self._actions.get(shard, *key) for key in unknown))

    def _appends(self, namespace: str, target: str) -> bool:
        """Whether the queue appends an entry for an attempt at this target."""
        outline = self._actions.outline(namespace, target)
        return isinstance(outline, actions.Action) and self._target.appends(outline)

    def _limit_us(self, namespace: str, target: str) -> int | None:
        """How long an attempt may take; None where that is not known."""
        outline = self._actions.outline(namespace, target)
        if isinstance(outline, ActionUnreadable):
            return None
        if self._target.appends(outline):  # the chain moves on with the entry, not after it
            return 0
        return int(targets.attempt_limit_seconds(outline) * 1_000_000)


def _fresh_chains(claim: messages.Claim) -> chaincolumns.ClaimedChains | None:
    """The claim by column, where its points may be ordinary.

    What another worker held may have been fired.
    """
    if claim.reclaimed or claim.unknown_members or claim.judged_us != claim.now_us:
        return None
    return chaincolumns.of(claim.points)
