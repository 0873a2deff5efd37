"""``duepoint dlq replay`` and ``purge``, and what becomes of a replayed slot."""

from __future__ import annotations

import asyncio
import json

import pytest
from click.testing import CliRunner

from duepoint import cli
from duepoint.clock import SystemClock
from duepoint.delayqueue import deadletters, keys, messages
from duepoint.runs import run
from duepoint.schedules import actions
from duepoint.schedules.conditions import Reason
from duepoint.targets import outcome as outcomes
from duepoint.worker import firing
from tests.fakes.nojobs import no_jobs
from tests.fakes.recordingtarget import RecordingTarget
from tests.support import queueing, redisusers, workplace

WEBHOOK = actions.Action(
    target=actions.WebhookAction(
        url="https://hooks.example.com/x", retry=actions.RetryRule(max_attempts=1)
    )
)
REFUSED = outcomes.Retry(reason=Reason.NETWORK, message="connection refused")


class Scene:
    """Schedules whose slots were given up on; and a worker that tries what is due."""

    def __init__(self, url, harness):
        self.url = url
        self.harness = harness
        self.queue = harness.queue
        self.clock = SystemClock()
        self.target = RecordingTarget(self.clock)
        self.blob = actions.encode(WEBHOOK)

    async def arm(self, name="report", **changes):
        known = self.harness.definition(
            name=name,
            target=self.queue.signed_blobs.digest(changes.get("namespace", "default"), self.blob),
            uid=f"6f1c9a34-0000-4000-8000-{abs(hash(name)) % 10**12:012}", **changes,
        )  # fmt: skip
        now_us = self.clock.now_us()
        due_us = now_us - now_us % 60_000_000
        arming = messages.Arming(definition=known, due_us=due_us)
        await self.queue.writer.upsert([(arming, self.blob)], queueing.EPOCH)
        return known

    async def work(self):
        """Try everything that is due now, once."""
        worker = firing.Firer(
            queue=self.queue,
            targets={"webhook": self.target, "job": self.target},
            streams=self.target,
            clock=self.clock,
            places=8,
            lease_seconds=10.0,
            jobs=no_jobs(),
        )
        for claim in await self.harness.claim_all():
            await workplace.carry_out(worker, claim)

    async def give_up(self, *names, **changes):
        known = [await self.arm(name, **changes) for name in names]
        self.target.reply(*[REFUSED] * len(names))
        await self.work()
        return known

    async def letters(self):
        return [letter async for letter in self.queue.dead_letters.newest()]

    async def events(self):
        return [event for packed in await self.harness.outcomes() for event in run.unpack(packed)]

    async def command(self, *arguments, code=0, role="replayer", **options):
        url = redisusers.url_for(self.url, role)
        done = await asyncio.to_thread(
            CliRunner().invoke, cli.commands, ["dlq", *arguments],
            env={"DUEPOINT_REDIS_URL": url}, **options,
        )  # fmt: skip
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        assert done.exit_code == code, done.stderr
        return done

    async def rows(self, *arguments, **options):
        done = await self.command(*arguments, "-o", "json", **options)
        return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture
async def scene(own_server):
    harness = await queueing.redis_harness(own_server.url, keys.DEFAULT_PREFIX)
    yield Scene(own_server.url, harness)
    await harness.close()


async def test_a_replayed_slot_is_tried_once_more_as_the_same_slot(scene):
    (known,) = await scene.give_up("report")
    (first,) = scene.target.fired
    (letter,) = await scene.rows("list")
    (row,) = await scene.rows("replay", letter["id"])
    assert (row["result"], row["why"], row["schedule"]) == ("replayed", "", "report")
    assert await scene.letters() == []
    await scene.events()
    await scene.work()
    again = scene.target.fired[1]
    assert (again.uid, again.slot_us, again.run_uid) == (known.uid, first.slot_us, "")
    assert (again.trigger, again.attempt) == (first.trigger, 1)
    (event,) = await scene.events()
    assert (event.state, event.slot_us) == (run.RunState.SUCCEEDED, first.slot_us)
    total = await scene.harness.total()
    assert (total.points, total.dead) == (1, 0)  # the chain


