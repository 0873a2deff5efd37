"""Removing blobs and interned texts that no definition uses any more.

An edit of what a Schedule does stores a new blob and leaves the old one: others may share it, and
counting users would cost every write. So the leader looks now and then: it reads all definitions
of a shard, then the names of its blobs, and hands the unused ones to one fenced script,
which marks them; those that have been marked for a day are removed. Rules and digests that have
numbers go the same way; who stores a definition meanwhile takes the marks off, and asks for another
number where one is gone. Nothing is removed from a shard that holds a definition which cannot be
read here, nor while the queue is resharded: what those use is not known.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass

from duepoint.delayqueue import index, messages
from duepoint.delayqueue.definitions import codec, interning, reading
from duepoint.schedules.sets import entries as setentries

#: How long a blob has to be unused: as long as a delivery may be retried.
PATIENCE_SECONDS = 86_400.0
_BUCKETS_TOGETHER = 32
_NUMBERS_TOGETHER = 500
#: Blobs come with their contents, of some kilobytes each; a small table comes whole.
_BLOBS_TOGETHER = 50
_NAMES_TOGETHER = 200
_TEXTS_TOGETHER = 300
_DIGEST_LENGTH = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """What one step of looking for unused blobs has marked or removed.

    Attributes:
        texts_removed: interned rules and digests that are gone now.
    """

    marked: int = 0
    removed: int = 0
    texts_removed: int = 0


@dataclass(eq=False)
class Collector:
    """Removes what no definition uses any more."""

    index: index.Index
    reader: reading.DefinitionReader

    async def collect(
        self,
        shard: messages.ShardId,
        epoch: messages.Epoch,
        *,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> AsyncIterator[Collected]:
        """One look at a shard, in small steps: the caller rests between them."""
        used: set[int] = set()
        targets: set[int] = set()
        lanes = await self.reader.lanes(shard)
        populations = itertools.chain.from_iterable(lanes.values())
        buckets = self.index.buckets_of_populations(shard, populations)
        for first in range(0, len(buckets), _BUCKETS_TOGETHER):
            chunk = buckets[first : first + _BUCKETS_TOGETHER]
            replies = await self.index.read(
                "look for what is used", *(("HGETALL", each) for each in chunk)
            )
            found = _numbers(record for reply in replies for record in reply.values())
            if found is None or self.index.known_layout().former is not None:
                return
            used |= found[0]
            targets |= found[1]
            yield Collected()
        digests = await self._digests_of_sets(shard, lanes)
        numbers = sorted(targets)
        for first in range(0, len(numbers), _NUMBERS_TOGETHER):
            part = numbers[first : first + _NUMBERS_TOGETHER]
            some = await self._digests(shard, part)
            if some is None:
                return
            digests |= some
            yield Collected()
        cursor = 0
        while True:
            ((cursor, blobs),) = await self.index.read(
                "look at the blobs",
                ("HSCAN", self.index.shard(shard).blobs, cursor, "COUNT", _BLOBS_TOGETHER),
            )
            listed = sorted(blobs)
            for first in range(0, len(listed), _NAMES_TOGETHER):
                fields = listed[first : first + _NAMES_TOGETHER]
                names = {name for name in fields if len(name) == _DIGEST_LENGTH}
                marked = {name[1:] for name in fields if name.startswith(b":")}
                yield await self._mark(
                    shard, epoch, self.index.shard(shard).blobs, {"name": "", "mark": ":"},
                    patience_seconds,
                    unused=sorted(names - digests),
                    used=sorted(marked & digests),
                )  # fmt: skip
            if int(cursor) == 0:
                break
        async for step in self._collect_texts(shard, epoch, used, patience_seconds):
            yield step

    async def _collect_texts(
        self,
        shard: messages.ShardId,
        epoch: messages.Epoch,
        used: set[int],
        patience_seconds: float,
    ) -> AsyncIterator[Collected]:
        """Rules and digests that no definition names; a namespace's number is its lane's, too."""
        names = self.index.shard(shard)
        cursor = 0
        while True:
            ((cursor, fields),) = await self.index.read(
                "look at the texts", ("HSCAN", names.interned, cursor, "COUNT", _TEXTS_TOGETHER)
            )
            numbers = {
                int(name[2:]) for name, text in fields.items() if _is_collectable(name, text)
            }
            marked = {int(name[2:]) for name in fields if name.startswith(b"m:")}
            unused, used_again = sorted(numbers - used), sorted(marked & used)
            fields_of = {"name": "n:", "mark": "m:", "twin": "t:"}
            found = await self._mark(
                shard, epoch, names.interned, fields_of, patience_seconds,
                unused=[str(number) for number in unused],
                used=[str(number) for number in used_again],
            )  # fmt: skip
            yield Collected(texts_removed=found.removed)
            if int(cursor) == 0:
                return

    async def _digests_of_sets(self, shard: messages.ShardId, lanes: Iterable[int]) -> set[bytes]:
        """What the shard's sets do for their members."""
        replies = await self.index.read_many(
            "look for what is used",
            [("HMGET", self.index.shard(shard).meta, f"s{lane}") for lane in lanes],
        )
        return {setentries.parse(entry).target.encode() for (entry,) in replies if entry}

    async def _digests(self, shard: messages.ShardId, numbers: list[int]) -> set[bytes] | None:
        """The names behind numbers; None where one is not known (any more)."""
        (texts,) = await self.index.read(
            "look for what is used",
            ("HMGET", self.index.shard(shard).interned, *(f"n:{number}" for number in numbers)),
        )
        kind, of_set = interning.TextKind.TARGET.encode(), interning.TextKind.SET.encode()
        if not all(text is not None and text.startswith((kind, of_set)) for text in texts):
            return None
        return {text[len(kind) :] for text in texts if text.startswith(kind)}

    async def _mark(
        self,
        shard: messages.ShardId,
        epoch: messages.Epoch,
        key: str,
        fields_of: Mapping[str, str],
        patience_seconds: float,
        *,
        unused: Sequence[bytes | str],
        used: Sequence[bytes | str],
    ) -> Collected:
        """Mark or remove unused values of a hash; ``fields_of``: how their fields begin."""
        if not unused and not used:
            return Collected()
        patience = int(patience_seconds * 1e6)
        call = self.index.call("collect", shard, key, epoch=epoch, patience=patience, **fields_of)
        call.put(unused=call.run(unused), used=call.run(used))
        marked, removed = await self.index.scripts.run(call)
        return Collected(marked=marked, removed=removed)


def _numbers(records: Iterable[bytes]) -> tuple[set[int], set[int]] | None:
    """What these definitions name by number, and what they do; None where one cannot be read."""
    used: set[int] = set()
    targets: set[int] = set()
    try:
        for record in records:
            numbers = codec.numbers(record)
            used.update(numbers)
            targets.add(numbers[1])
    except codec.UnknownRecord:
        reading.log.warning("a definition cannot be read: nothing of its shard is removed")
        return None
    return used, targets


def _is_collectable(name: bytes, text: bytes) -> bool:
    kinds = (interning.TextKind.RULE.encode(), interning.TextKind.TARGET.encode())
    return name.startswith(b"n:") and text.startswith(kinds)
