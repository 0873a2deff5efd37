"""An entry's fields, and which entries are left to the queue."""

from __future__ import annotations

import pytest

from duepoint import clock
from duepoint.schedules.conditions import Reason
from duepoint.targets import outcome, target
from duepoint.targets.stream import target as streamtarget
from tests.support import builders, firings


def a_target(*, has_own_streams=True):
    return streamtarget.StreamTarget(clock.SystemClock(), None, has_own_streams=has_own_streams)


def entries(action=None, **changes):
    one = firings.a_firing(action or firings.a_stream(), **changes)
    rows = target.Firings(
        action=one.action, namespace=one.namespace, trigger=one.trigger, uids=[one.uid],
        generations=[one.generation], slots_us=[one.slot_us], attempt=one.attempt,
        run_uid=one.run_uid,
    )  # fmt: skip
    return a_target().entries(rows, [b"member"])


def fields(made):
    (values,) = made.values
    same = dict(zip(made.same[::2], made.same[1::2], strict=True))
    return dict(zip(made.names, values, strict=True)) | same


def test_an_entry_holds_exactly_these_fields():
    made = entries(firings.a_stream("ticks", 500), payload=[1], attempt=2, trigger="Manual")
    assert (made.namespace, made.name, made.max_length) == ("default", "ticks", 500)
    found = fields(made)
    assert found.pop("generated_at").endswith("Z")
    assert found == {
        "id": f"{builders.UID}-1772366400",
        "schedule_id": builders.UID,
        "payload": b"[1]",
        "slot": "1772366400",
        "scheduled_time": "2026-03-01T12:00:00Z",
        "attempt": "2",
        "version": "3",
        "trigger": "Manual",
    }


@pytest.mark.parametrize(
    ("asked", "kept"),
    [(None, 10_000), (7, 7)],
    ids=["unset", "set"],
)
def test_a_stream_keeps_what_is_asked_for(asked, kept):
    assert entries(firings.a_stream("ticks", asked)).max_length == kept


async def test_a_worker_appends_nothing_where_streams_of_our_own_are_off():
    made = a_target(has_own_streams=False)
    given = await made.fire(firings.a_firing(firings.a_stream()))
    assert isinstance(given, outcome.Rejected)
    assert given.reason is Reason.TARGET_UNAVAILABLE
    assert "connectionSecretRef" in given.message


def test_the_queue_appends_nothing_where_streams_of_our_own_are_off():
    action = firings.a_firing(firings.a_stream()).action
    assert a_target().appends(action)
    assert not a_target(has_own_streams=False).appends(action)
