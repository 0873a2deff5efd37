"""Numbers for texts that many definitions of a shard share.

A shard gives each text (namespace, rule, target) a number, for as long as it lives; what was given
is remembered here. A shard made anew in between says so by its incarnation, and is asked again. A
full server gives no new numbers; those it has given are read, so that somebody without a memory of
them can delete by them, which makes room.
"""

from __future__ import annotations

from typing import Any

from duepoint.delayqueue import index, messages, sharding
from duepoint.delayqueue.definitions import interning
from duepoint.delayqueue.wire import scripting


class Numbering:
    """Gives texts their numbers, for those who write definitions."""

    def __init__(
        self,
        *,
        index: index.Index,
        interned: interning.Interned,
    ) -> None:
        self._index = index
        self._interned = interned

    async def intern(
        self,
        shard: messages.ShardId,
        texts: list[bytes],
        epoch: messages.Epoch,
        *,
        script: str = "intern",
    ) -> dict[bytes, int]:
        """The number of each text; raises Refused where a full server has none for one of them.

        With the script ``adopt`` it gives new ones all the same.
        """
        cached = {text: self._interned.number(shard, text) for text in texts}
        missing = [text for text, number in cached.items() if number is None]
        known = {text: number for text, number in cached.items() if number is not None}
        if not missing:
            return known
        arguments = scripting.Arguments(layout=sharding.layout_of(shard), epoch=epoch)
        arguments.put("texts", arguments.run(missing))
        names = self._index.shard(shard)
        call = arguments.call(script, [names.meta, names.interned])
        try:
            reply = await self._index.gathered.run(call)
        except scripting.Refused:
            found = await self._given(shard, missing)
            if found is None:
                raise
            reply = found
        incarnation = reply[0].decode()
        if self._interned.incarnation(shard) not in (None, incarnation):
            self._interned.see(shard, incarnation)  # what was cached is of a former life
            return await self.intern(shard, texts, epoch, script=script)
        self._interned.see(shard, incarnation)
        for text, number in zip(missing, reply[1:], strict=True):
            self._interned.learn(shard, number, text)
            known[text] = number
        return known

    async def _given(self, shard: messages.ShardId, texts: list[bytes]) -> list[Any] | None:
        """As the script replies, without writing; None where a text has no number."""
        names = self._index.shard(shard)
        (layout, incarnation), numbers = await self._index.read(
            "read the numbers of texts",
            ("HMGET", names.meta, "layout", "incarnation"),
            ("HMGET", names.interned, *(b"t:" + text for text in texts)),
        )
        is_ours = incarnation and layout == str(sharding.layout_of(shard)).encode()
        if not is_ours or None in numbers:
            return None
        (stand_for,) = await self._index.read(
            "read the numbers of texts",
            ("HMGET", names.interned, *(b"n:" + number for number in numbers)),
        )
        return [incarnation, *map(int, numbers)] if stand_for == texts else None
