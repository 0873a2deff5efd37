"""H fields and jitter: stable, spread evenly, never early, never at the next slot."""

import datetime as dt
import hashlib
import itertools
import uuid
from collections import Counter

import pytest

from duepoint.expressions import compile_expression, fields
from duepoint.schedules import slots
from tests.unit.expressions import moments

START = "2026-01-01T00:00:00Z"


def first_slot(text, identity):
    found = moments.next_times(compile_expression(text, identity=identity), START, 1)
    return found[0]


TEAMS = ("payments", "search", "mail", "web", "data", "infra", "ml", "auth", "edge", "core")
PATTERNS = {
    "numbered-names": [f"prod/report-{number}" for number in range(1000)],
    "padded-numbers": [f"default/job-{number:04}" for number in range(1, 1001)],
    "numbered-namespaces": [f"team-{number}/backup" for number in range(1000)],
    "both-numbered": [f"tenant-{n // 25:02}/sync-{n % 25:02}" for n in range(1000)],
    "number-in-front": [f"prod/{number}-nightly-report" for number in range(1000)],
    "long-common-part": [f"prod/{'very-' * 7}long-name-{number:03x}" for number in range(1000)],
    "environments": [f"{team}-{n}/{job}" for team in TEAMS for n in range(10) for job in TEAMS],
    "uuids": [
        f"prod/{uuid.UUID(int=number * 0x9E3779B97F4A7C15 % 2**128)}" for number in range(1000)
    ],
    "sequential-uuids": [f"prod/{uuid.UUID(int=2**100 + number)}" for number in range(1000)],
    "dates": [f"prod/batch-{dt.date(2024, 1, 1) + dt.timedelta(days=n)}" for n in range(1000)],
    "letters": ["prod/" + "".join(three) for three in itertools.product("abcdefghij", repeat=3)],
}


@pytest.mark.parametrize("names", [pytest.param(names, id=key) for key, names in PATTERNS.items()])
@pytest.mark.parametrize(
    ("field", "low", "high"),
    [
        ("second", 0, 59),
        ("hour", 0, 23),
        ("day-of-month", 1, 28),
        ("month", 1, 12),
        ("day-of-week", 0, 6),
    ],
)
def test_a_thousand_similar_names_spread_over_every_field(names, field, low, high):
    values = Counter(fields.hashed_value(name, field, low, high) for name in names)
    assert set(values) == set(range(low, high + 1))
    mean = 1000 / (high - low + 1)
    assert max(values.values()) <= mean + 5 * mean**0.5
    assert min(values.values()) >= mean - 4.2 * mean**0.5


def hashed(identity, field):
    return int.from_bytes(hashlib.sha256(f"{identity}\n{field}".encode()).digest()[:8], "big")


def test_the_formula_is_the_documented_one():
    identity = "reports/nightly"
    minute, hour = hashed(identity, "minute") % 60, hashed(identity, "hour") % 24
    assert f"T{hour:02}:{minute:02}:00Z" in first_slot("H H * * *", identity)
    ranged = 30 + hashed(identity, "minute") % 15
    assert f":{ranged}:00Z" in first_slot("H(30-44) * * * *", identity)
    day = 1 + hashed(identity, "day-of-month") % 28
    month = 1 + hashed(identity, "month") % 12
    assert f"-{month:02}-{day:02}T" in first_slot("0 12 H H *", identity)
    weekday = hashed(identity, "day-of-week") % 7
    assert first_slot("0 12 * * H", identity) == first_slot(f"0 12 * * {weekday}", identity)
    second = hashed(identity, "second") % 60
    assert f":{second:02}Z" in first_slot("H * * * * *", identity)


@pytest.mark.parametrize(
    ("text", "gaps"),
    [
        pytest.param("H/15 * * * *", {15}, id="every-quarter"),
        pytest.param("H(0-29)/10 * * * *", {10, 40}, id="thrice-in-the-first-half"),
        pytest.param("h/20,h/20 * * * *", {20}, id="small-letter"),
    ],
)
@pytest.mark.parametrize("identity", ["a/b", "a/c", "x/y"])
def test_a_hashed_step_keeps_its_distance(text, gaps, identity):
    expression = compile_expression(text, identity=identity)
    found = [moments.us(slot) for slot in moments.next_times(expression, START, 20)]
    assert {(b - a) // 60_000_000 for a, b in itertools.pairwise(found)} == gaps


@pytest.mark.parametrize(
    ("jitter_ms", "distance_ms", "below"),
    [
        pytest.param(30_000, 1_000, 1_000, id="never-reaches-the-next-slot"),
        pytest.param(500, 60_000, 500, id="narrower-than-the-distance"),
        pytest.param(0, 60_000, 1, id="none"),
        pytest.param(30_000, 0, 1, id="no-room"),
        pytest.param(30_000, None, 30_000, id="no-next-slot"),
    ],
)
def test_jitter_stays_below_the_smaller_of_width_and_distance(jitter_ms, distance_ms, below):
    for second in range(200):
        jitter = slots.jitter_ms("a/b", second * 10**6, jitter_ms, distance_ms)
        assert 0 <= jitter < below
