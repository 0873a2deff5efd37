"""The judge of `make chaos KIND=real` finds each kind of fault."""

from __future__ import annotations

from tests.chaos.realnode import judge as judging
from tests.chaos.realnode.judge import Judge, Period

SECOND_US = 1_000_000
#: A slot that is whole in seconds and milliseconds.
BEGAN = 1_800_000_000
EMPTIED = Period(
    "Valkey's Pod deleted",
    (BEGAN + 100) * SECOND_US,
    (BEGAN + 110) * SECOND_US,
    (BEGAN + 170) * SECOND_US,
)


def hook(slot, late_us=20_000, path="/hook", name="hook-1"):
    return f"{slot * SECOND_US + late_us} {path} {name} some-uid-{slot} -"


def verdict(lines, missed=None, path="/hook", end=BEGAN + 300, **options):
    judge = Judge([EMPTIED], end * SECOND_US)
    found = judging.read(lines)
    judge.twice_and_early("webhooks", found[path], may_repeat=True)
    judge.recurring("webhooks", found[path], 1_000, missed or {}, **options)
    return judge


def faults(judge):
    return {
        what: count
        for counts in judge.counts.values()
        for what, count in counts.items()
        if count and what in judging.FAULTS
    }


def everything():
    return [hook(BEGAN + number) for number in range(300)]


def test_nothing_is_wrong_where_each_slot_came_once():
    assert not faults(verdict(everything()))


def test_a_slot_in_the_middle_or_at_the_end_that_did_not_come_is_lost():
    for gone in (BEGAN + 30, BEGAN + 299):
        lines = [line for line in everything() if f"-{gone} " not in line]

        judge = verdict(lines)

        assert judge.counts["webhooks"]["lost"] == 1
        assert faults(judge)
        assert not faults(verdict(lines, {"hook-1": 1}))
        assert faults(verdict(lines, {"hook-2": 1}))


def test_a_slot_that_came_again_is_doubled_except_after_what_may_repeat_it():
    assert verdict([*everything(), hook(BEGAN + 50, 40_000)]).counts["webhooks"]["doubled"] == 1
    assert not faults(verdict([*everything(), hook(BEGAN + 102, 40_000)]))


def test_a_slot_that_came_before_its_time_is_early():
    lines = [*everything()[:-1], hook(BEGAN + 299, -1)]

    assert verdict(lines).counts["webhooks"]["early"] == 1


def test_only_what_redis_alone_has_is_lost_with_it():
    lines = [line for line in everything() if f"-{BEGAN + 103} " not in line]

    assert faults(verdict(lines))
    assert not faults(verdict(lines, is_in_redis=True))
    assert verdict(lines, is_in_redis=True).counts["webhooks"]["lost with Redis"] == 1


def test_a_member_that_does_not_come_back_is_lost():
    lines = everything()[:103]

    assert verdict(lines, is_in_redis=True).counts["webhooks"]["lost"] == 197


def test_an_acknowledged_one_off_that_never_came_is_lost():
    judge = Judge([EMPTIED], (BEGAN + 300) * SECOND_US)
    found = judging.read([hook(BEGAN + 12, path="/order", name="order-1")])
    at = str((BEGAN + 10) * SECOND_US)

    judge.one_offs("one-offs", found["/order"], [[at, "order-1", "stored"]])
    assert not faults(judge)
    judge.one_offs("one-offs", found["/order"], [[at, "order-2", "stored"]])
    assert faults(judge)


def test_two_jobs_of_a_slot_are_doubled_and_one_that_only_its_container_shows_is_there():
    found = judging.read([f"{(BEGAN + 8) * SECOND_US} /job job-1-{BEGAN + 6}-abcde"])
    jobs = judging.jobs(
        {("job-1", BEGAN): ["one", "two"], ("job-1", BEGAN + 12): ["three"]}, found["/job"]
    )
    judge = Judge([], (BEGAN + 14) * SECOND_US)

    judge.twice_and_early("Jobs", jobs, may_repeat=False)
    judge.recurring("Jobs", jobs, 6_000, {})

    assert judge.counts["Jobs"] == {
        "slots": 3, "repeated": 0, "doubled": 1, "early": 0,
        "lost": 0, "missed by policy": 0, "lost with Redis": 0,
    }  # fmt: skip
