"""How many changes a second a set may see: over all processes of the API.

A process takes a twentieth of a second's changes from Redis at a time, and hands them out itself.
A single change that finds none is refused with the time of the next second; a bulk stream waits.
"""

from __future__ import annotations

import asyncio
import collections
from dataclasses import dataclass

from duepoint.delayqueue import apirequests
from duepoint.httpapi.problems import OperationProblem

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
    """Hands out changes."""

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