async def test_one_letter_replayed_by_many_at_a_time_is_tried_once(scene):
    await scene.give_up("report")
    (letter,) = await scene.letters()
    answers = await asyncio.gather(*(scene.queue.dead_letters.replay(letter) for _ in range(10)))
    assert answers.count(deadletters.Replayed.APPLIED) == 1
    assert await scene.queue.dead_letters.replay(letter) is deadletters.Replayed.UNKNOWN
    await scene.work()
    assert len(scene.target.fired) == 2


@pytest.mark.parametrize(
    "entry",
    [
        {"reason": "Unsupported", "message": "no known format", "member": b"\xff\x00"},
        {"namespace": "default", "name": "a", "uid": "u", "kind": "MANUAL", "slot_us": "x"},
        {"namespace": "default", "uid": "u", "slot_us": "1", "run_uid": "of a run", "member": b""},
    ],
    ids=["a stranger", "no slot", "a run without its point"],
)
async def test_a_letter_that_does_not_say_which_slot_it_is_of_is_refused(scene, entry):
    names = scene.harness.server.shard((await scene.harness.shards())[0])
    key = names.log(deadletters.NO_LANE)
    await scene.harness.server.redis.xadd(key, {"taken": "9", "member": b"", **entry})
    await scene.harness.server.redis.zadd(names.logs, {deadletters.NO_LANE: 1})
    (row,) = await scene.rows("replay", "--all", "--yes", code=1)
    assert "could not be read" in row["why"]
    assert len(await scene.letters()) == 1
    assert (await scene.harness.total()).points == 0


async def test_letters_are_chosen_by_what_they_say(scene):
    await scene.give_up("a", "b")
    await scene.give_up("c", namespace="other")
    assert {row["schedule"] for row in await scene.rows("purge", "--dry-run", "-n", "default")} == {
        "a", "b",
    }  # fmt: skip
    assert await scene.rows("purge", "--dry-run", "--reason", "InternalError") == []
    assert await scene.rows("purge", "--dry-run", "--older-than", "1h") == []
    assert len(await scene.rows("purge", "--dry-run", "--older-than", "0s")) == 3
    (row,) = await scene.rows("purge", "-n", "other", "-s", "c", "--reason", "Network", "--yes")
    assert (row["schedule"], row["result"]) == ("c", "purged")
    assert {letter.entry["name"] for letter in await scene.letters()} == {"a", "b"}


@pytest.mark.parametrize("choice", [("--all",), ("-n", "default"), ("--reason", "Network")])
@pytest.mark.parametrize(("verb", "done"), [("replay", "replayed"), ("purge", "purged")])
async def test_letters_that_were_not_named_one_by_one_are_asked_about_first(
    scene, choice, verb, done
):
    await scene.give_up("a", "b")
    said = await scene.command(verb, *choice, code=2)
    assert f"2 dead letters would be {done}: write --yes" in said.stderr
    assert len(await scene.letters()) == 2


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("replay",), "ID: write IDs as list shows them"),
        (("purge", "1.0.1-0", "--all"), "one of these"),
        (("purge", "--all", "-n", "x"), "one of these"),
        (("replay", "nonsense"), "write an ID as list shows it"),
        (("purge", "--older-than", "soon"), '--older-than: "soon" is not a duration'),
    ],
    ids=["nothing chosen", "an id and all", "a filter and all", "no id", "no duration"],
)
async def test_a_choice_that_is_none_is_refused(scene, arguments, told):
    done = await scene.command(*arguments, code=2)
    assert told in done.stderr


@pytest.mark.parametrize("verb", ["replay", "purge"])
async def test_who_may_only_look_changes_nothing(scene, verb):
    await scene.give_up("a")
    done = await scene.command(verb, "--all", "--yes", role="viewer", code=2)
    assert "permission" in done.stderr or "can't run this command" in done.stderr
    assert len(await scene.letters()) == 1
