"""A quiet namespace beside hostile ones: what hangs or floods there does not keep it waiting."""

from __future__ import annotations

import asyncio

import pytest

from duepoint import shares
from duepoint.model.webhook import SecretRefFields
from duepoint.schedules import actions
from duepoint.targets import outcome
from tests.fakes.fakeclock import FakeClock
from tests.fakes.recordingtarget import RecordingTarget
from tests.support import waiting
from tests.support.builders import a_definition, at
from tests.support.workplace import Workplace, a_workplace

NOON = at("2026-03-01 12:00:00")
JOB = actions.Action(target=actions.job_of({"spec": {}}))
STREAM = actions.Action(target=actions.StreamAction(name="events"))
KAFKA = actions.Action(
    target=actions.KafkaAction(
        topic="events", connection_secret_ref=SecretRefFields(name="brokers")
    )
)
WEBHOOK = actions.Action(
    target=actions.WebhookAction(url="https://hooks.example.com/x", timeout_seconds=300)
)
PLACES = 16


class HangingThere(RecordingTarget):
    """Hangs for hostile namespaces, answers others at once."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock)
        self.quiet_us: list[int] = []

    async def _is_let_go(self, seconds: float) -> bool:
        if self.fired[-1].namespace == "quiet":
            self.quiet_us.append(self._clock.now_us())
            return True
        return await super()._is_let_go(seconds)


@pytest.fixture(autouse=True)
def little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wait for a place takes real time; how long it is decides nothing here."""
    monkeypatch.setattr(shares, "PATIENCE_SECONDS", 0.02)


@pytest.fixture
async def place() -> Workplace:
    made = await a_workplace()
    made.target = HangingThere(made.clock)
    made.target.hold()
    return made


async def arm(
    place: Workplace, name: str, namespace: str, action: actions.Action, after_us: int = NOON
) -> None:
    known = a_definition(
        "@every 10s",
        uid=f"{namespace}-{name}",
        name=name,
        namespace=namespace,
        created_us=NOON,
        not_before_us=after_us,
    )
    await place.arm(known, action)


async def two_hostile_namespaces(place: Workplace, action: actions.Action = WEBHOOK) -> None:
    for number in range(2 * PLACES):
        for namespace in ("hostile", "worse"):
            await arm(place, f"hanging-{number}", namespace, action)


async def pass_slot(place: Workplace) -> None:
    """One slot of all, and the time in which those without a place are put off."""
    await place.clock.advance(10.001)
    await asyncio.sleep(2 * shares.PATIENCE_SECONDS)
    await place.clock.settle()


@pytest.mark.parametrize(
    ("hanging", "action"),
    [(WEBHOOK, JOB), (KAFKA, STREAM), (WEBHOOK, WEBHOOK), (WEBHOOK, KAFKA)],
    ids=["a job", "a stream", "a webhook", "kafka"],
)
async def test_quiet_slots_start_at_once_while_two_namespaces_hold_all_they_can_get(
    place, hanging, action
):
    await two_hostile_namespaces(place, hanging)
    async with place.working(place.a_worker(concurrency=PLACES)):
        await pass_slot(place)  # they have all that they may have
        await arm(place, "quiet", "quiet", action, after_us=NOON + 10_000_000)
        await pass_slot(place)
    assert place.target.quiet_us == [pytest.approx(NOON + 20_000_000, abs=2_000)]


async def test_a_quiet_slot_is_claimed_while_bursts_fill_all_the_room(monkeypatch):
    monkeypatch.setattr(shares, "PATIENCE_SECONDS", 30.0)  # what is in hand stays there
    place = await a_workplace(shards=64)  # so that namespaces have shards of their own
    place.target = HangingThere(place.clock)
    place.target.hold()
    await two_hostile_namespaces(place)
    await arm(place, "quiet", "quiet", WEBHOOK, after_us=NOON + 11_000_000)
    worker = place.a_worker(concurrency=PLACES)
    worker._room._most = 2 * PLACES
    async with place.working(worker):
        await place.clock.advance(10.001)
        await place.clock.settle()
        assert worker._room.in_hand.total() >= 2 * PLACES
        await place.clock.advance(10.0)
        assert place.target.quiet_us == [NOON + 20_000_000]


async def test_a_flood_of_jobs_of_one_namespace_lets_another_ones_job_pass(place):
    def deliver(firing) -> outcome.Outcome:
        return outcome.Delivered(accepted_us=place.clock.now_us(), running=True, job_name="j")

    async def has_quiet() -> bool:
        return any(one.namespace == "quiet" for one in place.target.fired)

    place.target.always_reply(deliver)
    for number in range(100):
        await arm(place, f"flood-{number}", "hostile", JOB)
    await arm(place, "quiet", "quiet", JOB)
    async with place.working(place.a_worker(concurrency=PLACES)):
        await place.clock.advance(10.001)
        await waiting.eventually(has_quiet, "the quiet Job, while the others hang")
        place.target.let_go()
        await place.clock.advance(1.0)
