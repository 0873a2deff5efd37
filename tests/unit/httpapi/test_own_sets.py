"""The sets that requests name, as the API keeps them between requests."""

from __future__ import annotations

from duepoint.httpapi import ownsets
from duepoint.schedules.sets import setspec
from duepoint.schedules.sets.setrecord import SetRecord, SetState

NOW_US = 1_795_000_000_000_000


class Stored:
    """Plays ``Sets``: each set that is asked for is there."""

    async def find(self, namespace: str, name: str) -> SetRecord:
        return SetRecord(
            namespace=namespace,
            name=name,
            uid=f"uid-of-{namespace}-{name}",
            generation=1,
            state=SetState.READY,
            spread=0,
            target="",
            settings=setspec.SetSettings(),
        )


def rule_of(owned: ownsets.OwnSet, jitter_ms: int = 0):
    text = b'{"id": "a", "schedule": "@daily", "jitter": "%dms"}' % jitter_ms
    return owned.reader.row(text, now_us=NOW_US).rule


async def test_sets_whose_rows_all_differ_fill_no_memory_and_push_out_their_own(monkeypatch):
    """The API serves thousands of sets, and what it keeps of their rows is bounded for all."""
    monkeypatch.setattr(ownsets, "MOST_RULES_BYTES", 256 * 1024)
    sets = ownsets.OwnSets(Stored(), None)
    quiet = await sets.find("quiet", "set")
    loud = [await sets.find("loud", f"set-{number}") for number in range(10)]
    first, quiet_one = rule_of(loud[0]), rule_of(quiet)
    assert rule_of(loud[0]) is first
    for owned in loud[1:]:
        for jitter_ms in range(50):
            rule_of(owned, jitter_ms)
    assert rule_of(loud[0]) is not first
    assert rule_of(quiet) is quiet_one


async def test_sets_of_other_settings_share_no_rule():
    sets = ownsets.OwnSets(Stored(), None)
    one, other = await sets.find("team", "one"), await sets.find("team", "other")
    assert rule_of(one) is rule_of(await sets.find("team", "one"))
    assert rule_of(one) is not rule_of(other)
