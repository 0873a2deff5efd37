"""Dead letters of a shard in memory, with a quota for each namespace: what ``bury_letter`` does.

The oldest letters of a namespace go where it has more than its share of a shard, those of its
members apart from those of its Schedules; a shard that is full loses the oldest of whichever of
these groups takes most bytes.
"""

from __future__ import annotations

from collections import Counter

from duepoint.delayqueue import deadletters, quotas

_OVERHEAD = 64  # as in deadletters.lua


Group = tuple[str, bool]


def make_room(
    letters: list[deadletters.DeadEntry], share: quotas.Share, of_members: quotas.Share
) -> Counter[str]:
    """After a burial; ``letters`` are oldest first. How many of which namespace went."""
    dropped: Counter[str] = Counter()
    group = _group(letters[-1])
    limits = of_members if group[1] else share
    while _has_too_much([one for one in letters if _group(one) == group], limits):
        _drop_oldest(letters, group, dropped)
    while len(letters) > quotas.SHARD_LETTERS:
        sizes: Counter[Group] = Counter()
        for letter in letters:
            sizes[_group(letter)] += _bytes(letter)
        ((greatest, _),) = sizes.most_common(1)
        _drop_oldest(letters, greatest, dropped)
    return dropped


def _has_too_much(own: list[deadletters.DeadEntry], share: quotas.Share) -> bool:
    if len(own) > share.entries:
        return True
    return len(own) > 1 and sum(map(_bytes, own)) > share.bytes


def _drop_oldest(letters: list[deadletters.DeadEntry], group: Group, dropped: Counter[str]) -> None:
    letters.remove(next(one for one in letters if _group(one) == group))
    dropped[group[0]] += 1


def _group(letter: deadletters.DeadEntry) -> Group:
    """The namespace, and whether the letter is a member's."""
    return letter.entry.get("namespace", ""), "set_id" in letter.entry


def _bytes(letter: deadletters.DeadEntry) -> int:
    texts = sum(len(name.encode()) + len(text.encode()) for name, text in letter.entry.items())
    return _OVERHEAD + len("member") + len(letter.member) + texts
