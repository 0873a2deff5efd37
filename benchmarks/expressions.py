"""How fast the engine answers: next against croniter, compiling, counting, catching up.

No cluster is needed. Everything runs in one process; each value is the median of several rounds,
its spread the least and the most of them. Rounds of both sides of a ratio alternate, so that a slow
moment of the machine meets both. Times are processor times of this process.
"""

from __future__ import annotations

import datetime as dt
import functools
import gc
import itertools
import statistics
import time
import zoneinfo
from collections.abc import Callable, Iterator

import croniter

from benchmarks import report
from benchmarks.report import Figure
from duepoint import errors
from duepoint.expressions import compile_expression, merged
from duepoint.schedules import policies, slots
from duepoint.schedules import rule as rules
from tests.support import coldengine

NAME = "expressions"
START = 1_790_000_000  # 2026-09-21
DAY_US = 86_400_000_000
YEAR_US = 365 * DAY_US
ZONES = ("Etc/UTC", "America/New_York")
USUAL = (
    *("* * * * *", "*/5 * * * *", "30 2 * * *", "0 9 * * 1-5", "15,45 9-17 * * MON-FRI"),
    *("0 0 1 * *", "0 0 * * 0", "0 0 1 1 *", "*/10 * * * * *"),
)
NEVER = (
    *("0 0 31 2 *", "0 0 30 2 *", "0 0 31 4,6,9,11 *", "*/5 * 31 2 *", "0 0 ? 2 1#5"),
    *("0 0 0 29 2 * 2025-2027", "0 0 0 29 2 * 2099", "0 0 0 ? 2 1#5 2025,2026,2027"),
    *("* * * 29 2 * 1971,1973,2075", "0 0 0 31 6 ? 1970"),
)
SCHEDULES = 10_000
ROUNDS = 9


async def run() -> list[Figure]:
    gc.collect()
    gc.freeze()
    return [
        figure
        for part in (_steps, _compiling, _impossible, _counting, _catching_up)
        for figure in part()
    ]


def _cpu_seconds(act: Callable[[], object]) -> float:
    began = time.process_time()
    act()
    return time.process_time() - began


def _figure(
    name: str, samples: list[float], unit: str, *, bar: str = "", compared_with: str = ""
) -> Figure:
    return Figure(
        benchmark=NAME,
        figure=name,
        value=round(statistics.median(samples), 3),
        unit=unit,
        bar=bar,
        spread=(round(min(samples), 3), round(max(samples), 3)),
        runs=len(samples),
        compared_with=compared_with,
    )


# -- next, previous ----------------------------------------------------------------------------


def _steps() -> Iterator[Figure]:
    for zone in ZONES:
        report.say(f"next in {zone}, against croniter")
        for text in USUAL:
            yield from _against_croniter(text, zone)


def _against_croniter(text: str, zone: str) -> Iterator[Figure]:
    form = compile_expression(text, time_zone=zone)
    ours, back, theirs, ratios = [], [], [], []
    local = dt.datetime.fromtimestamp(START, zoneinfo.ZoneInfo(zone))
    other = croniter.croniter(text, local, second_at_beginning=True)
    for _ in range(ROUNDS):
        ours.append(_cpu_seconds(lambda: _walk(form.next_after, 10_000)) * 100)
        back.append(_cpu_seconds(lambda: _walk(form.previous_before, 10_000)) * 100)
        other.set_current(local)
        theirs.append(_cpu_seconds(lambda: _get_next(other, 200)) * 5_000)
        ratios.append(theirs[-1] / ours[-1])
    yield _figure(f"next of {text}, {zone}", ours, "us")
    yield _figure(f"previous of {text}, {zone}", back, "us")
    yield _figure(
        f"next of {text}, {zone}",
        ratios,
        "times croniter's",
        bar=">= 30",
        compared_with=f"croniter, object reused, {statistics.median(theirs):.1f} us",
    )


def _walk(step: Callable[[int], int | None], count: int) -> None:
    at_us: int | None = START * 1_000_000
    for _ in range(count):
        at_us = step(at_us)  # type: ignore[arg-type]
        if at_us is None:  # the end of the calendar: once more from the beginning
            at_us = START * 1_000_000


def _get_next(other: croniter.croniter, count: int) -> None:
    for _ in range(count):
        other.get_next(float)


# -- compiling ---------------------------------------------------------------------------------


