"""Dead letters of a shard in memory, with a quota for each namespace: what ``bury_letter`` does.

The oldest letters of a namespace go where it has more than its share of a shard; a shard that is
full loses the oldest of the namespace whose letters take most bytes.
"""

from __future__ import annotations

from collections import Counter

from duepoint.delayqueue import deadletters, quotas

_OVERHEAD = 64  # as in deadletters.lua


def make_room(letters: list[deadletters.DeadEntry], share: quotas.Share) -> Counter[str]:
    """After a burial; ``letters`` are oldest first. How many of which namespace went."""
    dropped: Counter[str] = Counter()
    namespace = _namespace(letters[-1])
    while _has_too_much([one for one in letters if _namespace(one) == namespace], share):
        _drop_oldest(letters, namespace, dropped)
    while len(letters) > quotas.SHARD_LETTERS:
        sizes: Counter[str] = Counter()
        for letter in letters:
            sizes[_namespace(letter)] += _bytes(letter)
        ((greatest, _),) = sizes.most_common(1)
        _drop_oldest(letters, greatest, dropped)
    return dropped


def _has_too_much(own: list[deadletters.DeadEntry], share: quotas.Share) -> bool:
    if len(own) > share.entries:
        return True
    return len(own) > 1 and sum(map(_bytes, own)) > share.bytes


def _drop_oldest(
    letters: list[deadletters.DeadEntry], namespace: str, dropped: Counter[str]
) -> None:
    letters.remove(next(one for one in letters if _namespace(one) == namespace))
    dropped[namespace] += 1


def _namespace(letter: deadletters.DeadEntry) -> str:
    return letter.entry.get("namespace", "")


def _bytes(letter: deadletters.DeadEntry) -> int:
    texts = sum(len(name.encode()) + len(text.encode()) for name, text in letter.entry.items())
    return _OVERHEAD + len("member") + len(letter.member) + texts
