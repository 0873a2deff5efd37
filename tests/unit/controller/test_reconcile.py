"""Observations of Schedules become definitions and due points."""

from __future__ import annotations

import itertools

import pytest

from duepoint import errors
from duepoint.delayqueue import messages, quotas
from duepoint.kube import errors as kube_errors
from tests.support.builders import at
from tests.unit.controller.world import World


async def test_ready_is_written_only_after_the_queue_holds_the_generation():
    world = World()
    seen = []
    upsert = world.queue.writer.upsert

    async def watched_upsert(wanted, epoch):
        seen.append(world.status().get("observedGeneration"))
        return await upsert(wanted, epoch)

    world.queue.writer.upsert = watched_upsert
    async with world.leader():
        await world.apply()
        await world.apply(schedule="@every 7m")
        assert seen == [-1, 1]
        assert world.status()["observedGeneration"] == 2


async def test_an_invalid_spec_is_stalled_with_every_error_and_nothing_old_runs_on():
    async with World().leader() as world:
        uid = (await world.apply())["metadata"]["uid"]
        await world.apply(schedule="0 0 31 2 *", jitter="soon")
        assert world.definition(uid) is None
        assert world.ready()[0] == "False"
        stalled = world.condition("Stalled")
        assert stalled["observedGeneration"] == 2
        assert "spec.jitter" in stalled["message"]
        assert '"soon"' in stalled["message"] or "soon" in stalled["message"]
        assert world.status()["observedGeneration"] == 2
        assert "nextScheduleTime" not in world.status()


REFUSED = {
    "an expression": {"schedule": "nonsense"},
    "a date that never comes": {"schedule": "0 0 31 2 *"},
    "a late time": {"schedule": "@at 2113-01-01T00:00:00Z"},
    "a zone": {"timeZone": "Mars/Base"},
    "a URL": {"webhook": {"url": "ftp://hooks.example.com/"}},
    "a payload": {"payload": {"text": "x" * 70_000}},
    "no streams": {"stream": {"name": "ticks"}},
    "too many streams": {"stream": {"name": "ticks"}},
}


@pytest.mark.parametrize("what", REFUSED)
async def test_whatever_stalls_an_armed_schedule_nothing_of_it_stays_in_the_queue(what):
    reason = "TargetUnavailable" if "stream" in REFUSED[what] else "InvalidSpec"
    world = World(has_own_streams=what != "no streams", quotas=quotas.Quotas(streams=1))
    async with world.leader():
        if what == "too many streams":
            await world.apply("other", stream={"name": "another"})
        uid = (await world.apply())["metadata"]["uid"]
        assert world.chain_due_us(uid) is not None
        await world.apply(**REFUSED[what])
        await world.clock.advance(2)
        assert world.condition("Stalled")["reason"] == reason
        assert world.status()["observedGeneration"] == 2
        assert world.definition(uid) is None
        assert world.chain_due_us(uid) is None


# -- trouble -----------------------------------------------------------------------------------


async def test_a_bug_concerns_one_schedule_and_is_retried_with_backoff():
    world = World()
    tries = []
    upsert = world.queue.writer.upsert

    async def breaking(wanted, epoch):
        if any(arming.definition.name == "cursed" for arming, _ in wanted):
            tries.append(world.clock.monotonic())
            if len(tries) < 5:
                raise ZeroDivisionError("a bug of ours")
        return await upsert(wanted, epoch)

    world.queue.writer.upsert = breaking
    async with world.leader():
        await world.apply("cursed")
        await world.apply("other")
        await world.clock.settle()
        assert world.ready("cursed") == ("Unknown", "InternalError")
        assert world.ready("other") == ("True", "Armed")
        await world.clock.advance(120)
        assert world.ready("cursed") == ("True", "Armed")
        # At first together with others, then at once alone.
        gaps = [after - before for before, after in itertools.pairwise(tries[1:])]
        # full jitter of the upper half, under a ceiling that doubles from one second
        assert all(2**n / 2 <= gap <= 2**n for n, gap in enumerate(gaps))


