"""Random histories of arming, claiming and settling, on each server and on a plain model of it."""

from __future__ import annotations

import asyncio
import copy
import os
import uuid

import msgspec
import pytest
import redis.asyncio
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from duepoint.delayqueue import messages
from duepoint.schedules import definition, points
from tests.conformance.queuemodel import FOR_EVER, NOT_AT_ALL, Model
from tests.support import queueing, redisserver

SHARD = messages.ShardId(0)
NAMES = st.sampled_from(["a", "b", "c"])
PAST, FUTURE = -1_000_000_000, 1_000_000_000
DUES = st.one_of(st.integers(PAST, PAST + 5), st.just(FUTURE))


def _pattern(prefix):
    return prefix.replace("[", "\\[") + "*"


async def dumped(client, prefix):
    """Return everything under a prefix of a server."""
    keys = sorted([key async for key in client.scan_iter(match=_pattern(prefix))])
    return {key: await client.dump(key) for key in keys}


async def restore(client, prefix, state):
    if keys := [key async for key in client.scan_iter(match=_pattern(prefix))]:
        await client.delete(*keys)
    for key, value in state.items():
        await client.restore(key, 0, value)


class Histories(RuleBasedStateMachine):
    """Random histories of three names, with any number of lives and workers."""

    make_harness = None  # set by the test

    def __init__(self):
        super().__init__()
        self.runner = asyncio.Runner()
        self.harness = self.run(self.make_harness())
        self.start_us = self.harness.now_us()
        self.model = Model(now_us=self.start_us)
        self.stored: dict[str, definition.Definition] = {}
        self.claims: list[messages.Claim] = []
        self.completed: set[bytes] = set()
        self.copied: tuple[object, object] | None = None
        self.lives = 0

    def new_uid(self):
        """Return a uid, the same in each run: the id decides the order of points due together."""
        self.lives += 1
        return str(uuid.uuid5(uuid.NAMESPACE_URL, str(self.lives)))

    def run(self, awaitable):
        return self.runner.run(awaitable)

    def teardown(self):
        self.run(self.harness.close())
        self.runner.close()

    @initialize()
    def begin(self):
        self.run(self.harness.claim_all())

    # -- the operator ---------------------------------------------------------------------------

    @rule(name=NAMES, due=DUES)
    def arm_or_edit_the_timing(self, name, due):
        old = self.stored.get(name)
        generation = old.generation + 1 if old else 1
        new = self.harness.definition(
            name=name, uid=old.uid if old else self.new_uid(), generation=generation
        )
        due_us = self.start_us + due
        arming = messages.Arming(definition=new, due_us=due_us)
        assert self.upsert(arming) is messages.Armed.APPLIED
        self.model.arm(_chain(old) if old else None, _chain(new), due_us)
        self.stored[name] = new

    @precondition(lambda self: self.stored)
    @rule(name=NAMES)
    def edit_something_else(self, name):
        old = self.stored.get(name)
        if old is None:
            return
        new = msgspec.structs.replace(old, generation=old.generation + 1)
        arming = messages.Arming(definition=new, due_us=None, keep_chain=True)
        assert self.upsert(arming) is messages.Armed.APPLIED
        self.stored[name] = new

    @precondition(lambda self: self.stored)
    @rule(name=NAMES)
    def suspend(self, name):
        old = self.stored.get(name)
        if old is None:
            return
        generation = old.generation + 1
        new = msgspec.structs.replace(
            old,
            generation=generation,
            timing_generation=generation,
            state=definition.State.SUSPENDED,
        )
        self.upsert(messages.Arming(definition=new, due_us=None))
        self.model.arm(_chain(old), _chain(new), None)
        self.stored[name] = new

    @precondition(lambda self: self.stored)
    @rule(name=NAMES, due=DUES)
    def hear_an_old_event_again(self, name, due):
        old = self.stored.get(name)
        if old is None:
            return
        arming = messages.Arming(definition=old, due_us=self.start_us + due)
        assert self.upsert(arming) is messages.Armed.UNCHANGED

    @precondition(lambda self: self.stored)
    @rule(name=NAMES)
    def delete(self, name):
        old = self.stored.pop(name, None)
        if old is None:
            return
        removed = self.harness.queue.writer.remove(old.id, old.uid, old.namespace, queueing.EPOCH)
        assert self.run(removed) is messages.Armed.APPLIED
        self.model.remove(old.id)

    # -- workers --------------------------------------------------------------------------------

    @rule(
        batch=st.integers(1, 3),
        lease=st.sampled_from([FOR_EVER, NOT_AT_ALL]),
        skip_suspects=st.booleans(),
    )
    def claim(self, batch, lease, skip_suspects):
        members, attempts, first_us = self.model.to_claim(batch, skip_suspects=skip_suspects)
        (answer,) = self.run(
            self.harness.queue.claims.claim(
                [SHARD], worker="w", batch=batch, lease_seconds=lease, skip_suspects=skip_suspects
            )
        )
        got = answer.claim
        assert sorted(p.member for p in got.points) if got else sorted(members) == []
        if got is None:
            return
        assert got.reclaimed == attempts
        assert got.first_us == (got.now_us if first_us is None else first_us)
        self.model.claim(got.id, members, attempts, got.first_us, lasts=lease == FOR_EVER)
        dues = {point.member: point.due_us for point in got.points}
        assert dues == {member: self.model.dues[member] for member in members}
        self.claims.append(got)
        self.let_time_pass()

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def settle(self, data):
        claim = self.pick(data)
        known = self.model.claims.get(claim.id)
        moved, finished, retries = {}, [], {}
        for point in claim.points:
            fate = data.draw(st.sampled_from(["goes on", "ends", "fails", "still runs"]))
            chain = point.kind is points.PointKind.CHAIN
            due = self.start_us + data.draw(DUES)
            if fate == "goes on" and chain:
                moved[point.member] = due
            elif fate in ("ends", "goes on"):
                finished.append(point.member)
            elif fate == "fails":
                retry = queueing.a_retry(point, due_us=due)
                retries[retry.point.member] = point.member, due
                if chain:
                    moved[point.member] = due + 1
        settled = self.run(
            self.harness.queue.settlements.settle(
                claim,
                messages.Settlement(
                    chains=list(moved.items()),
                    finished=tuple(finished),
                    occurrences=tuple(_occurrence(m, *retry) for m, retry in retries.items()),
                    number=known.number + 1 if known else 1,
                ),
            )
        )
        assert settled.lost == (known is None)
        if known is None:
            return
        known.number += 1
        stored = {one.id for one in self.stored.values()}
        edited = {member for member in moved if member[:8] in stored}
        self.model.settle(claim.id, moved=moved, finished=finished, retries=retries, edited=edited)
        assert settled.remaining == len(self.model.held(claim.id))
        for member, (_, due) in retries.items():
            self.model.dues[member] = due

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), slots=st.integers(0, 3), due=st.one_of(st.none(), DUES))
    def split(self, data, slots, due):
        claim = self.pick(data)
        chains = [one for one in claim.points if one.kind is points.PointKind.CHAIN]
        if not chains:
            return
        chain = data.draw(st.sampled_from(chains))
        next_due_us = None if due is None else self.start_us + due
        planned = tuple(
            queueing.a_planned(chain, chain.slot_us - number) for number in range(slots)
        )
        known = self.model.claims.get(claim.id)
        split = messages.Settlement(planned=planned, number=known.number + 1 if known else 1)
        if next_due_us is None:
            split.finished, split.ended = [chain.member], [chain.member]
        else:
            split.chains = [(chain.member, next_due_us)]
        settled = self.run(self.harness.queue.settlements.settle(claim, split))
        assert settled.lost == (known is None)
        if known is None:
            return
        known.number += 1
        if due is None and self.model.points.get(chain.member) == claim.id:
            self.completed.add(chain.member)
        slots_us = [(one.point.member, one.point.due_us) for one in planned]
        self.model.split(claim.id, chain.member, slots_us, next_due_us)
        held = set(self.model.held(claim.id))
        assert settled.not_held == {member for member, _ in slots_us} - held
        self.model.end_if_empty(claim.id)

    @rule()
    def sweep(self):
        """Restore chains that a worker ended without reporting the schedule's end."""
        due_us = self.start_us + FUTURE
        armed = self.run(self.harness.rearm(due_us))
        chains = [
            _chain(one)
            for one in self.stored.values()
            if one.state is definition.State.ARMED and _chain(one) not in self.completed
        ]
        lost = [chain for chain in chains if chain not in self.model.points]
        assert armed == len(lost)
        self.model.sweep(chains, due_us)

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def release(self, data):
        claim = self.pick(data)
        held = self.model.held(claim.id) if claim.id in self.model.claims else []
        some = [member for member in held if data.draw(st.booleans())]
        members = data.draw(st.sampled_from([None, some]))
        given_back = held if members is None else some
        assert self.run(self.harness.queue.claims.release(claim, members)) == len(given_back)
        holders = self.run(self.snapshot())
        given = next((holders[member] for member in given_back), b"")
        self.model.release(claim.id, given_back, given)
        self.let_time_pass()

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def extend(self, data):
        claim = self.pick(data)
        known = self.model.claims.get(claim.id)
        longer = self.run(self.harness.queue.claims.extend(claim, FOR_EVER))
        assert (longer is None) == (known is None)
        if known:
            known.lasts = True

    # -- what must always hold ------------------------------------------------------------------

    # -- the server -----------------------------------------------------------------------------

    @rule()
    def a_replica_is_as_it_is_now(self):
        known = copy.deepcopy((self.model, self.stored, self.completed))
        self.copied = self.run(self.copy_all()), known

    @precondition(lambda self: self.copied is not None)
    @rule()
    def the_replica_takes_over(self):
        """Undo all later changes; claims made since then have no owner, whoever settles them."""
        state, known = self.copied
        self.run(self.put_back(state))
        self.model, self.stored, self.completed = copy.deepcopy(known)

    async def copy_all(self):
        raise NotImplementedError

    async def put_back(self, state):
        raise NotImplementedError

    @invariant()
    def the_queue_holds_what_the_model_holds(self):
        if self.model.points != (found := self.run(self.snapshot())):
            assert found == self.model.points

    async def snapshot(self):
        raise NotImplementedError

    # -- steps ----------------------------------------------------------------------------------

    def upsert(self, arming):
        wanted = [(arming, queueing.BLOB)]
        (armed,) = self.run(self.harness.queue.writer.upsert(wanted, queueing.EPOCH))
        return armed

    def pick(self, data):
        index = data.draw(st.integers(0, len(self.claims) - 1))
        return self.claims[index]

    def let_time_pass(self):
        """Let an instant pass, so that a lease of no length has expired."""
        self.run(self.harness.pass_time(0.000_01))


