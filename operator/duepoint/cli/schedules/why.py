"""``duepoint why``: explains why a Schedule does not run, or what happened to one of its slots.

``now`` explains the present state of the Schedule, ``of_slot`` one slot. The first finding is the
cause; the others are further findings. The facts are checked in a fixed order, the most general
first. A Schedule that is refused or suspended has no slots to explain. A slot that was put off
has a reason of its own. A slot without any record was not claimed; then the installation is
checked: operator, Redis, workers, clocks.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import click

from duepoint.cli import instants, options, output
from duepoint.cli.schedules.facts import JobFacts, ScheduleFacts, gathered
from duepoint.controller.status import published
from duepoint.runs import history
from duepoint.runs.history import PastSlot
from duepoint.schedules import diagnosis
from duepoint.schedules.conditions import Reason
from duepoint.schedules.diagnosis import ScheduleHealth, Shown

_SECOND_US = 1_000_000
#: How long after its due a slot should be in the status at the latest.
_SHOWN_WITHIN_US = 15 * _SECOND_US
#: An older state on the Lease is outdated: the leader has stopped renewing it.
_STATE_AGES_US = 60 * _SECOND_US
#: If points wait for longer although workers live, no worker claims them.
_LONG_LAG_SECONDS = 5.0
#: The most unclaimed slots to count.
_MOST_UNCLAIMED = 100


class Finding(NamedTuple):
    """One finding about a Schedule or slot.

    Attributes:
        cause: one word, as in the reference of errors and reasons.
        text: a sentence.
        since_us: since when; 0 = unknown.
    """

    cause: str
    text: str
    since_us: int = 0


# -- the command ---------------------------------------------------------------------------------


@click.command()
@options.schedule_name
@click.option(
    "--at",
    metavar="TIME",
    help="The slot that is meant: RFC 3339, HH:MM for the last such time, or yesterday HH:MM;"
    " without an offset in the Schedule's zone. Unset: how it stands now.",
)
@options.output_format
@options.of_one
def why(name: str, *, at: str | None, form: str, place: options.Place) -> None:
    """Say why the Schedule NAME does not run, since when, and what to do next.

    Example: duepoint why report -n team-a --at 02:30
    """
    facts = asyncio.run(gathered(place, name))
    now_us = instants.now_us()
    slot_us = (
        0 if at is None else instants.parse_last_us(at, zone=facts.timing.time_zone, name="--at")
    )
    found = of_slot(facts, slot_us, now_us) if slot_us else now(facts, now_us)
    if output.is_data(form):
        output.write([row(facts, found, slot_us)], form)
        return
    for line in lines(facts, found, slot_us):
        output.say(line)


def row(facts: ScheduleFacts, found: Sequence[Finding], slot_us: int = 0) -> output.Row:
    """Return the answer as a row of the JSON output; about a slot, unless that is 0."""
    at = {"at": instants.utc_text(slot_us)} if slot_us else {}
    place = {"namespace": facts.namespace, "name": facts.name}
    cause, *also = (
        {"cause": one.cause, "message": one.text, "since": output.time(one.since_us or None)}
        for one in found
    )
    return {
        "namespace": facts.namespace,
        "schedule": facts.name,
        "slot": output.time(slot_us or None),
        **cause,
        "do": list(diagnosis.steps_for(found[0].cause, **place, **at)),
        "also": also,
        "next": output.time(facts.next_us or None),
    }


def lines(facts: ScheduleFacts, found: Sequence[Finding], slot_us: int = 0) -> Iterator[str]:
    """Yield the answer as lines: cause, since when, what to do, further findings."""
    first, *others = found
    local = instants.LocalTime(facts.timing.time_zone)
    slot = f", slot {local.text(slot_us)}" if slot_us else ""
    yield f"{facts.identity}{slot}: {first.cause}"
    yield f"  cause  {first.text or first.cause}"
    if first.since_us:
        ago = output.span((instants.now_us() - first.since_us) / _SECOND_US)
        since = instants.utc_text(first.since_us - first.since_us % _SECOND_US)
        yield f"  since  {since} ({ago} ago)"
    for number, step in enumerate(row(facts, found, slot_us)["do"]):
        yield f"  {'do   ' if number == 0 else '     '}  {step}"
    for one in others:
        yield f"  also   {one.cause}: {one.text}"
    if facts.next_us:
        yield f"  next   {local.text(facts.next_us)}"


# -- the Schedule as it stands -------------------------------------------------------------------


def now(facts: ScheduleFacts, now_us: int) -> tuple[Finding, ...]:
    """Return why the Schedule does not run now, or that nothing is wrong."""
    return tuple(_stopped(facts, now_us)) or tuple(_running(facts, now_us)) or (_well(facts),)


def _stopped(facts: ScheduleFacts, now_us: int) -> Iterator[Finding]:
    """Yield what keeps the Schedule from having slots at all."""
    if not facts.is_current:
        yield from _installation(facts, now_us)
        is_new = facts.status.observed_generation < 0
        what = "it" if is_new else f"generation {facts.generation} of it"
        text = f"no operator has looked at {what} yet"
        yield Finding(diagnosis.NOT_OBSERVED, text, max(facts.created_us, facts.edited_us))
        return
    found = facts.diagnosis(now_us)
    if found.health in (ScheduleHealth.PROBLEM, ScheduleHealth.WAITING) and found.about is not None:
        yield _of_condition(found.about)
        if found.health is ScheduleHealth.WAITING:
            yield from _installation(facts, now_us)
    elif suspended := _suspension(facts, now_us):
        yield suspended


def _running(facts: ScheduleFacts, now_us: int) -> Iterator[Finding]:
    """Yield what the last slots show, for a Schedule that has slots or is completed."""
    unclaimed = _unclaimed_us(facts, now_us)
    if unclaimed:
        yield from _unclaimed(facts, unclaimed, now_us)
    problems = [_of_condition(one) for one in diagnosis.troubles(facts.status.conditions)]
    yield from problems
    if not (problems or unclaimed):
        yield from _of_newest(facts)
    start_us = facts.timing.start_us
    if facts.is_over:
        yield from _of_completion(facts, now_us)
    elif not problems and start_us is not None and start_us > now_us:
        yield _outside(f"no slot counts before spec.startTime, {instants.utc_text(start_us)}")


def _suspension(facts: ScheduleFacts, now_us: int) -> Finding | None:
    """Return that it is suspended, by whom and since when if the object says so; else None."""
    if facts.spec is None or not facts.is_suspended(now_us):
        return None
    until_us = facts.timing.suspend_until_us
    text = "spec.suspend is true"
    if until_us is not None:
        text = f"suspended until {instants.utc_text(until_us)}"
    by, at_us = facts.written.get("suspend", ("", 0))
    if by:
        text += f", written by {by}"
    if facts.spec.suspend_reason:
        text += f': "{facts.spec.suspend_reason}"'
    return Finding(Reason.SUSPENDED, text, at_us)


def _of_condition(found: Shown) -> Finding:
    return Finding(found.reason, found.message, published.instant_us(found.last_transition_time))


def _of_newest(facts: ScheduleFacts) -> Iterator[Finding]:
    """Yield what the newest slots show, if no condition says more."""
    newest = facts.recent[0] if facts.recent else None
    if newest is None or newest.outcome in ("Succeeded", "Replaced"):
        return
    if newest.outcome == "Running":
        yield _of_shown(facts, newest)
        return
    yield Finding(newest.why, sentence(newest), _streak_us(facts, newest.why))
    # A run may block the next slot. If that run's Pod does not start, the Pod is what to repair.
    yield from (_of_job(job) for job in facts.jobs if job.pod_trouble and not job.is_over)


def _of_completion(facts: ScheduleFacts, now_us: int) -> Iterator[Finding]:
    """Yield why no slot is left; if none was ever due, that is the cause."""
    ready = facts.status.ready
    text = ready.message or "no slot is left"
    end_us = facts.timing.end_us
    if end_us is not None and end_us <= now_us:
        text += f"; spec.endTime was {instants.utc_text(end_us)}"
    elif (timeline := facts.timeline) is not None and not facts.recent:
        past_us = timeline.at_or_before(facts.created_us)
        if past_us is not None and timeline.next_after(facts.created_us) is None:
            before = output.span((facts.created_us - past_us) / _SECOND_US)
            created = instants.utc_text(facts.created_us)
            yield Finding(
                diagnosis.BEFORE_CREATION,
                f"its last slot, {instants.utc_text(past_us)}, lay {before} before the Schedule was"
                f" created at {created}, and no startingDeadlineSeconds covers it",
                past_us,
            )
    yield Finding(ready.reason, text, published.instant_us(ready.last_transition_time))


def _well(facts: ScheduleFacts) -> Finding:
    newest = next((slot for slot in facts.recent if slot.outcome == "Succeeded"), None)
    said = "no slot was due yet" if newest is None else sentence(newest)
    following = f"; the next is {instants.utc_text(facts.next_us)}" if facts.next_us else ""
    return Finding(diagnosis.WELL, f"nothing is wrong: {said}{following}")


def _streak_us(facts: ScheduleFacts, reason: str) -> int:
    """Return since when the newest slots in a row show this reason; 0 = unknown.

    The status keeps ten slots. If none of them started, the series began after the last run.
    """
    streak = list(itertools.takewhile(lambda slot: slot.why == reason, facts.recent))
    if len(streak) < history.MOST:
        return streak[-1].since_us or streak[-1].slot_us
    last_us = published.instant_us(facts.status.last_schedule_time)
    if facts.timeline is None or not last_us or any(slot.started_us for slot in streak):
        return 0
    first = facts.timeline.next_after(last_us)
    return 0 if first is None else first.slot_us


# -- slots without any record --------------------------------------------------------------------


def _unclaimed_us(facts: ScheduleFacts, now_us: int) -> tuple[int, ...]:
    """Return slots that were due but are not in the status, newest first."""
    timeline, through_us = facts.timeline, facts.status.watermark.through_us
    # After a Schedule is completed, later times of its expression are not slots.
    if timeline is None or not through_us or facts.is_over or facts.is_refused:
        return ()
    found = (
        slot_us
        for slot_us in timeline.walk_back(now_us, max(through_us, facts.created_us))
        if timeline.due_slot(slot_us).due_us + _SHOWN_WITHIN_US <= now_us
        if not any(shown.is_regular and shown.covers(slot_us) for shown in facts.recent)
    )
    return tuple(itertools.islice(found, _MOST_UNCLAIMED))


def _unclaimed(facts: ScheduleFacts, slots_us: tuple[int, ...], now_us: int) -> Iterator[Finding]:
    many = "1 slot was" if len(slots_us) == 1 else f"{len(slots_us)} slots were"
    text = f"{many} not claimed, the oldest that of {instants.utc_text(slots_us[-1])}"
    if any(job.slot_us in slots_us for job in facts.jobs):
        text = "slots have run, and the status does not show them yet: it is late"
    yield from _installation(facts, now_us)
    yield Finding(diagnosis.NOT_CLAIMED, text, slots_us[-1])


def _installation(facts: ScheduleFacts, now_us: int) -> Iterator[Finding]:
    """Yield what is wrong with the installation by its Lease; nothing if that is unknown."""
    lease = facts.lease
    if lease is None:
        return
    if not lease.leads:
        text = "no operator leads" if not lease.holder else "the operator does not renew its Lease"
        yield Finding(diagnosis.NO_OPERATOR, text, lease.renewed_us)
    state = lease.state
    if state is None or (lease.leads and now_us - published.instant_us(state.at) > _STATE_AGES_US):
        return
    if state.redis_down_since:
        since_us = published.instant_us(state.redis_down_since)
        yield Finding(diagnosis.QUEUE_DOWN, "Redis does not answer the operator", since_us)
        return
    for name, text in state.worker_troubles.items():
        if "clock" in text:
            yield Finding(diagnosis.CLOCK, f"worker {name}: {text}")
    if text := state.troubles.get("clock", ""):
        yield Finding(diagnosis.CLOCK, f"operator: {text}")
    if state.workers == 0:
        yield Finding(diagnosis.NO_WORKER, "no worker lives")
    elif state.lag_seconds > _LONG_LAG_SECONDS and lease.leads:
        lag = output.span(state.lag_seconds)
        text = f"{state.due} points are due, the oldest for {lag}, with {state.workers} workers"
        yield Finding(diagnosis.NOT_CLAIMED, text)


# -- one slot ------------------------------------------------------------------------------------


def of_slot(  # noqa: PLR0911 - a case each
    facts: ScheduleFacts, at_us: int, now_us: int
) -> tuple[Finding, ...]:
    """Return what happened to the slot at an instant, or which slots are next to it."""
    if shown := [slot for slot in facts.recent if slot.covers(at_us)]:
        return tuple(_of_shown(facts, slot) for slot in shown)
    if (outside := _no_slot(facts, at_us)) is not None:
        return (outside,)
    if at_us > now_us:
        text = f"it is due in {output.span((at_us - now_us) / _SECOND_US)}"
        return (Finding(diagnosis.NOT_YET, text),)
    suspended = _suspension(facts, now_us)
    if suspended is not None and suspended.since_us <= at_us:
        return (suspended,)
    if not facts.is_current or facts.is_refused:
        return tuple(_stopped(facts, now_us))
    if facts.status.watermark.is_open(at_us):
        put_off = Finding(diagnosis.NOT_CLAIMED, "it was put off, and is tried again")
        found = diagnosis.troubles(facts.status.conditions)
        return tuple(map(_of_condition, found)) or (put_off,)
    if at_us <= facts.status.watermark.through_us:
        return (_of_records(facts, at_us),)
    if at_us in _unclaimed_us(facts, now_us):
        return tuple(_unclaimed(facts, (at_us,), now_us))
    return (Finding(diagnosis.NOT_YET, "it was due a moment ago; ask again"),)


def _of_shown(facts: ScheduleFacts, slot: PastSlot) -> Finding:
    """Return what happened to a slot that is in the status."""
    if slot.outcome != "Running":
        return Finding(slot.why, sentence(slot), slot.since_us or slot.slot_us)
    job = next((job for job in facts.jobs if job.name == slot.job_name), None)
    if job is not None and job.pod_trouble:
        return _of_job(job, slot.started_us)
    return Finding(Reason.RUNNING, sentence(slot), slot.started_us)


def _outside(text: str) -> Finding:
    return Finding(diagnosis.OUTSIDE_WINDOW, text)


def _no_slot(facts: ScheduleFacts, at_us: int) -> Finding | None:
    """Return why the instant is not a slot, or is one that never runs; None for other slots."""
    timeline, timing = facts.timeline, facts.timing
    if timeline is None:
        return Finding(Reason.INVALID_SPEC, facts.invalid)
    if timing.start_us is not None and at_us < timing.start_us:
        return _outside(f"it lies before spec.startTime, {instants.utc_text(timing.start_us)}")
    if timing.end_us is not None and at_us >= timing.end_us:
        return _outside(f"it does not lie before spec.endTime, {instants.utc_text(timing.end_us)}")
    if timeline.at_or_before(at_us) != at_us:
        before_us, after = timeline.at_or_before(at_us), timeline.next_after(at_us)
        local = instants.LocalTime(facts.timing.time_zone)
        near = [] if before_us is None else [f"before it {local.text(before_us)}"]
        near += [] if after is None else [f"after it {local.text(after.slot_us)}"]
        text = f"{local.text(at_us)} is not a slot; {', '.join(near) or 'there is none near it'}"
        return Finding(diagnosis.NOT_A_SLOT, text)
    if at_us <= facts.created_us:
        text = f"the Schedule was created after it, at {instants.utc_text(facts.created_us)}"
        return Finding(diagnosis.BEFORE_CREATION, text)
    return None


def _of_records(facts: ScheduleFacts, at_us: int) -> Finding:
    """Return what a Job or the last edit tells about a slot older than those in the status."""
    for job in facts.jobs:
        if job.slot_us == at_us:
            return _of_job(job)
    text = "it has ended, and is older than the last slots in the status"
    if at_us < facts.edited_us:
        edited = instants.utc_text(facts.edited_us)
        text += f"; slots before an edit of the timing do not run, and the last was at {edited}"
    return Finding(diagnosis.NO_RECORD, text)


def _of_job(job: JobFacts, since_us: int = 0) -> Finding:
    if job.pod_trouble:
        text = f"Job {job.name} exists, and its Pod does not run: {job.pod_trouble}"
        return Finding(diagnosis.POD_STARTING, text, since_us)
    cause, state = Reason.RUNNING, "exists and has not ended"
    if job.is_over:
        cause, state = Reason.SUCCEEDED, "has ended"
    return Finding(cause, f"it ran: Job {job.name} {state}")


_VERBS = {
    "Waiting": "has not started",
    "Retrying": "is tried again",
    "Running": "runs",
    "Succeeded": "succeeded",
    "Failed": "failed",
    "Replaced": "was replaced",
}


def sentence(slot: PastSlot) -> str:
    """Return what happened to a slot, in a sentence."""
    local = instants.utc_text(slot.slot_us)
    many = slot.count > 1
    which = f"{slot.count} slots up to {local}" if many else f"the slot of {local}"
    verb = _VERBS.get(slot.outcome, slot.outcome)
    if slot.outcome in ("Missed", "Skipped"):
        verb = f"{'were' if many else 'was'} {slot.outcome.lower()}"
    late = ""
    if not slot.is_regular:
        verb += " by hand"
    elif slot.started_us and not many:
        late = f", started {output.span(max(0, slot.started_us - slot.slot_us) / _SECOND_US)} late"
    if slot.started_us and slot.finished_us:
        took = output.span(max(0, slot.finished_us - slot.started_us) / _SECOND_US)
        late += f", took {took}"
    attempts = f", {slot.attempts} attempts" if slot.attempts > 1 else ""
    reason = f" ({slot.reason})" if slot.reason and slot.reason != slot.outcome else ""
    message = f": {slot.message}" if slot.message else ""
    return f"{which} {verb}{reason}{late}{attempts}{message}"
