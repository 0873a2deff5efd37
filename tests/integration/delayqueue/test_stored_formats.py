"""What an earlier version left in Redis is read by this one, and written as it was.

Each file of ``tests/golden`` is an index as the version with that record format wrote it. A change
of what is written needs a new format number, a new file and a reader for the old one.
"""

from __future__ import annotations

import json

import msgspec
import pytest

from duepoint.delayqueue import delayqueue, membership, messages
from duepoint.delayqueue.members import values
from duepoint.runs import run
from duepoint.schedules import definition, points
from duepoint.schedules.sets import setrecord
from tests.support import goldenindex, queueing

FORMATS = range(1, membership.RECORD_FORMAT + 1)


def golden(number):
    return json.loads(goldenindex.path(number).read_text())


def test_every_format_so_far_has_a_file():
    assert [goldenindex.path(number).is_file() for number in FORMATS] == [True] * len(FORMATS)
    assert len(list(goldenindex.FOLDER.glob("index-*.json"))) == len(FORMATS)


@pytest.mark.parametrize("number", FORMATS)
def test_a_file_says_its_own_format(number):
    (kind, fields) = golden(number)["{g1.0}:meta"]
    assert kind == "hash"
    stored = {bytes.fromhex(name): bytes.fromhex(value) for name, value in fields}
    assert stored[b"format"] == str(number).encode()


@pytest.fixture(params=FORMATS)
async def found(request, own_server):
    """An index of an earlier version, opened by this one."""
    with own_server.client() as client:
        goldenindex.restored(client, golden(request.param))
    queue = delayqueue.connect(
        own_server.url, blob_key=queueing.BLOB_KEY, prefix=goldenindex.PREFIX
    )
    await queue.start()
    layout = await queue.layouts.read()
    assert layout.shards == goldenindex.SHARDS
    yield queueing.Harness(queue, lambda: goldenindex.SLOT_US, lambda _: None)
    await queue.close()


async def test_every_definition_and_its_action_are_read(found):
    queue = found.queue
    for name in goldenindex.DEFINITIONS:
        expected = goldenindex.of(queue, name)
        shard = int.from_bytes(expected.id, "big") % goldenindex.SHARDS
        assert await queue.definitions.definition(expected.id) == expected
        assert (
            await queue.definitions.blob(expected.namespace, expected.target, shard)
            == queueing.BLOB
        )
    listed = [s.name for shard in await found.shards() async for s in queueing.stored(queue, shard)]
    assert sorted(listed) == sorted(goldenindex.DEFINITIONS)


async def test_a_claim_that_nobody_ended_is_taken_over_with_its_points(found):
    claims = await found.claim_all()
    held = {point.schedule_id for claim in claims if claim.reclaimed for point in claim.points}
    report, second, plain = (goldenindex.of(found.queue, n) for n in ("report", "second", "plain"))
    assert held == {second.id, plain.id}
    kinds = {p.kind for claim in claims for p in claim.points if p.schedule_id == report.id}
    assert kinds == set(points.PointKind) - {points.PointKind.EXPIRY}
    assert not any(claim.unknown_members for claim in claims)


async def test_every_occurrence_keeps_its_slot_and_its_record(found):
    report = goldenindex.of(found.queue, "report")
    occurrences = [
        o
        for s in await found.shards()
        async for o in found.queue.occurrences.all_occurrences(s)
        if o.kind is not points.PointKind.EXPIRY
    ]
    expected = {(one.point.kind, one.record) for one in goldenindex.slots(report)}
    assert {(one.kind, one.record) for one in occurrences} == expected
    assert {one.slot_us for one in occurrences} == {goldenindex.SLOT_US}


async def test_a_set_and_its_members_are_read(found):
    queue = found.queue
    set_ = goldenindex.set_of(queue, setrecord.SetState.SUSPENDED)
    assert await queue.sets.all() == [set_]
    assert await queue.sets.read("shop", "reminders") == set_
    written = list(goldenindex.MEMBERS.values())
    members = await queue.members.lookups.get(set_, [one.id for one in written])
    for member, row in zip(members, written, strict=True):
        assert (member.id, member.at_us, member.payload) == (row.id, row.at_us, row.payload)
        assert member.rule == row.rule
    states = {member.id: member.state for member in members}
    assert states["ended"] is definition.State.COMPLETED
    assert states["private"] is definition.State.ARMED
    assert {states[name] for name in ("shared", "once", "paid:once~1")} == {definition.State.ARMED}
    assert {member.created_us for member in members} == {queueing.CREATED_US}
    counts = await queue.members.counting.counts(set_)
    assert (counts.members, counts.in_flight) == (len(written), 0)


