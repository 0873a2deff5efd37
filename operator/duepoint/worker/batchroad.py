"""Large claims: read in one reply, decided by kind, fired together, settled together.

An attempt of its own costs a point a task, a dozen objects and several awaits; a burst of points
whose target takes many at a time needs none of them. What this road cannot do the same way as the
usual one it leaves to the usual one: everything odd, late, retried or reclaimed, every action that
is fired alone, and each firing that was not accepted, which is then tried alone and answered for
there. So nothing here decides about retries or failures.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from duepoint import errors, telemetry
from duepoint.clock import Clock
from duepoint.delayqueue import messages
from duepoint.delayqueue.claims import claimedchains, nextdues
from duepoint.delayqueue.definitions import codec
from duepoint.delayqueue.delayqueue import DelayQueue
from duepoint.delayqueue.wire import scripting
from duepoint.runs import outcome as outcomes
from duepoint.runs import run
from duepoint.schedules import actions
from duepoint.schedules import definition as definitions
from duepoint.schedules.conditions import Reason
from duepoint.targets import batches
from duepoint.targets import target as targets
from duepoint.worker import places, plainwork, settler
from duepoint.worker.actioncache import ActionCache, Sketch

#: Fewer points go the usual road, which has less delay: nothing is read twice there.
LEAST_POINTS = 64
#: Of a shard where targets that take batches were met lately, as few as these come here: alone they
#: would cost the worker most of a millisecond each, and the last would wait for all the others.
LEAST_KNOWN_POINTS = 8
#: A shard whose claims held nothing for this road is not looked at again for so long.
_BARREN_SECONDS = 1.0

#: Of one script that appends and settles: 2 to 3.5 ms of the server's time, 5.5 with 500.
_MOST_ENTRIES = 300
_MOST_BYTES = 1024 * 1024
_ENTRY_BYTES = 256

_ValueT = TypeVar("_ValueT")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """Whom to tell how a claim goes on before all of it has ended.

    Attributes:
        ended: that so many points have.
        found_out: that its Jobs stand in the line.
    """

    ended: Callable[[int], None]
    found_out: Callable[[], None]


class BatchRoad:
    """Fires what it can of a claim; says which part of the claim is left."""

    def __init__(
        self,
        queue: DelayQueue,
        target: targets.Target,
        clock: Clock,
        known: ActionCache,
        given: places.Places,
    ) -> None:
        self._places = given
        self._queue = queue
        self._target = target if isinstance(target, batches.BatchTarget) else None
        self._settled = target if isinstance(target, batches.SettledTarget) else None
        self._clock = clock
        self._actions = known
        self._barren_until: dict[messages.ShardId, float] = {}
        #: Shards where the last claim that was looked at had work for this road.
        self._known: set[messages.ShardId] = set()

    async def fire(self, settling: settler.Settler, told: Told) -> messages.Claim:
        """The claim with the points that are left; the others' closing is with the settler."""
        claim = settling.claim
        chains = self._chains(claim)
        if chains is None:
            return claim
        work = await self._choose(claim, chains)
        if work is None or not work.batches:
            self._known.discard(claim.shard)
            self._barren_until[claim.shard] = self._clock.monotonic() + _BARREN_SECONDS
            return claim
        self._known.add(claim.shard)
        left = await self._fire_all(settling, chains, work.batches, told)
        return _part(claim, chains, sorted(itertools.chain(work.rest, left)))

    def note_targets(self, claim: messages.Claim, known: Iterable[definitions.Definition]) -> None:
        """What a claim that went the usual road turned out to be of; its actions are loaded."""
        if self._target is None or len(claim.points) < LEAST_KNOWN_POINTS:
            return
        for namespace, digest in {(one.namespace, one.target) for one in known}:
            action = self._actions.known(namespace, digest)
            if isinstance(action, actions.Action) and self._target.takes_batches(action):
                self._known.add(claim.shard)
                return

    async def _fire_all(
        self,
        settling: settler.Settler,
        chains: claimedchains.ClaimedChains,
        found: Sequence[plainwork.Plain],
        told: Told,
    ) -> list[int]:
        """The rows that were not delivered."""
        settled = [batch for batch in found if self._is_settled(batch.action)]
        left: list[int] = []
        if settled:
            left = await self._hand_over(settling, chains, settled)
        others = (batch for batch in found if not self._is_settled(batch.action))
        more = [self._fire_in_turn(settling, chains, batch, told) for batch in others]
        return [*left, *itertools.chain.from_iterable(await asyncio.gather(*more) if more else ())]

    async def _fire_in_turn(
        self,
        settling: settler.Settler,
        chains: claimedchains.ClaimedChains,
        batch: plainwork.Plain,
        told: Told,
    ) -> list[int]:
        if not isinstance(batch.action.target, actions.JobAction):
            return await self._fire_batch(settling, chains, self._firings(settling, batch), batch)
        with self._places.jobs.together(len(batch.indexes)) as note_end:
            told.found_out()

            def note_row() -> None:
                note_end()
                told.ended(1)

            firings = dataclasses.replace(self._firings(settling, batch), note_row=note_row)
            return await self._fire_batch(settling, chains, firings, batch)

    def _chains(self, claim: messages.Claim) -> claimedchains.ClaimedChains | None:
        """The claim by column, where it is one for this road."""
        if self._target is None or claim.reclaimed or claim.strangers:
            return None
        if claim.judged_us != claim.now_us:
            return None  # given back by a worker that is gone
        is_known = claim.shard in self._known
        if len(claim.points) < (LEAST_KNOWN_POINTS if is_known else LEAST_POINTS):
            return None
        if self._clock.monotonic() < self._barren_until.get(claim.shard, 0.0):
            return None
        chains = claimedchains.of(claim.points)
        if chains is not None and claim.back_us and chains.dues[0] <= claim.back_us:
            return None  # of slots that are to be compared first
        return chains

    async def _choose(
        self, claim: messages.Claim, chains: claimedchains.ClaimedChains
    ) -> plainwork.PlainWork | None:
        """None where the definitions cannot be read now: the usual road has the patience."""
        try:
            found = await self._queue.definitions.read_columns(claim.shard, chains.members)
        except (errors.TryLater, errors.WorldChanged):
            return None
        for namespace, target in {(kind.namespace, kind.target) for kind in found.kind_of.values()}:
            if not isinstance(self._actions.known(namespace, target), Sketch):
                await self._actions.load(claim.shard, namespace, target)
        plain = plainwork.plain_kinds(found.kind_of, self._action_of, self._limit_us)
        return plainwork.choose(found, chains.dues, plain, claim.now_us)

    def _limit_us(self, action: actions.Action) -> int:
        if self._is_settled(action):
            return 0  # the chains move on with their deliveries, not after them
        return int(targets.attempt_limit_seconds(action) * 1_000_000)

    def _is_settled(self, action: actions.Action) -> bool:
        return self._settled is not None and self._settled.settles(action)

    def _action_of(self, kind: codec.Kind) -> actions.Action | None:
        action = self._actions.known(kind.namespace, kind.target)
        if not isinstance(action, actions.Action) or self._target is None:
            return None  # perhaps there was no room to keep it: each reads it when it begins
        return action if self._target.takes_batches(action) else None

    async def _fire_batch(
        self,
        settling: settler.Settler,
        chains: claimedchains.ClaimedChains,
        firings: batches.FiringBatch,
        batch: plainwork.Plain,
    ) -> list[int]:
        """The rows that were not delivered."""
        started_us = settling.now_us()
        answer = await self._answer(firings)
        done = _Done.of(chains, batch, answer)
        if done.indexes and done.jobs:
            settling.add(_closing_of_jobs(batch, done, settling))
            _observe([job.accepted_us for job in done.jobs], done.slots_us)
        elif done.indexes:
            settling.add(_closing(batch, done, answer, (started_us, settling.now_us())))
            _observe([answer.accepted_us], done.slots_us)
        if len(done.indexes) == len(batch.indexes):
            return []
        return sorted(set(batch.indexes).difference(done.indexes))

    async def _hand_over(
        self,
        settling: settler.Settler,
        chains: claimedchains.ClaimedChains,
        found: Sequence[plainwork.Plain],
    ) -> list[int]:
        """As ``_fire_batch``, where the settlement itself delivers; of all actions together."""
        left: list[int] = []
        for parts in _scripts(found):
            if settling.lost:
                break  # nothing of it is this worker's any more
            left += await self._hand_parts_over(settling, chains, parts)
        return [] if settling.lost else left

    async def _hand_parts_over(
        self,
        settling: settler.Settler,
        chains: claimedchains.ClaimedChains,
        parts: Sequence[plainwork.Plain],
    ) -> list[int]:
        """The rows of which nothing was done: each is tried alone, and told of there."""
        entries, closed = zip(*(self._hoped(settling, chains, part) for part in parts), strict=True)
        try:
            handed = await settling.hand_over(entries, closed)
        except (scripting.WrongType, scripting.Refused):
            handed = None
        if handed is None or not handed.done:
            return list(itertools.chain.from_iterable(part.indexes for part in parts))
        left: list[int] = []
        for part, refusal in itertools.zip_longest(parts, handed.refused, fillvalue=""):
            assert isinstance(part, plainwork.Plain)  # noqa: S101 - as many answers at most
            if refusal:
                left += part.indexes
            else:
                self._note_delivered(part, settling.now_us())
        return left

    def _hoped(
        self,
        settling: settler.Settler,
        chains: claimedchains.ClaimedChains,
        part: plainwork.Plain,
    ) -> tuple[messages.Entries, settler.Closing]:
        """The entries of a part and what its points end with, the news among the entries."""
        assert self._settled is not None  # noqa: S101 - ``_is_settled`` said so
        now_us = settling.now_us()
        members = [chains.members[index] for index in part.indexes]
        told = [self._settled.message_of(part.action)] * len(members)
        hoped = batches.BatchAnswer(accepted_us=now_us, messages=told)
        closed = _closing(part, _Done.of(chains, part, hoped), hoped, (now_us, now_us))
        entries = dataclasses.replace(
            self._settled.entries_of(self._firings(settling, part), members),
            outcomes=run.pack(closed.events),
        )
        return entries, dataclasses.replace(closed, events=())

    def _note_delivered(self, part: plainwork.Plain, accepted_us: int) -> None:
        assert self._settled is not None  # noqa: S101 - ``_is_settled`` said so
        delivered = outcomes.Delivered(accepted_us=accepted_us)
        self._settled.count(part.action, delivered, len(part.indexes))
        _observe([accepted_us], part.slots_us)

    @staticmethod
    def _firings(settling: settler.Settler, batch: plainwork.Plain) -> batches.FiringBatch:
        return batches.FiringBatch(
            action=batch.action,
            namespace=batch.namespace,
            trigger=batch.trigger,
            names=batch.names,
            uids=batch.uids,
            generations=batch.generations,
            slots_us=batch.slots_us,
            not_after_monotonic=float("-inf") if settling.lost else settling.claim.held_until,
            previous_us=batch.previous_us,
            time_zones=batch.time_zones,
        )

    async def _answer(self, batch: batches.FiringBatch) -> batches.BatchAnswer:
        assert self._target is not None  # noqa: S101 - _chains saw to it
        try:
            return await self._target.fire_batch(batch)
        except Exception as bug:  # noqa: BLE001 - each is tried alone, and told of there
            telemetry.logger.exception("batch not fired", error=repr(bug))
            return batches.BatchAnswer(accepted_us=0, messages=[None] * len(batch.names))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Done:
    """The rows of a batch that were delivered, by column."""

    indexes: Sequence[int]
    members: Sequence[bytes]
    following: Sequence[int]
    names: Sequence[str]
    uids: Sequence[str]
    generations: Sequence[int]
    slots_us: Sequence[int]
    messages: Sequence[str]
    jobs: Sequence[batches.MadeJob]

    @classmethod
    def of(
        cls,
        chains: claimedchains.ClaimedChains,
        batch: plainwork.Plain,
        answer: batches.BatchAnswer,
    ) -> _Done:
        is_all = None not in answer.messages
        delivered = [] if is_all else [message is not None for message in answer.messages]

        def picked(column: Sequence[_ValueT]) -> Sequence[_ValueT]:
            return column if is_all else list(itertools.compress(column, delivered))

        indexes = picked(batch.indexes)
        return cls(
            indexes=indexes,
            members=[chains.members[index] for index in indexes],
            following=picked(batch.following),
            names=picked(batch.names),
            uids=picked(batch.uids),
            generations=picked(batch.generations),
            slots_us=picked(batch.slots_us),
            messages=[message for message in answer.messages if message is not None],
            jobs=[job for job in answer.jobs if job is not None],
        )