def histories_on(server):
    class ServerHistories(Histories):
        async def make_harness(self):
            self.prefix = f"dp:h{os.getpid()}-{uuid.uuid4().hex[:8]}:"
            return await queueing.redis_harness(server.url, self.prefix, shards=1)

        async def copy_all(self):
            async with redis.asyncio.Redis(port=server.port, protocol=2) as client:
                return await dumped(client, self.prefix)

        async def put_back(self, state):
            async with redis.asyncio.Redis(port=server.port, protocol=2) as client:
                await restore(client, self.prefix, state)
            self.harness.meet_another_server()  # as it does when the server is another one
            self.harness.queue.claims._marks.clear()

        async def snapshot(self):
            names = self.harness.server.shard(SHARD)
            client = self.harness.server.redis
            claims = await client.zrange(names.claims, 0, -1, withscores=True)
            holders = {score: key for key, score in claims if key}
            found = {}
            for lane in await self.harness.queue.definitions.lanes(SHARD):
                for member, score in await client.zrange(names.lane(lane), 0, -1, withscores=True):
                    if member:
                        limit = points.DUE_LIMIT_US
                        found[member] = int(score) if score < limit else holders[score - limit]
            return found

    return ServerHistories


def _chain(stored):
    return stored.id + stored.timing_version


def _occurrence(member, source, due_us):
    point = points.parse_member(member, due_us)
    record = messages.OccurrenceRecord(attempt=1)
    return messages.Occurrence(point=point, record=record, source=source)


def _settings(examples):
    return settings(
        max_examples=int(os.environ.get("DUEPOINT_HISTORIES", str(examples))),
        stateful_step_count=40,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


@pytest.mark.parametrize("kind", redisserver.KINDS)
def test_every_history_on_a_server_agrees_with_the_model(kind, shared_servers):
    run_state_machine_as_test(histories_on(shared_servers(kind)), settings=_settings(12))
