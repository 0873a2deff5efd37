"""The judge has teeth: a broken engine is noticed, by the rule that it breaks."""

from __future__ import annotations

import pytest

from tests.simulation import faults, history, mutants, oracle, scopes
from tests.simulation.faults import Kind


def problems_of(valkey, mutant, target, kind):
    """Those of the first history in which the bug shows, with the event at each message."""
    story = scopes.one_slot(target)
    numbers = [None] if kind is None else scopes.of_firing(history.run(story, 1, valkey))
    with mutant():
        valkey.load()
        for number in numbers:
            events = [] if kind is None else [faults.usual(kind, number)]
            record = history.run(scopes.with_events(story, *events), 1, valkey)
            if problems := oracle.judge(record):
                return " ".join(problems)
    return ""


@pytest.fixture(autouse=True)
def usual_scripts(valkey):
    yield
    valkey.load()


@pytest.mark.parametrize(
    ("mutant", "target", "kind", "said"),
    [
        (mutants.due_two_seconds_early, "webhook", None, "early"),
        (mutants.claims_that_never_expire, "job", Kind.KILL_BEFORE, "is lost"),
        (mutants.jobs_with_names_of_their_attempt, "job", Kind.RESET_REPLY, "several ids"),
        (mutants.webhook_ids_of_their_attempt, "webhook", Kind.RESET_REPLY, "several ids"),
        (mutants.jobs_that_are_only_reported, "job", Kind.RESET_REQUEST, "is lost"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_broken_engine_is_noticed(valkey, mutant, target, kind, said):
    assert said in problems_of(valkey, mutant, target, kind)
