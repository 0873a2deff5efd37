"""Records leave the ledger when a status shows them, or when another shard has a newer one."""

from __future__ import annotations

from unittest import mock

from duepoint.clock import SystemClock
from duepoint.controller.status.outcomes import Outcomes
from duepoint.delayqueue import messages
from tests.support.terms import a_term

ONE, OTHER = messages.ShardId(1), messages.ShardId(2)


class Ledger:
    """Notes what is removed; ``meanwhile`` is called while Redis is waited for."""

    def __init__(self):
        self.removed = []
        self.meanwhile = lambda: None

    async def store(self, shard, _records, *, shown, **_):
        self.removed += [(shard, name) for name in shown]
        self.meanwhile()


def records_of(ledger, **found):
    listed = {name: [(shard, b"") for shard in shards] for name, shards in found.items()}
    term = a_term(SystemClock(), queue=mock.MagicMock(ledger=lambda: ledger))
    return Outcomes(term, found=listed)


async def test_a_record_that_a_status_shows_goes_from_every_shard():
    ledger = Ledger()
    records = records_of(ledger, one=[ONE, OTHER], two=[ONE])
    records.shown("one")
    await records._remove()
    assert sorted(ledger.removed) == [(ONE, "one"), (OTHER, "one")]


async def test_one_that_is_shown_again_while_it_is_removed_is_removed_once():
    ledger = Ledger()
    records = records_of(ledger, one=[ONE])
    records.shown("one")
    ledger.meanwhile = lambda: records.shown("one")
    await records._remove()
    await records._remove()
    assert ledger.removed == [(ONE, "one")]
