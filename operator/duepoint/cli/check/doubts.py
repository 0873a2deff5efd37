"""What the API server takes and what will most probably not do what its author wants.

Notes, not problems: a past ``@at`` may be meant to complete at once, and where a name leads is
known only where it is resolved.
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Iterator

from duepoint import expressions
from duepoint.cli import instants
from duepoint.cli.check.manifests import Problem
from duepoint.net import addresses
from duepoint.schedules import actions
from duepoint.schedules import spec as specs

#: Names that lead into a cluster or a machine, whatever they resolve to elsewhere.
_PRIVATE_NAMES = (".svc", ".local", ".internal", ".localhost", ".home.arpa")


def notes(spec: specs.ScheduleSpec) -> Iterator[Problem]:
    """What is doubtful about an accepted spec."""
    yield from _of_past_times(spec)
    yield from _of_plain_http(spec)


def _of_past_times(spec: specs.ScheduleSpec) -> Iterator[Problem]:
    """Each ``@at`` before the creation: it runs only where a deadline covers it."""
    timing = spec.rule.timing
    texts = timing.schedules
    all_once = all(_is_once(text) for text in texts)
    for index, text in enumerate(texts):
        at_us = _past_us(text, spec)
        if at_us is None:
            continue
        name = "spec.schedule" if len(texts) == 1 else f"spec.schedules[{index}]"
        when = instants.utc_text(at_us)
        deadline_us = spec.rule.policy.deadline_us or 0
        is_covered = all_once and not timing.suspend and at_us >= spec.created_us - deadline_us
        if is_covered:
            told = f"{when} has passed; startingDeadlineSeconds covers it, so it runs at once"
        else:
            told = f"{when} has passed and does not run; write a time to come"
        yield Problem(path=name, message=told, is_note=True)


def _past_us(text: str, spec: specs.ScheduleSpec) -> int | None:
    """The instant of an ``@at`` that had passed when the object was created; None for others."""
    if not _is_once(text):
        return None
    compiled = expressions.compile_expression(
        text,
        time_zone=spec.rule.timing.time_zone,
        anchor_us=spec.created_us,
        from_us=spec.created_us,
    )
    return compiled.previous_before(spec.created_us + 1)


def _is_once(text: str) -> bool:
    return text.strip().startswith("@at")


def _of_plain_http(spec: specs.ScheduleSpec) -> Iterator[Problem]:
    target = spec.action.target
    if not isinstance(target, actions.WebhookAction) or target.url is None:
        return
    parts = urllib.parse.urlsplit(target.url)
    host = parts.hostname or ""
    if parts.scheme == "http" and _may_be_public(host):
        yield Problem(
            path="spec.webhook.url",
            message=f"plain http to {host}: a public receiver is refused so, unless the "
            "installation allows it (DUEPOINT_EGRESS_ALLOW_HTTP); write https://",
            is_note=True,
        )


def _may_be_public(host: str) -> bool:
    """By the host alone: a public address, or a name that is none of a cluster or a machine."""
    address = addresses.parse(host)
    if address is not None:
        return addresses.kind(address)[0] is addresses.Kind.PUBLIC
    name = host.lower().rstrip(".")
    return "." in name and not name.endswith(_PRIVATE_NAMES)
