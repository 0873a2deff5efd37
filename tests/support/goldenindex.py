"""An index as a released version left it in Redis, kept byte for byte in ``tests/golden``.

``written`` fills a server with one of everything that is stored: definitions of each kind, chain
points, occurrences, a claim that nobody ended, outcomes, dead letters, a ScheduleSet with members
of each kind. ``dumped`` turns what stands
there into JSON (bytes as hex), ``restored`` puts such a file into another server. A file is made
once for each record format and never again:

    python -m tests.support.goldenindex redis://127.0.0.1:6379/0 > tests/golden/index-<format>.json

What a file must still mean to later versions is said in ``EXPECTED``, in today's words.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import redis

from duepoint import clock as clocks
from duepoint.delayqueue import delayqueue, messages
from duepoint.delayqueue.members import values as member_values
from duepoint.runs import run
from duepoint.schedules import definition, points
from duepoint.schedules import rule as rules
from duepoint.schedules.sets import setrecord, setspec
from tests.support import queueing

FOLDER = Path(__file__).parents[1] / "golden"
PREFIX = "dp:golden:"
SHARDS = 2
SLOT_US = queueing.CREATED_US + 3_600 * queueing.SECOND_US

_SHARED = rules.Rule(
    timing=rules.Timing(
        schedules=("0 9 * * 1-5", "30 18 * * *"),
        time_zone="Europe/Berlin",
        gap="Skip",
        overlap="Both",
        jitter_ms=1500,
    ),
    policy=rules.Policy(
        deadline_seconds=120, catch_up="All", catch_up_limit=7, successful_limit=9, failed_limit=2
    ),
    whole_seconds=True,
)
_PRIVATE = rules.Rule(
    timing=rules.Timing(
        schedules=("@at 2026-06-01T00:00:00Z",),
        start_us=queueing.CREATED_US,
        end_us=SLOT_US * 2,
        suspend=True,
        suspend_until_us=SLOT_US,
    )
)

#: Definitions by name: what differs from ``queueing.USUAL``.
DEFINITIONS: dict[str, dict[str, Any]] = {
    "report": {"uid": "0d4b0a52-6b39-4d0c-9c51-3f1f2c1b7a10", "rule": _SHARED},
    "second": {"uid": "0d4b0a52-6b39-4d0c-9c51-3f1f2c1b7a11", "rule": _SHARED, "generation": 300},
    "once": {
        "uid": "a uid that is no UUID",
        "rule": _PRIVATE,
        "state": definition.State.SUSPENDED,
        "not_before_us": queueing.CREATED_US - 5,
    },
    "ended": {
        "uid": "0d4b0a52-6b39-4d0c-9c51-3f1f2c1b7a12",
        "namespace": "team-ä",
        "state": definition.State.COMPLETED,
        "collision": 1,
    },
    "plain": {"uid": "0d4b0a52-6b39-4d0c-9c51-3f1f2c1b7a13", "namespace": "team-b"},
}
RECORD = messages.OccurrenceRecord(
    attempt=2,
    first_try_us=SLOT_US + 5,
    trigger="CatchUp",
    run_uid="0d4b0a52-6b39-4d0c-9c51-3f1f2c1b7aff",
    last_error="Timeout",
)
EVENT = run.RunEvent(
    uid=DEFINITIONS["report"]["uid"],
    namespace="default",
    name="report",
    generation=1,
    slot_us=SLOT_US,
    trigger="Schedule",
    state=run.RunState.FAILED,
    reason="Timeout",
    at_us=SLOT_US + 7,
    message="no answer",
    attempts=2,
    http_status=504,
)
LETTER = {"namespace": "default", "name": "report", "reason": "Timeout", "slot_us": str(SLOT_US)}


#: Members by id. One has come to its end and is kept; the others wait: the set is suspended.
_ONCE = rules.Rule(timing=rules.Timing(schedules=rules.ONCE))
MEMBERS = {
    one.id: one
    for one in (
        member_values.MemberWrite(id="ended", rule=_ONCE, at_us=SLOT_US, payload=b'{"n":0}'),
        member_values.MemberWrite(id="shared", rule=_SHARED),
        member_values.MemberWrite(id="private", rule=_PRIVATE, payload=b'"private"'),
        member_values.MemberWrite(id="once", rule=_ONCE, at_us=SLOT_US + 1),
        member_values.MemberWrite(
            id="paid:once~1", rule=_ONCE, at_us=SLOT_US + 2, payload=b"[" * 300
        ),
    )
}
KEPT_SECONDS = 30 * 86_400


def set_of(queue: Any, state: setrecord.SetState) -> setrecord.SetRecord:
    """The record of the ScheduleSet."""
    return setrecord.SetRecord(
        namespace="shop",
        name="reminders",
        uid="0d4b0a52-6b39-4d0c-9c51-3f1f2c1b7a20",
        generation=3,
        state=state,
        spread=2,
        target=queue.signed_blobs.digest("shop", queueing.BLOB),
        settings=setspec.SetSettings(
            defaults=setspec.MemberDefaults(time_zone="Europe/Rome"), retention_seconds=KEPT_SECONDS
        ),
    )


def of(queue: Any, name: str) -> definition.Definition:
    """The definition that the index holds under this name."""
    values = {**queueing.USUAL, "name": name, **DEFINITIONS[name]}
    values.setdefault("timing_generation", values["generation"])
    return definition.Definition(
        target=queue.signed_blobs.digest(values["namespace"], queueing.BLOB), **values
    )


def slots(known: definition.Definition) -> tuple[messages.Occurrence, ...]:
    """An occurrence of each kind, all of this schedule; none waits to be compared."""
    return tuple(
        messages.Occurrence(
            point=points.DuePoint(
                schedule_id=known.id,
                timing_version=known.timing_version,
                kind=kind,
                due_us=SLOT_US + kind,
                slot_us=SLOT_US,
                run_tag=points.run_tag(RECORD.run_uid)
                if kind in (points.PointKind.MANUAL, points.PointKind.BACKFILL)
                else points.NO_RUN,
            ),
            record=RECORD,
        )
        for kind in points.PointKind
        if kind not in (points.PointKind.CHAIN, points.PointKind.EXPIRY)
    )


async def written(url: str) -> None:
    """Fill a server with one of everything."""
    queue = delayqueue.connect(url, blob_key=queueing.BLOB_KEY, prefix=PREFIX)
    await queue.start()
    layout = await queue.membership.open(SHARDS, queueing.EPOCH)
    await _write_set(queue, layout)
    for name in DEFINITIONS:
        known = of(queue, name)
        due = SLOT_US if known.state is definition.State.ARMED else None
        arming = messages.Arming(definition=known, due_us=due)
        assert await queue.writer.upsert([(arming, queueing.BLOB)], queueing.EPOCH) == ["applied"]
    shards = [messages.ShardId(number) for number in range(layout.shards)]
    for claimed in await queue.claims.claim(shards, worker="golden", lease_seconds=2.0):
        if claimed.claim is not None:
            await _settle_one(queue, claimed.claim)
    await queue.close()


class _AtCreation(clocks.SystemClock):
    """The clock of who writes members."""

    def now_us(self) -> int:
        return queueing.CREATED_US


async def _put(
    queue: Any, set_: setrecord.SetRecord, members: list[member_values.MemberWrite]
) -> None:
    """What is drawn for a member, and when it was created, are the same in every file."""
    drawn = random.Random(members[0].id).randbytes
    with (
        mock.patch.object(queue.index, "clock", _AtCreation()),
        mock.patch("duepoint.delayqueue.members.rows.os.urandom", drawn),
    ):
        await queue.members.put(set_, members)


async def _write_set(queue: Any, layout: messages.Layout) -> None:
    """One member is fired and kept, then the set is suspended and gets the others."""
    ready = set_of(queue, setrecord.SetState.READY)
    await queue.sets.store(ready, queueing.BLOB, queueing.EPOCH)
    ended, *others = MEMBERS.values()
    await _put(queue, ready, [ended])
    shards = [messages.ShardId(number) for number in range(layout.shards)]
    for claimed in await queue.claims.claim(shards, worker="golden", lease_seconds=2.0):
        if (claim := claimed.claim) is not None:
            (chain,) = claim.points
            over = messages.Settlement(
                finished=(chain.member,),
                ended=(chain.member,),
                leaving=((chain.schedule_id, messages.Leaving.ENDED),),
            )
            assert (await queue.settlements.settle(claim, over)).applied == 1
    suspended = set_of(queue, setrecord.SetState.SUSPENDED)
    await queue.sets.store(suspended, queueing.BLOB, queueing.EPOCH)
    await _put(queue, suspended, others)


async def _settle_one(queue: Any, claim: messages.Claim) -> None:
    """``report`` gets occurrences, an outcome and a dead letter; the others stay claimed."""
    report = of(queue, "report")
    mine = [point for point in claim.points if point.schedule_id == report.id]
    if not mine:
        return
    ended = messages.Settlement(
        occurrences=slots(report),
        chains=((mine[0].member, SLOT_US + queueing.SECOND_US),),
        dead=(messages.DeadLetter(member=b"", entry=LETTER),),
        outcomes=run.pack([EVENT]),
    )
    assert not (await queue.settlements.settle(claim, ended)).lost


# -- files -----------------------------------------------------------------------------------


def path(number: int) -> Path:
    return FOLDER / f"index-{number}.json"


def dumped(client: redis.Redis) -> dict[str, Any]:
    """Every key of the index, without its prefix."""
    found = {}
    for key in sorted(client.scan_iter(match=f"{PREFIX}*", count=1000)):
        found[key.decode().removeprefix(PREFIX)] = _dumped_key(client, key)
    return found


def restored(client: redis.Redis, keys: dict[str, Any]) -> None:
    """Put a dump into a server as if it had been written there, so that no shard is in doubt."""
    run_id = client.info("server")["run_id"]
    for name, (kind, values) in keys.items():
        _restore_key(client, PREFIX + name, kind, values)
        if name.endswith(":meta"):
            client.hset(PREFIX + name, "server", run_id)


def _dumped_key(client: redis.Redis, key: bytes) -> tuple[str, list[Any]]:
    kind = client.type(key).decode()
    match kind:
        case "hash":
            pairs = sorted(client.hgetall(key).items())
            return kind, [[field.hex(), value.hex()] for field, value in pairs]
        case "zset":
            return kind, [
                [member.hex(), repr(score)]
                for member, score in client.zrange(key, 0, -1, withscores=True)
            ]
        case "stream":
            entries = [
                [entry_id.decode(), [[f.hex(), v.hex()] for f, v in fields.items()]]
                for entry_id, fields in client.xrange(key)
            ]
            return kind, entries
    raise AssertionError(f"{key!r} is a {kind}: say here how it is kept")


def _restore_key(client: redis.Redis, key: str, kind: str, values: list[Any]) -> None:
    match kind:
        case "hash":
            pairs = {bytes.fromhex(f): bytes.fromhex(v) for f, v in values}
            client.hset(key, mapping=pairs)
        case "zset":
            client.zadd(key, {bytes.fromhex(member): float(score) for member, score in values})
        case "stream":
            client.xdel(key, client.xadd(key, {"": ""}, id="0-1"))
            for entry_id, fields in values:
                pairs = {bytes.fromhex(f): bytes.fromhex(v) for f, v in fields}
                client.xadd(key, pairs, id=entry_id)
        case _:
            raise AssertionError(kind)


def main(url: str) -> None:
    asyncio.run(written(url))
    with redis.Redis.from_url(url, protocol=2) as client:
        json.dump(dumped(client), sys.stdout, indent=1, sort_keys=True)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main(sys.argv[1])
