"""Each kind of event, injected where it hurts most."""

from __future__ import annotations

import collections
import dataclasses
import itertools

import pytest

from tests.simulation import faults, receiver, scopes
from tests.simulation.faults import Kind
from tests.simulation.plans import Planned, Story

#: A wrong clock stays wrong for 30 s, so the slot is still to come.
_BEFORE_SLOT = (0.05, scopes.SLOT_SECONDS - 0.5)


def a_story(target="webhook", *, seconds=100.0, **timing):
    """Return a story of one Schedule that fires every few seconds."""
    planned = Planned(name="one", target=target, timing={"schedule": "@every 3s", **timing})
    return Story(schedules=[planned], seconds=seconds)


def messages_of(record, beginning, first=_BEFORE_SLOT[0], last=_BEFORE_SLOT[1], text=""):
    """Return the first message of each process with this prefix in a stretch of time."""
    found = {}
    for number in scopes.points(record, first, last):
        message = record.messages[number]
        if message.process.name.startswith(beginning) and text in message.text:
            found.setdefault(message.process.name, number)
    assert found
    return list(found.values())


def usual(kind, numbers, name=""):
    return [faults.usual(kind, number, name=name) for number in numbers]


@pytest.mark.parametrize("kind", [Kind.CLOCK_AHEAD, Kind.CLOCK_BEHIND])
def test_workers_with_wrong_clocks_fire_nothing_early(quiet, wrong_of, kind):
    events = usual(kind, messages_of(quiet("webhook"), "worker"))
    assert wrong_of(scopes.one_slot("webhook"), [events]) == {}


@pytest.mark.parametrize("kind", [Kind.SERVER_AHEAD, Kind.SERVER_BEHIND])
def test_a_server_with_a_wrong_clock_makes_nothing_early(quiet, wrong_of, kind):
    events = usual(kind, messages_of(quiet("webhook"), "worker")[:1])
    assert wrong_of(scopes.one_slot("webhook"), [events]) == {}


@pytest.mark.parametrize("kind", [Kind.CLOCK_AHEAD, Kind.CLOCK_BEHIND])
def test_an_edit_under_operators_with_wrong_clocks_begins_now(wrong_of, played, kind):
    story = a_story()
    record = played(story)
    wrong = usual(kind, messages_of(record, "operator", 20.0, 30.0))
    edit = usual(Kind.RETIME, messages_of(record, "worker", 34.0, 36.0)[:1])
    assert wrong_of(story, [[*wrong, *edit]]) == {}


def test_a_late_request_makes_no_second_job_after_history_removed_the_first(quiet, wrong_of):
    (number,) = messages_of(quiet("history"), "worker", 7.9, 8.3, "POST")
    events = [faults.usual(Kind.LATE_REQUEST, number)]
    assert wrong_of(scopes.STORIES["history"](), [events]) == {}


def test_slots_run_on_time_while_the_queue_is_partitioned(wrong_of, played):
    story = a_story()
    numbers = messages_of(played(story), "worker", 20.0, 30.0)
    plans = [usual(Kind.PARTITION, numbers[:1])]
    plans += [[*plans[0], faults.usual(Kind.KILL_AFTER, numbers[0] + 60)]]
    assert wrong_of(story, plans) == {}


@pytest.mark.parametrize("kind", [Kind.RESCHEDULE, Kind.POLICY, Kind.RECREATE, Kind.RETIME])
def test_an_edit_holds_from_the_moment_that_it_is_seen(wrong_of, played, kind):
    story = a_story()
    numbers = scopes.points(played(story), 20.0, 23.5)[::6]
    assert wrong_of(story, [[faults.usual(kind, number)] for number in numbers]) == {}


@pytest.mark.parametrize("target", ["job", "webhook", "stream"])
@pytest.mark.parametrize("kind", [Kind.RUN, Kind.BACKFILL])
def test_what_is_run_by_hand_runs_once(wrong_of, played, target, kind):
    story = a_story(target, seconds=115.0)
    record = played(story)
    at = messages_of(record, "worker", 20.0, 30.0)[0]
    run = faults.usual(kind, at)
    others = (Kind.TAKEOVER, Kind.KILL_AFTER, Kind.LOSE_REPLY, Kind.FALL_BACK)
    plans = [[run], *([run, faults.usual(other, at + 9)] for other in others)]
    assert wrong_of(story, plans) == {}


