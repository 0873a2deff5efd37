"""An entry whose target could be read only after its claim was planned comes back as an entry."""

from __future__ import annotations

from duepoint.delayqueue import errors as queue_errors
from duepoint.schedules import actions
from tests.fakes.recordingtarget import RecordingTarget
from tests.support.workplace import a_workplace
from tests.unit.worker.test_worker import every

STREAM = actions.Action(target=actions.StreamAction(name="events"))


class Appending(RecordingTarget):
    def appends(self, action):
        return isinstance(action.target, actions.StreamAction)


async def test_it_is_not_taken_for_a_request(monkeypatch):
    place = await a_workplace()
    place.target = Appending(place.clock)
    known = await place.arm(every("60s"), STREAM)
    read, answers = (
        place.queue.definitions.blob,
        [queue_errors.BlobMissing("not yet") for _ in range(2)],
    )

    async def blob(*wanted):
        if answers:
            raise answers.pop()
        return await read(*wanted)

    monkeypatch.setattr(place.queue.definitions, "blob", blob)
    async with place.working(place.a_worker()):
        await place.clock.advance(60.2)
    assert place.target.fired == []
    (shard,) = (one for one in place.queue.shards.values() if known.id in one.definitions)
    assert not shard.dead
    assert [one.last_cause for one in shard.records.values()] == ["the target was read too late"]
