"""The sets that requests name: their records, states, free room and rate limits.

A record is read at most once a second. So is the count of members, unless the set is nearly full.
Writes that several processes have in flight may exceed the set's limit by their number.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from duepoint import faults
from duepoint.delayqueue import apirequests
from duepoint.delayqueue.members import members, sets, values
from duepoint.delayqueue.wire import nodes
from duepoint.faults import FaultPoint
from duepoint.httpapi.problems import OperationProblem
from duepoint.httpapi.remembered import Remembered
from duepoint.schedules.sets import members as memberjson
from duepoint.schedules.sets.setrecord import SetRecord, SetState

_FRESH_SECONDS = 1.0
_MOST_KNOWN = 10_000
#: Bound of the cache of rules in the rows of all sets; some 13,000 rules.
MOST_RULES_BYTES = 32 << 20
#: Messages for sets that refuse changes of their members.
MANAGED = "members are kept equal to spec.rows; change the rows instead"
DELETING = "the set is being deleted; its members go with it"
#: What became of a change of a member, or why it was refused.
Settled = values.MemberWritten | OperationProblem
#: From this part of the limit on, the count is read for each change.
_NEARLY_FULL = 0.95
#: A process takes this fraction of a second's changes from Redis at a time.
_PARTS = 20
SECOND_US = 1_000_000


@dataclass(eq=False)
class OwnSet:
    """A set with one version of its record.

    Attributes:
        counted: number of members at the last count, plus those that this process created since.
        left: changes that this process may still make until ``left_until``.
        none_until: until then no process may make further changes.
    """

    record: SetRecord
    reader: memberjson.RowReader
    counted: int = 0
    counted_until: float = float("-inf")
    counting: asyncio.Lock = field(default_factory=asyncio.Lock)
    left: int = 0
    left_until: float = float("-inf")
    none_until: float = float("-inf")
    asking: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def owner(self) -> str:
        """Return the uid of this incarnation of the set: the key for its limits and requests."""
        return self.record.uid

    @property
    def changes_per_second(self) -> int:
        return self.record.settings.limits.changes_per_second

    def check_open(self) -> None:
        """Raise a Problem if requests may not change members."""
        if self.record.is_managed and self.record.state is not SetState.DELETING:
            raise OperationProblem("Conflict", MANAGED)
        self.check_active()

    def check_active(self) -> None:
        """Raise a Problem if members cannot run: the set is being deleted, or is stopped."""
        record = self.record
        if record.state is SetState.DELETING:
            raise OperationProblem("SetDeleting", DELETING)
        if record.state is SetState.STALLED:
            why = "its spec is wrong (see its condition Stalled), or its object is missing"
            raise OperationProblem("NotActive", f"the set is stopped: {why}")


#: The code, the message and the field of outcomes that are refusals.
_REFUSED: Final[Mapping[values.Outcome, tuple[str, str, str]]] = {
    values.Outcome.PRECONDITION: (
        "PreconditionFailed", "the member has another tag, or there is one already, or none", "",
    ),
    values.Outcome.COLLISION: (
        "Conflict", "another id of this set has the same place; write another id", "id",
    ),
    values.Outcome.DELETING: ("SetDeleting", DELETING, ""),
    values.Outcome.MANAGED: ("Conflict", MANAGED, ""),
    values.Outcome.GONE: ("Unavailable", "the set is being stored or removed just now", ""),
}  # fmt: skip


def problem_of(outcome: values.Outcome) -> OperationProblem | None:
    """Return the problem for an outcome; None if it is not a refusal."""
    if outcome not in _REFUSED:
        return None
    code, message, field = _REFUSED[outcome]
    wait = 1 if outcome is values.Outcome.GONE else None
    return OperationProblem(code, message, field=field, retry_after_seconds=wait)


def _settled(answers: Iterable[values.MemberWritten]) -> list[Settled]:
    """Return the answers of the queue with the problem in place of each refusal."""
    return [problem_of(answer.outcome) or answer for answer in answers]


# -- batches of concurrent requests ----------------------------------------------------------------

# A script for one member costs Redis and us nearly as much as one for fifty. So requests that come
# while a batch is in flight form the next batch. If none is in flight, a request goes at once, with
# all others of this iteration of the loop. An idle API adds no delay, and a busy one gets cheaper.
# With two batches in flight, each was half as large and the p99 of creates a third worse.

#: Most items of one batch; the others wait for the next one.
MOST_TOGETHER = 400

KeyT = TypeVar("KeyT", bound=Hashable)
ItemT = TypeVar("ItemT")
AnswerT = TypeVar("AnswerT")


class Grouping(Generic[KeyT, ItemT, AnswerT]):
    """Batches items with equal keys; each key has one batch in flight at a time."""

    def __init__(
        self, send: Callable[[KeyT, list[ItemT]], Awaitable[Sequence[AnswerT | Exception]]]
    ) -> None:
        """``send`` answers in the order of the items; every item gets the error that it raises.

        An answer that is an exception is raised to the caller of its item alone.
        """
        self._send = send
        self._waiting: dict[KeyT, list[tuple[ItemT, asyncio.Future[AnswerT]]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def ask(self, key: KeyT, item: ItemT) -> AnswerT:
        """Send one item with the next batch and return its answer."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[AnswerT] = loop.create_future()
        if key not in self._waiting:
            self._waiting[key] = []
            task = loop.create_task(self._send_all(key))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        self._waiting[key].append((item, answer))
        return await answer

    async def _send_all(self, key: KeyT) -> None:
        waiting = self._waiting[key]
        try:
            while waiting:
                batch = waiting[:MOST_TOGETHER]
                del waiting[:MOST_TOGETHER]
                answers: Sequence[AnswerT | Exception]
                try:
                    answers = await self._send(key, [item for item, _ in batch])
                except Exception as error:  # noqa: BLE001 - the callers get it
                    answers = [error] * len(batch)
                for (_, future), answer in zip(batch, answers, strict=True):
                    if future.done():
                        continue
                    if isinstance(answer, Exception):
                        future.set_exception(answer)
                    else:
                        future.set_result(answer)
        finally:
            del self._waiting[key]