def _closing(
    batch: plainwork.Plain, done: _Done, answer: batches.BatchAnswer, times: tuple[int, int]
) -> settler.Closing:
    """The chains at their next dues, and the news; as ``settler.closing`` says of each alone."""
    started_us, now_us = times
    told = run.Together(
        namespace=batch.namespace,
        trigger=batch.trigger,
        at_us=now_us,
        started_us=started_us,
        accepted_us=answer.accepted_us,
        uids=done.uids,
        names=done.names,
        generations=run.column(done.generations),
        slots_us=run.column(done.slots_us),
        messages=run.column(done.messages),
    )
    return settler.Closing(rearmed=nextdues.Rearmed(done.members, done.following), events=(told,))


def _closing_of_jobs(
    batch: plainwork.Plain, done: _Done, settling: settler.Settler
) -> settler.Closing:
    """The same for Jobs, which run on."""
    now_us = settling.now_us()
    told = [
        run.RunEvent(
            uid=uid,
            namespace=batch.namespace,
            name=name,
            generation=generation,
            slot_us=slot_us,
            trigger=batch.trigger,
            state=run.RunState.RUNNING,
            reason=Reason.CREATED,
            at_us=now_us,
            started_us=settling.at_us(job.begun_monotonic),
            attempts=1,
            job_name=job.name,
            settled_us=slot_us,
        )
        for uid, name, generation, slot_us, job in zip(
            done.uids, done.names, done.generations, done.slots_us, done.jobs, strict=True
        )
    ]
    return settler.Closing(rearmed=nextdues.Rearmed(done.members, done.following), events=told)


