"""Where commands go in a cluster whose nodes answer what the test says."""

from __future__ import annotations

import pytest
import redis.exceptions

from duepoint.delayqueue.wire import connecting
from duepoint.delayqueue.wire import servers as clusters

ONE, TWO, THREE, NEW = ("one", 1), ("two", 2), ("three", 3), ("new", 9)
CLAIM = ("EVALSHA", "claim", 1, "{a}meta")
SETTLE = ("EVALSHA", "settle", 1, "{a}meta")
OTHER = ("HMGET", "{b}defs", "x")


def moved(host):
    return redis.exceptions.MovedError(f"{clusters.slot_of('{a}')} {host[0]}:{host[1]}")


def slots_of(owners):
    """What CLUSTER SLOTS answers: these have one slot each; one and three have the others."""
    found = [[0, clusters.SLOTS - 1, [b"one", 1, b"id"]], [0, 9, [b"three", 3, b"id"]]]
    for key, (name, port) in owners.items():
        found.append([clusters.slot_of(key), clusters.slot_of(key), [name.encode(), port, b"id"]])
    return found


class Node:
    """Answers from a script: one list of replies for each exchange."""

    def __init__(self, host, log, turns, slots):
        self.host = host
        self.replicas = 0
        self._log = log
        self._turns = turns
        self._slots = slots

    async def exchange(self, commands, **how):
        if commands[0] == ("CLUSTER", "SLOTS"):
            return [self._slots]
        self._log.append((self.host, [command[0] for command in commands]))
        return self._turns.pop(0)

    async def close(self):
        pass


async def a_cluster(after=TWO, **turns):
    """Slot a belongs to one, and is elsewhere by now; slot b to two; and what was sent where."""
    made = clusters.Cluster(connecting.Server(url="redis+cluster://one:1"), connections=1)
    await made._take(slots_of({"{a}": ONE, "{b}": TWO}), ONE)
    made._is_stale = False
    log = []
    slots = slots_of({"{a}": after, "{b}": TWO})
    for host in (ONE, TWO, THREE, NEW):
        made._nodes[host] = Node(host, log, turns.get(host[0], []), slots)
    return made, log


async def test_a_script_that_ran_never_runs_again():
    made, log = await a_cluster(one=[[moved(TWO), "claimed"]], two=[["settled"]])
    assert await made.exchange([SETTLE, CLAIM]) == ["settled", "claimed"]
    assert log[-1] == (TWO, ["EVALSHA"])


async def test_a_node_that_does_not_answer_is_its_own_commands_trouble_alone():
    trouble = redis.exceptions.ConnectionError("gone")
    made, _ = await a_cluster(one=[[trouble]], two=[["b"]])
    assert await made.exchange([CLAIM, OTHER]) == [trouble, "b"]
    assert made._is_stale


async def test_a_slot_without_a_node_is_a_wait():
    made, _ = await a_cluster(two=[["b"]])
    await made._take(slots_of({"{b}": TWO})[-1:], ONE)
    down, other = await made.exchange([CLAIM, OTHER])
    assert isinstance(down, redis.exceptions.ClusterDownError)
    assert other == "b"


@pytest.mark.parametrize(("after", "upheavals"), [(TWO, 0), (NEW, 1)], ids=["moved", "failed over"])
async def test_a_slot_that_moved_is_no_upheaval_and_one_that_failed_over_is(after, upheavals):
    made, _ = await a_cluster()
    told = []
    made.changes.on_upheaval.append(lambda: told.append("told"))
    await made._take(slots_of({"{a}": after, "{b}": TWO}), ONE)
    assert (made.changes.upheavals, len(told)) == (upheavals, upheavals)


async def test_what_arms_is_not_sent_to_a_replica_that_took_over_meanwhile():
    made, log = await a_cluster(after=NEW, one=[[moved(NEW)]])
    (answer,) = await made.exchange([("EVALSHA", "upsert", 1, "{a}meta")], confirmed=True)
    assert isinstance(answer, redis.exceptions.TryAgainError)
    assert log == [(ONE, ["EVALSHA"])]
