"""Deliberate bugs, each a line or so: what judges the histories has to notice them.

A bug in a script changes the text that the simulated server loads in place of the product's; a bug
in Python replaces a function.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from typing import Any
from unittest import mock

from duepoint.kube import jobbuilder
from duepoint.runs import outcome
from duepoint.targets import eventids
from duepoint.targets.job.target import JobTarget
from tests.support import virtualvalkey


@contextlib.contextmanager
def _in_script(before: str, after: str, *, in_names: str) -> Iterator[None]:
    """Scripts that have this text have another in its place."""
    usual, changed = virtualvalkey.simulated, []

    def broken(text: str) -> str:
        if before in text and in_names in text:
            changed.append(text)
            return usual(text.replace(before, after, 1))
        return usual(text)

    with mock.patch.object(virtualvalkey, "simulated", broken):
        yield
    assert changed, f"no script has {before!r}"


def due_two_seconds_early() -> contextlib.AbstractContextManager[None]:
    """Points are claimed before they are due."""
    return _in_script("local cap = math.min(now, args.cap)", "local cap = now + 2000000",
        in_names="A point is due when both")  # fmt: skip


def claims_that_never_expire() -> contextlib.AbstractContextManager[None]:
    """What a dead worker held stays its own."""
    long = "args.lease = 86400000000; local token = free_token(now + args.lease)"
    return _in_script("local token = free_token(now + args.lease)", long,
        in_names="A point is due when both")  # fmt: skip


@contextlib.contextmanager
def jobs_with_names_of_their_attempt() -> Iterator[None]:
    """A second attempt makes a second Job."""
    numbers, usual = itertools.count(), jobbuilder.name_of

    def named(*args: Any) -> str:
        return f"{usual(*args)}-{next(numbers)}"

    with mock.patch.object(jobbuilder, "name_of", named):
        yield


@contextlib.contextmanager
def webhook_ids_of_their_attempt() -> Iterator[None]:
    """The receiver cannot recognise a repetition."""
    numbers, usual = itertools.count(), eventids.webhook_id

    def made(*args: Any) -> str:
        return f"{usual(*args)[:-4]}{next(numbers):04x}"

    with mock.patch.object(eventids, "webhook_id", made):
        yield


@contextlib.contextmanager
def jobs_that_are_only_reported() -> Iterator[None]:
    """No answer is taken for a yes."""
    usual = JobTarget.fire

    async def fire(self: JobTarget, firing: Any) -> outcome.Outcome:
        answer = await usual(self, firing)
        if isinstance(answer, outcome.Retry):
            return outcome.Delivered(accepted_us=firing.slot_us, running=False, job_name="")
        return answer

    with mock.patch.object(JobTarget, "fire", fire):
        yield