# -- the sets that requests name -------------------------------------------------------------------

#: Changes with the same key are batched: the same set, and the same safety.
ChangesKey = tuple[OwnSet, nodes.Safety | None]


class OwnSets:
    """Finds sets by name; reads, writes and counts their members.

    Attributes:
        gets, puts, removals: operations on members, batched into one round trip.
    """

    def __init__(
        self, stored: sets.Sets, population: members.Members, requests: apirequests.ApiRequests
    ) -> None:
        self._stored = stored
        self._requests = requests
        self._members = population
        self._known = Remembered[tuple[str, str], OwnSet | None](_MOST_KNOWN, yes=_FRESH_SECONDS)
        self._rules = memberjson.KeptRules(MOST_RULES_BYTES)
        self.gets: Grouping[OwnSet, str, values.StoredMember | None] = Grouping(
            lambda owned, ids: population.lookups.get(owned.record, ids)
        )
        self.puts: Grouping[ChangesKey, values.MemberWrite, values.MemberWritten] = Grouping(
            lambda key, writes: self.put(*key, writes)
        )
        self.removals: Grouping[ChangesKey, values.MemberRemoval, values.MemberWritten] = Grouping(
            lambda key, removals: self.remove(*key, removals)
        )

    async def find(self, namespace: str, name: str) -> OwnSet:
        """Return the set; raises Problem NotFound, and QueueUnavailable if Redis is away."""
        place = namespace, name

        async def read() -> OwnSet | None:
            record = await self._stored.find(namespace, name)
            former = self._known.former(place)
            if record is None or (former is not None and former.record == record):
                return None if record is None else former
            return OwnSet(record, memberjson.RowReader(record.settings, self._rules, namespace))

        found = await self._known.find(place, read)
        if found is None:
            message = f'there is no ScheduleSet "{name}" in this namespace'
            raise OperationProblem("NotFound", message)
        return found

    async def put(
        self, owned: OwnSet, safety: nodes.Safety | None, writes: Sequence[values.MemberWrite]
    ) -> list[Settled]:
        """Store members; new ones that the set has no room for are refused."""
        room, full = await self._room(owned), frozenset[int]()
        if room < len(writes):
            full = await self._beyond(owned, writes, room)
        taken = [write for place, write in enumerate(writes) if place not in full]
        await faults.reach(FaultPoint.BEFORE_MEMBERS_STORED)
        written = await self._members.put(owned.record, taken, safety=safety)
        await faults.reach(FaultPoint.AFTER_MEMBERS_STORED)
        owned.counted += sum(answer.outcome is values.Outcome.CREATED for answer in written)
        settled = _settled(written)
        if not full:
            return settled
        most, following = owned.record.settings.limits.members, iter(settled)
        message = f"the set has {most} members, which is its limits.members"
        return [
            OperationProblem("SetFull", message) if place in full else next(following)
            for place in range(len(writes))
        ]

    async def remove(
        self, owned: OwnSet, safety: nodes.Safety | None, removals: Sequence[values.MemberRemoval]
    ) -> list[Settled]:
        """Remove members."""
        return _settled(await self._members.remove(owned.record, removals, safety=safety))

    async def _beyond(
        self, owned: OwnSet, writes: Sequence[values.MemberWrite], room: int
    ) -> frozenset[int]:
        """Return indexes of the new members beyond the first ``room``; updates need none."""
        ids = [write.id for write in writes]
        found = await self._members.lookups.get(owned.record, ids)
        here = {id_ for id_, stored in zip(ids, found, strict=True) if stored}
        beyond = set()
        for place, id_ in enumerate(ids):
            if id_ not in here and room < 1:
                beyond.add(place)
            elif id_ not in here:
                room -= 1
                here.add(id_)
        return frozenset(beyond)

    async def _room(self, owned: OwnSet) -> int:
        """Return how many more members the set may have."""
        most = owned.record.settings.limits.members
        loop = asyncio.get_running_loop()
        async with owned.counting:
            if owned.counted >= most * _NEARLY_FULL or loop.time() >= owned.counted_until:
                owned.counted = await self._stored.members(owned.record)
                owned.counted_until = loop.time() + _FRESH_SECONDS
        return most - owned.counted

    # -- rate limit of changes, over all processes of the API ----------------------------------

    async def take(self, owned: OwnSet, count: int = 1) -> None:
        """Take changes from a set's rate limit; raises Problem TooManyRequests if it is used up.

        Takes no more than a second allows: a larger request would be refused for ever.
        """
        most = owned.changes_per_second
        wait = await self._take(owned, min(count, most))
        if wait is not None:
            message = f"more than {most} changes a second; spread them, or raise the limit"
            raise OperationProblem("TooManyRequests", message, retry_after_seconds=wait)

    async def wait(self, owned: OwnSet, count: int) -> None:
        """Take ``count`` changes from a set's rate limit; wait until it allows them."""
        while count:
            part = min(count, owned.changes_per_second)
            wait = await self._take(owned, part)
            if wait is None:
                count -= part
            else:
                await asyncio.sleep(wait)

    async def _take(self, owned: OwnSet, count: int) -> float | None:
        """Take changes; return None, or the seconds after which there may be some.

        Takes a twentieth of a second's changes from Redis at a time and hands them out here.
        """
        loop, most = asyncio.get_running_loop(), owned.changes_per_second
        if owned.left_until > loop.time() and owned.left >= count:
            owned.left -= count
            return None
        async with owned.asking:
            now = loop.time()
            if owned.left_until <= now:
                owned.left = 0
            if owned.left < count:
                if now < owned.none_until:
                    return owned.none_until - now
                part = max(count - owned.left, most // _PARTS)
                taken = await self._requests.take(owned.owner, wanted=part, most=most)
                owned.left += taken.granted
                owned.left_until = now + taken.rest_us / SECOND_US
                if owned.left < count:
                    owned.none_until = owned.left_until
                    return max(owned.none_until - now, 0.001)
            owned.left -= count
        return None