def _observe(accepted_us: Sequence[int], slots_us: Sequence[int]) -> None:
    """How late they were; one instant stands for that of all."""
    late: collections.Counter[float] = collections.Counter()
    accepted_us = list(accepted_us) * (len(slots_us) if len(accepted_us) == 1 else 1)
    for (at_us, slot_us), count in collections.Counter(
        zip(accepted_us, slots_us, strict=True)
    ).items():
        late[max(0, at_us - slot_us) / 1_000_000] += count
    telemetry.start_lateness_seconds.observe_many(late)
    telemetry.slots_total.labels("Started", "").inc(len(slots_us))


def _part(
    claim: messages.Claim, chains: claimedchains.ClaimedChains, rows: Sequence[int]
) -> messages.Claim:
    if len(rows) == len(chains):
        return claim
    members, dues = chains.members, chains.dues
    left = claimedchains.ClaimedChains(
        [members[row] for row in rows], [float(dues[row]) for row in rows]
    )
    return dataclasses.replace(claim, points=left)


def _scripts(found: Iterable[plainwork.Plain]) -> list[list[plainwork.Plain]]:
    """What goes in with one script each, which stays short: parts of several actions."""
    scripts: list[list[plainwork.Plain]] = []
    entries = size = 0
    for part in itertools.chain.from_iterable(map(_parts, found)):
        count = len(part.indexes)
        length = count * _entry_bytes(part)
        if not scripts or entries + count > _MOST_ENTRIES or size + length > _MOST_BYTES:
            scripts.append([])
            entries = size = 0
        scripts[-1].append(part)
        entries, size = entries + count, size + length
    return scripts


def _entry_bytes(batch: plainwork.Plain) -> int:
    """A payload is copied with every entry."""
    return _ENTRY_BYTES + len(batch.action.payload)


def _parts(batch: plainwork.Plain) -> list[plainwork.Plain]:
    """Rows for one script each."""
    count = max(1, min(_MOST_ENTRIES, _MOST_BYTES // _entry_bytes(batch)))
    if len(batch.indexes) <= count:
        return [batch]
    return [
        dataclasses.replace(
            batch,
            **{
                column: getattr(batch, column)[first : first + count]
                for column in ("indexes", "names", "uids", "generations", "slots_us", "following")
            },
        )
        for first in range(0, len(batch.indexes), count)
    ]
