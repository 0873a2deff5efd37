"""Whether slots of a target can run: room for its stream, and a dry run of its Job; cached.

The verdict depends on the namespace (quota, admission), on the template, and for an Indexed Job on
the length of its name (which has less room), so these are the cache key: 10,000 Schedules made from
one template cost no more requests than there are workers. Only verdicts are cached, never errors.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from duepoint import errors
from duepoint.controller import plan
from duepoint.delayqueue.streams import Streams
from duepoint.kube import jobbuilder, jobs, port
from duepoint.schedules import actions
from duepoint.schedules.conditions import Reason
from duepoint.schedules.definition import Definition

#: Why there can be no Jobs, or why this is not known now; None = there can be.
Verdict = jobs.JobRefused | None
_Key = tuple[str, bytes, int]

#: The most verdicts in the cache.
_REMEMBERED = 16_384


#: Reasons of a verdict that refuses a generation.
REFUSALS = (Reason.TARGET_UNAVAILABLE, Reason.INVALID_JOB_TEMPLATE)


class DryRuns:
    """Verdicts on targets, with a cache of those on Job templates."""

    def __init__(self, api: port.Api, streams: Streams) -> None:
        self._api = api
        self._streams = streams
        self._verdicts: dict[_Key, Verdict] = {}

    async def verdict(
        self,
        action: actions.Action,
        namespace: str,
        facts: Callable[[], jobbuilder.SlotFacts],
        *,
        is_accepted: bool,
    ) -> Verdict:
        """Return why slots cannot run, or why this is not known yet; None = they can.

        Does not check Jobs of an accepted generation again: a rebuild must not wait for answers.
        """
        stream = actions.own_stream(action.target)
        if stream and not await self._streams.enlist(namespace, stream.name, anyhow=is_accepted):
            full = (
                f"spec.stream.name: namespace {namespace} has as many streams in Duepoint's own "
                "Redis as it may have; write the name of one of them, name another Redis in "
                "connectionSecretRef, or have a stream deleted that is not used any more"
            )
            return jobs.JobRefused(Reason.TARGET_UNAVAILABLE, full)
        if is_accepted or not isinstance(action.target, actions.JobAction):
            return None
        return await self._of_job(action.target, facts(), action.payload)

    async def _of_job(
        self, target: actions.JobAction, facts: jobbuilder.SlotFacts, payload: bytes
    ) -> Verdict:
        """Return the verdict on Jobs of this template, under the name of a slot."""
        template = target.opened()
        try:
            job = jobbuilder.job_for(template, facts, payload, has_variables=False)
        except errors.InvalidSpec as error:
            return jobs.JobRefused(Reason.INVALID_JOB_TEMPLATE, str(error))
        # The length matters only for an Indexed Job: the API server shortens other Pods' names.
        spec = template.get("spec")
        is_indexed = isinstance(spec, dict) and spec.get("completionMode") == "Indexed"
        length = len(str(job["metadata"]["name"])) if is_indexed else 0
        key = facts.namespace, hashlib.sha256(target.template).digest(), length
        if key in self._verdicts:
            return self._verdicts[key]
        verdict = await jobs.dry_run(self._api, facts.namespace, job)
        if verdict is None or verdict.reason is Reason.INVALID_JOB_TEMPLATE:
            if len(self._verdicts) >= _REMEMBERED:
                self._verdicts.clear()
            self._verdicts[key] = verdict
        return verdict


def facts_of(wanted: Definition) -> jobbuilder.SlotFacts:
    """Return the facts of the next slot; if none is left, of the definition's beginning."""
    timeline = plan.slots_of(wanted)
    following = timeline.next_after(wanted.not_before_us)
    slot_us = wanted.not_before_us if following is None else following.slot_us
    return jobbuilder.SlotFacts(
        namespace=wanted.namespace,
        name=wanted.name,
        uid=wanted.uid,
        slot_us=slot_us,
        previous_us=timeline.previous_before(slot_us),
        trigger="Schedule",
        time_zone=wanted.rule.timing.time_zone,
    )
