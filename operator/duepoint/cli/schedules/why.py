"""``duepoint why``: why a Schedule does not run, or what became of one of its slots.

``now`` answers for the Schedule as it stands, ``of_slot`` for one slot. The first finding is the
cause; further findings are true besides. The facts are asked in a fixed order, what explains the
most first: a Schedule that is refused or suspended has no slots to ask about; a slot that was put
off names its reason itself; a slot of which nothing was heard was not claimed, and then the
installation is asked: operator, Redis, workers, clocks.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import click

from duepoint.cli import instants, options, output
from duepoint.cli.schedules.facts import JobFacts, ScheduleFacts, gathered
from duepoint.controller.status import texts
from duepoint.runs import history
from duepoint.runs.history import PastSlot
from duepoint.schedules import diagnosis, manualruns
from duepoint.schedules.conditions import WITHOUT_SLOTS, ConditionType, Reason
from duepoint.schedules.diagnosis import ScheduleHealth, Shown

# -- the command ---------------------------------------------------------------------------------


@click.command()
@options.schedule_name
@click.option(
    "--at",
    metavar="TIME",
    type=options.SLOT_TIME,
    help="The slot that is meant: RFC 3339, HH:MM for the last such time, or yesterday HH:MM;"
    " without an offset in the Schedule's zone. Unset: how it stands now.",
)
@options.output_format
@options.of_one
def why(
    name: str,
    *,
    at: str | None,
    form: str,
    place: options.Place,
) -> None:
    """Say why the Schedule NAME does not run, since when, and what to do next.

    Example: duepoint why report -n team-a --at 02:30
    """
    facts = asyncio.run(gathered(place, name))
    now_us = instants.now_us()
    if at is None:
        answer = now(facts, now_us)
    else:
        answer = of_slot(facts, instants.parse_last_us(at, zone=facts.zone, name="--at"), now_us)
    show(facts, answer, form)


# -- showing -------------------------------------------------------------------------------------


def show(facts: ScheduleFacts, answer: Explanation, form: str) -> None:
    """The answer for people, or as one object."""
    if output.is_data(form):
        output.write([row(facts, answer)], form)
        return
    for line in lines(facts, answer):
        output.say(line)


def row(facts: ScheduleFacts, answer: Explanation) -> output.Row:
    """The answer under the names of the JSON output."""
    first = answer.cause
    return {
        "namespace": facts.namespace,
        "schedule": facts.name,
        "slot": output.time(answer.slot_us or None),
        "cause": first.cause,
        "message": first.text,
        "since": output.time(first.since_us or None),
        "do": list(_steps(facts, answer)),
        "also": [
            {"cause": one.cause, "message": one.text, "since": output.time(one.since_us or None)}
            for one in answer.findings[1:]
        ],
        "next": output.time(facts.next_us or None),
    }


def lines(facts: ScheduleFacts, answer: Explanation) -> Iterator[str]:
    """The answer in lines: cause, since when, what to do, what else, and the last slots."""
    first = answer.cause
    slot = f", slot {instants.LocalTime(facts.zone).text(answer.slot_us)}" if answer.slot_us else ""
    yield f"{facts.identity}{slot}: {first.cause}"
    yield f"  cause  {first.text or first.cause}"
    if first.since_us:
        ago = output.span((instants.now_us() - first.since_us) / 1_000_000)
        since = instants.utc_text(first.since_us - first.since_us % 1_000_000)
        yield f"  since  {since} ({ago} ago)"
    for number, step in enumerate(_steps(facts, answer)):
        yield f"  {'do   ' if number == 0 else '     '}  {step}"
    for one in answer.findings[1:]:
        yield f"  also   {one.cause}: {one.text}"
    if facts.next_us:
        yield f"  next   {instants.LocalTime(facts.zone).text(facts.next_us)}"


def _steps(facts: ScheduleFacts, answer: Explanation) -> tuple[str, ...]:
    """What to do about the cause, in commands that can be copied."""
    at = {"at": instants.utc_text(answer.slot_us)} if answer.slot_us else {}
    return diagnosis.steps_for(answer.cause.cause, namespace=facts.namespace, name=facts.name, **at)


# -- the cause -----------------------------------------------------------------------------------


_SECOND_US = 1_000_000
#: A slot is expected to show in the status so long after its due.
_SHOWN_WITHIN_US = 15 * _SECOND_US
#: An object is expected to be looked at so long after its creation or edit.
_LOOKED_AT_WITHIN_US = 10 * _SECOND_US
#: A state on the Lease that is older was not renewed by the leader.
_STATE_AGES_US = 60 * _SECOND_US
#: Points that wait for longer although workers live are claimed by none of them.
_LONG_LAG_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that is so.

    Attributes:
        cause: one word, as in the reference of errors and reasons.
        text: a sentence.
        since_us: since when; 0 = unknown.
    """

    cause: str
    text: str
    since_us: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The cause, what is true besides, and the slot that was asked about; 0 = the Schedule."""

    findings: tuple[Finding, ...]
    slot_us: int = 0

    @property
    def cause(self) -> Finding:
        return self.findings[0]


# -- the Schedule as it stands -------------------------------------------------------------------


def now(facts: ScheduleFacts, now_us: int) -> Explanation:
    """Why it does not run now, or that nothing is wrong."""
    found = tuple(_now(facts, now_us))
    return Explanation(findings=found or (_well(facts),))


def _now(facts: ScheduleFacts, now_us: int) -> Iterator[Finding]:
    """From what stops every slot to what the last ones show."""
    if facts.is_deleting:
        text = f"the namespace {facts.namespace} is being deleted"
        yield Finding(cause=Reason.DELETED, text=text)
        return
    stopped = tuple(_stopped(facts, now_us))
    yield from stopped
    if stopped:
        return
    unclaimed = unclaimed_us(facts, now_us)
    if unclaimed:
        yield from _unclaimed(facts, unclaimed, now_us)
    problems = tuple(map(_of_condition, diagnosis.troubles(facts.conditions.values())))
    yield from problems
    if not problems and not unclaimed:
        yield from _of_newest(facts)
    ready = facts.conditions.get(ConditionType.READY)
    if ready is not None and ready.reason in WITHOUT_SLOTS:
        yield from _of_completion(facts, ready, now_us)
    elif not problems and (early := _before_start(facts, now_us)) is not None:
        yield early


def _stopped(facts: ScheduleFacts, now_us: int) -> Iterator[Finding]:
    """What keeps it from having slots at all."""
    if facts.observed < facts.generation:
        yield from _unobserved(facts, now_us)
        return
    found = facts.diagnosis(now_us)
    if found.health in (ScheduleHealth.PROBLEM, ScheduleHealth.WAITING) and found.about is not None:
        yield _of_condition(found.about)
        if found.health is ScheduleHealth.WAITING:
            yield from installation(facts, now_us)
    elif found.health is ScheduleHealth.SUSPENDED and (suspended := suspension(facts, now_us)):
        yield suspended


def suspension(facts: ScheduleFacts, now_us: int) -> Finding | None:
    """That it is suspended, by whom and since when, as far as the object says."""
    if facts.spec is None or not facts.is_suspended(now_us):
        return None
    until_us = facts.spec.rule.timing.suspend_until_us
    text = "spec.suspend is true"
    if until_us is not None:
        text = f"suspended until {instants.utc_text(until_us)}"
    writer = facts.written.get("suspend")
    if writer is not None and writer.by:
        text += f", written by {writer.by}"
    if facts.spec.suspend_reason:
        text += f': "{facts.spec.suspend_reason}"'
    return Finding(
        cause=Reason.SUSPENDED, text=text, since_us=0 if writer is None else writer.at_us
    )


def _unobserved(facts: ScheduleFacts, now_us: int) -> Iterator[Finding]:
    """No operator has looked at the newest edit."""
    changed_us = max(
        [facts.created_us, *(written.at_us for written in facts.written.values())], default=0
    )
    what = "it" if facts.observed < 0 else f"generation {facts.generation} of it"
    text = f"no operator has looked at {what} yet"
    found = tuple(installation(facts, now_us))
    if now_us - changed_us < _LOOKED_AT_WITHIN_US and not found:
        text += ", and it was written a moment ago"
    yield from found
    yield Finding(cause=diagnosis.NOT_OBSERVED, text=text, since_us=changed_us)


def _of_condition(found: Shown) -> Finding:
    since_us = texts.instant_us(found.last_transition_time)
    return Finding(cause=found.reason, text=found.message, since_us=since_us)


def _of_newest(facts: ScheduleFacts) -> Iterator[Finding]:
    """What the newest slots show where no condition says more."""
    newest = facts.recent[0] if facts.recent else None
    if newest is None or newest.outcome in ("Succeeded", "Replaced"):
        return
    if newest.outcome == "Running":
        yield from _of_running(facts, newest)
        return
    since_us = _streak_us(facts, newest.why)
    yield Finding(cause=newest.why, text=_sentence(newest), since_us=since_us)
    # A slot is held up by a run; where the Pod of that run does not start, this is what to repair.
    yield from (_of_job(job) for job in facts.jobs or () if job.pod_trouble and not job.is_over)


def _of_completion(facts: ScheduleFacts, ready: Shown, now_us: int) -> Iterator[Finding]:
    """Why no slot is left: where none was ever due, that is what stopped it."""
    timing = None if facts.spec is None else facts.spec.rule.timing
    text = ready.message or "no slot is left"
    if timing is not None and timing.end_us is not None and timing.end_us <= now_us:
        text += f"; spec.endTime was {instants.utc_text(timing.end_us)}"
    if not facts.recent and (past_us := _slot_before_creation(facts)):
        before = output.span((facts.created_us - past_us) / _SECOND_US)
        yield Finding(
            cause=diagnosis.BEFORE_CREATION,
            text=f"its last slot, {instants.utc_text(past_us)}, lay {before} before the Schedule"
            f" was created at {instants.utc_text(facts.created_us)}, and no"
            " startingDeadlineSeconds covers it",
            since_us=past_us,
        )
    since_us = texts.instant_us(ready.last_transition_time)
    yield Finding(cause=ready.reason, text=text, since_us=since_us)


def _slot_before_creation(facts: ScheduleFacts) -> int:
    """The last slot of ``@at`` texts that had all passed at the creation; 0 = not so."""
    timeline = facts.timeline
    if timeline is None or facts.spec is None:
        return 0
    texts = facts.spec.rule.timing.schedules
    if not all(text.strip().lower().startswith("@at") for text in texts):
        return 0
    if timeline.next_after(facts.created_us) is not None:
        return 0
    return timeline.at_or_before(facts.created_us) or 0


def _before_start(facts: ScheduleFacts, now_us: int) -> Finding | None:
    """That ``spec.startTime`` is still to come."""
    start_us = None if facts.spec is None else facts.spec.rule.timing.start_us
    if start_us is None or start_us <= now_us:
        return None
    text = f"no slot counts before spec.startTime, {instants.utc_text(start_us)}"
    return Finding(cause=diagnosis.OUTSIDE_WINDOW, text=text)


def _of_running(facts: ScheduleFacts, slot: PastSlot) -> Iterator[Finding]:
    job = next((job for job in facts.jobs or () if job.name == slot.job_name), None)
    if job is not None and job.pod_trouble:
        text = f"Job {job.name} exists, and its Pod does not run: {job.pod_trouble}"
        yield Finding(cause=diagnosis.POD_STARTING, text=text, since_us=slot.started_us)
        return
    yield Finding(cause=Reason.RUNNING, text=_sentence(slot), since_us=slot.started_us)


def _well(facts: ScheduleFacts) -> Finding:
    newest = next((slot for slot in facts.recent if slot.outcome == "Succeeded"), None)
    said = "no slot was due yet" if newest is None else _sentence(newest)
    following = f"; the next is {instants.utc_text(facts.next_us)}" if facts.next_us else ""
    return Finding(cause=diagnosis.WELL, text=f"nothing is wrong: {said}{following}")


def _streak_us(facts: ScheduleFacts, reason: str) -> int:
    """The oldest of the newest slots in a row that show this reason; 0 = unknown.

    The status keeps ten slots. If none of them has started, it began after the last run that did.
    """
    streak = list(itertools.takewhile(lambda slot: slot.why == reason, facts.recent))
    if len(streak) < history.MOST:
        return streak[-1].since_us or streak[-1].slot_us
    if facts.timeline is None or not facts.last_us or any(slot.started_us for slot in streak):
        return 0
    first = facts.timeline.next_after(facts.last_us)
    return 0 if first is None else first.slot_us


# -- slots of which nothing was heard ------------------------------------------------------------


def unclaimed_us(facts: ScheduleFacts, now_us: int) -> tuple[int, ...]:
    """Slots that were due and of which the status says nothing, newest first, at most a hundred."""
    timeline = facts.timeline
    if timeline is None or facts.spec is None or not facts.settled.through_us:
        return ()
    ready = facts.conditions.get(ConditionType.READY)
    if ConditionType.STALLED in facts.conditions:
        return ()
    if ready is not None and ready.reason in WITHOUT_SLOTS:
        return ()  # later times of its expression are no slots
    found: list[int] = []
    for slot_us in timeline.walk_back(now_us, max(facts.settled.through_us, facts.created_us)):
        if timeline.due_slot(slot_us).due_us + _SHOWN_WITHIN_US > now_us:
            continue
        if not any(shown.is_regular and shown.covers(slot_us) for shown in facts.recent):
            found.append(slot_us)
        if len(found) == 100:
            break
    return tuple(found)


def _unclaimed(facts: ScheduleFacts, slots_us: tuple[int, ...], now_us: int) -> Iterator[Finding]:
    oldest_us = slots_us[-1]
    is_one = len(slots_us) == 1
    count, was = ("the slot", "was") if is_one else (f"{len(slots_us)} slots since the one", "were")
    text = f"{count} of {instants.utc_text(oldest_us)} {was} not claimed"
    if facts.jobs and any(job.slot_us in slots_us for job in facts.jobs):
        text = "slots have run, and the status does not show them yet: it is late"
    found = tuple(installation(facts, now_us))
    yield from found
    yield Finding(cause=diagnosis.NOT_CLAIMED, text=text, since_us=oldest_us)


def installation(facts: ScheduleFacts, now_us: int) -> Iterator[Finding]:
    """What is wrong with the installation, as its Lease says; nothing where that is not known."""
    lease = facts.lease
    if lease is None:
        return
    if not lease.leads:
        text = "no operator leads" if not lease.holder else "the operator does not renew its Lease"
        yield Finding(cause=diagnosis.NO_OPERATOR, text=text, since_us=lease.renewed_us)
    state = lease.state
    if state is None:
        return
    at_us = texts.instant_us(state.at)
    is_fresh = lease.leads and now_us - at_us <= _STATE_AGES_US
    if not is_fresh and lease.leads:
        return
    if state.redis_down_since:
        since_us = texts.instant_us(state.redis_down_since)
        yield Finding(
            cause=diagnosis.QUEUE_DOWN, text="Redis does not answer the operator", since_us=since_us
        )
        return
    for worker, trouble in state.worker_troubles.items():
        if "clock" in trouble:
            yield Finding(cause=diagnosis.CLOCK, text=f"worker {worker}: {trouble}")
    if clock := state.troubles.get("clock"):
        yield Finding(cause=diagnosis.CLOCK, text=f"operator: {clock}")
    if state.workers == 0:
        yield Finding(cause=diagnosis.NO_WORKER, text="no worker lives", since_us=0)
    elif state.lag_seconds > _LONG_LAG_SECONDS and lease.leads:
        lag = output.span(state.lag_seconds)
        text = f"{state.due} points are due, the oldest for {lag}, with {state.workers} workers"
        yield Finding(cause=diagnosis.NOT_CLAIMED, text=text)


# -- one slot ------------------------------------------------------------------------------------


def of_slot(facts: ScheduleFacts, at_us: int, now_us: int) -> Explanation:
    """What became of the slot at an instant, or which slots are next to it."""
    return Explanation(findings=tuple(_of_slot(facts, at_us, now_us)), slot_us=at_us)


def _of_slot(facts: ScheduleFacts, at_us: int, now_us: int) -> Iterator[Finding]:
    shown = [slot for slot in facts.recent if slot.covers(at_us)]
    stands = facts.observed >= facts.generation and ConditionType.STALLED not in facts.conditions
    suspended = suspension(facts, now_us)
    if shown:
        for slot in shown:
            yield from _of_shown(facts, slot)
    elif (outside := _no_slot(facts, at_us)) is not None:
        yield outside
    elif at_us > now_us:
        text = f"it is due in {output.span((at_us - now_us) / _SECOND_US)}"
        yield Finding(cause=diagnosis.NOT_YET, text=text)
    elif suspended is not None and suspended.since_us <= at_us:
        yield suspended
    elif not stands:
        yield from _stopped(facts, now_us)
    elif facts.settled.is_open(at_us):
        put_off = Finding(cause=diagnosis.NOT_CLAIMED, text="it was put off, and is tried again")
        found = diagnosis.troubles(facts.conditions.values())
        yield from tuple(map(_of_condition, found)) or (put_off,)
    elif at_us <= facts.settled.through_us:
        yield _of_records(facts, at_us)
    elif at_us in unclaimed_us(facts, now_us):
        yield from _unclaimed(facts, (at_us,), now_us)
    else:
        yield Finding(cause=diagnosis.NOT_YET, text="it was due a moment ago; ask again")


def _of_shown(facts: ScheduleFacts, slot: PastSlot) -> Iterator[Finding]:
    if slot.outcome == "Running":
        yield from _of_running(facts, slot)
    else:
        yield Finding(cause=slot.why, text=_sentence(slot), since_us=slot.since_us or slot.slot_us)


def _no_slot(facts: ScheduleFacts, at_us: int) -> Finding | None:
    """That the instant is no slot of the Schedule, or one that never counts."""
    timeline = facts.timeline
    if timeline is None or facts.spec is None:
        return Finding(cause=Reason.INVALID_SPEC, text=facts.invalid)
    timing = facts.spec.rule.timing
    if timing.start_us is not None and at_us < timing.start_us:
        text = f"it lies before spec.startTime, {instants.utc_text(timing.start_us)}"
        return Finding(cause=diagnosis.OUTSIDE_WINDOW, text=text)
    if timing.end_us is not None and at_us >= timing.end_us:
        text = f"it does not lie before spec.endTime, {instants.utc_text(timing.end_us)}"
        return Finding(cause=diagnosis.OUTSIDE_WINDOW, text=text)
    if timeline.at_or_before(at_us) != at_us:
        before_us, after = timeline.at_or_before(at_us), timeline.next_after(at_us)
        local = instants.LocalTime(facts.zone)
        near = [] if before_us is None else [f"before it {local.text(before_us)}"]
        near += [] if after is None else [f"after it {local.text(after.slot_us)}"]
        text = f"{local.text(at_us)} is no slot; {', '.join(near) or 'there is none near it'}"
        return Finding(cause=diagnosis.NOT_A_SLOT, text=text)
    if at_us <= facts.created_us:
        text = f"the Schedule was created after it, at {instants.utc_text(facts.created_us)}"
        return Finding(cause=diagnosis.BEFORE_CREATION, text=text)
    return None


def _of_records(facts: ScheduleFacts, at_us: int) -> Finding:
    """It has ended, and the last slots do not reach back to it."""
    job = next((job for job in facts.jobs or () if job.slot_us == at_us), None)
    if job is not None:
        return _of_job(job)
    instant = instants.utc_text(at_us)
    for reason, note in facts.notes:
        if instant in note:
            return Finding(cause=reason, text=note, since_us=at_us)
    edited_us = max((one.at_us for one in facts.written.values()), default=0)
    text = "it has ended, and the last slots of the status do not reach back to it"
    if at_us < edited_us:
        text += (
            f"; the spec was written at {instants.utc_text(edited_us)}, and slots before an edit of"
            " the timing do not run"
        )
    return Finding(cause=diagnosis.NO_RECORD, text=text)


def _of_job(job: JobFacts) -> Finding:
    if job.pod_trouble:
        text = f"Job {job.name} exists, and its Pod does not run: {job.pod_trouble}"
        return Finding(cause=diagnosis.POD_STARTING, text=text)
    state = "has ended" if job.is_over else "exists and has not ended"
    return Finding(
        cause=Reason.SUCCEEDED if job.is_over else Reason.RUNNING,
        text=f"it ran: Job {job.name} {state}",
    )


_VERBS = {
    "Waiting": "has not started",
    "Retrying": "is tried again",
    "Running": "runs",
    "Succeeded": "succeeded",
    "Failed": "failed",
    "Replaced": "was replaced",
}


def _sentence(slot: PastSlot) -> str:
    """What became of a slot, in a sentence."""
    local = instants.utc_text(slot.slot_us)
    many = slot.count > 1
    which = f"{slot.count} slots up to {local}" if many else f"the slot of {local}"
    verb = _VERBS.get(slot.outcome, slot.outcome)
    if slot.outcome in ("Missed", "Skipped"):
        verb = f"{'were' if many else 'was'} {slot.outcome.lower()}"
    late = ""
    if not slot.is_regular:
        is_again = slot.trigger == manualruns.TRIGGER_BACKFILL
        verb += " when it was run again" if is_again else " by hand"
    elif slot.started_us and not many:
        late = f", started {output.span(max(0, slot.started_us - slot.slot_us) / _SECOND_US)} late"
    attempts = f", {slot.attempts} attempts" if slot.attempts > 1 else ""
    reason = f" ({slot.reason})" if slot.reason and slot.reason != slot.outcome else ""
    message = f": {slot.message}" if slot.message else ""
    return f"{which} {verb}{reason}{late}{attempts}{message}"
