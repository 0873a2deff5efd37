"""The sets that requests name: their records, states, room, and how many changes a second they see.

A record is read at most once a second. So is the count of members, unless the set is nearly full;
what several processes have under way may exceed the limit by as much.
"""

from __future__ import annotations

import asyncio
import collections
from dataclasses import dataclass, field

from duepoint.delayqueue import apirequests
from duepoint.delayqueue.members import members, sets, values
from duepoint.httpapi.problems import OperationProblem
from duepoint.schedules.sets import members as memberjson
from duepoint.schedules.sets.setrecord import SetRecord, SetState

_FRESH_SECONDS = 1.0
_MOST_KNOWN = 10_000
#: Of the rules that rows of all sets say, for some 13,000 of them.
MOST_RULES_BYTES = 32 << 20
#: Why nobody else changes members of a set with rows.
MANAGED = "members are kept equal to spec.rows; change the rows instead"
DELETING = "the set is being deleted; its members go with it"
#: From this part of the limit on the count is read for each change.
_NEARLY_FULL = 0.95


@dataclass(eq=False)
class OwnSet:
    """A set, as long as its record says the same."""

    record: SetRecord
    reader: memberjson.RowReader
    counted: int = 0
    counted_until: float = float("-inf")
    counting: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def owner(self) -> str:
        """What belongs to this life of the set is kept under this name."""
        return self.record.uid

    @property
    def changes_per_second(self) -> int:
        return self.record.settings.limits.changes_per_second

    def check_open(self) -> None:
        """Refuse where members cannot be changed."""
        if self.record.is_managed and self.record.state is not SetState.DELETING:
            raise OperationProblem("Conflict", MANAGED)
        self.check_able()

    def check_able(self) -> None:
        """Refuse where members cannot run; those of rows can."""
        record = self.record
        if record.state is SetState.DELETING:
            raise OperationProblem("SetDeleting", DELETING)
        if record.state is SetState.STALLED:
            message = "the spec of the set is wrong; its condition Stalled says why"
            raise OperationProblem("NotActive", message)


class OwnSets:
    """Finds sets by name."""

    def __init__(self, stored: sets.Sets, population: members.Members) -> None:
        self._stored = stored
        self._members = population
        self._known: collections.OrderedDict[tuple[str, str], tuple[float, OwnSet | None]] = (
            collections.OrderedDict()
        )
        self._rules = memberjson.KeptRules(MOST_RULES_BYTES)
        self._reading: dict[tuple[str, str], asyncio.Future[OwnSet | None]] = {}

    async def find(self, namespace: str, name: str) -> OwnSet:
        """The set; raises OperationProblem if there is none, QueueUnavailable if nobody knows."""
        place = namespace, name
        until, known = self._known.get(place, (0.0, None))
        if asyncio.get_running_loop().time() >= until:
            known = await self._read(place, known)
        if known is None:
            raise OperationProblem(
                "NotFound", f'there is no ScheduleSet "{name}" in this namespace'
            )
        return known

    async def _read(self, place: tuple[str, str], former: OwnSet | None) -> OwnSet | None:
        """One read for all that wait for it."""
        loop = asyncio.get_running_loop()
        if (reading := self._reading.get(place)) is not None:
            return await asyncio.shield(reading)
        future = self._reading[place] = loop.create_future()
        try:
            record = await self._stored.find(*place)
            if record is None:
                found = None
            elif former is not None and former.record == record:
                found = former
            else:
                reader = memberjson.RowReader(record.settings, self._rules, place[0])
                found = OwnSet(record, reader)
            self._remember(place, loop.time() + _FRESH_SECONDS, found)
            future.set_result(found)
        except BaseException as error:
            future.set_exception(error)
            future.exception()  # no other request may be waiting
            raise
        finally:
            del self._reading[place]
        return found

    def _remember(self, place: tuple[str, str], until: float, found: OwnSet | None) -> None:
        self._known[place] = until, found
        self._known.move_to_end(place)
        if len(self._known) > _MOST_KNOWN:
            self._known.popitem(last=False)

    async def room(self, owned: OwnSet) -> int:
        """How many members more the set may have."""
        most = owned.record.settings.limits.members
        if self._is_to_be_counted(owned, most):
            async with owned.counting:
                if self._is_to_be_counted(owned, most):
                    owned.counted = await self._members.counting.members(owned.record)
                    owned.counted_until = asyncio.get_running_loop().time() + _FRESH_SECONDS
        return most - owned.counted

    @staticmethod
    def _is_to_be_counted(owned: OwnSet, most: int) -> bool:
        is_near = owned.counted >= most * _NEARLY_FULL
        return is_near or asyncio.get_running_loop().time() >= owned.counted_until

    async def counts(self, owned: OwnSet) -> values.MemberCounts:
        """What the set holds, as it is now."""
        return await self._members.counting.counts(owned.record)


_PARTS = 20
_MOST_OWNERS = 10_000
SECOND_US = 1_000_000


@dataclass(slots=True)
class _Share:
    """What this process may still hand out, and until when."""

    left: int = 0
    until: float = float("-inf")
    none_until: float = float("-inf")
    asking: asyncio.Lock | None = None


class Rates:
    """Hands out the changes of a second that a set may see, over all processes of the API.

    A process takes a twentieth of a second's changes from Redis at a time, and hands them out
    itself. A single change that finds none is refused with the time of the next second; a bulk
    stream waits.
    """

    def __init__(self, requests: apirequests.ApiRequests) -> None:
        self._requests = requests
        self._shares: collections.OrderedDict[str, _Share] = collections.OrderedDict()

    async def take(self, uid: str, most: int, count: int = 1) -> None:
        """Take changes of a set; raises Problem TooManyRequests where the second has no more.

        Of more than a whole second allows, as many: else they would be refused for ever.
        """
        wait = await self._take(uid, most, min(count, most))
        if wait is not None:
            raise OperationProblem(
                "TooManyRequests",
                f"more than {most} changes a second; spread them, or raise the limit",
                retry_after_seconds=wait,
            )

    async def wait(self, uid: str, most: int, count: int) -> None:
        """Take changes of a set, waiting until there are so many."""
        while count:
            part = min(count, most)
            wait = await self._take(uid, most, part)
            if wait is None:
                count -= part
            else:
                await asyncio.sleep(wait)

    async def _take(self, owner: str, most: int, count: int) -> float | None:
        """None where they were taken; otherwise the seconds until there may be some."""
        share = self._share(owner)
        loop = asyncio.get_running_loop()
        if share.until > loop.time() and share.left >= count:
            share.left -= count
            return None
        if share.asking is None:
            share.asking = asyncio.Lock()
        async with share.asking:
            now = loop.time()
            if share.until <= now:
                share.left = 0
            if share.left < count:
                if now < share.none_until:
                    return share.none_until - now
                missing = count - share.left
                part = max(missing, most // _PARTS)
                taken = await self._requests.take(owner, wanted=part, most=most)
                share.left += taken.granted
                share.until = now + taken.rest_us / SECOND_US
                if share.left < count:
                    share.none_until = share.until
                    return max(share.until - now, 0.001)
            share.left -= count
        return None

    def _share(self, owner: str) -> _Share:
        share = self._shares.get(owner)
        if share is None:
            share = self._shares[owner] = _Share()
            if len(self._shares) > _MOST_OWNERS:
                self._shares.popitem(last=False)
        return share