@pytest.mark.parametrize("kind", [Kind.LOSE_REPLY, Kind.LATE_REPLY])
def test_a_run_by_hand_that_got_no_answer_and_whose_end_comes_late_runs_once(
    wrong_of, played, kind
):
    """The operator knows neither that the run is in the queue nor that it has ended."""
    story = a_story("stream", seconds=60.0)
    at = messages_of(played(story), "worker", 20.0, 30.0)[0]
    run = faults.usual(Kind.RUN, at)
    record = played(scopes.with_events(story, run))
    (enqueued,) = messages_of(record, "operator", 20.0, 24.0, "enqueue")
    unanswered = faults.usual(Kind.RESET_REPLY, enqueued)
    record = played(scopes.with_events(story, run, unanswered))
    reads = [
        number
        for number in scopes.points(record, 20.0, 20.5)
        if number > enqueued and "XRANGE" in record.messages[number].text
    ]
    plans = [[run, unanswered, faults.usual(kind, number)] for number in reads]
    assert plans
    assert wrong_of(story, plans) == {}


def test_an_answer_that_comes_late_settles_nothing_twice(quiet, wrong_of):
    numbers = scopes.of_firing(quiet("stream"))
    plans = [[faults.usual(Kind.LATE_REPLY, number, 9.0)] for number in numbers]
    assert wrong_of(scopes.one_slot("stream"), plans) == {}


def test_a_receiver_that_was_away_gets_what_was_due(quiet, wrong_of):
    at = messages_of(quiet("webhook"), "worker")[0]
    assert wrong_of(scopes.one_slot("webhook"), [[faults.usual(Kind.RECEIVER_OUTAGE, at)]]) == {}


def test_what_a_receiver_refuses_is_tried_as_often_as_its_spec_says(played):
    webhook = {"url": receiver.URL, "retry": {"maxAttempts": 3}}
    story = dataclasses.replace(
        a_story(schedule="*/20 * * * * *", webhook=webhook), answers=dict.fromkeys(range(100), 503)
    )
    attempts = collections.defaultdict(list)
    for seen in played(story).seen:
        attempts[seen.slot].append(seen.attempt)
    assert max(map(len, attempts.values())) == 3
    assert all(made == [1, 2, 3][: len(made)] for made in attempts.values())


def test_jobs_of_which_redis_knows_no_more_keep_others_from_starting(played):
    """Each Job outlasts the time in which the operator restores what Redis forgot."""
    story = dataclasses.replace(a_story("job", concurrencyPolicy="Forbid"), job_seconds=40.0)
    for number in messages_of(played(story), "worker", 21.0, 29.0):
        record = played(scopes.with_events(story, faults.usual(Kind.FLUSH, number)))
        made = sorted(record.made, key=lambda job: job.at_us)
        assert len(made) > 1
        for job, following in itertools.pairwise(made):
            assert job.ended_us is not None
            assert job.ended_us <= following.at_us


@pytest.mark.parametrize("target", ["job", "webhook", "stream"])
def test_another_key_loses_nothing(wrong_of, played, target):
    story = a_story(target, seconds=115.0)
    at = messages_of(played(story), "worker", 20.0, 30.0)[0]
    assert wrong_of(story, [[faults.usual(Kind.NEW_KEY, at)]]) == {}


@pytest.mark.parametrize(
    "kind",
    [Kind.EDIT, Kind.RESCHEDULE, Kind.SUSPEND, Kind.DELETE, Kind.POLICY],
)
@pytest.mark.parametrize("name", ["set", "set/one"])
def test_a_change_of_a_set_or_a_member_holds_when_it_is_answered(wrong_of, played, name, kind):
    story = members_story()
    at = messages_of(played(story), "worker", 20.0, 30.0)[0]
    change = faults.usual(kind, at, name=name)
    resume = faults.usual(Kind.RESUME, at + 120, name=name)
    assert wrong_of(story, [[change], [change, resume]]) == {}


def test_workers_leave_the_members_of_a_suspended_set_alone(played):
    """Workers do not claim again and again members that they must not fire."""
    story = dataclasses.replace(members_story(), seconds=34.0)
    quiet = played(story)
    at = messages_of(quiet, "worker", 20.0, 30.0)[0]
    suspended = played(scopes.with_events(story, faults.usual(Kind.SUSPEND, at, name="set")))
    claims = [
        [n for n in scopes.points(record, 26.0, 33.0) if "claim" in record.messages[n].text]
        for record in (quiet, suspended)
    ]
    assert len(claims[0]) > len(claims[1])