async def test_an_upsert_whose_answer_was_lost_is_found_done():
    world = World()
    upsert = world.queue.writer.upsert
    lost = []

    async def losing(wanted, epoch):
        answer = await upsert(wanted, epoch)
        if not lost:
            lost.append(answer)
            raise errors.QueueUnavailable("the answer was lost")
        return answer

    world.queue.writer.upsert = losing
    async with world.leader():
        uid = (await world.apply())["metadata"]["uid"]
        await world.clock.advance(5)
        assert world.ready() == ("True", "Armed")
        assert world.chain_due_us(uid) == at("2026-03-01 12:05:00")
        assert len(world.definitions()) == 1


async def test_a_new_timing_counts_from_its_storage_where_the_old_one_has_run_since_the_edit():
    world = World()
    upsert, tried = world.queue.writer.upsert, []

    async def running_meanwhile(wanted, epoch):
        tried.extend(arming for arming, _ in wanted)
        if len(tried) != 1:
            return await upsert(wanted, epoch)
        await world.clock.sleep(400)
        return [messages.Armed.HELD]

    async with world.leader():
        await world.apply()
        await world.clock.advance(5)
        world.queue.writer.upsert = running_meanwhile
        uid = (await world.apply(schedule="*/2 * * * *"))["metadata"]["uid"]
        await world.clock.advance(410)
        first, second = tried
        assert first.after_us == at("2026-03-01 12:05:00")  # the old one's next slot then
        assert second.definition.not_before_us > first.definition.not_before_us + 399_000_000
        assert world.chain_due_us(uid) == at("2026-03-01 12:08:00")
        assert world.ready() == ("True", "Armed")


# -- job templates -----------------------------------------------------------------------------


def dry_runs(world: World) -> int:
    return sum(verb == "POST" and path.endswith("/jobs") for verb, path in world.api.requests)


async def test_a_job_template_is_tried_once_for_many_schedules():
    async with World().leader() as world:
        for number in range(10, 30):
            await world.apply_job(f"report-{number}")
        assert dry_runs(world) == 1
        assert all(world.ready(f"report-{n}") == ("True", "Armed") for n in range(10, 30))
        assert world.api.all_stored("jobs") == []
        await world.apply_job("a-longer-name")
        assert dry_runs(world) == 1


@pytest.mark.parametrize(
    "trouble",
    [
        kube_errors.Forbidden("exceeded quota"),
        kube_errors.Unavailable("no answer", status=503),
    ],
    ids=["quota", "outage"],
)
async def test_without_a_verdict_the_schedule_is_armed_and_asked_about_again(trouble):
    async with World().leader() as world:
        world.api.fail_next(trouble, verb="POST", resource="jobs")
        uid = (await world.apply_job())["metadata"]["uid"]
        assert world.ready() == ("Unknown", "Forbidden")
        assert world.status()["observedGeneration"] == 1
        assert world.chain_due_us(uid) == at("2026-03-01 12:05:00")
        await world.clock.advance(5)
        assert world.ready() == ("True", "Armed")
        assert world.status()["observedGeneration"] == 1


@pytest.mark.parametrize("is_written", [True, False], ids=["read", "not read yet"])
async def test_a_one_off_counts_from_its_creation_where_what_was_edited_says_the_same(is_written):
    """It was looked at while Redis was away; ``suspend: false`` says what its absence says.

    The edit counted as one of the timing, and the one-off did not run.
    """
    world = World()
    async with world.leader():
        world.queue.available = False
        once = "@at 2026-03-01T12:06:00Z"
        uid = (await world.apply(schedule=once))["metadata"]["uid"]
        await world.clock.advance(30 if is_written else 0)
        await world.apply(schedule=once, suspend=False)
        await world.clock.advance(400)
        assert world.ready() == ("Unknown", "QueueUnavailable")
        assert world.status()["observedGeneration"] == 2
        assert "settledThrough" not in world.status()
    world.queue.available = True
    async with world.leader(epoch=2):
        await world.clock.advance(2)
        assert world.ready() == ("True", "Armed")
        assert world.chain_due_us(uid) == at("2026-03-01 12:06:00")
