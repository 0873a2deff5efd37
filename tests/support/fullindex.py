"""An index with one of everything that the queue stores, for tests of commands that read it.

It has definitions of each kind, chain points, occurrences, an abandoned claim, outcomes, dead
letters, and a ScheduleSet with members of each kind.
"""

from __future__ import annotations

from typing import Any

from duepoint.delayqueue import delayqueue, keys, messages
from duepoint.delayqueue.members import values as member_values
from duepoint.runs import run
from duepoint.schedules import definition, points
from duepoint.schedules import rule as rules
from duepoint.schedules.sets import setrecord, setspec
from tests.support import queueing

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
        starting_deadline_seconds=120,
        catch_up_policy="All",
        catch_up_limit=7,
        successful_jobs_history_limit=9,
        failed_jobs_history_limit=2,
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

#: The definitions by name, as differences from ``queueing.USUAL``.
DEFINITIONS: dict[str, dict[str, Any]] = {
    "report": {"uid": "0d4b0a52-6b39-4d0c-9c51-3f1f2c1b7a10", "rule": _SHARED},
    "second": {"uid": "0d4b0a52-6b39-4d0c-9c51-3f1f2c1b7a11", "rule": _SHARED, "generation": 300},
    "once": {
        "uid": "a uid that is not a UUID",
        "rule": _PRIVATE,
        "state": definition.State.SUSPENDED,
        "not_before_us": queueing.CREATED_US - 5,
    },
    "ended": {
        "uid": "0d4b0a52-6b39-4d0c-9c51-3f1f2c1b7a12",
        "namespace": "team-ä",
        "state": definition.State.COMPLETED,
    },
    "plain": {"uid": "0d4b0a52-6b39-4d0c-9c51-3f1f2c1b7a13", "namespace": "team-b"},
}
RECORD = messages.OccurrenceRecord(
    attempt=2,
    first_try_us=SLOT_US + 5,
    trigger="CatchUp",
    run_uid="0d4b0a52-6b39-4d0c-9c51-3f1f2c1b7aff",
    last_error="Network",
)
EVENT = run.RunEvent(
    uid=DEFINITIONS["report"]["uid"],
    namespace="default",
    name="report",
    generation=1,
    slot_us=SLOT_US,
    trigger="Schedule",
    state=run.RunState.FAILED,
    reason="Network",
    at_us=SLOT_US + 7,
    message="no answer",
    attempts=2,
    http_status=504,
)
LETTER = {"namespace": "default", "name": "report", "reason": "Network", "slot_us": str(SLOT_US)}


#: Members by id. One has ended and is kept; the others wait: the set is suspended.
_ONCE = rules.Rule(timing=rules.Timing(schedules=rules.ONCE))
_FAR = rules.Rule(timing=rules.Timing(schedules=("@at 2099-06-01T00:00:00Z",)))
MEMBERS = {
    one.id: one
    for one in (
        member_values.MemberWrite(id="ended", rule=_ONCE, at_us=SLOT_US, payload=b'{"n":0}'),
        member_values.MemberWrite(id="shared", rule=_SHARED),
        member_values.MemberWrite(id="private", rule=_FAR, payload=b'"private"'),
        member_values.MemberWrite(id="once", rule=_ONCE, at_us=SLOT_US + 1),
        member_values.MemberWrite(
            id="paid:once~1", rule=_ONCE, at_us=SLOT_US + 2, payload=b"[" * 300
        ),
    )
}
KEPT_SECONDS = 30 * 86_400


def set_of(queue: Any, state: setrecord.SetState) -> setrecord.SetRecord:
    """Return the record of the ScheduleSet."""
    return setrecord.SetRecord(
        namespace="shop",
        name="reminders",
        uid="0d4b0a52-6b39-4d0c-9c51-3f1f2c1b7a20",
        generation=3,
        state=state,
        spread=2,
        target=queue.signed_blobs.digest("shop", queueing.BLOB),
        settings=setspec.SetSettings(
            defaults=rules.Rule(timing=rules.Timing(schedules=rules.ONCE, time_zone="Europe/Rome")),
            retention_seconds=KEPT_SECONDS,
        ),
    )


def of(queue: Any, name: str) -> definition.Definition:
    """Return the definition that the index stores under this name."""
    values = {**queueing.USUAL, "name": name, **DEFINITIONS[name]}
    values.setdefault("timing_generation", values["generation"])
    return definition.Definition(
        target=queue.signed_blobs.digest(values["namespace"], queueing.BLOB), **values
    )


def slots(known: definition.Definition) -> tuple[messages.Occurrence, ...]:
    """Return an occurrence of each kind for this schedule; none waits for a comparison."""
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
            source=known.id + known.timing_version,
        )
        for kind in points.PointKind
        if kind not in (points.PointKind.CHAIN, points.PointKind.EXPIRY)
    )


async def written(url: str) -> None:
    """Fill a server with one of everything."""
    queue = delayqueue.connect(url, blob_key=queueing.BLOB_KEY, prefix=keys.DEFAULT_PREFIX)
    await queue.start()
    layout = await queue.membership.open(SHARDS, queueing.EPOCH)
    await _write_set(queue, layout)
    for name in DEFINITIONS:
        known = of(queue, name)
        due = SLOT_US if known.state is definition.State.ARMED else None
        arming = messages.Arming(definition=known, due_us=due)
        assert await queue.writer.upsert([(arming, queueing.BLOB)], queueing.EPOCH) == ["applied"]
    shards = [messages.ShardId(number) for number in range(layout.shards)]
    for claimed in await queue.claims.claim(shards, worker="golden", lease_seconds=0.001):
        if claimed.claim is not None:
            await _settle_one(queue, claimed.claim)
    await queue.close()


async def _write_set(queue: Any, layout: messages.Layout) -> None:
    """Fire and keep one member, then suspend the set and add the others."""
    ready = set_of(queue, setrecord.SetState.READY)
    await queue.sets.store(ready, queueing.BLOB, queueing.EPOCH)
    ended, *others = MEMBERS.values()
    await queue.members.put(ready, [ended])
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
    await queue.members.put(suspended, others)


async def _settle_one(queue: Any, claim: messages.Claim) -> None:
    """Give ``report`` occurrences, an outcome and a dead letter; the others stay claimed."""
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
