"""How to connect: what a server says of itself, and which Sentinel is asked first."""

from __future__ import annotations

import asyncio

import pytest
import redis.exceptions

from duepoint.delayqueue.wire import connecting


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(
            {
                "slave0": "ip=10.0.0.7,port=6379,state=online,offset=1,lag=0",
                "slave1": "ip=fd12::7,port=6380,state=wait_bgsave,offset=0,lag=0",
            },
            id="as it comes over the wire",
        ),
        pytest.param(
            {"slave0": {"ip": "10.0.0.7", "port": 6379}, "slave1": {"ip": "fd12::7", "port": 6380}},
            id="as the library reads it",
        ),
    ],
)
def test_the_replicas_of_a_server_are_known_by_address(said):
    found = connecting.greeting_of(said, run_id="a")
    assert found.replica_hosts == (("10.0.0.7", 6379), ("fd12::7", 6380))


@pytest.mark.parametrize("said", [{}, {"slave0": "nonsense"}, {"slave0": "ip=a,port=b"}])
def test_a_server_without_readable_replicas_has_none(said):
    assert connecting.greeting_of(said, run_id="a").replica_hosts == ()


PRIMARY = [b"primary", b"6379"]


class Sentinels(connecting.Sentinels):
    """Each answers as the test says; an Event is waited for."""

    def __init__(self, **answers):
        hosts = ",".join(answers)
        super().__init__(connecting.Server(url=f"redis+sentinel://{hosts}/mine"))
        self._answers = answers
        self.asked = []

    async def _ask(self, host):
        name, _ = host
        self.asked.append(name)
        answer = self._answers[name]
        if isinstance(answer, asyncio.Event):
            await answer.wait()
        if isinstance(answer, Exception):
            raise answer
        return answer


async def test_whoever_knew_last_is_asked_first():
    sentinels = Sentinels(one=OSError("refused"), two=None, three=PRIMARY, four=PRIMARY)
    for _ in range(3):
        assert await sentinels.primary() == ("primary", 6379)
    assert sentinels.asked == ["one", "two", "three", "three", "three"]


async def test_a_question_that_was_cut_off_is_put_to_another_one_next_time():
    """A connection may be given up before all that hang have been waited for."""
    sentinels = Sentinels(one=asyncio.Event(), two=asyncio.Event(), three=PRIMARY)
    for _ in range(2):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await sentinels.primary()
    assert await sentinels.primary() == ("primary", 6379)
    assert sentinels.asked == ["one", "two", "three"]


async def test_all_are_asked_before_it_is_said_that_nobody_knows():
    sentinels = Sentinels(one=OSError("refused"), two=None)
    for _ in range(2):
        with pytest.raises(redis.exceptions.ConnectionError, match="refused; two:26379 knows no"):
            await sentinels.primary()
