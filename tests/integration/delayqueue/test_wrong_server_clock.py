"""A Redis whose clock is ahead does not reach into the future with what is to run now."""

from __future__ import annotations

from duepoint.delayqueue import messages
from duepoint.schedules import points
from duepoint.schedules.points import PointKind
from tests.support import queueing

HOUR_US = 3_600_000_000


async def test_a_run_by_hand_is_due_by_the_agreed_clock_where_that_of_redis_is_ahead(
    redis_server, key_prefix, monkeypatch
):
    harness = await queueing.redis_harness(redis_server.url, key_prefix, shards=1)
    await harness.arm(due_in=3_600)
    known = harness.definition()
    clock = harness.queue.occurrences.index.clock
    agreed_us = clock.now_us() - HOUR_US
    monkeypatch.setattr(type(clock), "now_us", lambda _clock: agreed_us)
    manual = points.manual(known.id, agreed_us, "run", PointKind.MANUAL)
    record = messages.OccurrenceRecord(trigger="Manual", run_uid="run")
    await harness.queue.occurrences.enqueue(known, manual, record, queueing.EPOCH)
    monkeypatch.undo()
    claim = await harness.claim_one()
    assert [point.member for point in claim.points] == [manual.member]
    assert claim.points[0].due_us == agreed_us
    await harness.close()