@pytest.mark.parametrize("kind", [Kind.KILL_BEFORE, Kind.KILL_AFTER, Kind.LOSE_REPLY])
def test_a_change_of_a_member_that_gets_no_answer_is_made_once(wrong_of, played, kind):
    """The HTTP API dies, or its answer is lost, and the client asks another process."""
    story = dataclasses.replace(members_story(), seconds=75.0)
    record = played(story)
    numbers = scopes.points(record, 6.0, 6.1)
    at = [n for n in numbers if record.messages[n].process.name in ("api0", "api1", "client")][::2]
    assert wrong_of(story, [[faults.usual(kind, number)] for number in at]) == {}


def test_what_was_deleted_while_no_operator_led_fires_no_more(wrong_of, played):
    story = a_story()
    record = played(story)
    kills = usual(Kind.KILL_AFTER, messages_of(record, "operator", 20.0, 30.0))
    deletion = usual(Kind.DELETE, messages_of(record, "worker", 31.0, 36.0)[:1])
    assert wrong_of(story, [[*kills, *deletion]]) == {}


def test_a_member_that_fired_once_is_not_made_again_by_a_repeated_request(wrong_of, played):
    """The answer is lost, the member fires and leaves, and then the client asks once more."""
    timing = {"schedule": f"@at {scopes.clock_text(10)}", "startingDeadlineSeconds": 60}
    planned = Planned(name="set/one", target="webhook", timing=timing, apply_seconds=6.0)
    story = Story(schedules=[planned], seconds=80.0)
    at = messages_of(played(story), "client", 6.0, 6.1)[-1]
    assert wrong_of(story, [[faults.usual(Kind.LOSE_REPLY, at)]]) == {}


def test_a_member_is_not_made_again_by_a_request_that_is_repeated_after_long(played, wrong_of):
    """While its client is paused, other members end, and Redis drops the record of its own end."""
    planned = [
        Planned(
            name=f"set/{name}",
            target="stream",
            timing={
                "schedule": f"@at {scopes.clock_text(seconds)}",
                "startingDeadlineSeconds": 3_600,
            },
            apply_seconds=applied,
        )
        for name, applied, seconds in (
            ("zero", 6.0, 10.0), ("one", 50.0, 60.0), ("two", 6.0, 75.0), ("three", 6.0, 137.0),
        )
    ]  # fmt: skip
    story = Story(schedules=planned, seconds=220.0)
    at = messages_of(played(story), "client", 50.0, 50.1)[-1]
    events = [faults.usual(Kind.LOSE_REPLY, at), faults.usual(Kind.PAUSE_AFTER, at, 95.0)]
    assert wrong_of(story, [events]) == {}


def test_a_member_that_redis_forgot_is_another_delivery_of_the_same_event(played, wrong_of):
    """The client repeats its request after the loss, and the new member fires again."""
    timing = {"schedule": f"@at {scopes.clock_text(10)}", "startingDeadlineSeconds": 60}
    planned = Planned(name="set/one", target="webhook", timing=timing, apply_seconds=6.0)
    story = Story(schedules=[planned], seconds=80.0)
    quiet = played(story)
    lost = faults.usual(Kind.LOSE_REPLY, messages_of(quiet, "client", 6.0, 6.1)[-1])
    flush = faults.usual(Kind.FLUSH, messages_of(quiet, "", 10.5, 14.0)[0])
    seen = played(scopes.with_events(story, lost, flush)).seen
    assert (len({each.id for each in seen}), len({each.event for each in seen})) == (2, 1)
    assert wrong_of(story, [[lost, flush]]) == {}


def members_story():
    planned = [
        Planned(
            name=f"set/{name}",
            target="webhook",
            timing={"schedule": schedule},
            apply_seconds=6.0,
        )
        for name, schedule in (
            ("one", "*/3 * * * * *"),
            ("two", f"@at {scopes.clock_text(22)}"),
            ("three", f"@at {scopes.clock_text(50)}"),
        )
    ]
    return Story(schedules=planned, seconds=120.0)