def _compiling() -> Iterator[Figure]:
    report.say("compiling")
    for zone in ZONES:
        compile_expression("0 0 * * *", time_zone=zone)
        for text in (*USUAL, "H H * * *", "@every 1h30m", "@at 2026-12-24T18:00:00Z"):
            samples = []
            for _ in range(50):
                coldengine.forget()
                act = functools.partial(compile_expression, text, time_zone=zone, identity="a/b")
                samples.append(_cpu_seconds(act) * 1e6)
            yield _figure(f"parse and compile {text}, {zone}", samples, "us", bar="<= 200")


def _impossible() -> Iterator[Figure]:
    report.say("impossible dates")
    for zone in (*ZONES, "Africa/Casablanca"):
        slowest: list[float] = []
        for text, overlap in itertools.product(NEVER, ("First", "Both")):
            samples = [_refusal_ms(text, zone, overlap) for _ in range(ROUNDS)]
            if not slowest or statistics.median(samples) > statistics.median(slowest):
                slowest, worst = samples, text
        name = f"impossible date, slowest of {2 * len(NEVER)} ({worst}), {zone}"
        yield _figure(name, slowest, "ms", bar="<= 5")


def _refusal_ms(text: str, zone: str, overlap: str) -> float:
    coldengine.forget()
    began = time.process_time()
    try:
        compile_expression(text, time_zone=zone, overlap=overlap, from_us=START * 1_000_000)
    except errors.InvalidExpression:
        return (time.process_time() - began) * 1e3
    raise AssertionError(f"{text} fires")


# -- counting and catching up ------------------------------------------------------------------


def _counting() -> Iterator[Figure]:
    report.say("counting")
    begin_us, zone = START * 1_000_000, "America/New_York"
    cases: tuple[tuple[tuple[str, ...], int, str], ...] = (
        (("@every 1s",), 1, "<= 1"),
        (("* * * * * *",), 1, "<= 1"),
        (("*/5 * * * *",), 1, "<= 1"),
        (("0 0 29 2 *",), 50, ""),
        (("* * * * * *", "@every 1s"), 1, ""),
        (("@every 7s", "@every 11s", "*/5 * * * *"), 1, ""),
    )
    for texts, years, bar in cases:
        forms = [compile_expression(text, time_zone=zone) for text in texts]
        whole = merged(forms)
        act = functools.partial(whole.count_between, begin_us, begin_us + years * YEAR_US)
        samples = [_cpu_seconds(act) * 1e3 for _ in range(ROUNDS)]
        yield _figure(f"slots of {years} years of {' and '.join(texts)}", samples, "ms", bar=bar)


def _catching_up() -> Iterator[Figure]:
    for catch_up in ("Latest", "All"):
        report.say(f"a day's outage of {SCHEDULES} Schedules, catchUpPolicy {catch_up}")
        fleet = list(_fleet(catch_up))
        known, fresh = [], []
        for _ in range(3):
            coldengine.forget()
            fresh.append(_cpu_seconds(functools.partial(_decide, fleet)))
            known.append(_cpu_seconds(functools.partial(_decide, fleet)))
        name = f"{SCHEDULES} Schedules decided after a day, {catch_up}"
        bar = "<= 1" if catch_up == "Latest" else ""
        yield _figure(f"{name}, forms in memory", known, "s", bar=bar)
        yield _figure(f"{name}, by a worker that has just started", fresh, "s", bar=bar)


def _fleet(catch_up: str) -> Iterator[tuple[rules.Rule, str]]:
    """Hourly, daily, frequent, periodic; a third spread by H, a quarter with jitter."""
    texts = ("H * * * *", "H H * * *", "*/5 * * * *", "30 2 * * *", "@every 10m", "0 9,18 * * 1-5")
    for number in range(SCHEDULES):
        timing = rules.Timing(
            schedules=(texts[number % len(texts)],),
            time_zone=("Etc/UTC", "America/New_York", "Europe/Rome")[number % 3],
            jitter_ms=30_000 if number % 4 == 0 else 0,
        )
        yield (
            rules.Rule(timing=timing, policy=rules.Policy(catch_up=catch_up)),
            f"team/job-{number}",
        )


def _decide(fleet: list[tuple[rules.Rule, str]]) -> None:
    begin_us = START * 1_000_000
    for rule, identity in fleet:
        timeline = slots.for_rule(rule, identity=identity, created_us=begin_us - YEAR_US)
        first = timeline.next_after(begin_us)
        if first is None:
            raise AssertionError(identity)
        policies.decide(timeline, rule.policy, chain_due_us=first.due_us, now_us=begin_us + DAY_US)
