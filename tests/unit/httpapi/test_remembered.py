"""Answers of a slow server: who waits for them, and for how long they are fresh."""

from __future__ import annotations

import asyncio

from duepoint.httpapi.remembered import Remembered
from tests.unit.election import virtualtime

TIMES = {"yes": 10.0, "no": 2.0}


class Server:
    """Answers as it is set to, after ``seconds``."""

    def __init__(self) -> None:
        self.known = Remembered(2, **TIMES)
        self.answer = True
        self.seconds = 0.1
        self.asked = 0

    async def _ask(self) -> bool:
        self.asked += 1
        await asyncio.sleep(self.seconds)
        return self.answer

    async def find(self, key: str = "a") -> tuple[bool, float]:
        """The answer, and the seconds until it was there."""
        began = asyncio.get_running_loop().time()
        found = await self.known.find(key, self._ask)
        return found, round(asyncio.get_running_loop().time() - began, 3)


@virtualtime.in_virtual_time
async def test_a_no_ends_the_yes_once_that_is_not_fresh():
    server = Server()
    await server.find()
    server.answer = False
    await asyncio.sleep(9)
    assert await server.find() == (True, 0.0)
    await asyncio.sleep(2)
    assert await server.find() == (False, 0.1)


@virtualtime.in_virtual_time
async def test_very_many_answers_that_say_no_push_out_none_that_says_yes():
    server = Server()
    server.known = Remembered(100, **TIMES)
    await server.find("honest")
    server.answer, server.seconds = False, 0.0
    for number in range(1_000):
        await server.find(f"made up {number}")
    asked = server.asked
    assert await server.find("honest") == (True, 0.0)
    assert await server.find("made up 999") == (False, 0.0)
    assert server.asked == asked
    assert len(server.known._no) <= 10