async def test_what_is_kept_of_a_member_goes_when_its_time_is_over(found):
    kept = [
        o
        for s in await found.shards()
        async for o in found.queue.occurrences.all_occurrences(s)
        if o.kind is points.PointKind.EXPIRY
    ]
    set_ = goldenindex.set_of(found.queue, setrecord.SetState.SUSPENDED)
    assert [one.schedule_id for one in kept] == [points.member_id(set_.identity, "ended")]


async def test_the_same_members_written_again_are_unchanged(found):
    set_ = goldenindex.set_of(found.queue, setrecord.SetState.SUSPENDED)
    answers = await found.queue.members.put(set_, list(goldenindex.MEMBERS.values()))
    assert {answer.outcome for answer in answers} == {values.Outcome.UNCHANGED}


async def test_outcomes_and_dead_letters_are_read(found):
    outcomes = [event for entry in await found.outcomes() for event in run.unpack(entry)]
    assert outcomes == [goldenindex.EVENT]
    letters = [
        letter for s in await found.shards() for letter in await found.queue.dead_letters.newest(s)
    ]
    assert [letter.entry for letter in letters] == [goldenindex.LETTER]


async def test_what_was_found_can_be_edited_settled_and_removed(found):
    for claim in await found.claim_all():
        done = tuple(point.member for point in claim.points)
        settled = await found.queue.settlements.settle(claim, messages.Settlement(finished=done))
        assert settled.applied == len(done)
    plain = goldenindex.of(found.queue, "plain")
    edited = msgspec.structs.replace(plain, generation=2)
    arming = messages.Arming(definition=edited, due_us=goldenindex.SLOT_US)
    assert await found.queue.writer.upsert([(arming, queueing.BLOB)], queueing.EPOCH) == ["applied"]
    gone = await found.queue.writer.remove(plain.id, plain.uid, plain.namespace, queueing.EPOCH)
    assert gone == "applied"


async def test_what_is_written_today_is_the_newest_format_byte_for_byte(own_server):
    await goldenindex.written(own_server.url)
    with own_server.client() as client:
        today = json.loads(json.dumps(goldenindex.dumped(client)))
    newest = golden(membership.RECORD_FORMAT)
    assert today.keys() == newest.keys()
    for name, kept in newest.items():
        assert _lasting(name, today[name]) == _lasting(name, kept), name


#: A claim's record ends with the time of the claim: a tag and eight bytes, in hex.
_TIME_DIGITS = 2 * 9


def _without_time(value):
    return value[:-_TIME_DIGITS] if len(value) > _TIME_DIGITS else value


#: A point that lets a member go has its time in the place of a slot.
_EXPIRY = bytes([points.PointKind.EXPIRY]).hex()
_KIND_DIGITS = slice(24, 26)


def _without_expiry(member):
    is_expiry = member[_KIND_DIGITS] == _EXPIRY and len(member) > _KIND_DIGITS.stop
    return member[: _KIND_DIGITS.stop] if is_expiry else member


#: Of a shard's record: what depends on chance, the server, the number of claims and the time.
_OF_ITS_SERVER = (b"incarnation", b"server", b"mark")


def _lasting(name, dumped):
    """What does not depend on the time, on chance, or on the library that deflates."""
    kind, values = dumped
    lasting = {
        "blobs": lambda: [[digest, value[:10]] for digest, value in values],
        "points": lambda: sorted(_without_expiry(member) for member, _ in values),
        "occ": lambda: sorted(_without_expiry(member) for member, _ in values),
        "occrec": lambda: sorted((_without_expiry(member), record) for member, record in values),
        "heads": lambda: sorted(member for member, _ in values),
        "claims": lambda: sorted(len(member) for member, _ in values),
        "leases": lambda: sorted((len(field), _without_time(value)) for field, value in values),
        "letters": lambda: [member[:-40] + member[-8:] for member, _ in values],  # not the id
        "meta": lambda: [pair for pair in values if bytes.fromhex(pair[0]) not in _OF_ITS_SERVER],
        "layout": lambda: [pair for pair in values if pair[0] != b"incarnation".hex()],
        "runs": lambda: [fields for _, fields in values],
        "dead": lambda: [fields for _, fields in values],
    }
    part = name.rpartition("}:")[2].partition(":")[0]
    return kind, lasting[part]() if part in lasting else values
