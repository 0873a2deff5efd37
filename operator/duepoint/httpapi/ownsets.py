"""The sets that requests name: their records, states, room, and how many changes a second they see.

A record is read at most once a second. So is the count of members, unless the set is nearly full;
what several processes have under way may exceed the limit by as much.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from duepoint import faults
from duepoint.delayqueue import apirequests
from duepoint.delayqueue.members import members, sets, values
from duepoint.delayqueue.wire import nodes
from duepoint.faults import FaultPoint
from duepoint.httpapi.grouping import Grouping
from duepoint.httpapi.problems import OperationProblem
from duepoint.httpapi.remembered import Remembered
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
#: Of a second's changes, how much is taken from Redis at a time.
_PARTS = 20
SECOND_US = 1_000_000


@dataclass(eq=False)
class OwnSet:
    """A set, as long as its record says the same.

    Attributes:
        counted: members, as they were counted and stored since.
        left: changes that this process may still make until ``left_until``.
        none_until: no process may make any more until then.
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


#: Changes that arrive together go together, if they are as safe as one another.
ChangesKey = tuple[OwnSet, nodes.Safety | None]


class OwnSets:
    """Finds sets by name; reads, writes and counts their members.

    Attributes:
        gets, puts, removals: of members, those that arrive together in one round trip.
    """

    def __init__(
        self, stored: sets.Sets, population: members.Members, requests: apirequests.ApiRequests
    ) -> None:
        self._stored = stored
        self._requests = requests
        self._members = population
        self._known: Remembered[tuple[str, str], OwnSet | None] = Remembered(
            _MOST_KNOWN, yes=_FRESH_SECONDS, no=_FRESH_SECONDS
        )
        self._rules = memberjson.KeptRules(MOST_RULES_BYTES)
        self.gets: Grouping[OwnSet, str, values.StoredMember | None] = Grouping(
            lambda owned, ids: population.lookups.get(owned.record, ids)
        )
        self.puts: Grouping[ChangesKey, values.MemberWrite, values.MemberWritten] = Grouping(
            self._put
        )
        self.removals: Grouping[ChangesKey, values.MemberRemoval, values.MemberWritten] = Grouping(
            lambda key, removals: population.remove(key[0].record, removals, safety=key[1])
        )

    async def find(self, namespace: str, name: str) -> OwnSet:
        """The set; raises OperationProblem if there is none, QueueUnavailable if nobody knows."""
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

    async def _put(
        self, key: ChangesKey, writes: list[values.MemberWrite]
    ) -> list[values.MemberWritten]:
        await faults.reach(FaultPoint.BEFORE_MEMBERS_STORED)
        written = await self._members.put(key[0].record, writes, safety=key[1])
        await faults.reach(FaultPoint.AFTER_MEMBERS_STORED)
        return written

    # -- changes of a second, over all processes of the API ------------------------------------

    async def take(self, owned: OwnSet, count: int = 1) -> None:
        """Take changes of a set; raises Problem TooManyRequests where the second has no more.

        Of more than a whole second allows, as many: else they would be refused for ever.
        """
        most = owned.changes_per_second
        wait = await self._take(owned, min(count, most))
        if wait is not None:
            message = f"more than {most} changes a second; spread them, or raise the limit"
            raise OperationProblem("TooManyRequests", message, retry_after_seconds=wait)

    async def wait(self, owned: OwnSet, count: int) -> None:
        """Take changes of a set, waiting until there are so many."""
        while count:
            part = min(count, owned.changes_per_second)
            wait = await self._take(owned, part)
            if wait is None:
                count -= part
            else:
                await asyncio.sleep(wait)

    async def _take(self, owned: OwnSet, count: int) -> float | None:
        """None where they were taken; otherwise the seconds until there may be some.

        A twentieth of a second's changes is taken from Redis at a time, and handed out here.
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
