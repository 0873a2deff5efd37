"""Changes a second of a set, as a request takes them."""

from __future__ import annotations

import pytest

from duepoint.delayqueue import apirequests
from duepoint.httpapi import ownsets
from duepoint.httpapi.problems import OperationProblem


class Seconds:
    """Plays ``ApiRequests``: each owner has so many a second, and the second is over on demand."""

    def __init__(self) -> None:
        self.used: dict[str, int] = {}

    async def take(self, owner: str, *, wanted: int, most: int) -> apirequests.Taken:
        granted = min(wanted, most - self.used.get(owner, 0))
        self.used[owner] = self.used.get(owner, 0) + granted
        return apirequests.Taken(granted, 1)


async def test_a_request_for_more_than_a_second_of_its_set_takes_the_whole_second():
    seconds = Seconds()
    limited = ownsets.Rates(seconds)
    await limited.take("set", 10, 100)
    assert seconds.used == {"set": 10}
    with pytest.raises(OperationProblem, match="more than 10 changes a second"):
        await limited.take("set", 10, 100)
