"""What people are told by Events: warnings and changes, each once."""

from __future__ import annotations

import pytest

from duepoint.runs.run import RunState
from tests.unit.controller.status.test_openslots import S
from tests.unit.controller.status.test_reporter import FIRST, event
from tests.unit.controller.world import World

SECOND_SLOT, THIRD_SLOT = FIRST + 300 * S, FIRST + 600 * S


def reasons(world: World) -> list[str]:
    return [str(one.reason) for one in world.news]


async def test_a_failure_is_news_and_so_is_the_first_success_after_it():
    async with World().leader() as world:
        made = await world.apply_job()
        uid = made["metadata"]["uid"]
        await world.clock.advance(910)
        failed = event(
            made, FIRST, RunState.FAILED, reason="RunFailed", message="exit 1", job_name="j-1"
        )
        created = event(made, FIRST, RunState.RUNNING, reason="Running", job_name="j-1")
        await world.tell(uid, created, failed, event(made, SECOND_SLOT), event(made, THIRD_SLOT))
        assert reasons(world) == ["RunFailed", "RunRecovered"]
        told = world.news[0]
        assert told.warning
        assert told.regarding.uid == uid
        assert (told.related.kind, told.related.name) == ("Job", "j-1")
        assert "RunFailed: exit 1" in told.note


async def test_a_missed_slot_is_told_by_the_word_that_helps_most():
    async with World().leader() as world:
        made = await world.apply_job()
        uid = made["metadata"]["uid"]
        await world.clock.advance(910)
        await world.tell(
            uid,
            event(made, FIRST, RunState.MISSED, reason="NameConflict", message="not ours"),
            event(made, SECOND_SLOT, RunState.SKIPPED, reason="ConcurrencyLimit"),
            event(made, THIRD_SLOT, RunState.MISSED, reason="InvalidJobTemplate", message="no"),
        )
        assert reasons(world) == ["NameConflict", "RunSkipped", "InvalidJobTemplate"]


@pytest.mark.parametrize("reason", ["ConcurrencyLimit", "Replaced", "Completed", "Suspended"])
async def test_a_slot_that_is_skipped_as_its_spec_asks_is_told_and_is_no_warning(reason):
    async with World().leader() as world:
        made = await world.apply_job()
        await world.clock.advance(610)
        await world.tell(
            made["metadata"]["uid"], event(made, FIRST, RunState.SKIPPED, reason=reason)
        )
        assert [(one.reason, one.warning) for one in world.news] == [("RunSkipped", False)]
        assert world.news[0].note.endswith(reason)


async def test_a_refused_spec_is_told_once_for_each_generation():
    world = World()
    async with world.leader():
        await world.apply(schedule="0 0 30 2 *")
        await world.clock.advance(1)
        await world.resync.compare()
        await world.clock.advance(1)
        assert reasons(world) == ["InvalidSpec"]
        await world.apply(timeZone="Mars/Olympus")
        await world.clock.advance(1)
        assert reasons(world) == ["InvalidSpec", "InvalidSpec"]
    async with world.leader(epoch=2):
        await world.clock.advance(5)
        assert len(world.news) == 2
