"""``duepoint queue`` and ``duepoint dlq``, against an index with one of everything in it."""

from __future__ import annotations

import asyncio
import json

import pytest
from click.testing import CliRunner

from duepoint import cli
from duepoint.delayqueue import keys
from tests.support import fullindex, queueing, redisusers

#: Three Schedules, and the members that have not ended.
ARMED = 3 + len(fullindex.MEMBERS) - 1


class Command:
    """The command as somebody with the worker's environment calls it."""

    def __init__(self, url: str) -> None:
        self._url = url

    def __call__(self, *arguments: str, code: int = 0, **environ: str | None):
        given = {"DUEPOINT_REDIS_URL": self._url, **environ}
        done = CliRunner().invoke(cli.commands, arguments, env=given)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        assert done.exit_code == code, done.stderr
        assert done.stderr.count("\n") <= 1
        return done.stderr or done.stdout

    def rows(self, *arguments: str):
        return [json.loads(line) for line in self(*arguments, "-o", "json").splitlines()]


@pytest.fixture
def duepoint(own_server):
    asyncio.run(fullindex.written(own_server.url))
    return Command(redisusers.url_for(own_server.url, "viewer"))


async def _with_queue(url, do):
    harness = await queueing.redis_harness(url, keys.DEFAULT_PREFIX, fullindex.SHARDS)
    try:
        return await do(harness)
    finally:
        await harness.close()


@pytest.fixture
def change(own_server):
    """Do something to the index that the commands look at."""
    return lambda do: asyncio.run(_with_queue(own_server.url, do))


# -- stats ---------------------------------------------------------------------------------------


def test_stats_counts_everything_once(duepoint, change):
    change(lambda harness: harness.queue.membership.beat("worker-a"))
    (told,) = duepoint.rows("queue", "stats")
    assert told["shards"] == fullindex.SHARDS
    assert told["shardStates"] == {"open": fullindex.SHARDS}
    assert told["layoutState"] == "stable"
    assert told["armed"] == ARMED
    assert (told["claimed"], told["claims"]) == (2, 1)
    assert (told["occurrences"], told["due"]) == (7, 7)  # one member is kept
    assert (told["deadLetters"], told["runsBacklog"]) == (1, 1)
    assert told["workers"] == ["worker-a"]
    assert told["memoryUsedBytes"] > 100_000
    assert told["oldestDue"].startswith("2026-01-01T01:00:00")
    assert told["lagSeconds"] > 86_400


# -- peek ----------------------------------------------------------------------------------------


def test_peek_shows_the_next_points_over_all_lanes_in_order(duepoint, change):
    async def arm(harness):
        for number in range(40):
            await harness.arm(
                name=f"n{number}", namespace=f"team-{number % 5}", due_in=60 * number + 30
            )

    change(arm)
    rows = duepoint.rows("queue", "peek", "--count", "30")
    dues = [row["due"] for row in rows]
    assert dues == sorted(dues)
    assert [row["state"] for row in rows] == ["due"] * 7 + ["waiting"] * 23
    assert [row["schedule"] for row in rows[7:]] == [f"n{number}" for number in range(23)]
    assert 0 < rows[7]["inSeconds"] < 31


def test_peek_of_one_schedule_shows_its_points_alone(duepoint, change):
    change(lambda harness: harness.arm(name="alone", namespace="team-a", due_in=60))
    (row,) = duepoint.rows("queue", "peek", "-n", "team-a", "-s", "alone")
    assert (row["schedule"], row["state"]) == ("alone", "waiting")
    (same,) = duepoint.rows("queue", "peek", "-s", row["uid"])
    assert same["uid"] == row["uid"]
    assert "unheard-of is not among" in duepoint("queue", "peek", "-s", "unheard-of")


# -- dead letters --------------------------------------------------------------------------------


# -- what goes wrong -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("queue", "stats", "--redis-url", "redis://127.0.0.1:1/0"), "--redis-url: could not"),
        (("dlq", "list", "--redis-url", "redis://127.0.0.1:1/0"), "is it reachable from here?"),
        (("queue", "stats", "--redis-url", "http://x"), "--redis-url: is not a Redis URL"),
        (("queue", "stats", "-o", "xml"), "not one of"),
        (("queue", "peek", "--count", "none"), "not a valid integer range"),
        (("dlq", "replay", "7"), "write an ID as list shows it"),
        (("dlq", "replay", "1.1.99999999999999999999999-0"), "write an ID as list shows it"),
    ],
    ids=[
        "server", "server of dlq", "no URL", "format", "count", "id", "large id",
    ],
)  # fmt: skip
def test_a_wrong_wish_is_one_line_and_exit_code_2(duepoint, arguments, message):
    assert message in duepoint(*arguments, code=2)


def test_a_wrong_password_is_told_without_repeating_it(own_server):
    with own_server.client() as client:
        client.config_set("requirepass", "right")
        try:
            url = own_server.url.replace("redis://", "redis://:wrong-one@")
            told = Command(url)("queue", "stats", code=2)
        finally:
            client.config_set("requirepass", "")
    assert "wrong-one" not in told
