"""Where commands go in a cluster whose nodes answer what the test says."""

from __future__ import annotations

import pytest
import redis.exceptions

from duepoint.delayqueue.wire import cluster as clusters
from duepoint.delayqueue.wire import connecting

ONE, TWO, THREE = ("one", 1), ("two", 2), ("three", 3)
CLAIM = ("EVALSHA", "claim", 1, "{a}meta")
SETTLE = ("EVALSHA", "settle", 1, "{a}meta")
READ = ("HMGET", "{a}defs", "x")
OTHER = ("HMGET", "{b}defs", "x")


def moved(host):
    return redis.exceptions.MovedError(f"{clusters.slot_of('{a}')} {host[0]}:{host[1]}")


def ask(host):
    return redis.exceptions.AskError(f"{clusters.slot_of('{a}')} {host[0]}:{host[1]}")


class Node:
    """Answers from a script: one list of replies for each exchange."""

    def __init__(self, host, log, turns):
        self.host = host
        self.replicas = 0
        self._log = log
        self._turns = turns

    async def exchange(self, commands, *, confirmed=False):
        if commands[0] == ("CLUSTER", "SLOTS"):
            return [TimeoutError("not now")]
        self._log.append((self.host, [command[0] for command in commands]))
        return self._turns.pop(0)


def a_cluster(**turns):
    """Slot a belongs to one, slot b to two; and what was sent where."""
    made = clusters.Cluster(connecting.Server(url="redis+cluster://one:1"), connections=1)
    owners = [ONE] * clusters.SLOTS
    owners[clusters.slot_of("{b}")] = TWO
    owners[clusters.slot_of("{c}")] = THREE
    made._map = clusters.Map(owners, {})
    made._is_stale = False
    log = []
    for host in (ONE, TWO, THREE):
        made._nodes[host] = Node(host, log, turns.get(host[0], []))
    return made, log


async def test_each_node_gets_its_commands_in_one_pipeline_and_replies_stand_in_order():
    made, log = a_cluster(one=[["a1", "a2"]], two=[["b1"]])
    assert await made.exchange([CLAIM, OTHER, READ]) == ["a1", "b1", "a2"]
    assert sorted(log) == [(ONE, ["EVALSHA", "HMGET"]), (TWO, ["HMGET"])]


async def test_a_read_behind_a_script_that_moved_is_asked_again_behind_it():
    # The slot arrived between the two: the old answer was read before the claim.
    made, log = a_cluster(one=[[moved(TWO), "read too early"]], two=[["claimed", "read after"]])
    assert await made.exchange([CLAIM, READ]) == ["claimed", "read after"]
    assert log[-1] == (TWO, ["EVALSHA", "HMGET"])


async def test_a_read_behind_a_script_that_was_sent_elsewhere_once_waits_for_its_answer():
    made, log = a_cluster(
        one=[[ask(TWO), "read too early"], ["read after"]], two=[["asking", "claimed"]]
    )
    assert await made.exchange([CLAIM, READ]) == ["claimed", "read after"]
    assert log == [
        (ONE, ["EVALSHA", "HMGET"]),
        (TWO, ["ASKING", "EVALSHA"]),
        (ONE, ["HMGET"]),
    ]


@pytest.mark.parametrize("nameless", ["", "?"], ids=["empty", "question mark"])
async def test_a_node_without_a_name_is_at_the_host_that_was_asked(nameless):
    there = (nameless, 1)
    made, log = a_cluster(one=[[ask(there)], ["asking", moved(there)], ["claimed"]])
    assert await made.exchange([CLAIM]) == ["claimed"]
    assert {host for host, _ in log} == {ONE}


async def test_a_script_that_ran_never_runs_again():
    made, log = a_cluster(one=[[moved(TWO), "claimed"]], two=[["settled"]])
    assert await made.exchange([SETTLE, CLAIM]) == ["settled", "claimed"]
    assert log[-1] == (TWO, ["EVALSHA"])


async def test_another_slots_reads_are_left_alone():
    made, log = a_cluster(one=[[moved(TWO)]], two=[["b"], ["claimed"]])
    assert await made.exchange([CLAIM, OTHER]) == ["claimed", "b"]
    assert [entry for entry in log if entry[0] == TWO] == [(TWO, ["HMGET"]), (TWO, ["EVALSHA"])]


async def test_a_command_that_is_sent_in_circles_ends_as_a_wait():
    made, _ = a_cluster(one=[[moved(TWO), "early"]] * 9, two=[[moved(ONE), "early"]] * 9)
    claimed, read = await made.exchange([CLAIM, READ])
    assert isinstance(claimed, redis.exceptions.RedisError)
    assert isinstance(read, redis.exceptions.RedisError)


async def test_a_node_that_does_not_answer_is_its_own_commands_trouble_alone():
    trouble = redis.exceptions.ConnectionError("gone")
    made, _ = a_cluster(one=[[trouble]], two=[["b"]])
    assert await made.exchange([CLAIM, OTHER]) == [trouble, "b"]
    assert made._is_stale


async def test_a_slot_without_a_node_is_a_wait():
    made, _ = a_cluster(two=[["b"]])
    made._map = clusters.Map([None if owner == ONE else owner for owner in made._map.owners], {})
    down, other = await made.exchange([CLAIM, OTHER])
    assert isinstance(down, redis.exceptions.ClusterDownError)
    assert other == "b"


@pytest.mark.parametrize(
    ("after", "upheavals"), [(TWO, 0), (("replica", 9), 1)], ids=["moved", "failed over"]
)
async def test_a_slot_that_moved_is_no_upheaval_and_one_that_failed_over_is(after, upheavals):
    made, _ = a_cluster()
    told = []
    made.changes.on_upheaval.append(lambda: told.append("told"))
    owners = list(made._map.owners)
    owners[clusters.slot_of("{a}")] = after
    made._take(clusters.Map(owners, {}))
    assert (made.changes.upheavals, len(told)) == (upheavals, upheavals)


async def test_what_arms_is_not_sent_to_a_replica_that_took_over_meanwhile():
    replica = ("replica", 9)
    made, log = a_cluster(one=[[moved(replica)]])
    made._nodes[replica] = Node(replica, log, [])
    (answer,) = await made.exchange([("EVALSHA", "upsert", 1, "{a}meta")], confirmed=True)
    assert isinstance(answer, redis.exceptions.TryAgainError)
    assert log == [(ONE, ["EVALSHA"])]


def test_a_map_is_read_from_what_a_node_says():
    reply = [
        [0, 5460, [b"10.0.0.1", 7000, b"id"], [b"10.0.0.4", 7003, b"id"]],
        [5461, 16383, [b"", 7001, b"id"]],
    ]
    found = clusters.read_map(reply, ("asked", 1))
    assert found.owners[0] == ("10.0.0.1", 7000)
    assert found.owners[16383] == ("asked", 7001)
    assert found.replicas[("10.0.0.1", 7000)] == {("10.0.0.4", 7003)}
    assert found.primaries == (("10.0.0.1", 7000), ("asked", 7001))
