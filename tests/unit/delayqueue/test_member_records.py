"""Members of sets in bytes: ids, populations, records, cursors."""

from __future__ import annotations

import functools
import uuid

import msgspec
import pytest

from duepoint.delayqueue import keys
from duepoint.schedules import points
from duepoint.schedules import rule as rules
from duepoint.schedules.definition import State

OWNER = points.SetIdentity(str(uuid.UUID(int=7)), "shop", "reminders", 3)
CREATED_US = 1_767_225_600_000_000
FACTS = {
    "state": State.ARMED,
    "identity": b"vers\x01\x02\x03\x04" + uuid.UUID(int=9).bytes,
    "kind": b"of kind:",
    "name": b"customer-7",
    "created_us": CREATED_US,
    "not_before_us": CREATED_US - 1,
    "inline": b"",
    "once_us": None,
    "payload": b"",
    "payload_mac": b"",
}
RULE = rules.Rule(timing=rules.Timing(schedules=("0 9 * * *",)))


@pytest.mark.parametrize("shards", [1, 2, 16, 64, 256, 4096])
@pytest.mark.parametrize("spread", [0, 1, 5, 10])
def test_every_member_lies_in_a_population_of_its_shard(shards, spread):
    owner = msgspec.structs.replace(OWNER, spread=spread)
    used = set()
    populations_of = functools.cache(
        lambda shard: frozenset(keys.set_populations(owner.uid, spread, shard, shards))
    )
    for number in range(500):
        member = int.from_bytes(points.member_id(owner, f"member-{number}"))
        shard = member % shards
        used.add(shard)
        populations = populations_of(shard)
        assert keys.place_of_number(member, 1) in populations
        assert len(populations) <= max(1, 2 ** (6 + spread - 2))
    reachable = min(shards, 64 << max(0, min(spread, shards.bit_length() - 7)))
    assert len(used) <= reachable
    assert len(used) > min(reachable, 500) // 3
