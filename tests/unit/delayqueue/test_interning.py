"""What a process remembers of interned texts, and for how long."""

from __future__ import annotations

import asyncio

from duepoint.delayqueue import messages
from duepoint.delayqueue.definitions import interning
from duepoint.delayqueue.wire import changes

SHARD = messages.ShardId(0)


def test_another_incarnation_of_a_shard_has_other_numbers():
    known = interning.Interned()
    known.see(SHARD, "first")
    known.learn(SHARD, 1, b"nteam-a")
    known.learn(messages.ShardId(1), 1, b"nteam-b")
    known.see(SHARD, "second")
    assert known.text(SHARD, 1) is None
    assert known.number(SHARD, b"nteam-a") is None
    assert known.text(messages.ShardId(1), 1) == b"nteam-b"


class Call:
    """Of a script: what it was given."""

    def put(self, *, texts):
        self.texts = texts

    def run(self, texts):
        return texts


class Shard:
    """A shard that gives numbers, each life of it others; a reply waits until it is let go.

    Plays ``Index``, its ``pipelined`` and its ``servers`` as far as ``Numbering`` uses them.
    """

    def __init__(self) -> None:
        self.life, self.pipelined, self.servers = "first", self, self
        self.changes = changes.ServerChanges()
        self._given: dict[str, dict[bytes, int]] = {}
        self.held: list[asyncio.Event] = []

    def call(self, *_script, **_given) -> Call:
        return Call()

    async def run(self, call: Call) -> list:
        given = self._given.setdefault(self.life, {})
        numbers = [given.setdefault(text, len(given) + 1) for text in call.texts]
        reply = [self.life.encode(), *numbers]
        let_go = asyncio.Event()
        self.held.append(let_go)
        await let_go.wait()
        return reply

    async def let_go(self, place: int) -> None:
        self.held[place].set()
        for _ in range(5):
            await asyncio.sleep(0)


async def test_two_that_ask_while_a_shard_is_made_anew_get_the_numbers_of_its_new_life():
    """The first reply tells of the new life; the second must not keep what it had looked up."""
    shard, known = Shard(), interning.Interned()
    numbering = interning.Numbering(shard, known)

    def ask(*texts):
        return asyncio.create_task(numbering.intern(SHARD, list(texts), messages.Epoch(1)))

    before = ask(b"nteam")
    await asyncio.sleep(0)
    await shard.let_go(0)
    assert await before == {b"nteam": 1}
    shard.life = "second"
    one, other = ask(b"nteam", b"dfirst"), ask(b"dsecond")
    await asyncio.sleep(0)
    await shard.let_go(2)
    await shard.let_go(1)
    for place in range(3, 6):
        if len(shard.held) > place:
            await shard.let_go(place)
    found = {**await one, **await other}
    assert sorted(found.values()) == [1, 2, 3]
    assert found == {text: known.number(SHARD, text) for text in found}
    assert known.incarnation(SHARD) == "second"
